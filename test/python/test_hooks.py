# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares training with compiled hooks to training with PyTorch's own.

Both train in the same processes, on equal data, under real DistributedDataParallel.
Parameters have the same bits after every step, except with PowerSGD, where the order
of additions differs (docs/parity.md).
"""

import inspect
import os
import pathlib
import re

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks

import models
import ranks
from test_requests import log

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 20
# Gives this model several buckets after DDP has rebuilt them.
BUCKETS = {"bucket_cap_mb": 0.02}

EXACT = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "noop": debugging_hooks.noop_hook,
    "allreduce in fp16": default_hooks.fp16_compress_wrapper(
        default_hooks.allreduce_hook
    ),
    "allreduce in bf16": default_hooks.bf16_compress_wrapper(
        default_hooks.allreduce_hook
    ),
    "per tensor": quantization_hooks.quantization_pertensor_hook,
    "per channel": quantization_hooks.quantization_perchannel_hook,
}

# Before PyTorch 2.15, its quantization hooks raise an IndexError on Gloo.
if "fut.wait()[0]" in inspect.getsource(quantization_hooks):
    del EXACT["per tensor"], EXACT["per channel"]


def waiting(hook):
    """Returns a hook that waits for its result before it returns.

    With several buckets, PyTorch's hooks that have several collectives start them in a
    different order on each rank, which ends the process on Gloo.
    """

    def wait(state, bucket):
        value = hook(state, bucket).wait()
        future = torch.futures.Future()
        future.set_result(value[0] if isinstance(value, list) else value)
        return future

    return wait


def _exact(rank, name, hooks, ddp_options, train_options, steps=STEPS):
    import ddphook.torch

    for hook in hooks:
        theirs = models.make(name, rank, **ddp_options)
        theirs.register_comm_hook(None, waiting(EXACT[hook]))
        expected = models.train(theirs, rank, steps, **train_options)
        ours = models.make(name, rank, **ddp_options)
        # Registers PyTorch's own function.
        with ddphook.torch.register(ours, EXACT[hook]) as handle:
            got = models.train(ours, rank, steps, **train_options)
            assert handle.statistics()["steps"] >= steps
        models.check_equal(got, expected, f"{name}, {hook}")


@pytest.mark.parametrize(
    "world", [1, 2, 3, pytest.param(4, marks=pytest.mark.full("as two and three ranks"))]
)
def test_every_exact_hook(world):
    ranks.run(world, _exact, "mlp", list(EXACT), BUCKETS, {})


def _exempt(rank):
    """Weights keep their own gradients; biases are averaged as without a hook, or as
    PyTorch's hook does in a separate bucket."""
    import ddphook.torch

    for theirs, ours in [(default_hooks.allreduce_hook, None), (EXACT["bf16"], "bf16")]:
        expected, grads = {}, {}
        for name, hook in [("none", debugging_hooks.noop_hook), ("all", theirs)]:
            model = models.make("mlp", rank, **BUCKETS)
            model.register_comm_hook(None, waiting(hook))
            models.train(model, rank, 1)
            expected[name] = {n: p.grad for n, p in model.module.named_parameters()}
        model = models.make("mlp", rank, **BUCKETS)
        options = {} if ours is None else {"exempt_hook": ours}
        with ddphook.torch.register(model, "noop", exempt=r"bias$", **options):
            models.train(model, rank, 1)
        grads = {n: p.grad for n, p in model.module.named_parameters()}
        assert any(name.endswith("bias") for name in grads)
        for name, grad in grads.items():
            want = expected["all" if name.endswith("bias") else "none"][name]
            assert torch.equal(grad, want), name
    with pytest.raises(ddphook.InvalidArgumentError, match="none of .*weight"):
        ddphook.torch.register(models.make("mlp", rank), "int8", exempt="bais")


def test_exempt_parameters():
    ranks.run(2, _exempt)


def _hierarchical(rank):
    """Two nodes of two ranks: PyTorch sums within each, and its fp16 hook works between them.
    A sum of two ranks has only one order, so the assignment of shards does not affect bits."""
    os.environ["DDPHOOK_NODE"] = "ab"[rank // 2]
    import ddphook.torch

    nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    rails = [dist.new_group([0, 2]), dist.new_group([1, 3])]

    def hook(state, bucket):
        gradients = bucket.buffer().div_(2)
        dist.all_reduce(gradients, group=nodes[rank // 2])
        halves = gradients.half().div_(2)
        dist.all_reduce(halves, group=rails[rank % 2])
        future = torch.futures.Future()
        future.set_result(gradients.copy_(halves))
        return future

    theirs = models.make("mlp", rank, **BUCKETS)
    theirs.register_comm_hook(None, hook)
    expected = models.train(theirs, rank, STEPS)
    ours = models.make("mlp", rank, **BUCKETS)
    with ddphook.torch.register(ours, "fp16", topology="hierarchical"):
        got = models.train(ours, rank, STEPS)
    models.check_equal(got, expected, "fp16 between nodes")


def test_hierarchical_group():
    ranks.run(4, _hierarchical)


MODES = {
    "views": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
    "one bucket": {"bucket_cap_mb": 100},
}


def _modes(rank):
    for ddp_options in MODES.values():
        name = "unused" if "find_unused_parameters" in ddp_options else "mlp"
        _exact(rank, name, ["fp16"], {**BUCKETS, **ddp_options}, {}, steps=8)


def test_modes_of_ddp():
    ranks.run(2, _modes)


def _every_model(rank):
    for name in models.MODELS:
        unused = {"find_unused_parameters": True} if name == "unused" else {}
        options = {**BUCKETS, **unused}
        _exact(rank, name, ["bf16"], options, {"accumulate": 2}, steps=5)


def test_every_model_with_accumulation():
    ranks.run(3, _every_model)


def _autocast(rank):
    def context():
        return torch.autocast("cpu", dtype=torch.bfloat16)

    _exact(rank, "mlp", ["fp16"], BUCKETS, {"context": context})


def test_mixed_precision_by_autocast():
    ranks.run(2, _autocast)


def _compiled_model(rank):
    """torch.compile leaves the hook in DDP's reducer."""
    import ddphook.torch

    histories = []
    for wrap in (lambda ddp: ddp, lambda ddp: torch.compile(ddp, backend="aot_eager")):
        ddp = models.make("mlp", rank)
        model = wrap(ddp)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        histories.append([])
        with ddphook.torch.register(ddp, "fp16") as handle:
            for step in range(5):
                generator = torch.Generator().manual_seed(step * 10 + rank)
                optimizer.zero_grad()
                model(torch.rand(4, 64, generator=generator)).square().mean().backward()
                optimizer.step()
                histories[-1].append(models.parameters(ddp))
            assert handle.statistics()["steps"] == 5
    models.check_equal(*histories)


def test_a_model_in_torch_compile():
    ranks.run(2, _compiled_model)


POWERSGD = {
    "powersgd": ("powersgd", {"matrix_approximation_rank": 2}),
    "rank 4": ("powersgd", {"matrix_approximation_rank": 4}),
    "cold": ("powersgd", {"warm_start": False}),
    "without error feedback": ("powersgd", {"use_error_feedback": False}),
    "another seed": ("powersgd", {"random_seed": 5}),
}


def _powersgd(rank, cases, ddp_options, start):
    import ddphook.torch

    measured = {}
    for case in cases:
        _, options = POWERSGD[case]
        options = {"start_powerSGD_iter": start, **options}
        state = powersgd.PowerSGDState(None, **options)
        theirs = models.make("mlp", rank, **ddp_options)
        theirs.register_comm_hook(state, waiting(powersgd.powerSGD_hook))
        expected = models.train(theirs, rank, STEPS)
        ours = models.make("mlp", rank, **ddp_options)
        with ddphook.torch.register(ours, "powersgd", **options) as handle:
            got = models.train(ours, rank, STEPS)
            statistics = handle.statistics()
        # Before the first compressed step, bits are equal.
        models.check_equal(got[:start], expected[:start], case)
        assert state.iter == STEPS
        before = statistics["elements_before_compression"]
        after = statistics["elements_after_compression"]
        assert (before, after) == state.compression_stats()[1:]
        measured[case] = models.difference(got, expected)
    return measured


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_powersgd_in_one_bucket(world):
    cases = list(POWERSGD) if world == 2 else ["powersgd"]
    results = ranks.run(world, _powersgd, cases, {"bucket_cap_mb": 100}, 3)
    for measured in results:
        for case, deviation in measured.items():
            # The deviation of free-running f32 (docs/parity.md), times a learning rate.
            assert deviation < 2e-5, (case, deviation)


def test_powersgd_in_several_buckets():
    for measured in ranks.run(2, _powersgd, list(POWERSGD), BUCKETS, 2):
        for case, deviation in measured.items():
            assert deviation < 2e-5, (case, deviation)


def _wrong_seed(rank):
    import ddphook.torch

    histories = []
    for seed in (0, 1):
        ddp = models.make("mlp", rank, **BUCKETS)
        options = {"start_powerSGD_iter": 2, "random_seed": seed}
        with ddphook.torch.register(ddp, "powersgd", **options):
            histories.append(models.train(ddp, rank, STEPS))
    return models.difference(*histories)


def test_the_tolerance_is_able_to_fail():
    """Another first Q exceeds the tolerance: it changes more than rounding does."""
    assert min(ranks.run(2, _wrong_seed)) > 2e-4


def _unused(rank):
    """Parameters that a step does not use, with ranks for which PyTorch's hook gives NaN."""
    import ddphook.torch

    unused = {"find_unused_parameters": True, **BUCKETS}
    for columns in (1, 2):
        ddp = models.make("unused", rank, **unused)
        options = {"matrix_approximation_rank": columns, "start_powerSGD_iter": 2}
        options["min_compression_rate"] = 1.01
        with ddphook.torch.register(ddp, "powersgd", **options) as handle:
            assert all(step.isfinite().all() for step in models.train(ddp, rank, 8))
            statistics = handle.statistics()
        after = statistics["elements_after_compression"]
        assert after < statistics["elements_before_compression"]


def test_powersgd_with_unused_parameters():
    ranks.run(2, _unused)


def _overflow(rank):
    """Runs steps after a step in which a gradient of rank 0 was not finite."""
    import ddphook.torch

    def backward(ddp, bad=None):
        parameters = dict(ddp.module.named_parameters())
        ddp.zero_grad()
        if bad is not None and rank == 0:
            spoil = parameters[bad].register_hook(lambda g: g.fill_(float("inf")))
        ddp(torch.ones(4, 64)).square().mean().backward()
        if bad is not None and rank == 0:
            spoil.remove()
        return all(p.grad.isfinite().all() for p in parameters.values())

    for hook, options in (
        ("powersgd", {}),
        ("powersgd", {"warm_start": False}),
        ("powersgd", {"wrapper": "fp16"}),
        ("batched_powersgd", {}),
        ("powersgd", {"skip_nonfinite": True}),
        ("powersgd", {"numerics": "improved"}),
    ):
        recovers = "skip_nonfinite" in options or "numerics" in options
        # A matrix, and a tensor that is not compressed.
        for bad in ("2.weight", "2.bias"):
            ddp = models.make("mlp", rank, **BUCKETS)
            with (
                ddphook.torch.register(ddp, hook, start_powerSGD_iter=2, **options),
                log() as warnings,
            ):
                # Before compression starts, an overflow changes no state.
                assert not backward(ddp, bad) and backward(ddp) and backward(ddp)
                assert not warnings
                assert not backward(ddp, bad)
                assert recovers or len(warnings) == 1
                assert backward(ddp) == recovers
            assert recovers or "skip_nonfinite=True" in warnings[0]
            assert len(warnings) == (0 if recovers else 1)


def test_a_gradient_that_is_not_finite():
    ranks.run(2, _overflow)


def _as_documented(rank, code):
    ddp_model = models.make("mlp", rank)
    exec(code, {"ddp_model": ddp_model})  # noqa: S102 - the code of the pages.
    models.train(ddp_model, rank, 2)


@pytest.mark.parametrize("page", ["README.md", "docs/pytorch.md"])
def test_the_two_lines_of_the_pages(page):
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (code,) = [block for block in blocks if "import ddphook.torch" in block]
    assert len(code.splitlines()) == 2
    ranks.run(2, _as_documented, code)
