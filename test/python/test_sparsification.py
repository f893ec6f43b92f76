# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hook `topk` under real DDP, in a graph, and in exported modules."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

import models
import ranks
from test_compile import reduced
from test_names import ROOT
from test_states import FIXED, ONE, SMALL, _resume

sys.path.append(str(ROOT / "test" / "parity"))
import topk_model  # noqa: E402
from tensors import Tensor  # noqa: E402

SPARSE = {"hook": "topk", "density": 0.05}


def loss_after(rank, steps, **options):
    """Returns the loss of a small network on unseen data."""
    import ddphook.torch

    ddp = models.make("mlp", rank, **SMALL)
    teacher = torch.Generator().manual_seed(5)
    rule = torch.randn(64, 16, generator=teacher)
    if options:
        ddphook.torch.register(ddp, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)

    def loss(seed):
        x = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed))
        return (ddp(x) - (x @ rule / 8).tanh()).square().mean()

    for step in range(steps):
        optimizer.zero_grad()
        loss(2 * step + rank).backward()
        optimizer.step()
    with torch.no_grad():
        return float(loss(999_999))


def _train(rank):
    return [
        loss_after(rank, 400, **options)
        for options in ({}, SPARSE, {**SPARSE, "error_feedback": False})
    ]


@pytest.mark.full("trains three times for 400 steps")
def test_training_is_close_to_no_compression():
    first, second = ranks.run(2, _train)
    assert first == second
    whole, sparse, forgetful = first
    before = ranks.run(1, _untrained)[0]
    assert whole < before / 3
    # A twentieth of the elements retains most of the progress of training, and more than
    # without error feedback.
    assert before - sparse > 0.8 * (before - whole)
    assert sparse < forgetful


def _untrained(rank):
    return loss_after(rank, 0)


def _exact(rank):
    """Returns a step's gradients in one bucket, to compare with the model."""
    import ddphook.torch

    local = models.make("mlp", rank, **ONE).module
    ddp = models.make("mlp", rank, **ONE)
    result = []
    with ddphook.torch.register(ddp, **SPARSE) as handle:
        for step in range(3):
            x = torch.rand(6, 64, generator=torch.Generator().manual_seed(step + rank))
            for model in (local, ddp):
                model.zero_grad()
                model(x).square().mean().backward()
            named = dict(ddp.module.named_parameters())
            mine = {n: p.grad.numpy().copy() for n, p in local.named_parameters()}
            got = {n: p.grad.numpy().copy() for n, p in named.items()}
            errors = handle.state_dict()["states"]["topk.error"]
            errors = {n: e.numpy() for n, e in errors.items()}
            result.append((mine, got, errors))
        counts = handle.statistics()
        elements = sum(p.numel() for p in ddp.parameters())
        assert counts["wire_bytes"] == 3 * 8 * int(0.05 * elements)
        assert counts["uncompressed_bytes"] == 3 * 4 * elements
    return result


def test_gradients_are_those_of_the_model():
    """PyTorch's order in a bucket changes after the first step, in which no two gradients
    tie; errors stay with their parameters."""
    of_ranks = ranks.run(2, _exact)
    names = list(of_ranks[0][0][0])
    bucket = topk_model.Bucket(2, 0.05)

    def flat(arrays):
        return np.concatenate([arrays[name].reshape(-1) for name in names])

    for step in range(3):
        want = bucket.reduce([Tensor("f32", flat(r[step][0])) for r in of_ranks])
        for rank, steps in enumerate(of_ranks):
            assert np.array_equal(flat(steps[step][1]), want.data), step
            assert np.array_equal(flat(steps[step][2]), bucket.errors[rank]), step


def _rebuilt(rank):
    """Sends zero gradients in the buckets that DDP makes after its first step: what is sent
    is then the rest of the first step's gradients."""
    import ddphook.torch

    ddp = models.make("mlp", rank, **SMALL)
    with ddphook.torch.register(ddp, **SPARSE) as handle:
        x = torch.rand(6, 64, generator=torch.Generator().manual_seed(rank))
        ddp(x).square().mean().backward()
        first = handle.state_dict()["states"]["topk.error"]
        before = handle.statistics()["collectives"]
        ddp.zero_grad()
        (ddp(x) * 0).sum().backward()
        # The buckets differ from those of the first step.
        assert handle.statistics()["collectives"] > before + 1 >= 2
        second = handle.state_dict()["states"]["topk.error"]
        grads = {n: 2 * p.grad for n, p in ddp.module.named_parameters()}
    sent = {name: first[name] - second[name] for name in first}
    return {n: (sent[n].numpy(), grads[n].numpy()) for n in sent}


def test_errors_are_carried_over_rebuilt_buckets():
    first, second = ranks.run(2, _rebuilt)
    assert sum(np.count_nonzero(sent) for sent, _ in first.values()) > 0
    for name in first:
        assert np.array_equal(first[name][0] + second[name][0], first[name][1]), name


def _resumes(rank):
    _resume(rank, "topk", {"density": 0.02}, FIXED, FIXED)


def test_resuming():
    ranks.run(2, _resumes)


def _refused(rank):
    import ddphook.torch

    for options, error, text in (
        ({"density": "0.1"}, ddphook.InvalidArgumentError, "expected float"),
        ({"densty": 0.1}, ddphook.InvalidArgumentError, "did you mean 'density'?"),
        (
            {"density": 0},
            ddphook.InvalidArgumentError,
            "hook 'topk': expected density to be above 0 and at most 1, but got 0",
        ),
        (
            {"topology": "hierarchical"},
            ddphook.InvalidArgumentError,
            "hook 'topk': expected a flat group",
        ),
    ):
        ddp = models.make("mlp", rank)
        with pytest.raises(error, match=text.replace("?", r"\?")):
            ddphook.torch.register(ddp, "topk", **options)


def test_what_is_refused():
    ranks.run(2, _refused)


def _graph(rank):
    """Checks a compiled step in which only a gradient's largest element remains."""
    import ddphook.torch

    step = ddphook.torch.compile(
        lambda x: reduced(x, "sum"), hook="topk", density=0.25, error_feedback=False
    )
    x = torch.tensor([0.5, -3.0, 1.0 + rank, -0.25])
    want = [0.0, -6.0, 0.0, 0.0]
    got = step(x).tolist()
    ddphook.torch.close()
    assert got == want
    return got


def test_in_a_graph():
    ranks.run(2, _graph)


def _export(rank, path):
    import ddphook.torch

    ddp = models.make("mlp", rank)
    options = ddphook.torch.export(ddp, file=path, hook="topk", density=0.5)
    return options


def test_an_exported_module_needs_the_size(tmp_path):
    """The number of ranks is unknown when a model is exported."""
    path = tmp_path / "model.mlir"
    (options,) = ranks.run(1, _export, path)
    assert "density=0.5" in options and "hook=topk" in options
    tool = os.environ.get("DDPHOOK_RUN", str(ROOT / "build" / "bin" / "ddphook-run"))
    command = [tool, path, "--entry=step", "--ranks=2", "--inputs=random:1"]
    command = [*map(str, command), f"--ddp-pipeline={options}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "to declare its size" in done.stderr, done.stderr
    text = pathlib.Path(path).read_text()
    pathlib.Path(path).write_text(text.replace("@dp\n", "@dp size 2\n", 1))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
