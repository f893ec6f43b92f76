# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks for sharded models: FSDP2's ``fully_shard`` and its ``replicate``.

FSDP calls its collectives once for each parameter group, with flat arrays. A group's
`_Collectives` take their place: the reduce-scatter between shards, and the all-reduce
between replicas of a shard. FSDP itself gathers parameters, divides and accumulates.
"""

from __future__ import annotations

import copy
import functools
import math
import os
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from ddphook._errors import FailedPreconditionError
from ddphook._errors import InvalidArgumentError, UnsupportedError
from ddphook._runtime import Statistics
from ddphook.report import counted
from ddphook.torch import _bucket, _device, _private, _sharded_model, _states
from ddphook.torch._handle import Handle, leave, open_handles, statistics_of
from ddphook.torch._hooks import AnyHook, Hook, resolve
from ddphook.torch._modules import Modules
from ddphook.torch._rendezvous import Meeting, timeout_seconds
from ddphook.torch._worker import Worker

_FORMAT = "ddphook.torch.sharded 1"
_KINDS = {dist.ReduceOp.AVG: "mean", dist.ReduceOp.SUM: "sum"}
# FSDP divides gradients of other types after it has reduced them.
_DIVIDED_BY_REDUCTION = (torch.float32, torch.bfloat16)


class _Mesh(NamedTuple):
    """The ranks of a mesh, for a `Meeting`."""

    ranks: list[int]

    @property
    def group_name(self) -> str:
        return f"mesh {self.ranks}"

    def rank(self) -> int:
        return self.ranks.index(dist.get_rank())

    def size(self) -> int:
        return len(self.ranks)


class _Job:
    """The job of a process group in which one hook reduces, with its thread."""

    def __init__(self, group: dist.ProcessGroup, hook: Hook, timeout_s: float) -> None:
        self.hook = hook
        self.meeting = Meeting(group, timeout_s)
        self.worker = Worker()
        device = _device.Device()
        try:
            context = self.worker.call(_device.join, self.meeting, device)
        except BaseException:
            self.worker.stop()
            self.worker.join()
            raise
        size = self.meeting.world_size
        groups = _bucket.with_group_size(_bucket.WHOLE_GROUP, size)
        self.modules = Modules(context, hook, groups, device)


class _Replicas:
    """A process group of replicas for which FSDP's all-reduce does nothing.

    FSDP then calls the group's all-reduce hook, which reduces. Unlike this one, that
    call may raise an error of ddphook: PyTorch looks up the process group of a
    collective that raises, to log it.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.kind = "mean"

    def rank(self) -> int:
        return self.group.rank()

    def size(self) -> int:
        return self.group.size()

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> None:
        self.kind = _KINDS[options.reduceOp.op]


class _Collectives:
    """The collectives of one parameter group, as FSDP calls them."""

    def __init__(
        self,
        handle: ShardedHandle,
        number: int,
        group: Any,
        names: dict[Any, str],
        shards: _Job | None,
        replicas: _Job | None,
    ) -> None:
        self._handle = handle
        self._number = number
        self._group = group
        self._names = names
        self._shards = shards
        self._replicas = replicas
        # The parameters of the reduction that FSDP has begun, the shape of this rank's
        # part of each, and the reduce-scatter that is under way, if any.
        self._given: Sequence[Any] = ()
        self._shapes: list[tuple[int, ...]] = []
        self._scattered: Future[None] | None = None
        if replicas is not None:
            # Other groups, with another hook or none, may share the original.
            group.mesh_info = copy.copy(group.mesh_info)
            group.mesh_info.replicate_process_group = _Replicas(replicas.meeting.group)
        self._old = _private.exchange_collectives(group, ())
        own_scatter, self._own_prepare, self._own_hook = self._old
        self._installed = [
            own_scatter if shards is None else self,
            self._prepare,
            self._own_hook if replicas is None else self._all_reduce,
        ]
        _private.exchange_collectives(group, self._installed)

    def restore(self) -> None:
        _private.exchange_collectives(self._group, self._old)
        if self._replicas is not None:
            group = self._replicas.meeting.group
            self._group.mesh_info.replicate_process_group = group

    def _prepare(
        self, parameters: list[Any], gradients: list[torch.Tensor], world_size: int
    ) -> Sequence[torch.Size]:
        """Prepares the gradients for the reduce-scatter, and notes whose they are."""
        if _private.exchange_collectives(self._group, ()) != self._installed:
            raise FailedPreconditionError(
                "the model's collectives were replaced after the hook was registered; call "
                "set_all_reduce_hook before register"
            )
        self._handle.check_groups()
        sizes: Sequence[torch.Size] = self._own_prepare(parameters, gradients, world_size)
        self._given, self._scattered = parameters, None
        self._shapes = [(size[0] // world_size, *size[1:]) for size in sizes]
        return sizes

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Allocates memory of the reduce-scatter; first releases that of earlier ones."""
        self._handle.release(self._group.comm_ctx.reduce_scatter_max_input_buffers)
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Reduces the input, and gives this rank its part."""
        assert self._shards is not None
        _bucket.check_tensor(input_tensor)
        # With a user's divisor, FSDP asks for the sum of multiplied gradients.
        is_multiplied = op == dist.ReduceOp.PREMUL_SUM
        factor = 1 / self._group.gradient_divide_factor if is_multiplied else 1.0
        modules, world_size = self._shards.modules, group.size()
        names = [self._names[each] for each in self._given]
        sizes = list(map(math.prod, self._shapes))
        is_exempt = [self._shards.hook.own_hook(name) is not None for name in names]
        runs = [[i for i, e in enumerate(is_exempt) if e == of] for of in (False, True)]
        runs = [members for members in runs if members]
        layout = _bucket.Scattered(
            self._number,
            tuple(tuple(names[i] for i in members) for members in runs),
            tuple(world_size * sum(sizes[i] for i in members) for members in runs),
            world_size,
            input_tensor.dtype,
            "sum" if is_multiplied else _KINDS[op],
        )

        def scatter() -> None:
            if is_multiplied:
                input_tensor.mul_(factor)
            if len(runs) == 1:
                modules.run(layout, [input_tensor, output_tensor], True, None)
                return
            columns = input_tensor.view(world_size, -1).split(sizes, 1)
            inputs = [torch.cat([columns[i] for i in m], 1).view(-1) for m in runs]
            outputs = [each.new_empty(each.numel() // world_size) for each in inputs]
            modules.run(layout, [*inputs, *outputs], True, None)
            parts = output_tensor.split(sizes)
            for output, members in zip(outputs, runs):
                pieces = output.split([sizes[i] for i in members])
                for i, piece in zip(members, pieces):
                    parts[i].copy_(piece)

        defers = self._may_defer(input_tensor.dtype)
        self._scattered = self._handle.run(self._shards, scatter, defers)
        self._handle.kept.append(self._scattered)

    def _all_reduce(self, tensor: torch.Tensor) -> None:
        """Reduces this rank's shard of the gradients; FSDP's all-reduce hook."""
        assert self._replicas is not None
        _bucket.check_tensor(tensor)
        if tensor.numel() > 0:
            layout = _bucket.Layout(
                self._number,
                tuple(self._names[each] for each in self._given),
                tuple(self._shapes),
                tensor.dtype,
                kind=self._group.mesh_info.replicate_process_group.kind,
            )
            modules, scattered = self._replicas.modules, self._scattered

            def reduce() -> None:
                if scattered is not None:
                    scattered.result()
                modules.run(layout, [tensor], True, None)

            self._handle.run(self._replicas, reduce, self._may_defer(tensor.dtype))
        if self._own_hook is not None:
            self._own_hook(tensor)

    def _may_defer(self, dtype: torch.dtype) -> bool:
        """Returns true if nobody reads the result before the end of the backward pass.

        FSDP makes the gradients views of the result, unless it divides, casts or
        accumulates them.
        """
        group = self._group
        return (
            dtype in _DIVIDED_BY_REDUCTION
            and not group.force_sum_reduction_for_comms
            and self._own_hook is None
            and (self._replicas is None or group.all_reduce_grads)
            and not _private.has_partial_reduction(group)
            and _private.is_in_backward()
            and all(_becomes_view(each, dtype) for each in self._given)
        )


class _Request(NamedTuple):
    """The arguments of `register`. `shard_hook` is for meshes of two dimensions."""

    hook: Hook
    shard_hook: Hook
    timeout_s: float

    def scatters_with(self, group: Any) -> Hook:
        return self.shard_hook if _has_both(group) else self.hook


class ShardedHandle(Handle):
    """A hook that is registered with a sharded model."""

    def __init__(
        self, model: nn.Module, groups: list[Any], names: dict[Any, str], given: _Request
    ) -> None:
        # For the first backward pass only.
        self._whole: weakref.ref[nn.Module] | None = weakref.ref(model)
        self._hook, self._shard_hook = given.hook, given.shard_hook
        self._shapes = {
            names[each]: list(each.padded_sharded_param_size)
            for group in groups
            for each in group.fsdp_params
        }
        self._has_both = any(map(_has_both, groups))
        self._process = os.getpid()
        # Reduce-scatters whose inputs are kept.
        self.kept: deque[Future[None]] = deque()
        self._jobs: dict[tuple[str, str, bool], _Job] = {}
        self._collectives: list[_Collectives] = []
        meshes = [group.mesh_info.mesh.mesh for group in groups]
        self._mesh = max(meshes, key=torch.Tensor.numel)
        ranks: Any = _Mesh(self._mesh.flatten().tolist())
        self._meeting = Meeting(ranks, given.timeout_s)
        self._meeting.check_equal("the hooks", f"{self._hook.pipeline()}{self._suffix()}")
        self._meeting.check_equal("the sharded model", _sharded_model.description(groups, names))
        try:
            made = [self._jobs_of(group, given) for group in groups]
        finally:
            jobs = list(self._jobs.values())
            self._leave = weakref.finalize(self, _leave, jobs, self._process)
            self._leave.atexit = False
        open_handles.add(self)
        for number, (group, pair) in enumerate(zip(groups, made), 1):
            self._collectives.append(_Collectives(self, number, group, names, *pair))

    def _suffix(self) -> str:
        """Returns the hook between shards, if it is another one."""
        if not self._has_both:
            return ""
        return f" between replicas, {self._shard_hook.pipeline()} between shards"

    def _jobs_of(self, group: Any, given: _Request) -> tuple[_Job | None, _Job | None]:
        """Returns the jobs of a group's reduce-scatters and of its all-reduces, or None
        where it has nothing to reduce."""
        info = group.mesh_info
        shards = getattr(info, "shard_process_group", None)
        if shards is not None and shards.size() == 1:
            shards = None
        replicas = getattr(info, "replicate_process_group", None)
        return (
            shards and self._job(shards, given.scatters_with(group), given, True),
            replicas and self._job(replicas, given.hook, given, False),
        )

    def _job(
        self, group: dist.ProcessGroup, hook: Hook, given: _Request, is_scatter: bool
    ) -> _Job:
        key = (group.group_name, hook.pipeline(), is_scatter)
        if key not in self._jobs:
            self._jobs[key] = _Job(group, hook, given.timeout_s)
        return self._jobs[key]

    def start(self, bucket: dist.GradBucket) -> NoReturn:
        raise FailedPreconditionError("expected no bucket of DDP's for a sharded model")

    def run(self, job: _Job, work: Callable[[], None], defers: bool) -> Future[None]:
        """Runs a reduction on the job's thread.

        Waits for it: now, or with `defers` at the end of the backward pass.
        """
        self._check_usable()

        def task() -> None:
            try:
                if self._error is not None:
                    raise self._error
                work()
            except BaseException as error:
                self._fail(error)
                raise

        future: Future[None] = job.worker.submit(task)
        if defers:
            _private.after_backward(functools.partial(self._wait, future))
        else:
            self._wait(future)
        return future

    def check_groups(self) -> None:
        """Refuses a model to more of which ``fully_shard`` was applied after `register`."""
        model = None if self._whole is None else self._whole()
        self._whole = None
        if model is None:
            return
        if len(_private.sharded_groups(model)) != len(self._collectives):
            raise FailedPreconditionError(
                "the model has other parameter groups than when the hook was registered; "
                "call fully_shard before register"
            )

    def release(self, most: int) -> None:
        """Waits until fewer than `most` inputs of reduce-scatters are kept, as FSDP does."""
        while len(self.kept) >= most:
            self._wait(self.kept.popleft())

    def _wait(self, future: Future[None]) -> None:
        wait([future])
        if self._error is not None:
            raise self._error

    def _fail(self, error: BaseException) -> None:
        """Keeps the first failure, and notifies the other ranks now."""
        self._error = self._error or error
        for job in self._jobs.values():
            job.worker.post(job.modules.close)

    def __repr__(self) -> str:
        failed = f"failed: {self._error}" if self._error else ""
        shape = "x".join(map(str, self._mesh.shape))
        parts = [
            f"{self.hook}{self._suffix()}",
            f"rank {self._meeting.rank} of {self._meeting.world_size}",
            f"a mesh of {shape}",
            counted(len(self._shapes), "parameter"),
            counted(len(self._collectives), "parameter group"),
            "closed" if self._closed else failed,
        ]
        return f"<ddphook.torch.Handle: {', '.join(filter(None, parts))}>"

    def statistics(self) -> Statistics:
        self._check_usable()
        total: Counter[str] = Counter()
        for job in self._jobs.values():
            total.update(job.worker.call(job.modules.statistics))
        return statistics_of(dict(total))

    def state_dict(self) -> dict[str, Any]:
        self._check_usable()
        jobs = []
        for job in self._jobs.values():
            states, kinds = job.worker.call(job.modules.states)
            jobs.append({"states": states, "kinds": kinds})
        return {"format": _FORMAT, "jobs": jobs, **self._identity()}

    def _identity(self) -> dict[str, Any]:
        """Returns what the handle of a state must have in common with this one."""
        return {
            "hook": self.hook + self._suffix(),
            "mesh": self._mesh.tolist(),
            "rank": dist.get_rank(),
            "shards": self._shapes,
        }

    def load_state_dict(self, state: Any) -> None:
        """Continues from a ``state_dict()`` of this rank, in a mesh of the same ranks.

        Collective: all ranks call it, between steps. If a rank refuses its state, all
        ranks raise the error.
        """
        self._check_usable()
        self._loads += 1
        name = f"load {self._loads}"
        refusals = self._meeting.all_gather(name, self._refusal(state))
        for rank, refusal in enumerate(refusals):
            if refusal:
                raise InvalidArgumentError(f"the state of rank {rank}: {refusal}")
        for job, saved in zip(self._jobs.values(), state["jobs"], strict=True):
            states, kinds = saved["states"], saved["kinds"]
            common = _states.without_errors(states, kinds)
            job.meeting.check_equal(name, _states.digest(common))
            job.worker.call(job.modules.place, states, kinds)

    def _refusal(self, state: Any) -> str:
        """Returns why a state cannot be loaded, or an empty text."""
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            return f"expected a state of the format '{_FORMAT}'"
        for key, mine in self._identity().items():
            if state.get(key) != mine:
                return f"expected a state with the {key} {mine}, but got {state.get(key)}"
        return ""

    def close(self) -> None:
        """Leaves the jobs and frees all memory. May be called twice.

        Collective. FSDP then reduces gradients by itself again.
        """
        if self._closed:
            return
        self._closed = True
        for each in self._collectives:
            each.restore()
        open_handles.discard(self)
        for job in self._leave() or ():
            job.worker.join()


def register(
    model: nn.Module,
    groups: list[Any],
    hook: Hook,
    shard_hook: AnyHook | None,
    timeout: timedelta | float | None,
) -> ShardedHandle:
    """Registers a hook with a model that has these parameter groups."""
    if shard_hook is not None and not any(map(_has_both, groups)):
        raise InvalidArgumentError(
            "expected a mesh with replicas and shards for a 'shard_hook'; on a mesh of one "
            "dimension, give 'hook' only"
        )
    given = _Request(hook, resolve(shard_hook or "allreduce"), timeout_seconds(timeout))
    names = _sharded_model.names(model, groups)
    _sharded_model.check_hook(hook)
    _sharded_model.check_hook(given.shard_hook)
    for group in groups:
        _check_group(group, names, given)
    trained = [names[each] for group in groups for each in _trained(group)]
    if not trained:
        raise InvalidArgumentError("expected a model with parameters to train")
    hook.check_names(trained)
    return ShardedHandle(model, groups, names, given)


def _has_both(group: Any) -> bool:
    """Returns true if a group's mesh has replicas and shards."""
    return hasattr(group.mesh_info, "replicate_process_group") and hasattr(
        group.mesh_info, "shard_process_group"
    )


def _trained(group: Any) -> Iterable[Any]:
    return (each for each in group.fsdp_params if each.sharded_param.requires_grad)


def _becomes_view(parameter: Any, dtype: torch.dtype) -> bool:
    """Returns true if a parameter's gradient becomes a view of the result of this type."""
    hooks = _private.hooks_of_tensor(parameter.sharded_param)
    return (
        parameter.sharded_param.grad is None
        and parameter.sharded_grad_dtype in (None, dtype)
        and not parameter.offload_to_cpu
        and not hooks["register_post_accumulate_grad_hook"]
    )


def _check_group(group: Any, names: dict[Any, str], given: _Request) -> None:
    if group.device.type != "cpu":
        raise UnsupportedError(
            f"expected a sharded model on CPUs, but got one on {group.device}"
        )
    old = _private.exchange_collectives(group, ())
    if isinstance(getattr(old[1], "__self__", None), _Collectives):
        raise FailedPreconditionError("the model has a hook already")
    if type(old[0]) is not _private.DefaultReduceScatter:
        raise FailedPreconditionError(
            f"the model has a reduce-scatter of its own: {type(old[0]).__name__}"
        )
    if hasattr(group.mesh_info, "shard_process_group"):
        _sharded_model.check_scatter(given.scatters_with(group))
    for each in _trained(group):
        dtype = each.mp_policy.reduce_dtype or each.sharded_param.dtype
        if dtype not in _bucket.ELEMENT_TYPES:
            raise UnsupportedError(
                f"parameter '{names[each]}': expected gradients of float16, bfloat16, "
                f"float32 or float64, but got {dtype}"
            )


def _leave(jobs: list[_Job], process: int) -> list[_Job]:
    """Makes the jobs' threads leave their jobs; returns the jobs to wait for."""
    return [job for job in jobs if leave(job.worker, job.modules, process)]
