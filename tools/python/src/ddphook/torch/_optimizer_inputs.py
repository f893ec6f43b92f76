# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers that a whole step takes: the state they keep between steps, as tensors.

PyTorch's optimizers create most of it in their first step, and some compute with a
count of steps that is a Python number. Here it exists before the step, and the count is
a tensor, as for CUDA graphs.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from ddphook._errors import UnsupportedError
from ddphook.torch import _private

# Options for how an optimizer computes; the trace chooses them itself.
_WAYS = {"foreach": False, "fused": False, "capturable": True}


class Kept(NamedTuple):
    """A tensor that an optimizer keeps for a parameter or, by its index, for a group."""

    owner: nn.Parameter | int
    key: str
    path: str  # In the optimizer: ``['fc.weight']['exp_avg']``.
    name: str  # The parameter's, or empty.
    value: torch.Tensor  # Before the step.
    is_new: bool  # True if `value` is the initial value of the optimizer's first step.


class OptimizerInput:
    """An optimizer among the inputs of a step, where it is at `place`.

    It optimizes parameters of models that are inputs, too; `names` are those of the models'
    tensors. It stays unchanged.
    """

    def __init__(
        self, place: str, optimizer: Optimizer, names: Mapping[torch.Tensor, str]
    ) -> None:
        self.optimizer = optimizer
        self._place = place
        self.kept: list[Kept] = []
        for number, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    path = f".param_groups[{number}]['{key}']"
                    self.kept.append(Kept(number, key, path, "", value, False))
            for parameter in group["params"]:
                if parameter not in names:
                    raise UnsupportedError(
                        f"expected {place} to optimize models that are also inputs of the "
                        f"step, but this {type(optimizer).__name__} has a parameter of "
                        f"shape {tuple(parameter.shape)} that is in none of them"
                    )
        for parameter, state in self._first_state().items():
            name, is_new = names[parameter], not optimizer.state.get(parameter)
            for key, value in state.items():
                path = f"['{name}']['{key}']"
                if not isinstance(value, torch.Tensor):
                    raise UnsupportedError(
                        f"expected an optimizer that keeps tensors, but {place}{path} "
                        f"is a {type(value).__name__}"
                    )
                self.kept.append(Kept(parameter, key, path, name, value, is_new))

    def _table(self, owner: nn.Parameter | int) -> dict[str, Any]:
        """Returns the group or the state that holds what `owner` keeps; within `given`."""
        if isinstance(owner, int):
            return self.optimizer.param_groups[owner]
        return self.optimizer.state[self._parameters[owner]]

    def _first_state(self) -> dict[nn.Parameter, dict[str, Any]]:
        """Returns the optimizer's state of each parameter before the step."""
        optimizer = self.optimizer
        states: dict[nn.Parameter, dict[str, Any]] = {}
        initialize = _private.init_group(optimizer)
        for group in optimizer.param_groups:
            fresh = []
            for parameter in group["params"]:
                if state := optimizer.state.get(parameter):
                    states[parameter] = dict(state)
                elif parameter.requires_grad:
                    fresh.append(parameter)
            if initialize is None or not fresh:
                continue
            stand_ins = [nn.Parameter(torch.zeros_like(value)) for value in fresh]
            for stand_in in stand_ins:
                stand_in.grad = torch.zeros_like(stand_in)
            count = len(inspect.signature(initialize).parameters) - 1
            lists: list[list[Any]] = [[] for _ in range(count)]
            own, optimizer.state = optimizer.state, collections.defaultdict(dict)
            try:
                initialize({**group, "params": stand_ins}, *lists)
                made = optimizer.state
            finally:
                optimizer.state = own
            for parameter, stand_in in zip(fresh, stand_ins):
                state = dict(made.get(stand_in, {}))
                if isinstance(optimizer, torch.optim.SGD) and group["momentum"] != 0:
                    if group["dampening"] != 0:
                        raise UnsupportedError(
                            f"expected {self._place}, an SGD with dampening, to have taken "
                            "a step, because its first step differs from the others"
                        )
                    # SGD begins with the first gradient, which is 0 + gradient.
                    state = {"momentum_buffer": torch.zeros_like(stand_in)}
                if state:
                    states[parameter] = state
        return states

    @contextlib.contextmanager
    def given(
        self,
        parameters: Mapping[torch.Tensor, torch.Tensor],
        values: Sequence[torch.Tensor],
    ) -> Iterator[None]:
        """Replaces the parameters of the models, and each tensor of `kept` by one of
        `values`, to which the step writes."""
        optimizer, groups = self.optimizer, self.optimizer.param_groups
        before = [dict(group) for group in groups], optimizer.state
        self._parameters = parameters
        with contextlib.ExitStack() as stack:
            self._step = stack.enter_context(contextlib.ExitStack())
            stack.callback(optimizer.register_step_pre_hook(self._begin).remove)
            stack.callback(optimizer.register_step_post_hook(self._end).remove)
            try:
                for group in groups:
                    group.update({k: way for k, way in _WAYS.items() if k in group})
                    group["params"] = [parameters[each] for each in group["params"]]
                optimizer.state = collections.defaultdict(dict)
                for kept, value in zip(self.kept, values):
                    self._table(kept.owner)[kept.key] = value
                yield
            finally:
                for group, own in zip(groups, before[0]):
                    group.clear()
                    group.update(own)
                optimizer.state = before[1]

    def states(self) -> list[torch.Tensor]:
        """Returns what the optimizer keeps now, in the order of `kept`; within `given`."""
        found = []
        for kept in self.kept:
            value = self._table(kept.owner).get(kept.key)
            if not isinstance(value, torch.Tensor) or value.shape != kept.value.shape:
                raise UnsupportedError(
                    f"expected a step after which {self._place}{kept.path} is a tensor "
                    f"of shape {tuple(kept.value.shape)}"
                )
            found.append(value.detach())
        count = sum(map(len, self.optimizer.state.values()))
        if count != sum(not isinstance(kept.owner, int) for kept in self.kept):
            raise UnsupportedError(
                f"expected {self._place} to have all its state after one step, but this "
                f"{type(self.optimizer).__name__} adds some in a later step; let it take a step "
                "before the export"
            )
        return found

    def _begin(self, optimizer: Optimizer, *_: Any) -> None:
        """Makes the optimizer count its steps in a 64-bit tensor: otherwise it would
        compute with a Python number. It accepts such a count on a CPU only if PyTorch
        believes that it is compiling."""
        self._step.enter_context(_private.compiling_state_context())
        for state in optimizer.state.values():
            if "step" in state:
                state["step"] = state["step"].double()

    def _end(self, optimizer: Optimizer, *_: Any) -> None:
        self._step.close()
        for kept in self.kept:
            if kept.key == "step" and not isinstance(kept.owner, int):
                state = self._table(kept.owner)
                state["step"] = state["step"].to(kept.value.dtype)
