# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers that run inside the modules of buckets.

A bucket's module averages its gradients and then updates its parameters, while the
backward pass continues. The optimizer's states stay in ``optimizer.state``, so that
``optimizer.state_dict()`` and learning-rate schedulers still work.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn import Parameter

from ddphook._errors import FailedPreconditionError, InvalidArgumentError, UnsupportedError
from ddphook.torch import _private
from ddphook.torch._bucket import memory_shape
from ddphook.torch._private import FunctionalAdam, FunctionalAdamW, FunctionalSGD
from ddphook.torch._rules import Rule, Settings, row_of, rule_of

# PyTorch computes 16-bit types in steps of another precision.
_DTYPES = (torch.float32, torch.float64)


class Optimizer:
    """A PyTorch optimizer whose parameters are updated by modules.

    The optimizer is a ``torch.optim.SGD``, ``Adam`` or ``AdamW``, or the
    ``_OptimizerHookState`` of PyTorch's ``_hook_then_optimizer``. `parameters` are the
    model's with their names, without those that DDP ignores; the optimizer may have no
    others. Refuses options that modules lack, and 16-bit parameters.
    """

    def __init__(self, optimizer: Any, parameters: Mapping[Parameter, str]) -> None:
        self._keeper, self._settings = _source_of(optimizer, parameters)
        for parameter, settings in self._settings().items():
            if parameter not in parameters:
                raise InvalidArgumentError(
                    "expected an optimizer of parameters that DDP reduces, but it also "
                    f"has one of the shape {tuple(parameter.shape)}"
                )
            if parameter.requires_grad and parameter.dtype not in _DTYPES:
                raise UnsupportedError(
                    f"parameter '{parameters[parameter]}': expected float32 or float64 for "
                    f"an optimizer that runs in modules, but got {parameter.dtype}"
                )
            for name in ("differentiable", "capturable"):
                if settings.get(name):
                    raise UnsupportedError(
                        f"an optimizer with {name}=True cannot run in modules"
                    )
        self._names = parameters
        # The parameters updated since the last call of optimizer.step().
        self._updated: set[Parameter] = set()
        self._taken = False
        if isinstance(optimizer, torch.optim.Optimizer):
            self._take_step(optimizer)

    def rules(self, parameters: Iterable[Parameter]) -> list[Rule | None]:
        """Returns each parameter's rule, or none if the optimizer does not have it."""
        groups = self._settings()
        return [rule_of(groups[p]) if p in groups else None for p in parameters]

    def arrays(self, parameters: Iterable[Parameter]) -> list[torch.Tensor]:
        """Returns what a module takes after a bucket, for one more step.

        For each of the bucket's parameters with a rule: the parameter and its states;
        then the table, which has a row for each of these parameters. DDP puts the
        elements of a gradient into the bucket in the memory order of its parameter, so
        a parameter with gaps, or with elements that share memory, is refused.
        """
        arrays: list[torch.Tensor] = []
        rows: list[list[float]] = []
        known: dict[tuple[int, int], list[float]] = {}
        dtype = torch.float32
        groups = self._settings()
        for parameter in parameters:
            if parameter not in groups:
                continue
            memory_shape(parameter, "a parameter")
            settings = groups[parameter]
            step, states = self._next(parameter, rule_of(settings))
            key = (id(settings), step)
            if key not in known:
                known[key] = row_of(settings, step)
            rows.append(known[key])
            self._updated.add(parameter)
            arrays += [parameter.data, *states]
            dtype = parameter.dtype
        if rows:
            arrays.append(torch.tensor(rows, dtype=dtype))
        return arrays

    def release(self) -> None:
        """Restores the original ``optimizer.step()``."""
        self._taken = False

    def _next(self, parameter: Parameter, rule: Rule) -> tuple[int, list[torch.Tensor]]:
        """Counts a step of a parameter; returns its number, from 1, and the states."""
        state = self._keeper.state.setdefault(parameter, {})
        step = 2
        if rule.kind == "adam":
            if "step" not in state:
                state["step"] = torch.tensor(0.0)
            state["step"] += 1
            step = int(state["step"])
        states = []
        for name in rule.states:
            if state.get(name) is None:
                state[name] = torch.zeros_like(parameter.data)
                if rule.kind == "sgd":
                    step = 1
                    state[name].neg_()
            elif not _are_alike(state[name], parameter):
                # A state from a file may have another memory order.
                state[name] = torch.zeros_like(parameter.data).copy_(state[name])
            states.append(state[name])
        return step, states

    def _check_updated(self) -> None:
        for parameter in self._settings():
            if parameter.grad is not None and parameter not in self._updated:
                name = self._names.get(parameter, "of a later group")
                raise FailedPreconditionError(
                    f"parameter '{name}' has a gradient that was "
                    "not reduced since the last step"
                )
        self._updated.clear()

    def _take_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes ``optimizer.step()`` only call a closure and hooks.

        Programs call it after ``backward()``, which has already updated the parameters;
        schedulers check that they do.

        When called, it raises FailedPreconditionError if a parameter has a gradient
        that no module has used to update it.
        """
        original = optimizer.step
        self._taken = True

        def step(
            self_: torch.optim.Optimizer, closure: Callable[[], float] | None = None
        ) -> float | None:
            _private.note_step(self_)
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            self._check_updated()
            return loss

        with_hooks = torch.optim.Optimizer.profile_hook_step(step)

        @functools.wraps(original)
        def either(self_: torch.optim.Optimizer, *arguments: Any, **more: Any) -> Any:
            if self._taken:
                return with_hooks(self_, *arguments, **more)
            return original(*arguments, **more)

        _private.keep_scheduler_mark(original, either)
        optimizer.step = types.MethodType(either, optimizer)  # type: ignore[method-assign]


class _Groups:
    """Returns the present settings of each parameter in an optimizer of ``torch.optim``,
    whose ``load_state_dict()`` replaces its groups.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._groups: list[Settings] = []
        self._settings: dict[Parameter, Settings] = {}

    def __call__(self) -> Mapping[Parameter, Settings]:
        groups = self._optimizer.param_groups
        if list(map(id, groups)) != list(map(id, self._groups)):
            self._groups = list(groups)
            self._settings = {each: group for group in groups for each in group["params"]}
        return self._settings


def _functional_settings(
    optimizer: Any, parameters: Iterable[Parameter]
) -> Mapping[Parameter, Settings]:
    """Returns the settings of a functional optimizer, which are the same for all parameters."""
    settings = dict(optimizer.defaults)
    if "beta1" in settings:
        settings["betas"] = settings["beta1"], settings["beta2"]
    for name in ("nesterov", "maximize", "amsgrad"):
        if hasattr(optimizer, name):
            settings[name] = getattr(optimizer, name)
    settings["decoupled_weight_decay"] = isinstance(optimizer, FunctionalAdamW)
    return dict.fromkeys(parameters, settings)


def _source_of(
    optimizer: Any, parameters: Iterable[Parameter]
) -> tuple[Any, Callable[[], Mapping[Parameter, Settings]]]:
    """Returns the optimizer that keeps the states, and a function of the settings."""
    if type(optimizer) in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        return optimizer, _Groups(optimizer)
    if isinstance(optimizer, _private.OptimizerHookState):
        chosen = getattr(optimizer, "params_to_optimize", None)
        optimizer = optimizer.functional_optimizer
        if type(optimizer) in (FunctionalSGD, FunctionalAdam, FunctionalAdamW):
            chosen = list(parameters if chosen is None else chosen)
            return optimizer, functools.partial(_functional_settings, optimizer, chosen)
    raise UnsupportedError(
        "expected torch.optim.SGD, Adam or AdamW to run in modules, but got "
        f"{type(optimizer).__name__}"
    )


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors of equal shape have the same memory order."""
    strides = zip(one.shape, one.stride(), other.stride())
    return all(size == 1 or mine == theirs for size, mine, theirs in strides)
