# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Says when PowerSGD's states become non-finite, which they stay, as PyTorch's do.

After a step in which a gradient overflowed, PowerSGD adds the error of that step to all
that come. All elements of a matrix are then NaN in what a module returns, so that one of
each is looked at; of what is not compressed, all are.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ddphook import _runtime
from ddphook.torch import _states
from ddphook.torch._device import Device

_log = logging.getLogger("ddphook")
_POISONED = ("powersgd.error", "powersgd.share_error", "powersgd.q")
# Elements of a piece that is looked at as a slice, and not as a list of places.
_LONG = 4096

_Probe = Callable[[Sequence[torch.Tensor]], torch.Tensor]


class Watch:
    """Warns once for all modules that run on a device.

    Parameters
    ----------
    device
        On which they run.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._has_warned = False
        self._probes: weakref.WeakKeyDictionary[_runtime.Module, _Probe | None] = (
            weakref.WeakKeyDictionary()
        )
        self._running: deque[tuple[_runtime.Module, Callable[[], bool | None]]] = deque()

    def after(self, module: _runtime.Module, arrays: Sequence[torch.Tensor]) -> None:
        """Looks at the arrays of a module's run; on a GPU, when that has ended.

        Called by the thread of the context.
        """
        if self._has_warned:
            return
        if module not in self._probes:
            self._probes[module] = _probe_of(module.plan, len(arrays))
        probe = self._probes[module]
        if probe is not None:
            look = self._device.examine(lambda: probe(arrays))
            self._running.append((module, look))
        while self._running:
            module, look = self._running[0]
            is_finite = look()
            if is_finite is None:
                return
            self._running.popleft()
            if not is_finite:
                self._look_at_states(module)

    def _look_at_states(self, module: _runtime.Module) -> None:
        for role in _POISONED:
            for names, value in _states.read(module, role).get(role, {}).items():
                if self._has_warned or bool(torch.isfinite(value).all()):
                    continue
                self._has_warned = True
                _log.warning(
                    "a gradient of %s was not finite, and from now on neither are its "
                    "averages: PowerSGD keeps the step's error, as PyTorch's does. With "
                    "skip_nonfinite=True or numerics='improved' such a step changes no "
                    "state",
                    names if isinstance(names, str) else names[0],
                )


def _probe_of(plan: Mapping[str, Any], count: int) -> _Probe | None:
    """Whether all is finite in the arrays of a module; none if it cannot stay otherwise."""
    roles = {state["role"] for state in plan["states"]}
    if roles.isdisjoint(_POISONED) or "powersgd.nonfinite" in roles:
        return None
    # The lists of a bucket's stages have all of it.
    whole = [each for each in plan["matrix_lists"] if each["end"] > each["begin"]]
    if count != 1 or not whole:
        return lambda arrays: torch.stack([_is_finite(array) for array in arrays]).all()
    starts = {matrix[0] for each in whole for matrix in each["matrices"]}
    pieces = {(offset, size) for each in whole for offset, _, size in each["pieces"]}
    short = [range(begin, begin + size) for begin, size in pieces if size < _LONG]
    index = torch.tensor(sorted(starts.union(*short)), dtype=torch.int64)
    long = [slice(begin, begin + size) for begin, size in pieces if size >= _LONG]

    def probe(arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        flat = arrays[0].view(-1)
        parts = [flat[index.to(flat.device)], *(flat[each] for each in long)]
        return torch.stack([_is_finite(part) for part in parts]).all()

    return probe


def _is_finite(array: torch.Tensor) -> torch.Tensor:
    return torch.isfinite(array).all()
