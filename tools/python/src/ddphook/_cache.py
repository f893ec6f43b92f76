# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules on disk, shared by all ranks and jobs of a user.

The directory is ``DDPHOOK_CACHE_DIR``, else ``ddphook/modules`` in the user's
cache directory (XDG). A file's name is a hash of everything its content depends
on, and the file begins with a hash of its content: a damaged file, or a file of
another version, is built again. Files appear complete or not at all. If several
ranks want the same module, one compiles it and the others wait.

The cache never causes a failure: without a usable directory, every process
compiles its own modules.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import platform
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ddphook
from ddphook import _libraries, _runtime, compiler

CACHE_DIR_VARIABLE = "DDPHOOK_CACHE_DIR"

_log = logging.getLogger("ddphook")
_MAGIC = b"ddphook module 1\n"
_HASH_BYTES = hashlib.sha256().digest_size
# How long a rank waits for another rank that compiles the same module before it
# compiles the module itself: the other rank may have been stopped.
_WAIT_S = 60.0
_POLL_S = 0.01
# The number of files that are kept; the least recently used files are removed.
_MOST_FILES = 2000


def directory() -> Path:
    """Returns the directory of compiled modules, which need not exist."""
    if chosen := os.environ.get(CACHE_DIR_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    if not base or not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "ddphook" / "modules"


@functools.cache
def processor() -> str:
    """Returns a description of this machine's CPU, for which code is compiled."""
    facts = {platform.machine()}
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "flags", "Features", "CPU part"):
                facts.add(value.strip())
    return "\n".join(sorted(facts))


@functools.cache
def _compiler_identity() -> str:
    """Returns a string that changes when the compiler is rebuilt, even with the same version."""
    path = _libraries.find(_libraries.COMPILER)
    with contextlib.suppress(OSError):
        status = os.stat(path)
        return f"{status.st_size} {status.st_mtime_ns}"
    return path


def is_module(name: str) -> bool:
    """Returns whether a file of the cache is a module rather than a lock."""
    return len(name) == 2 * _HASH_BYTES


def key(text: str, pipeline: str, device: str = "") -> str:
    """Returns the name of a module in the cache: 64 hexadecimal digits."""
    hasher = hashlib.sha256()
    for part in (
        ddphook.__version__,
        str(_runtime.library().ddphook_abi_version()),
        _compiler_identity(),
        # Modules name the runtime as a needed library.
        os.path.basename(_libraries.find(_libraries.RUNTIME)),
        processor(),
        pipeline,
        text,
        device,
    ):
        hasher.update(f"{len(part)}:".encode() + part.encode())
    return hasher.hexdigest()


def compiled(text: str, pipeline: str, device: str = "") -> bytes:
    """Returns the shared object of a module, compiled unless the cache has it."""
    build = functools.partial(compiler.compile_module, text, pipeline, device)
    name = key(text, pipeline, device)
    place = _open_directory()
    if place is None:
        return build()
    path = place / name
    if (image := _read(path)) is not None:
        return image
    with _lock(place / f"lock-{name[:2]}"):
        if (image := _read(path)) is None:
            image = build()
            _write(path, image)
    return image


def _open_directory() -> Path | None:
    """Returns the directory, or none, with one warning, if modules cannot be kept there."""
    place = directory()
    try:
        for missing in reversed([place, *place.parents]):
            if not missing.exists():
                missing.mkdir(mode=0o700, exist_ok=True)
        # Use the directory that was checked: a link may point elsewhere later.
        place = place.resolve(strict=True)
        why_not = _other_writers(place)
    except OSError as error:
        why_not = str(error)
    if why_not:
        warn_once(f"compiled modules are not kept: {why_not}")
        return None
    return place


def _other_writers(place: Path) -> str:
    """Returns why other users could write here, and so decide what this process runs."""
    for path in (place, *place.parents):
        status = path.lstat()
        if status.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to user {status.st_uid}"
        is_sticky = path != place and status.st_mode & stat.S_ISVTX
        if status.st_mode & stat.S_IWOTH and not is_sticky:
            return f"other users can write to {path}"
    if place.stat().st_mode & stat.S_IWGRP:
        return f"other users can write to {place}"
    return ""


@functools.cache
def warn_once(text: str) -> None:
    _log.warning("%s", text)


def _open_own(path: str, flags: int) -> int:
    """Opens a regular file of the cache; does not wait for a pipe or follow a link."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def _read(path: Path) -> bytes | None:
    """Returns the content of a file, or none if it is missing or incomplete."""
    try:
        with open(path, "rb", opener=_open_own) as file:
            data = file.read()
    except OSError:
        return None
    start = len(_MAGIC) + _HASH_BYTES
    image = data[start:]
    if data[:start] != _MAGIC + hashlib.sha256(image).digest():
        _log.warning("%s is damaged and will be compiled again", path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return image


def _write(path: Path, image: bytes) -> None:
    """Writes the file atomically: it appears complete or not at all."""
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix="new-")
        with open(descriptor, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(image).digest() + image)
        os.replace(temporary, path)
        _remove_oldest(path.parent)
    except OSError as error:
        _log.warning("a compiled module is not kept: %s", error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _remove_oldest(place: Path) -> None:
    entries = [entry for entry in os.scandir(place) if is_module(entry.name)]
    if len(entries) <= _MOST_FILES:
        return
    entries.sort(key=lambda entry: entry.stat().st_mtime)
    for entry in entries[: len(entries) - _MOST_FILES * 9 // 10]:
        with contextlib.suppress(OSError):
            os.unlink(entry.path)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds the lock, or proceeds without it if locking fails or takes too long."""
    try:
        descriptor = _open_own(str(path), os.O_RDWR | os.O_CREAT)
    except OSError:
        yield
        return
    try:
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_POLL_S)
            except OSError:
                break  # The file system does not support locks.
        yield
    finally:
        os.close(descriptor)
