# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sparsification with error feedback, as #ddp.topk describes it, in NumPy."""

import numpy as np

import model
from tensors import Tensor


def kept(density, count):
    """Returns how many of `count` elements a rank sends."""
    return min(count, max(1, int(density * count)))


def largest(values, keep):
    """Returns the indices of the largest magnitudes, ascending; ties prefer the first. A NaN
    is larger than an infinity."""
    bits = values.view(np.uint32) & np.uint32(0x7FFFFFFF)
    order = np.lexsort((np.arange(len(bits)), -bits.astype(np.int64)))
    return np.sort(order[:keep])


class Bucket:
    """One bucket on all ranks, with what each of them has not sent yet."""

    def __init__(self, world, density=0.01, feedback=True):
        self.world, self.density, self.feedback = world, density, feedback
        self.errors = [np.float32(0)] * world

    def reduce(self, gradients, mean=True):
        """Returns the result of all ranks for their flat gradients, of one type."""
        dtype, count = gradients[0].dtype, gradients[0].data.size
        total = np.zeros(count, np.float32)
        with np.errstate(all="ignore"):
            for rank, gradient in enumerate(gradients):
                sent = model.cast(gradient, "f32").data
                if self.feedback:
                    sent = sent + self.errors[rank]
                places = largest(sent, kept(self.density, count))
                total[places] += sent[places]
                self.errors[rank] = sent.copy()
                self.errors[rank][places] = 0
                self.errors[rank][~np.isfinite(sent)] = 0
        result = Tensor("f32", total)
        return model.cast(model.divide(result, self.world) if mean else result, dtype)
