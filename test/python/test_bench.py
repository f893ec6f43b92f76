# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m ddphook bench``, and ``ddphook-bench`` next to it.

No test depends on measured times, only on what is reported about them.
"""

import itertools
import json
import os
import pathlib
import re
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
    words = ["--model-mb=0.25", "--ranks=2"]
    words += [f"--hooks={','.join(hooks)}", "--steps=3", "--rounds=2"]
    ended = call([*MODULE, *words, f"--json={path}"])
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


@pytest.mark.full("test_what_is_measured runs the same program")
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


def bench(tmp_path, *words, **variables):
    """Runs ddphook-bench; returns its results and what it has printed."""
    path = tmp_path / "result.json"
    words = [TOOL, "--mib=0.25", "--rounds=1", f"--json={path}", *words]
    # Excludes PyTorch, unless a test asks for it: its start has a time limit.
    ended = call(words, **{"DDPHOOK_TEST_PYTHON": None, **variables})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(path.read_text())
    assert all(check["right"] for check in report["checks"])
    for section in report["sections"]:
        assert f"== {section['title']}\n" in ended.stdout
        times = {(r["name"], r.get("caches")): r["median_ms"] for r in section["results"]}
        for row in section["results"]:
            assert row["min_ms"] <= row["median_ms"] <= row["max_ms"]
            if "of_best_copy" in row:
                copy = f"copy of {row['bytes'] * 1e-6:.4g} MB"
                expected = row["median_ms"] / times[copy, row.get("caches")]
                assert row["of_best_copy"] == pytest.approx(expected, rel=1e-6)
    return report, ended.stdout


def names(report, caches=None):
    """Returns the names in each section, without the copies."""
    return {
        section["title"]: [
            row["name"]
            for row in section["results"]
            if row.get("caches") == caches and not row["name"].startswith("copy of")
        ]
        for section in report["sections"]
    }


@pytest.mark.full("writes twice the last-level cache before each call")
def test_local_work(tmp_path):
    report, _ = bench(tmp_path, "cast", "encode", "topk")
    cast, encode, topk = names(report, "cold").values()
    assert [name for name in cast if "hook" in name] == ["fp16 hook", "bf16 hook"]
    hooks = [name for name in encode if name.endswith(" hook")]
    assert hooks == ["int8 hook", "int4 hook", "fp8 hook"]
    assert topk == ["topk hook, density 1 %"]


@pytest.mark.full("a quarter of a minute; test_a_device runs the same program")
def test_local_work_of_powersgd(tmp_path):
    report, _ = bench(tmp_path, "powersgd")
    low_rank = list(names(report, "cold").values())
    assert low_rank == list(names(report, "warm").values())
    assert low_rank[0] == [
        f"rank {rank}{group}" for rank in (1, 2, 4, 8) for group in ("", ", group-mb 4")
    ]
    assert low_rank[1] == [f"rank {rank}" for rank in (1, 2, 4, 8)]
    for section in report["sections"]:
        elements = section["results"][-1]["bytes"] // 28
        assert section["results"][0]["bytes"] == 28 * elements


@pytest.mark.full("half a minute; test_local_work runs the same program")
def test_hooks_of_two_ranks_beside_pytorch(tmp_path):
    variables = {"DDPHOOK_TEST_PYTHON": sys.executable}
    report, _ = bench(tmp_path, "hooks", "allreduce", "--ranks=2", **variables)
    hooks, *sums = report["sections"]
    found = {(row["name"], row["caches"]): row for row in hooks["results"]}
    for hook in ("allreduce", "fp16", "bf16", "int8", "PowerSGD, rank 4"):
        row = found[f"{hook}, shared memory", "cold"]
        assert row["of_best_copy"] > 0
        if hook != "int8":
            theirs = found[f"  PyTorch: {hook}, shared memory", "cold"]
            ratio = row["times_as_fast_as"]["PyTorch"]
            assert ratio == pytest.approx(theirs["median_ms"] / row["median_ms"])
    for section in sums:
        ours, theirs = (
            next(row for row in section["results"] if row["name"].endswith(wire))
            for wire in ("shared memory", "Gloo")
        )
        ratio = ours["times_as_fast_as"]["Gloo"]
        assert ratio == pytest.approx(theirs["median_ms"] / ours["median_ms"])


def test_jobs(tmp_path):
    words = ["join", "steps", "save", "start", "--ranks=2", f"--directory={tmp_path}"]
    report, _ = bench(tmp_path, *words)
    assert list(names(report).values()) == [
        ["join", "load a module", "leave"],
        ["step of 4 KiB", "step of 256 KiB"],
        ["save", "load"],
        ["host"],
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.full("test_what_is_measured runs the same program")
def test_two_builds_by_turns(tmp_path):
    script = pathlib.Path(__file__).parents[2] / "tools" / "benchmarks.py"
    words = [sys.executable, script, "--turns=2", TOOL, TOOL, "topk", "--mib=0.01"]
    ended = call(words, DDPHOOK_TEST_PYTHON=None)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert len(lines) == 4, "the copy and the hook, cold and warm"
    assert all(0 < float(line[-1]) for line in lines)


def test_a_device(tmp_path):
    """Measures the emulated device, which has no graphs for this program, in small sizes."""
    words = ["cast", "encode", "topk", "powersgd", "start", "--device=cuda_emulated"]
    report, _ = bench(tmp_path, *words, "--mib=0.01")
    titles = names(report)
    sizes = [title for title in titles if title.startswith("casts on ")]
    assert len(sizes) == 3, "as much as 1 GiB, 64 MiB and 64 KiB of 25 MiB"
    for shape in ("one matrix", "100 matrices", "a tall matrix", "16 matrices"):
        assert f", {shape} of " in " ".join(titles)
    largest = next(names for title, names in titles.items() if ", one matrix" in title)
    assert largest == [f"rank {rank}" for rank in (1, 2, 4, 8, 16)]
    start = report["sections"][-1]
    assert [row["name"] for row in start["results"]] == ["not blocking", "blocking"]
