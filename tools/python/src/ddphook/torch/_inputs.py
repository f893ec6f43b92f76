# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The inputs of a whole step: tensors, and models and optimizers that it changes.

A model contributes its parameters and buffers. While a step is traced, tensors of the
trace replace them, with the hooks of the parameters: these hooks are how
DistributedDataParallel reduces under ``python_reducer``. An optimizer contributes its
state for these parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ddphook._errors import UnsupportedError
from ddphook.torch import _private
from ddphook.torch._contents import OfTensor, hooks_of
from ddphook.torch._optimizer_inputs import OptimizerInput
from ddphook.torch._private import FakeTensor, pytree
from ddphook.torch._reached import Left, Reached


class Inputs:
    """The inputs of a step as a list of tensors."""

    def __init__(self, inputs: Sequence[Any], step: Any = None) -> None:
        self._step = step
        leaves, self._tree = pytree.tree_flatten_with_path(tuple(inputs))
        # Examples: the inputs themselves, each parameter and buffer of a model once, in
        # the model's order, and the states of optimizers.
        self.tensors: list[torch.Tensor] = []
        # Their locations in the inputs: ``[0]['fc.weight']``.
        self.paths: list[str] = []
        # The names of parameters, by the numbers of the tensors that belong to them.
        self.names: dict[int, str] = {}
        # The tensors that no step has made yet, with an optimizer's initial values.
        self.first: dict[int, torch.Tensor] = {}
        # For each leaf, the number of its tensor, or a model or an optimizer.
        self._leaves: list[int | nn.Module | Optimizer] = []
        # Each model and optimizer with its location.
        self._roots: list[tuple[str, Any]] = []
        # The modules that the last step left in another mode than it found them in.
        self.modes: dict[nn.Module, bool] = {}
        # Where the last step left new tensors in its own containers.
        self.left: Sequence[Left] = ()
        # The number of each tensor of a model.
        self._numbers: dict[torch.Tensor, int] = {}
        # The replacements of `tensors` in the traced step.
        self._given: list[torch.Tensor] = []
        # The attributes and hooks of the replacements of models' tensors.
        self._attached: list[tuple[str, OfTensor]] = []
        # The tensors that have a gradient at the end of a step.
        self._left: set[int] = set()
        # Each optimizer with the number of its first tensor.
        self._optimizers: dict[Optimizer, tuple[OptimizerInput, int]] = {}
        models = [leaf for _, leaf in leaves if isinstance(leaf, nn.Module)]
        # A tensor of several models has its name in the first one.
        named = (each for model in reversed(models) for each in _named_tensors(model))
        names = {tensor: name for name, tensor in named}
        for path, leaf in leaves:
            place = pytree.keystr(path)
            if isinstance(leaf, torch.Tensor):
                self._leaves.append(self._add(place, leaf))
                continue
            if isinstance(leaf, nn.Module):
                self._add_model(place, leaf)
            elif isinstance(leaf, Optimizer):
                self._add_optimizer(place, leaf, names)
            else:
                raise UnsupportedError(
                    "expected tensors, models and optimizers as inputs, but "
                    f"{place} is a {type(leaf).__name__}"
                )
            self._leaves.append(leaf)
            self._roots.append((place, leaf))
        # They are separate arguments, so a write to one would not reach the other.
        _check_apart(
            ((self.paths[number], tensor) for tensor, number in self._numbers.items()),
            "expected parameters and buffers that do not share memory",
            "register one of them, and compute the other in the step",
        )

    def _add(self, place: str, tensor: torch.Tensor) -> int:
        self.tensors.append(tensor)
        self.paths.append(place)
        return len(self.tensors) - 1

    def _add_model(self, place: str, model: nn.Module) -> None:
        is_ddp = isinstance(model, DistributedDataParallel)
        if is_ddp and not _private.has_python_reducer(model):
            raise UnsupportedError(
                f"expected {place} to be a DistributedDataParallel with the Python "
                "reducer; set torch._dynamo.config.optimize_ddp to 'python_reducer' "
                "before making it"
            )
        for name, tensor in _named_tensors(model):
            if tensor not in self._numbers:
                number = self._add(f"{place}['{name}']", tensor)
                # A trace would lose other classes than PyTorch's.
                kind = type(tensor)
                if kind not in (torch.Tensor, nn.Parameter) and kind is not FakeTensor:
                    raise UnsupportedError(
                        "expected parameters and buffers of PyTorch's own classes, but "
                        f"{self.paths[number]} is a {kind.__name__}; mark the tensor with "
                        "an attribute instead"
                    )
                self._numbers[tensor] = number
                self.names[number] = name

    def _check_replaced(self, number: int, tensor: torch.Tensor) -> None:
        """Refuses the replacement of a tensor that has more than a value."""
        groups = (group["params"] for each in self._optimizers for group in each.param_groups)
        is_optimized = any(self._given[number] is each for group in groups for each in group)
        has = "an optimizer" if is_optimized else ""
        if any(hooks_of(tensor)) or _attributes(tensor).keys() - _private.OF_BUFFERS:
            has = "its hooks or attributes"
        if has:
            raise UnsupportedError(
                f"expected a step that leaves {self.paths[number]} the same tensor, "
                f"because a new one would not have {has}; write to it instead"
            )

    def _add_optimizer(
        self, place: str, optimizer: Optimizer, names: dict[torch.Tensor, str]
    ) -> None:
        if optimizer in self._optimizers:
            return
        added = OptimizerInput(place, optimizer, names)
        self._optimizers[optimizer] = added, len(self.tensors)
        for kept in added.kept:
            number = self._add(f"{place}{kept.path}", kept.value)
            self.names[number] = kept.name
            if kept.is_new:
                self.first[number] = kept.value

    def kept_gradients(self) -> list[int]:
        """Returns the parameters whose ``.grad`` may be left from an earlier step: those
        that have one now, or had one at the end of the last step in `given`."""
        return [
            number
            for tensor, number in self._numbers.items()
            if isinstance(tensor, nn.Parameter)
            and (tensor.grad is not None or number in self._left)
        ]

    @contextlib.contextmanager
    def given(self, values: Sequence[torch.Tensor]) -> Iterator[tuple[Any, ...]]:
        """Yields the inputs with the first `values` for their tensors. Meanwhile, models
        have these values, the parameters in `kept_gradients` have the other values, if
        any, as gradients, and modules have the modes that the last step left. The step
        may not use what else that step left.

        Afterwards, models and everything reachable from them and the step are restored."""
        count = len(self.tensors)
        gradients = dict(zip(self.kept_gradients(), values[count:]))
        self._given = given = list(values[:count])
        self._attached = []
        for tensor, number in self._numbers.items():
            gradient = gradients.get(number)
            given[number] = self._stand_in(number, tensor, values[number], gradient)
        leaves = [given[leaf] if isinstance(leaf, int) else leaf for leaf in self._leaves]
        models = [leaf for leaf in self._leaves if isinstance(leaf, nn.Module)]
        parameters = {tensor: given[number] for tensor, number in self._numbers.items()}
        with contextlib.ExitStack() as stack:
            # Comes before `Reached` records the objects, hooks of optimizers included.
            for optimizer, first in self._optimizers.values():
                mine = range(first, first + len(optimizer.kept))
                for number in mine:
                    given[number] = values[number].clone()
                own = [given[number] for number in mine]
                stack.enter_context(optimizer.given(parameters, own))
            self._tables = list(_tables(models))
            roots = [*self._roots, *self._attached, ("step", self._step)]
            reached = Reached(roots, [table for _, table, _ in self._tables])
            stack.callback(reached.restore)
            self._reached = reached
            reached.guard(self.left)
            for module, mode in self.modes.items():
                module.training = mode
            for _, table, before in self._tables:
                for name, tensor in before.items():
                    if tensor is not None:
                        table[name] = parameters[tensor]
            stack.callback(register_optimizer_step_pre_hook(self._check_optimizer).remove)
            with reached.no_writes_to_large_arrays():
                yield pytree.tree_unflatten(leaves, self._tree)
            self.modes, self.left = reached.modes(), reached.left
            self._left = {
                number
                for number in self._numbers.values()
                if given[number].is_leaf and given[number].grad is not None
            }

    def _stand_in(
        self,
        number: int,
        tensor: torch.Tensor,
        value: torch.Tensor,
        gradient: torch.Tensor | None,
    ) -> torch.Tensor:
        """Returns the replacement of a model's tensor in a step."""
        # A copy, so that a step may write to it.
        new = value.clone()
        if isinstance(tensor, nn.Parameter):
            new = nn.Parameter(new, requires_grad=tensor.requires_grad)
            new.grad = gradient
            for register, hook in hooks_of(tensor):
                getattr(new, register)(hook)
        self._attached.append((self.paths[number], OfTensor(new, frozenset(vars(new)))))
        for name, held in _attributes(tensor).items():
            setattr(new, name, held)
        return new

    def states(self) -> dict[int, torch.Tensor]:
        """Returns the present tensors of models and optimizers, by number; within `given`."""
        self._reached.check()
        states: dict[int, torch.Tensor] = {}
        for module, table, before in self._tables:
            for name in {**before, **table}:
                tensor, now = before.get(name), table.get(name)
                if (tensor is None) != (now is None):
                    raise UnsupportedError(
                        "expected a step that changes only the values of parameters and "
                        f"buffers, but it adds or removes '{name}' of a "
                        f"{type(module).__name__}; do that before the export"
                    )
                if tensor is None or now is None:
                    continue
                number = self._numbers[tensor]
                states[number] = self._agree(number, states.get(number), now)
                is_new = now is not self._given[number]
                matters = isinstance(tensor, nn.Parameter) or not is_new
                if matters and now.requires_grad != tensor.requires_grad:
                    raise UnsupportedError(
                        f"expected a step that leaves {self.paths[number]} with "
                        f"requires_grad={tensor.requires_grad}, since the module cannot "
                        "change it; set it before the export"
                    )
                if is_new:
                    self._check_replaced(number, tensor)
        for optimizer, first in self._optimizers.values():
            states.update(enumerate(optimizer.states(), first))
        left = [(self.paths[number], now) for number, now in states.items()]
        left += [
            (f"{self.paths[number]}.grad", gradient)
            for number in self._numbers.values()
            if (gradient := self._given[number].grad) is not None
        ]
        _check_apart(
            left,
            "expected a step after which parameters, buffers and gradients share no memory",
            "assign a clone() of it",
        )
        return {number: states[number].detach() for number in sorted(states)}

    def _agree(
        self, number: int, other: torch.Tensor | None, now: torch.Tensor
    ) -> torch.Tensor:
        """Returns a tensor's new value, which must be the same in all its locations."""
        example = self.tensors[number]
        if now.shape != example.shape or now.dtype != example.dtype:
            raise UnsupportedError(
                f"expected a step that keeps {self.paths[number]} {example.dtype} of shape "
                f"{tuple(example.shape)}, but it becomes {now.dtype} of shape "
                f"{tuple(now.shape)}"
            )
        if other is not None and other is not now:
            raise UnsupportedError(
                f"expected a step that leaves {self.paths[number]} the same tensor "
                "everywhere in the model, but it replaces one occurrence"
            )
        return now

    def _check_optimizer(self, optimizer: Any, *_: Any) -> None:
        """Refuses an optimizer that would change the parameters that were replaced."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in self._numbers:
                    raise UnsupportedError(
                        f"expected this {type(optimizer).__name__}, which was made before "
                        "the step for the parameter "
                        f"'{self.names[self._numbers[parameter]]}', to be an input of the "
                        "step, like the model: step(model, optimizer, ...)"
                    )


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the parameters and buffers of a model by their names without DDP."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    yield from inner.named_parameters()
    yield from inner.named_buffers()


def _check_apart(
    tensors: Iterable[tuple[str, torch.Tensor]], expected: str, advice: str
) -> None:
    """Refuses tensors, given with their paths, of which two overlap in memory."""
    # For each storage: the tensors there, with their first byte and end.
    taken: dict[int, list[tuple[str, int, int]]] = {}
    for path, tensor in tensors:
        size, begin = tensor.element_size(), int(tensor.storage_offset())
        end = _private.compute_required_storage_length(tensor.shape, tensor.stride(), begin)
        begin, end = begin * size, int(end) * size
        there = taken.setdefault(_private.storage_of(tensor), [])
        for before, first, last in there:
            if begin < last and first < end:
                raise UnsupportedError(
                    f"{expected}, but {path} shares memory with {before}; {advice}"
                )
        there.append((path, begin, end))


def _tables(
    models: Sequence[nn.Module],
) -> Iterator[tuple[nn.Module, dict[str, Any], dict[str, Any]]]:
    """Yields the tables of parameters and buffers of the modules of some models, each
    with its module and its contents now, without DDP's own data."""
    for module in dict.fromkeys(each for model in models for each in model.modules()):
        if not isinstance(module, DistributedDataParallel):
            for table in _private.tensor_tables(module):
                yield module, table, dict(table)


def _attributes(tensor: torch.Tensor) -> dict[str, Any]:
    """Returns the attributes that a program has given to a tensor."""
    return {} if isinstance(tensor, FakeTensor) else dict(vars(tensor))
