# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-gathers of a sharded model's parameters with a hook.

Every rank compares its parameters with those of sharded_model, which has no code in
common with the package.
"""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddphook
import ddphook.torch
import ranks
import sharded_model as sharded
import test_sharded
from ddphook.torch import _private
from sharded_model import Codes, Gathers, Net

STEPS = 3
# Hooks as given to register, and as modelled. Every other model is not resharded after
# its forward pass.
GATHERS = [
    ("int8", Gathers("i8", 256)),
    ("int8", Gathers("i8", 256)),
    (ddphook.Int8(block_size=32), Gathers("i8", 32)),
    (ddphook.Int4(error_feedback=False), Gathers("i4", 64)),
    ("fp8", Gathers("f8E4M3FN", 256)),
    (ddphook.FP8(format=torch.float8_e5m2, block_size=64), Gathers("f8E5M2", 64)),
    ("fp16", Gathers("f16")),
    (ddphook.BF16(accumulate=torch.float32), Gathers("bf16")),
]


def collectives(net):
    return [_private.exchange_collectives(each, ()) for each in _private.sharded_groups(net)]


def gathered(net):
    """Returns the parameters of each group as this rank computes with them."""
    from torch.distributed.fsdp import FSDPModule

    found = []
    for part in [each for each in net.modules() if isinstance(each, FSDPModule)]:
        part.unshard(async_op=True).wait()
        found.append([p.detach().clone().numpy() for p in part.parameters(recurse=False)])
        part.reshard()
    return found


def _same_bits(rank, shape, given, modelled, hooks):
    print(f"seed {sharded.SEED}")
    for number, (gather_hook, gathers) in enumerate(hooks):
        net = sharded.sharded(shape, reshard_after_forward=number % 2 == 0)
        handle = ddphook.torch.register(net, gather_hook=gather_hook, timeout=120, **given)
        sharded.train(net, STEPS)
        masters = sharded.values(net)
        want = sharded.modelled(shape, STEPS, *modelled(), gathers=gathers)
        assert not sharded.difference(masters, want), (rank, gather_hook)
        mine = gathered(net)
        everyones = [None] * dist.get_world_size()
        dist.all_gather_object(everyones, [[p.tobytes() for p in group] for group in mine])
        assert all(each == everyones[0] for each in everyones)
        # The groups are the whole model, then its parts.
        for group, names in zip(mine, [sharded.GROUPS[i] for i in (1, 2, 0)]):
            exact = [masters[name] for name in names]
            sent = gathers.gather(exact, shape[-1])
            assert all(map(lambda a, b: (a == b).all(), group, sent)), (gather_hook, names)
            assert any(map(lambda a, b: (a != b).any(), group, exact)), (gather_hook, names)
        if isinstance(gather_hook, str):
            job = next(job for job in handle._jobs.values() if job.kind == "gathers")
            counted = job.worker.call(job.modules.statistics)
            rate = 2 if gather_hook == "fp16" else 3.9
            assert counted["uncompressed_bytes"] >= rate * counted["wire_bytes"] > 0
        handle.close()
        for group, names in zip(gathered(net), [sharded.GROUPS[i] for i in (1, 2, 0)]):
            assert all((a == masters[name]).all() for a, name in zip(group, names))


def _exact():
    return (Codes("allreduce"),)


def _codes():
    return Codes("int4", feeds_back=True), Codes("bf16")


def test_gathers_compute_what_the_model_computes():
    ranks.run(2, _same_bits, (2,), dict(hook="allreduce"), _exact, GATHERS)


def test_gathers_between_shards_of_replicas():
    given = dict(hook="int4", shard_hook="bf16")
    ranks.run(4, _same_bits, (2, 2), given, _codes, GATHERS[:1])


# Settings of test_sharded with which gathered parameters are in bfloat16.
SETTINGS = ["not resharded", "offloaded", "columns", "checkpointed", "frozen", "tied"]
SETTINGS += ["branches", "accumulated", "no communication"]


def _trained(name, gather_hook):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    make, options, change, step = test_sharded.SETTINGS[name]
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net = sharded.sharded((2,), make(), **options(), mp_policy=policy)
    if change is not None:
        change(net)
    if name == "branches":
        net.set_modules_to_forward_prefetch([net.first, net.second])
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01)
    with ddphook.torch.register(net, "allreduce", gather_hook=gather_hook, timeout=120):
        for number in range(3):
            step(net, number, optimizer)
            optimizer.step()
    return sharded.values(net)


def _settings(rank):
    for name in SETTINGS:
        want = _trained(name, None)
        # Parameters are sent as they are, and as numbers that are not all equal to them.
        assert not sharded.difference(_trained(name, "bf16"), want), name
        assert sharded.difference(_trained(name, "int8"), want), name


def test_a_hook_that_rounds_nothing_changes_nothing():
    ranks.run(2, _settings)


def _smaller_group(rank):
    from torch.distributed.fsdp import fully_shard

    def trained(resharded):
        net = Net()
        for part in net.first, net.second, net:
            fully_shard(part, mesh=sharded.mesh_of((4,)), reshard_after_forward=resharded)
        with ddphook.torch.register(net, "allreduce", gather_hook="int8", timeout=120):
            sharded.train(net, STEPS)
        return sharded.values(net)

    # In the backward pass, pairs of ranks gather what they have gathered before.
    assert not sharded.difference(trained(2), trained(True))


def test_parameters_that_are_sharded_again_in_a_smaller_group():
    ranks.run(4, _smaller_group)


def _checkpoints(rank, path):
    import torch.distributed.checkpoint as dcp

    whole, first, second = (sharded.sharded((2,)) for _ in range(3))
    given = dict(hook="int4", gather_hook="fp8", timeout=120)
    with ddphook.torch.register(whole, **given):
        sharded.train(whole, 4)
    with ddphook.torch.register(first, **given) as handle:
        sharded.train(first, 2)
        exact = sharded.values(first)
        dcp.save({"net": first.state_dict(), "hook": handle}, checkpoint_id=path)
    # The checkpoint does not depend on the hook of gathers.
    for gather_hook in None, "fp8":
        given["gather_hook"] = gather_hook
        with ddphook.torch.register(second, **given) as handle:
            state = {"net": second.state_dict(), "hook": handle}
            dcp.load(state, checkpoint_id=path)
            second.load_state_dict(state["net"])
            assert not sharded.difference(sharded.values(second), exact)
            if gather_hook:
                sharded.train(second, 2, first=2)
    assert not sharded.difference(sharded.values(second), sharded.values(whole))


def test_a_checkpoint_has_exact_parameters(tmp_path):
    ranks.run(2, _checkpoints, str(tmp_path))


def _with_frozen(*dtypes):
    """Returns a model whose first group has frozen parameters of these types."""
    net = nn.Sequential(nn.Linear(4, 4))
    for number, dtype in enumerate(dtypes):
        frozen = nn.Parameter(torch.ones(4, dtype=dtype), requires_grad=False)
        net.register_parameter(f"frozen{number}", frozen)
    return sharded.sharded((2,), net)


def _refused(rank):
    from torch.distributed._composable.replicate_with_fsdp import replicate

    def check(net, error, match, gather_hook, hook="allreduce"):
        with pytest.raises(error, match=match):
            ddphook.torch.register(net, hook, gather_hook=gather_hook, timeout=120)

    unsupported, invalid = ddphook.UnsupportedError, ddphook.InvalidArgumentError
    net = sharded.sharded((2,))
    check(net, unsupported, r"an all-gather cannot have .*keeps int4\.error", "int4")
    for hook in "powersgd", "topk", ddphook.Int8(rounding="stochastic"):
        check(net, unsupported, "an all-gather cannot have .*keeps .* of each", hook)
    for hook in "noop", "quantization_pertensor", ddphook.Wrap("fp16", ddphook.Int8()):
        check(net, unsupported, "in all-gathers: .*reduces whole gradients", hook)
    check(net, invalid, "fp61", "fp61")
    check(nn.Linear(2, 2), invalid, "expected a sharded model for a .*'gather_hook'", "int8")
    replicated = sharded.sharded((2,), shard=replicate)
    check(replicated, invalid, "fully_shard for a 'gather_hook'", "int8")
    for dtypes in (torch.complex64,), (torch.int64,), (torch.float16, torch.float32):
        strange = _with_frozen(*dtypes)
        found = ", ".join(map(str, dtypes))
        check(strange, unsupported, f"group of 'frozen0': .*one type.*but got {found}", "int8")
        # Without a hook, nobody looks at what is gathered.
        ddphook.torch.register(strange, "allreduce", timeout=120).close()
    typed = sharded.sharded((2,))
    parameter = _private.sharded_groups(typed)[0].fsdp_params[0]
    parameter._sharded_local_tensor.fsdp_pre_all_gather = None
    check(typed, unsupported, "but got a class of their own", "int8")
    custom = sharded.sharded((2,))
    custom.set_custom_all_gather(object())
    check(custom, ddphook.FailedPreconditionError, "all-gather of its own: object", "int8")

    before = collectives(net)
    for gather_hook in None, "allreduce":
        with ddphook.torch.register(net, "int8", gather_hook=gather_hook, timeout=120):
            assert [own[3] for own in collectives(net)] == [own[3] for own in before]
    with ddphook.torch.register(net, "int8", gather_hook="int8", timeout=120):
        assert not any(own[3] == old[3] for own, old in zip(collectives(net), before))
        check(net, ddphook.FailedPreconditionError, "has a hook already", "int8")
    assert collectives(net) == before
    with pytest.raises(ddphook.PlanMismatchError, match="has the hooks .* but rank 1"):
        ddphook.torch.register(net, "int8", gather_hook=["int8", "fp8"][rank], timeout=120)
    assert collectives(net) == before


def test_what_is_refused():
    ranks.run(2, _refused)


def _lost(rank, shape):
    net = sharded.sharded(shape)
    ddphook.torch.register(net, "int8", gather_hook="int8", timeout=10)
    sharded.train(net, 1)
    if rank == dist.get_world_size() - 1:
        net.second.register_forward_pre_hook(lambda *_: os._exit(9), prepend=True)
    sharded.train(net, 1)


def test_a_rank_that_is_lost_before_it_gathers():
    *others, lost = ranks.collect(4, _lost, (2, 2))
    assert lost == ("died", 9)
    for kind, text in others:
        assert kind == "raised" and "ddphook._errors" in text, text
