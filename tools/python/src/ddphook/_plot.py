# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plots of traces: one step of all ranks on a timeline, and the duration of every
step. docs/tracing.md has the schema of a trace. Also plots of sweeps: time and bus
bandwidth over size."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import ddphook

# More ranks would be too thin to read.
MOST_RANKS = 16

# The names and colors of bars, by the category of an event. They are drawn in this
# order, since waits are within collectives, and everything is within a step.
_LOOKS = {
    "step": ("step", "lightgray"),
    "kernel": ("kernel", "tab:blue"),
    "collective": ("collective", "tab:green"),
    "wait": ("waiting", "tab:red"),
}
_LANES = ("steps", "communication")


@dataclass(frozen=True)
class _Event:
    """An event on a thread of a rank; times are in milliseconds."""

    rank: int
    lane: int
    category: str
    step: int
    begin: float
    time: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.begin) and 0 <= self.time < math.inf):
            raise ValueError("expected finite times")


def draw(trace: Path, picture: Path, step: int | None = None) -> str:
    """Draws a trace, or a sweep of ``ddphook-bench``, into a file, in the format of its
    suffix (.svg, .png, .pdf), and returns a line about it.

    Raises
    ------
    ddphook.InvalidArgumentError
        As make_figure(); or the format is not supported.
    OSError
        A file cannot be read or written.
    """
    # Makes equal pictures have equal bytes.
    matplotlib.rcParams.update({"svg.hashsalt": "ddphook", "svg.fonttype": "none"})
    # Without a suffix, matplotlib would add one and so write to another file.
    if not picture.suffix:
        raise ddphook.InvalidArgumentError(
            f"expected a picture ending in .svg, .png or .pdf, but got {picture}"
        )
    figure = make_sweep_figure(trace) or make_figure(trace, step)
    try:
        figure.savefig(picture, metadata=_metadata(picture))
    except ValueError as error:
        raise ddphook.InvalidArgumentError(str(error)) from error
    return f"{picture}: {figure.axes[0].get_title()}"


def make_sweep_figure(sweep: Path) -> Figure | None:
    """Returns the figure of a sweep, with a line for each hook and type, all in place;
    None if the file is not one.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    try:
        content = json.loads(sweep.read_bytes())
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for row in content["results"]:
            point = row["size_bytes"], row["in_place"]["time_us"], row["in_place"]["busbw_gbs"]
            lines.setdefault(f"{row['hook']}, {row['datatype']}", []).append(point)
        title = f"all-reduce in place, {content['ranks']} ranks"
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    figure = Figure(figsize=(10, 4))
    time, bandwidth = figure.subplots(1, 2)
    for name, points in lines.items():
        sizes, times, speeds = zip(*points)
        time.plot(sizes, times, marker=".")
        bandwidth.plot(sizes, speeds, marker=".", label=name)
    time.set(title=title, ylabel="us", yscale="log")
    bandwidth.set(ylabel="bus bandwidth, GB/s", ylim=(0, None))
    for axes in (time, bandwidth):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("bytes")
    _finish(bandwidth)
    figure.tight_layout()
    return figure


def make_figure(trace: Path, step: int | None = None) -> Figure:
    """Returns the figure of a trace: a step of all ranks above, the duration of every
    step below. The default step is the one of median duration on the first rank.

    Raises
    ------
    ddphook.InvalidArgumentError
        The file is not a trace, or has no such step.
    OSError
        The file cannot be read.
    """
    events = _read(trace)
    ranks = sorted({event.rank for event in events if event.category == "step"})
    if not ranks:
        raise ddphook.InvalidArgumentError(
            f"expected a trace of steps, but {trace} has none"
        )
    number = _typical(events, ranks[0]) if step is None else step
    numbers = {event.step for event in events}
    if number not in numbers:
        raise ddphook.InvalidArgumentError(
            f"expected a step of {trace}, {min(numbers)} to {max(numbers)}, "
            f"but got {number}"
        )
    drawn = ranks[:MOST_RANKS]
    height = 0.7 * len(drawn) + 0.7
    figure = Figure(figsize=(10, height + 2.8))
    one, all_steps = figure.subplots(2, height_ratios=[height, 2.2])
    whose = "1 rank" if len(ranks) == 1 else f"{len(ranks)} ranks"
    if drawn != ranks:
        whose = f"the first {len(drawn)} of {whose}"
    _draw_step(one, [event for event in events if event.step == number], drawn)
    one.set_title(f"step {number} of {whose}")
    _draw_times(all_steps, events, drawn)
    figure.tight_layout()
    return figure


def _read(trace: Path) -> list[_Event]:
    try:
        return [
            _Event(
                rank=int(event["pid"]),
                lane=min(int(event["tid"]), 1),
                category=str(event["cat"]),
                step=int(event["args"]["step"]),
                begin=float(event["ts"]) / 1e3,
                time=float(event["dur"]) / 1e3,
            )
            for event in json.loads(trace.read_bytes())["traceEvents"]
            if event["ph"] == "X"
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ddphook.InvalidArgumentError(
            f"expected a ddphook trace, but {trace} is not one"
        ) from error


def _typical(events: list[_Event], rank: int) -> int:
    """Returns the step whose duration is the lower median of a rank's."""
    times = {
        event.step: event.time
        for event in events
        if event.category == "step" and event.rank == rank
    }
    median = statistics.median_low(times.values())
    return next(number for number, time in times.items() if time == median)


def _draw_step(axes: Axes, events: list[_Event], ranks: list[int]) -> None:
    """Draws two rows for each rank: the thread that runs steps, and the thread that
    runs collectives in flight. Bars above each other run at the same time."""
    first = min(event.begin for event in events)
    for category, (name, color) in _LOOKS.items():
        label: str | None = name
        for row in range(len(_LANES) * len(ranks)):
            bars = [
                (event.begin - first, event.time)
                for event in events
                if event.category == category
                and event.rank == ranks[row // len(_LANES)]
                and event.lane == row % len(_LANES)
            ]
            if bars:
                axes.broken_barh(bars, (row - 0.4, 0.8), color=color, label=label)
                label = None  # One legend entry for all rows.
    rows = [f"rank {rank}, {lane}" for rank in ranks for lane in _LANES]
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("ms")
    _finish(axes)


def _draw_times(axes: Axes, events: list[_Event], ranks: list[int]) -> None:
    """Draws the duration of every step, and how long the rank's thread waited in it."""
    for number, rank in enumerate(ranks):
        own = [event for event in events if event.rank == rank and event.lane == 0]
        times = {event.step: event.time for event in own if event.category == "step"}
        waits: dict[int, list[_Event]] = {step: [] for step in times}
        for event in own:
            if event.category == "wait" and event.step in waits:
                waits[event.step].append(event)
        color = f"C{number % 10}"
        axes.plot(list(times), list(times.values()), color=color, label=f"rank {rank}")
        waited = [_covered(of_step) for of_step in waits.values()]
        label = None if number else "waiting of it"
        axes.plot(list(times), waited, color=color, ls=":", label=label)
    axes.set(xlabel="step", ylabel="ms a step")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes)


def _covered(events: Iterable[_Event]) -> float:
    """Returns the time that the events cover together: a wait may be within another."""
    total, end = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event.begin):
        until = event.begin + event.time
        total += max(0.0, until - max(event.begin, end))
        end = max(end, until)
    return total


def _finish(axes: Axes) -> None:
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))


def _metadata(picture: Path) -> dict[str, None] | None:
    """Returns metadata without entries that differ from run to run."""
    dated = {".svg": ("Date", "Creator"), ".pdf": ("CreationDate", "Creator")}
    keys = dated.get(picture.suffix.lower())
    return dict.fromkeys(keys) if keys else None
