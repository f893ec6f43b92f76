# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the Python objects that a whole step reaches before a trace, compares them
afterwards, and restores them.

A module carries only tensors from step to step. If a step changed another object, the
module would continue with the value found by the trace, so such a step is refused.
"""

from __future__ import annotations

import collections
import contextlib
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from ddphook._errors import UnsupportedError
from ddphook.torch import _contents, _private
from ddphook.torch._contents import NUMBERS, Names, references, path_of, read, write

# How many objects are inspected; beyond that, a warning says so.
_LIMIT = 100_000

# Attributes of modules: the mode, see `modes`, and those that recurrent modules derive
# whenever their parameters are set, for example by torch.func.functional_call.
_DERIVED = ("training", *_private.DERIVED)

# Settings that PyTorch keeps for the whole program.
_SETTINGS: dict[str, tuple[Any, Any]] = {
    "torch.is_grad_enabled()": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch.get_default_dtype()": (torch.get_default_dtype, torch.set_default_dtype),
}


class _Held(NamedTuple):
    """An object that holds others, with its contents before the step."""

    object: Any
    path: str
    before: dict[Any, Any]


class Guard:
    """Replaces an object that a step may not use while it is traced: an iterator, since
    many cannot be copied or restored, or something that an earlier step left."""

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
    """A container whose tensors are others, or more or fewer, after a step."""

    holder: Any
    key: Any
    path: str


class Reached:
    """The Python objects reachable from some roots, as they are now.

    Inspects, recursively: containers, attributes in dictionaries and slots, closures,
    code, defaults and attributes of functions, globals that functions name, modules of
    the program, NumPy arrays, random number generators and classes of the program; in
    optimizers, what a program adds to them. Does not inspect tensors, and most other
    objects of the standard library, of PyTorch, and of C extensions.

    The roots have paths, as the user would write them. The dictionaries in `apart` are
    restored only; other code compares them.
    """

    def __init__(
        self, roots: Iterable[tuple[str, Any]], apart: Iterable[dict[str, Any]] = ()
    ) -> None:
        self._held: list[_Held] = []
        self._apart = {id(table) for table in apart}
        self._modes: dict[nn.Module, bool] = {}
        # By the id of the holder, and the key there.
        self._guards: dict[tuple[int, Any], Guard] = {}
        # Arrays that are temporarily read-only.
        self._locked: list[Any] = []
        self._settings = {name: get() for name, (get, _) in _SETTINGS.items()}
        self.left: list[Left] = []
        try:
            self._visit(collections.deque((*roots, *_contents.common_generators())))
        except BaseException:
            self.restore()
            raise

    def _visit(self, queue: collections.deque[tuple[str, Any]]) -> None:
        seen: dict[Any, Any] = {}
        while queue:
            path, value = queue.popleft()
            key = value.key if type(value) is Names else id(value)
            if key in seen:
                continue
            # Kept alive, so that no other object gets its id.
            seen[key] = value
            if len(seen) > _LIMIT:
                warnings.warn(
                    f"the step reaches more than {_LIMIT} objects; whether it changes "
                    f"{path} or what it refers to is not checked",
                    stacklevel=2,
                )
                return
            if isinstance(value, nn.Module):
                self._modes[value] = value.training
                self._apart |= {id(vars(value).get(name)) for name in _DERIVED[1:]}
            if _contents.is_large_array(value) and value.flags.writeable:
                value.flags.writeable = False
                self._locked.append(value)
            if (before := read(value)) is not None:
                held = _Held(value, path, before)
                self._held.append(held)
                if _contents.is_generator(value):
                    continue
                self._guard_iterators(held)
                queue.extend(
                    (path_of(value, path, key), child)
                    for key, child in before.items()
                    if key != "__class__" and not _contents.is_plain(child)
                )
            queue.extend(references(path, value))

    def _guard_iterators(self, held: _Held) -> None:
        guarded = {}
        for key, child in held.before.items():
            if not isinstance(child, Guard) and _contents.is_iterator(child):
                path = path_of(held.object, held.path, key)
                if isinstance(held.object, (tuple, frozenset)):
                    raise UnsupportedError(
                        "expected a step that reaches no iterator in a tuple, but "
                        f"{path} is a {type(child).__name__}; give the step what it "
                        "yields as an input"
                    )
                guarded[key] = Guard(path, "takes from the iterator")
                self._guards[id(held.object), key] = guarded[key]
        if guarded:
            write(held.object, {**held.before, **guarded})

    def guard(self, left: Iterable[Left]) -> None:
        """Prevents the use of what a step has left in its own containers."""
        for holder, key, path in left:
            guard = Guard(path, "uses what the previous step left in")
            self._guards[id(holder), key] = guard
            write(holder, {**(read(holder) or {}), key: guard})

    @contextlib.contextmanager
    def no_writes_to_large_arrays(self) -> Iterator[None]:
        """Translates NumPy's exception for a write to a read-only array."""
        try:
            yield
        except ValueError as error:
            if self._locked and "read-only" in str(error):
                raise UnsupportedError(
                    "expected a step that does not write to NumPy arrays of more than "
                    f"{_contents.LARGE_BYTES >> 20} MiB, but it writes to one; "
                    "do what is done once before the export"
                ) from error
            raise

    def modes(self) -> dict[nn.Module, bool]:
        """Returns the modules whose mode has changed, and whether they train now."""
        return {
            module: module.training
            for module, before in self._modes.items()
            if module.training != before
        }

    def check(self) -> None:
        """Refuses a step that has changed an object, except the tables of parameters and
        buffers, and modes."""
        for name, (get, _) in _SETTINGS.items():
            if get() != self._settings[name]:
                raise _error(name, "changes")
        for held in self._held:
            if id(held.object) not in self._apart:
                self._check(held)

    def _check(self, held: _Held) -> None:
        now = read(held.object) or {}
        for key, old, new in _changes(held.before, now):
            if isinstance(held.object, nn.Module) and key in _DERIVED:
                continue
            path = path_of(held.object, held.path, key)
            if isinstance(new, Guard):
                if new is self._guards.get((id(held.object), key)):
                    continue
            else:
                differs = _differs_in_tensors(old, new)
                if differs is False:
                    continue
                # The next trace has other tensors, where no guard could be put.
                is_of_tensor = isinstance(held.object, _contents.OfTensor)
                if differs and new is not _GONE and not is_of_tensor:
                    self.left.append(Left(held.object, key, path))
                    continue
            is_drawn = _contents.is_generator(held.object)
            raise _error(path, "draws from" if is_drawn else "changes")
        if _has_other_order(held, now):
            raise _error(held.path.rstrip("."), "changes the order of")

    def restore(self) -> None:
        """Restores the recorded contents, in the same objects."""
        for name, (_, set_) in _SETTINGS.items():
            set_(self._settings[name])
        # In reverse: what shares a table with an earlier object may have read its guards.
        for held in reversed(self._held):
            now = read(held.object) or {}
            if any(_changes(held.before, now)) or _has_other_order(held, now):
                write(held.object, held.before)
        # A view cannot be made writable before its base array.
        for array in sorted(self._locked, key=lambda array: array.base is not None):
            array.flags.writeable = True


def _error(path: str, does: str) -> UnsupportedError:
    return UnsupportedError(
        "expected a step that changes only parameters and buffers of a model, but it "
        f"{does} {path}, which is not an input of the module; make it a buffer, give it to "
        "the step as a tensor, or do what is done once before the export"
    )


# The value of a missing key.
_GONE: Any = type("_Gone", (), {})()


def _changes(before: dict[Any, Any], now: dict[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the keys by which two contents have different objects, with both objects."""
    for key in {**before, **now}:
        old, new = before.get(key, _GONE), now.get(key, _GONE)
        if old is not new:
            yield key, old, new


def _has_other_order(held: _Held, now: dict[Any, Any]) -> bool:
    """Returns whether a dictionary has its keys in another order. Sets have no order of
    their own, and the order of attributes hardly ever matters."""
    if not isinstance(held.object, dict):
        return False
    # Tensors are compared as keys by identity.
    pairs = ((old, new) for old, new in zip(held.before, now) if old is not new)
    return any(isinstance(old, torch.Tensor) or bool(old != new) for old, new in pairs)


def _differs_in_tensors(old: Any, new: Any) -> bool | None:
    """Returns whether an object and its replacement contain different tensors, or None
    if they differ in anything else. Such tensors are the step's own, as are containers
    of tensors alone that only one of the objects has."""
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return None
    # Kept alive, so that no other object gets its id.
    pairs, seen, differs = [(old, new)], {}, False
    while pairs:
        old, new = pairs.pop()
        if old is new or (id(old), id(new)) in seen:
            continue
        seen[id(old), id(new)] = old, new
        there = [each for each in (old, new) if each is not _GONE]
        if all(isinstance(each, torch.Tensor) for each in there):
            differs = True
            continue
        if len(there) == 1:
            differs = True
            if not isinstance(there[0], (dict, list, tuple)):
                return None
        elif type(old) is not type(new):
            return None
        elif isinstance(old, (*NUMBERS, types.CodeType, types.MethodType, torch.device)):
            # NaN counts as equal to NaN.
            if old != new and not (old != old and new != new):
                return None
            continue
        before, now = ({} if each is _GONE else read(each) for each in (old, new))
        if before is None or now is None:
            return None
        pairs += [(was, is_) for _, was, is_ in _changes(before, now)]
        if len(there) == 2:
            referred = zip(references("", old), references("", new))
            pairs += [(one, other) for (_, one), (_, other) in referred]
    return differs
