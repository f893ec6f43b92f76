# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds hooks that are meant to compress gradients and hardly do."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_log = logging.getLogger("ddphook")
_ITEM_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_EXACT = r"(allreduce|allreduce_and_upcast|noop|post_local_sgd)\b"


def is_meant_to_compress(pipeline: str) -> bool:
    """Returns whether the hook, given as options of ``ddp-pipeline``, sends fewer bytes."""
    return not re.match(rf"hook={_EXACT}(?!.*wrapper=)", pipeline)


def find_waste(before: int, after: int) -> str | None:
    """Returns what is wrong if sending ``after`` bytes for ``before`` saves too few."""
    if before >= 2 * after:
        return None
    return f"{after} of {before} bytes of gradients are sent, more than half"


def warn_of_waste(pipeline: str, buckets: Sequence[Mapping[str, Any]]) -> None:
    """Warns if a hook that is meant to compress sends too many bytes for the buckets, which
    are those of plans."""
    # Scattered gradients are in no bucket.
    if not buckets or not is_meant_to_compress(pipeline):
        return
    hooked = [b for b in buckets if not re.match(rf"#ddp\.{_EXACT}", b["hook"])]
    reason = find_waste(*bytes_of(hooked)) if hooked else "no gradient has the hook"
    if reason:
        _log.warning("with %s: %s", pipeline, reason)


def bytes_of(buckets: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Returns the bytes of the gradients in a plan's buckets, and the bytes sent for them."""
    before = after = 0
    for bucket in buckets:
        before += sum(map(math.prod, bucket["shapes"])) * _ITEM_BYTES[bucket["dtype"]]
        after += bucket["wire_bytes"]
    return before, after
