# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expresses operators by others that torch-mlir lowers to linalg correctly.

Most of them scatter, which linalg cannot do: here each element of the result selects
the values that it receives.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ddphook._errors import UnsupportedError
from ddphook.torch import _private
from ddphook.torch._private import get_decompositions

_aten = torch.ops.aten


def before_functionalization() -> dict[Any, Callable[..., Any]]:
    """Returns decompositions of operators that write to arguments despite their schema,
    and of reductions of several tensors into one for each."""
    ops = _private.collectives
    table = dict(get_decompositions([_aten.native_batch_norm]))
    table[ops.all_reduce_coalesced.default] = lambda tensors, kind, group: [
        ops.all_reduce(tensor, kind, group) for tensor in tensors
    ]
    return table


def for_linalg() -> dict[Any, Callable[..., Any]]:
    """Returns the decompositions that replace torch-mlir's own."""
    return {
        **dict.fromkeys((_aten.view.default, _private.unsafe_view), _view),
        _aten.constant_pad_nd.default: _constant_pad_nd,
        _aten.convolution_backward.default: _convolution_backward,
        _aten.nll_loss_backward.default: _nll_loss_backward,
        _aten.max_pool2d_with_indices_backward.default: _max_pool2d_backward,
        _aten.avg_pool2d_backward.default: _avg_pool2d_backward,
        _private.adaptive_avg_pool2d_backward: _adaptive_avg_pool2d_backward,
        _aten.scatter_add.default: _scatter_add,
        _aten.scatter.src: _scatter,
        _aten.index_put.default: _index_put,
        _aten.maximum.default: _maximum,
        _aten.minimum.default: _minimum,
        **dict.fromkeys((_aten.clamp.default, _aten.clamp.Tensor), _clamp),
        _aten.hardtanh.default: lambda self, low=-1, high=1: _clamp(self, low, high),
        _aten.div.Tensor_mode: _divided,
        **{
            getattr(_aten, name).Scalar: _compared(getattr(_aten, name).Tensor)
            for name in ("eq", "ne", "lt", "le", "gt", "ge")
        },
        **get_decompositions([_aten.gelu.default]),
        _private.weight_norm_backward: _weight_norm_backward,
    }


def _one_hot(indices: Tensor, classes: int) -> Tensor:
    """Returns a boolean for each index and class, in a new last dimension."""
    numbers = torch.arange(classes, dtype=indices.dtype, device=indices.device)
    return indices.unsqueeze(-1) == numbers


def _of_floats(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a rule that leaves tensors of other numbers to torch-mlir."""

    @functools.wraps(rule)
    def of_floats(self: Tensor, *rest: Any, **more: Any) -> Any:
        return rule(self, *rest, **more) if self.is_floating_point() else NotImplemented

    return of_floats


def _compared(compare: Callable[..., Tensor]) -> Callable[..., Any]:
    """Returns a comparison with a number rounded to the tensor's type, as in PyTorch:
    torch-mlir compares in float64, where no float32 equals 0.1."""
    return _of_floats(lambda self, other: compare(self, _as_tensor(other, self)))


def _extremum(precedes: Callable[..., Tensor]) -> Callable[..., Any]:
    """Returns a maximum or minimum that is NaN if an operand is NaN: torch-mlir loses a
    NaN in the second operand, and in a tensor to clamp."""

    @_of_floats
    def extremum(self: Tensor, other: Tensor | float) -> Tensor:
        other = _as_tensor(other, self)
        return torch.where(precedes(self, other) | (self != self), self, other)

    return extremum


_maximum, _minimum = _extremum(torch.gt), _extremum(torch.lt)


@_of_floats
def _clamp(
    self: Tensor, min: Tensor | float | None = None, max: Tensor | float | None = None
) -> Any:
    if min is not None:
        self = _maximum(self, min)
    return self if max is None else _minimum(self, max)


def _as_tensor(value: Tensor | float, like: Tensor) -> Tensor:
    """Returns a number in the type of the other operand."""
    return value if isinstance(value, Tensor) else like.new_full((), value)


@_of_floats
def _divided(self: Tensor, other: Tensor | float, *, rounding_mode: str | None) -> Any:
    """Returns the largest integer not above the exact quotient: torch-mlir rounds the
    quotient first, so that 0.7 // 0.1 becomes 7."""
    if rounding_mode != "floor":
        return NotImplemented
    other = _as_tensor(other, self)
    quotient = self / other
    down = torch.round((self - torch.remainder(self, other)) / other)
    # Zeros have the quotient's sign.
    down = torch.where(down == 0, quotient * 0, down)
    return torch.where(other == 0, quotient, down)


def _view(self: Tensor, size: list[int]) -> Any:
    """Handles empty tensors: torch-mlir divides by their size, which ends the process."""
    if self.numel() > 0:
        return NotImplemented
    return self.new_empty([0 if n == -1 else n for n in size])


def _constant_pad_nd(self: Tensor, pad: list[int], value: float = 0) -> Tensor:
    """Crops where a number is negative: torch-mlir pads incorrectly there."""
    if all(number >= 0 for number in pad):
        return NotImplemented
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        axis = self.dim() - 1 - i
        first = max(-before, 0)
        size = self.shape[axis] - first - max(-after, 0)
        self = self.narrow(axis, first, size)
    return _aten.constant_pad_nd(self, [max(number, 0) for number in pad], value)


def _weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Differentiates w = v · g / |v|, with norms over all dimensions but `dim`."""
    others = [i for i in range(saved_v.dim()) if i != dim % saved_v.dim()]
    along = (grad_w * saved_v).sum(others, keepdim=True) / saved_norms
    across = grad_w - saved_v * (along / saved_norms)
    return across * (saved_g / saved_norms), along


def _convolution_backward(
    grad_output: Tensor,
    self: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[Tensor | None, ...]:
    """Handles grouped convolutions, for which torch-mlir computes wrong values, and
    transposed ones, for which it crashes."""
    if groups == 1 and not transposed:
        return NotImplemented
    axes = self.dim() - 2
    if axes not in (1, 2):
        raise UnsupportedError(
            "expected a convolution in groups, or transposed, of one or two dimensions, "
            f"but got one of {axes}"
        )
    given = (_by_axis(numbers, axes) for numbers in (stride, padding, dilation))
    places = _Places(weight.shape[2:], *given)
    # A transposed convolution maps the result of another one to that one's image.
    image, result = (grad_output, self) if transposed else (self, grad_output)
    rest = [places.rest(i, image.shape[2 + i], result.shape[2 + i]) for i in range(axes)]
    how = (*places[1:], not transposed, [0] * axes if transposed else rest, groups)
    of_input = _aten.convolution(grad_output, weight, None, *how)
    of_weight = _weight_gradient(result, image, weight, places, groups)
    gradients = of_input, of_weight, grad_output.sum([0, *range(2, self.dim())])
    return tuple(g if asked else None for g, asked in zip(gradients, output_mask))


def _grouped(values: Tensor, groups: int) -> Tensor:
    """Returns the values as [group, channel, number of the result]."""
    values = values.flatten(2).unflatten(1, (groups, -1))
    return values.permute(1, 2, 0, 3).flatten(2)


def _weight_gradient(
    grad_output: Tensor, image: Tensor, weight: Tensor, places: _Places, groups: int
) -> Tensor:
    """Multiplies the gradient by the elements that each kernel position was applied to."""
    gradient = _grouped(grad_output, groups)
    padding = [n for number in reversed(places.padding) for n in (number, number)]
    padded = _aten.constant_pad_nd(image, padding)
    products = []
    for position in itertools.product(*map(range, places.kernel)):
        seen = padded
        for axis, size in enumerate(grad_output.shape[2:]):
            first, step = position[axis] * places.dilation[axis], places.stride[axis]
            seen = _aten.slice(seen, 2 + axis, first, first + (size - 1) * step + 1, step)
        products.append(torch.bmm(gradient, _grouped(seen, groups).transpose(1, 2)))
    return torch.stack(products, -1).reshape(weight.shape)


def _nll_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
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


def _max_pool2d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Adds, for each kernel position, the gradients whose maximum was there."""
    kernel, width = _by_axis(kernel_size), self.shape[-1]
    given = map(_by_axis, (stride or kernel, padding, dilation))
    places = _Places(kernel, *given)

    def along(axis: int, position: int) -> Tensor:
        """Returns where each result has a kernel position in the input."""
        first, step = places.first(axis, position), places.stride[axis]
        end = first + grad_output.shape[axis - 2] * step
        return torch.arange(first, end, step, device=self.device)

    def part(i: int, j: int) -> Tensor:
        rows, columns = along(0, i), along(1, j)
        is_maximum = indices == rows.unsqueeze(1) * width + columns
        # Rows and columns outside the input have the indices of other elements.
        is_maximum = is_maximum & ((columns >= 0) & (columns < width))
        return torch.where(is_maximum, grad_output, torch.zeros_like(grad_output))

    return places.sum_of(part, self)


def _avg_pool2d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Adds each gradient's part at each kernel position."""
    kernel = _by_axis(kernel_size)
    stride, padding = _by_axis(stride or kernel), _by_axis(padding)

    def counts(axis: int) -> Tensor:
        """Returns the number of positions along an axis that each result averages."""
        size = self.shape[axis - 2]
        margin = padding[axis] if count_include_pad else 0
        numbers = torch.arange(grad_output.shape[axis - 2], device=self.device)
        first = numbers * stride[axis] - padding[axis]
        end = (first + kernel[axis]).clamp(max=size + padding[axis])
        return end.clamp(max=size + margin) - first.clamp(min=-margin)

    if divisor_override:
        share = grad_output / divisor_override
    else:
        share = grad_output / (counts(0).unsqueeze(1) * counts(1)).to(grad_output.dtype)
    return _Places(kernel, stride, padding, [1, 1]).sum_of(lambda i, j: share, self)


def _adaptive_avg_pool2d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Multiplies by the averaging matrices of both axes."""

    def averages(axis: int) -> Tensor:
        """Returns the matrix as [result, position]."""
        results, size = grad_output.shape[axis], self.shape[axis]
        numbers = torch.arange(results, device=self.device).unsqueeze(1)
        first = numbers * size // results
        end = ((numbers + 1) * size + results - 1) // results
        places = torch.arange(size, device=self.device)
        chosen = ((places >= first) & (places < end)).to(self.dtype)
        return chosen / (end - first).to(self.dtype)

    return averages(-2).t() @ grad_output @ averages(-1)


@_of_floats
def _scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Adds to each position in `dim` the values whose index it is."""
    if self.dim() == 0:
        return NotImplemented
    return self + _scattered(self, dim, index, src)[0]


@_of_floats
def _index_put(
    self: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Handles the gradient of indexing one dimension by one index."""
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if not accumulate or len(given) != 1 or given[0][1].dtype == torch.bool:
        return NotImplemented
    ((dim, index),) = given
    # The index's dimensions replace `dim`.
    shape = *self.shape[:dim], *index.shape, *self.shape[dim + 1 :]
    flat = *self.shape[:dim], index.numel(), *self.shape[dim + 1 :]
    size = self.shape[dim]
    index = torch.where(index < 0, index + size, index).flatten()
    rows = values.expand(shape).reshape(flat).movedim(dim, 0).reshape(index.numel(), -1)
    sums = _one_hot(index, size).to(self.dtype).t() @ rows
    return self + sums.reshape(self.movedim(dim, 0).shape).movedim(0, dim)


def _scatter(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    # If several values are written to one position, PyTorch leaves the result undefined.
    if self.dim() == 0 or index.shape[dim] != 1 or not src.is_floating_point():
        return NotImplemented
    values, is_written = _scattered(self, dim, index, src)
    return torch.where(is_written != 0, values, self)


def _scattered(
    self: Tensor, dim: int, index: Tensor, src: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns for each position the sum of the elements of `src` that `index` sends there,
    and 1 if there are any, otherwise 0."""
    src = src[tuple(slice(size) for size in index.shape)]
    chosen = _one_hot(index.movedim(dim, -1), self.shape[dim])
    values = src.movedim(dim, -1).unsqueeze(-1).expand(chosen.shape)
    total = torch.where(chosen, values, torch.zeros_like(values)).sum(-2)
    is_written = chosen.any(-2).to(self.dtype)
    return _as_large(total, self, dim), _as_large(is_written, self, dim)


def _as_large(values: Tensor, self: Tensor, dim: int) -> Tensor:
    """Moves the last dimension back to `dim`, and pads with zeros to the shape of `self`."""
    values = values.movedim(-1, dim)
    sizes = zip(reversed(self.shape), reversed(values.shape))
    pads = [n for whole, size in sizes for n in (0, whole - size)]
    return _aten.constant_pad_nd(values, pads)


def _by_axis(numbers: list[int], axes: int = 2) -> list[int]:
    """Returns a number for each axis; a single one applies to all."""
    return list(numbers) if len(numbers) == axes else [numbers[0]] * axes


def _placed(
    values: Tensor, shape: torch.Size, stride: list[int], first: list[int]
) -> Tensor:
    """Returns a tensor of `shape` with one value every `stride` positions along the last
    dimensions, from `first`, and zeros elsewhere. Crops values outside."""
    outer, sizes = values.shape[: -len(stride)], values.shape[-len(stride) :]
    values = values.reshape(*outer, *(n for size in sizes for n in (size, 1)))
    gaps = [n for step in reversed(stride) for n in (0, step - 1, 0, 0)]
    values = _aten.constant_pad_nd(values, gaps)
    sizes = torch.Size(size * step for size, step in zip(sizes, stride))
    places = reversed(list(zip(shape[-len(stride) :], first, sizes)))
    pads = [n for whole, begin, size in places for n in (begin, whole - begin - size)]
    return _aten.constant_pad_nd(values.reshape(*outer, *sizes), pads)


class _Places(NamedTuple):
    """Where the results of a convolution or a pooling are in its image, by axis."""

    kernel: Sequence[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]

    def first(self, axis: int, position: int) -> int:
        """Returns where the first result has a kernel position."""
        return position * self.dilation[axis] - self.padding[axis]

    def rest(self, axis: int, image: int, results: int) -> int:
        """Returns the number of positions in an image after those of the last result."""
        last = self.first(axis, self.kernel[axis] - 1) + (results - 1) * self.stride[axis]
        return image + self.padding[axis] - 1 - last

    def sum_of(self, part: Callable[..., Tensor], image: Tensor) -> Tensor:
        """Returns an image's gradient: the sum of its parts by kernel position."""
        total = torch.zeros_like(image)
        for position in itertools.product(*map(range, self.kernel)):
            first = [self.first(axis, i) for axis, i in enumerate(position)]
            total = total + _placed(part(*position), image.shape, self.stride, first)
        return total
