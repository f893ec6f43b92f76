# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The update rules of optimizers: their compiled and their variable parts.

A `Rule` is compiled into a bucket's module. Numbers that change from step to step,
such as the learning rate, are in a row that the module reads.

Formulas follow ``torch.optim``'s loops over single tensors, with the roundings of
PyTorch's vectorized kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SCALARS = 7
"""The length of a row of the table; a rule uses the first numbers."""

Settings = Mapping[str, Any]
"""Hyperparameters by the names of ``torch.optim``'s parameter groups."""

_Write = Callable[..., str]
_Names = Sequence[str]


@dataclasses.dataclass(frozen=True)
class Rule:
    """The part of a parameter's update that a module is compiled for.

    `kind` is ``"sgd"`` or ``"adam"``; `decay` is ``""``, ``"coupled"`` (a part of the
    gradient) or ``"decoupled"``. `momentum` and `nesterov` are for ``"sgd"``: whether
    there is a buffer, and which of its values is used. For ``"adam"``, `amsgrad` says
    whether the largest second moment counts, and `large_lerp` whether ``beta1`` is at
    most 1/2, so that PyTorch interpolates from the other side.
    """

    kind: str
    decay: str = ""
    maximize: bool = False
    momentum: bool = False
    nesterov: bool = False
    amsgrad: bool = False
    large_lerp: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """The names in ``optimizer.state`` of the tensors that are updated as well."""
        if self.kind == "sgd":
            return ("momentum_buffer",) if self.momentum else ()
        more = ("max_exp_avg_sq",) if self.amsgrad else ()
        return ("exp_avg", "exp_avg_sq", *more)

    @property
    def scalars(self) -> int:
        """The number of values of its row that it uses."""
        return 5 if self.kind == "sgd" else SCALARS

    def body(self, scalars: Sequence[str], dtype: str) -> list[str]:
        """Returns the operations on one element, in MLIR's textual form.

        They are a block's argument list, its operations and their terminator. The block
        takes the gradient, the parameter and the states, and yields the parameter and
        the states. `scalars` are the values of a row of the table.
        """
        arguments = ["%grad", "%param", *(f"%state{i}" for i in range(len(self.states)))]
        gradient, parameter, *states = arguments
        lines: list[str] = []

        def write(operation: str, *operands: str) -> str:
            """Adds an operation, and returns its result."""
            result = f"%e{len(lines)}"
            lines.append(f"{result} = {operation} {', '.join(operands)} : {dtype}")
            return result

        if self.maximize:
            gradient = write("arith.negf", gradient)
        update = self._sgd if self.kind == "sgd" else self._adam
        results = update(write, gradient, parameter, states, scalars)
        typed = ", ".join(f"{name}: {dtype}" for name in arguments)
        kinds = ", ".join([dtype] * len(results))
        return [f"^bb0({typed}):", *lines, f"linalg.yield {', '.join(results)} : {kinds}"]

    def _sgd(
        self, write: _Write, gradient: str, parameter: str, states: _Names, scalars: _Names
    ) -> list[str]:
        rate, decay, momentum, kept, share = scalars
        if self.decay:
            gradient = write("math.fma", parameter, decay, gradient)
        if not self.momentum:
            return [write("math.fma", gradient, rate, parameter)]
        old = write("arith.mulf", states[0], kept)
        buffer = write("math.fma", gradient, share, old)
        step = buffer
        if self.nesterov:
            step = write("math.fma", buffer, momentum, gradient)
        return [write("math.fma", step, rate, parameter), buffer]

    def _adam(
        self, write: _Write, gradient: str, parameter: str, states: _Names, scalars: _Names
    ) -> list[str]:
        rate, decay, weight, beta2, share, correction, epsilon = scalars
        if self.decay == "decoupled":
            parameter = write("arith.mulf", parameter, decay)
        elif self.decay:
            gradient = write("math.fma", parameter, decay, gradient)
        step = write("arith.subf", gradient, states[0])
        base = gradient if self.large_lerp else states[0]
        first = write("math.fma", weight, step, base)
        old = write("arith.mulf", states[1], beta2)
        part = write("arith.mulf", share, gradient)
        second = write("math.fma", part, gradient, old)
        moments = [first, second]
        if self.amsgrad:
            moments.append(write("arith.maximumf", states[2], second))
        root = write("math.sqrt", moments[-1])
        scaled = write("arith.divf", root, correction)
        denominator = write("arith.addf", scaled, epsilon)
        product = write("arith.mulf", rate, first)
        change = write("arith.divf", product, denominator)
        return [write("arith.addf", parameter, change), *moments]


def rule_of(settings: Settings) -> Rule:
    """Returns the rule of a parameter group of ``SGD``, ``Adam`` or ``AdamW``."""
    kind = "decoupled" if settings.get("decoupled_weight_decay") else "coupled"
    decay, maximize = kind if settings["weight_decay"] != 0 else "", settings["maximize"]
    if "betas" in settings:
        large_lerp = 1 - float(settings["betas"][0]) >= 0.5
        amsgrad = settings["amsgrad"]
        return Rule("adam", decay, maximize, amsgrad=amsgrad, large_lerp=large_lerp)
    momentum = settings["momentum"] != 0
    return Rule("sgd", decay, maximize, momentum, momentum and settings["nesterov"])


def row_of(settings: Settings, step: int) -> list[float]:
    """Returns the numbers of a rule in a step, in the order of `Rule.body`.

    Steps count from 1. ``SGD`` only distinguishes the first step from later ones.
    """
    row = (_row_of_adam if "betas" in settings else _row_of_sgd)(settings, step)
    return row + [0.0] * (SCALARS - len(row))


def _row_of_sgd(settings: Settings, step: int) -> list[float]:
    rate, decay = float(settings["lr"]), float(settings["weight_decay"])
    momentum = float(settings["momentum"])
    if step == 1:
        # The buffer holds -0, which adds nothing, so that it becomes the gradient.
        return [-rate, decay, momentum, 0.0, 1.0]
    return [-rate, decay, momentum, momentum, 1 - settings["dampening"]]


def _row_of_adam(settings: Settings, step: int) -> list[float]:
    rate, decay = float(settings["lr"]), float(settings["weight_decay"])
    beta1, beta2 = map(float, settings["betas"])
    if settings["decoupled_weight_decay"]:
        decay = 1 - rate * decay
    weight = 1 - beta1
    return [
        -(rate / (1 - beta1**step)),
        decay,
        weight - 1 if weight >= 0.5 else weight,
        beta2,
        1 - beta2,
        (1 - beta2**step) ** 0.5,
        settings["eps"],
    ]
