# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the decompositions for torch-mlir with PyTorch's own operators."""

import torch

_aten = torch.ops.aten


def _pooled(kernel, stride, padding, dilation, size, ceil):
    x = torch.randn(2, 3, size, size + 1)
    options = kernel, stride, padding, dilation, ceil
    y, indices = _aten.max_pool2d_with_indices(x, *options)
    return torch.randn_like(y), x, *options, indices


def _classified(reduction, ignored, weighted):
    scores, classes = torch.randn(6, 5), torch.tensor([0, 4, 1, 1, 3, 2])
    weight = torch.rand(5) if weighted else None
    options = weight, reduction, ignored
    loss, total = _aten.nll_loss_forward(scores, classes, *options)
    return torch.randn_like(loss), scores, classes, *options, total


def _convolved(size, kernel, groups, mask=(True, True, True), **options):
    """Returns arguments for a convolution, in groups of 4 input and 6 output channels."""
    options = {"stride": [1], "padding": [0], "dilation": [1], **options}
    places = len(size)
    options = [list(value) * (places // len(value)) for value in options.values()]
    x = torch.randn(2, 4, *size)
    weight = torch.randn(6 if groups == 2 else 8, 4 // groups, *kernel)
    y = torch.convolution(x, weight, None, *options, False, [0] * places, groups)
    bias = [weight.shape[0]]
    return torch.randn_like(y), x, weight, bias, *options, False, [0] * places, groups, mask


def _convolved_back(groups, stride, padding, dilation):
    """Returns arguments for a transposed convolution."""
    x, images = torch.randn(2, 4, 7, 8), (stride, padding, dilation)
    weight, options = torch.randn(4, 3, 3, 2), (*images, True, [1, 0], groups)
    y = torch.convolution(x, weight, None, *options)
    return torch.randn_like(y), x, weight, [y.shape[1]], *options, [True] * 3


def _bounded_and_compared():
    """Yields cases with NaN, and with numbers that float32 cannot represent."""
    x = torch.tensor([0.7, -0.7, 0.3, -2, 0, float("nan"), float("inf")])
    y = torch.tensor([0.1, 0.1, 0.3, float("nan"), -1, 1, 2])
    for operator in (_aten.maximum, _aten.minimum):
        yield from ((operator, (x, y)), (operator, (y, x)))
    for bounds in ((-0.5, 0.3), (None, 0.3), (0.3, None), (0.5, -0.5)):
        yield _aten.clamp, (x, *bounds)
    yield _aten.clamp.Tensor, (x, y, None)
    yield _aten.hardtanh, (x, -0.5, 0.3)
    yield _aten.div.Tensor_mode, (x, y), {"rounding_mode": "floor"}
    for operator in (_aten.eq, _aten.ne, _aten.lt, _aten.le, _aten.gt, _aten.ge):
        yield operator.Scalar, (x, 0.3)


def cases():
    """Yields decomposed operators, or one of their overloads, with arguments and options."""
    for ceil in (False, True):
        for case in (
            ([2, 2], [2, 2], [0, 0], [1, 1], 8),
            ([3, 3], [2, 2], [1, 1], [1, 1], 9),
            ([3, 2], [1, 2], [1, 1], [2, 1], 10),
            ([2], [], [0], [1], 7),
        ):
            yield _aten.max_pool2d_with_indices_backward, _pooled(*case, ceil)
    for reduction in range(3):
        for weighted in (False, True):
            for ignored in (-100, 1):
                arguments = _classified(reduction, ignored, weighted)
                yield _aten.nll_loss_backward, arguments
    for dim in (0, 2):
        v, g = torch.randn(4, 3, 5), torch.rand([4, 3, 5][dim]) + 0.5
        g = g.reshape([-1 if i == dim else 1 for i in range(3)])
        w, norms = _aten._weight_norm_interface(v, g, dim)
        arguments = torch.randn_like(w), v, g, norms, dim
        yield _aten._weight_norm_interface_backward, arguments
    for case in (
        ((6, 7), (3, 2), 2),
        ((6, 7), (3, 2), 4, [False, True, False]),
        ((7, 9), (3, 3), 2, [True, False, True]),
        ((9,), (3,), 4),
    ):
        yield _aten.convolution_backward, _convolved(*case)
    for options in (
        (1, [2, 2], [0, 0], [1, 1]),
        (2, [2, 1], [1, 0], [1, 2]),
    ):
        yield _aten.convolution_backward, _convolved_back(*options)
    strided = dict(stride=[2, 3], padding=[1, 0], dilation=[1, 2])
    yield _aten.convolution_backward, _convolved((8, 9), (3, 2), 4, **strided)
    yield _aten.convolution_backward, _convolved((9,), (3,), 2, stride=[2], padding=[1])
    for ceil in (False, True):
        for include in (False, True):
            for divisor in (None, 5):
                options = ceil, include, divisor
                for kernel, stride, padding, size in (
                    ([2, 2], [], [0, 0], (6, 8)),
                    ([3, 2], [2, 3], [1, 0], (8, 9)),
                    ([3], [2], [1], (7, 6)),
                ):
                    x = torch.randn(2, 3, *size)
                    pooled = _aten.avg_pool2d(x, kernel, stride, padding, *options)
                    arguments = torch.randn_like(pooled), x, kernel, stride, padding
                    yield _aten.avg_pool2d_backward, (*arguments, *options)
    for results in ((2, 3), (4, 5), (1, 7)):
        x = torch.randn(2, 3, 6, 7), torch.randn(2, 3, *results)
        yield _aten._adaptive_avg_pool2d_backward, (x[1], x[0])
    for dim, shape in ((0, (3, 2)), (1, (4, 5)), (-1, (2, 3))):
        index = torch.randint(0, 4, shape)
        arguments = torch.randn(4, 6), dim, index, torch.randn(4, 6)
        yield _aten.scatter_add, arguments
        index = index.narrow(dim, 0, 1)
        yield _aten.scatter.src, (*arguments[:2], index, arguments[-1])
    for dim in (0, 1, 2):
        shape = [3, 4, 5]
        # Negative indices count from the end.
        index = torch.tensor([[0, -1, 2], [1, -3, 2]])
        values = torch.randn(*shape[:dim], 2, 3, *shape[dim + 1 :])
        arguments = torch.randn(3, 4, 5), [None] * dim + [index], values, True
        yield _aten.index_put, arguments
    yield _aten.gelu, (torch.randn(4, 5),), {"approximate": "tanh"}
    yield from _bounded_and_compared()
    for pads in ([-1, 2], [1, -2, -1, -1], [0, 0, 3, -3]):
        yield _aten.constant_pad_nd, (torch.randn(4, 5), pads, 0.5)
    for view in (_aten.view, _aten._unsafe_view):
        yield view, (torch.randn(0, 6), [-1, 2, 3])


def test_operators_in_terms_of_others():
    from ddphook.torch import _decompositions

    torch.manual_seed(5)
    table = _decompositions.for_linalg()
    tried = set()
    for operator, arguments, *options in cases():
        overload = getattr(operator, "default", operator)
        tried.add(overload)
        options = options[0] if options else {}
        result = table[overload](*arguments, **options)
        expected = operator(*arguments, **options)
        if operator is _aten.convolution_backward:
            # Gradients that are not requested may have any value.
            mask = arguments[-1]
            assert all(mine is not None for mine, asked in zip(result, mask) if asked)
            result = [mine for mine, asked in zip(result, mask) if asked]
            expected = [theirs for theirs, asked in zip(expected, mask) if asked]
        torch.testing.assert_close(result, expected, equal_nan=True)
    assert tried == set(table)
