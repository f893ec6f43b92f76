# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports the reductions of a PyTorch program, and runs them on native ranks."""

import os
import pathlib
import re
import shlex
import subprocess

import pytest
import torch
import torch.distributed as dist

import models
import ranks
from conftest import ROOT

RUN = ROOT / "build" / "bin" / "ddphook-run"


def run_native(module, world, pipeline, inputs, outputs):
    """Runs the exported module on native ranks, and returns their results."""
    from safetensors.torch import load_file

    subprocess.run(
        [
            os.environ.get("DDPHOOK_RUN", RUN),
            module,
            "--entry=step",
            f"--ranks={world}",
            f"--ddp-pipeline={pipeline}",
            f"--inputs={inputs}",
            f"--outputs={outputs}",
        ],
        check=True,
        timeout=600,
    )
    return [load_file(str(outputs).format(rank=rank)) for rank in range(world)]


def save(tensors, path):
    from safetensors.torch import save_file

    save_file({f"arg{i}": t.contiguous() for i, t in enumerate(tensors)}, path)


def check_command(module, pipeline):
    """Checks that the file's first line is a command with its options, and compiles it."""
    first = pathlib.Path(module).read_text().splitlines()[0]
    words = shlex.split(first.removeprefix("// "))
    assert words[:4] == ["ddphook-cc", "step.mlir", "-o", "step.o"]
    assert words[4:] == [f"--ddp-pipeline={pipeline}"]
    run_first_line(module)


def run_first_line(module):
    """Runs the first line as a shell command in the module's directory."""
    module = pathlib.Path(module)
    tools = pathlib.Path(RUN).parent
    command = module.read_text().splitlines()[0].removeprefix("// ")
    subprocess.run(
        ["sh", "-ec", command],
        cwd=module.parent,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        check=True,
        timeout=600,
    )
    assert module.with_suffix(".o").read_bytes().startswith(b"\x7fELF")
    module.with_suffix(".o").unlink()


def _export_step(rank, directory, hook, options):
    import ddphook.torch

    def step(weights, x):
        weights = [w.detach().requires_grad_() for w in weights]
        loss = ((x @ weights[0]).tanh() @ weights[1]).square().mean()
        gradients = torch.autograd.grad(loss, weights)
        ops = torch.ops._c10d_functional
        return [
            ops.wait_tensor(ops.all_reduce(g / dist.get_world_size(), "sum", "0"))
            for g in gradients
        ], ops.wait_tensor(ops.all_reduce(loss.detach(), "avg", "0"))

    generator = torch.Generator().manual_seed(rank)
    weights = [torch.randn(7, 5), torch.randn(5, 3)]
    x = torch.randn(4, 7, generator=generator)
    module = directory / f"step{rank}" / "step.mlir"
    module.parent.mkdir()
    pipeline = ddphook.torch.export(step, weights, x, file=module, hook=hook, **options)
    check_command(module, pipeline)
    # The input of the native program: this rank's gradients.
    gradients = [torch.randn(7, 5, generator=generator), torch.randn(5, 3)]
    save(gradients, directory / f"in.{rank}")
    compiled = [g.clone() for g in gradients]
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    bucket = torch.cat([g.flatten() for g in compiled])

    class Bucket:
        buffer = staticmethod(lambda: bucket)

    expected = default_hooks.fp16_compress_hook(None, Bucket).wait()
    return pipeline, module.read_text(), expected.tolist()


def test_a_step_runs_natively(tmp_path):
    results = ranks.run(2, _export_step, tmp_path, "fp16", {})
    (pipeline, text, _), (other_pipeline, other_text, _) = results
    assert (pipeline, text) == (other_pipeline, other_text)
    # The loss is a scalar, and therefore not exported.
    assert text.count("ddp.all_reduce mean") == 2
    outputs = run_native(
        tmp_path / "step0" / "step.mlir",
        2,
        pipeline,
        tmp_path / "in.{rank}",
        tmp_path / "out.{rank}",
    )
    for got, (_, _, expected) in zip(outputs, results):
        flat = torch.cat([got["result0"].flatten(), got["result1"].flatten()])
        assert flat.tolist() == expected


def _export_ddp(rank, directory):
    import ddphook.torch

    ddp = models.make("frozen", rank, bucket_cap_mb=0.02)
    module = directory / f"ddp{rank}" / "step.mlir"
    module.parent.mkdir()
    options = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2}
    pipeline = ddphook.torch.export(
        ddp, file=module, hook="powersgd", wrapper="fp16", **options
    )
    check_command(module, pipeline)
    trained = [(n, p) for n, p in ddp.module.named_parameters() if p.requires_grad]
    assert re.findall('ddp.name = "([^"]*)"', module.read_text()) == [
        name for name, _ in trained
    ]
    gradients = [torch.randn(p.shape) for _, p in trained]
    save(gradients, directory / f"in.{rank}")
    for gradient in gradients:
        # In its first steps, the hook computes the average in 16 bits.
        gradient.copy_((gradient.half() / 2))
        dist.all_reduce(gradient)
    return pipeline, [gradient.tolist() for gradient in gradients]


def test_a_ddp_models_gradients_run_natively(tmp_path):
    torch.manual_seed(3)
    results = ranks.run(2, _export_ddp, tmp_path)
    pipeline, _ = results[0]
    cap = float(re.search(r"bucket-cap-mb=(\S+)", pipeline).group(1))
    assert cap == pytest.approx(0.02, rel=1e-3)
    outputs = run_native(
        tmp_path / "ddp0" / "step.mlir",
        2,
        pipeline,
        tmp_path / "in.{rank}",
        tmp_path / "out.{rank}",
    )
    for got, (_, expected) in zip(outputs, results):
        for i, values in enumerate(expected):
            wanted = torch.tensor(values)
            torch.testing.assert_close(got[f"result{i}"], wanted, rtol=1e-3, atol=1e-3)


def _refused(rank, directory):
    import ddphook.torch

    file = directory / "step.mlir"
    ops = torch.ops._c10d_functional
    part = dist.new_group([0])
    cases = [
        ((lambda x: x + 1, torch.ones(3)), {}, "InvalidArgumentError", "reduces"),
        (
            (models.make("mlp", rank), torch.ones(3)),
            {},
            "InvalidArgumentError",
            "inputs",
        ),
        (
            (lambda x: x, torch.ones(3)),
            {"hook": "post_local_sgd"},
            "UnsupportedError",
            "",
        ),
        (
            (lambda x: x, torch.ones(3)),
            {"hook": "fp17"},
            "InvalidArgumentError",
            "fp16",
        ),
    ]
    if rank == 0:
        of_part = (
            lambda x: ops.wait_tensor(ops.all_reduce(x, "sum", part.group_name)),
            torch.ones(3),
        )
        cases.append((of_part, {}, "UnsupportedError", "all 2 ranks"))
    for arguments, options, error, text in cases:
        with pytest.raises(getattr(ddphook, error), match=text):
            ddphook.torch.export(*arguments, file=file, **options)
    assert not file.exists()
    dist.barrier()


def test_what_cannot_be_exported(tmp_path):
    ranks.run(2, _refused, tmp_path)
