# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook-bench sweep as users run it: alone, and by a launcher's variables.

Environment: DDPHOOK_BENCH names the tool, DDPHOOK_TEST_BACKENDS the directory
of the backends that tests have. No test looks at a time, only at what follows
from it.
"""

import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = ROOT / "tools" / "python" / "src" / "ddphook" / "report.py"
sys.path.insert(0, str(ROOT / "runtime" / "test"))
from ports import free_port  # noqa: E402

TOOL = os.environ["DDPHOOK_BENCH"]
BACKENDS = os.environ["DDPHOOK_TEST_BACKENDS"]
# No healthy run takes a tenth of this.
HANG_S = 120
LAUNCH = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
LAUNCH_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "DDPHOOK_")
QUICK = ["-n", "2", "-w", "1", "-r", "2"]


def start(arguments, **variables):
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in LAUNCH.split() and not name.startswith(LAUNCH_PREFIXES)
    }
    environment |= {name: str(value) for name, value in variables.items()}
    return subprocess.Popen(
        [TOOL, "sweep", *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    try:
        output, errors = process.communicate(timeout=HANG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        pytest.fail(f"hung for {HANG_S} s")
    return process.returncode, output, errors


def sweep(*arguments, **variables):
    code, output, errors = finish(start(arguments, **variables))
    assert (code, errors) == (0, "")
    return output


def launch(world, arguments, **variables):
    """Starts a process per rank, as torchrun does."""
    port = free_port()
    processes = []
    for rank in range(world):
        extra = arguments(rank) if callable(arguments) else arguments
        own = {name: f(rank) if callable(f) else f for name, f in variables.items()}
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(start(extra, **place, **own))
    return [finish(process) for process in processes]


def table(output):
    """The rows of the printed table, split into words."""
    lines = output.splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def expect_definitions(result, timing, row):
    seconds = timing["time_us"] * 1e-6
    assert timing["min_us"] <= timing["time_us"] <= timing["max_us"]
    assert timing["algbw_gbs"] == pytest.approx(row["size_bytes"] / seconds * 1e-9)
    ranks = result["ranks"]
    bus = row["wire_bytes"] / seconds * 1e-9 * 2 * (ranks - 1) / ranks
    assert timing["busbw_gbs"] == pytest.approx(bus)


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_starts_its_own_ranks(tmp_path, ranks, op):
    files = {kind: tmp_path / f"sweep.{kind}" for kind in ("json", "csv")}
    output = sweep(
        *("-b", "8", "-e", "16K", "-f", "16", "-d", "all", "--hook=all"),
        *(f"--op={op}", f"--ranks={ranks}", *QUICK),
        *(f"--{kind}={path}" for kind, path in files.items()),
    )
    result = json.loads(files["json"].read_text())
    assert (result["ranks"], result["machines"], result["op"]) == (ranks, 1, op)
    assert result["wrong"] == 0
    sizes, types = [8, 128, 2048], ["f16", "bf16", "f32", "f64"]
    hooks = {"allreduce": None, "fp16": "f16", "bf16": "bf16"}
    expected = [
        (hook, dtype, wire or dtype, size)
        for hook, wire in hooks.items()
        for dtype in types
        for size in sizes
    ]
    width = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
    rows = result["results"]
    names = ("hook", "datatype", "wire_datatype", "size_bytes")
    assert [tuple(row[name] for name in names) for row in rows] == expected
    for row in rows:
        assert row["count"] * width[row["datatype"]] == row["size_bytes"]
        assert row["count"] * width[row["wire_datatype"]] == row["wire_bytes"]
        for place in ("out_of_place", "in_place"):
            assert row[place]["wrong"] == 0
            expect_definitions(result, row[place], row)

    lines = list(csv.DictReader(files["csv"].open()))
    assert len(lines) == 2 * len(rows)
    for line, (row, place) in zip(
        lines, [(r, p) for r in rows for p in ("out_of_place", "in_place")]
    ):
        assert line["in_place"] == str(int(place == "in_place"))
        assert (line["ranks"], line["op"]) == (str(ranks), op)
        for name in ("hook", "datatype", "size_bytes", "count", "wire_bytes"):
            assert line[name] == str(row[name])
        for name in ("time_us", "busbw_gbs"):
            assert float(line[name]) == pytest.approx(
                row[place][name], rel=1e-3, abs=1e-3
            )
        assert line["wrong"] == "0"

    printed = table(output)
    assert [(r[2], r[3], int(r[0])) for r in printed] == [
        (hook, dtype, size) for hook, dtype, _, size in expected
    ]
    assert all(r[7] == r[11] == "0" for r in printed)
    assert "# wrong elements: 0\n" in output


@pytest.mark.parametrize("world", [1, 2, 3])
def test_is_a_rank_of_a_launched_job(tmp_path, world):
    path = tmp_path / "sweep.json"
    arguments = ["-b", "64", "-e", "256", f"--json={path}", *QUICK]
    results = launch(world, arguments)
    assert [(code, errors) for code, _, errors in results] == [(0, "")] * world
    # One table, by rank 0.
    assert [bool(output) for _, output, _ in results] == [True] + [False] * (world - 1)
    assert [int(row[0]) for row in table(results[0][1])] == [64, 128, 256]
    assert json.loads(path.read_text())["ranks"] == world


def test_ranks_on_several_machines(tmp_path):
    path = tmp_path / "sweep.json"
    results = launch(
        3,
        ["-e", "1K", "-f", "8", f"--json={path}", *QUICK],
        DDPHOOK_NODE=lambda rank: f"machine-{rank % 2}",
    )
    assert [code for code, _, _ in results] == [0, 0, 0]
    result = json.loads(path.read_text())
    assert (result["ranks"], result["machines"], result["wrong"]) == (3, 2, 0)


def test_a_device_with_memory_of_its_own():
    output = sweep(
        *("-b", "16", "-e", "4K", "-f", "16", "--ranks=2", *QUICK),
        DDPHOOK_BACKEND="guarded",
        LD_LIBRARY_PATH=BACKENDS,
    )
    assert "backend: guarded" in output
    assert [(r[7], r[11]) for r in table(output)] == [("0", "0")] * 3


def test_sizes():
    def sizes(*arguments):
        return [int(row[0]) for row in table(sweep("--ranks=1", *QUICK, *arguments))]

    assert sizes("-b8", "-e64") == [8, 16, 32, 64]
    assert sizes("-b", "1k", "-e", "3K", "-i", "1K") == [1024, 2048, 3072]
    assert sizes("--min-bytes=8", "--max-bytes", "100", "--step-factor=3") == [8, 24, 72]
    # Whole elements only, and none of no element.
    assert sizes("-b", "3", "-e", "11", "-i", "4") == [4, 8]
    assert sizes("-b", "1", "-e", "3") == []


def test_no_check(tmp_path):
    path = tmp_path / "sweep.json"
    output = sweep("-e", "8", "-c", "0", f"--json={path}", *QUICK)
    assert table(output)[0][7] == "N/A"
    assert "# wrong elements: N/A\n" in output
    assert json.loads(path.read_text())["wrong"] is None


def test_drawing(tmp_path):
    """ddphook-report draws the results as they are written."""
    results, path = tmp_path / "sweep.json", tmp_path / "sweep.svg"
    sweep("-e", "1K", "--hook=all", "-d", "f32,f64", f"--json={results}", *QUICK)
    subprocess.run([sys.executable, REPORT, results, "-o", path], check=True)
    space = "{http://www.w3.org/2000/svg}"
    drawing = xml.etree.ElementTree.parse(path).getroot()
    charts = drawing.findall(space + "svg")
    assert len(charts) == 2
    for chart in charts:
        # Six lines of eight sizes, all within the drawing.
        lines = chart.findall(space + "polyline")
        assert len(lines) == 6
        width, height = float(chart.get("width")), float(chart.get("height"))
        for line in lines:
            points = [[float(c) for c in p.split(",")] for p in line.get("points").split()]
            assert len(points) == 8
            assert all(0 < x < width and 0 < y < height for x, y in points)
        legend = {text.text for text in chart.findall(space + "text")}
        for hook in ("allreduce", "fp16", "bf16"):
            assert {f"{hook}, f32", f"{hook}, f64"} <= legend


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--rnaks=1"], r"unknown flag '--rnaks', did you mean --ranks\?"),
        (["--verbose=1"], "unknown flag '--verbose'"),
        (["-z", "1"], "unknown flag '-z'"),
        (["8"], "expected an option of sweep, but got '8'"),
        (["-n"], "expected a value after -n, but got nothing"),
        (["-b", "0"], "expected -b to be a size .*, but got '0'"),
        (["-b", "-8"], "expected -b to be a size .*, but got '-8'"),
        (["-b", "8X"], "expected -b to be a size .*, but got '8X'"),
        (["-e", "9" * 30], "expected -e to be a size .*"),
        (["-b", "8K", "-e", "4K"], "expected --min-bytes to be at most .*"),
        (["-e", "1G", "-i", "1"], "expected at most 100000 sizes, .*"),
        (["-f", "1"], "expected -f to be a whole number from 2 .*, but got '1'"),
        (["-d", "int8"], "expected -d to be a list of .*, but got 'int8'"),
        (["-d", "f32,"], "expected -d to be a list of .*, but got ''"),
        (["--hook=int8"], "expected --hook to be a list of .*, but got 'int8'"),
        (["--op=max"], "expected --op to be sum or mean, but got 'max'"),
        (["--iters=0"], "expected --iters to be a whole number from 1 .*"),
        (["--check=yes"], "expected --check to be 0 or 1, but got 'yes'"),
        (["--ranks=0"], "expected --ranks to be a whole number from 1 .*"),
        (["--csv="], "expected --csv to be the name of a file, but got ''"),
    ],
)
def test_wrong_options(arguments, message):
    code, output, errors = finish(start(arguments))
    assert (code, output) == (2, "")
    assert re.fullmatch(f"ddphook-bench: {message} \\(see .* --help\\)\n", errors)


def test_a_file_that_cannot_be_written(tmp_path):
    wrong = f"--csv={tmp_path}/no/x.csv"
    code, output, errors = finish(start(["-e8", wrong, *QUICK]))
    # Nothing was measured in vain, and no rank of a job is left waiting.
    assert (code, output) == (1, "")
    assert "no/x.csv" in errors and len(errors.splitlines()) == 1
    for code, output, errors in launch(2, ["-e8", wrong, *QUICK]):
        assert (code, output) == (1, "")
        assert "no/x.csv" in errors


def test_ranks_disagree_with_the_launcher():
    results = launch(2, ["--ranks=3"])
    for code, output, errors in results:
        assert (code, output) == (2, "")
        assert "world size of the launched job, 2, but got 3" in errors


def test_ranks_with_different_options():
    results = launch(2, lambda rank: ["-e", 8 << rank, *QUICK])
    for code, output, errors in results:
        assert (code, output) == (1, "")
        assert "expected the same options on all ranks" in errors


def test_help_names_every_option():
    text = sweep("--help")
    for name in "-b -e -f -i -d -o -n -w -r -c".split():
        assert f"  {name}, --" in text
    for name in "--hook --ranks --csv --json".split():
        assert f"{name}=" in text
