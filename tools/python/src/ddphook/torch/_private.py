# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All private names of PyTorch that the package uses.

Any release of PyTorch may change them, so other files use this one, and
test_private.py checks each name. Where releases differ, the feature decides rather
than the version.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from datetime import timedelta
from operator import attrgetter
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import profiler
from torch.distributed import distributed_c10d as c10d

from ddphook._errors import UnsupportedError

# The first release that works, and the first one that nobody has tried; see
# pyproject.toml.
FIRST, END = (2, 8), (2, 16)
_REQUIREMENT = "torch>={}.{},<{}.{}".format(*FIRST, *END)


def check_release(found: str) -> None:
    """Raises ImportError for a PyTorch that is too old; warns of one that is too new."""
    release = tuple(map(int, re.findall(r"\d+", found)[:2]))
    text = (
        f"ddphook.torch needs {_REQUIREMENT}, but found PyTorch {found}; run "
        f"pip install '{_REQUIREMENT}'"
    )
    if release < FIRST:
        raise ImportError(text)
    if release >= END:
        warnings.warn(f"{text}, or expect errors", stacklevel=2)


check_release(torch.__version__)

# The names that come from each of PyTorch's modules. They are imported when they are used,
# since some take seconds.
_NAMES = {
    "torch": "_dynamo _foreach_copy_",
    "torch._decomp": "get_decompositions",
    "torch._dispatch.python": "enable_python_dispatcher",
    "torch._dynamo": "callback_handler compiled_autograd",
    "torch._export.utils": "_compiling_state_context",
    "torch._guards": "CompileContext tracing",
    "torch._inductor": "config list_mode_options",
    "torch._inductor.compile_fx": "compile_fx",
    "torch._inductor.custom_graph_pass": "CustomGraphPass get_hash_for_files",
    "torch._inductor.pattern_matcher": "stable_topological_sort",
    "torch._ops": "OpOverload",
    "torch._prims_common": "compute_required_storage_length "
    "compute_elementwise_output_logical_to_physical_perm",
    "torch._subclasses.fake_tensor": "FakeTensor FakeTensorMode "
    "DataDependentOutputException DynamicOutputShapeException",
    "torch.distributed": "_rank_not_in_group",
    "torch.distributed._composable.replicate": "DDP",
    "torch.distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks": (
        "_OptimizerHookState _hook_then_optimizer"
    ),
    "torch.distributed.distributed_c10d": "_get_default_group _get_default_store "
    "_resolve_process_group",
    "torch.distributed.fsdp._fully_shard._fsdp_collectives": "DefaultAllGather "
    "DefaultReduceScatter",
    "torch.distributed.optim": "functional_adam._FunctionalAdam "
    "functional_adamw._FunctionalAdamW functional_sgd._FunctionalSGD",
    "torch.nn.parallel": "DistributedDataParallel._get_active_ddp_module",
    "torch.utils": "_pytree",
    "torch.utils._python_dispatch": "TorchDispatchMode",
}
# The same by the attributes of this module, which have no underscore in front.
PLACES = {
    name.rpartition(".")[2].lstrip("_"): f"{module}:{name}"
    for module, names in _NAMES.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module, _, path = PLACES[name].partition(":")
    try:
        value = attrgetter(path)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise UnsupportedError(
            f"expected PyTorch to have {module}.{path}, but {torch.__version__} does "
            f"not; run pip install '{_REQUIREMENT}'"
        ) from error
    globals()[name] = value
    return value


# ---- Modules and tensors ----

# What `torch.compile` adds to the names of a module's parameters, and the attributes by
# which its results have the module and the function.
ORIG_MOD = "_orig_mod"
ORIG_CALLABLE = "_torchdynamo_orig_callable"
# A module's dictionaries whose entries act as its attributes.
TABLES = ("_modules", "_parameters", "_buffers")
# Attributes that recurrent modules derive whenever their parameters are set.
DERIVED = ("_flat_weights", "_flat_weight_refs")
# Attributes by which PyTorch marks buffers.
OF_BUFFERS = {"_is_buffer", "persistent"}
# The function that assigns to a tensor's ``data``.
SET_DATA = vars(torch._C.TensorBase)["data"].__set__
# Returns the dictionaries of a module's own parameters and buffers.
tensor_tables = attrgetter("_parameters", "_buffers")


def unwrapped(model: Any) -> Any:
    """Returns the module in a result of ``torch.compile``, or the object itself."""
    return getattr(model, ORIG_MOD, model)


def hooks_of_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """Returns a tensor's hooks by the method that registers them."""
    later = getattr(tensor, "_post_accumulate_grad_hooks", None)
    return {
        "register_hook": tensor._backward_hooks,
        "register_post_accumulate_grad_hook": later,
    }


def storage_of(tensor: torch.Tensor) -> int:
    """Returns a number that identifies a tensor's storage."""
    return tensor.untyped_storage()._cdata


def is_view_of_complex(tensor: torch.Tensor) -> bool:
    """True of what ``torch.distributed`` passes to a group instead of a complex tensor."""
    return tensor._base is not None and tensor._base.is_complex()


def is_expanded(tensor: torch.Tensor) -> bool:
    """Returns whether elements of a tensor certainly share memory."""
    return torch._debug_has_internal_overlap(tensor) == 1


# ---- DistributedDataParallel and process groups ----

# Returns the list of a model's communication hooks, each with its state.
comm_hooks = attrgetter("_comm_hooks")
has_rebuilt_buckets = attrgetter("_has_rebuilt_buckets")
has_python_reducer = attrgetter("_use_python_reducer")


def has_optimizer_in_backward(parameter: torch.Tensor) -> bool:
    return hasattr(parameter, "_in_backward_optimizers")


# The methods of a process group that only Gloo has, or that add functions to its calls.
PASSED_ON = """
_allgather_base all_gather_single all_gather_single_coalesced all_to_all_single allgather
allgather_coalesced allgather_into_tensor_coalesced alltoall alltoall_base broadcast gather
gather_into_tensor gather_single monitored_barrier recv recv_anysource reduce scatter send
register_post_hook register_pre_hook unregister_post_hook unregister_pre_hook
""".split()


def use_gloo(
    group: dist.ProcessGroup, store: dist.Store, timeout: timedelta
) -> dist.ProcessGroup:
    """Gives a process group without a backend Gloo for tensors on the host; returns a
    group of C++ with the same Gloo.

    Collective. PyTorch's own checks of collectives are included, if they are on.
    """
    rank, size = group.rank(), group.size()
    gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        gloo = c10d._create_process_group_wrapper(gloo, "ddphook", store, rank, size, timeout)
    kind = dist.ProcessGroup.BackendType.GLOO
    plain = dist.ProcessGroup(store, rank, size)
    for each in group, plain:
        each._register_backend(torch.device("cpu"), kind, gloo)
        each._set_default_backend(kind)
    if os.environ.get("TORCH_DIST_NAN_CHECK") == "1":
        c10d.NanCheckHook.attach(plain)
    return plain


def groups() -> list[tuple[str, int, str]]:
    """Returns the names of process groups, with their sizes and backends."""
    return sorted((n, g.size(), dist.get_backend(g)) for g, n in c10d._world.pg_names.items())


# ---- Sharded models ----

# The name that activation checkpointing adds to those of a module's parameters.
CHECKPOINTED = "_checkpoint_wrapped_module"
# The attributes of a parameter group that say how it reduces gradients and gathers
# parameters.
_COLLECTIVES = (
    "_reduce_scatter_comm _prepare_reduce_scatter_inputs _all_reduce_hook _all_gather_comm"
).split()
# Returns the module that has a parameter of a group, and its name there.
module_of = attrgetter("_module_info.module", "_module_info.param_name")
# Calls a function at the end of the running backward pass, which raises its error.
after_backward = torch.autograd.Variable._execution_engine.queue_callback


def sharded_groups(model: nn.Module) -> list[Any]:
    """Returns the parameter groups of FSDP2 or of its ``replicate`` in a model."""
    from torch.distributed.fsdp import FSDPModule

    modules = [each for each in model.modules() if isinstance(each, FSDPModule)]
    states = [each._get_fsdp_state() for each in modules]
    _check_sharding(states, ["_fsdp_param_groups"])
    groups = [group for state in states for group in state._fsdp_param_groups]
    _check_sharding(groups, _COLLECTIVES)
    return list(dict.fromkeys(groups))


def _check_sharding(objects: Sequence[Any], names: Sequence[str]) -> None:
    for name in names:
        if not all(hasattr(each, name) for each in objects):
            raise UnsupportedError(
                f"expected PyTorch 2.15 for a sharded model, but {torch.__version__} "
                f"lacks {name}"
            )


def is_replicated_by_ddp(model: nn.Module) -> bool:
    """Returns whether the older ``replicate``, which uses DDP, was applied to a module."""
    kind = __getattr__("DDP")
    return any(isinstance(each, kind) for each in model.modules())


def exchange_collectives(group: Any, given: Sequence[Any]) -> list[Any]:
    """Replaces a group's reduce-scatter, the function that prepares its inputs, the
    function that is called after an all-reduce, and its all-gather, as far as they are
    given; returns those that it had.
    """
    old = [getattr(group, name) for name in _COLLECTIVES]
    for name, value in zip(_COLLECTIVES, given):
        setattr(group, name, value)
    return old


def gathers_itself(parameter: Any) -> bool:
    """Returns whether a parameter's class says what all-gathers send."""
    return hasattr(parameter._sharded_local_tensor, "fsdp_pre_all_gather")


def has_partial_reduction(group: Any) -> bool:
    """Returns whether a group has gradients that replicas have not reduced yet."""
    return group._partial_reduce_output is not None


def is_in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


# ---- Optimizers ----

OPTIMIZER_HOOKS = {"_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"}


def init_group(optimizer: torch.optim.Optimizer) -> Any:
    """Returns the function that makes the state of a group, or None."""
    return getattr(optimizer, "_init_group", None)


def note_step(optimizer: Any) -> None:
    """Notes for schedulers that ``optimizer.step()`` was called."""
    optimizer._opt_called = True


def keep_scheduler_mark(old: Any, new: Any) -> None:
    """Marks `new` as a ``step()`` that a scheduler has wrapped, if `old` is one."""
    if hasattr(old, "_wrapped_by_lr_sched"):
        new._wrapped_by_lr_sched = True


# ---- The profiler ----


def is_profiling() -> bool:
    return profiler._is_profiler_enabled


def end_record(record: Any, future: Any) -> Any:
    """Ends a ``record_function`` when a future completes; returns the future for that."""
    return record._call_end_callbacks_on_future(future)


# ---- Graphs ----

# Functional collectives, and their namespace.
collectives = torch.ops._c10d_functional
COLLECTIVES = collectives.name
adaptive_avg_pool2d_backward = torch.ops.aten._adaptive_avg_pool2d_backward.default
unsafe_view = torch.ops.aten._unsafe_view.default
weight_norm_backward = torch.ops.aten._weight_norm_interface_backward.default


def writes_memory(node: torch.fx.Node) -> bool:
    """Returns whether a node changes memory that others see, such as a parameter's."""
    return isinstance(node.target, torch._ops.OpOverload) and (
        node.target._schema.is_mutable
    )


def argument_names(target: torch._ops.OpOverload) -> list[str]:
    return [argument.name for argument in target._schema.arguments]


def operator_name(target: Any) -> str:
    """Returns an operator's name without its namespace and overload, or an empty string."""
    return getattr(target, "_opname", "")


# ---- torch.compile ----


def announces_backends() -> bool:
    """Returns whether ``torch.compile`` calls a backend's ``_dynamo_backend_init``."""
    return hasattr(torch._TorchCompileWrapper, "_dynamo_backend_init")


def on_announcement(backend: Any, function: Any) -> None:
    """Has ``torch.compile`` call a function when it gets the backend."""
    backend._dynamo_backend_init = function


def innermost_backend(callback: Any) -> Any:
    """Returns the backend in TorchDynamo's wrappers."""
    from torch._dynamo import eval_frame

    # Until PyTorch 2.9, one function unwraps both backends and functions.
    find = getattr(eval_frame, "innermost_backend", None) or eval_frame.innermost_fn
    return find(callback)


def compiled_calls(frame: FrameType | None) -> Iterator[dict[str, Any]]:
    """Yields the variables of the running calls of compiled functions, innermost first."""
    while frame is not None:
        if frame.f_code.co_name == "compile_wrapper":
            yield frame.f_locals
        frame = frame.f_back


def trace_autograd() -> None:
    """Lets a compiled function contain a backward pass without ending its graph."""
    from torch._dynamo import config

    if not hasattr(config, "trace_autograd_ops"):
        raise UnsupportedError(
            "expected PyTorch 2.11 or later for a backward pass in one graph, but found "
            f"{torch.__version__}; run pip install '{_REQUIREMENT}'"
        )
    config.trace_autograd_ops = True


def region_argument(name: str | None) -> dict[str, str | None]:
    """Returns the argument of `compile_fx` for the name of a compiled region, if it has
    one."""
    from inspect import signature

    known = signature(__getattr__("compile_fx")).parameters
    return {"compile_region_name": name} if "compile_region_name" in known else {}
