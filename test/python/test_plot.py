# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m ddphook plot``: pictures of traces, including those of the documentation."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

import ddphook
from conftest import ROOT
from ddphook import _plot

EXAMPLE = ROOT / "docs" / "examples" / "wide" / "trace.json"


def event(category, begin, time, rank=0, lane=0, step=1):
    """Returns an event of docs/tracing.md; times are in milliseconds."""
    return {
        **{"ph": "X", "cat": category, "name": category, "pid": rank, "tid": lane},
        **{"ts": begin * 1e3, "dur": time * 1e3, "args": {"step": step}},
    }


def write(path, events):
    names = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {}}
    path.write_text(json.dumps({"traceEvents": [names, *events], "ddphook": {}}))
    return path


def bars(axes):
    """Returns begin, end and row of the bars of each kind."""
    result = {}
    for collection in axes.collections:
        label = collection.get_label()
        for path in collection.get_paths():
            x, y = path.vertices[:, 0], path.vertices[:, 1]
            kind = label if not label.startswith("_") else None
            box = (*(round(float(v), 6) for v in (min(x), max(x))), round(float(y.mean())))
            result.setdefault(kind, []).append(box)
    return result


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
    figure = _plot.make_figure(write(tmp_path / "trace.json", events))
    one, times = figure.axes
    assert one.get_title() == "step 2 of 2 ranks"
    found = bars(one)
    assert found["step"] == [(0, 20, 0)] and found["kernel"] == [(2, 5, 0)]
    assert found["collective"] == [(4, 10, 1)]
    # Bars without a legend entry of their own: rank 1's step, waits of the other thread.
    assert found[None] == [(1, 21, 2), (5, 6, 1)]
    assert found["waiting"] == [(6, 8, 0), (6.5, 7, 0), (7.5, 8.5, 0)]
    rows = [label.get_text() for label in one.get_yticklabels()]
    assert rows[1:3] == ["rank 0, communication", "rank 1, steps"]
    drawn = {line.get_label(): list(line.get_ydata()) for line in times.lines}
    assert drawn["rank 0"] == drawn["rank 1"] == pytest.approx([30, 20, 10])
    assert drawn["waiting of it"] == pytest.approx([2.5] * 3)


def test_many_ranks(tmp_path):
    events = [event("step", rank, 5, rank) for rank in range(20)]
    figure = _plot.make_figure(write(tmp_path / "trace.json", events))
    assert figure.axes[0].get_title() == "step 1 of the first 16 of 20 ranks"
    assert len(figure.axes[0].get_yticklabels()) == 32


def test_the_picture_of_the_documents(tmp_path):
    """The documented picture is the command's output, apart from matplotlib's additions."""
    made = tmp_path / "trace.svg"
    command = [sys.executable, "-m", "ddphook", "plot", EXAMPLE, made]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{made}: step 4 of 2 ranks\n"
    texts = []
    for path in (made, EXAMPLE.with_suffix(".svg")):
        found = xml.parse(path).iter("{http://www.w3.org/2000/svg}text")
        texts.append(["".join(element.itertext()) for element in found])
    assert "rank 1, communication" in texts[0] and "waiting" in texts[0]
    assert texts[0] == texts[1]
    again = tmp_path / "again.svg"
    _plot.draw(EXAMPLE, again)
    assert again.read_bytes() == made.read_bytes()


@pytest.mark.parametrize(
    ("events", "step", "message"),
    [
        ([], None, "expected a trace of steps, but .* has none"),
        ([event("step", 0, 1)], 2, "expected a step of .*, 1 to 1, but got 2"),
        ([{"ph": "X", "cat": "step"}], None, "expected a ddphook trace"),
    ],
)
def test_other_files(tmp_path, events, step, message):
    path = write(tmp_path / "trace.json", events)
    with pytest.raises(ddphook.InvalidArgumentError, match=message):
        _plot.make_figure(path, step)


@pytest.mark.parametrize(
    "changed",
    [
        {"pid": float("inf")},
        {"ts": float("nan")},
        {"ts": 10**400},
        {"dur": float("inf")},
        {"dur": -1},
        None,
    ],
)
def test_damaged_numbers(tmp_path, changed):
    path = tmp_path / "trace.json"
    # Without `changed`, the file has deeply nested lists.
    text = json.dumps({"traceEvents": [{**event("step", 0, 1), **(changed or {})}]})
    path.write_text(text if changed else "[" * 100000)
    with pytest.raises(ddphook.InvalidArgumentError, match="expected a ddphook trace"):
        _plot.make_figure(path)


def test_a_sweep(tmp_path):
    place = {"time_us": 50.0, "busbw_gbs": 0.02}
    rows = [
        {"hook": hook, "datatype": "f32", "size_bytes": size, "in_place": place}
        for hook in ("allreduce", "fp16")
        for size in (8, 64, 512)
    ]
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({"ranks": 2, "results": rows}))
    time, bandwidth = _plot.make_sweep_figure(path).axes
    assert bandwidth.get_legend_handles_labels()[1] == ["allreduce, f32", "fp16, f32"]
    for line in time.lines:
        assert list(line.get_xdata()) == [8, 64, 512]
        assert list(line.get_ydata()) == [50.0] * 3
    picture = tmp_path / "sweep.svg"
    assert "2 ranks" in _plot.draw(path, picture) and picture.exists()


def test_errors_of_the_command(tmp_path):
    text = tmp_path / "text"
    text.write_text("no trace")
    for words, status, message in [
        ((text, tmp_path / "a.svg"), 2, "expected a ddphook trace"),
        ((EXAMPLE, tmp_path / "a.nothing"), 2, "Format 'nothing' is not supported"),
        ((EXAMPLE, tmp_path / "a"), 2, "expected a picture ending in .svg"),
        ((EXAMPLE, tmp_path / "none" / "a.svg"), 1, "No such file"),
        ((EXAMPLE, tmp_path / "a.svg", "--step=0"), 2, "positive number"),
    ]:
        done = subprocess.run(
            [sys.executable, "-m", "ddphook", "plot", *map(str, words)],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status and message in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == [text]
