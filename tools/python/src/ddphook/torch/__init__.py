# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled communication hooks for ``DistributedDataParallel``.

``register`` adds a hook to a DDP model, ``compile`` to a whole step. ``export`` writes
the reductions of a model or step as a module for the compiler's tools.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddphook._errors import FailedPreconditionError, InvalidArgumentError
from ddphook._errors import UnsupportedError
from ddphook._runtime import Statistics
from ddphook.torch import _bucket, _device, _private
from ddphook.torch._average import PeriodicModelAverager
from ddphook.torch._export import export
from ddphook.torch._handle import CommHook, Handle, LocalHandle
from ddphook.torch._hooks import AcceleratesHook, AnyHook, AnyWrapper, Hook, resolve
from ddphook.torch._ops import close
from ddphook.torch._optimizer import Optimizer
from ddphook.torch._process_group import Options
from ddphook.torch._rendezvous import Meeting, timeout_seconds
from ddphook.torch._session import load_state_dict, state_dict

__all__ = [
    "Handle",
    "Options",
    "PeriodicModelAverager",
    "Statistics",
    "close",
    "compile",
    "export",
    "load_state_dict",
    "register",
    "state_dict",
]


def register(
    ddp_model: nn.Module,
    hook: AnyHook | None = None,
    wrapper: AnyWrapper | None = None,
    *,
    shard_hook: AnyHook | None = None,
    gather_hook: AnyHook | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    timeout: timedelta | float | None = None,
    **options: Any,
) -> Handle:
    """Registers a compiled communication hook with a DDP model or a sharded one.

    Collective: all ranks of the model's process group or mesh call it with equal
    arguments, in place of ``register_comm_hook``.

    Parameters
    ----------
    ddp_model
        The model, without a hook, on CPUs or on one GPU. In a job of one rank, it may
        also be a model without DDP: the handle then does nothing, and the log says so.
        Or a model on CPUs to which ``fully_shard`` has been applied, or ``replicate`` of
        ``torch.distributed._composable.replicate_with_fsdp``; see docs/sharded.md.
    hook
        Required. A hook with its options, such as ``ddphook.PowerSGD(rank=2)``; its
        name (``"powersgd"``), with the options as ``**options``; or a hook as PyTorch,
        Accelerate or Lightning define it: one of PyTorch's
        functions, optionally in ``fp16_compress_wrapper``; a member of
        ``DDPCommHookType``; a ``PowerSGDState`` or ``PostLocalSGDState``;
        Accelerate's ``DistributedDataParallelKwargs``.
    wrapper
        ``"fp16"`` or ``"bf16"``, or PyTorch's wrapper function; for PowerSGD also
        ``"int8"``, ``"int4"`` or ``"fp8"``, which encode its factors.
    shard_hook
        The hook between shards, if the model's mesh has two dimensions: ``hook`` then
        reduces between replicas. By default, shards are reduced exactly.
    gather_hook
        How the shards of parameters are sent to compute with them: a cast or codes, such
        as ``"int8"``. By default, they are sent exactly.
    optimizer
        A ``torch.optim.SGD``, ``Adam`` or ``AdamW`` of the model's parameters,
        in float32 or float64. The modules then update parameters as well, when
        each bucket's averages arrive, and ``optimizer.step()`` does nothing until
        the handle is closed. Changes to gradients between ``backward()`` and
        ``step()``, such as clipping, come too late. ``hook`` may also be the
        result of PyTorch's ``_hook_then_optimizer``.
    timeout
        How long any operation waits for another rank: seconds or a
        ``timedelta``; by default ``DDPHOOK_TIMEOUT_S``, else 300 s.
    **options
        The hook's options, by PyTorch's names (``matrix_approximation_rank``, …);
        ``exempt``, a regular expression (``re.search``): parameters whose names
        it matches are reduced by ``exempt_hook``, the name of a hook (default
        ``"allreduce"``), which often suits biases; ``topology``, ``"flat"`` (the
        default) or ``"hierarchical"``, which sums gradients within machines first
        and compresses them between machines; a ``state`` object of PyTorch's;
        Lightning's ``ddp_comm_hook``, ``ddp_comm_state`` and ``ddp_comm_wrapper``.

    Returns
    -------
    Handle
        The registered hook, with its states and counters.

    Raises
    ------
    InvalidArgumentError
        There is no such hook or option, or a value has a wrong type or is out of
        range.
    UnsupportedError
        The model or the hook is of a kind that ddphook does not support.
    FailedPreconditionError
        The model already has a hook.
    PlanMismatchError
        Another rank registers another hook.
    DeadlineExceededError
        A rank did not register its hook in time.
    """
    ddp_model = _private.unwrapped(ddp_model)
    groups = _sharded_groups(ddp_model)
    if not groups and not (shard_hook is gather_hook is None):
        raise InvalidArgumentError(
            "expected a sharded model for a 'shard_hook' or 'gather_hook'"
        )
    resolved = resolve(hook, wrapper, options)
    if groups:
        from ddphook.torch import _sharded

        if optimizer is not None:
            resolved = dataclasses.replace(resolved, optimizer=optimizer)
        return _sharded.register(ddp_model, groups, resolved, shard_hook, gather_hook, timeout)
    if not isinstance(ddp_model, DistributedDataParallel):
        if isinstance(ddp_model, nn.Module) and _world_size() == 1:
            return _register_locally(ddp_model, resolved)
        raise InvalidArgumentError(
            f"expected a DistributedDataParallel model, but got {type(ddp_model).__name__}"
        )
    device = _check_model(ddp_model, hook)
    names = _bucket.parameter_names(ddp_model)
    resolved.check_names(name for p, name in names.items() if p.requires_grad)
    updates = _updates(ddp_model, resolved, optimizer, device)
    group = resolved.group or ddp_model.process_group
    meeting = Meeting(group, timeout_seconds(timeout))
    where = f" on a device: {device.target}" if device.target else ""
    meeting.check_equal("the hook", resolved.pipeline() + where)
    whole = _bucket.with_group_size(_bucket.WHOLE_GROUP, meeting.world_size)
    declared = whole + _near_group(resolved, meeting)
    handle = Handle(ddp_model, resolved, meeting, declared, device, updates)

    try:
        if resolved.state is not None:
            handle.load_state_dict(resolved.state)
        _private.comm_hooks(ddp_model).clear()
        ddp_model.register_comm_hook(None, CommHook(handle, resolved.title))
    except BaseException:
        handle.close()
        raise
    return handle


def compile(  # noqa: A001 - the name follows torch.compile.
    step: Any,
    *,
    hook: AnyHook = "allreduce",
    wrapper: AnyWrapper | None = None,
    shard_hook: AnyHook | None = None,
    bucket_cap_mb: float = 25,
    timeout: timedelta | float | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    **options: Any,
) -> Any:
    """Runs ``torch.compile`` with Inductor; a hook compresses the reductions.

    Replaces functional all-reduces and reduce-scatters of gradients, ``sum`` and
    ``avg``, coalesced or not, and those of DDP under ``optimize_ddp="python_reducer"``.
    They are put into buckets in the order in which the graph computes the gradients,
    and overlap with the rest of the graph. PyTorch reduces scalars, integers, and
    values used before they are awaited; the log ``"ddphook"`` gives the reason (``INFO``).

    If the package is installed, ``torch.compile(step, backend="ddphook",
    options={"hook": …})`` does the same.

    Parameters
    ----------
    step
        A function or a module, as for ``torch.compile``.
    hook, wrapper, **options
        As for ``register``, but a graph cannot have ``post_local_sgd``, and
        ``exempt`` is for ``register`` and ``export`` only: gradients of a graph
        have no names.
    shard_hook
        The hook of reduce-scatters, by default ``hook``.
    bucket_cap_mb
        The size of a bucket of gradients in MiB.
    timeout
        As for ``register``.
    fullgraph, dynamic
        As for ``torch.compile``.

    Returns
    -------
    Callable
        The compiled step. It raises ``ddphook.Error`` when a rank is lost.
        States such as PowerSGD's belong to the step, even if it is compiled
        again for other shapes of its inputs; ``state_dict()`` has them.

    Raises
    ------
    InvalidArgumentError
        There is no such hook or option, or a value is out of range.
    UnsupportedError
        The hook is more than a reduction; or the step is a DDP model, whose gradients
        are reduced outside of it. If a DDP model is within the step, the first step
        raises the error, and so does one with a reduce-scatter that cannot have the hook.
    """
    from ddphook.torch import _backend, _steps

    given: dict[str, Any] = {"hook": hook, "wrapper": wrapper, "shard_hook": shard_hook}
    given |= {"bucket_cap_mb": bucket_cap_mb, "timeout": timeout, **options}
    _backend.make_pass(**given)  # Raises errors now rather than in the first step.
    # Dynamo treats steps with equal code and equal options as the same step.
    given["step"] = object()
    if not _private.announces_backends():
        _steps.begin(_backend.step_of, step)
    return torch.compile(
        step,
        backend=_backend.backend,
        options=given,
        fullgraph=fullgraph,
        dynamic=dynamic,
    )


def _sharded_groups(model: Any) -> list[Any]:
    """Returns the parameter groups of a sharded model, or none of another one.

    Refuses models of PyTorch's older ways to shard and to replicate.
    """
    if isinstance(model, DistributedDataParallel) or not isinstance(model, nn.Module):
        return []
    from torch.distributed.fsdp import FullyShardedDataParallel

    if any(isinstance(each, FullyShardedDataParallel) for each in model.modules()):
        raise UnsupportedError(
            "expected a model of fully_shard (FSDP2), but got FullyShardedDataParallel"
        )
    if _private.is_replicated_by_ddp(model):
        raise UnsupportedError(
            "torch.distributed._composable.replicate makes its DDP model in the first "
            "step; use DistributedDataParallel, or replicate of replicate_with_fsdp"
        )
    return _private.sharded_groups(model)


def _world_size() -> int:
    """Returns the number of ranks, which a launcher may already have started."""
    if dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ.get("WORLD_SIZE") or 1)


def _register_locally(model: nn.Module, hook: Hook) -> Handle:
    if hook.optimizer is not None:
        raise UnsupportedError(
            "expected a DistributedDataParallel model for a hook that runs the optimizer; "
            "call optimizer.step() instead"
        )
    hook.check_names(name for name, p in model.named_parameters() if p.requires_grad)
    logging.getLogger("ddphook").warning(
        "the hook '%s' has no effect in a job of one rank without DistributedDataParallel",
        hook.pipeline(),
    )
    return LocalHandle(model, hook)


def _near_group(hook: Hook, meeting: Meeting) -> str:
    """Declares the groups of near ranks that post-local SGD has as its subgroups, which
    have to make up the model's process group."""
    subgroup = hook.options.get("subgroup")
    if subgroup is None:
        return ""
    members = dist.get_process_group_ranks(meeting.group)
    mine = sorted(dist.get_process_group_ranks(subgroup))
    texts = meeting.all_gather("subgroup", json.dumps(mine))
    partition = [json.loads(text) for text in dict.fromkeys(texts)]
    if sorted(sum(partition, [])) != sorted(members):
        raise InvalidArgumentError(
            f"expected subgroups that make up the ranks {members}, but got {partition}"
        )
    ranks = [[members.index(rank) for rank in part] for part in partition]
    return f"ddp.process_group @near ranks {ranks}\n"


def _updates(
    model: DistributedDataParallel,
    hook: Hook,
    optimizer: torch.optim.Optimizer | None,
    device: _device.Device,
) -> Optimizer | None:
    """Returns the optimizer that runs in modules, if one is given."""
    if optimizer is not None and hook.optimizer is not None:
        raise InvalidArgumentError("expected one optimizer, but got two")
    given = hook.optimizer if optimizer is None else optimizer
    if given is None:
        return None
    if device.target:
        raise UnsupportedError(
            "expected parameters on a CPU for an optimizer in the hook, but got some on "
            f"{device.memory}; call optimizer.step() after backward() instead"
        )
    names = _bucket.parameter_names(model)
    for name, parameter in model.module.named_parameters():
        if name in model.parameters_to_ignore and parameter.requires_grad:
            del names[parameter]
    return Optimizer(given, names)


def _check_handler(model: DistributedDataParallel, handler: Any) -> None:
    """Compares the arguments in Accelerate's handler with those of the model."""
    asked = dict(handler.to_kwargs())
    if int(asked.get("bucket_cap_mb", 0) * (1 << 20)) == model.bucket_bytes_cap:
        del asked["bucket_cap_mb"]  # DDP rounds it to whole bytes.
    names = ["broadcast_buffers", "find_unused_parameters", "gradient_as_bucket_view"]
    given = {name: getattr(model, name) for name in [*names, "static_graph"]}
    given["bucket_cap_mb"] = model.bucket_bytes_cap / (1 << 20)
    for name, value in asked.items():
        if given.get(name, value) != value:
            raise InvalidArgumentError(
                f"expected a model with {name}={value}, as in the handler, but it was made "
                f"with {given[name]}"
            )


def _check_model(model: DistributedDataParallel, hook: Any) -> _device.Device:
    """Refuses models with which DDP cannot use the hook; returns the model's device."""
    if isinstance(hook, AcceleratesHook):
        _check_handler(model, hook)
    if model.mixed_precision is not None:
        raise UnsupportedError(
            "a DDP model with mixed_precision has PyTorch's own hook; use "
            "torch.autocast, or parameters of a 16-bit type"
        )
    hooks = [known for known, _ in _private.comm_hooks(model)]
    if not all(isinstance(each, CommHook) and each.handle is None for each in hooks):
        advice = ""
        if isinstance(hook, AcceleratesHook):
            advice = (
                ": Accelerator.prepare() has registered the handler's hook; make the "
                "Accelerator without comm_hook, or use ddphook.accelerate"
            )
        raise FailedPreconditionError(
            f"the model has a communication hook already{advice}"
        )
    if any(map(_private.has_optimizer_in_backward, model.parameters())):
        raise UnsupportedError(
            "the model uses _apply_optimizer_in_backward, for which DDP registers its own "
            "hook; use ddphook.torch.register(…, optimizer=…) instead"
        )
    named = _bucket.reduced_parameters(model)
    reduced = {parameter for _, parameter in named}
    for name, module in model.module.named_modules():
        is_embedding = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        if is_embedding and module.sparse and module.weight in reduced:
            raise UnsupportedError(
                f"the gradients of '{name}' are sparse; make it with sparse=False"
            )
    return _device.device_of(named)
