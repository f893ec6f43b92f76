# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names and describes sharded models, and refuses hooks that they cannot have."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from typing import Any

from torch import nn

from ddphook._errors import UnsupportedError
from ddphook.report import counted
from ddphook.torch import _private
from ddphook.torch._hooks import Hook, check_reduces, check_scatters

# Hooks whose result for a parameter does not depend on what is reduced with it.
_SEPARATE = ("allreduce", "allreduce_and_upcast", "fp16", "bf16", "noop", "powersgd")


def names(model: nn.Module, groups: list[Any]) -> dict[Any, str]:
    """Returns the names of the groups' parameters, without what wrappers add."""
    added = {_private.ORIG_MOD, _private.CHECKPOINTED}
    prefixes = {module: prefix for prefix, module in model.named_modules()}
    names = {}
    for parameter in itertools.chain(*(group.fsdp_params for group in groups)):
        module, name = _private.module_of(parameter)
        words = [*prefixes[module].split("."), name]
        names[parameter] = ".".join(w for w in words if w and w not in added)
    return names


def check_hook(hook: Hook) -> None:
    check_reduces(
        hook,
        local="post_local_sgd averages whole parameters, which a sharded model does not have; "
        "use set_requires_all_reduce(False) for local steps",
        optimizer="an optimizer cannot run in the hook of a sharded model: FSDP makes the "
        "gradients of shards after the hook; call optimizer.step()",
        group="the model's mesh gives them",
    )


def check_scatter(hook: Hook, where: str = "between shards") -> str:
    """Refuses a hook that cannot send parts of arrays; returns a compiled example."""
    advice = "; use it between replicas, as 'hook' on a mesh of two dimensions"
    try:
        return check_scatters(hook.for_modules(), advice, hook.own_hook_of_exempt)
    except UnsupportedError as error:
        raise UnsupportedError(f"the hook '{hook.name}' {where}: {error}") from None


def check_copies(group: Any, names: dict[Any, str], hooks: Iterable[Hook]) -> None:
    """Refuses hooks that would change copies of a parameter in different ways: with tensor
    parallelism, ranks with copies have other parts of other parameters."""
    mesh_size = group.mesh_info.mesh.size()
    whole = max(each.sharded_param.device_mesh.size() for each in names)
    for each, hook in itertools.product(group.fsdp_params, hooks):
        ranks = each.sharded_param.device_mesh.size()
        has_copies = each.may_reduce_grad_outside_dp if ranks > mesh_size else ranks < whole
        own = hook.exempt_hook if hook.own_hook(names[each]) else hook.name
        if has_copies and own not in _SEPARATE and each.sharded_param.requires_grad:
            raise UnsupportedError(
                f"parameter '{names[each]}': tensor parallelism copies it, and the hook "
                f"'{own}' would change the copies in different ways; exempt it, or use bf16"
            )


def description(groups: list[Any], names: dict[Any, str]) -> str:
    """Returns a text that is the same on all ranks with the same sharded model."""
    hasher = hashlib.sha256()
    for group in groups:
        hasher.update(f"{group.mesh_info.mesh.shape}".encode())
        for each in group.fsdp_params:
            tensor = each.sharded_param
            facts = names[each], each.padded_sharded_param_size, tensor.dtype
            more = tensor.requires_grad, each.fsdp_placement, each.mp_policy.reduce_dtype
            hasher.update(f"{facts} {more}".encode())
    return (
        f"{counted(len(names), 'parameter')} in {counted(len(groups), 'group')}, "
        f"digest {hasher.hexdigest()[:12]}"
    )
