# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs before and after the pass of the backend "ddphook".

Graphs are traced for three ranks that do not exist; test_compile.py runs them.
"""

import logging
import random
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


def test_started_behind_the_last_gradient_and_awaited_before_the_first_use():
    def step(x):
        first = x.sin()
        one = reduced(first)
        second = first.cos()
        two = reduced(second)
        other = second.exp()
        return one + 1, two + 2, other

    count, calls = rewritten(step, (4,))
    assert count == 2
    assert names(calls) == [
        "sin", "cos", "start", "exp", "wait", "getitem", "add", "getitem", "add",
    ]


def test_an_average_that_is_used_before_the_bucket_starts_is_used_later():
    def step(x):
        first = x.sin()
        used = reduced(first) * 2
        second = x.cos()
        return used, reduced(second)

    count, calls = rewritten(step, (4,))
    assert count == 2
    order = names(calls)
    assert order.count("start") == 1
    assert order.index("cos") < order.index("start") < order.index("wait")
    assert order.index("wait") < order.index("mul")


def layers(reduce, count=3):
    """Returns a step that computes a gradient for each layer, and casts what it reduces."""

    def step(x):
        results = []
        for _ in range(count):
            x = x.sin()
            results.append(reduce(x).half())
        return results

    return step


def test_what_is_computed_of_averages_alone_waits():
    count, calls = rewritten(layers(reduced), (3,), bucket_bytes=1)
    assert count == 3
    order = [name for name in names(calls) if name not in ("getitem", "_to_copy")]
    assert order == ["sin", "start"] * 3 + ["wait"] * 3


def test_few_gradients_that_are_sharded_are_in_flight():
    count, calls = rewritten(layers(scattered), (3,), bucket_bytes=1)
    assert count == 3
    order = [name for name in names(calls) if name not in ("getitem", "_to_copy")]
    assert order == ["sin", "start", *["sin", "start", "wait"] * 2, "wait"]


@pytest.mark.parametrize("replicas_first", [False, True])
def test_the_first_of_two_reductions_overlaps_with_the_next_layer(replicas_first):
    group = dist.new_group([0, 1, 2]).group_name

    def reduce(x):
        if replicas_first:
            return scattered(reduced(x, "avg", group))
        return reduced(scattered(x), "avg", group)

    count, calls = rewritten(layers(reduce), (3,), bucket_bytes=1)
    assert count == 6
    order = [
        (call.args[5] if name == "start" else name)
        for call, name in zip(calls, names(calls))
        if name not in ("getitem", "_to_copy")
    ]
    first, second = (group, "0") if replicas_first else ("0", group)
    assert order[:6] == ["sin", first, "sin", first, "wait", second]
    assert order.index("sin", 3) < order.index(second, 6)


def test_a_gradient_that_needs_an_average_is_in_another_bucket():
    def step(x):
        one = reduced(x.sin())
        return reduced(one.cos() * x)

    count, calls = rewritten(step, (4,))
    assert count == 2
    assert names(calls).count("start") == 2
    assert ['"gradient0"' in text for text in texts(calls)] == [True, False]
    assert '"gradient1"' in texts(calls)[1]


def test_what_writes_to_memory_comes_after_the_wait():
    def step(g):
        one = reduced(g)
        g.zero_()
        return one

    assert rewritten(step, (4,))[0] == 1
    assert names(rewritten(step, (4,))[1]) == ["start", "wait", "getitem", "zero_"]


def test_what_writes_to_memory_comes_after_a_use_that_was_before():
    def step(p, g):
        used = reduced(g.sin()) * p
        second = reduced(g.cos())
        p.zero_()
        return used, second, reduced(g.exp())

    count, calls = rewritten(step, (4,), (4,))
    assert count == 3
    order = names(calls)
    assert order.index("wait") < order.index("mul") < order.index("zero_")
    # A bucket does not extend across the write.
    assert [text.count("ddp.all_reduce") for text in texts(calls)] == [2, 1]
    assert order.index("zero_") < order.index("exp")


def test_random_numbers_keep_their_order():
    """A draw that depends on an average stays before later draws, even if the average has
    other users in between, or an operation precedes the draw."""

    def step(x):
        one = reduced(x.sin())
        noise = torch.randn_like(one.exp())
        two = reduced(torch.rand_like(x).cos())
        return one + noise, two, torch.bernoulli(x)

    count, calls = rewritten(step, (4,))
    assert count == 2
    order = names(calls)
    drawn = ("randn_like", "rand_like", "bernoulli")
    assert tuple(name for name in order if name in drawn) == drawn
    assert order.index("wait") < order.index("randn_like")
    # Its gradient follows the draw, and so has a separate bucket.
    assert [text.count("ddp.all_reduce") for text in texts(calls)] == [1, 1]


def test_an_average_that_is_reduced_again():
    def step(g):
        return reduced(reduced(g, "sum"), "avg")

    count, calls = rewritten(step, (4,))
    assert count == 2
    assert names(calls) == ["start", "wait", "getitem"] * 2
    assert ["all_reduce sum" in text for text in texts(calls)] == [True, False]


def test_a_quotient_between_two_reductions_belongs_to_the_first():
    def step(g):
        return reduced(reduced(g, "sum") / RANKS, "sum")

    count, calls = rewritten(step, (4,))
    assert count == 2
    assert "div" not in names(calls)
    assert ["all_reduce mean" in text for text in texts(calls)] == [True, False]


def test_buckets_of_two_groups_do_not_wait_for_each_other():
    group = dist.new_group([0, 1, 2]).group_name

    def other(tensor):
        return _ops.wait_tensor(_ops.all_reduce(tensor, "avg", group))

    def step(x):
        one = reduced(x.sin())
        two = other(x.cos())
        return other(one), reduced(two.exp())

    count, calls = rewritten(step, (4,))
    assert count == 4
    assert sorted(text.count("ddp.all_reduce") for text in texts(calls)) == [1, 1, 2]


def test_reductions_over_two_dimensions_of_a_mesh():
    """Gradients of shards wait for one bucket of reduce-scatters."""
    group = dist.new_group([0, 1, 2]).group_name

    def step(*gradients):
        return [reduced(scattered(each), "avg", group) for each in gradients]

    count, calls = rewritten(step, (3, 2), (6,), (3,))
    assert count == 6
    assert names(calls) == ["start", "wait", *["getitem"] * 3] * 2
    first, second = texts(calls)
    assert "tensor<15xf32> -> tensor<5xf32>" in first
    assert second.count("ddp.all_reduce") == 3
    assert [call.args[5] for call in calls if names([call]) == ["start"]] == ["0", group]


def test_buckets_that_would_wait_for_each_other():
    group = dist.new_group([0, 1, 2]).group_name

    def step(a, b):
        one, two = reduced(a), reduced(b, "avg", group)
        return reduced(one.sin(), "avg", group), reduced(two.sin())

    count, calls = rewritten(step, (3,), (3,))
    assert count == 4
    assert sorted(text.count("ddp.all_reduce") for text in texts(calls)) in (
        [1, 1, 2], [1, 1, 1, 1],
    )


def test_random_orders_of_reductions():
    """No bucket waits for itself, through any number of others."""
    groups = ["0", *(dist.new_group([0, 1, 2]).group_name for _ in range(2))]
    for seed in range(50):
        draw = random.Random(seed)

        def step(*inputs):
            values = list(inputs)
            for _ in range(14):
                a, b = draw.choices(values[-8:], k=2)
                reduce = draw.choice([reduced, reduced, scattered, None])
                value = a.sum() + b
                if reduce is not None:
                    value = reduce(value, draw.choice(["avg", "sum"]), draw.choice(groups))
                if reduce is scattered:
                    value = torch.cat([value] * RANKS)
                values.append(value)
            return values

        size = draw.choice([1, 40, 1 << 20])
        count, calls = rewritten(step, (3,), (3,), bucket_bytes=size)
        left = {"all_reduce", "reduce_scatter_tensor", "wait_tensor"} & set(names(calls))
        assert not left, seed
        assert count == sum(
            text.count("ddp.all_reduce") or text.count(", gradient") + 1
            for text in texts(calls)
        ), seed


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


def test_inductors_cache_knows_the_number_of_ranks():
    """A graph that divides by 3 contains an average for three ranks only."""
    pass_ = _backend.make_pass(hook="fp16")
    seen = []
    for world in (RANKS, 2, RANKS):
        dist.destroy_process_group()
        join(world)
        seen.append(pass_.uuid())
    assert seen[0] == seen[2] != seen[1]
