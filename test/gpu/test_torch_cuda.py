# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook.torch on CUDA tensors: DDP over NCCL with our hooks, beside PyTorch's,
and compiled steps, beside the host's.

For a GPU, with a build tree or the compiler of a bundle of tools/gpu-bundle.sh: hooks
are compiled here. On the emulated device, `--device=cuda_emulated`, it is a rehearsal
for bundles: tensors are the host's, and both sides of a comparison are on that device.
test/python/test_device.py and test_device_compile.py have its oracle.
"""

import contextlib
import os
import pathlib
import sys
import time
from unittest import mock

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "test" / "python", ROOT / "tools" / "python" / "src"]
sys.path[:0] = map(str, SOURCES)

import models  # noqa: E402
import ranks  # noqa: E402

STEPS = 6
# Several buckets of this model after DDP has rebuilt them.
BUCKETS = {"bucket_cap_mb": 0.02}
EXACT = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "noop": debugging_hooks.noop_hook,
    "allreduce in fp16": default_hooks.fp16_compress_wrapper(
        default_hooks.allreduce_hook
    ),
    "per tensor": quantization_hooks.quantization_pertensor_hook,
    "per channel": quantization_hooks.quantization_perchannel_hook,
}
POWERSGD = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2}
# What PyTorch has not, or not with these options.
OTHERS = [
    ("int8", {}),
    ("int4", {"rounding": "stochastic"}),
    ("fp8", {}),
    ("topk", {"density": 0.1}),
    ("powersgd", {**POWERSGD, "warm_start": False}),
    ("powersgd", {**POWERSGD, "numerics": "improved"}),
    ("batched_powersgd", {**POWERSGD, "wrapper": "fp16"}),
    ("post_local_sgd", {"start_localSGD_iter": 2}),
    ("allreduce_and_upcast", {"reduce_dtype": torch.bfloat16}),
    ("fp16", {"exempt": "bias"}),
]
NAMES = ["mlp", "mixed-types", "sixteen-bits", "strided"]


@pytest.fixture(scope="module", autouse=True)
def sources(tmp_path_factory):
    """Ranks find the package, the libraries and a cache in the environment."""
    place = tmp_path_factory.mktemp("cache")
    place.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPHOOK_CACHE_DIR", str(place))
        if "DDPHOOK_LIBRARY_DIR" not in os.environ:
            patch.setenv("DDPHOOK_LIBRARY_DIR", str(ROOT / "build" / "lib"))
        others = os.environ.get("PYTHONPATH")
        path = [*map(str, SOURCES), *filter(None, [others])]
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        yield


@pytest.fixture
def run(device, worlds):
    """function(rank, place, group, *arguments) on 1, and on 2 ranks if there is room."""

    def each(function, *arguments, world=None, collect=False):
        chosen = [w for w in worlds if w <= 2] if world is None else [world]
        for count in chosen:
            gpus = [rank if device.gpus >= count else 0 for rank in range(count)]
            places = [f"cuda:{gpu}" if device.is_real else "cpu" for gpu in gpus]
            variables = [device.rank_variables(rank) for rank in range(count)]
            call = ranks.collect if collect else ranks.run
            results = call(count, _on_gpu, places, variables, function, *arguments)
        return results

    return each


def _on_gpu(rank, places, variables, function, *arguments):
    os.environ.update(variables[rank])
    place = torch.device(places[rank])
    if place.type == "cpu":
        with _emulated(rank):
            group = dist.new_group(backend="gloo")
            return function(rank, place, group, *arguments)
    # As cuBLAS asks for, so that equal products have equal bits.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.cuda.set_device(place)
    group = dist.new_group(backend="nccl")
    return function(rank, place, group, *arguments)


@contextlib.contextmanager
def _emulated(rank):
    """Modules for tensors of the host are compiled for CUDA, and run there."""
    import staged
    from ddphook.torch import _device

    def make(_):
        return staged.Staged(rank)

    with mock.patch.multiple(_device, device_of=make, device_at=make):
        yield


def synchronize(place):
    if place.type == "cuda":
        torch.cuda.synchronize(place)


@pytest.fixture
def streams(device):
    if not device.is_real:
        pytest.skip("PyTorch's streams and CUDA tensors need a GPU")


def make(name, place, group, **options):
    torch.manual_seed(7)
    model = models.MODELS[name]().to(place)
    ids = [place.index] if place.type == "cuda" else None
    return DistributedDataParallel(
        model, device_ids=ids, process_group=group, **options
    )


def _exact(rank, place, group, name, options):
    import ddphook.torch

    for title, hook in EXACT.items():
        if place.type == "cpu" and title.startswith("per "):
            continue  # With Gloo PyTorch's hook may wait forever for its own futures.
        theirs = make(name, place, group, **options)
        theirs.register_comm_hook(group, hook)
        expected = models.train(theirs, rank, STEPS)
        ours = make(name, place, group, **options)
        with ddphook.torch.register(ours, hook):
            got = models.train(ours, rank, STEPS)
        models.check_equal(got, expected, f"{name}, {title}")


@pytest.mark.parametrize("options", [{}, BUCKETS], ids=["one bucket", "several"])
@pytest.mark.parametrize("name", NAMES)
def test_pytorchs_bits(run, name, options):
    run(_exact, name, options)


def _powersgd(rank, place, group):
    import ddphook.torch

    theirs = make("mlp", place, group)
    state = powersgd.PowerSGDState(group, **POWERSGD)
    theirs.register_comm_hook(state, powersgd.powerSGD_hook)
    expected = models.train(theirs, rank, STEPS)
    ours = make("mlp", place, group)
    with ddphook.torch.register(ours, "powersgd", **POWERSGD):
        got = models.train(ours, rank, STEPS)
    models.check_equal(got[:2], expected[:2], "before PowerSGD starts")
    assert models.difference(got, expected) < 1e-3


def test_powersgd(run):
    run(_powersgd)


def _others(rank, place, group):
    """Ranks agree, and what is sent is what the hook sends on the host."""
    import ddphook.torch

    for hook, options in OTHERS:
        what = f"{hook}, {options}"
        counters = []
        for where, members in ((torch.device("cpu"), None), (place, group)):
            model = make("mlp", where, members)
            with ddphook.torch.register(model, hook, **options) as handle:
                history = models.train(model, rank, STEPS)
                counters.append(handle.statistics())
                states = handle.state_dict()
                handle.load_state_dict(states)
            assert history[-1].isfinite().all(), what
        for field in ("steps", "wire_bytes", "elements_after_compression"):
            assert counters[0][field] == counters[1][field], (what, field)
        if hook != "post_local_sgd":
            mine = history[-1].cpu()
            sums = mine.clone()
            dist.all_reduce(sums)
            assert torch.allclose(sums / dist.get_world_size(), mine, rtol=1e-12), what


def test_hooks_that_pytorch_has_not(run):
    run(_others)


def _streams(rank, place, group):
    """A backward pass on a stream of the program's, beside work on the default one."""
    import ddphook.torch

    def train(ddp, stream):
        with torch.cuda.stream(stream):
            history = models.train(ddp, rank, STEPS)
        synchronize(place)
        return history

    theirs = make("mlp", place, group, **BUCKETS)
    theirs.register_comm_hook(group, EXACT["fp16"])
    expected = train(theirs, torch.cuda.current_stream(place))
    ours = make("mlp", place, group, **BUCKETS)
    with ddphook.torch.register(ours, "fp16"):
        synchronize(place)
        got = train(ours, torch.cuda.Stream(place))
    models.check_equal(got, expected, "on another stream")


def test_another_stream(run, streams):
    run(_streams)


@contextlib.contextmanager
def _counted(rank, place):
    """How many bytes PyTorch's allocator has given, itself or its stand-in."""
    if place.type == "cuda":
        yield lambda: torch.cuda.memory_allocated(place)
        return
    import staged

    with staged.lent(rank) as lender:
        yield lambda: lender.allocated


def _allocator(rank, place, group):
    import ddphook.torch

    with _counted(rank, place) as allocated:
        model = make("mlp", place, group)
        models.train(model, rank, 1)  # Gradients have their memory now.
        before = allocated()
        with ddphook.torch.register(model, "powersgd", **POWERSGD) as handle:
            models.train(model, rank, STEPS)
            size = sum(
                value.nbytes
                for values in handle.state_dict()["states"].values()
                for value in values.values()
                if value.is_floating_point()
            )
            assert size > 0
            assert allocated() >= before + size
        assert allocated() <= before


def test_memory_is_pytorchs(run):
    run(_allocator)


def _refusals(rank, place, group):
    import ddphook.torch

    model = make("mlp", place, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ddphook.UnsupportedError, match="on a CPU for an optimizer"):
        ddphook.torch.register(model, "fp16", optimizer=optimizer)
    averager = ddphook.torch.PeriodicModelAverager(1, process_group=group)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with pytest.raises(ddphook.UnsupportedError, match="in the host's memory"):
        averager.average_parameters(model.parameters())


def test_refusals(run, streams):
    run(_refusals, world=1)


def _lose_a_peer(rank, place, group):
    import ddphook.torch

    model = make("mlp", place, group)
    with ddphook.torch.register(model, "fp16", timeout=20):
        models.train(model, rank, 3)
        synchronize(place)
        if rank == 1:
            os._exit(3)
        begin = time.monotonic()
        with pytest.raises(RuntimeError, match="PeerLost|DeadlineExceeded|Aborted"):
            # The step that loses the rank may end; the next one says so.
            for _ in range(3):
                models.train(model, rank, 1)
                synchronize(place)
    return time.monotonic() - begin


def test_a_lost_peer_is_an_exception(run, worlds):
    if 2 not in worlds:
        pytest.skip("one rank only: two cannot share the GPU")
    (kind, seconds), died = run(_lose_a_peer, world=2, collect=True)
    assert died == ("died", 3)
    assert kind == "ok", seconds
    assert seconds < 60


# Of the gradients of a step, for several buckets of the limit below.
SHAPES = [(37, 21), (21,), (5, 3, 2, 2), (0, 3), (1, 13), (64, 48)]
STEP_OPTIONS = {"bucket_cap_mb": 0.003, "fullgraph": True}
STEP_HOOKS = [
    ("allreduce", {}),
    ("fp16", {}),
    ("bf16", {}),
    ("int8", {}),
    ("int4", {"rounding": "stochastic"}),
    ("fp8", {}),
    ("topk", {"density": 0.1}),
    ("quantization_perchannel", {}),
    ("powersgd", POWERSGD),
    ("powersgd", {**POWERSGD, "numerics": "improved"}),
    ("batched_powersgd", {**POWERSGD, "wrapper": "fp16"}),
]


def _averages(name):
    """A step that averages gradients that it computes on the group of a name."""
    ops = torch.ops._c10d_functional

    def step(*gradients):
        return [ops.wait_tensor(ops.all_reduce(g * 2, "avg", name)) for g in gradients]

    return step


def _run_compiled(hook, options, rank, place, name, stream=None):
    """The averages of some steps, and their states."""
    import ddphook.torch

    torch._dynamo.reset()
    step = ddphook.torch.compile(_averages(name), hook=hook, **STEP_OPTIONS, **options)
    history = []
    for number in range(STEPS):
        generator = torch.Generator().manual_seed(100 * number + rank)
        gradients = [torch.randn(s, generator=generator).to(place) for s in SHAPES]
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(place))
        with torch.cuda.stream(stream):
            averages = [average + 0 for average in step(*gradients)]
            history.append([average.cpu() for average in averages])
    states = ddphook.torch.state_dict()
    ddphook.torch.close()
    return history, states


def _compiled(rank, place, group):
    exact = {"DDPHOOK_BACKEND_OPTIONS": "exact_division=1"}
    for hook, options in STEP_HOOKS:
        host, _ = _run_compiled(hook, options, rank, torch.device("cpu"), "0")
        with mock.patch.dict(os.environ, exact):
            got, states = _run_compiled(hook, options, rank, place, group.group_name)
        assert list(states) == [group.group_name]
        for step, (mine, expected) in enumerate(zip(got, host)):
            for a, b in zip(mine, expected):
                what = f"{hook}, {options}, step {step}, {tuple(a.shape)}"
                if "powersgd" not in hook:
                    assert torch.equal(a, b), what
                else:
                    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3, msg=what)


def test_compiled_steps_have_the_bits_of_the_host(run):
    run(_compiled)


def _compiled_stream(rank, place, group):
    name = group.group_name
    expected, _ = _run_compiled("fp16", {}, rank, place, name)
    got, _ = _run_compiled("fp16", {}, rank, place, name, torch.cuda.Stream(place))
    for mine, others in zip(got, expected):
        assert all(map(torch.equal, mine, others))


def test_a_compiled_step_on_another_stream(run, streams):
    run(_compiled_stream)


def _train_compiled(rank, place, group, hook):
    """Parameters after some steps of a whole step, with Inductor's reductions or ours."""
    import ddphook.torch

    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    torch.manual_seed(7)
    model = models.mlp().to(place)
    names = [name for name, _ in model.named_parameters()]
    average = _averages(group.group_name)

    def step(parameters, x):
        named = dict(zip(names, parameters))
        loss = (torch.func.functional_call(model, named, (x,)) - 0.3).square().mean()
        gradients = average(*torch.autograd.grad(loss, parameters))
        return [p.detach() - 0.01 * g for p, g in zip(parameters, gradients)]

    if hook is None:
        step = torch.compile(step, fullgraph=True)
    else:
        step = ddphook.torch.compile(step, hook=hook, **STEP_OPTIONS)
    parameters = [p.detach().clone() for p in model.parameters()]
    for number in range(STEPS):
        generator = torch.Generator().manual_seed(100 * number + rank)
        x = (torch.rand(6, 64, generator=generator) * 2 - 1).to(place)
        parameters = step([p.requires_grad_() for p in parameters], x)
    ddphook.torch.close()
    return torch.cat([p.detach().flatten() for p in parameters]).cpu()


def _compiled_training(rank, place, group):
    inductor = _train_compiled(rank, place, group, None)
    for hook, tolerance in (("allreduce", 1e-6), ("fp16", 1e-3)):
        ours = _train_compiled(rank, place, group, hook)
        torch.testing.assert_close(ours, inductor, rtol=tolerance, atol=tolerance)
        sums = ours.clone()
        dist.all_reduce(sums)
        assert torch.equal(sums / dist.get_world_size(), ours), "ranks differ"


@pytest.mark.skipif(
    not hasattr(torch._dynamo.config, "trace_autograd_ops"),
    reason=f"PyTorch {torch.__version__} does not trace torch.autograd.grad",
)
def test_whole_compiled_steps(run):
    run(_compiled_training)


def _lose_a_peer_compiled(rank, place, group):
    import ddphook.torch
    from ddphook import _errors

    step = ddphook.torch.compile(
        _averages(group.group_name), hook="fp16", timeout=20, **STEP_OPTIONS
    )
    gradient = torch.ones(100, 7, device=place)
    step(gradient)
    synchronize(place)
    if rank == 1:
        os._exit(3)
    begin = time.monotonic()
    errors = (_errors.PeerLostError, _errors.DeadlineExceededError, _errors.AbortedError)
    with pytest.raises(errors):
        # The step that loses the rank may end; the next one says so.
        for _ in range(3):
            step(gradient)
            synchronize(place)
    return time.monotonic() - begin


def test_a_lost_peer_in_a_compiled_step(run, worlds):
    if 2 not in worlds:
        pytest.skip("one rank only: two cannot share the GPU")
    (kind, seconds), died = run(_lose_a_peer_compiled, world=2, collect=True)
    assert died == ("died", 3)
    assert kind == "ok", seconds
    assert seconds < 60
