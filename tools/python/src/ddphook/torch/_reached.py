# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a whole step reaches of its program's Python objects: noted before a trace,
compared afterwards, and put back.

A module carries tensors from step to step and nothing else. A step that changes
another object would go on with the value that the trace has found, so it is refused.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import io
import random
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler

from ddphook._errors import UnsupportedError

# How many objects are looked into; a warning tells of more.
_LIMIT = 100_000

# Values that are compared by what they are.
_NUMBERS = (bool, int, float, complex, str, bytes, type(None))
# Libraries whose own objects are not looked into.
_LIBRARIES = frozenset(("torch", "functorch", "numpy", "ddphook", "builtins"))
# Attributes of modules: a mode, see `modes`, and what recurrent ones make of their
# parameters whenever these are set, by torch.func.functional_call, say.
_DERIVED = ("training", "_flat_weights", "_flat_weight_refs")
# A module's dictionaries that stand for attributes of it.
_TABLES = ("_modules", "_parameters", "_buffers")


@dataclasses.dataclass(frozen=True, eq=False)
class _Names:
    """The names that a function takes from a dictionary of globals, or of a module."""

    table: dict[str, Any]
    names: frozenset[str]


class _Held(NamedTuple):
    """An object that holds others, with what it held."""

    object: Any
    path: str
    before: dict[Any, Any]


class Guard:
    """Stands in the place of an object that no step may use while one is traced: of an
    iterator, since many cannot be copied or put back, or of what a step has left."""

    def __init__(self, path: str, does: str) -> None:
        self._path = path
        self._does = does

    def _refuse(self, *_: Any) -> Any:
        raise _error(self._path, self._does)

    __iter__ = __next__ = __len__ = __getitem__ = __contains__ = __bool__ = _refuse
    __call__ = __add__ = __radd__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()


class Left(NamedTuple):
    """New tensors that a step leaves in a container of its own."""

    holder: Any
    key: Any
    path: str


class Reached:
    """The Python objects that some roots lead to, as they are now.

    Containers, attributes in dictionaries and slots, closures, defaults and attributes
    of functions, globals that functions name, NumPy's arrays, and classes of the
    program are looked into, in any depth; of optimizers what a program adds to them.
    Tensors, other objects of the standard library, PyTorch's and of C are not.

    Parameters
    ----------
    roots
        Objects with their paths, as the user would write them.
    apart
        Dictionaries that are put back only, since others compare them.
    """

    def __init__(
        self, roots: Iterable[tuple[str, Any]], apart: Iterable[dict[str, Any]] = ()
    ) -> None:
        self._held: list[_Held] = []
        self._apart = {id(table) for table in apart}
        self._modes: dict[nn.Module, bool] = {}
        # By what holds them, and the key there.
        self._guards: dict[tuple[int, Any], Guard] = {}
        self.left: list[Left] = []
        self._random = random.getstate()
        try:
            self._visit(collections.deque(roots))
        except BaseException:
            self.restore()
            raise

    def _visit(self, queue: collections.deque[tuple[str, Any]]) -> None:
        seen: dict[Any, Any] = {}
        while queue:
            path, value = queue.popleft()
            key = (id(value.table), value.names) if _is_names(value) else id(value)
            if key in seen:
                continue
            # Kept alive, since others could have its number otherwise.
            seen[key] = value
            if len(seen) > _LIMIT:
                warnings.warn(
                    f"the step reaches more than {_LIMIT} objects; whether it changes "
                    f"{path}, and what lies behind, is not checked",
                    stacklevel=2,
                )
                return
            if isinstance(value, nn.Module):
                self._modes[value] = value.training
                self._apart |= {id(vars(value).get(name)) for name in _DERIVED[1:]}
            before = _read(value)
            if before is not None:
                held = _Held(value, path, before)
                self._held.append(held)
                self._guard_iterators(held)
                queue.extend(
                    (_join(held, key), child)
                    for key, child in before.items()
                    if not isinstance(child, (*_NUMBERS, torch.Tensor))
                )
            queue.extend(_behind(path, value))

    def _guard_iterators(self, held: _Held) -> None:
        guarded = {}
        for key, child in held.before.items():
            if _is_iterator(child):
                path = _join(held, key)
                if isinstance(held.object, (tuple, frozenset)):
                    raise UnsupportedError(
                        "expected a step that reaches no iterator in a tuple, but "
                        f"{path} is a {type(child).__name__}; give the step what it "
                        "yields as an input"
                    )
                guarded[key] = Guard(path, "takes from the iterator")
                self._guards[id(held.object), key] = guarded[key]
        if guarded:
            _write(held.object, {**held.before, **guarded})

    def guard(self, left: Iterable[Left]) -> None:
        """Lets nobody use what a step has left in its own containers."""
        for holder, key, path in left:
            guard = Guard(path, "uses what the step before it has left in")
            self._guards[id(holder), key] = guard
            _write(holder, {**(_read(holder) or {}), key: guard})

    def modes(self) -> dict[nn.Module, bool]:
        """The modules that are in another mode now, and whether they train."""
        return {
            module: module.training
            for module, before in self._modes.items()
            if module.training != before
        }

    def check(self) -> None:
        """Refuses a step that has changed what it reaches, but the tables of
        parameters and buffers, and modes."""
        if random.getstate() != self._random:
            raise _error("Python's random numbers", "draws")
        for held in self._held:
            if id(held.object) in self._apart:
                continue
            now = _read(held.object) or {}
            for key in _union(held.before, now):
                if isinstance(held.object, nn.Module) and key in _DERIVED:
                    continue
                old, new = held.before.get(key, _GONE), now.get(key, _GONE)
                if old is new:
                    continue
                if isinstance(new, Guard):
                    if new is self._guards.get((id(held.object), key)):
                        continue
                elif _stays(old, new):
                    if new is not _GONE and _holds_tensors(new):
                        self.left.append(Left(held.object, key, _join(held, key)))
                    continue
                raise _error(_join(held, key), "changes")

    def restore(self) -> None:
        """Puts back what there was, in the same objects."""
        random.setstate(self._random)
        for held in self._held:
            if not isinstance(held.object, (tuple, frozenset)):
                if _differs(held.before, _read(held.object) or {}):
                    _write(held.object, held.before)


def _error(path: str, does: str) -> UnsupportedError:
    return UnsupportedError(
        "expected a step that changes parameters and buffers of a model only, but it "
        f"{does} {path}, which is no input of the module; make it a buffer, give it to "
        "the step as a tensor, or do what is done once before the export"
    )


# What a name has that is not there.
_GONE: Any = type("_Gone", (), {})()


def _union(before: dict[Any, Any], now: dict[Any, Any]) -> Iterator[Any]:
    yield from before
    yield from (key for key in now if key not in before)


def _differs(before: dict[Any, Any], now: dict[Any, Any]) -> bool:
    if before.keys() != now.keys():
        return True
    return any(now[key] is not value for key, value in before.items())


def _stays(old: Any, new: Any) -> bool:
    """Whether what a container or an object holds is what it held."""
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return False
    return _is_like(old, new)


def _is_like(old: Any, new: Any) -> bool:
    """Whether an object in the place of another is as that one. One container for
    another may hold other tensors: those are the step's own."""
    pairs, seen = [(old, new)], set()
    while pairs:
        old, new = pairs.pop()
        if old is new or (id(old), id(new)) in seen:
            continue
        seen.add((id(old), id(new)))
        if old is _GONE or new is _GONE:
            if not _is_of_tensors(new if old is _GONE else old):
                return False
        elif isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
            continue
        elif type(old) is not type(new):
            return False
        elif isinstance(old, (*_NUMBERS, types.MethodType, torch.device)):
            # A NaN is itself.
            if old != new and not (old != old and new != new):
                return False
        else:
            before, now = _read(old), _read(new)
            if before is None or now is None:
                return False
            if isinstance(old, types.FunctionType) and old.__code__ != new.__code__:
                return False
            pairs += [
                (before.get(key, _GONE), now.get(key, _GONE))
                for key in _union(before, now)
            ]
            pairs += zip(
                (child for _, child in _behind("", old)),
                (child for _, child in _behind("", new)),
            )
    return True


def _is_of_tensors(value: Any) -> bool:
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, (list, tuple)):
            values += value
        elif not isinstance(value, torch.Tensor):
            return False
    return True


def _holds_tensors(value: Any) -> bool:
    values, seen = [value], set()
    while values:
        value = values.pop()
        if isinstance(value, torch.Tensor):
            return True
        if id(value) not in seen and not isinstance(value, _NUMBERS):
            seen.add(id(value))
            values += (_read(value) or {}).values()
    return False


def _is_names(value: Any) -> bool:
    return type(value) is _Names


def _is_iterator(value: Any) -> bool:
    """Whether it is an iterator that cannot be looked into."""
    kind = type(value)
    if not hasattr(kind, "__next__") or isinstance(value, (Guard, io.IOBase)):
        return False
    return _is_of_library(kind) or not hasattr(value, "__dict__")


def _is_of_library(kind: type) -> bool:
    name = str(kind.__module__).split(".")[0]
    return name in _LIBRARIES or name in sys.stdlib_module_names


def _is_of_program(name: Any) -> bool:
    """Whether a module is the user's own: installed ones keep caches, which a call may
    fill to no effect."""
    top = str(name).split(".")[0]
    if top in _LIBRARIES or top in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(str(name)), "__file__", None) or ""
    return not {"site-packages", "dist-packages"} & set(Path(file).parts)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


# Reading and writing
# -------------------


def _read(value: Any) -> dict[Any, Any] | None:
    """What an object holds by the keys that lead there; None if it holds nothing, or
    cannot be looked into."""
    if _is_names(value):
        return {name: value.table[name] for name in value.names if name in value.table}
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple, collections.deque)):
        return dict(enumerate(value))
    if isinstance(value, (set, frozenset)):
        return {element: element for element in value}
    if isinstance(value, bytearray):
        return {"": bytes(value)}
    if _is_array(value):
        return _read_array(value)
    if isinstance(value, types.CellType):
        try:
            return {"": value.cell_contents}
        except ValueError:
            return {}
    if isinstance(value, types.FunctionType):
        held = {"__defaults__": value.__defaults__, "__kwdefaults__": value.__kwdefaults__}
        return {**held, **vars(value)}
    if isinstance(value, type):
        if not _is_of_program(value.__module__):
            return None
        return {
            name: held
            for name, held in vars(value).items()
            if not name.startswith("__")
            and name != "_abc_impl"
            and not isinstance(held, (types.MemberDescriptorType, types.GetSetDescriptorType))
        }
    return _attributes(value) if _has_attributes(value) else None


def _has_attributes(value: Any) -> bool:
    if isinstance(value, DistributedDataParallel):
        return False
    if isinstance(value, (nn.Module, LRScheduler, types.SimpleNamespace)):
        return True
    kept = (torch.Tensor, torch.optim.Optimizer, types.ModuleType, Guard)
    return not isinstance(value, kept) and not _is_of_library(type(value))


def _attributes(value: Any) -> dict[str, Any]:
    """Those in the dictionary of an object, and in slots of its classes."""
    held = dict(getattr(value, "__dict__", {}))
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
        if isinstance(slot, types.MemberDescriptorType) and not _is_of_library(kind)
    }


def _read_array(array: Any) -> dict[Any, Any]:
    if array.dtype.hasobject:
        return dict(enumerate(array.flat))
    return {"": (array.shape, str(array.dtype), array.tobytes())}


def _write_array(array: Any, held: dict[Any, Any]) -> None:
    numpy = sys.modules["numpy"]
    if array.dtype.hasobject:
        for number, value in held.items():
            array.flat[number] = value
        return
    shape, kind, data = held[""]
    if (array.shape, str(array.dtype)) == (shape, kind) and array.tobytes() != data:
        array[...] = numpy.frombuffer(data, array.dtype).reshape(shape)


def _write(value: Any, held: dict[Any, Any]) -> None:
    """Makes an object hold this."""
    if _is_names(value):
        for name in value.names:
            if name in held:
                value.table[name] = held[name]
            else:
                value.table.pop(name, None)
    elif isinstance(value, (dict, list, collections.deque)):
        value.clear()
        if isinstance(value, dict):
            value.update(held)
        else:
            value.extend(held.values())
    elif isinstance(value, set):
        value.clear()
        value.update(held)
    elif isinstance(value, bytearray):
        value[:] = held[""]
    elif _is_array(value):
        _write_array(value, held)
    elif isinstance(value, types.CellType):
        if held:
            value.cell_contents = held[""]
        else:
            del value.cell_contents
    elif isinstance(value, types.FunctionType):
        rest = dict(held)
        value.__defaults__ = rest.pop("__defaults__")
        value.__kwdefaults__ = rest.pop("__kwdefaults__")
        vars(value).clear()
        vars(value).update(rest)
    elif isinstance(value, type):
        for name in _union(held, _read(value) or {}):
            if name not in held:
                delattr(value, name)
            elif vars(value).get(name) is not held[name]:
                setattr(value, name, held[name])
    else:
        _write_attributes(value, held)


def _write_attributes(value: Any, held: dict[str, Any]) -> None:
    slots = _slots(value)
    for name, slot in slots.items():
        if name in held:
            slot.__set__(value, held[name])
        elif name in _attributes(value):
            slot.__delete__(value)
    if hasattr(value, "__dict__"):
        vars(value).clear()
        vars(value).update({name: held[name] for name in held if name not in slots})


# What is reached
# ---------------


def _behind(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object leads to without holding it as one that it could change."""
    if isinstance(value, types.FunctionType):
        yield from _behind_function(path, value)
    elif isinstance(value, types.MethodType):
        yield path, value.__func__
        yield path.rpartition(".")[0] or path, value.__self__
    elif isinstance(value, functools.partial):
        yield f"{path}.func", value.func
        yield f"{path}.args", value.args
        yield f"{path}.keywords", value.keywords
    elif isinstance(value, (staticmethod, classmethod)):
        yield path, value.__func__
    elif isinstance(value, property):
        for function in (value.fget, value.fset):
            if function is not None:
                yield path, function
    elif isinstance(value, DistributedDataParallel):
        yield path, value.module
    elif isinstance(value, torch.optim.Optimizer):
        # The rest of it is PyTorch's, and an input of the module.
        yield path, _Names(vars(value), _own_names(value))
    elif isinstance(value, (dict, list, collections.deque)):
        if not _is_of_library(type(value)):
            yield f"{path}.__dict__", getattr(value, "__dict__", {})
    for kind in (value if isinstance(value, type) else type(value)).__mro__:
        if kind is not _Names and _is_of_program(kind.__module__):
            yield kind.__name__, kind


def _own_names(optimizer: torch.optim.Optimizer) -> frozenset[str]:
    known = ("state", "param_groups", "defaults")
    names = (name for name in vars(optimizer) if not name.startswith("_"))
    return frozenset(name for name in names if name not in known)


def _behind_function(path: str, function: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(function, "_torchdynamo_orig_callable", None)
    if inner is not None:
        yield path, inner
    # Not `__module__`, which a library's wrapper takes from what it wraps.
    if not _is_of_program(function.__globals__.get("__name__")):
        return
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells):
        yield name, cell
    names = frozenset(_names_of(function.__code__))
    yield "", _Names(function.__globals__, names)
    for name in names:
        held = function.__globals__.get(name)
        if isinstance(held, types.ModuleType) and _is_of_program(held.__name__):
            yield name, _Names(vars(held), names)


def _names_of(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_of(constant)


def _join(held: _Held, key: Any) -> str:
    """The path of what an object holds, as a program says it."""
    value, path = held.object, held.path
    if isinstance(value, types.CellType):
        return path
    if _is_names(value):
        return f"{path}.{key}" if path else str(key)
    if isinstance(value, nn.Module) and key in _TABLES:
        return f"{path}."
    if path.endswith("."):
        return f"{path}{key}"
    if _is_array(value) or isinstance(value, (set, frozenset, bytearray)):
        return path
    if isinstance(value, (dict, list, tuple, collections.deque)):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else str(key)
