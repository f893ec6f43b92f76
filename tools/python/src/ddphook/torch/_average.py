# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Periodic averages of parameters, for post-local SGD."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging import averagers, utils

from ddphook._errors import FailedPreconditionError, UnsupportedError
from ddphook.torch import _bucket, _private, _session
from ddphook.torch._hooks import resolve
from ddphook.torch._rendezvous import timeout_seconds

_numbers = itertools.count()


class PeriodicModelAverager(averagers.PeriodicModelAverager):
    """Averages parameters over all ranks every few steps, in a compiled module.

    Returns the same bits as PyTorch's class of this name; an optimizer such as
    ``PostLocalSGDOptimizer`` takes either. Parameters keep their memory, which
    PyTorch's class replaces.

    Parameters
    ----------
    period
        Steps from one average to the next.
    warmup_steps
        Steps before the first average; equal to ``start_localSGD_iter`` of the hook.
    process_group
        The process group whose ranks average; by default all ranks.
    timeout
        As for ``ddphook.torch.register``.

    Raises
    ------
    ValueError
        ``period`` is less than 1, or ``warmup_steps`` less than 0.
    InvalidArgumentError
        ``timeout`` is not a valid time.
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
        self, params: Iterable[torch.nn.Parameter] | Iterable[dict[str, Any]]
    ) -> None:
        """Counts a step, and averages the parameters if the step is due.

        Collective in a step that averages.

        Parameters
        ----------
        params
            The parameters of a model, or the parameter groups of an optimizer.
            Parameters without a gradient are skipped, on all ranks.

        Raises
        ------
        UnsupportedError
            A module cannot hold a parameter of this kind.
        PlanMismatchError
            Ranks have other parameters.
        Error
            A rank was lost, or did not arrive in time.
        """
        since = self.step - self.warmup_steps
        if since >= 0 and since % self.period == 0:
            self._average(utils.get_params_to_average(params))
        self.step += 1

    def _average(self, parameters: list[torch.nn.Parameter]) -> None:
        group = self.process_group or _private.get_default_group()
        if not parameters or _private.rank_not_in_group(group):
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
        key = _session.Key(self._owner, layout.text(_bucket.WHOLE_GROUP), self._pipeline)
        session = _session.session_of(group.group_name, self._timeout_s)
        session.end_of(session.run(key, [flat]))
        parts = flat.split([parameter.numel() for parameter in parameters])
        with torch.no_grad():
            for parameter, part in zip(parameters, parts):
                parameter.copy_(part.view(parameter.shape))
