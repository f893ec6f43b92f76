# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a whole step takes: tensors, and models whose tensors it reads and changes.

A model stands for its parameters and buffers. While a step is traced they are
tensors of the trace, with the hooks of the parameters in whose place they are:
those are how DistributedDataParallel reduces under ``python_reducer``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree

from ddphook._errors import UnsupportedError


class Inputs:
    """The inputs of a step as a list of tensors.

    Attributes
    ----------
    tensors
        Examples: the inputs themselves, and each parameter and buffer of a model
        once, in the order in which the model has them.
    paths
        Where they stand in the inputs: ``[0]['fc.weight']``.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        leaves, self._tree = _pytree.tree_flatten_with_path(tuple(inputs))
        self.tensors: list[torch.Tensor] = []
        self.paths: list[str] = []
        # For each leaf the number of its tensor, or a model.
        self._leaves: list[int | nn.Module] = []
        # Of each tensor of a model.
        self._numbers: dict[torch.Tensor, int] = {}
        self.names: dict[int, str] = {}
        for path, leaf in leaves:
            place = _pytree.keystr(path)
            if isinstance(leaf, nn.Module):
                self._leaves.append(self._add_model(place, leaf))
            elif isinstance(leaf, torch.Tensor):
                self._leaves.append(self._add(place, leaf))
            else:
                raise UnsupportedError(
                    f"expected tensors and models as inputs, but {place} is a "
                    f"{type(leaf).__name__}"
                )

    def _add(self, place: str, tensor: torch.Tensor) -> int:
        self.tensors.append(tensor)
        self.paths.append(place)
        return len(self.tensors) - 1

    def _add_model(self, place: str, model: nn.Module) -> nn.Module:
        if isinstance(model, DistributedDataParallel):
            if not model._use_python_reducer:
                raise UnsupportedError(
                    f"expected {place} to be a DistributedDataParallel that reduces "
                    "in Python; set torch._dynamo.config.optimize_ddp to "
                    "'python_reducer' before it is made"
                )
            inner = model.module
        else:
            inner = model
        for name, tensor in [*inner.named_parameters(), *inner.named_buffers()]:
            if tensor not in self._numbers:
                number = self._add(f"{place}['{name}']", tensor)
                self._numbers[tensor] = number
                self.names[number] = name
        return model

    @contextlib.contextmanager
    def given(self, values: Sequence[torch.Tensor]) -> Iterator[tuple[Any, ...]]:
        """The inputs with `values` for their tensors; models have them meanwhile."""
        given = list(values)
        for tensor, number in self._numbers.items():
            # Of its own, so that a step may write to it.
            given[number] = values[number].clone()
            if isinstance(tensor, nn.Parameter):
                given[number] = _parameter_like(tensor, given[number])
        self._given = given
        models = [leaf for leaf in self._leaves if isinstance(leaf, nn.Module)]
        leaves = [
            leaf if isinstance(leaf, nn.Module) else given[leaf] for leaf in self._leaves
        ]
        with contextlib.ExitStack() as stack:
            for tables in _tables(models):
                stack.callback(tables.update, dict(tables))
                for name, tensor in tables.items():
                    if tensor is not None:
                        tables[name] = given[self._numbers[tensor]]
            hook = register_optimizer_step_pre_hook(self._check_optimizer)
            stack.callback(hook.remove)
            yield _pytree.tree_unflatten(leaves, self._tree)

    def states(self) -> dict[int, torch.Tensor]:
        """What the models' tensors are now, by their numbers; within `given`."""
        return {
            number: self._given[number].detach() for number in self._numbers.values()
        }

    def _check_optimizer(self, optimizer: Any, *_: Any) -> None:
        """Refuses one that would change the parameters that were replaced."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in self._numbers:
                    raise UnsupportedError(
                        "expected an optimizer that the step makes, but this "
                        f"{type(optimizer).__name__} has been made before, for the "
                        "parameter "
                        f"'{self.names[self._numbers[parameter]]}'; what it keeps from "
                        "step to step has to be an input of the step"
                    )


def _tables(models: Sequence[nn.Module]) -> Iterator[dict[str, Any]]:
    """The dictionaries of parameters and buffers, each once."""
    seen = set()
    for model in models:
        for part in model.modules():
            if part not in seen:
                seen.add(part)
                yield part._parameters
                yield part._buffers


def _parameter_like(parameter: nn.Parameter, value: torch.Tensor) -> nn.Parameter:
    """A parameter of this value, with the hooks that the other one has."""
    new = nn.Parameter(value, requires_grad=parameter.requires_grad)
    for hook in (parameter._backward_hooks or {}).values():
        new.register_hook(hook)
    for hook in (parameter._post_accumulate_grad_hooks or {}).values():
        new.register_post_accumulate_grad_hook(hook)
    return new
