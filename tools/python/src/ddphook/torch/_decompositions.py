# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators in terms of those that torch-mlir lowers to linalg, and rightly.

Most of them scatter, for which linalg has nothing: here each place of the result
selects what belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions

from ddphook._errors import UnsupportedError

_aten = torch.ops.aten


def before_functionalization() -> dict[Any, Callable[..., Any]]:
    """Operators that write to arguments although their schema hides it."""
    return dict(get_decompositions([_aten.native_batch_norm]))


def for_linalg() -> dict[Any, Callable[..., Any]]:
    """What replaces torch-mlir's own decompositions."""
    return {
        _aten.constant_pad_nd.default: _constant_pad_nd,
        _aten.nll_loss_backward.default: _nll_loss_backward,
        _aten.embedding_dense_backward.default: _embedding_dense_backward,
        _aten.max_pool2d_with_indices_backward.default: _max_pool2d_backward,
    }


def _one_hot(indices: torch.Tensor, classes: int) -> torch.Tensor:
    """A truth for each index and class, in a new last dimension."""
    numbers = torch.arange(classes, dtype=indices.dtype, device=indices.device)
    return indices.unsqueeze(-1) == numbers


def _constant_pad_nd(
    self: torch.Tensor, pad: list[int], value: float = 0
) -> torch.Tensor:
    """Cuts where a number is negative: torch-mlir pads wrongly there."""
    if all(number >= 0 for number in pad):
        return NotImplemented
    for i, (before, behind) in enumerate(zip(pad[::2], pad[1::2])):
        axis = self.dim() - 1 - i
        first = max(-before, 0)
        size = self.shape[axis] - first - max(-behind, 0)
        self = self.narrow(axis, first, size)
    return _aten.constant_pad_nd(self, [max(number, 0) for number in pad], value)


def _nll_loss_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    if self.dim() != 2:
        return NotImplemented
    none, mean = 0, 1
    factor = grad_output / total_weight if reduction == mean else grad_output
    if reduction == none:
        factor = factor.unsqueeze(1)
    if weight is not None:
        factor = factor * weight
    counts = _one_hot(target, self.shape[1]) & (target != ignore_index).unsqueeze(1)
    return torch.where(counts, -factor, torch.zeros_like(self))


def _embedding_dense_backward(
    grad_output: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:
    if scale_grad_by_freq:
        raise UnsupportedError("expected an embedding without scale_grad_by_freq")
    chosen = _one_hot(indices.flatten(), num_weights)
    if padding_idx >= 0:
        chosen = chosen & (indices != padding_idx).flatten().unsqueeze(1)
    rows = grad_output.reshape(-1, grad_output.shape[-1])
    return chosen.to(rows.dtype).t() @ rows


def _max_pool2d_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    indices: torch.Tensor,
) -> torch.Tensor:
    """Adds, for each place of the kernel, the gradients whose maximum was there."""
    kernel = _pair(kernel_size)
    stride, dilation = _pair(stride or kernel), _pair(dilation)
    padding = _pair(padding)
    height, width = self.shape[-2:]
    results = grad_output.shape[-2:]

    def places(axis: int, offset: int) -> torch.Tensor:
        """Where in the input the kernel's place is, for each result."""
        first = offset * dilation[axis] - padding[axis]
        end = first + results[axis] * stride[axis]
        return torch.arange(first, end, stride[axis], device=self.device)

    total = torch.zeros_like(self)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows, columns = places(0, i), places(1, j)
            is_maximum = indices == rows.unsqueeze(1) * width + columns
            # Rows and columns outside the input have the numbers of others.
            is_maximum = is_maximum & ((columns >= 0) & (columns < width))
            part = torch.where(is_maximum, grad_output, torch.zeros_like(grad_output))
            part = _spread(part, stride)
            top, left = i * dilation[0] - padding[0], j * dilation[1] - padding[1]
            bottom = height - top - part.shape[-2]
            right = width - left - part.shape[-1]
            part = _aten.constant_pad_nd(part, [left, right, top, bottom])
            total = total + part
    return total


def _pair(numbers: list[int]) -> list[int]:
    """Of height and width; one number stands for both."""
    return list(numbers) if len(numbers) == 2 else [numbers[0]] * 2


def _spread(values: torch.Tensor, stride: list[int]) -> torch.Tensor:
    """Puts stride - 1 zeros behind each element, along the last two dimensions."""
    *outer, height, width = values.shape
    values = values.reshape(*outer, height, 1, width, 1)
    values = _aten.constant_pad_nd(values, [0, stride[1] - 1, 0, 0, 0, stride[0] - 1])
    return values.reshape(*outer, height * stride[0], width * stride[1])
