# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reduce-scatters under torch.compile: graphs, and models in SimpleFSDP's style.

Graphs are compared with the models of sharded_model, which has no code in common with the
package, and models in SimpleFSDP's style with the same ones in FSDP2 with a hook.
"""

import random

import numpy as np
import pytest
import ranks
import sharded_model as sharded
import torch
import torch.distributed as dist
from sharded_model import Codes
from test_sharded import HOOKS
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import ddphook
import ddphook.torch

STEPS = 4
# 2, 3 and 4 divide the numbers of rows.
SHAPES = [(12, 5), (24,), (12, 3, 2)]


def ops():
    return torch.ops._c10d_functional


def scattered(tensor, kind="avg", group="0"):
    world = dist.distributed_c10d._resolve_process_group(group).size()
    return ops().wait_tensor(ops().reduce_scatter_tensor(tensor, kind, world, group))


def reduced(tensor, kind="avg", group="0"):
    return ops().wait_tensor(ops().all_reduce(tensor, kind, group))


def gradients_of(rank, step):
    generator = torch.Generator().manual_seed(1000 * sharded.SEED + 10 * step + rank)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def scatter_some(first, *others):
    """Reduces one gradient alone, and others in a coalesced call."""
    world = dist.get_world_size()
    both = ops().reduce_scatter_tensor_coalesced(list(others), "avg", world, "0")
    return [scattered(first), *map(ops().wait_tensor, both)]


def rewritten(step, inputs, **given):
    """Returns the graph of a step, rewritten for these arguments of compile."""
    from ddphook.torch import _backend, _graph

    pass_ = _backend.make_pass(timeout=120, **given)
    graph = make_fx(step, tracing_mode="fake")(*inputs)
    how = pass_.pipeline, pass_.timeout_s, pass_.bucket_bytes, str(given), None
    assert _graph.rewrite(graph.graph, *how, pass_.shard_pipeline) > 0
    graph.recompile()
    return graph


def run_graphs(rank):
    print(f"seed {sharded.SEED}")
    world = dist.get_world_size()
    for given, modelled in HOOKS:
        hook, state = modelled(), None
        graph = rewritten(scatter_some, gradients_of(rank, 0), **given)
        for step in range(STEPS):
            if step == STEPS // 2:
                state = ddphook.torch.state_dict()
            inputs = gradients_of(rank, step)
            got = graph(*inputs)
            every = [[g.numpy() for g in gradients_of(each, step)] for each in range(world)]
            assert all(map(np.array_equal, inputs, every[rank])), "a gradient was changed"
            mean = hook.reduce(0, [sharded.flat(arrays, world) for arrays in every])
            wholes = sharded.unflat(mean, every[0], world)
            wanted = [np.split(whole, world)[rank] for whole in wholes]
            assert all(map(np.array_equal, got, wanted)), (rank, given, step)
        ddphook.torch.close()
        # Resumes.
        ddphook.torch.load_state_dict(state)
        graph(*gradients_of(rank, STEPS // 2))
        again = graph(*gradients_of(rank, STEPS - 1))
        assert all(map(torch.equal, got, again)), (rank, given)
        ddphook.torch.close()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_graphs_compute_what_the_model_computes(world):
    ranks.run(world, run_graphs)


def random_graphs(rank):
    """Runs random graphs over two process groups, as they are and rewritten."""
    groups = ["0", dist.new_group([0, 1]).group_name]
    for seed in range(12):
        draw = random.Random(sharded.SEED + seed)

        def step(*inputs):
            values = list(inputs)
            for _ in range(10):
                a, b = draw.choices(values[-6:], k=2)
                value = a / 4 + b
                reduce = draw.choice([reduced, reduced, scattered, None])
                if reduce is not None:
                    value = reduce(value, draw.choice(["avg", "sum"]), draw.choice(groups))
                if reduce is scattered:
                    value = torch.cat([value, value / 2])
                values.append(value)
            return values

        inputs = gradients_of(rank, seed)[1:2] * 2
        plain = make_fx(step, tracing_mode="fake")(*inputs)
        draw = random.Random(sharded.SEED + seed)
        graph = rewritten(step, inputs, hook="allreduce", bucket_cap_mb=[1e-6, 1][seed % 2])
        for got, want in zip(graph(*inputs), plain(*inputs), strict=True):
            assert torch.equal(got, want), (rank, seed)
        ddphook.torch.close()


def test_random_graphs():
    print(f"seed {sharded.SEED}")
    ranks.run(2, random_graphs)


class Plain(nn.Module):
    """One gradient for each of FSDP2's parameter groups. 33 rows are uneven."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(sharded.SEED)
        self.first = nn.Linear(16, 33, bias=False)
        self.second = nn.Linear(33, 8, bias=False)

    def forward(self, x):
        return self.second(self.first(x).relu())


def with_dtensor(shard, _):
    """Gathers a parameter as SimpleFSDP does. On two dimensions, DTensor reduces between
    replicas first."""
    from torch.distributed.tensor import Partial, Replicate

    count = shard.device_mesh.ndim
    whole = shard.redistribute(placements=[Replicate()] * count)
    return whole.to_local(grad_placements=[Partial("avg")] * count)


class Gather(torch.autograd.Function):
    """Gathers a parameter, and reduces its gradient between shards first, as FSDP2 does."""

    @staticmethod
    def forward(ctx, part, rows, groups):
        *_, (group, size) = ctx.groups = groups
        ctx.given = rows, len(part), -(-rows // size)
        part = torch.cat([part, part.new_zeros(ctx.given[2] - len(part), *part.shape[1:])])
        whole = ops().wait_tensor(ops().all_gather_into_tensor(part, size, group))
        return whole[:rows].clone()

    @staticmethod
    def backward(ctx, gradient):
        *replicas, (group, size) = ctx.groups
        rows, own, height = ctx.given
        below = gradient.new_zeros(size * height - rows, *gradient.shape[1:])
        part = ops().reduce_scatter_tensor(torch.cat([gradient, below]), "avg", size, group)
        part = ops().wait_tensor(part)
        for group, _ in replicas:
            part = ops().wait_tensor(ops().all_reduce(part, "avg", group))
        return part[:own].clone(), None, None


def with_function(shard, groups):
    return Gather.apply(shard.to_local(), len(shard), groups)


def _read(name, gather, groups):
    return property(lambda module: gather(module._parameters[name], groups))


def simple_fsdp(net, mesh, gather=with_dtensor):
    """Shards a model as SimpleFSDP does: whoever reads a parameter gathers it, and the
    backward pass reduces its gradient."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    placements = [*[Replicate()] * (mesh.ndim - 1), Shard(0)]
    groups = [(group.group_name, group.size()) for group in mesh.get_all_groups()]
    for module in list(net.modules()):
        names = [name for name, _ in module.named_parameters(recurse=False)]
        for name in names:
            shard = distribute_tensor(module._parameters[name], mesh, placements)
            module.register_parameter(name, nn.Parameter(shard))
        made = {name: _read(name, gather, groups) for name in names}
        module.__class__ = type(type(module).__name__, (type(module),), made)
    return net


def compiled(net, compile_=None, fullgraph=True, **given):
    """Adds the compiled model to a model."""
    torch._dynamo.reset()
    ranks.use_pytorchs_kernels()
    compile_ = compile_ or ddphook.torch.compile
    net.compiled = [compile_(net, fullgraph=fullgraph, **given)]
    return net


def train(net, steps=STEPS):
    optimizer = torch.optim.SGD(net.parameters(), lr=sharded.RATE)
    for step in range(steps):
        optimizer.zero_grad()
        net.compiled[0](sharded.batch(step, dist.get_rank())).square().sum().backward()
        optimizer.step()


def same_as_fsdp(rank, shape, cases, gather):
    """Compares models in SimpleFSDP's style with FSDP2, which reduces the same arrays."""
    print(f"seed {sharded.SEED}")
    for given in cases:
        eager = sharded.sharded(shape, Plain())
        with ddphook.torch.register(eager, timeout=120, **given):
            sharded.train(eager, STEPS)
        if len(shape) > 1:
            given = {"shard_hook": "allreduce", **given}
        net = simple_fsdp(Plain(), sharded.mesh_of(shape), gather)
        train(compiled(net, bucket_cap_mb=1e-6, timeout=120, **given))
        different = sharded.difference(sharded.values(net), sharded.values(eager))
        assert not different, (rank, given, different)
        ddphook.torch.close()


SOME = [dict(hook="fp16"), dict(hook="int4")]
EVERY = [given for given, _ in HOOKS]


@pytest.mark.parametrize(
    "world, cases",
    [
        pytest.param(2, SOME, id="some"),
        pytest.param(2, EVERY, id="every", marks=pytest.mark.full("compiles seven models")),
        pytest.param(4, EVERY, id="four", marks=pytest.mark.full("as two ranks")),
    ],
)
def test_simple_fsdp_computes_what_fsdp_computes(world, cases):
    ranks.run(world, same_as_fsdp, (world,), cases, with_dtensor)


AS_BELOW = pytest.mark.full("as the last one")
BETWEEN = [
    pytest.param(dict(hook="int8"), marks=AS_BELOW),
    pytest.param(dict(hook="fp16", shard_hook=ddphook.Int4()), marks=AS_BELOW),
    dict(hook="int4", shard_hook="bf16"),
]


@pytest.mark.parametrize("given", BETWEEN)
def test_shards_are_reduced_before_replicas(given):
    ranks.run(4, same_as_fsdp, (2, 2), [given], with_function)


def replicas_first(rank):
    """On two dimensions, DTensor reduces whole gradients between replicas first."""
    hook, shard_hook = Codes("int4", feeds_back=True), Codes("int8")
    alone = Plain()
    parameters = dict(alone.named_parameters())
    optimizer = torch.optim.SGD(alone.parameters(), lr=sharded.RATE)
    for step in range(STEPS):
        gradients = []
        for each in range(4):
            optimizer.zero_grad()
            sharded.loss(alone, step, each).backward()
            gradients.append({n: p.grad.numpy().copy() for n, p in parameters.items()})
        for name, parameter in parameters.items():
            arrays = []
            for shard in range(2):
                mine = [gradients[each][name].reshape(-1) for each in (shard, 2 + shard)]
                mean = hook.reduce((name, shard), mine).reshape(parameter.shape)
                arrays.append(sharded.flat([mean], 2))
            whole = sharded.unflat(shard_hook.reduce(name, arrays), [mean], 2)
            parameter.grad = torch.from_numpy(whole[0].copy())
        optimizer.step()
    net = simple_fsdp(Plain(), sharded.mesh_of((2, 2)))
    train(compiled(net, bucket_cap_mb=1e-6, hook="int4", shard_hook="int8", timeout=120))
    assert not sharded.difference(sharded.values(net), sharded.values(alone))
    ddphook.torch.close()


@pytest.mark.full("compiles what the test above does, in the other order")
def test_replicas_are_reduced_before_shards():
    ranks.run(4, replicas_first)


def in_one_bucket(rank):
    """Trains a model whose gradients are in one bucket for each dimension of the mesh."""
    from ddphook.torch import _session

    want = sharded.modelled((2, 2), STEPS, Codes("bf16"), Codes("fp16"))
    mesh = sharded.mesh_of((2, 2))
    net = simple_fsdp(sharded.Net(), mesh, with_function)
    train(compiled(net, hook="bf16", shard_hook="fp16", timeout=120))
    assert not sharded.difference(sharded.values(net), want)
    for group in mesh.get_all_groups():
        session = _session.session_of(group.group_name, 120.0)
        assert ranks.counters_of(session)["steps"] == STEPS
    ddphook.torch.close()


def test_a_bucket_for_each_dimension():
    ranks.run(4, in_one_bucket)


def powersgd(rank):
    options = dict(start_powerSGD_iter=2, matrix_approximation_rank=1, timeout=120)
    mesh = sharded.mesh_of((2, 2))
    net = simple_fsdp(sharded.Net(), mesh, with_function)
    with pytest.raises(Exception) as caught:
        train(compiled(net, hook="powersgd", **options), 1)
    error, texts = caught.value, []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    assert any("a reduce-scatter cannot have this hook" in text for text in texts), texts
    assert any("give 'shard_hook'" in text for text in texts), texts
    # Between replicas, PowerSGD compresses the rows of a shard.
    net = simple_fsdp(sharded.Net(), mesh, with_function)
    train(compiled(net, hook="powersgd", shard_hook="allreduce", **options), 6)
    exact = sharded.modelled((2, 2), 6, Codes("allreduce"), Codes("allreduce"))
    assert sharded.difference(sharded.values(net), exact)
    ddphook.torch.close()


def test_powersgd_is_refused_between_shards():
    ranks.run(4, powersgd)


def fsdp(rank):
    """FSDP2's reductions are not in graphs: `register` gives them hooks."""
    want = sharded.modelled((2,), STEPS, Codes("int8"))
    for compiles_first in (False, True):
        net = sharded.sharded((2,))
        with pytest.raises(ddphook.UnsupportedError, match="ddphook.torch.register"):
            ddphook.torch.compile(net, hook="int8")
        if compiles_first:
            compiled(net, torch.compile, fullgraph=False)
        whole = net.compiled[0] if compiles_first else net
        with ddphook.torch.register(whole, "int8", timeout=120) as handle:
            if not compiles_first:
                compiled(net, torch.compile, fullgraph=False)
            train(net)
            assert handle.statistics()["wire_bytes"] > 0
        assert not sharded.difference(sharded.values(net), want)


def test_a_model_of_fsdp_in_torch_compile():
    ranks.run(2, fsdp)


def group_with_a_hook(rank):
    """A process group's own hook stays."""
    from torch.distributed.device_mesh import init_device_mesh

    given = dict(hook="int8", error_feedback=False)
    want = sharded.sharded((2,), Plain())
    with ddphook.torch.register(want, timeout=120, **given):
        sharded.train(want, STEPS)
    override = {0: ("ddphook", ddphook.torch.Options(**given))}
    mesh = init_device_mesh("cpu", (2,), backend_override=override)
    for compile_ in (torch.compile, ddphook.torch.compile):
        net = compiled(simple_fsdp(Plain(), mesh), compile_)
        train(net)
        assert not sharded.difference(sharded.values(net), sharded.values(want))
    ddphook.torch.close()


def test_a_process_group_with_a_hook():
    ranks.run(2, group_with_a_hook)
