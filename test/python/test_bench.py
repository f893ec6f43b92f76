# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m ddphook bench``, and ``ddphook-bench torch``, which runs it.

No test depends on measured times, only on what is reported about them.
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

import pytest

import ranks

TOOL = pathlib.Path(os.environ["DDPHOOK_LIBRARY_DIR"]).parent / "bin" / "ddphook-bench"
MODULE = [sys.executable, "-m", "ddphook", "bench"]
HANG_S = 600


def call(words, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run(
        list(map(str, words)),
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def table(text, head):
    """Returns the rows of the table with this head, split into cells."""
    (block,) = [b for b in text.split("\n\n") if b.startswith(f"| {head} ")]
    return [re.split(r" ?\| ?", line)[1:-1] for line in block.splitlines()[2:]]


def test_what_is_measured(tmp_path):
    path = tmp_path / "bench.json"
    hooks = ["fp16", "powersgd-2+fp16"]
    words = ["torch", f"--python={sys.executable}", "--model-mb=0.25", "--ranks=2"]
    words += [f"--hooks={','.join(hooks)}", "--steps=3", "--rounds=2"]
    ended = call([TOOL, *words, f"--json={path}"])
    assert ended.returncode == 0, ended.stderr
    report = json.loads(path.read_text())
    assert list(report["hooks"]) == hooks
    for head, part, sides in (
        ("whole step", "step", ["none", "pytorch", "ours", "fused", "silent"]),
        ("hook alone", "hook", ["pytorch", "ours"]),
    ):
        # These sides have separate columns, with ratios, before the last column.
        apart = {"fused": -5, "silent": -3}
        beside = [side for side in sides if side not in apart]
        rows = {row[0]: row[1:] for row in table(ended.stdout, head)}
        assert list(rows) == hooks
        for hook in hooks:
            result = report["hooks"][hook][part]
            rounds = result["rounds_s"]
            assert sorted(rounds) == sorted(sides)
            for i, side in enumerate(sides):
                assert [len(times) for times in rounds[side]] == [3, 3]
                assert min(map(min, rounds[side])) > 0
                median = statistics.median(itertools.chain(*rounds[side]))
                assert result[f"{side}_s"] == median
                assert rows[hook][apart.get(side, i)] == f"{1e3 * median:.2f}"
            ratios = [
                statistics.median(ours) / statistics.median(theirs)
                for ours, theirs in zip(rounds["ours"], rounds["pytorch"])
            ]
            assert result["ours_of_pytorch"] == ratios
            assert rows[hook][len(beside)] == (
                f"{statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )
    fp16 = report["hooks"]["fp16"]
    assert fp16["step"]["difference"] == fp16["hook"]["difference"] == 0


@pytest.mark.full("compiles six steps with Inductor")
def test_compiled_steps(tmp_path):
    path = tmp_path / "bench.json"
    words = ["--compile", "--model-mb=0.25", "--hooks=allreduce,powersgd-2+fp16"]
    words += ["--steps=3", "--rounds=2", "--samples=2", f"--json={path}"]
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    ended = call([*MODULE, *words], **cache)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(path.read_text())
    assert report["samples"] == 2
    rows = {row[0]: row[1:] for row in table(ended.stdout, "compiled step")}
    assert list(rows) == list(report["hooks"]) == ["allreduce", "powersgd-2+fp16"]
    for hook, cells in rows.items():
        result = report["hooks"][hook]["compiled"]
        for side, column in (("pytorch", 0), ("ours", 1), ("silent", 3)):
            times = result["rounds_s"][side]
            assert [len(seconds) for seconds in times] == [3, 3]
            median = statistics.median(itertools.chain(*times))
            assert cells[column] == f"{1e3 * median:.2f}"
    assert report["hooks"]["allreduce"]["compiled"]["difference"] == 0
    assert report["hooks"]["powersgd-2+fp16"]["compiled"]["difference"] > 0


def test_one_rank_of_a_launcher(tmp_path):
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    words = ["--model-mb=0.01", "--hooks=bf16", "--steps=1", "--rounds=1"]
    words += ["--optimizer=adamw"]
    words += ["--ranks=7", f"--json={tmp_path / 'bench.json'}"]
    ended = call([*MODULE, *words], MASTER_PORT=str(ranks.free_port()), **variables)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "bench.json").read_text())["ranks"] == 1


@pytest.mark.parametrize("difference", [1e-6, float("nan"), float("inf")])
def test_a_wrong_result_is_an_error(difference):
    import ddphook
    from ddphook.torch import _bench

    hook = _bench._Hook.parse("fp16")
    assert hook.is_exact
    with pytest.raises(ddphook.InternalError, match="averages of fp16 within 0 of"):
        _bench._check(hook, "averages", difference, 0.0)
    _bench._check(hook, "averages", 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--hooks=fp17"], 2, "but got 'fp17'"),
        (["--hooks=powersgd"], 2, "but got 'powersgd'"),
        (["--hooks=fp16-2"], 2, "but got 'fp16-2'"),
        (["--hooks=powersgd-0"], 2, "but got 'powersgd-0'"),
        (["--hooks=fp16,,bf16"], 2, "but got ''"),
        (["--ranks=0"], 2, "invalid positive number value: '0'"),
        (["--model-mb=nan"], 2, "invalid positive number value: 'nan'"),
        (["--json=/nowhere/bench.json"], 1, "No such file or directory"),
    ],
)
def test_bad_options(arguments, status, message, monkeypatch, capsys):
    from ddphook import __main__ as program

    monkeypatch.setattr(sys, "argv", ["ddphook", "bench", *arguments])
    try:
        got = program.main()
    except SystemExit as error:  # argparse exits this way.
        got = error.code
    printed = capsys.readouterr()
    assert (got, printed.out) == (status, "")
    assert message in printed.err


def test_the_build_tree_lends_the_package(tmp_path, monkeypatch):
    """The build tree's package and libraries serve an interpreter without the package."""
    variables = dict.fromkeys(["PYTHONPATH", "DDPHOOK_LIBRARY_DIR"])
    monkeypatch.chdir(tmp_path)
    words = ["--model-mb=0.01", "--hooks=fp16", "--steps=1", "--rounds=1"]
    words += ["--ranks=1", "--json=bench.json", f"--python={sys.executable}"]
    ended = call([TOOL, "torch", *words], **variables)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(pathlib.Path("bench.json").read_text())["ranks"] == 1


def test_help_needs_no_python():
    ended = call([TOOL, "torch", "--help"], DDPHOOK_TEST_PYTHON="/nowhere/python")
    assert (ended.returncode, ended.stderr) == (0, "")
    theirs = call([*MODULE, "--help"]).stdout
    options = set(re.findall(r"--[a-z-]+", theirs)) - {"--help"}
    # The options are exactly the module's, with their defaults.
    assert set(re.findall(r"^  (--[a-z-]+)", ended.stdout, re.M)) == {
        *options,
        "--python",
    }
    ours, theirs = (
        re.sub(r"\s+", "", text.replace("default ", ""))
        for text in (ended.stdout, theirs)
    )
    for default in re.findall(r"\(\w[\w,-]*\)", theirs):
        assert default in ours


def test_interpreters_without_the_package(tmp_path, monkeypatch):
    without = {"PYTHONPATH": None, "DDPHOOK_TEST_PYTHON": sys.executable}
    (tmp_path / "ddphook").mkdir()  # Could be a clone of the project.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()  # An installed tool has no build tree to take the package from.
    moved = shutil.copy(TOOL, tmp_path / "bin")
    ended = call([moved, "torch"], **without)
    assert ended.returncode == 1
    assert "expected an interpreter with the Python package ddphook" in ended.stderr
    assert f"but got '{sys.executable}'" in ended.stderr
    ended = call([TOOL, "torch", "--python=/nowhere/python"])
    assert ended.returncode == 1
    assert "cannot run '/nowhere/python': No such file" in ended.stderr


def test_what_is_measured_of_a_device(tmp_path):
    """Measures the emulated device, which has no graphs for this program, in small sizes."""
    path = tmp_path / "device.json"
    words = ["device", "--device=cuda_emulated", "--mib=0.01", "--rounds=1"]
    # Excludes PyTorch, whose rows would come in between; its start also has a time limit.
    ended = call([TOOL, *words, f"--json={path}"], DDPHOOK_TEST_PYTHON=None)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(path.read_text())
    assert all(check["right"] for check in report["checks"])
    rows = {s["title"]: [r["name"] for r in s["results"]] for s in report["sections"]}
    whole = " ".join(rows)
    kernels = ["copy"]
    for type_, hook in (("f16", "fp16"), ("bf16", "bf16")):
        kernels += [f"cast f32 to {type_}", f"cast {type_} to f32"]
        kernels += [f"{hook} hook, local work"]
    kernels += [f"what {name} loses" for name in ("int8", "int4", "fp8")]
    kernels += ["divide f32", "add f32 to itself"]
    parts = [names for title, names in rows.items() if "element-wise" in title]
    assert parts == 3 * [kernels], "as much as 1 GiB, 64 MiB and 64 KiB of 25 MiB"
    for shape in ("one matrix", "100 matrices", "a tall matrix", "16 matrices"):
        assert f", {shape} of " in whole
    groups = [names for title, names in rows.items() if ", 16 matrices" in title]
    assert groups[0][1:] == [f"group-mb {mb}, rank 4" for mb in (0, 8, 16, 32)]
    largest = next(names for title, names in rows.items() if ", one matrix" in title)
    assert largest[1:] == [f"rank {rank}" for rank in (1, 2, 4, 8, 16)]
    host_time, *work = report["sections"]
    assert host_time["title"].startswith("host time of starting an all-reduce")
    assert [row["name"] for row in host_time["results"]] == ["not blocking", "blocking"]
    # The table also has the fraction of the speed of a copy in the same run.
    assert "% of roofline" in ended.stdout
    for section in work:
        copy, *others = section["results"]
        speed = copy["bytes"] / copy["median_ms"]
        for row in others:
            expected = row["bytes"] / row["median_ms"] / speed
            assert row["of_roofline"] == pytest.approx(expected, rel=1e-6)
