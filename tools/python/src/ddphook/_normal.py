# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Standard normal numbers as PyTorch draws them, in NumPy.

The runtime draws a state's first value when it loads a module. A program that XLA
runs has no runtime, so its caller provides the first values. The algorithms follow
docs/parity.md to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

_BLOCK = 16
_LIMIT = 10**9  # The bound of the numbers that seed a stream.
_f32 = np.float32


def draw(seed: int, number: int, draws: Iterable[int], dtype: Any) -> np.ndarray:
    """Returns what ``torch.randn`` returns for each size in ``draws``, concatenated.

    Parameters
    ----------
    seed
        The seed of the ``RandomState`` of NumPy that seeds PyTorch's generator.
    number
        How many numbers have been taken from it before.
    draws
        Sizes.
    dtype
        ``float16``, ``float32``, ``float64`` or a NumPy type for ``bfloat16``.
    """
    generator = np.random.RandomState(seed)
    for _ in range(number):
        generator.randint(_LIMIT)
    stream = _Stream(int(generator.randint(_LIMIT)), np.dtype(dtype))
    parts = [stream.randn(count) for count in draws]
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)


class _Stream:
    """PyTorch's generator after ``torch.manual_seed``."""

    def __init__(self, seed: int, dtype: np.dtype) -> None:
        self._words = np.random.RandomState(seed)
        self._dtype = dtype
        self._kept: float | None = None

    def _uniform(self, count: int) -> np.ndarray:
        wide = self._dtype == np.float64
        words = self._words.randint(0, 2**32, (count, 1 + wide), dtype=np.uint32)
        if not wide:
            return (words[:, 0] & 0xFFFFFF).astype(np.float32) * _f32(2.0**-24)
        high, low = words.astype(np.uint64).T
        bits = ((high << np.uint64(32)) | low) & np.uint64(2**53 - 1)
        return bits.astype(np.float64) * 2.0**-53

    def _one(self) -> float:
        """Returns one number of a draw of fewer than 16; they are drawn in pairs."""
        if self._kept is not None:
            value, self._kept = self._kept, None
            return value
        first, second = (
            int(high) << 32 | int(low)
            for high, low in self._words.randint(0, 2**32, (2, 2), dtype=np.uint32)
        )
        angle = 2 * math.pi * ((first & (2**53 - 1)) * 2.0**-53)
        radius = math.sqrt(-2 * math.log1p(-((second & (2**53 - 1)) * 2.0**-53)))
        self._kept = radius * math.sin(angle)
        return radius * math.cos(angle)

    def randn(self, count: int) -> np.ndarray:
        if count < _BLOCK:
            values = np.array([self._one() for _ in range(count)], np.float64)
            if self._dtype.itemsize == 2:
                values = values.astype(np.float32)
            return values.astype(self._dtype)
        transform = _normal_f64 if self._dtype == np.float64 else _normal_f32
        whole = count - count % _BLOCK
        # 16-bit types draw whole blocks; other types draw all numbers at once.
        uniform = self._uniform(whole if self._dtype.itemsize == 2 else count)
        values = np.empty(count, uniform.dtype)
        values[:whole] = transform(uniform[:whole].reshape(-1, 2, 8))
        if whole != count:
            last = self._uniform(_BLOCK).reshape(-1, 2, 8)
            values[-_BLOCK:] = transform(last)
        return values.astype(self._dtype)


def _normal_f64(uniform: np.ndarray) -> np.ndarray:
    # Uses the C library's functions, as PyTorch does; NumPy's may round differently.
    def pair(first: float, second: float) -> tuple[float, float]:
        radius = math.sqrt(-2 * math.log(1 - first))
        angle = 2 * math.pi * second
        return radius * math.cos(angle), radius * math.sin(angle)

    pairs = [[pair(*both) for both in block.T] for block in uniform]
    return np.array(pairs, np.float64).transpose(0, 2, 1).reshape(-1)


def _normal_f32(uniform: np.ndarray) -> np.ndarray:
    first, second = _f32(1) - uniform[:, 0], uniform[:, 1]
    radius = np.sqrt(_f32(-2) * _log(first))
    cosine, sine = _cos_sin(_f32(6.2831855) * second)
    return np.stack([radius * cosine, radius * sine], axis=1).reshape(-1)


def _fma(a: Any, b: Any, c: Any) -> np.ndarray:
    """Returns a·b + c in f32, rounded once: the product is exact in extended precision,
    and the sum loses nothing that affects the rounding."""
    a, b, c = (np.asarray(x, np.float32).astype(np.longdouble) for x in (a, b, c))
    return (a * b + c).astype(np.float32)


def _polynomial(x: np.ndarray, coefficients: Iterable[float]) -> np.ndarray:
    first, *others = map(_f32, coefficients)
    value: Any = first
    for coefficient in others:
        value = _fma(value, x, coefficient)
    return value


def _log(x: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(x)
    is_low = mantissa < _f32(0.70710678118)
    e = (exponent - is_low).astype(np.float32)
    x = mantissa - _f32(1) + np.where(is_low, mantissa, _f32(0))
    z = x * x
    y = x * _polynomial(
        x,
        (
            7.0376836292e-2,
            -1.1514610310e-1,
            1.1676998740e-1,
            -1.2420140846e-1,
            1.4249322787e-1,
            -1.6668057665e-1,
            2.0000714765e-1,
            -2.4999993993e-1,
            3.3333331174e-1,
        ),
    )
    y = _fma(y, z, e * _f32(-2.12194440e-4))
    y = _fma(-z, _f32(0.5), y)
    return _fma(e, _f32(0.693359375), x + y)


def _cos_sin(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    octant = ((x * _f32(1.27323954473516)).astype(np.int32) + 1) & ~1
    y = octant.astype(np.float32)
    for part in (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8):
        x = _fma(y, _f32(part), x)
    z = x * x
    p = z * _polynomial(
        z, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
    )
    p = _fma(p, z, -(z * _f32(0.5))) + _f32(1)
    q = z * _polynomial(
        z, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
    )
    q = _fma(q, x, x)
    is_swapped = (octant & 2) != 0
    sine = np.where(octant & 4, _f32(-1), _f32(1)) * np.where(is_swapped, p, q)
    cosine = np.where(is_swapped, q, p)
    return np.where(~(octant - 2) & 4, _f32(-1), _f32(1)) * cosine, sine
