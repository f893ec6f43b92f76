# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the ranks of a PyTorch process group meet in a context of the runtime."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ddphook._errors import DeadlineExceededError, InvalidArgumentError
from ddphook._errors import PlanMismatchError
from ddphook.torch import _private

_DEFAULT_TIMEOUT_S = 300.0


def timeout_seconds(timeout: timedelta | float | None) -> float:
    """Returns a user's deadline in seconds; by default ``DDPHOOK_TIMEOUT_S`` or 300."""
    given: Any = timeout
    if given is None:
        given = os.environ.get("DDPHOOK_TIMEOUT_S") or _DEFAULT_TIMEOUT_S
    if isinstance(given, timedelta):
        given = given.total_seconds()
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise InvalidArgumentError(
            f"expected a timeout above 0 seconds, but got {given!r}"
        )
    return seconds


def _own_connection(store: dist.Store) -> dist.Store:
    """Returns the store with a separate connection: while a thread waits, others cannot
    use its connection, such as threads that join the jobs of other groups."""
    try:
        return store.clone()
    except RuntimeError as error:
        # A store written in Python, such as torchelastic's EtcdStore, cannot be cloned.
        if "pure virtual" not in str(error):
            raise
        return store


class Meeting:
    """The ranks of a process group that register one hook.

    All ranks of the group make their meetings in the same order, since they create
    their models in the same order. Each wait for other ranks has the deadline
    `timeout_s`. They meet in `store`, if it is the group's own, else in PyTorch's.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        timeout_s: float,
        store: dist.Store | None = None,
    ) -> None:
        self.group = group
        self.rank = group.rank()
        self.world_size = group.size()
        self.timeout_s = timeout_s
        prefix = "ddphook" if store else f"ddphook/{group.group_name}"
        store = _own_connection(store or _private.get_default_store())
        # The store counts the meetings, since a rank may have been in other jobs.
        number = store.add(f"{prefix}/meetings of {self.rank}", 1)
        self._store = dist.PrefixStore(f"{prefix}/{number}", store)
        # How often all ranks have published a text of each name.
        self._gathered: Counter[str] = Counter()

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout_s: float) -> str | None:
        """Returns what a rank has published; none if it does not publish it in time."""
        try:
            # Waits at least a millisecond: some stores treat less as no limit.
            self._store.wait([key], timedelta(seconds=max(timeout_s, 1e-3)))
        except dist.DistStoreError:
            return None
        return self._store.get(key).decode()

    def all_gather(self, name: str, mine: str, doing: str = "register a hook") -> list[str]:
        """Returns every rank's text, by rank.

        Raises DeadlineExceededError if a rank did not publish its text in time, and
        withdraws this rank's: the others must not take a later call for this one.
        """
        key = f"{name} {self._gathered[name]}"
        self.set(f"{key}/{self.rank}", mine)
        texts = []
        for rank in range(self.world_size):
            text = self.get(f"{key}/{rank}", self.timeout_s)
            if text is None:
                with contextlib.suppress(RuntimeError):  # Some stores cannot delete.
                    self._store.delete_key(f"{key}/{self.rank}")
                raise DeadlineExceededError(
                    f"rank {self.rank} of {self.world_size} waited "
                    f"{self.timeout_s:g} s for rank {rank} to {doing}"
                )
            texts.append(text)
        self._gathered[name] += 1
        return texts

    def check_equal(self, name: str, mine: str, doing: str = "register a hook") -> None:
        """Checks that a text is the same on all ranks; otherwise all of them raise
        PlanMismatchError."""
        first, *texts = self.all_gather(name, mine, doing)
        for rank, text in enumerate(texts, 1):
            if text != first:
                raise PlanMismatchError(
                    f"rank 0 has {name} '{first}', but rank {rank} has '{text}'"
                )
