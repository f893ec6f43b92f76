# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs before and after the pass of the backend "ddphook".

Graphs are traced for three ranks that do not exist; test_compile.py runs them.
"""

import logging
from urllib.parse import unquote

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from ddphook._errors import InvalidArgumentError, UnsupportedError
from ddphook.torch import _backend, _graph

RANKS = 3
_ops = torch.ops._c10d_functional


def join(world):
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())


@pytest.fixture(scope="module", autouse=True)
def ranks():
    join(RANKS)
    yield
    dist.destroy_process_group()


def traced(step, *shapes, dtype=torch.float32):
    """Returns the functional graph of a step on tensors of these shapes."""
    inputs = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    return make_fx(step, tracing_mode="fake")(*inputs).graph


def rewritten(step, *shapes, dtype=torch.float32, **options):
    """Returns the number of replaced reductions, and the graph's calls."""
    graph = traced(step, *shapes, dtype=dtype)
    count = _graph.rewrite(graph, "hook=fp16", 30.0, **options)
    graph.lint()
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return count, calls


def names(calls):
    """Returns the operators' names without their namespaces."""
    return [
        getattr(call.target, "overloadpacket", call.target).__name__ for call in calls
    ]


def texts(calls):
    """Returns the modules of all starts."""
    starts = [call for call in calls if call.target is torch.ops.ddphook.start.default]
    return [unquote(call.args[3]) for call in starts]


def reduced(tensor, kind="avg", group="0"):
    return _ops.wait_tensor(_ops.all_reduce(tensor, kind, group))


def scattered(tensor, kind="avg", group="0"):
    return _ops.wait_tensor(_ops.reduce_scatter_tensor(tensor, kind, RANKS, group))


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (lambda g: reduced(g, "avg"), "mean"),
        (lambda g: reduced(g, "sum"), "sum"),
        (lambda g: reduced(g / RANKS, "sum"), "mean"),
        (lambda g: reduced(g, "sum") / RANKS, "mean"),
        (lambda g: reduced(g * (1 / RANKS), "sum"), "mean"),
        (lambda g: reduced(g, "sum") * (1 / RANKS), "mean"),
        # Other factors belong to the program.
        (lambda g: reduced(g, "sum") / 2, "sum"),
        (lambda g: reduced(g / 2, "sum"), "sum"),
        (lambda g: reduced(g, "avg") / RANKS, "mean"),
        (lambda g: RANKS / reduced(g, "sum"), "sum"),
    ],
)
def test_spellings(step, kind):
    count, calls = rewritten(step, (4, 5))
    assert count == 1
    (text,) = texts(calls)
    assert f"ddp.all_reduce {kind} %g0 on @dp {{ddp.name = " in text
    assert "tensor<4x5xf32>" in text
    assert not {"all_reduce", "wait_tensor"} & set(names(calls))


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (lambda g: scattered(g, "avg"), "mean"),
        (lambda g: scattered(g, "sum"), "sum"),
        (lambda g: scattered(g / RANKS, "sum"), "mean"),
        (lambda g: scattered(g, "sum") * (1 / RANKS), "mean"),
        (lambda g: scattered(g, "sum") / 2, "sum"),
    ],
)
def test_spellings_of_reduce_scatters(step, kind):
    count, calls = rewritten(step, (6, 5))
    assert count == 1
    (text,) = texts(calls)
    assert f"ddp.reduce_scatter {kind} %g0 on @dp {{ddp.name = " in text
    assert "tensor<30xf32> -> tensor<10xf32>" in text
    assert not {"reduce_scatter_tensor", "wait_tensor"} & set(names(calls))
    (average,) = [call for call in calls if names([call]) == ["getitem"]]
    assert average.meta["val"].shape == (2, 5)


def traced_on(step, *devices):
    """Returns the graph of a step on a tensor per device; the devices need not exist."""
    with FakeTensorMode():
        return make_fx(step)(*[torch.empty(4, 3, device=place) for place in devices]).graph


def test_gradients_on_a_gpu():
    """The ticket's number stays in the host's memory, so that reading it does not wait."""
    graph = traced_on(lambda a, b: (reduced(a), reduced(b)), "cuda:1", "cuda:1")
    assert _graph.rewrite(graph, "hook=fp16", 30.0) == 2
    graph.lint()
    nodes = {node.target: node for node in graph.nodes if node.op == "call_function"}
    started = nodes[torch.ops.ddphook.start.default]
    waited = nodes[torch.ops.ddphook.wait.default]
    on_gpu = torch.device("cuda:1")
    assert waited.args[4] == on_gpu
    for node in (started, waited):
        with started.meta["val"].fake_mode:
            again = node.target(
                *torch.fx.node.map_arg(node.args, lambda argument: argument.meta["val"])
            )
        for value in (again, node.meta["val"]):
            if node is started:
                assert (value.device.type, value.shape) == ("cpu", ())
            else:
                assert [(v.device, v.shape) for v in value] == [(on_gpu, (4, 3))] * 2


def test_gradients_on_other_devices_are_left_alone_with_a_warning(caplog):
    graph = traced_on(lambda g: reduced(g), "meta")
    _graph.warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, "ddphook"):
        assert _graph.rewrite(graph, "hook=fp16", 30.0) == 0
    (record,) = caplog.records
    assert "gradients on meta are reduced without compression" in record.message
    assert torch.ops.ddphook.start.default not in [node.target for node in graph.nodes]


@pytest.mark.parametrize("devices", [["cuda:0", "cuda:1"], ["cuda:0", "cpu"]])
def test_gradients_on_several_devices_are_in_separate_buckets(devices):
    graph = traced_on(lambda a, b: (reduced(a), reduced(b)), *devices)
    assert _graph.rewrite(graph, "hook=fp16", 30.0) == 2
    graph.lint()
    wait = torch.ops.ddphook.wait.default
    waits = [node.args[4] for node in graph.nodes if node.target is wait]
    assert waits == list(map(torch.device, devices))


def test_a_loss_on_another_device():
    """A loss on another device does not keep gradients from being compressed."""

    def step(gradient, loss):
        return reduced(gradient), reduced(loss.sum())

    graph = traced_on(step, "cuda:1", "cpu")
    assert _graph.rewrite(graph, "hook=fp16", 30.0) == 1


def test_a_sum_that_is_used_beside_its_quotient_is_a_sum():
    def step(g):
        total = reduced(g, "sum")
        return total, total / RANKS

    count, calls = rewritten(step, (4,))
    assert count == 1
    assert "ddp.all_reduce sum" in texts(calls)[0]
    assert names(calls)[-1] == "div"


def test_a_quotient_that_is_used_elsewhere_stays():
    def step(g):
        part = g / RANKS
        return reduced(part, "sum"), part.norm()

    count, calls = rewritten(step, (4,))
    assert count == 1
    assert "ddp.all_reduce sum" in texts(calls)[0]
    assert "div" in names(calls)


def test_coalesced():
    def step(a, b):
        both = _ops.all_reduce_coalesced([a, b], "avg", "0")
        return [_ops.wait_tensor(tensor) for tensor in both]

    count, calls = rewritten(step, (4, 5), (3,))
    assert count == 2
    assert names(calls) == ["start", "wait", "getitem", "getitem"]
    (text,) = texts(calls)
    assert "tensor<4x5xf32>" in text
    assert "tensor<3xf32>" in text
    assert "all_reduce_coalesced" not in names(calls)


def test_coalesced_reduce_scatters():
    def step(a, b):
        both = _ops.reduce_scatter_tensor_coalesced([a, b], "avg", RANKS, "0")
        return [_ops.wait_tensor(tensor) for tensor in both]

    count, calls = rewritten(step, (6, 5), (3,))
    assert count == 2
    assert names(calls) == ["start", "wait", "getitem", "getitem"]
    (text,) = texts(calls)
    assert "tensor<33xf32> -> tensor<11xf32>" in text
    assert '"gradient0, gradient1"' in text


def test_a_bucket_has_one_kind_and_one_type():
    def step(a, b, c):
        means = [scattered(a), scattered(b), scattered(c.half())]
        return [*means, scattered(c, "sum"), reduced(c), reduced(c, "sum")]

    count, calls = rewritten(step, (3, 2), (6,), (3,))
    assert count == 6
    found = sorted(text.partition("\n")[2] for text in texts(calls))
    counts = [(text.count("reduce_scatter"), text.count("all_reduce")) for text in found]
    assert sorted(counts) == [(0, 1), (0, 1), (1, 0), (1, 0), (1, 0)]
    assert sum("tensor<12xf32> -> tensor<4xf32>" in text for text in found) == 1
    assert sum("tensor<3xf16> -> tensor<1xf16>" in text for text in found) == 1


def test_reduce_scatters_of_inductors_buckets():
    """Inductor has joined the gradients' columns into one array."""
    from torch._inductor.fx_passes import bucketing

    def step(a, b):
        return scattered(a.sin()), scattered(b.sin())

    inputs = [torch.zeros(6, 5), torch.zeros(3)]
    module = make_fx(step, tracing_mode="fake")(*inputs)
    bucketing.bucket_reduce_scatter(module)
    assert _graph.rewrite(module.graph, "hook=fp16", 30.0) == 1
    module.graph.lint()
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    (text,) = texts(calls)
    assert "tensor<33xf32> -> tensor<11xf32>" in text
    assert not {"reduce_scatter_tensor", "wait_tensor"} & set(names(calls))


@pytest.mark.parametrize(
    "options",
    [
        dict(hook="powersgd"),
        dict(hook="topk"),
        dict(hook="quantization_pertensor"),
        dict(hook="fp16", wrapper="bf16"),
        dict(hook="fp16", topology="hierarchical"),
    ],
)
def test_a_hook_that_reduces_whole_gradients_is_refused(options):
    def rewrite(pass_):
        graphs = [traced(lambda g: scattered(g), (3, 4)), traced(lambda g: reduced(g), (3, 4))]
        how = pass_.pipeline, 30.0, 1 << 20, "", None, pass_.shard_pipeline
        return [_graph.rewrite(graph, *how) for graph in graphs]

    with pytest.raises(UnsupportedError, match="reduce-scatter.*; give 'shard_hook'"):
        rewrite(_backend.make_pass(**options))
    assert rewrite(_backend.make_pass(**options, shard_hook="int8")) == [1, 1]


def test_a_reduce_scatter_that_writes_to_a_given_tensor_is_refused():
    from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2

    graph = traced(lambda g: g + 1, (3,))
    write = _ops.reduce_scatter_tensor_out.default
    with graph.inserting_before(graph.output_node()):
        graph.call_function(auto_functionalized_v2, (write,), {"_all_bases": []})
    with pytest.raises(UnsupportedError, match="expected reduce_scatter_tensor"):
        _graph.rewrite(graph, "hook=fp16", 30.0)


def test_shard_hooks_are_checked_at_once():
    with pytest.raises(UnsupportedError, match="a reduce-scatter cannot have this hook"):
        _backend.make_pass(hook="fp16", shard_hook="topk")
    with pytest.raises(InvalidArgumentError, match="did you mean"):
        _backend.make_pass(hook="fp16", shard_hook="int")


@pytest.mark.parametrize(
    ("step", "dtype", "reason"),
    [
        (lambda g: reduced(g, "max"), torch.float32, "it is a 'max'"),
        (lambda g: reduced(g), torch.int64, "its type is torch.int64"),
        (lambda g: reduced(g), torch.complex64, "its type is torch.complex64"),
        (lambda g: reduced(g.sum()), torch.float32, "it is a scalar"),
    ],
)
def test_left_alone(step, dtype, reason, caplog):
    caplog.set_level(logging.INFO, "ddphook")
    count, calls = rewritten(step, (4,), dtype=dtype)
    assert count == 0
    assert "all_reduce" in names(calls)
    assert "wait_tensor" in names(calls)
    assert reason in caplog.text


def test_buckets_are_cut_by_bytes():
    def step(*gradients):
        return [reduced(gradient) for gradient in gradients]

    shapes = [(100,)] * 5
    count, calls = rewritten(step, *shapes, bucket_bytes=800)
    assert count == 5
    assert sorted(text.count("ddp.all_reduce") for text in texts(calls)) == [1, 2, 2]
    count, calls = rewritten(step, *shapes, bucket_bytes=1)
    assert [text.count("ddp.all_reduce") for text in texts(calls)] == [1] * 5


def test_groups_have_their_own_buckets():
    group = dist.new_group([0, 1, 2])

    def step(a, b, c):
        other = _ops.all_reduce(b, "avg", group.group_name)
        return reduced(a), _ops.wait_tensor(other), reduced(c)

    count, calls = rewritten(step, (4,), (5,), (6,))
    assert count == 3
    starts = [call for call in calls if call.target is torch.ops.ddphook.start.default]
    assert {start.args[5]: start.args[3].count("ddp.all_reduce") for start in starts} == {
        "0": 2,
        group.group_name: 1,
    }


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float16, "f16"),
        (torch.bfloat16, "bf16"),
        (torch.float32, "f32"),
        (torch.float64, "f64"),
    ],
)
def test_types(dtype, name):
    count, calls = rewritten(lambda g: reduced(g), (2, 0, 3), dtype=dtype)
    assert count == 1
    assert f"tensor<2x0x3x{name}>" in texts(calls)[0]


def test_a_division_that_changes_the_type_is_the_programs_own():
    def step(g):
        return reduced(torch.div(g, RANKS).to(torch.float32), "sum")

    count, calls = rewritten(step, (4,), dtype=torch.float16)
    assert count == 1
    assert "tensor<4xf32>" in texts(calls)[0]
    assert "ddp.all_reduce sum" in texts(calls)[0]


def test_a_reduction_that_nobody_uses_is_not_removed():
    """Other ranks may use theirs, and would wait for this one's."""

    def step(x):
        _ops.all_reduce(x.sum(), "avg", "0")
        return reduced(x)

    count, calls = rewritten(step, (4,))
    assert count == 1
    assert names(calls).count("all_reduce") == 1


def test_inductors_cache_knows_the_number_of_ranks(monkeypatch):
    """A graph that divides by 3 contains an average for three ranks only. Reductions in a
    group with a hook of its own stay in the graph."""
    pass_ = _backend.make_pass(hook="fp16")
    seen = []
    for world in (RANKS, 2, RANKS):
        dist.destroy_process_group()
        join(world)
        seen.append(pass_.uuid())
    assert seen[0] == seen[2] != seen[1]
    monkeypatch.setattr(dist, "get_backend", lambda group: "ddphook")
    assert pass_.uuid() != seen[0]
