# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traces of ddphook-run: the schema of docs/tracing.md, read by Python's JSON
parser; what overlaps; and what is left of a job whose rank dies."""

import collections
import json
import pathlib
import re
import signal
import subprocess

import harness
import runner
import test_in_flight
from test_bad_jobs import start_ranks, wait_for_step

CATEGORIES = {"step", "kernel", "collective", "wait"}
# The names of functions that compiled code calls are those of the list.
ROOT = pathlib.Path(__file__).resolve().parents[2]
FUNCTIONS = set(
    re.findall(
        r"^DDPHOOK_(?:DEVICE_)?FUNCTION\((\w+)",
        (ROOT / "runtime/include/ddphook/runtime/functions.inc").read_text(),
        re.MULTILINE,
    )
)
PIPELINE = "bucket-cap-mb=0 overlap=true hook=fp16"


def load(path):
    """A trace, after a check of every event against the schema."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert set(trace) == {"displayTimeUnit", "traceEvents", "ddphook"}
    assert trace["displayTimeUnit"] == "ms"
    about = trace["ddphook"]
    assert set(about) == {"version", "run_id", "world_size", "ranks", "failures"}
    world = about["world_size"]
    assert [rank["rank"] for rank in about["ranks"]] == list(range(world))
    for rank in about["ranks"]:
        assert rank["clock_uncertainty_ns"] >= 0
        assert isinstance(rank["clock_offset_ns"], int)
        assert rank["events_lost"] >= 0
    processes = set()
    for event in trace["traceEvents"]:
        assert event["pid"] in range(world) and event["tid"] in (0, 1)
        if event["ph"] == "M":
            if event["name"] == "process_name":
                assert re.fullmatch(rf"rank {event['pid']} \(.+\)", event["args"]["name"])
                processes.add(event["pid"])
            continue
        if event["ph"] == "i":
            assert event["args"]["message"]
            continue
        assert event["ph"] == "X"
        assert event["cat"] in CATEGORIES
        assert event["ts"] >= 0 and event["dur"] >= 0
        assert event["args"]["step"] >= 1
        if event["cat"] == "kernel":
            assert event["name"] in FUNCTIONS
        if event["cat"] == "collective":
            kind, bucket = event["name"].split()
            assert kind == "all_reduce" and bucket == event["args"]["bucket"]
            assert event["args"]["group"] == "dp"
            assert event["args"]["wire_bytes"] > 0
            assert 0 <= event["args"]["wait_us"] <= event["dur"]
    assert processes == {
        rank["rank"] for rank in about["ranks"] if rank["state"] != "missing"
    }
    return trace


def spans(trace, **wanted):
    """(begin, end, event) in nanoseconds, which text and floats keep."""
    return [
        (round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000), event)
        for event in trace["traceEvents"]
        if event["ph"] == "X" and all(event[key] == wanted[key] for key in wanted)
    ]


def assert_nested(trace, world):
    """Two events of a thread are apart, or one contains the other; kernels lie in
    steps, and waits of the communication thread in its collectives."""
    for rank in range(world):
        for thread in (0, 1):
            open_spans = []
            events = spans(trace, pid=rank, tid=thread)
            for begin, end, event in sorted(events, key=lambda e: (e[0], -e[1])):
                while open_spans and open_spans[-1][1] <= begin:
                    open_spans.pop()
                if open_spans:
                    assert end <= open_spans[-1][1], (event, open_spans[-1])
                parents = {outer[2]["cat"] for outer in open_spans}
                if thread == 0 and event["cat"] != "step":
                    assert "step" in parents
                if thread == 1 and event["cat"] == "wait":
                    assert "collective" in parents
                open_spans.append((begin, end, event))


def test_two_ranks_that_overlap(tmp_path):
    steps = 5
    directory = harness.make(tmp_path, test_in_flight.WORK)
    trace_path = tmp_path / "out.trace.json"
    arguments = [
        directory.module,
        "--entry=step",
        "--ranks=2",
        f"--steps={steps}",
        "--inputs=random:7",
        f"--trace={trace_path}",
        f"--ddp-pipeline={PIPELINE}",
    ]
    result = runner.finish(
        runner.start(arguments, {"DDPHOOK_BACKEND_OPTIONS": "async_progress=always"})
    )
    assert result.code == 0, result.stderr
    assert not list(tmp_path.glob("*.part"))
    trace = load(trace_path)
    assert trace["ddphook"]["failures"] == []
    assert_nested(trace, 2)
    for rank in range(2):
        assert len(spans(trace, pid=rank, cat="step")) == steps
        collectives = spans(trace, pid=rank, cat="collective")
        assert {event["args"]["bucket"] for *_, event in collectives} == {"b0", "b1"}
        # At least one of them travels while the step computes.
        assert {event["tid"] for *_, event in collectives} >= {1}
    # None of a collective's ranks leaves it before all have come to it.
    same = collections.defaultdict(list)
    for begin, end, event in spans(trace, cat="collective"):
        same[event["args"]["step"], event["args"]["collective"]].append((begin, end))
    assert len(same) == 2 * steps
    for (begin, end), (other_begin, other_end) in same.values():
        assert begin < other_end and other_begin < end
    # Collectives are in flight inside of steps, beside the thread of the steps.
    for rank in range(2):
        for begin, _, event in spans(trace, pid=rank, cat="collective"):
            (outer,) = [
                span
                for span in spans(trace, pid=rank, cat="step")
                if span[2]["args"]["step"] == event["args"]["step"]
            ]
            assert outer[0] <= begin <= outer[1]
    # The tool for people reads it, too.
    tool = pathlib.Path(runner.tool()).with_name("ddphook-trace")
    table = subprocess.run(
        [tool, trace_path], check=True, capture_output=True, text=True
    ).stdout
    for name in ("step", "all_reduce b0", "all_reduce b1"):
        assert re.search(rf"  {name}$", table, re.MULTILINE), table


def test_a_rank_that_is_killed(tmp_path):
    """Rank 0, whose parts stay, and then rank 1, which rank 0 merges."""
    for victim in (0, 1):
        directory = harness.make(tmp_path / str(victim), test_in_flight.WORK, world=2)
        shapes = [(50, 40), (30,), (96, 96)]
        inputs = [
            test_in_flight.Tensor("f32", test_in_flight.np.ones(shape, "f"))
            for shape in shapes
        ]
        directory.write_inputs([[inputs]] * 2)
        directory.inputs = directory.path / "in.{rank}.0.safetensors"
        trace_path = directory.path / "trace.json"
        processes = start_ranks(
            directory,
            2,
            runner.free_port(),
            env={"DDPHOOK_TRACE": trace_path},
            steps=runner.ENDLESS,
            pipeline=PIPELINE,
        )
        # The trace lacks the events of the last 50 ms.
        wait_for_step(directory, 2, step=20)
        processes[victim].send_signal(signal.SIGKILL)
        for process in processes.values():
            runner.finish(process)
        if victim == 0:
            assert not trace_path.exists()
            tool = pathlib.Path(runner.tool()).with_name("ddphook-trace")
            table = subprocess.run(
                [tool, trace_path], check=True, capture_output=True, text=True
            ).stdout
            assert "rank 0 lost: rank 0 was lost" in table
        assert not list(directory.path.glob("*.part"))
        trace = load(trace_path)
        states = [rank["state"] for rank in trace["ddphook"]["ranks"]]
        assert states[victim] == "lost" and states[1 - victim] == "failed"
        failure = trace["ddphook"]["failures"][victim]
        assert f"rank {victim} was lost" in failure["message"]
        (instant,) = [
            event
            for event in trace["traceEvents"]
            if event["ph"] == "i" and event["pid"] == victim
        ]
        assert instant["args"]["message"] == failure["message"]
        assert len(spans(trace, pid=victim, cat="step")) >= 3
