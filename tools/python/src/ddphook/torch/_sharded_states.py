# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The states of a sharded model's hook in the form that PyTorch saves and shards again.

Counters and random generators, which all ranks share, are tensors. All else is a DTensor
on the mesh of its parameter. An error between replicas lies on the mesh as the parameter
does, after a dimension for the replicas, so that other shards can load it. A state that
belongs to a rank in another way has a dimension for each one of the mesh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from ddphook._errors import InvalidArgumentError
from ddphook.torch import _states

_SHARED = (_states.ITERATION, _states.GENERATOR)
# role -> names of parameters, separated by commas -> value
Saved = dict[str, dict[str, torch.Tensor]]


def saved(
    parts: _states.Parts,
    kinds: _states.Kinds,
    parameters: Mapping[str, Any],
    job: str,
) -> Saved:
    """Returns the states of a job of these FSDP parameters; the values are views."""
    result: Saved = {}
    for (role, key), value in parts.items():
        name = key if isinstance(key, str) else ", ".join(key)
        if kinds[role] not in _SHARED:
            is_error = kinds[role] == "error" and job == "replicas"
            value = _placed(value, parameters[name.split(", ")[0]], is_error)
        result.setdefault(role, {})[name] = value
    return result


def names(states: Mapping[str, Saved]) -> list[str]:
    return [
        f"{role} of {name}, {job}"
        for job, roles in states.items()
        for role, values in roles.items()
        for name in values
    ]


def load(
    given: Any,
    parts: _states.Parts,
    kinds: _states.Kinds,
    parameters: Mapping[str, Any],
    job: str,
) -> None:
    """Replaces a job's states by a result of `saved`.

    Raises InvalidArgumentError if that is of another model, mesh, or rank.
    """
    own = saved(parts, kinds, parameters, job)
    for role, values in given.items():
        for name in values.keys() - own.get(role, {}).keys():
            # Only some parameters of a group had gradients in a step.
            if role not in kinds or not parameters.keys() >= set(name.split(", ")):
                raise InvalidArgumentError(f"this model has no {role} of '{name}'")
            parts[role, name] = torch.empty_like(_local(values[name]).flatten())
    for role, mine in saved(parts, kinds, parameters, job).items():
        for name, value in mine.items():
            other = given.get(role, {}).get(name)
            if _described(other) != _described(value):
                raise InvalidArgumentError(
                    f"expected {role} of '{name}' as {_described(value)}, but got "
                    f"{_described(other)}"
                )
            _local(value).copy_(_local(other))


def _placed(part: torch.Tensor, parameter: Any, is_sharded: bool) -> DTensor:
    """Returns a part of a rank's state as its part of the whole state."""
    whole = parameter.sharded_param
    mesh, placements = whole.device_mesh, whole.placements
    size = parameter.padded_sharded_param_size
    # Errors of whole buckets, and placements of tensor parallelism, cannot be resharded.
    is_sharded = is_sharded and part.numel() == size.numel()
    is_sharded = is_sharded and all(type(each) in (Replicate, Shard) for each in placements)
    own = [i for i, each in enumerate(placements) if not (is_sharded and each.is_shard())]
    if is_sharded:
        part = part.view(size)[tuple(map(slice, parameter.sharded_size))]
    shape = [mesh.size(i) for i in own] + list(whole.shape if is_sharded else part.shape)
    return DTensor.from_local(
        part[(None,) * len(own)],
        mesh,
        [
            Shard(own.index(i) if i in own else len(own) + each.dim)
            for i, each in enumerate(placements)
        ],
        shape=torch.Size(shape),
        stride=torch.empty(shape, device="meta").stride(),
    )


def _local(value: torch.Tensor) -> torch.Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _described(value: Any) -> str:
    """Returns the properties that two values must share for one to replace the other."""
    if isinstance(value, DTensor):
        mesh = value.device_mesh
        rank = int(mesh.mesh[mesh.get_coordinate()])
        return (
            f"{tuple(value.to_local().shape)} of {tuple(value.shape)} {value.dtype} on rank "
            f"{rank} of the mesh {mesh.mesh.tolist()}"
        )
    is_tensor = isinstance(value, torch.Tensor)
    return f"{tuple(value.shape)} {value.dtype}" if is_tensor else "nothing"
