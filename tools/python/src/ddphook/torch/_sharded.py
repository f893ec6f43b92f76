# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks for sharded models: FSDP2's ``fully_shard`` and its ``replicate``.

FSDP calls its collectives once for each parameter group, with flat arrays. A group's
`_Collectives` take their place: the reduce-scatter between shards, the all-reduce between
replicas of a shard, and an all-gather that has a hook. FSDP itself divides and accumulates.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import logging
import os
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from ddphook._errors import FailedPreconditionError
from ddphook._errors import InvalidArgumentError, PlanMismatchError, UnsupportedError
from ddphook._runtime import Statistics
from ddphook.report import counted
from ddphook.torch import _bucket, _device, _private, _sharded_gathers, _sharded_model
from ddphook.torch import _sharded_states, _states
from ddphook.torch._handle import Handle, leave, open_handles, statistics_of
from ddphook.torch._hooks import AnyHook, Hook, resolve
from ddphook.torch._modules import begin
from ddphook.torch._rendezvous import Meeting, timeout_seconds
from ddphook.torch._sharded_gathers import AllGather

_log = logging.getLogger("ddphook")
_KINDS = {dist.ReduceOp.AVG: "mean", dist.ReduceOp.SUM: "sum"}
# FSDP divides gradients of other types after it has reduced them.
_DIVIDED_BY_REDUCTION = (torch.float32, torch.bfloat16)


class _Job:
    """The job of a process group in which one hook reduces or gathers, with its thread.

    `kind` is ``"shards"``, ``"replicas"`` or ``"gathers"``.
    """

    def __init__(
        self, group: dist.ProcessGroup, hook: Hook, timeout_s: float, kind: str
    ) -> None:
        self.hook = hook
        self.kind = kind
        self.meeting = Meeting(group, timeout_s)
        groups = _bucket.with_group_size(_bucket.WHOLE_GROUP, self.meeting.world_size)
        self.worker, self.modules = begin(self.meeting, hook, groups, _device.Device())


class _Replicas:
    """A process group of replicas for which FSDP's all-reduce does nothing.

    FSDP then calls the group's all-reduce hook, which reduces. Unlike this one, that
    call may raise an error of ddphook: PyTorch looks up the process group of a
    collective that raises, to log it.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.rank, self.size = group.rank, group.size
        self.kind = "mean"

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> None:
        self.kind = _KINDS[options.reduceOp.op]


@dataclasses.dataclass(eq=False)
class _Collectives:
    """The collectives of one parameter group, as FSDP calls them."""

    _handle: ShardedHandle
    _number: int
    _group: Any
    _names: dict[Any, str]
    wire: dataclasses.InitVar[str]
    jobs: dataclasses.InitVar[Sequence[_Job | None]]

    def __post_init__(self, wire: str, jobs: Sequence[_Job | None]) -> None:
        self._shards, self._replicas, gathers = jobs
        group = self._group
        # The parameters of the reduction that FSDP has begun, and the reduce-scatter that
        # is under way, if any.
        self._given: Sequence[Any] = ()
        self._scattered: Future[None] | None = None
        if self._replicas is not None:
            # Other groups, with another hook or none, may share the original.
            group.mesh_info = copy.copy(group.mesh_info)
            ranks = self._replicas.meeting.group
            group.mesh_info.replicate_process_group = _Replicas(ranks)
        *self._old, own_gather = _private.exchange_collectives(group, ())
        own_scatter, self._own_prepare, self._own_hook = self._old
        self._installed: list[Any] = [
            own_scatter if self._shards is None else self,
            self._prepare,
            self._own_hook if self._replicas is None else self._all_reduce,
        ]
        if gathers is not None:
            self._old.append(own_gather)
            submit = functools.partial(self._handle.submit, gathers)
            ranks, modules = gathers.meeting.group, gathers.modules
            self._installed.append(AllGather(own_gather, wire, ranks, modules, submit))
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
        installed = _private.exchange_collectives(self._group, ())
        if installed[: len(self._installed)] != self._installed:
            raise FailedPreconditionError(
                "the model's collectives were replaced after the hook was registered; call "
                "set_all_reduce_hook before register"
            )
        self._handle.check_groups()
        self._given, self._scattered = parameters, None
        return self._own_prepare(parameters, gradients, world_size)

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
        kind = "sum" if is_multiplied else _KINDS[op]
        layout = self._layout_of_scatter(self._given, input_tensor.dtype, kind)
        names = [self._names[each] for each in self._given]
        sizes = list(map(_size, self._given))
        runs = [[names.index(name) for name in members] for members in layout.members]

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
        kind = self._group.mesh_info.replicate_process_group.kind
        layout = self._layout(self._given, tensor.dtype, kind)
        modules, scattered = self._replicas.modules, self._scattered

        def reduce() -> None:
            if scattered is not None:
                scattered.result()
            modules.run(layout, [tensor], True, None)

        self._handle.run(self._replicas, reduce, self._may_defer(tensor.dtype))
        if self._own_hook is not None:
            self._own_hook(tensor)

    def _layout_of_scatter(
        self, parameters: Iterable[Any], dtype: torch.dtype, kind: str
    ) -> _bucket.Scattered:
        """Returns the arrays of a reduce-scatter; exempt parameters have one of their own."""
        assert self._shards is not None
        hook, ranks = self._shards.hook, self._shards.meeting.world_size
        runs: dict[bool, list[Any]] = {False: [], True: []}
        for each in parameters:
            runs[hook.own_hook(self._names[each]) is not None].append(each)
        arrays = [run for run in runs.values() if run]
        members = tuple(tuple(self._names[each] for each in run) for run in arrays)
        sizes = tuple(ranks * sum(map(_size, run)) for run in arrays)
        return _bucket.Scattered(self._number, members, sizes, ranks, dtype, kind)

    def _layout(
        self, parameters: Sequence[Any], dtype: torch.dtype, kind: str
    ) -> _bucket.Layout:
        names = tuple(self._names[each] for each in parameters)
        shapes = tuple(tuple(each.padded_sharded_param_size) for each in parameters)
        return _bucket.Layout(self._number, names, shapes, dtype, kind=kind)

    def expected(self, job: _Job) -> list[_bucket.Scattered | _bucket.Layout]:
        """Returns what a job reduces once all parameters of the group have gradients."""
        parameters = _trained(self._group)
        if job not in (self._shards, self._replicas) or not parameters:
            return []
        layout = self._layout_of_scatter if job is self._shards else self._layout
        dtype = functools.reduce(torch.promote_types, map(_reduced_type, parameters))
        return [layout(parameters, dtype, "mean")]

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
    """The arguments of `register`. `shard_hook` is for meshes of two dimensions; `wire` is
    the type in which `gather_hook` sends elements, empty for their own."""

    hook: Hook
    shard_hook: Hook
    gather_hook: Hook
    wire: str
    timeout_s: float

    def scatters_with(self, group: Any) -> Hook:
        return self.shard_hook if _has_both(group) else self.hook


class ShardedHandle(Handle):
    """A hook that is registered with a sharded model."""

    _format = "ddphook.torch.sharded 2"

    def __init__(
        self, model: nn.Module, groups: list[Any], names: dict[Any, str], given: _Request
    ) -> None:
        # For the first backward pass only.
        self._whole: Callable[[], nn.Module | None] = weakref.ref(model)
        self._pipeline = given.hook.pipeline()
        if any(map(_has_both, groups)):
            shard_hook = given.shard_hook.pipeline()
            self._pipeline += f" between replicas, {shard_hook} between shards"
        self._by_name = {name: each for each, name in names.items()}
        self._process = os.getpid()
        # Reduce-scatters whose inputs are kept.
        self.kept: deque[Future[None]] = deque()
        self._jobs: dict[tuple[str, str, str], _Job] = {}
        self._collectives: list[_Collectives] = []
        self._mesh = max((g.mesh_info.mesh.mesh for g in groups), key=torch.Tensor.numel)
        ranks = sorted(self._mesh.flatten().tolist())
        whole: Any = SimpleNamespace(
            group_name=f"mesh {ranks}",
            rank=lambda: ranks.index(dist.get_rank()),
            size=lambda: len(ranks),
        )
        self._meeting = Meeting(whole, given.timeout_s)
        self._meeting.check_equal("the mesh", str(self._mesh.tolist()))
        gathering = f", {given.gather_hook.pipeline()} in all-gathers" if given.wire else ""
        self._meeting.check_equal("the hooks", self.hook + gathering)
        self._meeting.check_equal("the sharded model", _sharded_model.description(groups, names))
        try:
            made = [list(self._jobs_of(group, given)) for group in groups]
        finally:
            jobs = list(self._jobs.values())
            self._leave = weakref.finalize(self, _leave, jobs, self._process)
            self._leave.atexit = False
        open_handles.add(self)
        for number, (group, three) in enumerate(zip(groups, made), 1):
            each = _Collectives(self, number, group, names, given.wire, three)
            self._collectives.append(each)
        # After an error, FSDP may go on without communication, or wait for other ranks.
        self._check = model.register_forward_pre_hook(self._raise_failure, prepend=True)

    def _jobs_of(self, group: Any, given: _Request) -> Iterator[_Job | None]:
        """Yields the jobs of a group's reduce-scatters, of its all-reduces and of its
        all-gathers, or None where it has nothing to send."""
        ranks: Any
        for kind, ranks, hook in (
            ("shards", _ranks(group, "shard"), given.scatters_with(group)),
            ("replicas", _ranks(group, "replicate"), given.hook),
            ("gathers", given.wire and _ranks(group, "shard"), given.gather_hook),
        ):
            key = ranks and (ranks.group_name, hook.pipeline(), kind)
            if key and key not in self._jobs and (kind == "replicas" or ranks.size() > 1):
                self._jobs[key] = _Job(ranks, hook, given.timeout_s, kind)
            yield self._jobs.get(key)

    def start(self, bucket: dist.GradBucket) -> NoReturn:
        raise FailedPreconditionError("expected no bucket of DDP's for a sharded model")

    def run(self, job: _Job, work: Callable[[], None], defers: bool) -> Future[None]:
        """Runs a reduction on the job's thread.

        Waits for it: now, or with `defers` at the end of the backward pass.
        """
        future = self.submit(job, work)
        if defers:
            _private.after_backward(functools.partial(self._wait, future))
        else:
            self._wait(future)
        return future

    def submit(self, job: _Job, work: Callable[[], None]) -> Future[None]:
        self._check_usable()

        def task() -> None:
            try:
                self._raise_failure()
                work()
            except BaseException as error:
                self._fail(error)
                raise

        return job.worker.submit(task)

    def check_groups(self) -> None:
        """Refuses a model to more of which ``fully_shard`` was applied after `register`."""
        model, self._whole = self._whole(), lambda: None
        count = len(self._collectives)
        if model is not None and len(_private.sharded_groups(model)) != count:
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
        self._raise_failure()

    def _fail(self, error: BaseException) -> None:
        """Keeps the first failure, and notifies the other ranks now."""
        self._error = self._error or error
        for job in self._jobs.values():
            job.worker.post(job.modules.close)

    def _facts(self) -> list[str]:
        return [
            f"rank {self._meeting.rank} of {self._meeting.world_size}",
            f"a mesh of {'x'.join(map(str, self._mesh.shape))}",
            counted(len(self._by_name), "parameter"),
            counted(len(self._collectives), "parameter group"),
        ]

    def statistics(self) -> Statistics:
        self._check_usable()
        jobs = self._jobs.values()
        counters = (Counter(job.worker.call(job.modules.statistics)) for job in jobs)
        return statistics_of(sum(counters, Counter()))

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's part of the states, also for ``torch.distributed.checkpoint``.

        All ranks call it, between steps. ``"states"`` has, for each process group
        (``"shards of 4 ranks"``), role, and parameter, a DTensor or tensor.
        """
        self._check_usable()
        states: dict[str, _sharded_states.Saved] = {}
        for name, job in self._named_jobs():
            if found := _sharded_states.saved(*self._states_of(job), self._by_name, job.kind):
                states[name] = found
        names = _sharded_states.names(states)
        return {"format": self._format, "hook": self.hook, "names": names, "states": states}

    def _named_jobs(self) -> Iterator[tuple[str, _Job]]:
        """Yields the jobs by names that are the same on all ranks and in other meshes."""
        numbers: Counter[str] = Counter()
        for job in self._jobs.values():
            name = f"{job.kind} of {counted(job.meeting.world_size, 'rank')}"
            numbers[name] += 1
            yield (name if numbers[name] == 1 else f"{name} {numbers[name]}"), job

    def _states_of(self, job: _Job) -> tuple[_states.Parts, _states.Kinds]:
        expected = [layout for each in self._collectives for layout in each.expected(job)]
        return job.worker.call(job.modules.states, expected)

    def load_state_dict(self, state: Any) -> None:
        """Continues from a ``state_dict()`` of this rank.

        Collective: all ranks call it, between steps. If a rank refuses its state, all
        ranks raise the error, and nothing has changed.
        """
        self._check_usable()
        loaded: list[tuple[_Job, _states.Parts, _states.Kinds]] = []
        refusal, mine = "", {}
        try:
            loaded = self._loaded(state)
            for job, parts, kinds in loaded:
                common = _states.without_errors(parts, kinds)
                ranks = dist.get_process_group_ranks(job.meeting.group)
                mine[f"{ranks}, {job.kind}"] = _states.digest(common)
        except Exception as error:  # noqa: BLE001 - all ranks raise it.
            refusal = str(error) or repr(error)
        own = json.dumps([refusal, mine])
        texts = self._meeting.all_gather("loaded states", own, "load states")
        digests: dict[str, str] = {}
        for rank, (text, given) in enumerate(map(json.loads, texts)):
            if text:
                raise InvalidArgumentError(f"the state of rank {rank}: {text}")
            for group, digest in given.items():
                if digests.setdefault(group, digest) != digest:
                    raise PlanMismatchError(f"rank {rank} has the states of another step")
        for job, parts, kinds in loaded:
            job.worker.call(job.modules.place, parts, kinds)

    def _loaded(self, state: Any) -> list[tuple[_Job, _states.Parts, _states.Kinds]]:
        """Returns the states of each job; refuses a state of something else."""
        self._check_format(state)
        jobs = dict(self._named_jobs())
        for name in state["states"].keys() - jobs.keys():
            raise InvalidArgumentError(f"this model has no {name}")
        loaded = []
        for name, job in jobs.items():
            parts, kinds = self._states_of(job)
            given = state["states"].get(name, {})
            _sharded_states.load(given, parts, kinds, self._by_name, job.kind)
            loaded.append((job, parts, kinds))
        if lost := sorted(set(state["names"]).difference(_sharded_states.names(state["states"]))):
            _log.warning("states of other ranks or sets of parameters: %s", "; ".join(lost))
        return loaded

    def close(self) -> None:
        """Leaves the jobs and frees all memory. May be called twice.

        Collective. FSDP then reduces gradients by itself again.
        """
        if self._closed:
            return
        self._closed = True
        self._check.remove()
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
    gather_hook: AnyHook | None,
    timeout: timedelta | float | None,
) -> ShardedHandle:
    """Registers a hook with a model that has these parameter groups."""
    if shard_hook is not None and not any(map(_has_both, groups)):
        raise InvalidArgumentError(
            "expected a mesh with replicas and shards for a 'shard_hook'; on a mesh of one "
            "dimension, give 'hook' only"
        )
    if gather_hook is not None and not any(_ranks(group, "shard") for group in groups):
        raise InvalidArgumentError("expected a model of fully_shard for a 'gather_hook'")
    gathering = _sharded_gathers.resolve_gathering(gather_hook or "allreduce")
    between = resolve(shard_hook or "allreduce")
    given = _Request(hook, between, *gathering, timeout_seconds(timeout))
    names = _sharded_model.names(model, groups)
    _sharded_model.check_hook(hook)
    _sharded_model.check_hook(given.shard_hook)
    for group in groups:
        _check_group(group, names, given)
    if not (trained := [names[each] for group in groups for each in _trained(group)]):
        raise InvalidArgumentError("expected a model with parameters to train")
    hook.check_names(trained)
    return ShardedHandle(model, groups, names, given)


def _ranks(group: Any, kind: str) -> Any:
    """Returns the process group of a parameter group's "shard"s or "replicate"s, or None."""
    return getattr(group.mesh_info, f"{kind}_process_group", None)


def _has_both(group: Any) -> bool:
    """Returns true if a group's mesh has replicas and shards."""
    return all(_ranks(group, kind) for kind in ("shard", "replicate"))


def _trained(group: Any) -> list[Any]:
    return [each for each in group.fsdp_params if each.sharded_param.requires_grad]


def _size(parameter: Any) -> int:
    """Returns the number of elements of a shard, with its padding."""
    return int(parameter.padded_sharded_param_size.numel())


def _reduced_type(parameter: Any) -> torch.dtype:
    sharded = parameter.sharded_param
    return parameter.mp_policy.reduce_dtype or sharded.grad_dtype or sharded.dtype


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
    for what, own, default in (
        ("a reduce-scatter", old[0], _private.DefaultReduceScatter),
        ("an all-gather", old[3], given.wire and _private.DefaultAllGather),
    ):
        if default and type(own) is not default:
            raise FailedPreconditionError(
                f"the model has {what} of its own: {type(own).__name__}"
            )
    shards, replicas = _ranks(group, "shard"), _ranks(group, "replicate")
    if any(ranks and dist.get_backend(ranks) == "ddphook" for ranks in (shards, replicas)):
        raise FailedPreconditionError(
            "the model's mesh has a hook of its own; make it without backend_override"
        )
    if shards is not None:
        _sharded_model.check_scatter(given.scatters_with(group))
        if given.wire:
            _sharded_gathers.check_group(group, names)
    for each in _trained(group):
        whose, dtype = f"parameter '{names[each]}': ", _reduced_type(each)
        _bucket.check_tensor(each.sharded_param, whose, dtype)
    hooks = given.hook, given.scatters_with(group), given.gather_hook
    _sharded_model.check_copies(group, names, hooks)


def _leave(jobs: list[_Job], process: int) -> list[_Job]:
    """Makes the jobs' threads leave their jobs; returns the jobs to wait for."""
    return [job for job in jobs if leave(job.worker, job.modules, process)]
