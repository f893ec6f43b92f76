# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks of sharded models: FSDP2 on one- and two-dimensional meshes, and replicate.

Every rank compares its parameters, after several steps, with those of sharded_model,
which has no code in common with the package.
"""

import gc
import os
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddphook
import ddphook.torch
import ranks
import sharded_model as sharded
from sharded_model import Codes, Exempt, Net, PowerSGD

STEPS = 4
# The hooks as given to register, and as modelled.
HOOKS = [
    (dict(hook="allreduce"), lambda: Codes("allreduce")),
    (dict(hook="fp16"), lambda: Codes("fp16")),
    (dict(hook="bf16"), lambda: Codes("bf16")),
    (dict(hook=ddphook.FP16(accumulate=torch.float32)), lambda: Codes("fp16", "f32")),
    (dict(hook="int8"), lambda: Codes("int8")),
    (dict(hook="int4"), lambda: Codes("int4", feeds_back=True)),
    (dict(hook="fp8", error_feedback=True), lambda: Codes("fp8", feeds_back=True)),
]
EXEMPT = [
    (
        dict(hook="int4", exempt="bias", exempt_hook="bf16"),
        lambda: Exempt("bias", Codes("int4", feeds_back=True), Codes("bf16")),
    ),
    (
        dict(hook="int8", exempt="scale"),
        lambda: Exempt("scale", Codes("int8"), Codes("allreduce")),
    ),
]
BETWEEN = [
    *HOOKS,
    (dict(hook="int4", shard_hook="bf16"), lambda: Codes("int4", feeds_back=True)),
    (dict(hook="quantization_pertensor"), lambda: Codes("quantization_pertensor")),
]


LISTS = {"scatter": HOOKS + EXEMPT, "between": BETWEEN, "replicate": HOOKS[:6]}


def _replicate():
    from torch.distributed._composable.replicate_with_fsdp import replicate

    return replicate


def _same_bits(rank, shape, which):
    print(f"seed {sharded.SEED}")
    is_replicate = which == "replicate"
    for given, modelled in LISTS[which]:
        net = sharded.sharded(shape, shard=_replicate() if is_replicate else None)
        with ddphook.torch.register(net, timeout=120, **given) as handle:
            sharded.train(net, STEPS)
            assert handle.statistics()["wire_bytes"] > 0
        shard_hook = Codes(given.get("shard_hook", "allreduce"))
        want = sharded.modelled(
            (*shape, 1) if is_replicate else shape, STEPS, modelled(), shard_hook
        )
        different = sharded.difference(sharded.values(net), want)
        assert not different, (rank, given, different)


@pytest.mark.parametrize("world", [2, 4])
def test_reduce_scatters_compute_what_the_model_computes(world):
    ranks.run(world, _same_bits, (world,), "scatter")


def test_reductions_between_replicas_compute_what_the_model_computes():
    ranks.run(4, _same_bits, (2, 2), "between")


def test_replicate_computes_what_the_model_computes():
    ranks.run(2, _same_bits, (2,), "replicate")


def _powersgd(rank):
    options = dict(start_powerSGD_iter=2, matrix_approximation_rank=1)
    net = sharded.sharded((2, 2))
    with ddphook.torch.register(net, "powersgd", timeout=120, **options):
        sharded.train(net, 6)
    want = sharded.modelled((2, 2), 6, PowerSGD(**options), Codes("allreduce"))
    exact = sharded.modelled((2, 2), 6, Codes("allreduce"), Codes("allreduce"))
    got = sharded.values(net)
    for name, value in want.items():
        # The model rounds products once, from double precision.
        assert np.allclose(got[name], value, rtol=1e-4, atol=1e-5), name
    for name in "first.weight", "second.weight":
        assert not np.allclose(got[name], exact[name], rtol=1e-4, atol=1e-5), name


def test_powersgd_compresses_the_matrices_of_a_shard():
    ranks.run(4, _powersgd)


def _one_rank(rank):
    net, plain = sharded.sharded((1,)), sharded.sharded((1,))
    with ddphook.torch.register(net, "int4") as handle:
        sharded.train(net, 2)
        assert handle.statistics()["steps"] == 0
    sharded.train(plain, 2)
    assert not sharded.difference(sharded.values(net), sharded.values(plain))


def test_one_shard_has_nothing_to_reduce():
    ranks.run(1, _one_rank)


class Branches(Net):
    """Uses one parameter in every other step only."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        y = self.second(self.first(x).relu())[:, :5]
        return y @ self.scale if self.calls % 2 else y


class Tied(Net):
    """Two modules of the outermost group share a weight."""

    def __init__(self):
        super().__init__()
        self.again = nn.Linear(16, 33, bias=False)
        self.third = nn.Linear(16, 33, bias=False)
        self.third.weight = self.again.weight

    def forward(self, x):
        return super().forward(x) + (self.again(x) * self.third(x))[:, :3]


def _plain_step(net, step, optimizer):
    optimizer.zero_grad()
    sharded.loss(net, step, dist.get_rank()).backward()


def _without_communication(net, step, optimizer):
    optimizer.zero_grad()
    net.set_requires_gradient_sync(False)
    sharded.loss(net, step, dist.get_rank()).backward()
    net.set_requires_gradient_sync(True)
    sharded.loss(net, step + 100, dist.get_rank()).backward()


def _within_shards(net, step, optimizer):
    optimizer.zero_grad()
    net.set_requires_all_reduce(False)
    sharded.loss(net, step, dist.get_rank()).backward()
    net.set_requires_all_reduce(True)
    sharded.loss(net, step + 100, dist.get_rank()).backward()


def _accumulated(net, step, optimizer):
    _plain_step(net, step, optimizer)
    sharded.loss(net, step + 100, dist.get_rank()).backward()


def _each(change):
    def apply(net):
        from torch.distributed.fsdp import FSDPModule

        for module in net.modules():
            if isinstance(module, FSDPModule):
                change(module)

    return apply


def _freeze(net):
    for parameter in [net.first.bias, *net.second.parameters()]:
        parameter.requires_grad_(False)


def _update_in_backward(net):
    def update(parameter):
        with torch.no_grad():
            parameter.sub_(parameter.grad, alpha=0.01)

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)


def _wrap(net):
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper

    net.first = checkpoint_wrapper.checkpoint_wrapper(net.first)
    return net


def _columns(parameter):
    from torch.distributed.tensor import Shard

    return Shard(1) if parameter.dim() > 1 and parameter.shape[1] % 4 == 0 else None


def _precision(**given):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return dict(mp_policy=MixedPrecisionPolicy(**given))


def _offload():
    from torch.distributed.fsdp import CPUOffloadPolicy

    return dict(offload_policy=CPUOffloadPolicy(pin_memory=False))


# The model, the options of fully_shard, a change of the sharded model, and a step.
SETTINGS = {
    "as it is": (Net, dict, None, _plain_step),
    "bf16, reduced in f32": (
        Net,
        lambda: _precision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        None,
        _accumulated,
    ),
    "reduced in bf16": (Net, lambda: _precision(reduce_dtype=torch.bfloat16), None, _accumulated),
    "reduced in f16": (Net, lambda: _precision(reduce_dtype=torch.float16), None, _plain_step),
    "reduced in f64": (Net, lambda: _precision(reduce_dtype=torch.float64), None, _plain_step),
    "not resharded": (Net, lambda: dict(reshard_after_forward=False), None, _accumulated),
    "offloaded": (Net, _offload, None, _plain_step),
    "columns": (Net, lambda: dict(shard_placement_fn=_columns), None, _plain_step),
    "checkpointed": (lambda: _wrap(Net()), dict, None, _plain_step),
    "frozen": (Net, dict, _freeze, _plain_step),
    "tied": (Tied, dict, None, _plain_step),
    "branches": (Branches, dict, None, _accumulated),
    "sums": (Net, dict, _each(lambda m: m.set_force_sum_reduction_for_comms(True)), _plain_step),
    "two buffers": (
        Net,
        dict,
        _each(lambda m: m.set_reduce_scatter_max_input_buffers(2)),
        _plain_step,
    ),
    "user's hook": (
        Net,
        dict,
        _each(lambda m: m.set_all_reduce_hook(lambda tensor: tensor.mul_(0.5))),
        _plain_step,
    ),
    "updated in backward": (Net, dict, _update_in_backward, _plain_step),
    "accumulated": (Net, dict, None, _accumulated),
    "no communication": (Net, dict, None, _without_communication),
    "within shards": (Net, dict, None, _within_shards),
}


def _setting(shape, name, hook, factor=None, lr=sharded.RATE):
    make, options, change, step = SETTINGS[name]
    net = sharded.sharded(shape, make(), **options())
    if change is not None:
        change(net)
    if factor is not None:
        _each(lambda module: module.set_gradient_divide_factor(factor))(net)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=lr)
    handle = hook and ddphook.torch.register(net, hook, timeout=120)
    for number in range(3):
        step(net, number, optimizer)
        optimizer.step()
    if handle:
        assert handle.statistics()["steps"] > 0
        handle.close()
    return sharded.values(net)


def _settings(rank, shape):
    for name in SETTINGS:
        got = _setting(shape, name, "allreduce")
        want = _setting(shape, name, None)
        different = sharded.difference(got, want)
        assert not different, (name, different)
    # Gloo cannot multiply first, as a divisor of the user's demands.
    world = dist.get_world_size()
    got = _setting(shape, "as it is", "allreduce", factor=2.0 * world)
    want = _setting(shape, "as it is", None, lr=sharded.RATE / 2)
    assert not sharded.difference(got, want)


@pytest.mark.parametrize(
    "shape", [(2,), pytest.param((2, 2), marks=pytest.mark.full("fifteen settings on four ranks"))]
)
def test_an_exact_hook_changes_nothing(shape):
    ranks.run(int(np.prod(shape)), _settings, shape)


def _several_meshes(rank):
    from torch.distributed.fsdp import fully_shard

    flat, nested = sharded.mesh_of((4,)), sharded.mesh_of((2, 2))

    def trained(hook):
        net = Net()
        fully_shard(net.first, mesh=flat, reshard_after_forward=2)
        fully_shard(net.second, mesh=nested)
        fully_shard(net, mesh=nested)
        with ddphook.torch.register(net, hook, timeout=120) if hook else nullcontext() as handle:
            sharded.train(net, 3)
            if handle:
                # One reduction of `first`, and two of each other group, in each step.
                assert handle.statistics()["steps"] == 3 * 5
        return sharded.values(net)

    want = trained(None)
    got = trained("allreduce")
    for name, value in want.items():
        # Gloo adds four ranks in another order.
        assert np.allclose(got[name], value, rtol=1e-5, atol=1e-6), name
    assert sharded.difference(trained("int8"), want)


def test_groups_on_several_meshes():
    ranks.run(4, _several_meshes)


class Parallel(nn.Module):
    """Has parameters of which tensor parallelism copies `down.bias` and `norm`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(sharded.SEED)
        self.up, self.down, self.norm = nn.Linear(16, 32), nn.Linear(32, 6), nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(self.down(self.up(x).relu()))


def _tensor_parallel(rank, given, copied):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import parallel

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
    net = fully_shard(parallel.parallelize_module(Parallel(), mesh["tensor"], plan), mesh=mesh["data"])
    if copied:
        refused = pytest.raises(ddphook.UnsupportedError, match=f"'{copied}': tensor parallelism")
        with refused:
            ddphook.torch.register(net, timeout=120, **given)
        return
    target = torch.randn(4, 6, generator=torch.Generator().manual_seed(sharded.SEED))
    with ddphook.torch.register(net, timeout=120, **given):
        optimizer = torch.optim.SGD(net.parameters(), lr=sharded.RATE)
        for step in range(4):
            optimizer.zero_grad()
            x = sharded.batch(step, mesh["data"].get_local_rank())
            (net(x) - target).square().sum().backward()
            optimizer.step()
    for parameter in net.down.bias, *net.norm.parameters():
        mine = parameter.to_local().detach()
        copies = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(copies, mine, group=mesh["tensor"].get_group())
        assert torch.equal(*copies)


@pytest.mark.parametrize(
    "given, copied",
    [
        (dict(hook="bf16", gather_hook="bf16"), ""),
        (dict(hook="int4", exempt="bias|norm"), ""),
        (dict(hook="int4", exempt="bias"), "norm.weight"),
        (dict(hook="fp16", gather_hook="int8"), "down.bias"),
    ],
)
def test_copies_of_tensor_parallelism_stay_equal(given, copied):
    ranks.run(4, _tensor_parallel, given, copied)


def _overlap(rank, shape):
    net, plain = sharded.sharded(shape), sharded.sharded(shape)
    handle = ddphook.torch.register(net, "allreduce", timeout=120)
    reached, seen = threading.Event(), []
    for job in handle._jobs.values():
        job.worker.post(lambda: seen.append(reached.wait(60)))

    def watch(module, inputs, output):
        output.register_hook(lambda gradient: reached.set())

    net.first.register_forward_hook(watch)
    for each in net, plain:
        sharded.loss(each, 0, rank).backward()
    # The gradients of `second` were not waited for.
    assert seen == [True] * len(shape)
    for parameter, other in zip(net.parameters(), plain.parameters()):
        assert torch.equal(parameter.grad.to_local(), other.grad.to_local())
    handle.close()


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_the_backward_pass_goes_on_during_reductions(shape):
    ranks.run(int(np.prod(shape)), _overlap, shape)


def _refused(rank):
    from torch.distributed._composable import replicate
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    def check(net, error, match, **given):
        with pytest.raises(error, match=match):
            ddphook.torch.register(net, timeout=120, **given)

    unsupported, invalid = ddphook.UnsupportedError, ddphook.InvalidArgumentError
    early = ddphook.FailedPreconditionError
    net = sharded.sharded((2,))
    whole = "between shards: .*reduces whole gradients only.*; use it between replicas"
    for hook in "powersgd", "topk", "noop", "quantization_pertensor", "batched_powersgd":
        check(net, unsupported, "(?s)" + whole, hook=hook)
    check(net, unsupported, "(?s)" + whole, hook="fp16", wrapper="bf16")
    check(net, unsupported, "topology='flat'", hook="int8", topology="hierarchical")
    check(net, invalid, "replicas and shards", hook="int8", shard_hook="int8")
    check(net, invalid, "matches none", hook="int8", exempt="conv")
    check(net, invalid, "fp61", hook="fp61")
    check(net, unsupported, "post_local_sgd", hook="post_local_sgd")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    check(net, unsupported, r"optimizer\.step", hook="int8", optimizer=optimizer)
    check(nn.Linear(2, 2), invalid, "sharded model", hook="int8", shard_hook="int8")
    group = dist.group.WORLD
    check(net, unsupported, "mesh gives", hook="allreduce", state=group)
    check(replicate(nn.Linear(2, 2)), unsupported, "replicate_with_fsdp", hook="int8")
    older = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))
    check(nn.Sequential(older), unsupported, "fully_shard", hook="int8")

    complex_ = sharded.sharded((2,), nn.Sequential(nn.Linear(4, 4, dtype=torch.complex64)))
    check(complex_, unsupported, "parameter '0.weight': .*complex64", hook="allreduce")
    frozen = sharded.sharded((2,), Net().requires_grad_(False))
    check(frozen, invalid, "parameters to train", hook="allreduce")
    own = sharded.sharded((2,))
    own.set_custom_reduce_scatter(object())
    check(own, early, "reduce-scatter of its own", hook="int8")

    handle = ddphook.torch.register(net, "int8", timeout=120)
    check(net, early, "has a hook already", hook="int8")
    sharded.train(net, 1)
    handle.close()
    handle.close()
    with pytest.raises(early, match="was closed"):
        handle.statistics()
    sharded.train(net, 1)
    with ddphook.torch.register(net, "fp16", timeout=120) as handle:
        sharded.train(net, 1)
        assert handle.statistics()["steps"] == 3
        shown = "hook=fp16, rank %d of 2, a mesh of 2, 5 parameters, 3 parameter groups"
        assert shown % rank in repr(handle)
    assert repr(handle).endswith(", closed>")
    with ddphook.torch.register(net, "fp16", timeout=120):
        net.set_all_reduce_hook(lambda tensor: None)
        with pytest.raises(early, match="replaced after the hook"):
            sharded.train(net, 1)
    part = nn.Sequential(nn.Linear(16, 4), nn.Linear(4, 4))
    mesh = sharded.mesh_of((2,))
    fully_shard(part[0], mesh=mesh)
    with ddphook.torch.register(part, "fp16", timeout=120):
        fully_shard(part, mesh=mesh)
        with pytest.raises(early, match="call fully_shard before register"):
            sharded.train(part, 1)


def test_what_is_refused():
    ranks.run(2, _refused)


def _mismatch(rank):
    is_odd = rank == 3
    net = sharded.sharded((2, 2))
    for given in dict(hook="int4" if is_odd else "int8"), dict(
        hook="int8", shard_hook="fp16" if is_odd else None
    ):
        with pytest.raises(ddphook.PlanMismatchError, match="has the hooks .* but rank 3"):
            ddphook.torch.register(net, timeout=120, **given)
    net = sharded.sharded((2, 2), Tied() if is_odd else Net())
    with pytest.raises(ddphook.PlanMismatchError, match="but rank 3 has '6 parameters"):
        ddphook.torch.register(net, "int8", timeout=120)


def test_ranks_that_differ():
    ranks.run(4, _mismatch)


def _lost(rank, shape):
    net = sharded.sharded(shape)
    ddphook.torch.register(net, "int8", timeout=120)
    sharded.train(net, 2)
    if rank == dist.get_world_size() - 1:
        net.first.register_full_backward_hook(lambda *_: os._exit(9))
    sharded.train(net, 2)


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_a_lost_rank_is_an_error_on_the_others(shape):
    *others, lost = ranks.collect(int(np.prod(shape)), _lost, shape)
    assert lost == ("died", 9)
    for kind, text in others:
        assert kind == "raised", text
        assert "ddphook._errors" in text or "RuntimeError" in text, text


def _collected(rank):
    for _ in range(2):
        net = sharded.sharded((2,))
        ddphook.torch.register(net, "int4", timeout=120)
        sharded.train(net, 1)
    del net
    # Threads of models that are gone leave their jobs. One that has just ended a task may
    # refer to it for a moment longer.
    for thread in threading.enumerate():
        while thread.name == "ddphook-torch" and thread.is_alive():
            gc.collect()
            thread.join(0.1)


def test_a_model_that_is_gone_leaves_its_job():
    ranks.run(2, _collected)
