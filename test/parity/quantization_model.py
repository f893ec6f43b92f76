# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An independent model of encoded all-reduces, in numpy.

Written from docs/quantization.md. Codes of 8-bit floats are those of ml_dtypes.
Everything is computed for flat arrays, one for each rank; `divisor` is the
group's size, or 1 for a sum.
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
    """A row for each block; zeros behind the last one change none."""
    rows = -(-len(values) // block)
    return np.pad(values, (0, rows * block - len(values))).reshape(rows, block)


def encode(values, code, block):
    """Codes as f32, and the scales that belong to them, of f32 values."""
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
    codes = q.astype(FLOATS[code]) if code in FLOATS else np.rint(q).astype(np.int8)
    codes = codes.astype(F32)
    scales = np.broadcast_to(scales, rows.shape)
    return codes.reshape(-1)[:size], scales.reshape(-1)[:size]


def decode(encoded):
    codes, scales = encoded
    with np.errstate(all="ignore"):
        return _f32(codes * scales)


def reduce_scaled(arrays, code, block, divisor):
    """f32 results of casts and scaled codes, for arrays of any float type."""
    with np.errstate(all="ignore"):
        parts = [decode(encode(_f32(array), code, block)) for array in arrays]
        total = parts[0]
        for part in parts[1:]:
            total = _f32(total + part)
        return decode(encode(_f32(total / F32(divisor)), code, block))


def encoding_error(array, code, block):
    """What encoding loses of an array, in its own type: nothing where the codes
    decode to an infinity or a NaN."""
    with np.errstate(all="ignore"):
        if code == "ui1":
            kept = decode_signs(array, block)
        elif code == "ui8":
            kept = reduce_affine([array], block, 1)
        else:
            kept = decode(encode(_f32(array), code, block))
        wide = np.float64 if array.dtype == np.float64 else F32
        lost = array.astype(wide) - kept.astype(wide)
        return np.where(np.isfinite(kept), lost, 0).astype(array.dtype)


def _mean_magnitude(block):
    """Of f64 values: element i belongs to partial sum i mod 16, and these are added
    in order."""
    rows = np.abs(_in_blocks(block, 16))
    sums = np.add.accumulate(rows, axis=0)[-1]
    return F32(np.add.accumulate(sums)[-1] / len(block))


def decode_signs(array, block):
    """What the signs of an array decode to, in f32; `block` 0: one block."""
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
    """f32 results of signs."""
    with np.errstate(all="ignore"):
        total = np.zeros(len(arrays[0]), F32)
        for array in arrays:
            total = _f32(total + decode_signs(array, block))
        return _f32(total / F32(divisor))


def _affine(rows):
    """Codes of the rows' elements, with their scales and zero points, as PyTorch
    computes them: f64 in f64, all others in f32, where 16-bit types round after
    each step."""
    with np.errstate(all="ignore"):
        low = np.minimum(F32(0), _f32(rows.min(axis=1, keepdims=True)))
        high = np.maximum(F32(0), _f32(rows.max(axis=1, keepdims=True)))
        scale = np.maximum(_f32((high - low) / F32(255)), F32(2**-23))
        finite = np.isfinite(scale)
        zero = np.where(finite, np.clip(-np.rint(_f32(low / scale)), 0, 255), F32(0))
        wide = np.float64 if rows.dtype == np.float64 else F32
        q = (rows.astype(wide) / scale.astype(wide)).astype(rows.dtype)
        q = np.rint(q.astype(wide))
        q = (q + zero.astype(wide)).astype(rows.dtype).astype(wide)
        q = np.where(finite, np.clip(q, 0, 255), 0)
        return _f32(q), np.where(finite, scale, F32(np.nan)), zero


def reduce_affine(arrays, block, divisor):
    """f32 results of affine codes; `block` None: one block."""
    size = len(arrays[0])
    total = np.zeros(size, F32)
    if size == 0:
        return total
    with np.errstate(all="ignore"):
        for array in arrays:
            codes, scale, zero = _affine(_in_blocks(array, min(block or size, size)))
            part = _f32(scale * _f32(codes - zero))
            total = _f32(total + part.reshape(-1)[:size])
        return _f32(total / F32(divisor))
