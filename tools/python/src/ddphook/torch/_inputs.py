# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a whole step takes: tensors, and models and optimizers that it changes.

A model stands for its parameters and buffers. While a step is traced they are
tensors of the trace, with the hooks of the parameters in whose place they are:
those are how DistributedDataParallel reduces under ``python_reducer``. An optimizer
stands for what it keeps of these parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree

from ddphook._errors import UnsupportedError
from ddphook.torch._optimizer_inputs import OptimizerInput


class Inputs:
    """The inputs of a step as a list of tensors.

    Attributes
    ----------
    tensors
        Examples: the inputs themselves, each parameter and buffer of a model once, in
        the order in which the model has them, and what optimizers keep.
    paths
        Where they stand in the inputs: ``[0]['fc.weight']``.
    names
        Of those of models and optimizers: the parameter that they are or belong to.
    first
        Those that no step has made yet, as an optimizer's first one finds them.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        leaves, self._tree = _pytree.tree_flatten_with_path(tuple(inputs))
        self.tensors: list[torch.Tensor] = []
        self.paths: list[str] = []
        self.names: dict[int, str] = {}
        self.first: dict[int, torch.Tensor] = {}
        # For each leaf the number of its tensor, a model or an optimizer.
        self._leaves: list[int | nn.Module | Optimizer] = []
        # Of each tensor of a model.
        self._numbers: dict[torch.Tensor, int] = {}
        # Of each storage of a model: the tensors in it, and where.
        self._memory: dict[int, list[tuple[int, tuple[int, int]]]] = {}
        # Those that have a gradient at the end of a step.
        self._left: set[int] = set()
        # Each optimizer with the number of its first tensor.
        self._optimizers: dict[Optimizer, tuple[OptimizerInput, int]] = {}
        names = _names([leaf for _, leaf in leaves if isinstance(leaf, nn.Module)])
        for path, leaf in leaves:
            place = _pytree.keystr(path)
            if isinstance(leaf, nn.Module):
                self._leaves.append(self._add_model(place, leaf))
            elif isinstance(leaf, Optimizer):
                self._leaves.append(self._add_optimizer(place, leaf, names))
            elif isinstance(leaf, torch.Tensor):
                self._leaves.append(self._add(place, leaf))
            else:
                raise UnsupportedError(
                    "expected tensors, models and optimizers as inputs, but "
                    f"{place} is a {type(leaf).__name__}"
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
        for name, tensor in _named_tensors(model):
            if tensor not in self._numbers:
                number = self._add(f"{place}['{name}']", tensor)
                self._check_memory(number)
                self._numbers[tensor] = number
                self.names[number] = name
        return model

    def _check_memory(self, number: int) -> None:
        """Refuses a tensor that lies over one of a model's before: a module has each
        of them apart, and a write to one would not reach the other."""
        storage = self.tensors[number].untyped_storage()._cdata
        extent = _extent(self.tensors[number])
        for before, other in self._memory.setdefault(storage, []):
            if extent[0] < other[1] and other[0] < extent[1]:
                raise UnsupportedError(
                    "expected parameters and buffers that lie apart, but "
                    f"{self.paths[number]} shares memory with {self.paths[before]}; "
                    "register one of them, and compute the other in the step"
                )
        self._memory[storage].append((number, extent))

    def _add_optimizer(
        self, place: str, optimizer: Optimizer, names: dict[torch.Tensor, str]
    ) -> Optimizer:
        if optimizer not in self._optimizers:
            added = OptimizerInput(place, optimizer, names)
            self._optimizers[optimizer] = added, len(self.tensors)
            for kept in added.kept:
                number = self._add(f"{place}{kept.path}", kept.value)
                self.names[number] = kept.name
                if kept.is_new:
                    self.first[number] = kept.value
        return optimizer

    def kept_gradients(self) -> list[int]:
        """The parameters whose ``.grad`` a step may find as another one left it: those
        that have one before, or had one at the end of the last step that was given."""
        return [
            number
            for tensor, number in self._numbers.items()
            if isinstance(tensor, nn.Parameter)
            and (tensor.grad is not None or number in self._left)
        ]

    @contextlib.contextmanager
    def given(
        self,
        values: Sequence[torch.Tensor],
        gradients: Mapping[int, torch.Tensor] | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        """The inputs with `values` for their tensors; models have them meanwhile, and
        their parameters `gradients`, or none."""
        given = list(values)
        for tensor, number in self._numbers.items():
            # Of its own, so that a step may write to it.
            given[number] = values[number].clone()
            if isinstance(tensor, nn.Parameter):
                given[number] = _parameter_like(tensor, given[number])
                given[number].grad = (gradients or {}).get(number)
        leaves = [
            given[leaf] if isinstance(leaf, int) else leaf for leaf in self._leaves
        ]
        models = [leaf for leaf in self._leaves if isinstance(leaf, nn.Module)]
        parameters = {tensor: given[number] for tensor, number in self._numbers.items()}
        with contextlib.ExitStack() as stack:
            self._parts = list(_parts(models))
            for part in self._parts:
                stack.callback(part.restore)
                for table in part.tables:
                    for name, tensor in table.items():
                        if tensor is not None:
                            table[name] = parameters[tensor]
            for optimizer, first in self._optimizers.values():
                mine = range(first, first + len(optimizer.kept))
                for number in mine:
                    given[number] = values[number].clone()
                own = [given[number] for number in mine]
                stack.enter_context(optimizer.given(parameters, own))
            hook = register_optimizer_step_pre_hook(self._check_optimizer)
            stack.callback(hook.remove)
            yield _pytree.tree_unflatten(leaves, self._tree)
            for tensor, number in self._numbers.items():
                if given[number].requires_grad != tensor.requires_grad:
                    raise UnsupportedError(
                        f"expected a step that leaves {self.paths[number]} with "
                        f"requires_grad={tensor.requires_grad}, since the module "
                        "would not know of another; set it before the export"
                    )
            self._left = {
                number
                for number in self._numbers.values()
                if given[number].is_leaf and given[number].grad is not None
            }

    def states(self) -> dict[int, torch.Tensor]:
        """What models and optimizers have now, by its numbers; within `given`."""
        states: dict[int, torch.Tensor] = {}
        for part in self._parts:
            for tensor, now in part.changes():
                number = self._numbers[tensor]
                states[number] = self._agree(number, states.get(number), now)
        for optimizer, first in self._optimizers.values():
            states.update(enumerate(optimizer.states(), first))
        return {number: states[number].detach() for number in sorted(states)}

    def _agree(
        self, number: int, other: torch.Tensor | None, now: torch.Tensor
    ) -> torch.Tensor:
        """What a tensor has become, which may stand in several places."""
        example = self.tensors[number]
        if now.shape != example.shape or now.dtype != example.dtype:
            raise UnsupportedError(
                f"expected a step that leaves {self.paths[number]} {example.dtype} of "
                f"shape {tuple(example.shape)}, but it makes it {now.dtype} of shape "
                f"{tuple(now.shape)}"
            )
        if other is not None and other is not now:
            raise UnsupportedError(
                f"expected a step that leaves {self.paths[number]} one tensor in all "
                "places of the model, but it puts another one into one of them"
            )
        return now

    def _check_optimizer(self, optimizer: Any, *_: Any) -> None:
        """Refuses one that would change the parameters that were replaced."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in self._numbers:
                    raise UnsupportedError(
                        f"expected this {type(optimizer).__name__}, which has been made "
                        "before the step, for the parameter "
                        f"'{self.names[self._numbers[parameter]]}', to be an input of "
                        "the step, as the model is: step(model, optimizer, ...)"
                    )


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and buffers of a model by the names that it has without DDP."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    yield from inner.named_parameters()
    yield from inner.named_buffers()


def _names(models: Sequence[nn.Module]) -> dict[torch.Tensor, str]:
    names: dict[torch.Tensor, str] = {}
    for model in models:
        for name, tensor in _named_tensors(model):
            names.setdefault(tensor, name)
    return names


class _Part:
    """A module of a model, with what it has before the step."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._attributes = dict(vars(module))
        self.tables: list[dict[str, Any]] = [module._parameters, module._buffers]
        self._before = [dict(table) for table in self.tables]
        # What these are now, since a step may write to them.
        self._contents = {
            name: _contents(value)
            for name, value in self._attributes.items()
            if name not in _OWN
        }

    def changes(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Each tensor, and what is in its place now."""
        for table, before in zip(self.tables, self._before):
            for name in {**before, **table}:
                old, now = before.get(name), table.get(name)
                if (old is None) != (now is None):
                    raise self._error(name)
                if old is not None and now is not None:
                    yield old, now
        attributes = vars(self._module)
        for name in {**self._attributes, **attributes}:
            old, new = self._attributes.get(name), attributes.get(name)
            # A step may say that it trains.
            if old is not new and name != "training":
                if isinstance(old, _VALUES) or isinstance(new, _VALUES):
                    raise self._error(name)
            contents = self._contents.get(name)
            if contents is not None and not _agree(
                contents, _contents(new), old is new
            ):
                raise self._error(name)

    def _error(self, name: str) -> UnsupportedError:
        return UnsupportedError(
            "expected a step that changes parameters and buffers of a model only, but "
            f"it changes '{name}' of a {type(self._module).__name__}, which is "
            "no input of the module; a buffer of that name would be"
        )

    def restore(self) -> None:
        for table, before in zip(self.tables, self._before):
            table.clear()
            table.update(before)
        attributes = vars(self._module)
        attributes.clear()
        attributes.update(self._attributes)
        for name, contents in self._contents.items():
            _refill(self._attributes[name], contents)


# Of attributes that a step would change to no effect.
_NUMBERS = (bool, int, float, complex, str)
_VALUES = (*_NUMBERS, torch.Tensor)


# What every module has.
_OWN = frozenset(vars(nn.Module()))

# How deep numbers are looked for: in a list of a dictionary, say.
_DEPTH = 4


def _contents(value: Any, depth: int = _DEPTH) -> Any:
    """What a container holds, containers in it as well; None of anything else.

    Objects of a program count as the dictionaries of their attributes.
    """
    if depth == 0:
        return None
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif isinstance(value, set):
        return {element: (element, None) for element in value}
    elif _is_plain_object(value):
        items = vars(value).items()
    else:
        return None
    return {key: (held, _contents(held, depth - 1)) for key, held in list(items)}


def _is_plain_object(value: Any) -> bool:
    kept = (torch.Tensor, nn.Module, type, torch._C.Generator)
    if isinstance(value, kept) or callable(value) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.split(".")[0] not in ("torch", "builtins")


def _agree(old: Any, new: Any, is_same: bool) -> bool:
    """Whether a container holds what it held. One that a step has put in the place of
    another may hold other tensors: those are the step's own."""
    if old is None or new is None:
        return True
    if is_same and old.keys() != new.keys():
        return False
    for key in old.keys() & new.keys():
        (before, inner_before), (now, inner_now) = old[key], new[key]
        if isinstance(before, _NUMBERS) or isinstance(now, _NUMBERS):
            # A NaN is itself.
            if before is not now and not (type(before) is type(now) and before == now):
                return False
        elif is_same and before is not now and isinstance(now, torch.Tensor):
            return False
        if not _agree(inner_before, inner_now, is_same and before is now):
            return False
    return True


def _refill(value: Any, contents: Any) -> None:
    """Gives a container what it held."""
    if contents is None:
        return
    held = {key: element for key, (element, _) in contents.items()}
    if isinstance(value, dict):
        value.clear()
        value.update(held)
    elif isinstance(value, list):
        value[:] = held.values()
    elif isinstance(value, set):
        value.clear()
        value.update(held)
    elif not isinstance(value, tuple):
        vars(value).clear()
        vars(value).update(held)
    for element, inner in contents.values():
        _refill(element, inner)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor lies in: the first, and behind the last."""
    size = tensor.element_size()
    begin = int(tensor.storage_offset()) * size
    if tensor.numel() == 0:
        return begin, begin
    steps = zip(tensor.shape, tensor.stride())
    last = sum((int(n) - 1) * int(step) for n, step in steps)
    return begin, begin + (last + 1) * size


def _parts(models: Sequence[nn.Module]) -> Iterator[_Part]:
    """The modules of some models, each once. What DDP notes of itself is not theirs."""
    seen = set()
    for model in models:
        for module in model.modules():
            if module not in seen and not isinstance(module, DistributedDataParallel):
                seen.add(module)
                yield _Part(module)


def _parameter_like(parameter: nn.Parameter, value: torch.Tensor) -> nn.Parameter:
    """A parameter of this value, with the hooks that the other one has."""
    new = nn.Parameter(value, requires_grad=parameter.requires_grad)
    for hook in (parameter._backward_hooks or {}).values():
        new.register_hook(hook)
    for hook in (parameter._post_accumulate_grad_hooks or {}).values():
        new.register_post_accumulate_grad_hook(hook)
    return new
