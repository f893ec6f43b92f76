# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook-exec on good and bad requests: what it writes, what it says."""

import os
import re
import subprocess

import numpy
import pytest
import torch
from exec_harness import (
    MODULE,
    MODULES,
    SEED,
    TOOL,
    expect_error,
    expect_ok,
    outputs_in,
    run,
    vectors,
    write_vectors,
)
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as torch_load
from safetensors.torch import save_file as torch_save


@pytest.mark.parametrize("entry", ["step", "halves"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_means_over_ranks(tmp_path, files, ranks, entry):
    steps = 3
    write_vectors(tmp_path, ranks, steps)
    expect_ok(
        f"--entry={entry}",
        f"--ranks={ranks}",
        f"--steps={steps}",
        files["inputs"],
        files["outputs"],
    )
    assert outputs_in(tmp_path) == sorted(
        f"out.{rank}.{step}.safetensors"
        for rank in range(ranks)
        for step in range(steps)
    )
    for step in range(steps):
        expected = numpy.mean([vectors(rank, step) for rank in range(ranks)], axis=0)
        assert expected.any()
        for rank in range(ranks):
            got = load_file(tmp_path / f"out.{rank}.{step}.safetensors")
            assert list(got) == ["result0"]
            assert got["result0"].dtype == numpy.float32
            numpy.testing.assert_array_equal(got["result0"], expected)


def test_result_in_an_arguments_buffer(tmp_path, files):
    parameters = numpy.arange(7, dtype=numpy.float32)
    for rank in range(2):
        save_file(
            {"arg0": parameters, "arg1": vectors(rank, 0)},
            tmp_path / f"in.{rank}.0.safetensors",
        )
    expect_ok("--entry=update", "--ranks=2", files["inputs"], files["outputs"])
    mean = (vectors(0, 0) + vectors(1, 0)) / 2
    for rank in range(2):
        got = load_file(tmp_path / f"out.{rank}.0.safetensors")
        numpy.testing.assert_array_equal(got["result0"], parameters - mean / 2)
        assert got["result1"].shape == ()
        assert got["result1"] == mean[0]


TYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.int64,
]


def test_every_type_goes_both_ways(tmp_path, files):
    torch.manual_seed(SEED)
    values = [(100 * torch.randn(2, 3)).to(dtype) for dtype in TYPES]
    values[4] = torch.tensor([[True, False, True], [False, False, True]])
    values += [torch.tensor(2.5), torch.zeros(0, 3)]
    torch_save(
        {f"arg{i}": value for i, value in enumerate(values)},
        tmp_path / "in.0.0.safetensors",
        metadata={"made": "by Python"},
    )
    expect_ok("--entry=types", files["inputs"], files["outputs"])
    got = torch_load(tmp_path / "out.0.0.safetensors")
    assert len(got) == len(values)
    for i, value in enumerate(values):
        result = got[f"result{i}"]
        assert result.dtype == value.dtype and result.shape == value.shape
        assert torch.equal(result, value)


def test_random_inputs(tmp_path, files):
    def draw(seed):
        expect_ok(
            "--entry=types",
            "--ranks=2",
            "--steps=2",
            f"--inputs=random:{seed}",
            files["outputs"],
        )
        return {
            (rank, step): torch_load(tmp_path / f"out.{rank}.{step}.safetensors")
            for rank in range(2)
            for step in range(2)
        }

    def flat(tensors):
        return torch.cat([tensors[f"result{i}"].double().ravel() for i in range(11)])

    first, again, other = draw(1), draw(1), draw(2)
    drawn = [flat(tensors) for tensors in first.values()]
    for key, tensors in first.items():
        assert torch.equal(flat(tensors), flat(again[key]))
        assert not torch.equal(flat(tensors), flat(other[key]))
        assert tensors["result3"].std() > 0
        for i in range(5, 10):
            assert tensors[f"result{i}"].min() >= 0
            assert tensors[f"result{i}"].max() <= 7
    for i in range(4):
        for j in range(i):
            assert not torch.equal(drawn[i], drawn[j])


def test_unwritten_results_are_nan(tmp_path, files):
    expect_ok("--entry=forget", files["outputs"])
    assert numpy.isnan(load_file(tmp_path / "out.0.0.safetensors")["result0"]).all()


def test_files_are_optional(tmp_path, files):
    expect_ok("--entry=nothing", "--ranks=2")
    expect_ok("--entry", "step", "--inputs", "random:1", "--ranks", "2")
    expect_ok("--entry=nothing", files["outputs"])
    assert load_file(tmp_path / "out.0.0.safetensors") == {}


def test_module_without_a_directory(tmp_path):
    os.symlink(MODULE, tmp_path / "m.so")
    result = subprocess.run(
        [TOOL, "m.so", "--entry=nothing", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_help():
    result = subprocess.run([TOOL, "--help"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == ""
    for flag in ("--entry", "--ranks", "--steps", "--inputs", "--outputs"):
        assert flag in result.stdout


HELP = r" \(see ddphook-exec --help\)"


@pytest.mark.parametrize(
    "pattern, arguments",
    [
        ("--entry=NAME is missing", []),
        ("unknown flag '--verbose'", ["--entry=step", "--verbose"]),
        (
            r"unknown flag '--rank=2', did you mean --ranks\?",
            ["--entry=step", "--rank=2"],
        ),
        ("expected one module, but got '.*' and 'x'", ["--entry=step", "x"]),
        (
            "expected --ranks to be a number from 1 to 1024, but got 'two'",
            ["--entry=step", "--ranks=two"],
        ),
        (
            "expected --steps to be a positive number, but got '0'",
            ["--entry=step", "--steps=0"],
        ),
        ("--outputs needs a value", ["--entry=step", "--outputs"]),
    ],
)
def test_wrong_command_lines(pattern, arguments):
    expect_error(pattern + HELP, *arguments, status=2)


@pytest.mark.parametrize(
    "pattern, arguments",
    [
        (
            "unknown entry 'train', expected 'step', 'halves', 'update', 'types', "
            "'misbehave', 'forget', 'nothing'",
            ["--entry=train"],
        ),
        ("--inputs is missing, but entry 'step' has arguments", ["--entry=step"]),
        (
            r"expected \{rank\} in --outputs with 2 ranks, but got 'o.\{step\}'",
            ["--entry=nothing", "--ranks=2", "--outputs=o.{step}"],
        ),
        (
            r"expected \{step\} in --outputs with 2 steps, but got 'o'",
            ["--entry=nothing", "--steps=2", "--outputs=o"],
        ),
        (
            "--outputs would overwrite --inputs 'x'",
            ["--entry=step", "--inputs=x", "--outputs=x"],
        ),
        (
            "rank 0: cannot open '/none/in': No such file or directory",
            ["--entry=step", "--inputs=/none/in"],
        ),
        (
            "rank 0: cannot create '/none/out': No such file or directory",
            ["--entry=nothing", "--outputs=/none/out"],
        ),
    ],
)
def test_wrong_requests(pattern, arguments):
    expect_error(pattern, *arguments)


@pytest.mark.parametrize(
    "defect, pattern",
    [
        (1, r"'.*': expected a module of ABI version \d+, but got \d+"),
        (2, r"'.*': expected a module structure of \d+ bytes, but got \d+"),
        (3, "rank 0: cannot load the module: DATA_LOSS: .*hash.*"),
        (4, "'.*' has no symbol ddphook_compiled_module: .*"),
    ],
)
def test_wrong_modules(defect, pattern):
    expect_error(
        pattern, "--entry=nothing", module=MODULES / f"exec_module_{defect}.so"
    )


def test_modules_that_cannot_be_loaded(tmp_path):
    expect_error(
        "cannot load the module: .*No such file.*",
        "--entry=step",
        module=tmp_path / "none.so",
    )
    (tmp_path / "text.so").write_text("no shared object")
    expect_error(
        "cannot load the module: .*", "--entry=step", module=tmp_path / "text.so"
    )
    (tmp_path / "step.mlirbc").write_bytes(b"ML\xefR\r")
    expect_error(
        "'.*' is MLIR's bytecode: compile it with ddphook-cc --shared",
        "--entry=step",
        module=tmp_path / "step.mlirbc",
    )


def test_wrong_inputs(tmp_path, files):
    path = tmp_path / "in.0.0.safetensors"
    good = vectors(0, 0)

    def expect(pattern):
        expect_error(
            f"rank 0: '{re.escape(str(path))}'" + pattern,
            "--entry=step",
            files["inputs"],
            files["outputs"],
        )
        assert outputs_in(tmp_path) == []

    save_file({"arg1": good}, path)
    expect(r" has no tensor 'arg0', expected f32 \[7\]")
    save_file({"arg0": good.astype(numpy.float16)}, path)
    expect(r", tensor 'arg0': expected f32 \[7\], but got f16 \[7\]")
    save_file({"arg0": good[:6]}, path)
    expect(r", tensor 'arg0': expected f32 \[7\], but got f32 \[6\]")
    save_file({"arg0": good}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    expect(r": tensor 'arg0' has data_offsets \[0, 28\] outside the 27 bytes of data")
    path.write_bytes(whole + b"x")
    expect(r": expected 28 bytes of data, but got 29")
    path.write_bytes(whole[:5])
    expect(r": expected a safetensors file, but got only 5 bytes")
    path.write_bytes(b"\xff" * 100)
    expect(r": expected a header of 18446744073709551615 bytes, but got a file of 100")
    path.write_bytes(whole.replace(b'"shape"', b'"shapf"'))
    expect(r": tensor 'arg0' has unknown key 'shapf'")


def test_progress(tmp_path, files):
    arguments = ["--entry=step", "--inputs=random:1", "--ranks=2", "--steps=3"]
    expect_ok(*arguments, "--progress=off")
    code, errors = run(*arguments, "--progress=on")
    assert code == 0
    # In between there are lines if it takes long.
    assert errors.endswith("ddphook-exec: 3 of 3 steps are done\n")


def test_many_ranks(tmp_path, files):
    """More ranks than cores; every one of them ends."""
    expect_ok("--entry=nothing", "--ranks=12", files["outputs"])
    assert len(outputs_in(tmp_path)) == 12
