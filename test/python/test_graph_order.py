# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the pass of the backend "ddphook" starts and awaits the buckets of a graph."""

import random

import pytest
import torch
import torch.distributed as dist
from test_graph import RANKS, names, ranks, reduced, rewritten, scattered, texts  # noqa: F401

_ops = torch.ops._c10d_functional


def test_a_bucket_starts_after_its_last_gradient_and_is_awaited_before_its_first_use():
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


@pytest.mark.parametrize("divides", [False, True])
def test_a_gradient_that_is_written_before_it_is_reduced(divides):
    """The bucket starts after the write, but before the next one."""

    def step(x, y):
        part = x[1:]
        x.copy_(y.sin())
        if divides:
            part = part / RANKS
        average = reduced(part, "sum")
        x.copy_(y.cos())
        return average

    count, calls = rewritten(step, (4,), (4,))
    assert count == 1
    # The quotient is dead code.
    assert [name for name in names(calls) if name != "div"] == [
        "slice", "sin", "copy_", "start", "cos", "wait", "getitem", "copy_",
    ]


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


def test_random_numbers_that_need_a_bucket_through_another_one():
    """The draw needs one average of a bucket whose other gradient needs another bucket."""
    group = dist.new_group([0, 1, 2]).group_name

    def step(x):
        one = reduced(x.sin(), "avg", group)
        two, three = reduced(x.cos()), reduced(one.exp())
        return two, three, torch.randn_like(two), torch.bernoulli(x), one + x

    count, calls = rewritten(step, (4,))
    assert count == 3
    order = names(calls)
    assert order.index("randn_like") < order.index("bernoulli")


def test_random_numbers_whose_generator_is_saved():
    """Activation checkpointing draws with an operator that has the draw as its argument."""
    from torch._prims.rng_prims import run_and_save_rng_state

    def step(x):
        one = reduced(x.sin())
        state, noise = run_and_save_rng_state(torch.ops.aten.rand_like.default, one)
        return state, noise, torch.bernoulli(x)

    count, calls = rewritten(step, (4,))
    assert count == 1
    order = names(calls)
    assert order.index("run_and_save_rng_state") < order.index("bernoulli")


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


def test_a_gradient_that_is_scattered_twice():
    count, calls = rewritten(lambda x: (scattered(x), scattered(x)), (3,), bucket_bytes=1)
    assert count == 2
    order = [name for name in names(calls) if name != "getitem"]
    assert sorted(order) == ["start", "start", "wait", "wait"]


@pytest.mark.parametrize("cap", [600, 700])
def test_all_ranks_cut_buckets_alike(cap):
    """Ranks with shards of different sizes are in different groups between replicas, but in
    one group between shards."""
    group = dist.new_group([0, 1, 2]).group_name
    found = []
    for rows in (3, 2):

        def step(x):
            results = []
            for _ in range(10):
                x = x.sin()
                results.append(reduced(scattered(x)[:rows], "avg", group))
            return results

        count, calls = rewritten(step, (9, 8), bucket_bytes=cap)
        assert count == 20
        found.append([text for text in texts(calls) if "reduce_scatter" in text])
    assert [text.count("gradient") for text in found[0]] == [3, 3, 3, 1]
    assert found[0] == found[1]


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
