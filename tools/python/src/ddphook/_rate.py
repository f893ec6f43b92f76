# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds hooks that are meant to compress gradients and hardly do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

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


def find_waste_of_plans(plans: Iterable[Mapping[str, Any]]) -> str | None:
    """Applies `find_waste` to all buckets with a hook in the plans of modules."""
    before = after = 0
    for plan in plans:
        for bucket in plan["buckets"]:
            if re.match(rf"#ddp\.{_EXACT}", bucket["hook"]):
                continue
            elements = sum(map(math.prod, bucket["shapes"]))
            before += elements * _ITEM_BYTES[bucket["dtype"]]
            after += bucket["wire_bytes"]
    if before == 0:
        return "no gradient has the hook"
    return find_waste(before, after)
