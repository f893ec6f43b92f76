# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The step that ``python -m ddphook bench --compile`` measures.

A whole training step (forward, backward and SGD) that averages its gradients with
functional collectives, in a form for ``torch.compile(fullgraph=True)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import ddphook.torch
from ddphook.torch import _private

_RATE = 0.05
_Step = Callable[[list[torch.Tensor], torch.Tensor], torch.Tensor]


class CompiledTraining:
    """A copy of a model that trains in a compiled step.

    Unless the step reduces gradients, each rank trains separately. Without options of
    ``ddphook.torch.compile``, PyTorch's own compiler and collectives are used.
    """

    def __init__(
        self, model: nn.Module, *, reduces: bool, options: dict[str, Any] | None
    ) -> None:
        _private.trace_autograd()
        named = dict(model.named_parameters())
        self._parameters = [p.detach().clone() for p in named.values()]
        step = _make_step(model, list(named), reduces)
        if options is None:
            self._step = torch.compile(step, fullgraph=True)
        else:
            self._step = ddphook.torch.compile(step, fullgraph=True, **options)

    def step(self, x: torch.Tensor) -> None:
        """Trains one step with these samples."""
        for parameter in self._parameters:
            parameter.requires_grad_()
        self._step(self._parameters, x)

    def parameters(self) -> torch.Tensor:
        """Returns all parameters in one vector."""
        return torch.cat([p.detach().flatten() for p in self._parameters])


def _make_step(model: nn.Module, names: list[str], reduces: bool) -> _Step:
    collectives = _private.collectives

    def step(parameters: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        named = dict(zip(names, parameters))
        loss = torch.func.functional_call(model, named, (x,)).sub(1).square().mean()
        gradients = torch.autograd.grad(loss, parameters)
        if reduces:
            gradients = tuple(
                collectives.wait_tensor(collectives.all_reduce(g, "avg", "0"))
                for g in gradients
            )
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                parameter.sub_(_RATE * gradient)
        return loss.detach()

    return step
