# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Warns when PowerSGD's states become non-finite; as in PyTorch, they then stay so.

After a gradient overflows, PowerSGD adds that step's error to the gradients of every later
step. The averages of the step show the overflow: all elements of a compressed matrix are NaN,
with alternating factors in the step after it. It is therefore enough to examine one element of
each matrix, and all elements of tensors that are not compressed.
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
_POISONED = ("powersgd.error", "powersgd.share_error", "powersgd.p", "powersgd.q")
# Pieces with at least as many elements are summed directly; shorter ones are gathered first.
_LONG = 4096

_Probe = Callable[[Sequence[torch.Tensor]], torch.Tensor]


class Watch:
    """Warns once for all modules that run on a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._has_warned = False
        self._probes: weakref.WeakKeyDictionary[_runtime.Module, _Probe | None] = (
            weakref.WeakKeyDictionary()
        )
        self._running: deque[tuple[_runtime.Module, Callable[[], torch.Tensor | None]]] = (
            deque()
        )

    def after(self, module: _runtime.Module, arrays: Sequence[torch.Tensor]) -> None:
        """Examines the arrays after a run of the module; on a GPU, without waiting for it.

        The context's thread calls it.
        """
        if self._has_warned:
            return
        if module not in self._probes:
            self._probes[module] = _probe_of(module.plan, arrays)
        if (probe := self._probes[module]) is not None:
            look = self._device.examine(lambda: probe(arrays))
            self._running.append((module, look))
        while self._running:
            module, look = self._running[0]
            if (sums := look()) is None:
                return
            self._running.popleft()
            if not sums.isfinite().all():
                self._look_at_states(module)

    def _look_at_states(self, module: _runtime.Module) -> None:
        for role in _POISONED:
            for (_, names), value in _states.read(module, role).items():
                if self._has_warned or bool(torch.isfinite(value).all()):
                    continue
                self._has_warned = True
                _log.warning(
                    "a gradient of %s was not finite, and its averages no longer are: "
                    "PowerSGD keeps the error of that step, as PyTorch's hook does. With "
                    "skip_nonfinite=True or numerics='improved', such a step leaves the "
                    "states unchanged",
                    names if isinstance(names, str) else names[0],
                )


def _probe_of(plan: Mapping[str, Any], arrays: Sequence[torch.Tensor]) -> _Probe | None:
    """Returns a function that sums a module's arrays, or None if its states stay finite.

    A sum is not finite if one of its elements is not.
    """
    roles = {state["role"] for state in plan["states"]}
    if roles.isdisjoint(_POISONED) or "powersgd.nonfinite" in roles:
        return None
    # The lists of a bucket's stages cover the whole bucket.
    whole = [each for each in plan["matrix_lists"] if each["end"] > each["begin"]]
    if len(arrays) != 1 or not whole:
        return lambda arrays: torch.stack([_sum(array) for array in arrays])
    starts = {matrix[0] for each in whole for matrix in each["matrices"]}
    pieces = {(offset, size) for each in whole for offset, _, size in each["pieces"]}
    short = [range(begin, begin + size) for begin, size in pieces if size < _LONG]
    index = torch.tensor(sorted(starts.union(*short)), device=arrays[0].device)
    long = [slice(begin, begin + size) for begin, size in pieces if size >= _LONG]

    def probe(arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        flat = arrays[0].view(-1)
        return torch.stack([_sum(flat[index]), *(_sum(flat[each]) for each in long)])

    return probe


def _sum(array: torch.Tensor) -> torch.Tensor:
    return array.sum(dtype=torch.float64)
