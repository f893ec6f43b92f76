# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the ranks of a process group of PyTorch meet in a context of ours."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ddphook import _runtime
from ddphook._errors import DeadlineExceededError, PlanMismatchError

_contexts_of_group: dict[str, itertools.count] = defaultdict(itertools.count)


class Meeting:
    """The ranks of a process group that register one hook.

    All ranks of the group make their meetings in the same order, as they
    create their models.

    Parameters
    ----------
    group
        The process group.
    timeout_s
        How long to wait for the other ranks, in seconds.
    """

    def __init__(self, group: dist.ProcessGroup, timeout_s: float) -> None:
        self.group = group
        self.rank = group.rank()
        self.world_size = group.size()
        self.timeout_s = timeout_s
        name = group.group_name
        number = next(_contexts_of_group[name])
        self._store = dist.PrefixStore(
            f"ddphook/{name}/{number}", c10d._get_default_store()
        )

    def get(self, key: str) -> bytes:
        """What a rank has published.

        Raises
        ------
        DeadlineExceededError
            It did not do so in time.
        """
        try:
            self._store.wait([key], timedelta(seconds=self.timeout_s))
        except dist.DistStoreError:
            raise DeadlineExceededError(
                f"rank {self.rank} of {self.world_size} waited {self.timeout_s:g} s "
                f"for other ranks to register a hook"
            ) from None
        return self._store.get(key)

    def all_gather(self, name: str, mine: str) -> list[str]:
        """Every rank's text, by rank."""
        self._store.set(f"{name}/{self.rank}", mine)
        return [
            self.get(f"{name}/{rank}").decode() for rank in range(self.world_size)
        ]

    def check_equal(self, name: str, mine: str) -> None:
        """Compares a text between all ranks.

        Raises
        ------
        PlanMismatchError
            Two ranks differ; raised on all ranks.
        """
        texts = self.all_gather(name, mine)
        for rank, text in enumerate(texts):
            if text != texts[0]:
                raise PlanMismatchError(
                    f"rank 0 has {name} '{texts[0]}', but rank {rank} has '{text}'"
                )

    def join(self) -> _runtime.Context:
        """Creates the context; collective."""
        if self.rank == 0:
            with socket.socket() as probe:
                probe.bind(("", 0))
                port = probe.getsockname()[1]
            self._store.set("place", f"{_own_address()} {port} {secrets.token_hex(16)}")
        host, port, secret = self.get("place").decode().split()
        with _environment("DDPHOOK_JOB_SECRET", secret):
            return _runtime.Context(
                self.rank, self.world_size, host, int(port), self.timeout_s
            )


def _own_address() -> str:
    """How other ranks reach this process."""
    store = c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    host = getattr(store, "host", None) or os.environ.get("MASTER_ADDR", "localhost")
    if dist.get_rank() == 0:
        return host
    # The address of the interface by which rank 0 is reached; sends nothing.
    family, kind, protocol, _, place = socket.getaddrinfo(
        host, 9, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)
        return probe.getsockname()[0]


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Sets a variable that the user has not set."""
    if os.environ.get(name):
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
