# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiled modules of a model's buckets, and the transfer of states between them.

All of it runs on the thread of the context, in the order of DDP's buckets, which is
the same on all ranks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from ddphook import _cache, _rate, _runtime
from ddphook._errors import InvalidArgumentError
from ddphook.torch import _bucket, _states
from ddphook.torch._device import Device, join
from ddphook.torch._hooks import STATES, Hook, PostLocalSGDState, PowerSGDState
from ddphook.torch._overflow import Watch
from ddphook.torch._rendezvous import Meeting
from ddphook.torch._worker import Worker

_log = logging.getLogger("ddphook")
AnyLayout = _bucket.Layout | _bucket.Scattered | _bucket.Gathered
_FIRST_COMPRESSED_STEP = 1000  # PyTorch's default of start_powerSGD_iter.


class Modules:
    """One module for each bucket of a model; `groups` declares the hook's process
    groups."""

    def __init__(
        self, context: _runtime.Context, hook: Hook, groups: str, device: Device
    ) -> None:
        self._context = context
        self._device = device
        self._watch = Watch(device)
        self._is_rate_checked = False
        self._hook = hook
        self._groups = groups
        self._loaded: dict[AnyLayout, _runtime.Module] = {}
        # States of parameters whose module was unloaded, or is not loaded yet.
        self._waiting: _states.Parts = {}
        # The kinds of all states so far.
        self._kinds: _states.Kinds = {}
        # PyTorch's states, by bucket index.
        self._foreign: dict[str, dict[int, torch.Tensor]] = {}
        # The words of the hook's random generator, at the start and now.
        self._seed: torch.Tensor | None = None
        self._generator: torch.Tensor | None = None
        self._retired: Counter[str] = Counter()

    def run(
        self,
        layout: AnyLayout,
        arrays: list[torch.Tensor],
        is_final: bool,
        begun: Any,
    ) -> None:
        """Reduces a bucket in place; loads its module first if necessary.

        The arrays are its buffer and those of `Optimizer.arrays`; `begun` is the result
        of `Device.begin` for them. `is_final` means that DDP will keep its buckets from
        now on. Arrays for results follow those that are scattered or gathered.
        """
        module = self._loaded.get(layout)
        if module is None:
            module = self._load(layout)
        elif is_final and not self._is_rate_checked:
            # A bucket runs again, so that all buckets are loaded.
            self._is_rate_checked = True
            _rate.warn_of_waste(self._hook.pipeline(), self.buckets())
        if self._foreign and is_final:
            self._place_foreign(layout, module)
        # Without a warm start, modules draw from the hook's generator in every step.
        if self._draws_in_steps and self._generator is not None:
            _states.set_generator(module, self._generator)
        self._device.run(module, arrays, begun)
        if self._draws_in_steps and (words := _states.generator(module)) is not None:
            self._generator = words
        self._watch.after(module, arrays[:1])

    def finish(self) -> None:
        """Waits until the device has run all modules; raises its failure."""
        self._device.finish_all(self._context)

    def close(self) -> None:
        self._context.destroy()
        for module in self._loaded.values():
            module.release()
        self._loaded.clear()

    def statistics(self) -> dict[str, int]:
        total = self._retired.copy()
        for module in self._loaded.values():
            total.update(module.statistics())
        return dict(total)

    def buckets(self) -> list[dict[str, Any]]:
        """Returns the records of all buckets in the plans; any thread may call it."""
        modules = list(self._loaded.values())
        return [bucket for module in modules for bucket in module.plan["buckets"]]

    def states(
        self, expected: Iterable[AnyLayout] = ()
    ) -> tuple[_states.Parts, _states.Kinds]:
        """Returns copies of all states, and the initial states of expected buckets."""
        parts: _states.Parts = {}
        known = {layout.names for layout in self._loaded}
        for layout in expected:
            if layout.names not in known:
                code = _runtime.SharedObject(self._image(layout))
                plan = code.plan()
                code.close()
                self._kinds.update(_states.kinds(plan))
                parts |= _states.initial(plan)
        parts |= {key: value.clone() for key, value in self._waiting.items()}
        for module in self._loaded.values():
            parts |= _states.read(module)
        if self._generator is not None:
            generators = _states.of_kind(parts, self._kinds, _states.GENERATOR)
            parts |= dict.fromkeys(generators, self._generator.clone())
        return parts, {role: self._kinds[role] for role, _ in parts}

    def place(self, parts: _states.Parts, kinds: _states.Kinds) -> None:
        """Keeps parts for modules that start again with these parts only.

        If a part has another number of elements, raises an error, and nothing has
        changed.
        """
        for module in self._loaded.values():
            _states.check(module, parts)
        for layout in list(self._loaded):
            self._unload(layout)
        self._waiting = dict(parts)
        self._foreign = {}
        self._kinds.update(kinds)
        self._generator = None
        if self._draws_in_steps or self._has_compressed(parts):
            generators = _states.of_kind(parts, self._kinds, _states.GENERATOR)
            self._generator = next(iter(generators.values()), None)

    def adopt(self, state: Any, names: list[str]) -> None:
        """Converts a state of PyTorch's for the parameters of these names."""
        count = torch.tensor([state.iter], dtype=torch.int64)
        is_local = isinstance(state, PostLocalSGDState)
        role = "post_local_sgd.iter" if is_local else "powersgd.iter"
        self.place({(role, name): count for name in names}, {role: _states.ITERATION})
        if not is_local:
            self._seed = self._generator = _states.generator_words(state.rng)
            self._foreign = {
                "powersgd.error": dict(state.error_dict),
                "powersgd.q": dict(state.q_memory_dict),
            }

    @property
    def _draws_in_steps(self) -> bool:
        return self._hook.options.get("warm_start") is False

    def _has_compressed(self, parts: _states.Parts) -> bool:
        """True if hooks with these states have used their factors."""
        start = self._hook.options.get("start_powerSGD_iter", _FIRST_COMPRESSED_STEP)
        counts = _states.of_kind(parts, self._kinds, _states.ITERATION)
        return int(next(iter(counts.values()), 0)) > start

    def _image(self, layout: AnyLayout) -> bytes:
        text = layout.text(self._groups, self._hook.own_hook)
        return _cache.compiled(text, self._hook.for_modules(), self._device.target)

    def _load(self, layout: AnyLayout) -> _runtime.Module:
        # DDP no longer has the buckets that these parameters were in.
        for old in [old for old in self._loaded if set(old.names) & set(layout.names)]:
            self._waiting |= _states.read(self._loaded[old])
            self._unload(old)
        image = self._image(layout)
        module = self._loaded[layout] = _runtime.Module(self._context, image)
        self._kinds.update(_states.kinds(module.plan))
        if module.plan["states"]:
            self._begin(layout, module)
        return module

    def _unload(self, layout: AnyLayout) -> None:
        module = self._loaded.pop(layout)
        self._retired.update(module.statistics())
        module.unload()

    def _begin(self, layout: AnyLayout, module: _runtime.Module) -> None:
        """Gives a new module the states that it continues with."""
        parts = _states.select(self._waiting, set(layout.names))
        for key in parts:
            del self._waiting[key]
        has_factors = STATES.get(self._hook.name) is PowerSGDState
        if has_factors and not self._has_compressed(parts):
            # The first factors still have to be drawn, in the order of the present buckets.
            parts = _states.of_kind(parts, self._kinds, _states.ITERATION)
            if not self._draws_in_steps:
                if self._seed is None:
                    seed = self._hook.options.get("random_seed", 0)
                    self._seed = _states.generator_words(np.random.RandomState(seed))
                if layout.index == 0 or self._generator is None:
                    self._generator = self._seed
                self._generator = _states.draw(module, self._generator)
        _states.write(module, parts)

    def _place_foreign(self, layout: AnyLayout, module: _runtime.Module) -> None:
        """Takes over PyTorch's states for the bucket of this index.

        PyTorch's state does not say which parameters it belongs to. It refers to the
        buckets that DDP has after it has rebuilt them.
        """
        for role, arrays in self._foreign.items():
            flat = arrays.pop(layout.index, None)
            if flat is None:
                continue
            parts = _states.from_flat(module, role, flat)
            if not parts:
                _log.warning(
                    "PyTorch's state has %d elements of %s for bucket %d, which has "
                    "another size; they are ignored",
                    flat.numel(),
                    role,
                    layout.index,
                )
            _states.write(module, parts)


def begin(
    meeting: Meeting, hook: Hook, groups: str, device: Device
) -> tuple[Worker, Modules]:
    """Joins a job on a thread of its own; returns the thread, and the job's modules."""
    worker = Worker()
    try:
        context = worker.call(join, meeting, device)
    except BaseException:
        worker.stop()
        worker.join()
        raise
    return worker, Modules(context, hook, groups, device)


def common_parts(hook: str, state: Any) -> _states.Parts:
    """Returns the parts of a state of PyTorch's that are the same on all ranks.

    Refuses a state that does not belong to this hook.
    """
    is_expected = isinstance(state, STATES.get(hook, ()))
    if not is_expected:
        raise InvalidArgumentError(
            f"expected a state of the hook '{hook}', but got {type(state).__name__}"
        )
    parts: _states.Parts = {("iter", ""): torch.tensor([state.iter])}
    if isinstance(state, PowerSGDState):
        parts["generator", ""] = _states.generator_words(state.rng)
        parts |= {("q", i): q for i, q in state.q_memory_dict.items()}
    return parts
