# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime's C ABI: contexts, modules, counters, states.

Mirrors ``ddphook/runtime/runtime.h`` and ``compiled.h``, which have the
contracts. Only one thread at a time may use a context and its modules.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import json
import logging
import operator
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p
from typing import Any, Protocol, TypedDict

from ddphook import _libraries
from ddphook._errors import DataLossError, Error, InternalError, from_status

_log = logging.getLogger("ddphook")

# DDPHOOK_ABI_VERSION.
_ABI_VERSION = 10

# Values of ddphook_status_t that callbacks return to the runtime.
_DEADLINE_EXCEEDED = 10
_INTERNAL = 12


# The first fields of structs with functions, which get `user`.
_WITH_USER: list[tuple[str, Any]] = [("struct_size", c_size_t), ("user", c_void_p)]
_Set = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_char_p)
_Get = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_double, c_void_p, c_size_t)


class _Store(ctypes.Structure):
    """``ddphook_store_t``."""

    _fields_ = [*_WITH_USER, ("set", _Set), ("get", _Get)]


class Store(Protocol):
    """A key-value store through which the ranks of a job find each other."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str, timeout_s: float) -> str | None:
        """Waits for a value; returns none after the timeout."""


_Alloc = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_int32, c_void_p)
_Free = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_int32, c_void_p)


class _Allocator(ctypes.Structure):
    """``ddphook_allocator_t``."""

    _fields_ = [*_WITH_USER, ("alloc", _Alloc), ("free", _Free)]


class Allocator(Protocol):
    """The source of device memory: ``ddphook/runtime/allocator.h``.

    The thread that uses the context calls it.
    """

    def alloc(self, size: int, device: int, stream: int) -> int:
        """Returns the address of some memory; returns 0 or raises if there is none."""

    def free(self, address: int, size: int, device: int, stream: int) -> None: ...


class Options(ctypes.Structure):
    """``ddphook_options_t``."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char_p),
        ("transport", c_char_p),
        ("timeout_s", c_double),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("local_rank", c_int32),
        ("master_addr", c_char_p),
        ("master_port", c_int32),
        ("backend_options", c_char_p),
        ("store", POINTER(_Store)),
        ("trace", c_char_p),
        ("allocator", POINTER(_Allocator)),
    ]


class Statistics(TypedDict):
    """Counters of a rank since the hook was registered, summed over its buckets.

    Attributes
    ----------
    steps
        Reductions of buckets.
    collectives
        Collectives that these took.
    wire_bytes
        Bytes that this rank contributed to them, as sent.
    collective_bytes
        Bytes of the same elements in their type in memory.
    arena_bytes, state_bytes
        Bytes of scratch memory and of states.
    elements_before_compression, elements_after_compression
        Elements of compressed buckets, and those sent for them, as PyTorch's
        ``PowerSGDState.compression_stats()`` counts.
    uncompressed_bytes
        Bytes of the gradients, which the same steps would send without a hook.
    compression_ratio
        ``uncompressed_bytes / wire_bytes``; 1 while nothing was sent.
    """

    steps: int
    collectives: int
    wire_bytes: int
    collective_bytes: int
    arena_bytes: int
    state_bytes: int
    elements_before_compression: int
    elements_after_compression: int
    uncompressed_bytes: int
    compression_ratio: float


class Stats(ctypes.Structure):
    """``ddphook_stats_t``: `Statistics` without the ratio."""

    _fields_ = [
        ("struct_size", c_size_t),
        *((name, c_uint64) for name in list(Statistics.__annotations__)[:-1]),
    ]


_Invoke = ctypes.CFUNCTYPE(c_int, POINTER(c_void_p))


class _Entry(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("invoke", _Invoke)]


class _CompiledModule(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("abi_version", c_uint32),
        ("plan", c_void_p),
        ("plan_size", c_uint64),
        ("plan_hash", c_uint64),
        ("handle", c_void_p),
        ("entry_count", c_uint64),
        ("entries", POINTER(_Entry)),
        ("device_code", c_void_p),
        ("device_code_size", c_uint64),
    ]


@functools.cache
def library() -> ctypes.CDLL:
    """Returns the runtime, loaded at the first call."""
    status, pointer = c_int, c_void_p
    rt = _libraries.load(_libraries.RUNTIME)
    _libraries.declare(
        rt,
        ("ddphook_last_error", c_char_p),
        ("ddphook_abi_version", c_uint32),
        ("ddphook_context_create", status, POINTER(Options), POINTER(pointer)),
        ("ddphook_context_destroy", None, pointer),
        ("ddphook_context_set_stream", status, pointer, pointer),
        ("ddphook_memory_read ddphook_memory_write", status, *[pointer] * 3, c_size_t),
        ("ddphook_synchronize ddphook_module_unload", status, pointer),
        ("ddphook_module_load", status, pointer, pointer),
        ("ddphook_module_stats", status, pointer, POINTER(Stats)),
        ("ddphook_rt_state", pointer, pointer, c_int32),
        ("ddphook_draw_normal", status, c_uint32, c_int64, POINTER(c_int64), c_int64)
        + (pointer, c_int32),
    )
    _libraries.check_abi(rt, rt.ddphook_abi_version(), _ABI_VERSION)
    return rt


def check(status: int) -> None:
    """Raises the exception of a status that is not ``DDPHOOK_OK``."""
    if status:
        message = library().ddphook_last_error() or b""
        raise from_status(status, message.decode(errors="replace"))


class Context:
    """A process's membership in a job: ``ddphook_context_create``.

    Collective: all ranks of the job create it at the same time. They meet through the
    store; every wait for a peer has the deadline ``timeout_s``. The backend and its
    options are the environment's if they are empty. The device's own allocator is the
    default.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        store: Store,
        timeout_s: float,
        backend: str = "",
        backend_options: str = "",
        allocator: Allocator | None = None,
    ) -> None:
        options = Options(
            ctypes.sizeof(Options), rank=rank, world_size=world_size, timeout_s=timeout_s
        )
        options.backend = backend.encode() or None
        options.backend_options = backend_options.encode() or None
        table, failures = _table_of(store)
        options.store = ctypes.pointer(table)
        self._failures = _Failures()
        if allocator is not None:
            # The runtime calls the allocator until the context is destroyed. Its functions
            # do not refer to the context, with which it is released.
            self._allocator, self._failures = _lent(allocator)
            options.allocator = ctypes.pointer(self._allocator)
        self.handle = c_void_p()
        status = library().ddphook_context_create(
            ctypes.byref(options), ctypes.byref(self.handle)
        )
        if status and failures:
            raise failures[0]
        self.check(status)

    def check(self, status: int) -> None:
        """Calls ``check``; if the allocator raised meanwhile, its exception is the cause."""
        cause = self._failures.pop() if self._failures else None
        try:
            check(status)
        except Error as error:
            raise error from cause

    def set_stream(self, stream: int) -> None:
        """Lets modules run on a stream of the device: ``ddphook_context_set_stream``.

        0 is the context's own stream; PyTorch's default stream, which calls itself 0
        too, is 1.
        """
        check(library().ddphook_context_set_stream(self.handle, stream))

    def synchronize(self) -> None:
        """Waits for the device, and raises its failure: ``ddphook_synchronize``."""
        check(library().ddphook_synchronize(self.handle))

    def read_memory(self, array: Any, address: int) -> None:
        """Fills a ctypes array from the device's memory, after all earlier work."""
        size = ctypes.sizeof(array)
        check(library().ddphook_memory_read(self.handle, array, address, size))

    def write_memory(self, address: int, array: Any) -> None:
        """Copies a ctypes array into the device's memory, after all earlier work."""
        size = ctypes.sizeof(array)
        check(library().ddphook_memory_write(self.handle, address, array, size))

    def destroy(self) -> None:
        """Leaves the job; unloads all modules. May be called twice."""
        handle, self.handle = self.handle, c_void_p()
        if handle:
            library().ddphook_context_destroy(handle)


_Failures = collections.deque[BaseException]


def _lent(allocator: Allocator) -> tuple[_Allocator, _Failures]:
    """Returns an allocator in the form that the runtime takes, and its last exception."""
    failures = _Failures(maxlen=1)

    @_Alloc
    def alloc(_: int, size: int, device: int, stream: int | None) -> int:
        try:
            # Without index(), ctypes would accept any object as an address.
            return operator.index(allocator.alloc(size, device, stream or 0))
        except BaseException as error:  # noqa: BLE001 - raised by Context.check.
            failures.append(error)
            return 0

    @_Free
    def free(_: int, address: int, size: int, device: int, stream: int) -> None:
        try:
            allocator.free(address, size, device, stream or 0)
        except BaseException:  # noqa: BLE001 - there is no caller to raise it to.
            _log.exception("memory of GPU %d was not freed", device)

    return _Allocator(ctypes.sizeof(_Allocator), None, alloc, free), failures


def _table_of(store: Store) -> tuple[_Store, _Failures]:
    """Returns a store in the form that the runtime takes, and its exceptions."""
    failures = _Failures()

    @_Set
    def set_value(_: int, key: bytes, value: bytes) -> int:
        try:
            store.set(key.decode(), value.decode())
        except BaseException as error:  # noqa: BLE001 - raised by the caller.
            failures.append(error)
            return _INTERNAL
        return 0

    @_Get
    def get_value(_: int, key: bytes, timeout_s: float, memory: int, capacity: int) -> int:
        try:
            value = store.get(key.decode(), timeout_s)
        except BaseException as error:  # noqa: BLE001 - raised by the caller.
            failures.append(error)
            return _INTERNAL
        if value is None:
            return _DEADLINE_EXCEEDED
        text = value.encode()[: capacity - 1] + b"\0"
        ctypes.memmove(memory, text, len(text))
        return 0

    return _Store(ctypes.sizeof(_Store), None, set_value, get_value), failures


class SharedObject:
    """The code of a compiled module, in this process.

    Each instance has its own copy of the code, even for equal bytes, because a process
    can load a module only once at a time. Raises DataLossError if the bytes are not a
    shared object that exports ``ddphook_compiled_module``.
    """

    def __init__(self, image: bytes) -> None:
        library()  # The image needs the runtime, and finds it by its soname.
        # The descriptor stays open as long as the code is loaded: the loader
        # identifies objects by name, and the number of a closed one is reused.
        self._descriptor = os.memfd_create("ddphook", os.MFD_CLOEXEC)
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                file.write(image)
            path = f"/proc/self/fd/{self._descriptor}"
            self._code = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            os.close(self._descriptor)
            raise DataLossError(f"cannot load a compiled module: {error}") from None
        try:
            self.module = _CompiledModule.in_dll(self._code, "ddphook_compiled_module")
        except ValueError as error:
            self.close()
            raise DataLossError(f"not a compiled module: {error}") from None

    def plan(self) -> dict[str, Any]:
        return json.loads(ctypes.string_at(self.module.plan, self.module.plan_size))

    def close(self) -> None:
        """Removes the code; the module must already be unloaded."""
        dlclose = ctypes.CDLL(None).dlclose
        dlclose.argtypes = [c_void_p]
        dlclose(self._code._handle)
        os.close(self._descriptor)


class Module:
    """A compiled module that is loaded into a context, which must outlive it.

    Collective: all ranks load equal modules in the same order, otherwise
    PlanMismatchError is raised.
    """

    def __init__(self, context: Context, image: bytes) -> None:
        self._context = context
        self._object = SharedObject(image)
        module = self._object.module
        self._address = ctypes.addressof(module)
        try:
            context.check(library().ddphook_module_load(context.handle, self._address))
        except Exception:
            self._object.close()
            raise
        self.plan = self._object.plan()
        if module.entry_count != 1:
            raise InternalError(f"expected one entry, but got {module.entry_count}")
        self._invoke = module.entries[0].invoke
        entry = self.plan["entries"][0]
        self._arguments = len(entry["arguments"])
        results = enumerate(entry["results"])
        self._results = [number for number, result in results if result["argument"] < 0]

    def run(self, addresses: list[int]) -> None:
        """Runs the entry point on the arrays at these addresses.

        They are the arguments and then, if their memory is not that of the arguments
        with the same numbers, the results. After an error, the context is unusable.
        """
        arguments = addresses[: self._arguments]
        results = addresses[self._arguments :] or arguments
        buffers = arguments + [results[number] for number in self._results]
        check(self._invoke((c_void_p * len(buffers))(*buffers)))

    def statistics(self) -> dict[str, int]:
        """Returns ``ddphook_stats_t`` by the names of its fields."""
        stats = Stats(ctypes.sizeof(Stats))
        check(library().ddphook_module_stats(self._address, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, *_ in Stats._fields_[1:]}

    def read_state(self, number: int) -> ctypes.Array[ctypes.c_char]:
        """Returns the memory of a non-empty state, valid until the module is unloaded,
        or a copy if that memory is on a device."""
        kind = ctypes.c_char * self.plan["states"][number]["bytes"]
        address = self._state(number)
        if not self._is_on_device(number):
            return kind.from_address(address)
        copy = kind()
        self._context.read_memory(copy, address)
        return copy

    def write_state(self, number: int, array: ctypes.Array[ctypes.c_char]) -> None:
        """Writes back the changes made to the result of ``read_state``."""
        if self._is_on_device(number):
            self._context.write_memory(self._state(number), array)

    def _is_on_device(self, number: int) -> bool:
        """Returns whether the host cannot access a state's memory."""
        is_integer = self.plan["states"][number]["dtype"].startswith("i")
        return self.plan["memory"] == "device" and not is_integer

    def _state(self, number: int) -> int:
        """Returns the address of a state, valid until the module is unloaded."""
        handle = ctypes.cast(self._object.module.handle, POINTER(c_void_p))[0]
        return library().ddphook_rt_state(handle, number)

    def unload(self) -> None:
        """Frees memory, states and code."""
        check(library().ddphook_module_unload(self._address))
        self.release()

    def release(self) -> None:
        """Frees only the code, after the context has unloaded the module."""
        self._object.close()
