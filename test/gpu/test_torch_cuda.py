# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook.torch on CUDA tensors: DDP over NCCL with our hooks, beside PyTorch's.

For a GPU alone, and a build tree: hooks are compiled here, which a bundle of
tools/gpu-bundle.sh cannot do. test/python/test_device.py has the same on the
emulated device, without PyTorch's streams.
"""

import os
import pathlib
import sys
import time

import pytest
import torch
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
            places = [f"cuda:{rank if device.gpus >= count else 0}" for rank in range(count)]
            variables = [device.rank_variables(rank) for rank in range(count)]
            call = ranks.collect if collect else ranks.run
            results = call(count, _on_gpu, places, variables, function, *arguments)
        return results

    return each


def _on_gpu(rank, places, variables, function, *arguments):
    os.environ.update(variables[rank])
    place = torch.device(places[rank])
    group = None
    if place.type == "cuda":
        # As cuBLAS asks for, so that equal products have equal bits.
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        torch.cuda.set_device(place)
        group = dist.new_group(backend="nccl")
    return function(rank, place, group, *arguments)


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
        torch.cuda.synchronize(place)
        return history

    theirs = make("mlp", place, group, **BUCKETS)
    theirs.register_comm_hook(group, EXACT["fp16"])
    expected = train(theirs, torch.cuda.current_stream(place))
    ours = make("mlp", place, group, **BUCKETS)
    with ddphook.torch.register(ours, "fp16"):
        torch.cuda.synchronize(place)
        got = train(ours, torch.cuda.Stream(place))
    models.check_equal(got, expected, "on another stream")


def test_another_stream(run):
    run(_streams)


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


def test_refusals(run):
    run(_refusals, world=1)


def _lose_a_peer(rank, place, group):
    import ddphook.torch

    model = make("mlp", place, group)
    with ddphook.torch.register(model, "fp16", timeout=20):
        models.train(model, rank, 3)
        torch.cuda.synchronize(place)
        if rank == 1:
            os._exit(3)
        begin = time.monotonic()
        with pytest.raises(RuntimeError, match="PeerLost|DeadlineExceeded|Aborted"):
            # The step that loses the rank may end; the next one says so.
            for _ in range(3):
                models.train(model, rank, 1)
                torch.cuda.synchronize(place)
    return time.monotonic() - begin


def test_a_lost_peer_is_an_exception(run, worlds):
    if 2 not in worlds:
        pytest.skip("one rank only: two cannot share the GPU")
    (kind, seconds), died = run(_lose_a_peer, world=2, collect=True)
    assert died == ("died", 3)
    assert kind == "ok", seconds
    assert seconds < 60


def _compiled(rank, place, group):
    import logging

    import ddphook.torch

    texts = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())
    logging.getLogger("ddphook").addHandler(handler)
    ops = torch.ops._c10d_functional
    name = group.group_name

    def step(gradient):
        return ops.wait_tensor(ops.all_reduce(gradient * 2, "avg", name))

    compiled = ddphook.torch.compile(step, hook="fp16", fullgraph=True)
    gradient = torch.full((5, 7), rank + 1.0, device=place)
    expected = torch.full((5, 7), dist.get_world_size() + 1.0, device=place)
    for _ in range(2):
        assert torch.equal(compiled(gradient), expected)
    assert len(texts) == 1 and "are reduced without compression" in texts[0]


def test_a_compiled_step_is_not_compressed_and_says_so(run):
    run(_compiled)
