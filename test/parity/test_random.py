# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime's random numbers equal numpy's and PyTorch's, bit by bit.

PowerSGD begins with `torch.manual_seed(rng.randint(1e9))`, `rng` a
`numpy.random.RandomState(seed)`, and `torch.randn` for each Q. The runtime does the
same itself; here its function is called through a small library.
"""

import ctypes
import pathlib

import numpy as np
import pytest
import torch

import runner

DTYPES = {
    0: torch.float16,
    1: torch.bfloat16,
    2: torch.float32,
    3: torch.float64,
}
# Edge cases of the Mersenne twister: the sign bit of 32 bits, numpy's largest seed.
SEEDS = [0, 1, 42, 2**31 - 1, 2**31, 2**32 - 1]


@pytest.fixture(scope="module")
def library():
    path = pathlib.Path(runner.tool()).resolve().parents[1]
    return ctypes.CDLL(str(path / "lib" / "libddphook_test_random.so"))


class Ours:
    """The runtime's generator, with an interface for tests."""

    def __init__(self, library, seed):
        self.library = library
        self.generator = np.full(625, -1, np.int32)
        library.ddphook_test_seed(
            ctypes.c_uint32(seed), self.generator.ctypes.data_as(ctypes.c_void_p)
        )

    def draw(self, sizes, dtype):
        total = sum(sizes)
        itemsize = DTYPES[dtype].itemsize
        out = np.full((total + 4) * itemsize, 0xA5, np.uint8)
        status = self.library.ddphook_test_normal(
            self.generator.ctypes.data_as(ctypes.c_void_p),
            (ctypes.c_int64 * len(sizes))(*sizes),
            ctypes.c_int64(len(sizes)),
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int32(dtype),
        )
        assert status == 0
        assert (out[total * itemsize :] == 0xA5).all(), "written beyond the end"
        return out[: total * itemsize]


def theirs(rng, sizes, dtype):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.randint(1_000_000_000))
        drawn = [torch.randn(size, dtype=DTYPES[dtype]) for size in sizes]
    return torch.cat(drawn).view(torch.uint8).numpy()


def expect_equal(ours, expected, dtype, what):
    """Compares without printing megabytes on failure."""
    if not np.array_equal(ours, expected):
        width = DTYPES[dtype].itemsize
        wrong = (ours != expected).reshape(-1, width).any(axis=1).nonzero()[0]
        pytest.fail(f"{what}: {len(wrong)} numbers differ, first {wrong[:5]}")


def same_state(ours, rng):
    _, words, position = rng.get_state()[:3]
    expected = np.append(words.view(np.int32), np.int32(position))
    return np.array_equal(ours.generator, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_generator_state(library, seed):
    ours, rng = Ours(library, seed), np.random.RandomState(seed)
    assert same_state(ours, rng)
    # 3000 seeds use all words more than four times.
    for _ in range(3000):
        ours.draw([], 2)
        rng.randint(1_000_000_000)
    assert same_state(ours, rng)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_short_size(library, dtype):
    """Sizes from 0 to 100 contain all ways in which a draw can begin and end."""
    ours, rng = Ours(library, runner.SEED), np.random.RandomState(runner.SEED)
    for size in range(101):
        for _ in range(20):
            expect_equal(
                ours.draw([size], dtype), theirs(rng, [size], dtype), dtype, size
            )
    assert same_state(ours, rng)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1000, 4096, 65537, 1_000_003])
def test_long_draws(library, dtype, size):
    for seed in SEEDS:
        ours, rng = Ours(library, seed), np.random.RandomState(seed)
        expect_equal(
            ours.draw([size], dtype), theirs(rng, [size], dtype), dtype, seed
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_mixed_draws(library, dtype):
    """Sequences resemble a bucket with several matrices: the unused half of a pair from a
    small draw is used by the next small draw."""
    choice = np.random.RandomState(runner.SEED)
    ours, rng = Ours(library, 7), np.random.RandomState(7)
    for sequence in range(200):
        limit = int(choice.choice([3, 16, 40, 2000]))
        sizes = choice.randint(0, limit, choice.randint(1, 12)).tolist()
        expect_equal(
            ours.draw(sizes, dtype),
            theirs(rng, sizes, dtype),
            dtype,
            f"sequence {sequence}: {sizes}",
        )
    assert same_state(ours, rng)


def test_shapes_do_not_matter(library):
    """A batched (B, m, r) draw equals a draw of that many numbers."""
    ours = Ours(library, 3).draw([5 * 7 * 2], 2)
    torch.manual_seed(np.random.RandomState(3).randint(1_000_000_000))
    expected = torch.randn(5, 7, 2).reshape(-1).view(torch.uint8).numpy()
    assert np.array_equal(ours, expected)
