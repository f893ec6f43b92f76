# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An independent model of encoded all-reduces, in numpy.

Written from docs/quantization.md. Codes of 8-bit floats are those of ml_dtypes. All
functions compute on flat arrays, one for each rank; `divisor` is the group's size, or
1 for a sum.
"""

import ml_dtypes
import numpy as np

F32 = np.float32
BF16 = ml_dtypes.bfloat16
LARGEST = {"i8": 127, "i4": 7, "f8E4M3FN": 448, "f8E5M2": 57344}
FLOATS = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}


def _f32(values):
    with np.errstate(all="ignore"):
        return values.astype(F32)


def _in_blocks(values, block):
    """Returns a row for each block; zeros after the last element do not change the result."""
    rows = -(-len(values) // block)
    return np.pad(values, (0, rows * block - len(values))).reshape(rows, block)


def stream(seed, name):
    """Returns the stream of a bucket's random numbers, from its first gradient's name: FNV-1a
    without the highest bit."""
    number = 0xCBF29CE484222325
    for byte in f"{seed} {name}".encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return number % 2**63


def _philox(counters, key):
    """Returns Philox4x32-10 of counters, a row of four words each."""
    words = [counters[:, i].astype(np.uint64) for i in range(4)]
    keys, low = [key % 2**32, key >> 32], np.uint64(2**32 - 1)
    for _ in range(10):
        a, b = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (b >> np.uint64(32)) ^ words[1] ^ np.uint64(keys[0]),
            b & low,
            (a >> np.uint64(32)) ^ words[3] ^ np.uint64(keys[1]),
            a & low,
        ]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return np.stack(words, axis=1)


def random_numbers(size, stream, step, lane):
    """Returns the numbers in [0, 1) for the elements of an array."""
    counters = np.empty((-(-size // 4), 4), np.uint64)
    counters[:, 0] = np.arange(len(counters))
    counters[:, 1:] = 0, step % 2**32, lane
    words = _philox(counters, stream).reshape(-1)[:size]
    return (words >> np.uint64(8)) * 2.0**-24


def _choose(q, code, random):
    """Chooses one of the two codes next to each number at random."""
    magnitudes = np.abs(q).astype(np.float64)
    if code in FLOATS:
        known = np.arange(256, dtype=np.uint8).view(FLOATS[code]).astype(np.float64)
        known = np.unique(known[np.isfinite(known) & (known >= 0)])
        place = np.searchsorted(known, magnitudes, side="right") - 1
        lower, upper = known[place], known[np.minimum(place + 1, len(known) - 1)]
    else:
        lower = np.floor(magnitudes)
        upper = lower + 1
    distance = np.where(upper > lower, upper - lower, 1)
    chosen = np.where(random < (magnitudes - lower) / distance, upper, lower)
    return _f32(np.copysign(chosen, q))


def encode(values, code, block, random=None):
    """Returns codes of f32 values as f32, and their scales; rounds to nearest or by the given
    random numbers."""
    size = len(values)
    if code in ("f16", "bf16"):
        with np.errstate(all="ignore"):
            codes = values.astype({"f16": np.float16, "bf16": BF16}[code])
        return codes.astype(F32), np.ones_like(values)
    rows = _in_blocks(values, block)
    largest = F32(LARGEST[code])
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        scales = np.abs(rows).max(axis=1, keepdims=True) / largest
        scales = np.where(finite, scales, F32(np.nan)).astype(BF16).astype(F32)
        q = np.where(scales > 0, rows / scales, F32(0))
        q = np.clip(q, -largest, largest)
    if random is not None:
        q = _choose(q, code, _in_blocks(random, block))
    codes = q.astype(FLOATS[code]) if code in FLOATS else np.rint(q).astype(np.int8)
    codes = codes.astype(F32)
    scales = np.broadcast_to(scales, rows.shape)
    return codes.reshape(-1)[:size], scales.reshape(-1)[:size]


def decode(encoded):
    codes, scales = encoded
    with np.errstate(all="ignore"):
        return _f32(codes * scales)


def reduce_scaled(arrays, code, block, divisor, rounding=None):
    """Returns f32 results of casts and scaled codes, for arrays of any float type.
    `rounding` has stream and step, and for the shards of an array also the shard's number."""
    random = [None] * (len(arrays) + 1)
    if rounding:
        first = rounding[2] * len(random)
        random = [
            random_numbers(len(arrays[0]), *rounding[:2], first + lane)
            for lane in range(len(random))
        ]
    with np.errstate(all="ignore"):
        parts = [
            decode(encode(_f32(array), code, block, numbers))
            for array, numbers in zip(arrays, random[1:])
        ]
        total = parts[0]
        for part in parts[1:]:
            total = _f32(total + part)
        return decode(encode(_f32(total / F32(divisor)), code, block, random[0]))


def encoding_error(array, code, block, random=None):
    """Returns the loss of an array by encoding, in its own type; zero where the codes decode
    to an infinity or a NaN."""
    with np.errstate(all="ignore"):
        if code == "ui1":
            kept = decode_signs(array, block)
        elif code == "ui8":
            kept = reduce_affine([array], block, 1)
        else:
            kept = decode(encode(_f32(array), code, block, random))
        wide = np.float64 if array.dtype == np.float64 else F32
        lost = array.astype(wide) - kept.astype(wide)
        return np.where(np.isfinite(kept), lost, 0).astype(array.dtype)


def _mean_magnitude(block):
    """Returns the mean magnitude of f64 values: element i belongs to partial sum i mod 16, and
    the partial sums are added in order."""
    rows = np.abs(_in_blocks(block, 16))
    sums = np.add.accumulate(rows, axis=0)[-1]
    return F32(np.add.accumulate(sums)[-1] / len(block))


def decode_signs(array, block):
    """Returns the decoded signs of an array, in f32; `block` 0 means one block."""
    values = array.astype(np.float64)
    kept = np.empty(len(values), F32)
    with np.errstate(all="ignore"):
        for begin in range(0, len(values), block or max(1, len(values))):
            part = values[begin : begin + block] if block else values
            mean = _mean_magnitude(part)
            if not np.isfinite(F32(2) * mean):
                mean = F32(np.nan)
            kept[begin : begin + len(part)] = np.where(part < 0, -mean, mean)
    return kept


def reduce_signs(arrays, block, divisor):
    """Returns f32 results of sign codes."""
    with np.errstate(all="ignore"):
        total = np.zeros(len(arrays[0]), F32)
        for array in arrays:
            total = _f32(total + decode_signs(array, block))
        return _f32(total / F32(divisor))


def _affine(rows, on_cuda):
    """Returns the codes of the rows' elements, with scales and zero points, as PyTorch
    computes them: f64 in f64, other types in f32, where 16-bit types round after each step.
    On CUDA tensors it multiplies by the rounded 1 / 255, and rounds the scale by which it
    divides to the type of the elements."""
    with np.errstate(all="ignore"):
        low = np.minimum(F32(0), _f32(rows.min(axis=1, keepdims=True)))
        high = np.maximum(F32(0), _f32(rows.max(axis=1, keepdims=True)))
        length = _f32(high - low)
        step = length * (F32(1) / F32(255)) if on_cuda else length / F32(255)
        scale = np.maximum(_f32(step), F32(2**-23))
        finite = np.isfinite(scale)
        zero = np.where(finite, np.clip(-np.rint(_f32(low / scale)), 0, 255), F32(0))
        wide = np.float64 if rows.dtype == np.float64 else F32
        divisor = scale.astype(rows.dtype) if on_cuda else scale
        q = (rows.astype(wide) / divisor.astype(wide)).astype(rows.dtype)
        q = np.rint(q.astype(wide))
        q = (q + zero.astype(wide)).astype(rows.dtype).astype(wide)
        q = np.where(finite, np.clip(q, 0, 255), 0)
        return _f32(q), np.where(finite, scale, F32(np.nan)), zero


def reduce_affine(arrays, block, divisor, on_cuda=False):
    """Returns f32 results of affine codes; `block` None means one block."""
    size = len(arrays[0])
    total = np.zeros(size, F32)
    if size == 0:
        return total
    with np.errstate(all="ignore"):
        for array in arrays:
            rows = _in_blocks(array, min(block or size, size))
            codes, scale, zero = _affine(rows, on_cuda)
            part = _f32(scale * _f32(codes - zero))
            total = _f32(total + part.reshape(-1)[:size])
        if on_cuda:
            return _f32(total * (F32(1) / F32(divisor)))
        return _f32(total / F32(divisor))
