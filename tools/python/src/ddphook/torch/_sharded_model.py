# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names and describes sharded models, and refuses hooks that they cannot have."""

from __future__ import annotations

import hashlib
from typing import Any

from torch import nn

from ddphook._errors import UnsupportedError
from ddphook.report import counted
from ddphook.torch import _private
from ddphook.torch._hooks import Hook, check_reduces, check_scatters


def names(model: nn.Module, groups: list[Any]) -> dict[Any, str]:
    """Returns the names of the groups' parameters, without what wrappers add."""
    added = {_private.ORIG_MOD, _private.CHECKPOINTED}
    prefixes = {module: prefix for prefix, module in model.named_modules()}
    names = {}
    for group in groups:
        for parameter in group.fsdp_params:
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
