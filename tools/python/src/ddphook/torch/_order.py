# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Buckets in another order than DDP's.

DDP makes its final buckets after its first step, in the order in which that step
computed gradients. A resumed job has not made a step yet, but must reduce in the
buckets of the job that it resumes: they determine where blocks of codes begin, and in
which order ranks add an element.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

Order = list[list[str]]  # Names of parameters, by bucket.


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together, with the bucket's number in the step.

    The buffer is the memory of the gradients, consecutively.
    """

    index: int
    names: Sequence[str]
    parameters: Sequence[Any]
    gradients: Sequence[torch.Tensor]
    buffer: torch.Tensor

    def pieces(self) -> list[torch.Tensor]:
        """Returns the part of the buffer that each gradient has."""
        return list(self.buffer.split([g.numel() for g in self.gradients]))


Copies = list[tuple[torch.Tensor, torch.Tensor]]


def regroup(buckets: Sequence[Bucket], order: Order) -> tuple[list[Bucket], Copies]:
    """Copies the gradients of a step into buckets of another order.

    Returns the new buckets, and for each gradient its location in the given bucket and
    in the new one, from which the caller copies the average back. If the order does not
    fit the gradients, returns the given buckets and no copies.
    """
    gradients: dict[str, tuple[Any, torch.Tensor, torch.Tensor]] = {}
    for bucket in buckets:
        members = zip(bucket.parameters, bucket.gradients, bucket.pieces())
        gradients.update(zip(bucket.names, members))
    if sorted(gradients) != sorted(name for names in order for name in names):
        return list(buckets), []
    regrouped: list[Bucket] = []
    copies: Copies = []
    for index, names in enumerate(order):
        parameters, views, pieces = zip(*(gradients[name] for name in names))
        if len({piece.dtype for piece in pieces}) > 1:
            return list(buckets), []
        made = Bucket(index, names, parameters, views, torch.cat(pieces))
        regrouped.append(made)
        copies += zip(pieces, made.pieces())
    return regrouped, copies
