# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orthogonal factors and products of one matrix, compared with PyTorch's own.

PowerSGD orthogonalizes with a private function of PyTorch's hook and multiplies with
`torch.bmm`; here the runtime's kernels are called through a small library, without a
step around them.

Limits are in units of the type's last place, relative to the largest element: sums have
as many terms in another order, and 16-bit types have one more rounding.
"""

import ctypes
import pathlib

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    _orthogonalize,
)

import runner

SEED = 20250711
DTYPES = {
    torch.float16: 0,
    torch.bfloat16: 1,
    torch.float32: 2,
    torch.float64: 3,
}
by_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture(scope="module")
def library():
    path = pathlib.Path(runner.tool()).resolve().parents[1]
    return ctypes.CDLL(str(path / "lib" / "libddphook_test_lowrank.so"))


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def orthogonalized(library, matrix, epsilon):
    out = torch.full_like(matrix, 7)
    library.ddphook_test_orthogonalize(
        ctypes.c_int32(DTYPES[matrix.dtype]), ctypes.c_int64(matrix.shape[0]),
        ctypes.c_int64(matrix.shape[1]), pointer(matrix), pointer(out),
        ctypes.c_double(epsilon),
    )
    return out


def theirs(matrix, epsilon):
    batch = matrix.clone().unsqueeze(0)
    _orthogonalize(batch, epsilon)
    return batch[0]


def units_apart(ours, reference):
    """Returns the largest difference, in units of the largest element's last place."""
    difference = (ours.double() - reference.double()).abs().max()
    largest = reference.double().abs().max()
    return float(difference / largest / torch.finfo(ours.dtype).eps)


@by_type
@pytest.mark.parametrize("epsilon", [0, 1e-8])
def test_orthogonalize(library, dtype, epsilon):
    print(f"seed {SEED}")
    torch.manual_seed(SEED)
    limit = 4 if dtype in (torch.float16, torch.bfloat16) else 64
    for rank in (1, 2, 3, 4, 8):
        for rows in (1, 2, 3, 4, 5, 9, 16, 17, 64, 257, 1000):
            # If columns are as many as rows, the last one is what cancellation left.
            if rank > 1 and rows < rank + 2:
                continue
            matrix = torch.randn(rows, rank).to(dtype)
            apart = units_apart(
                orthogonalized(library, matrix, epsilon), theirs(matrix, epsilon)
            )
            assert apart <= limit, (rows, rank)


@by_type
def test_zero_column(library, dtype):
    """Gram-Schmidt gives NaN; QR gives a column of the identity."""
    for rank in (1, 2, 4):
        matrix = torch.zeros(20, rank, dtype=dtype)
        ours, reference = orthogonalized(library, matrix, 0), theirs(matrix, 0)
        assert torch.equal(ours.isnan(), reference.isnan())
        assert torch.equal(ours.nan_to_num(), reference.nan_to_num())


@by_type
@pytest.mark.parametrize(
    "rows,columns,rank",
    [(1, 9, 1), (9, 1, 1), (5, 7, 2), (64, 64, 1), (100, 333, 4),
     (1000, 77, 8), (31, 2000, 3)],
)
def test_products(library, dtype, rows, columns, rank):
    print(f"seed {SEED}")
    torch.manual_seed(SEED)
    matrix = torch.randn(rows, columns).to(dtype)
    p, q = torch.randn(rows, rank).to(dtype), torch.randn(columns, rank).to(dtype)
    products = [
        (0, matrix, q), (1, matrix.t(), p), (2, p, q.t()),
    ]
    for kind, left, right in products:
        reference = torch.bmm(left.unsqueeze(0), right.unsqueeze(0))[0]
        out = torch.full(reference.shape, 7, dtype=dtype)
        arrays = [matrix, p, q]
        arrays[(1, 2, 0)[kind]] = out
        library.ddphook_test_matmul(
            ctypes.c_int32(DTYPES[dtype]), ctypes.c_int64(rows),
            ctypes.c_int64(columns), ctypes.c_int64(rank), ctypes.c_int32(kind),
            *map(pointer, arrays),
        )
        limit = 1 if dtype in (torch.float16, torch.bfloat16) else 64
        assert units_apart(out, reference) <= limit, kind
