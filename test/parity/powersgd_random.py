# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The random numbers of PyTorch's PowerSGD, in numpy.

A PowerSGD state has a numpy RandomState. For every Q, it takes a number below 10^9 from
it, seeds PyTorch's CPU generator with that and calls torch.randn. The results of
torch.randn are modelled here from docs/parity.md, to the last bit;
test_powersgd_oracle.py compares them with torch.
"""

import math

import numpy as np

import model
from tensors import Tensor

_BLOCK = 16


def _fma(a, b, c):
    """Returns a multiply-add in f32, rounded once: the product is exact in an extended double,
    and the sum loses far less than half a unit of f32."""
    wide = [np.asarray(x, np.float32).astype(np.longdouble) for x in (a, b, c)]
    return (wide[0] * wide[1] + wide[2]).astype(np.float32)


_F = np.float32
_LOG = [
    -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
]  # fmt: skip


def _log(x):
    mantissa, exponent = np.frexp(x)
    low = mantissa < _F(0.70710678118)
    exponent = np.where(low, exponent - 1, exponent).astype(np.float32)
    x = np.where(low, (mantissa - _F(1)) + mantissa, mantissa - _F(1))
    z = x * x
    y = _F(7.0376836292e-2)
    for coefficient in _LOG:
        y = _fma(y, x, _F(coefficient))
    y = y * x
    y = _fma(y, z, exponent * _F(-2.12194440e-4))
    y = _fma(-z, _F(0.5), y)
    return _fma(exponent, _F(0.693359375), x + y)


def _sincos(x):
    octant = ((x * _F(1.27323954473516)).astype(np.int32) + 1) & ~1
    y = octant.astype(np.float32)
    for part in (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8):
        x = _fma(y, _F(part), x)
    z = x * x
    p = _fma(_F(2.443315711809948e-5), z, _F(-1.388731625493765e-3))
    p = _fma(p, z, _F(4.166664568298827e-2)) * z
    p = _fma(p, z, -(z * _F(0.5))) + _F(1)
    q = _fma(_F(-1.9515295891e-4), z, _F(8.3321608736e-3))
    q = _fma(q, z, _F(-1.6666654611e-1)) * z
    q = _fma(q, x, x)
    swap = (octant & 2) != 0
    sin = np.where(swap, p, q) * np.where(octant & 4, _F(-1), _F(1))
    cos = np.where(swap, q, p) * np.where(~(octant - 2) & 4, _F(-1), _F(1))
    return sin, cos


def _box_muller_f32(uniform):
    """Transforms blocks of 16 uniforms into blocks of 16 normals."""
    blocks = uniform.reshape(-1, _BLOCK)
    u1, u2 = _F(1) - blocks[:, :8], blocks[:, 8:]
    radius = np.sqrt(_F(-2) * _log(u1))
    sin, cos = _sincos(_F(6.2831855) * u2)
    return np.concatenate([radius * cos, radius * sin], 1).reshape(-1)


def _box_muller_f64(uniform):
    out = np.empty_like(uniform)
    for block in range(0, uniform.size, _BLOCK):
        for j in range(block, block + 8):
            # Uses the C library's functions: numpy's own may round differently.
            radius = math.sqrt(-2 * math.log(1 - uniform[j]))
            angle = 2 * math.pi * uniform[j + 8]
            out[j] = radius * math.cos(angle)
            out[j + 8] = radius * math.sin(angle)
    return out


class TorchNormal:
    """The generator after torch.manual_seed(seed), for calls of torch.randn."""

    def __init__(self, seed):
        self._words = np.random.RandomState(seed)
        self._cached = None

    def _u32(self, count):
        return self._words.randint(0, 2**32, count, dtype=np.uint32)

    def _f32(self, count):
        return (self._u32(count) & 0xFFFFFF).astype(np.float32) * _F(2.0**-24)

    def _f64(self, count):
        words = self._u32(2 * count).astype(np.uint64)
        values = (words[::2] << np.uint64(32)) | words[1::2]
        return (values & np.uint64(2**53 - 1)).astype(np.float64) * 2.0**-53

    def _single(self):
        if self._cached is not None:
            value, self._cached = self._cached, None
            return value
        u1, u2 = self._f64(2)
        radius, angle = math.sqrt(-2 * math.log1p(-u2)), 2 * math.pi * u1
        self._cached = radius * math.sin(angle)
        return radius * math.cos(angle)

    def randn(self, count, dtype):
        """Returns a flat tensor of `count` normal numbers."""
        if count < _BLOCK:
            values = np.array([self._single() for _ in range(count)], np.float64)
            return model.cast(Tensor("f64", values), dtype)
        whole = count - count % _BLOCK
        if dtype == "f64":
            uniform, transform = self._f64, _box_muller_f64
        else:
            uniform, transform = self._f32, _box_muller_f32
        # 16-bit types draw whole blocks; other types draw all numbers at once.
        first = uniform(whole if dtype in ("f16", "bf16") else count)
        out = np.empty(count, first.dtype)
        out[:whole] = transform(first[:whole])
        if whole != count:
            out[-_BLOCK:] = transform(uniform(_BLOCK))
        return model.cast(Tensor("f64" if dtype == "f64" else "f32", out), dtype)


def draw(generator, draws, dtype):
    """Returns the Qs of one bucket, concatenated: takes one number from `generator`, a numpy
    RandomState, and then draws a tensor of each size in `draws`."""
    stream = TorchNormal(int(generator.randint(1_000_000_000)))
    parts = [stream.randn(count, dtype).data for count in draws]
    empty = model.cast(Tensor("f32", np.empty(0, np.float32)), dtype).data
    return Tensor(dtype, np.concatenate([empty, *parts]))


def generator_words(generator):
    """Returns the state of a RandomState in the format of `powersgd.generator`."""
    _, key, position, *_ = generator.get_state(legacy=True)
    return np.append(key, np.uint32(position)).astype(np.uint32).view(np.int32)


def generator_from_words(words):
    generator = np.random.RandomState(0)
    words = np.ascontiguousarray(words, np.int32).view(np.uint32)
    generator.set_state(("MT19937", words[:-1], int(words[-1])))
    return generator
