# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole training steps under torch.compile, with compressed reductions.

The oracle is PyTorch's own hooks, called on the buckets that the pass makes.
"""

import io
import os
import re
import time

import pytest
import ranks
import torch
import torch.distributed as dist
from torch._inductor import config
from torch._inductor.utils import run_and_get_code
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

SHAPES = [(37, 21), (21,), (5, 3, 2, 2), (1, 13), (13, 1), (64, 48)]

# A bucket of one gradient, in the form that the pass writes.
TEXT = """ddp.process_group @dp
func.func @bucket(%flat: tensor<3xf32> {bufferization.writable = true}) -> tensor<3xf32> {
  %r = ddp.all_reduce mean %flat on @dp : tensor<3xf32>
  return %r : tensor<3xf32>
}
"""


class Bucket:
    """The part of a bucket's interface that PyTorch's hooks use."""

    def __init__(self, gradients):
        self.flat = torch.cat([gradient.flatten() for gradient in gradients])
        self.shapes = [gradient.shape for gradient in gradients]

    def buffer(self):
        return self.flat

    def set_buffer(self, flat):
        self.flat = flat

    def index(self):
        return 0

    def is_last(self):
        return True

    def gradients(self):
        sizes = [shape.numel() for shape in self.shapes]
        return [
            part.view(shape)
            for part, shape in zip(self.flat.split(sizes), self.shapes, strict=True)
        ]


def expected(hook, state, gradients):
    bucket = Bucket(gradients)
    bucket.set_buffer(hook(state, bucket).wait())
    return bucket.gradients()


def gradients_of(rank, step, dtype):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]


def reduced(tensor, kind="avg", group="0"):
    ops = torch.ops._c10d_functional
    return ops.wait_tensor(ops.all_reduce(tensor, kind, group))


def run_graph(rank, hook, options, dtype):
    """Runs steps of a rewritten graph, without Inductor, and PyTorch's hook."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from ddphook.torch import _graph, _ops, _session
    from ddphook.torch._bucket import pipeline
    from ddphook.torch._hooks import resolve

    def step(*gradients):
        return [reduced(gradient) for gradient in gradients]

    first = gradients_of(rank, 0, dtype)
    graph = make_fx(step, tracing_mode="fake")(*first)
    text = pipeline(resolve(hook, None, options).pipeline())
    assert _graph.rewrite(graph.graph, text, 60.0) == len(SHAPES)
    graph.recompile()
    state = None
    oracle = getattr(
        default_hooks, f"{hook}_compress_hook", default_hooks.allreduce_hook
    )
    if hook == "powersgd":
        oracle = powersgd.powerSGD_hook
        state = powersgd.PowerSGDState(None, **options)
    differences = []
    for number in range(6):
        inputs = gradients_of(rank, number, dtype)
        wanted = expected(oracle, state, [tensor.clone() for tensor in inputs])
        got = graph(*inputs)
        for before, now in zip(gradients_of(rank, number, dtype), inputs, strict=True):
            assert torch.equal(before, now), "a gradient was changed"
        differences.append(
            max(
                float((a.double() - b.double()).norm() / b.double().norm())
                for a, b in zip(got, wanted, strict=True)
            )
        )
    counters = ranks.counters_of(_session.session_of("0", 60.0))
    _ops.close()
    return differences, counters["steps"]


def run_graphs(rank, cases):
    return [run_graph(rank, *case) for case in cases]


CASTS = [
    ("allreduce", {}, torch.float32),
    ("allreduce", {}, torch.float64),
    ("fp16", {}, torch.float32),
    ("bf16", {}, torch.float32),
    ("bf16", {}, torch.float16),
]
POWERSGD = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2}


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_graphs_reduce_as_pytorchs_hooks(world):
    cases = [*CASTS, ("powersgd", POWERSGD, torch.float32)]
    for results in ranks.run(world, run_graphs, cases):
        for case, (differences, steps) in zip(cases, results, strict=True):
            assert steps == 6, case
            if case in CASTS:
                assert differences == [0.0] * 6, case
            else:
                assert differences[:2] == [0.0] * 2
                assert max(differences) < 1e-3


def make_step(names, model, world):
    def step(parameters, x, y):
        output = torch.func.functional_call(
            model, dict(zip(names, parameters, strict=True)), (x,)
        )
        loss = ((output - y) ** 2).mean()
        gradients = torch.autograd.grad(loss, parameters)
        gradients = [reduced(g / world, "sum") for g in gradients]
        loss = reduced(loss.detach())
        return [p.detach() - 0.05 * g for p, g in zip(parameters, gradients)], loss

    return step


def train(rank, backends, pytorchs_kernels=False):
    """Returns parameters and losses of 5 steps for each backend with its options."""
    import ddphook.torch

    if pytorchs_kernels:
        ranks.use_pytorchs_kernels()
    torch._dynamo.config.trace_autograd_ops = True
    results = []
    for options in backends:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = make_model()
        names = [name for name, _ in model.named_parameters()]
        parameters = [p.detach().clone() for p in model.parameters()]
        step = make_step(names, model, dist.get_world_size())
        if options is None:
            step = torch.compile(step, fullgraph=True)
        else:
            step = ddphook.torch.compile(step, fullgraph=True, **options)
        losses = []
        for x, y in batches(rank, 5):
            parameters = [p.requires_grad_() for p in parameters]
            parameters, loss = step(parameters, x, y)
            losses.append(loss.item())
        results.append((flat(parameters).tolist(), losses))
        ddphook.torch.close()
    return results


def make_model():
    return torch.nn.Sequential(
        torch.nn.Linear(24, 32), torch.nn.ReLU(), torch.nn.Linear(32, 7)
    )


def batches(rank, count):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(count):
        yield (
            torch.randn(8, 24, generator=generator),
            torch.randn(8, 7, generator=generator),
        )


def flat(parameters):
    return torch.cat([p.detach().flatten() for p in parameters])


def distance(a, b):
    """Returns the relative distance of two lists of numbers."""
    a, b = torch.tensor(a), torch.tensor(b)
    return (a - b).norm() / b.norm()


def test_steps_under_inductor():
    powersgd_options = {
        "hook": "powersgd",
        "matrix_approximation_rank": 4,
        "start_powerSGD_iter": 2,
    }
    exact = ranks.run(2, train, [None, {"hook": "allreduce"}])
    rounded = ranks.run(2, train, [{"hook": "fp16"}, powersgd_options], True)
    for (inductor, allreduce), (fp16, low_rank) in zip(exact, rounded):
        assert allreduce == inductor
        assert 0 < distance(fp16[0], inductor[0]) < 1e-3
        assert 0 < distance(low_rank[0], inductor[0]) < 0.2
    for runs in exact, rounded:
        for mine, others in zip(*runs, strict=True):
            assert mine[0] == others[0]


@pytest.mark.full("test_steps_under_inductor compiles the same graphs")
def test_new_processes_find_the_graphs_in_inductors_cache():
    backends = [{"hook": "fp16"}, {"hook": "bf16"}]
    first, second = (ranks.run(2, train, backends) for _ in range(2))
    assert first == second


def reuse(x):
    """The product fits into the gradient's memory unless that memory is kept."""
    return reduced(x * 2), x @ x


def overwrite(x):
    average = reduced(x)
    x.zero_()
    return average


def memory(rank):
    """The first reduction is slow, because its module is compiled first."""
    import ddphook.torch

    compiled = [ddphook.torch.compile(step, fullgraph=True) for step in (reuse, overwrite)]
    x = torch.full((16, 16), rank + 1.0)
    average, product = compiled[0](x)
    assert torch.equal(average, torch.full((16, 16), 3.0))
    assert torch.equal(product, x @ x)
    assert torch.equal(compiled[1](x), torch.full((16, 16), 1.5))
    assert not x.any()
    ddphook.torch.close()


def test_gradients_keep_their_memory_until_they_are_reduced():
    ranks.run(2, memory)


def run_with_options(rank, given):
    """Compiles and runs a reduction with Inductor's options."""
    import ddphook
    from ddphook.torch._backend import backend

    x = torch.full((3, 3), 1.5)
    step = torch.compile(lambda x: reduced(x), backend=backend, fullgraph=True, **given)
    if "post_grad_custom_pre_pass" in given.get("options", {}):
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="already in use"):
            step(x)
    else:
        assert torch.equal(step(x), x)
    ddphook.torch.close()


def no_pass(graph):
    pass


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "max-autotune-no-cudagraphs"},
        {"options": {"hook": "fp16", "post_grad_custom_pre_pass": no_pass}},
        pytest.param(
            {"options": {"cpp_wrapper": True, "cpp_cache_precompile_headers": False}},
            marks=pytest.mark.full("compiles PyTorch's headers, for half a minute"),
        ),
    ],
)
def test_options_of_inductor(given):
    ranks.run(1, run_with_options, given)


def order_of_calls(rank):
    """Returns the starts and waits of a step that updates its parameters in place."""
    import ddphook.torch
    from ddphook.torch._bench import CompiledTraining

    layers = [torch.nn.Linear(64, 64) for _ in range(8)]
    training = CompiledTraining(
        torch.nn.Sequential(*layers),
        reduces=True,
        options={"hook": "fp16", "bucket_cap_mb": 0.03},
    )
    _, codes = run_and_get_code(training.step, torch.ones(4, 64))
    ddphook.torch.close()
    assert config.reorder_for_peak_memory
    call = re.compile(r"torch\.ops\.ddphook\.(start|wait)\.default\(")
    return [name for code in codes for name in call.findall(code)]


def test_reductions_are_on_their_way_before_one_is_awaited():
    """Inductor alone would await the first reduction early, to free memory."""
    (calls,) = ranks.run(1, order_of_calls)
    number = calls.count("start")
    assert number > 3
    assert calls == ["start"] * number + ["wait"] * number


def train_ddp(rank):
    """Trains DDP with a traced reducer, under compiled autograd, with both backends."""
    import ddphook.torch
    from ddphook.torch import _session
    from ddphook.torch._rendezvous import timeout_seconds

    ranks.use_pytorchs_kernels()
    torch._dynamo.config.optimize_ddp = "python_reducer"
    torch._dynamo.config.compiled_autograd = True
    results = []
    for compile_ in (torch.compile, ddphook.torch.compile):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = make_model()
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        @compile_
        def backward(x, y, ddp=ddp):
            ((ddp(x) - y) ** 2).mean().backward()

        for x, y in batches(rank, 4):
            backward(x, y)
            optimizer.step()
            optimizer.zero_grad()
        results.append(flat(model.parameters()).tolist())
    session = _session.session_of("0", timeout_seconds(None))
    return results, ranks.counters_of(session)["steps"]


def test_ddp_under_the_python_reducer():
    for (inductor, mine), steps in ranks.run(2, train_ddp):
        assert mine == inductor
        assert steps > 0


def run_twins(rank, numbers, save_after):
    """Averages with two equal graphs, which run alternately on different gradients.

    After `save_after` steps, their states are saved and then loaded in a new session.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    import ddphook.torch
    from ddphook.torch import _graph
    from ddphook.torch._bucket import pipeline
    from ddphook.torch._hooks import resolve

    text = pipeline(resolve("powersgd", None, POWERSGD).pipeline())
    graphs = {}
    for number in numbers:
        graph = make_fx(lambda g: reduced(g), tracing_mode="fake")(torch.ones(64, 48))
        _graph.rewrite(graph.graph, text, 60.0, owner=f"graph {number}")
        graph.recompile()
        graphs[number] = graph
    results = {number: [] for number in numbers}
    for step in range(6):
        if step == save_after:
            file = io.BytesIO()
            torch.save(ddphook.torch.state_dict(), file)
            ddphook.torch.close()
            file.seek(0)
            ddphook.torch.load_state_dict(torch.load(file))
        for number, graph in graphs.items():
            gradient = gradients_of(rank, 10 * number + step, torch.float32)[-1]
            results[number].append(graph(gradient).tolist())
    ddphook.torch.close()
    return results


def test_equal_graphs_have_states_of_their_own():
    both = ranks.run(2, run_twins, [1, 2], None)
    saved = ranks.run(2, run_twins, [1, 2], 4)
    alone = ranks.run(2, run_twins, [2], None)
    assert both[0] == both[1]
    assert saved == both
    assert [result[2] for result in both] == [result[2] for result in alone]


def load_badly(rank):
    import ddphook.torch

    for wrong in (None, {"0": {}}, {"0": {"format": "ddphook.torch 1"}}):
        with pytest.raises(ddphook.InvalidArgumentError, match="expected a state"):
            ddphook.torch.load_state_dict(wrong)
    ddphook.torch.close()


def test_what_is_no_state_of_steps():
    ranks.run(1, load_badly)


def load_from_another_rank(rank):
    """Returns this rank's error feedback before and after loading."""
    from torch.fx.experimental.proxy_tensor import make_fx

    import ddphook.torch
    from ddphook.torch import _graph

    def error():
        ((_, _, _, parts),) = ddphook.torch.state_dict()["0"]["modules"]
        return float(parts["int4.error"]["gradient0"].abs().max())

    graph = make_fx(lambda g: reduced(g), tracing_mode="fake")(torch.ones(99))
    _graph.rewrite(graph.graph, "hook=int4", 30.0)
    graph.recompile()
    graph(torch.arange(99.0))
    before = error()
    saved = ddphook.torch.state_dict()
    saved["0"]["rank"] = 1 - rank
    ddphook.torch.load_state_dict(saved)
    after = error()
    ddphook.torch.close()
    return before, after


def test_the_error_of_another_rank_is_not_this_ones():
    for before, after in ranks.run(2, load_from_another_rank):
        assert before > 0 and after == 0


def compile_twins(rank):
    """Returns the owners and the counters in the states of two equal steps."""
    import ddphook.torch

    ranks.use_pytorchs_kernels()
    torch._dynamo.config.trace_autograd_ops = True
    options = {"start_powerSGD_iter": 2, "fullgraph": True, "dynamic": False}
    model = torch.nn.Linear(8, 8)
    names = [name for name, _ in model.named_parameters()]
    for samples in ([4, 4, 6], [4]):
        step = ddphook.torch.compile(
            make_step(names, model, 1), hook="powersgd", **options
        )
        for count in samples:
            parameters = [p.detach().clone() for p in model.parameters()]
            parameters = [p.requires_grad_() for p in parameters]
            step(parameters, torch.ones(count, 8), torch.zeros(count, 8))
    modules = ddphook.torch.state_dict()["0"]["modules"]
    counters = [
        (owner, int(parts["powersgd.iter"]["gradient0"]))
        for owner, _, _, parts in modules
    ]
    ddphook.torch.close()
    return counters


def test_equal_steps_have_states_of_their_own():
    ((first, second),) = ranks.run(1, compile_twins)
    assert first[0] != second[0]
    assert first[1] == 3, "the step that was compiled again began anew"
    assert second[1] == 1


def compile_regions(rank):
    """Compiles two calls of a region; returns the results, and why states are refused."""
    import ddphook.torch
    from ddphook._errors import UnsupportedError

    ranks.use_pytorchs_kernels()

    @torch.compiler.nested_compile_region
    def region(gradient):
        return reduced(gradient) * 3

    def step(gradient):
        return region(gradient), region(gradient + 1)

    ones = torch.ones(64)
    results = ddphook.torch.compile(step, hook="fp16", fullgraph=True)(ones)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="nested_compile_region") as caught:
        ddphook.torch.compile(step, hook="int8", error_feedback=True, fullgraph=True)(ones)
    causes = caught.value, getattr(caught.value, "inner_exception", None)
    assert any(isinstance(cause, UnsupportedError) for cause in causes)
    ddphook.torch.close()
    return [result[0].item() for result in results], str(caught.value)


def test_the_reductions_of_a_region_share_no_states():
    (((first, second), message),) = ranks.run(1, compile_regions)
    assert (first, second) == (3, 6)
    assert "would share int8.error of 'hook=int8 error_feedback=true'" in message


def lose_a_peer(rank):
    from torch.fx.experimental.proxy_tensor import make_fx

    from ddphook._errors import Error
    from ddphook.torch import _graph

    graph = make_fx(lambda g: reduced(g), tracing_mode="fake")(torch.ones(3))
    _graph.rewrite(graph.graph, "hook=fp16", 30.0)
    graph.recompile()
    graph(torch.ones(3))
    if rank == 1:
        os._exit(3)
    begin = time.monotonic()
    with pytest.raises(Error) as caught:
        for _ in range(2):
            graph(torch.ones(3))
    return type(caught.value).__name__, time.monotonic() - begin


def test_a_lost_peer_is_an_exception():
    (kind, (name, seconds)), died = ranks.collect(2, lose_a_peer)
    assert died == ("died", 3)
    assert kind == "ok"
    assert name == "PeerLostError"
    assert seconds < 30


def wait_badly(rank):
    import ddphook.torch
    from ddphook._errors import FailedPreconditionError
    from ddphook.torch import _ops

    def start():
        return torch.ops.ddphook.start(
            [torch.ones(3)], 1, "", TEXT, "hook=fp16", "0", 30.0
        )

    def wait(ticket):
        return torch.ops.ddphook.wait(
            ticket, [3], [1], "float32", torch.device("cpu")
        )

    ticket = start()
    assert torch.equal(wait(ticket)[0], torch.ones(3))
    with pytest.raises(FailedPreconditionError, match="already waited for"):
        wait(ticket)
    ticket = start()
    _ops.close()
    with pytest.raises(FailedPreconditionError, match=r"close\(\) was called"):
        wait(ticket)
    ddphook.torch.close()


def test_a_ticket_is_waited_for_once():
    ranks.run(1, wait_badly)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hook": "fp17"}, "did you mean 'fp16'"),
        ({"hook": "fp16", "start_powerSGD_iter": 3}, "has no option"),
        ({"hook": "powersgd", "start_powerSGD_itr": 3}, "did you mean"),
        ({"hook": "post_local_sgd"}, "also averages parameters"),
        ({"bucket_cap_mb": 0}, "expected 'bucket_cap_mb' to be above 0"),
    ],
)
def test_bad_options(options, message):
    import ddphook.torch
    from ddphook._errors import Error

    with pytest.raises(Error, match=message):
        ddphook.torch.compile(lambda x: x + 1, **options)
