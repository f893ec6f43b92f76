# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads and writes the contents of Python objects, and finds what they refer to.

For each kind of object, this module knows what it holds by which keys, how to make it
hold that again, what else it refers to, and how a program would write the path there.
`_reached` decides whether a step may change the object.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import functools
import io
import queue
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler

from ddphook.torch import _private

# Types whose values are compared by value.
NUMBERS = (bool, int, float, complex, str, bytes, type(None))
# Libraries whose own objects are not inspected, except those of `_KEEPING`.
_LIBRARIES = frozenset(("torch", "functorch", "numpy", "ddphook", "builtins"))
# Classes of libraries in which programs keep objects.
_KEEPING = (
    nn.Module,
    LRScheduler,
    torch.amp.GradScaler,
    types.SimpleNamespace,
    collections.ChainMap,
    collections.UserDict,
    collections.UserList,
    queue.Queue,
    threading.local,
    weakref.WeakKeyDictionary,
    weakref.WeakSet,
    weakref.WeakValueDictionary,
)
# Methods of objects that are written in C.
_METHODS = (types.BuiltinMethodType, types.MethodWrapperType)
# Larger NumPy arrays are not copied; see `is_large_array`.
LARGE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class Names:
    """Names that a function reads from a dictionary of globals or of a module."""

    table: dict[str, Any]
    names: frozenset[str]

    @property
    def key(self) -> Any:
        return id(self.table), self.names

    def read(self) -> dict[str, Any]:
        return {name: self.table[name] for name in self.names if name in self.table}


@dataclasses.dataclass(frozen=True, eq=False)
class OfTensor:
    """Reads the attributes of a tensor, except `apart`, and its hooks.

    It cannot be written, since a trace has tensors of its own.
    """

    tensor: torch.Tensor
    apart: frozenset[str]

    def read(self) -> dict[str, Any]:
        held = {k: v for k, v in vars(self.tensor).items() if k not in self.apart}
        return {**held, _HOOKS_OF_TENSOR: list(hooks_of(self.tensor))}


_HOOKS_OF_TENSOR = "the gradient hooks"


def hooks_of(tensor: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """Yields a tensor's hooks, each with the name of the method that registers it."""
    for register, hooks in _private.hooks_of_tensor(tensor).items():
        yield from ((register, hook) for hook in (hooks or {}).values())


def is_plain(value: Any) -> bool:
    """Returns whether a value refers to nothing that a step could change."""
    return type(value) in NUMBERS or isinstance(value, torch.Tensor)


def is_iterator(value: Any) -> bool:
    """Returns whether it is an iterator that cannot be inspected, or a method of one."""
    if isinstance(value, _METHODS):
        return is_iterator(value.__self__)
    kind = type(value)
    if not hasattr(kind, "__next__") or isinstance(value, io.IOBase):
        return False
    return _is_of_library(kind.__module__) or not hasattr(value, "__dict__")


def is_generator(value: Any) -> bool:
    """Returns whether it is a random number generator whose state can be read."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    return isinstance(value, (np.random.Generator, np.random.RandomState))


def is_large_array(value: Any) -> bool:
    """Returns whether it is an array that `read` skips because a copy would be too large."""
    return isinstance(value, np.ndarray) and value.nbytes > LARGE_BYTES


def common_generators() -> Iterator[tuple[str, Any]]:
    """Yields the generators that functions of modules draw from."""
    yield "Python's random numbers", random.random.__self__  # type: ignore[attr-defined]
    yield "NumPy's random numbers", np.random.rand.__self__  # type: ignore[attr-defined]


def _is_of_library(module: Any) -> bool:
    name = str(module).split(".")[0]
    return name in _LIBRARIES or name in sys.stdlib_module_names


def _is_of_program(name: Any) -> bool:
    """Returns whether a module is the user's own: installed modules keep caches, which
    a call may fill to no effect."""
    if _is_of_library(name):
        return False
    file = getattr(sys.modules.get(str(name)), "__file__", None) or ""
    return not {"site-packages", "dist-packages"} & set(Path(file).parts)


# ---- Reading ----


def read(value: Any) -> dict[Any, Any] | None:
    """Returns what an object holds, by key; None if it holds nothing or cannot be
    inspected."""
    if isinstance(value, (Names, OfTensor)):
        return value.read()
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple, collections.deque)):
        return dict(enumerate(value))
    if isinstance(value, (set, frozenset)):
        return {element: element for element in value}
    if isinstance(value, (bytearray, array.array)):
        return {"": bytes(value)}
    if is_generator(value):
        return {"": _state_of(value)[0]()}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return dict(enumerate(value.flat))
        kind = value.shape, str(value.dtype)
        return {} if is_large_array(value) else {"": (*kind, value.tobytes())}
    if isinstance(value, types.CellType):
        try:
            return {"cell_contents": value.cell_contents}
        except ValueError:
            return {}
    if isinstance(value, types.FunctionType):
        return _read_function(value)
    if isinstance(value, type):
        return _read_class(value)
    return _attributes(value) if _has_attributes(value) else None


_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")


def _state_of(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Returns the functions that read and write a generator's state."""
    if isinstance(generator, random.Random):
        return generator.getstate, generator.setstate
    if hasattr(generator, "bit_generator"):
        bits = generator.bit_generator
        return lambda: bits.state, functools.partial(setattr, bits, "state")
    return functools.partial(generator.get_state, legacy=False), generator.set_state


def _read_function(function: types.FunctionType) -> dict[Any, Any]:
    held = {name: getattr(function, name) for name in _OF_FUNCTIONS}
    is_own = _is_of_program(function.__globals__.get("__name__"))
    # Wrappers of libraries have private attributes, such as caches.
    own = {k: v for k, v in vars(function).items() if is_own or not k.startswith("_")}
    return {**held, **own}


def _read_class(kind: type) -> dict[Any, Any] | None:
    if not _is_of_program(kind.__module__):
        return None
    described = (types.MemberDescriptorType, types.GetSetDescriptorType)
    return {
        name: held
        for name, held in vars(kind).items()
        if not name.startswith("__")
        and name != "_abc_impl"
        and not isinstance(held, described)
    }


def _has_attributes(value: Any) -> bool:
    if isinstance(value, DistributedDataParallel):
        return False
    if isinstance(value, _KEEPING):
        return True
    kept = (torch.Tensor, torch.optim.Optimizer, types.ModuleType)
    return not isinstance(value, kept) and not _is_of_library(type(value).__module__)


def _attributes(value: Any) -> dict[str, Any]:
    """Returns an object's class and its attributes in its dictionary and its slots."""
    held = {"__class__": type(value), **getattr(value, "__dict__", {})}
    for name, slot in _slots(value).items():
        try:
            held[name] = slot.__get__(value)
        except AttributeError:
            pass
    return held


def _slots(value: Any) -> dict[str, Any]:
    return {
        name: slot
        for kind in type(value).__mro__
        for name, slot in vars(kind).items()
        if isinstance(slot, types.MemberDescriptorType) and not _is_of_library(kind.__module__)
    }


# ---- Writing ----


def write(value: Any, held: dict[Any, Any]) -> None:
    """Makes an object hold `held`; immutable objects stay unchanged."""
    if isinstance(value, (tuple, frozenset, OfTensor)):
        return
    if isinstance(value, (dict, set)):
        value.clear()
        value.update(held)
    elif isinstance(value, (list, collections.deque)):
        value.clear()
        value.extend(held.values())
    elif isinstance(value, bytearray):
        value[:] = held[""]
    elif isinstance(value, array.array):
        value[:] = array.array(value.typecode, held[""])
    elif is_generator(value):
        _state_of(value)[1](held[""])
    elif isinstance(value, np.ndarray):
        _write_array(value, held)
    else:
        _write_names(value, held)


def _write_array(array: Any, held: dict[Any, Any]) -> None:
    if array.dtype.hasobject:
        for number, value in held.items():
            array.flat[number] = value
    elif held:
        shape, kind, data = held[""]
        if (array.shape, str(array.dtype)) == (shape, kind) and array.tobytes() != data:
            array[...] = np.frombuffer(data, array.dtype).reshape(shape)


def _write_names(value: Any, held: dict[str, Any]) -> None:
    table = value.table if type(value) is Names else getattr(value, "__dict__", {})
    is_special = isinstance(value, (types.CellType, types.FunctionType, type))
    slots = _slots(value)
    now = read(value) or {}
    for name in {**held, **now}:
        if name in slots:
            # Not by name, since a class may refuse that.
            if name in held:
                slots[name].__set__(value, held[name])
            else:
                slots[name].__delete__(value)
        elif is_special or name == "__class__":
            if name not in held:
                delattr(value, name)
            elif name not in now or now[name] is not held[name]:
                setattr(value, name, held[name])
        elif name in held:
            table[name] = held[name]
        else:
            del table[name]


# ---- Following references ----


# The attributes by which immutable objects refer to others.
_REFERRING = {
    types.MethodType: ("__func__", "__self__"),
    types.BuiltinMethodType: ("__self__",),
    types.MethodWrapperType: ("__self__",),
    functools.partial: ("func", "args", "keywords"),
    functools._lru_cache_wrapper: ("__wrapped__",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset"),
    memoryview: ("obj",),
}


def references(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what an object refers to but does not hold as its own contents."""
    for kind, names in _REFERRING.items():
        for name in names if isinstance(value, kind) else ():
            owner = path.rpartition(".")[0] if name == "__self__" else ""
            shown = f"{path}.{name}" if kind is functools.partial else owner or path
            yield shown, getattr(value, name)
    if isinstance(value, types.FunctionType):
        yield from _function_references(path, value)
    elif isinstance(value, weakref.ref):
        yield f"{path}()", value()
    elif isinstance(value, types.MappingProxyType):
        for key, held in value.items():
            yield f"{path}[{key!r}]", held
    elif isinstance(value, types.ModuleType):
        if _is_of_program(value.__name__):
            own = (name for name in vars(value) if not name.startswith("__"))
            yield path, Names(vars(value), frozenset(own))
    elif isinstance(value, DistributedDataParallel):
        yield path, value.module
    elif isinstance(value, torch.optim.Optimizer):
        # Its state is an input of the module, and the rest of it is PyTorch's.
        public = {name for name in vars(value) if not name.startswith("_")}
        kept = public - {"state", "defaults"} | _private.OPTIMIZER_HOOKS
        yield path, Names(vars(value), frozenset(kept))
    elif isinstance(value, (dict, list, collections.deque)):
        if isinstance(value, collections.defaultdict):
            yield f"{path}.default_factory", value.default_factory
        if not _is_of_library(type(value).__module__):
            yield f"{path}.__dict__", getattr(value, "__dict__", {})
    for kind in (value if isinstance(value, type) else type(value)).__mro__:
        if _is_of_program(kind.__module__):
            yield kind.__name__, kind


def _function_references(path: str, function: Any) -> Iterator[tuple[str, Any]]:
    for name in (_private.ORIG_CALLABLE, "__wrapped__"):
        if hasattr(function, name):
            yield path, getattr(function, name)
    # Not `__module__`, which a library's wrapper copies from the wrapped function.
    table = function.__globals__
    if not _is_of_program(table.get("__name__")):
        return
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells):
        yield name, cell
    names = frozenset(_names_of(function.__code__))
    yield "", Names(table, names)
    package = f"{table.get('__package__') or ''}."
    # Modules that the function imports itself are no globals.
    for name in names:
        module = sys.modules.get(name) or sys.modules.get(package + name)
        if module and _is_of_program(module.__name__):
            yield name, Names(vars(module), names)


def _names_of(code: types.CodeType) -> Iterator[str]:
    """Yields names, and strings that may be names: for getattr() or globals()[...]."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_of(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant


def path_of(holder: Any, path: str, key: Any) -> str:
    """Returns the path of a held object, as a program would write it."""
    if isinstance(holder, types.CellType) or key == "":
        return path
    if key == _HOOKS_OF_TENSOR:
        return f"{key} of {path}"
    if isinstance(holder, nn.Module) and key in _private.TABLES:
        return f"{path}."
    if path.endswith("."):
        return f"{path}{key}"
    if isinstance(holder, (np.ndarray, set, frozenset)):
        return path
    if isinstance(holder, (dict, list, tuple, collections.deque)):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else str(key)
