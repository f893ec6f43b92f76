# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime's casts give PyTorch's bits, for every pair of the types that
`element_types.inc` lists for them, on every instruction set of this machine.

Inputs are all bit patterns of the narrow types. For wide types, they are every value of
every narrow type, every tie between two neighbours, the numbers next to both, and
random bits. A NaN must stay a NaN.
"""

import ctypes
import itertools
import pathlib

import numpy as np
import pytest
import torch

import runner

TORCH = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@pytest.fixture(scope="module")
def library():
    path = pathlib.Path(runner.tool()).resolve().parents[1]
    library = ctypes.CDLL(str(path / "lib" / "libddphook_test_casts.so"))
    library.ddphook_test_cast_type.restype = ctypes.c_char_p
    library.ddphook_test_choose_target.restype = ctypes.c_char_p
    yield library
    library.ddphook_test_choose_target(-1)


def types_of(library):
    """Returns PyTorch's types in the order of the runtime's numbers."""
    types = []
    for number in itertools.count():
        size = ctypes.c_int64()
        name = library.ddphook_test_cast_type(number, ctypes.byref(size))
        if name is None:
            return types
        types.append(TORCH[name.decode()])
        assert types[-1].itemsize == size.value


def all_values(dtype):
    count = 1 << 8 * dtype.itemsize
    bits = torch.arange(count, dtype=torch.int64) - count // 2
    return bits.to(torch.int8 if dtype.itemsize == 1 else torch.int16).view(dtype)


def hard_values(dtype, types):
    """Returns values that are hard to round from `dtype`, which is f32 or f64."""
    integer = BITS[dtype.itemsize]
    parts = []
    for narrow in types:
        if narrow.itemsize > 2:
            continue
        values = torch.sort(all_values(narrow).to(torch.float64)).values
        values = values[values.isfinite()]
        largest = values[-1]
        ties = (values[1:] + values[:-1]) / 2
        beyond = largest * torch.tensor([1.03, 1.04, 1.07, 1.08, 2, 1e30])
        parts += [values, ties, beyond, -beyond]
    near = torch.cat(parts).to(dtype).view(integer)
    random = np.random.RandomState(runner.SEED).bytes(dtype.itemsize << 20)
    random = torch.frombuffer(bytearray(random), dtype=integer)
    # Includes ties of f32 in f64.
    random_floats = random.view(dtype).to(torch.float32).to(dtype).view(integer)
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0], dtype=dtype)
    return torch.cat(
        [near + delta for delta in (-1, 0, 1)]
        + [random, random_floats + 1, special.view(integer)]
    ).view(dtype)


def cast(library, values, types, source, target):
    wanted = types[target]
    # Uses odd sizes, and a margin that must not change.
    out = torch.full(((len(values) + 8) * wanted.itemsize,), 0xA5, dtype=torch.uint8)
    library.ddphook_test_cast(
        ctypes.c_void_p(values.data_ptr()),
        source,
        ctypes.c_void_p(out.data_ptr()),
        target,
        ctypes.c_int64(len(values)),
    )
    assert (out[len(values) * wanted.itemsize :] == 0xA5).all()
    return out[: len(values) * wanted.itemsize].view(wanted)


def test_every_pair_on_every_instruction_set(library):
    types = types_of(library)
    assert len(types) == len(TORCH)
    for number in itertools.count():
        name = library.ddphook_test_choose_target(number)
        if name is None:
            break
        for source, dtype in enumerate(types):
            narrow = dtype.itemsize <= 2
            values = all_values(dtype) if narrow else hard_values(dtype, types)
            for target, wanted in enumerate(types):
                got = cast(library, values, types, source, target)
                expected = values.to(wanted)
                integer = BITS[wanted.itemsize]
                same = got.view(integer) == expected.view(integer)
                both_nan = got.double().isnan() & expected.double().isnan()
                wrong = (~(same | both_nan)).nonzero().flatten()
                assert not len(wrong), (
                    f"{name.decode()}: {dtype} {values[wrong[0]].item()!r} became "
                    f"{got[wrong[0]].item()!r} instead of "
                    f"{expected[wrong[0]].item()!r} in {wanted}; "
                    f"{len(wrong)} of {len(values)} differ"
                )
    assert number > 1
