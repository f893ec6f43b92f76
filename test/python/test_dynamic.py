# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps under torch.compile whose inputs change their sizes.

The oracle is the same arithmetic in eager mode. Values that went through the hook fp16
have the precision of 16-bit elements.
"""

import logging

import pytest
import ranks
import torch
import torch.distributed as dist

BATCHES = [8, 6, 9, 1, 8]
SEED = 20


def reduced(tensor, kind="avg", group="0"):
    ops = torch.ops._c10d_functional
    return ops.wait_tensor(ops.all_reduce(tensor, kind, group))


def is_rounded_to_fp16(tensor):
    return torch.equal(tensor, tensor.half().float())


class Warnings(logging.Handler):
    """Collects the warnings of the logger ddphook."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []
        logging.getLogger("ddphook").addHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())


def loss_of(parameters, x, y):
    weight, bias, last = parameters
    return ((torch.relu(x @ weight + bias) @ last - y) ** 2).mean()


def gradients_of(parameters, x, y):
    return torch.autograd.grad(loss_of(parameters, x, y), parameters)


def mean_over_ranks(gradients):
    """Returns the averages of the hook fp16, up to the order of additions."""
    result = [gradient.clone() / dist.get_world_size() for gradient in gradients]
    for gradient in result:
        dist.all_reduce(gradient)
    return result


def step_with_parameters(parameters, x, y):
    """Parameters are inputs: with dynamic=True, their sizes are dynamic."""
    return [reduced(gradient) for gradient in gradients_of(parameters, x, y)]


def prepare():
    ranks.use_pytorchs_kernels()
    torch._dynamo.config.trace_autograd_ops = True


def run_batches(rank, dynamic):
    import ddphook.torch
    from ddphook.torch import _session
    from ddphook.torch._rendezvous import timeout_seconds

    prepare()
    warnings = Warnings()
    compiled = ddphook.torch.compile(
        step_with_parameters, hook="fp16", fullgraph=True, dynamic=dynamic
    )
    generator = torch.Generator().manual_seed(SEED)
    parameters = [
        torch.randn(shape, generator=generator, requires_grad=True)
        for shape in ((7, 11), (11,), (11, 3))
    ]
    generator.manual_seed(SEED + 1 + rank)
    for batch in BATCHES:
        x = torch.randn(batch, 7, generator=generator)
        y = torch.randn(batch, 3, generator=generator)
        got = compiled(parameters, x, y)
        wanted = mean_over_ranks(gradients_of(parameters, x, y))
        for mine, theirs in zip(got, wanted, strict=True):
            assert is_rounded_to_fp16(mine), batch
            torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=2e-3)
    counters = ranks.counters_of(_session.session_of("0", timeout_seconds(None)))
    ddphook.torch.close()
    return counters["steps"], warnings.texts


@pytest.mark.parametrize("dynamic", [None, True])
def test_batches_of_changing_sizes(dynamic):
    # In the second run, graphs with guards on their sizes come from Inductor's cache.
    for _ in range(2 if dynamic else 1):
        for steps, warnings in ranks.run(2, run_batches, dynamic):
            assert steps == len(BATCHES)
            assert len(warnings) == len(set(warnings))
            assert bool(warnings) <= bool(dynamic), warnings


def run_gradients(rank):
    import ddphook.torch
    from ddphook.torch import _session
    from ddphook.torch._rendezvous import timeout_seconds

    prepare()
    # A graph from the cache would cause no further warning.
    torch._inductor.config.fx_graph_cache = False
    warnings = Warnings()
    compiled = ddphook.torch.compile(
        lambda x: reduced(x * 3), hook="fp16", fullgraph=True
    )
    generator = torch.Generator().manual_seed(SEED + rank)
    sizes = [4, 6, 9, 6, 1]
    for size in sizes:
        x = torch.randn(size, 5, generator=generator)
        got = compiled(x)
        assert is_rounded_to_fp16(got), size
        (wanted,) = mean_over_ranks([x * 3])
        torch.testing.assert_close(got, wanted, rtol=2e-3, atol=2e-3)
    assert ranks.counters_of(_session.session_of("0", timeout_seconds(None)))["steps"] == len(sizes)
    ddphook.torch.close()
    return warnings.texts


def test_gradients_of_changing_sizes():
    for warnings in ranks.run(2, run_gradients):
        # The first size is not dynamic, and neither is 1.
        assert len(warnings) == 2
        for size, text in zip((6, 9), warnings, strict=True):
            assert f"[{size}, 5], although that may change" in text


def run_unknown(rank):
    from torch.fx.experimental.proxy_tensor import make_fx

    from ddphook.torch import _graph

    warnings = Warnings()

    def step(x):
        return reduced(torch.nonzero(x).float())

    graph = make_fx(step, tracing_mode="symbolic")(torch.tensor([1.0, 0.0, 2.0]))
    before = str(graph.graph)
    for _ in range(2):
        assert _graph.rewrite(graph.graph, "hook=fp16", 60.0) == 0
    assert str(graph.graph) == before
    return warnings.texts


def test_a_shape_that_depends_on_data_is_warned_of_once():
    ((text,),) = ranks.run(1, run_unknown)
    assert "which depends on data, is reduced without compression" in text
