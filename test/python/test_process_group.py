# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Process groups of the backend "ddphook": what they reduce, and what Gloo does for them.

The references of reductions are PyTorch's hooks, the NumPy model of encodings and, for other
hooks, a DDP model with `register` whose only gradient is the tensor.
"""

import contextlib
import itertools
import os
import pathlib
import sys
import threading
import types
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import ddphook
import ranks
from test_errors import raised

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "parity"))
import quantization_model  # noqa: E402

SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
SEED = 43
PYTORCHS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}
TYPED = [
    ddphook.Int8(),
    ddphook.Int4(error_feedback=False),
    ddphook.FP8(format=torch.float8_e5m2),
    ddphook.FP16(accumulate=torch.float32),
]
WHOLE_ONLY = [
    ddphook.Wrap("bf16", ddphook.Int8()),
    ddphook.QuantizationPerTensor(),
    ddphook.AllReduceAndUpcast(reduce_dtype=torch.float64),
    ddphook.TopK(density=0.1, error_feedback=False),
    ddphook.Noop(),
]


def group(hook, **options):
    import ddphook.torch

    given = ddphook.torch.Options(hook, **options)
    return dist.new_group(backend="ddphook", pg_options=given)


def random(rank, shape, dtype=torch.float32, seed=SEED):
    generator = torch.Generator().manual_seed(seed * 100 + rank)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).to(dtype)


class Flat(nn.Module):
    """A model whose gradient is its input."""

    def __init__(self, x):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros_like(x))

    def forward(self, x):
        return (self.weight * x).sum()


def mean(hook, x):
    """Returns what a hook makes of a flat tensor in DDP, by other code if there is any."""
    if hook in PYTORCHS:
        bucket = types.SimpleNamespace(buffer=lambda: x.clone())
        return PYTORCHS[hook](None, bucket).wait()
    import ddphook.torch

    model = DistributedDataParallel(Flat(x))
    with ddphook.torch.register(model, hook):
        model(x).backward()
    return model.module.weight.grad


def same(got, expected, what=""):
    __tracebackhide__ = True
    assert got.dtype == expected.dtype and got.shape == expected.shape, what
    wrong = (got != expected).reshape(-1).nonzero().reshape(-1).tolist()
    pairs = [(got.reshape(-1)[n].item(), expected.reshape(-1)[n].item()) for n in wrong[:4]]
    assert not wrong, f"{what}: {len(wrong)} of {got.numel()} elements differ, as {pairs}"


def poisoned(tensor):
    return torch.full_like(tensor, float("nan"))


def _reductions(rank, world):
    print("seed", SEED)
    numbers = itertools.count(SEED)
    for hook in [*PYTORCHS, *TYPED, *WHOLE_ONLY]:
        g = group(hook)
        for dtype in TYPES if hook in PYTORCHS else TYPES[:1]:
            seed = next(numbers)
            what = f"{hook} {dtype} seed {seed}"
            x = random(rank, 70 * world, dtype, seed)
            expected = mean(hook, x)
            y = x.clone()
            dist.all_reduce(y, AVG, group=g)
            same(y, expected, what)
            out = poisoned(x[:70])
            if hook in WHOLE_ONLY:
                with pytest.raises(ddphook.UnsupportedError, match="whole gradients only"):
                    dist.reduce_scatter_tensor(out, x, AVG, group=g)
                continue
            total = x.clone()
            dist.all_reduce(total, group=g)
            if world in (1, 2, 4):
                # No number is subnormal: a division by a power of two is exact.
                same(total / world, expected, what)
            elif hook in PYTORCHS:
                wire = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(hook, dtype)
                sums = x.to(wire, copy=True)
                dist.all_reduce(sums)
                same(total, sums.to(dtype), what)
            for op, reduced in (AVG, expected), (SUM, total):
                same(x, random(rank, 70 * world, dtype, seed), what)
                dist.reduce_scatter_tensor(out, x, op, group=g)
                same(out, reduced.view(world, -1)[rank], what)
                out = poisoned(out)
                dist.reduce_scatter(out, list(x.view(world, -1)), op, group=g)
                same(out, reduced.view(world, -1)[rank], what)
                # Gloo and NCCL also take a part of the input as output.
                inside = x.clone()
                out = inside.view(world, -1)[rank]
                dist.reduce_scatter_tensor(out, inside, op, group=g)
                same(out, reduced.view(world, -1)[rank], what)
        dist.destroy_process_group(g)


@pytest.mark.parametrize(
    "world", [2, *(pytest.param(w, marks=pytest.mark.full("as two ranks")) for w in (1, 3, 4))]
)
def test_reductions(world):
    ranks.run(world, _reductions, world)


def _encodings(rank, world):
    g = group("int8", block_size=64)
    inputs = [random(r, 300 * world) for r in range(world)]
    for op, divisor in (AVG, world), (SUM, 1):
        arrays = [each.numpy() for each in inputs]
        model = quantization_model.reduce_scaled(arrays, "i8", 64, divisor)
        x = inputs[rank].clone()
        dist.all_reduce(x, op, group=g)
        same(x, torch.from_numpy(model))


def test_encodings_are_those_of_the_model():
    ranks.run(3, _encodings, 3)


def _forms(rank):
    """Shapes, strides and lists; each is one flat tensor."""
    g = group("fp16")
    # 0-D, empty, without and with gaps, transposed, of a leaf, a view.
    base = random(rank, (6, 8))
    for x in (
        base[0, 0].clone(),
        torch.empty(0, 3),
        base.clone(),
        base.clone()[:, ::2],
        base.clone().t(),
        base.clone().requires_grad_(),
        nn.Parameter(base.clone()),
        base.clone()[2:4],
    ):
        expected = mean("fp16", x.detach().reshape(-1)).view(x.shape)
        outside = x.detach().untyped_storage().nbytes()
        dist.all_reduce(x.detach(), AVG, group=g)
        same(x.detach(), expected)
        assert x.untyped_storage().nbytes() == outside
    strided = torch.arange(12.0).view(3, 4)
    dist.all_reduce(strided[:, 1], group=g)
    expected = torch.arange(12.0).view(3, 4)
    expected[:, 1] *= 2
    same(strided, expected)  # The elements between do not change.

    # Coalesced tensors are reduced as one.
    pieces = [random(rank, (3, 3), seed=1).t(), torch.empty(0), random(rank, 5, seed=2)]
    flat = torch.cat([piece.reshape(-1) for piece in pieces])
    expected = mean("fp16", flat.clone()).split([9, 0, 5])
    opts = dist.AllreduceCoalescedOptions()
    opts.reduceOp = AVG
    work = g.allreduce_coalesced(pieces, opts)
    assert work.wait() and [each is mine for each, mine in zip(work.result(), pieces)]
    for piece, part in zip(pieces, expected):
        same(piece, part.view(piece.shape))
    doubled = [torch.ones(2), torch.full((3,), 2.0)]
    with dist.distributed_c10d._coalescing_manager(g):
        for tensor in doubled:
            dist.all_reduce(tensor, group=g)
    assert [tensor.tolist() for tensor in doubled] == [[2.0] * 2, [4.0] * 3]

    inputs = [random(rank, (4, 3), seed=3), random(rank, 2, seed=4)]
    outs = [poisoned(inputs[0][:2]).t().contiguous().t(), poisoned(inputs[1][:1])]
    with dist.distributed_c10d._coalescing_manager(g):
        for out, each in zip(outs, inputs):
            dist.reduce_scatter_tensor(out, each, group=g)
    for out, each in zip(outs, inputs):
        total = each.half()
        dist.all_reduce(total)
        same(out, total.float().view(2, *out.shape)[rank])
    # Parts of other sizes, and empty ones.
    parts = [random(rank, 5, seed=5), random(rank, (2, 0), seed=6)]
    out = poisoned(parts[rank])
    dist.reduce_scatter(out, parts, AVG, group=g)
    same(out, [mean("fp16", parts[0].clone()), parts[1]][rank])
    dist.reduce_scatter_tensor(torch.empty(0), torch.empty(0), group=g)

    # All ways to call the methods of the group.
    for call in (
        lambda x: g.allreduce(x),
        lambda x: g.allreduce([x]),
        lambda x: g.allreduce(x, SUM),
        lambda x: g.allreduce([x], op=SUM),
        lambda x: g.allreduce([x], dist.AllreduceOptions()),
        lambda x: g.allreduce(opts=dist.AllreduceOptions(), tensors=[x]),
        lambda x: g.allreduce(tensor=x, op=SUM),
    ):
        x = torch.tensor([1 / 3])
        call(x).wait()
        same(x, (torch.tensor([1 / 3]).half() * 2).float())
    third = torch.tensor([1 / 3])
    for call in (
        lambda out: g.reduce_scatter(out, [third, third]),
        lambda out: g.reduce_scatter([out], [[third, third]], dist.ReduceScatterOptions()),
        lambda out: g.reduce_scatter_single(out, third.repeat(2)),
        lambda out: g._reduce_scatter_base(out, third.repeat(2)),
    ):
        out = poisoned(third)
        call(out).wait()
        same(out, (third.half() * 2).float())
    several = [torch.tensor([1 / 3]), torch.tensor([1.0])]
    g.allreduce(several).wait()  # As Gloo: the sum over both and all ranks, exactly.
    same(several[0], torch.tensor([8 / 3]))


def test_shapes_strides_and_lists():
    ranks.run(2, _forms)


def _everything_else(rank, world):
    """Calls everything else on our group and on Gloo's; returns the tensors of each."""
    mine = dist.new_group(backend="gloo"), group("int4", error_feedback=False)
    results = []
    for g in mine:
        given = [
            torch.arange(6) + rank,
            torch.tensor([rank % 2 == 0, True]),
            torch.complex(random(rank, 4), random(rank + 1, 4)),
            random(rank, 6),
        ]
        seen = []

        def keep(*tensors, seen=seen):
            seen.extend(tensor.clone() for tensor in tensors)

        integers, bools, complexes, floats = given
        dist.all_reduce(integers, group=g)
        dist.all_reduce(complexes, group=g)
        dist.broadcast(bools, 1, group=g)
        keep(integers, complexes, bools)
        for op in dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT:
            x = floats.clone()
            dist.all_reduce(x, op, group=g)
            keep(x)
        x = floats.clone()
        dist.reduce(x, 0, group=g)
        keep(x if rank == 0 else floats)
        x = floats.clone()
        dist.broadcast(x, world - 1, group=g)
        keep(x)
        outs = [poisoned(floats) for _ in range(world)]
        dist.all_gather(outs, floats, group=g)
        keep(*outs)
        out = poisoned(floats.repeat(world))
        dist.all_gather_into_tensor(out, floats, group=g)
        keep(out)
        whole = random(rank, 2 * world)
        out = poisoned(whole)
        dist.all_to_all_single(out, whole, group=g)
        keep(out)
        out = poisoned(whole[:2])
        dist.scatter(out, list(whole.view(world, 2)) if rank == 0 else None, 0, group=g)
        keep(out)
        outs = [poisoned(floats) for _ in range(world)] if rank == 0 else None
        dist.gather(floats, outs, 0, group=g)
        keep(*(outs or []))
        integers = torch.arange(world * 2) + rank
        out = integers[:2] * 0
        dist.reduce_scatter_tensor(out, integers, group=g)
        keep(out)
        after, before = (rank + 1) % world, (rank - 1) % world
        x, y = poisoned(floats), poisoned(floats)
        sent = dist.isend(floats, after, group=g, tag=3)
        dist.recv(x, before, group=g, tag=3)
        sent.wait()
        ops = [dist.P2POp(dist.isend, floats, before, g), dist.P2POp(dist.irecv, y, after, g)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        keep(x, y)
        objects = [None] * world
        dist.all_gather_object(objects, {"rank": rank}, group=g)
        assert objects == [{"rank": each} for each in range(world)]
        dist.barrier(group=g)
        dist.monitored_barrier(group=g)
        results.append(seen)
        assert dist.get_world_size(g) == world and dist.get_rank(g) == rank
    assert dist.get_backend(mine[1]) == "ddphook"
    for got, expected in zip(results[1], results[0], strict=True):
        same(got, expected)
    sparse = torch.full((3, 4), 1 / 3).to_sparse()
    dist.all_reduce(sparse, group=mine[1])
    same(sparse.to_dense(), torch.full((3, 4), 1 / 3) + 1 / 3 + 1 / 3)


def test_everything_else_is_gloos():
    ranks.run(3, _everything_else, 3)


def _works(rank):
    """A call returns before the other rank calls; its work and future tell the rest."""
    store = dist.distributed_c10d._get_default_store()
    g = group("fp16", timeout=300)
    dist.all_reduce(torch.ones(3), group=g)
    x = torch.ones(3)
    if rank == 1:
        store.wait(["go"])
    work = dist.all_reduce(x, group=g, async_op=True)
    after = dist.barrier(group=g, async_op=True)
    if rank == 0:
        assert not work.is_completed() and not work.is_success()
        assert work.exception() is None and not after.is_completed()
        with pytest.raises(ddphook.DeadlineExceededError, match="not ended after 0.05 s"):
            work.wait(timedelta(seconds=0.05))
        store.set("go", "1")
    future = work.get_future()
    chained = future.then(lambda done: done.value()[0] + 1)
    assert work.wait() and work.is_completed() and work.is_success()
    assert future.wait()[0] is x or torch.equal(future.wait()[0], x)
    assert work.result()[0] is x and x.tolist() == [2.0] * 3
    assert chained.wait().tolist() == [3.0] * 3
    assert after.wait() and after.is_completed()
    assert isinstance(work, dist.Work)
    # Many at once, of which nobody waits for most.
    xs = [torch.full((1 + number % 3,), 1.0) for number in range(50)]
    works = [dist.all_reduce(each, group=g, async_op=True) for each in xs]
    works[-1].wait()
    assert all(each.tolist() == [2.0] * each.numel() for each in xs)
    # A callback may wait for another reduction.
    first, second = torch.ones(3), torch.ones(4)

    def reduce_second(done):
        assert done.value()[0] is first
        return dist.all_reduce(second, group=g, async_op=True).get_future().wait()[0]

    future = dist.all_reduce(first, group=g, async_op=True).get_future()
    same(future.then(reduce_second).wait(), torch.full([4], 2.0))
    # One rank's mistake is an error before the reduction, and does not end the job.
    with pytest.raises(ddphook.InvalidArgumentError, match="expanded"):
        dist.all_reduce(torch.ones(1).expand(5), group=g)
    dist.all_reduce(first, group=g)
    same(first, torch.full([3], 4.0))


def test_work_objects():
    ranks.run(2, _works)


def _lifetime(rank):
    """Destroyed groups leave their jobs; a group of one rank; one without this rank."""
    import ddphook.torch

    files = []
    for _ in range(4):
        g = group("bf16")
        dist.all_reduce(torch.ones(3), group=g)
        assert sum(t.name == "ddphook-torch" for t in threading.enumerate()) == 1
        dist.destroy_process_group(g)
        with pytest.raises(ddphook.FailedPreconditionError, match="was destroyed"):
            g.allreduce([torch.ones(3)])
        del g
        for thread in threading.enumerate():
            if thread.name == "ddphook-torch":
                thread.join(60)
        dist.barrier()
        files.append(len(os.listdir("/proc/self/fd")))
    assert files[3] <= files[1], files

    options = ddphook.torch.Options("fp16")
    # Ranks destroy their groups in different orders.
    g, h = (dist.new_group(backend="ddphook", pg_options=options) for _ in range(2))
    for each in g, h:
        dist.all_reduce(torch.ones(3), group=each)
    for each in (g, h) if rank == 0 else (h, g):
        dist.destroy_process_group(each)
    alone = dist.new_group([1], backend="ddphook", pg_options=options)
    x = torch.tensor([1 / 3])
    if rank == 1:
        dist.all_reduce(x, AVG, group=alone)
        same(x, torch.tensor([1 / 3]).half().float())  # One rank casts, too.
        out = torch.zeros(1)
        dist.reduce_scatter_tensor(out, torch.tensor([1 / 3]), group=alone)
        same(out, x)
    else:
        assert alone is dist.GroupMember.NON_GROUP_MEMBER
    # A forked process has the group, but not its job.
    g = dist.new_group(backend="ddphook", pg_options=options)
    dist.all_reduce(torch.ones(3), group=g)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(ddphook.FailedPreconditionError):
            dist.all_reduce(torch.ones(3), group=g)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    dist.all_reduce(x, group=g)
    # close() leaves the job as well; the next reduction joins again.
    ddphook.torch.close()
    dist.all_reduce(x, group=g)


def test_lifetime():
    ranks.run(2, _lifetime)


def test_refused_options(monkeypatch):
    from ddphook.torch import Options
    from ddphook.torch._process_group import _create

    raised(ddphook.InvalidArgumentError, "got None", Options)
    raised(ddphook.InvalidArgumentError, "did you mean 'fp16'", Options, "fp61")
    raised(ddphook.InvalidArgumentError, "'block_size'", Options, "int8", block_size="x")
    raised(ddphook.InvalidArgumentError, "timeout", Options, "int8", timeout=-1)
    for hook, state in (
        (ddphook.PowerSGD(rank=2), "powersgd.error"),
        (ddphook.BatchedPowerSGD(), "powersgd.error"),
        (ddphook.Int4(), "int4.error"),
        (ddphook.TopK(), "topk.error"),
        (ddphook.Int8(error_feedback=True), "int8.error"),
        (ddphook.Int8(rounding="stochastic"), "rounding.iter"),
        (ddphook.PostLocalSGD(), "keeps"),
    ):
        raised(ddphook.UnsupportedError, state, Options, hook)
        raised(ddphook.UnsupportedError, "use ddphook.torch.register", Options, hook)
    with monkeypatch.context() as patch:
        patch.delattr(dist.ProcessGroup, "reduce_scatter_single")
        raised(ddphook.UnsupportedError, "expected PyTorch 2.15", _create, None, None)
    raised(ddphook.UnsupportedError, "no names", Options, "fp16", exempt="bias")
    from torch.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks

    state = optimizer_overlap_hooks._OptimizerHookState(types.SimpleNamespace(step_param=None))
    both = optimizer_overlap_hooks._hook_then_optimizer(default_hooks.allreduce_hook, state)
    raised(ddphook.UnsupportedError, "an optimizer in the hook", Options, both)
    assert Options(default_hooks.fp16_compress_hook).hook == Options("fp16").hook
    assert repr(Options(ddphook.FP16)) == "<ddphook.torch.Options: hook=fp16>"


def _refused_groups(rank):
    import ddphook.torch

    new = dist.new_group
    gloos = dist.ProcessGroupGloo._Options()
    raised(ddphook.InvalidArgumentError, "pg_options", new, backend="ddphook", pg_options=gloos)
    g = new(backend="ddphook")  # Without options, it compresses nothing.
    x = torch.tensor([1 / 3])
    dist.all_reduce(x, group=g)
    same(x, torch.tensor([2 / 3]))
    raised(ddphook.UnsupportedError, "cannot be split", g.split_group, [0])
    wrong = torch.zeros(3)
    with pytest.raises((RuntimeError, ValueError)):  # PyTorch's own check.
        dist.reduce_scatter_tensor(wrong, torch.zeros(4), group=g)
    # Ranks with other options, and a rank that is missing.
    with pytest.raises(ddphook.PlanMismatchError, match="rank 1 has 'hook=int8'"):
        group(["fp16", "int8"][rank], timeout=60)
    if rank == 0:
        with pytest.raises(ddphook.DeadlineExceededError, match="rank 1"):
            group("fp16", timeout=1)
    else:
        new([0])  # Counts the groups as rank 0 does.
    # Tensors of other sizes.
    g = group("fp16", timeout=30)
    with pytest.raises(ddphook.PlanMismatchError):
        dist.all_reduce(torch.zeros(3 + rank), group=g)
    with pytest.raises(ddphook.Error):
        dist.all_reduce(torch.zeros(3), group=g)
    work = dist.all_reduce(torch.zeros(3), group=g, async_op=True)
    with pytest.raises(RuntimeError, match="PlanMismatchError"):
        work.get_future().wait()
    assert work.is_completed() and not work.is_success()
    assert isinstance(work.exception(), ddphook.PlanMismatchError)


def test_refused_groups():
    ranks.run(2, _refused_groups)


def _lost(rank):
    g = group("int8", timeout=20)
    x = torch.ones(1000)
    dist.all_reduce(x, group=g)
    if rank == 1:
        os._exit(7)
    for _ in range(2):
        dist.all_reduce(x, group=g)


def test_a_lost_rank():
    results = ranks.collect(3, _lost)
    assert results.pop(1) == ("died", 7)
    for kind, text in results:
        assert kind == "raised" and "PeerLostError" in text, text
