# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m ddphook report``: words, medians and drawings of traces, including that of the
documentation. test/Report tests reports of compiled modules."""

import json
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

from conftest import ROOT
from ddphook import report
from ddphook.report import ReportError

EXAMPLE = ROOT / "docs" / "examples" / "wide" / "trace.json"
SVG = "{http://www.w3.org/2000/svg}"


def event(category, begin, time, rank=0, lane=0, step=1, **arguments):
    """Returns an event of docs/tracing.md; times are in milliseconds."""
    return {
        **{"ph": "X", "cat": category, "name": category, "pid": rank, "tid": lane},
        **{"ts": begin * 1e3, "dur": time * 1e3, "args": {"step": step, **arguments}},
    }


def write(path, events, ranks=2):
    names = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {}}
    ours = {"version": 1, "world_size": ranks}
    path.write_text(json.dumps({"traceEvents": [names, *events], "ddphook": ours}))
    return path


def summary(tmp_path, events, step=None, ranks=2):
    text = write(tmp_path / "trace.json", events, ranks).read_text()
    return report.summarize(json.loads(text, object_hook=report.Record), step)


def run(*words):
    """Returns the exit status of the command."""
    try:
        return report.main(list(map(str, words)))
    except SystemExit as error:  # argparse's
        return error.code


def drawn(path):
    """Returns the lanes of a drawing: their names, and begin, end and class of each bar in
    percent of the lane, and its title."""
    lanes = {}
    for lane in xml.parse(path).iter(SVG + "g"):
        if lane.get("class") == "lane":
            track, *bars = lane.findall(SVG + "rect")
            left, width = (float(track.get(key)[:-1]) for key in ("x", "width"))
            lanes[lane.find(SVG + "text").text] = [
                (
                    round((float(bar.get("x")[:-1]) - left) / width * 100),
                    round(float(bar.get("width")[:-1]) / width * 100),
                    bar.get("class").split()[1],
                    bar.find(SVG + "title").text,
                )
                for bar in bars
            ]
    return lanes


def test_words():
    assert report.in_bytes(0) == "0 B" and report.in_bytes(999) == "999 B"
    assert report.in_bytes(1000) == "1.00 kB" and report.in_bytes(9995) == "10.0 kB"
    assert report.in_bytes(999499) == "999 kB" and report.in_bytes(999500) == "1.00 MB"
    assert report.in_bytes(1 << 62) == "4612 PB"
    assert report.in_time(999.4) == "999.4 µs" and report.in_time(999500) == "1.00 s"
    # U+009B is a control character; U+00D7 is none.
    assert report.printable("a\x1b[31m\n\x7f \x9b ×") == "a\\x1b[31m\\x0a\\x7f \\x9b ×"
    assert report.escape("<\x00\x7f\uffff&'\"") == "&lt;␀␡\ufffd&amp;&#x27;&quot;"


def test_waiting_is_not_moving(tmp_path):
    collective = event("collective", 30, 60, lane=1, collective=0, bucket="b0", wait_us=25e3)
    found = summary(
        tmp_path,
        [event("step", 0, 100), event("wait", 80, 20), collective, event("step", 100, 120, step=2)],
    )
    (step,) = found.steps
    # Half of 100 and 120, of 60 and 0, of 20 and 0.
    assert (step.runs, step.total_us) == (2, 110e3)
    assert (step.communicating_us, step.exposed_us) == (30e3, 10e3)
    (item,) = found.collectives
    assert (item.waiting_us, item.moving_us, item.exposed_us) == (25e3, 35e3, 10e3)
    # The step of the lower median, with the events in it.
    assert len(found.picture) == 3


def test_one_step_and_all_of_them(tmp_path):
    """Step 2 has the median of rank 0's times; nested waits count once."""
    events = []
    for step, time in ((1, 30), (2, 20), (3, 10)):
        begin = 100 * step
        events += [event("step", begin + rank, time, rank, step=step) for rank in (0, 1)]
        events += [
            event("kernel", begin + 2, 3, step=step),
            event("collective", begin + 4, 6, lane=1, step=step),
            event("wait", begin + 5, 1, lane=1, step=step),
            event("wait", begin + 6, 2, step=step),
            event("wait", begin + 6.5, 0.5, step=step),
            event("wait", begin + 7.5, 1, step=step),
        ]
    path = tmp_path / "trace.svg"
    assert run(write(tmp_path / "trace.json", events), "-o", path) == 0
    lanes = drawn(path)
    # The drawing has 21 ms.
    steps = lanes["rank 0, step"]
    assert steps[:2] == [(0, 95, "s", "step: 20.00 ms"), (10, 14, "n", "kernel: 3.00 ms")]
    assert [bar[:3] for bar in steps[2:]] == [(29, 10, "x"), (31, 2, "x"), (36, 5, "x")]
    assert [bar[:3] for bar in lanes["rank 0, wire"]] == [(19, 29, "h0"), (24, 5, "w")]
    assert [bar[:3] for bar in lanes["rank 1, step"]] == [(5, 95, "s")]
    texts = [element.text for element in xml.parse(path).iter(SVG + "text")]
    assert texts[0].startswith("step 2 of 2 ranks")
    times = summary(tmp_path, events).times
    assert times[:3] == [(0, 1, 30e3, 2.5e3), (0, 2, 20e3, 2.5e3), (0, 3, 10e3, 2.5e3)]
    assert times[3:] == [(1, 1, 30e3, 0), (1, 2, 20e3, 0), (1, 3, 10e3, 0)]
    assert summary(tmp_path, events, step=3).picture[0]["step"] == 3


def test_many_ranks(tmp_path):
    events = [event("step", rank, 5, rank) for rank in range(20)]
    path = tmp_path / "trace.svg"
    assert run(write(tmp_path / "trace.json", events, 20), "-o", path) == 0
    assert list(drawn(path)) == [f"rank {rank}, step" for rank in range(16)]


def test_the_drawing_of_the_documents(tmp_path):
    made = tmp_path / "trace.svg"
    command = [sys.executable, "-m", "ddphook", "report", EXAMPLE, "-o", made]
    subprocess.run(command, check=True)
    assert made.read_bytes() == EXAMPLE.with_suffix(".svg").read_bytes()
    lanes = drawn(made)
    assert {style for bars in lanes.values() for _, _, style, _ in bars} == set("swx") | {"h0"}
    lines = xml.parse(made).findall(f".//{SVG}polyline")
    assert [len(line.get("points").split()) for line in lines] == [6] * 4


@pytest.mark.parametrize(
    ("events", "step", "message"),
    [
        ([event("step", 0, 1)], 2, "expected a step of the trace, but got 2"),
        ([event("step", 0, float("inf"))], None, "plausible times"),
        ([event("step", float("nan"), 1)], None, "plausible times"),
        ([event("step", 0, -1)], None, "plausible times"),
    ],
)
def test_damaged_traces(tmp_path, events, step, message):
    with pytest.raises(ReportError, match=message):
        summary(tmp_path, events, step)


def test_errors_of_the_command(tmp_path, capsys):
    (tmp_path / "text").write_text('{"traceEvents": [')
    write(tmp_path / "list", [{"ph": "X", "cat": "step"}])
    write(tmp_path / "large", [{**event("step", 0, 1), "ts": 10**400}])
    write(tmp_path / "empty", [])
    files = sorted(tmp_path.iterdir())
    for words, message in [
        ((tmp_path / "text",), "cannot read it, is it truncated?"),
        ((tmp_path / "list",), "expected 'ts', which is missing"),
        ((tmp_path / "large",), "cannot read it"),
        ((tmp_path / "empty", "-o", tmp_path / "a.svg"), "expected a trace of steps"),
        ((EXAMPLE, "-o", tmp_path / "a.html"), "cannot show this kind of input"),
        ((EXAMPLE, "-o", tmp_path / "none" / "a.svg"), "No such file"),
        ((EXAMPLE, "-o", tmp_path / "a.svg", "--step=zero"), "invalid int value"),
        ((EXAMPLE, "-o", tmp_path / "a.svg", "--trace=" + __file__), "expected"),
    ]:
        assert run(*words) == 2, words
        assert message in capsys.readouterr().err, words
    assert sorted(tmp_path.iterdir()) == files
