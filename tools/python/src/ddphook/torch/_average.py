# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Averages of parameters every few steps, as post-local SGD takes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.algorithms.model_averaging import averagers, utils

from ddphook._errors import FailedPreconditionError, UnsupportedError
from ddphook.torch import _bucket, _session
from ddphook.torch._hooks import resolve
from ddphook.torch._rendezvous import timeout_seconds

_numbers = itertools.count()


class PeriodicModelAverager(averagers.PeriodicModelAverager):
    """Averages parameters over all ranks every few steps, in a compiled module.

    The same as PyTorch's class of this name, and with its bits; an optimizer
    such as ``PostLocalSGDOptimizer`` takes one in its place. Parameters keep
    their memory, which PyTorch's replaces.

    Parameters
    ----------
    period
        Steps from one average to the next.
    warmup_steps
        Steps before the first average; ``start_localSGD_iter`` of the hook.
    process_group
        Whose ranks average; by default all.
    timeout
        As for ``ddphook.torch.register``.

    Raises
    ------
    ValueError
        ``period`` is less than 1, or ``warmup_steps`` less than 0.
    InvalidArgumentError
        ``timeout`` is no time.
    FailedPreconditionError
        There are no process groups yet.
    """

    def __init__(
        self,
        period: int,
        warmup_steps: int = 0,
        process_group: dist.ProcessGroup | None = None,
        *,
        timeout: timedelta | float | None = None,
    ) -> None:
        if not dist.is_initialized():
            raise FailedPreconditionError(
                "expected torch.distributed.init_process_group() before an averager"
            )
        super().__init__(period, warmup_steps, process_group)
        self._timeout_s = timeout_seconds(timeout)
        self._owner = f"averager {next(_numbers)}"
        self._pipeline = _bucket.pipeline(resolve("allreduce").pipeline())

    def average_parameters(
        self,
        params: Iterable[torch.nn.Parameter] | Iterable[dict[str, Any]],
    ) -> None:
        """Counts a step, and averages if it is one in which to do so.

        Collective in such a step.

        Parameters
        ----------
        params
            Of a model, or the parameter groups of an optimizer. Those without a
            gradient are left out, on all ranks.

        Raises
        ------
        UnsupportedError
            A parameter is of a kind that no module can hold.
        PlanMismatchError
            Ranks have other parameters.
        Error
            A rank was lost, or did not come in time.
        """
        since = self.step - self.warmup_steps
        if since >= 0 and since % self.period == 0:
            self._average(utils.get_params_to_average(params))
        self.step += 1

    def _average(self, parameters: list[torch.nn.Parameter]) -> None:
        group = self.process_group or c10d._get_default_group()
        if not parameters or dist._rank_not_in_group(group):
            return
        for parameter in parameters:
            _bucket.check_tensor(parameter)
            if parameter.device.type != "cpu":
                raise UnsupportedError(
                    "expected parameters in the host's memory, but got some on "
                    f"{parameter.device}; use PyTorch's PeriodicModelAverager"
                )
        # Parameters of several types are averaged in the widest one.
        flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        layout = _bucket.Layout.of(0, ["parameters"], [flat])
        key = _session.Key(
            self._owner, layout.text(_bucket.WHOLE_GROUP), self._pipeline
        )
        session = _session.session_of(group.group_name, self._timeout_s)
        session.end_of(session.run(key, [flat]))
        begin = 0
        with torch.no_grad():
            for parameter in parameters:
                end = begin + parameter.numel()
                parameter.copy_(flat[begin:end].view(parameter.shape))
                begin = end
