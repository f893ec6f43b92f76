# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The states of modules by the names of parameters.

A module has the states of its bucket: error feedback, factors, a counter, a random
generator. *Parts* are the same states by role and by parameter, independent of buckets,
so that they can be saved (see `nested`), and transferred when DDP makes other buckets.

No function here is collective, and none may run concurrently with a step of the module.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ddphook import _runtime
from ddphook._errors import InvalidArgumentError
from ddphook.torch._bucket import ELEMENT_TYPES

_log = logging.getLogger("ddphook")

# role, and name of a parameter or tuple of names that share a value -> value
Parts = dict[tuple[str, Any], torch.Tensor]
# role -> kind of the states of this role (docs/plan.md)
Kinds = dict[str, str]

GENERATOR = "generator"
ITERATION = "iteration"
_ERRORS = ("error", "share_error")
_DTYPES = {name: dtype for dtype, name in ELEMENT_TYPES.items()}
_DTYPES |= {"i32": torch.int32, "i64": torch.int64}


def kinds(plan: Mapping[str, Any]) -> Kinds:
    return {state["role"]: state.get("kind", "") for state in plan["states"]}


def read(module: _runtime.Module, role: str | None = None) -> Parts:
    """Copies all states of a module, or those of one role."""
    return {
        key: piece.clone()
        for state, memory in _memory(module)
        if role in (None, state["role"])
        for key, piece in _pieces(state, memory)
    }


def initial(plan: Mapping[str, Any]) -> Parts:
    """Returns the states with which a module of this plan starts; a factor, which the
    module draws, is zero."""
    parts: Parts = {}
    for state in plan["states"]:
        dtype = _DTYPES[state["dtype"]]
        flat = torch.zeros(state["bytes"] // dtype.itemsize, dtype=dtype)
        if state["init"] == "mt19937":
            flat = generator_words(np.random.RandomState(state["seed"]))
        parts.update(_pieces(state, flat))
    return parts


def nested(parts: Parts) -> dict[str, dict[Any, torch.Tensor]]:
    """Returns parts by role and then by key, as they are saved."""
    result: dict[str, dict[Any, torch.Tensor]] = {}
    for (role, key), value in parts.items():
        result.setdefault(role, {})[key] = value
    return result


def flat(saved: Mapping[str, Mapping[Any, torch.Tensor]]) -> Parts:
    """Returns the parts that `nested` was called with."""
    return {(role, key): saved[role][key] for role in saved for key in saved[role]}


def write(module: _runtime.Module, parts: Parts) -> None:
    """Sets the states of a module that ``parts`` contains, after `check`."""
    check(module, parts)
    for state, memory in _memory(module, changes=True):
        for key, piece in _pieces(state, memory):
            if key in parts:
                piece.copy_(parts[key].reshape(piece.shape))


def check(module: _runtime.Module, parts: Parts) -> None:
    """Refuses parts that have another number of elements than a module's states."""
    for state in module.plan["states"]:
        size = state["bytes"] // _DTYPES[state["dtype"]].itemsize
        for key, piece in _pieces(state, torch.empty(size, device="meta")):
            if key in parts and parts[key].numel() != piece.numel():
                raise InvalidArgumentError(
                    f"expected {piece.numel()} elements of {state['role']} for "
                    f"{key[1]!r}, but got {parts[key].numel()}"
                )


def clear_errors(module: _runtime.Module) -> None:
    """Sets error feedback to its value in a new job."""
    for _, memory in _memory(module, _ERRORS, changes=True):
        memory.zero_()


def without_errors(parts: Parts, kinds: Kinds) -> Parts:
    """Returns the parts that are the same on all ranks: only errors differ between them."""
    return {key: value for key, value in parts.items() if kinds.get(key[0]) not in _ERRORS}


def warn_of_errors(roles: Iterable[str]) -> None:
    """Warns that error feedback of another rank was not loaded."""
    if roles:
        _log.warning(
            "the states are of another rank or another number of ranks: %s begin at zero",
            ", ".join(sorted(roles)),
        )


def select(parts: Parts, names: set[str]) -> Parts:
    return {key: value for key, value in parts.items() if _names(key[1]) <= names}


def of_kind(parts: Parts, kinds: Kinds, kind: str) -> Parts:
    return {key: value for key, value in parts.items() if kinds.get(key[0]) == kind}


def draw(module: _runtime.Module, words: torch.Tensor) -> torch.Tensor:
    """Draws a module's first Q as PyTorch would, after earlier buckets.

    PyTorch's hook has one generator for all buckets, but each module's generator starts
    at the seed. Takes the generator's state after the earlier buckets, and returns that
    after this one. The module's states must be unchanged since its load.
    """
    generator = np.random.RandomState()
    numbers = words.numpy().view("uint32")
    generator.set_state(("MT19937", numbers[:624], int(words[624]), 0, 0.0))
    for state, memory in _memory(module, changes=True):
        if state["init"] == "normal":
            seed = int(generator.randint(1_000_000_000))
            seeded = torch.Generator().manual_seed(seed)
            begin = 0
            for count in state["draws"]:
                drawn = torch.randn(count, dtype=memory.dtype, generator=seeded)
                memory[begin : begin + count] = drawn
                begin += count
    words = generator_words(generator)
    set_generator(module, words)
    return words


def generator_words(generator: Any) -> torch.Tensor:
    """Returns the 624 words and the position of a ``numpy.random.RandomState``."""
    _, words, position = generator.get_state()[:3]
    result = torch.empty(625, dtype=torch.int32)
    result[:624] = torch.from_numpy(words.view("int32").copy())
    result[624] = position
    return result


def from_flat(module: _runtime.Module, role: str, flat: torch.Tensor) -> Parts:
    """Returns the parts of a state given as one array, in the module's order."""
    parts: Parts = {}
    for state, memory in _memory(module):
        if state["role"] == role and memory.numel() == flat.numel():
            values = flat.detach().reshape(-1).to("cpu", memory.dtype)
            parts.update(_pieces(state, values))
    return parts


def generator(module: _runtime.Module) -> torch.Tensor | None:
    """Copies a module's random generator; returns none if it has none."""
    return next((words.clone() for _, words in _memory(module, (GENERATOR,))), None)


def set_generator(module: _runtime.Module, words: torch.Tensor) -> None:
    """Sets a module's random generator, if it has one, to these words."""
    for _, memory in _memory(module, (GENERATOR,), changes=True):
        memory.copy_(words)


def digest(parts: Parts, order: Any = None) -> str:
    """Returns a hash of the order and of the parts."""
    hasher = hashlib.sha256(repr(order or None).encode())
    for (role, key), value in sorted(parts.items(), key=lambda i: str(i[0])):
        hasher.update(f"{role} {key} {value.dtype} ".encode())
        bytes_ = value.contiguous().view(-1).view(torch.uint8)
        hasher.update(bytes_.numpy().data)
    return hasher.hexdigest()


def _memory(
    module: _runtime.Module, of: tuple[str, ...] = (), changes: bool = False
) -> Iterator[tuple[Mapping[str, Any], torch.Tensor]]:
    """Yields each state of a module, or those of some kinds, with its flat memory.

    With `changes`, writes to the memory reach the module when the next state is
    requested.
    """
    for number, state in enumerate(module.plan["states"]):
        if of and state.get("kind", "") not in of:
            continue
        dtype = _DTYPES[state["dtype"]]
        if state["bytes"] == 0:
            yield state, torch.empty(0, dtype=dtype)
            continue
        array = module.read_state(number)
        yield state, torch.frombuffer(array, dtype=dtype)
        if changes:
            module.write_state(number, array)


def _pieces(
    state: Mapping[str, Any], flat: torch.Tensor
) -> Iterator[tuple[tuple[str, Any], torch.Tensor]]:
    """Yields views of a state's pieces, with their keys among parts."""
    role = state["role"]
    if state["dtype"] in ("i32", "i64"):
        # All gradients share the state's single value.
        for names in state["gradients"]:
            for name in names:
                yield (role, name), flat
        return
    begin = 0
    for shape, names in zip(state["shapes"], state["gradients"]):
        size = torch.Size(shape)
        piece = flat[begin : begin + size.numel()].view(size)
        begin += size.numel()
        yield (role, names[0] if len(names) == 1 else tuple(names)), piece


def _names(key: Any) -> set[str]:
    return {key} if isinstance(key, str) else set(key)


def names(parts: Parts) -> set[str]:
    """Returns the names of all parameters that have a part."""
    return {name for _, key in parts for name in _names(key)}
