#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Explains and compares plans and runs: ``ddphook-report`` among the tools, ``python -m
ddphook report`` in the package. It needs only Python's standard library.
docs/reports.md is the guide.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import html
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HELP = """\
OVERVIEW: explains, draws and compares plans and runs
usage: ddphook-report FILE [AFTER] [flags]

Files are reports (FILE.json of --ddp-plan-report), plans, modules with a plan, traces, or
results of ddphook-bench sweep (only drawn); - is standard input. Two files are compared.
The exit status is 0 if nothing differs, 1 if something does, and 2 after an error.

  -o <file>            write a page, FILE.html, a drawing, FILE.svg, a report, FILE.json,
                       or text (default: text on standard output)
  --trace=FILE         add the times of a run to a report
  --step=NUMBER        step of a trace to draw (default: one of median time)
  --tolerance=PERCENT  largest change in a time that is no difference (default 10)
  --help               print this
"""
REPORT_VERSION, TRACE_VERSION = 2, 1
# Limits of pictures and tables: a program may have thousands of equal parts.
MOST_BARS, MOST_LANES, MOST_RANKS, MOST_ROWS, MOST_LISTED = 2000, 12, 16, 1000, 8
PLACEMENTS = {"intra_node": "the ranks of a node"}
PLACEMENTS["inter_node"] = "ranks at the same position on their nodes"
# The parts of the times of a step and of a collective, and their names in text.
STEP_PARTS = {"communicating": "of which communicating", "exposed": "stalled"}
COLLECTIVE_PARTS = {"waiting": "waiting for other ranks", "moving": "moving"}
COLLECTIVE_PARTS["exposed"] = "not hidden"
PARTS = {"steps": STEP_PARTS, "collectives": COLLECTIVE_PARTS}


class ReportError(Exception):
    """A file cannot be read, or does not contain what it should."""


class Record(dict[str, Any]):
    """A JSON object whose keys are attributes."""

    def __getattr__(self, key: str) -> Any:
        return self[key]


# ---- Words ----------------------------------------------------------------------------


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def in_bytes(count: float) -> str:
    """Returns "12.1 kB", in units of 1000, as is usual for links."""
    value, unit = float(count), 0
    while abs(value) >= 999.5 and unit < 5:
        value, unit = value / 1000, unit + 1
    if unit == 0:
        return f"{count:.0f} B"
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {('B', 'kB', 'MB', 'GB', 'TB', 'PB')[unit]}"


def in_time(microseconds: float) -> str:
    if microseconds < 999.5:
        return f"{microseconds:.1f} µs"
    if microseconds < 999.5e3:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds / 1e6:.2f} s"


def in_shape(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def ratio(before: int, after: int) -> str:
    return f"{before / after:.2f}" if after else "nothing is sent"


def percent(before: float, after: float) -> str:
    if not before:
        return "" if after else " (+0.0 %)"
    change = 100 * (after - before) / before
    return f" ({'−' if change < 0 else '+'}{abs(change):.1f} %)"


def total(items: Iterable[Any], key: str) -> int:
    return sum(item[key] for item in items)


def printable(text: str) -> str:
    """Returns the text without characters that control terminals."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda c: f"\\x{ord(c[0]):02x}", text)


def listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


# ---- Plans ----------------------------------------------------------------------------


def _wire(item: Record) -> str:
    """Returns the format of elements on the wire: "f32", or "i4 in blocks of 128"."""
    if item.encoding:
        return str(item.encoding) + (f" in blocks of {item.block}" if item.block else "")
    return str(item.wire_dtype or item.dtype)


def _size(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ReportError(f"expected a size, but got {value}")
    return value


def _group(group: Record) -> str:
    text = f"{group.size} ranks" if group.size else "all ranks"
    text = PLACEMENTS.get(group.placement) or (f"ranks {group.ranks}" if group.ranks else text)
    text += f" of @{group.parent}" if group.parent else ""
    return text + (", hierarchical" if group.topology == "hierarchical" else "")


def _bucket(bucket: Record, origin: Record) -> Record:
    if not (bits := re.fullmatch(r"b?[fi](\d+)", bucket.dtype)):
        raise ReportError(
            f"expected the element type of bucket '{bucket.name}', but got '{bucket.dtype}'"
        )
    shapes, names = bucket.shapes, bucket.gradients
    if names and len(names) != len(shapes):
        raise ReportError(
            f"expected a shape for each gradient of bucket '{bucket.name}', but got "
            f"{len(shapes)} shapes for {len(names)} gradients"
        )
    # Gradients without names are called by their position, as in passes.
    named = names or [f"{bucket.name}.{i}" for i in range(len(shapes))]
    gradients = [
        Record(
            name=name,
            shape=shape,
            bytes=int(bits[1]) // 8 * math.prod(map(_size, shape)),
            source=origin.gradients.get(name, origin.source),
        )
        for name, shape in zip(named, shapes)
    ]
    wire = _wire(bucket)
    cast = "" if wire == bucket.dtype else f" as {wire}"
    return Record(
        bucket,
        kind=re.sub("<.*", "", bucket.hook, flags=re.DOTALL).removeprefix("#"),
        hook_from=origin.hook_from,
        gradients=gradients,
        gradient_bytes=total(gradients, "bytes"),
        wire_bytes=_size(bucket.wire_bytes),
        state_bytes=_size(bucket.state_bytes),
        how=f"{bucket.reduction} over @{bucket.group}, {bucket.dtype}{cast} on the wire",
        collectives=[],
    )


def _collective(number: int, item: Record, call: Record, group: str) -> Record:
    wire, within = _wire(item), call.within
    what = item.kind
    if item.kind == "reduce_scatter" and not item.bucket:
        what += " mean" if item.divide else " sum"  # buckets have their own
    what += f" of {item.count} {item.dtype}"
    what += "" if wire == item.dtype else f" as {wire}"
    what += f", within {within}" if within else ""
    beside = sorted(call.beside, key=lambda work: -work.count)
    words = ", ".join(f"{work.count} {work.what}" for work in beside)
    overlap = f"in flight{' alongside ' if words else ', with nothing alongside it'}{words}"
    if not call.function:
        overlap = ""
    elif call.wait == call.start:
        overlap = "the step waits for it"
    return Record(
        call,
        number=number,
        bucket=item.bucket,
        group=group,
        what=what,
        overlap=overlap,
        name=item.bucket or item.kind,
    )


def explain(report: Record) -> Record:
    """Returns a report with what a program adds to its plan beside each item."""
    plan, program = report.plan, report.get("program")
    facts = program or Record(buckets=[], buffers=[], copies=[])
    origins = {bucket.name: bucket for bucket in facts.buckets}
    no_origin = Record(hook_from="", source="", gradients={})
    calls = {call.number: call for call in report.collectives}
    no_call = Record(function="", within="", start=0, wait=0, beside=[])
    buckets = [_bucket(b, origins.get(b.name, no_origin)) for b in plan.buckets]
    groups = plan.process_groups
    collectives = [
        _collective(i, item, calls.get(i, no_call), groups[_size(item.group)].name)
        for i, item in enumerate(plan.collectives)
    ]
    by_name = {bucket.name: bucket for bucket in buckets}
    for item in collectives:
        if item.bucket in by_name:
            by_name[item.bucket].collectives.append(item)
    return Record(
        plan,
        module=report.module,
        buckets=buckets,
        groups={group.name: _group(group) for group in groups},
        collectives=collectives,
        others=[item for item in collectives if item.bucket not in by_name],
        gradients={g.name: (b.name, g) for b in buckets for g in b.gradients},
        gradient_bytes=total(buckets, "gradient_bytes"),
        wire_bytes=total(buckets, "wire_bytes"),
        has_program=bool(program),
        functions=report.functions,
        buffers=sorted(facts.buffers, key=lambda b: (b.function, b.offset)),
        copies=facts.copies,
        remarks=report.remarks,
        measured=report.get("measured"),
    )


# ---- Traces ---------------------------------------------------------------------------


class Event(NamedTuple):
    """An event on a thread of a rank: 0 runs steps, 1 communicates. Times are in µs."""

    rank: int
    thread: int
    begin: float
    time: float
    kind: str
    name: str
    step: int
    collective: int
    bucket: str
    waiting: float
    wire_bytes: int

    @property
    def end(self) -> float:
        return self.begin + self.time


Spans = list[tuple[float, float]]


def _events(trace: Record) -> list[Event]:
    """Returns the events that have an end, sorted; enclosing ones come first."""
    events = []
    for item in trace.traceEvents:
        more, kind = item.get("args", {}), item.get("cat")
        known = kind in ("step", "kernel", "collective", "wait")
        if item.get("ph") != "X" or not known or more.get("unfinished"):
            continue
        begin, time, waiting = map(float, (item.ts, item.dur, more.get("wait_us", -1)))
        if not all(abs(us) < 2.3e15 for us in (begin, time, waiting)) or time < 0:
            raise ReportError("expected events of the trace to have plausible times")
        sent = more.get("wire_bytes", -1)
        event = Event(
            int(item.pid), min(int(item.tid), 1), begin, time, kind, str(item.get("name", "")),
            more.get("step", -1), more.get("collective", -1), str(more.get("bucket", "")),
            min(waiting, time), sent if 0 <= sent <= 2**52 else -1,  # more is damaged
        )  # fmt: skip
        events.append(event)
    events.sort(key=lambda e: (e.rank, e.thread, e.begin, -e.time))
    # The sums of the waits in collectives, for traces that lack them.
    waits: dict[int, float] = defaultdict(float)
    around = -1
    for i, event in enumerate(events):
        if event.kind == "collective":
            around = i
        elif event.kind == "wait" and around >= 0:
            outer = events[around]
            if outer[:2] == event[:2] and event.begin < outer.end:
                waits[around] += event.time
    return [
        event if event.waiting >= 0 else event._replace(waiting=waits[i])
        for i, event in enumerate(events)
    ]


def _spans(events: Iterable[Event]) -> dict[int, Spans]:
    """Returns the time of each rank that its events cover, as disjoint spans in order."""
    found: dict[int, Spans] = defaultdict(list)
    for rank, begin, end in sorted((event.rank, event.begin, event.end) for event in events):
        merged = found[rank]
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return found


def _overlap(spans: Spans, event: Event) -> float:
    """Returns how much of an event the disjoint spans cover."""
    first = bisect.bisect_right(spans, event.begin, key=lambda span: span[1])
    last = bisect.bisect_left(spans, event.end, key=lambda span: span[0])
    return sum(min(e, event.end) - max(b, event.begin) for b, e in spans[first:last])


def _median(runs: list[list[tuple[Event, dict[str, float]]]], key: str) -> float:
    """Returns the median over runs of means over ranks. The last rank waits for nobody,
    so a median over all ranks would be that of one rank or another."""
    return statistics.median(statistics.fmean(each[key] for _, each in run) for run in runs)


def summarize(trace: Record, step: int | None = None) -> Record:
    """Returns what a trace measured, and the events of a step: by default that with the
    lower median of the first rank's times."""
    version = trace.get("ddphook", {}).get("version")
    if version != TRACE_VERSION:
        raise ReportError(
            f"expected a trace of version {TRACE_VERSION}, but got "
            + ("none" if version is None else f"version {version}")
        )
    events, ours = _events(trace), trace.ddphook
    communicating = _spans(e for e in events if e.kind == "collective")
    exposed = _spans(e for e in events if e.thread == 0 and e.kind in ("collective", "wait"))
    # Runs of one thing are those of one step. A rank may lack the first steps, if its
    # buffer was full, or the last, if it was killed.
    samples: dict[Any, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    counts: Counter[Any] = Counter()
    for event in events:
        if event.kind in ("step", "collective"):
            name = event.name if event.collective < 0 else ""
            key = event.kind, event.collective, name
            number = counts[key, event.rank, event.step]
            counts[key, event.rank, event.step] += 1
            values = {
                "total": event.time,
                "waiting": event.waiting,
                "moving": event.time - event.waiting,
                "communicating": _overlap(communicating[event.rank], event),
                "exposed": _overlap(exposed[event.rank], event),
                "wire_bytes": event.wire_bytes,
            }
            samples[key][event.step, number].append((event, values))
    found: dict[str, list[Record]] = {kinds: [] for kinds in PARTS}
    for (kind, number, _), by_step in sorted(samples.items()):
        most = max(map(len, by_step.values()))
        runs = [run for run in by_step.values() if len(run) == most]
        event = runs[-1][-1][0]
        item = Record(name=event.name, runs=len(runs))
        for part in ("total", *PARTS[kind + "s"]):
            item[part + "_us"] = _median(runs, part)
        if kind == "collective":
            sent = round(_median(runs, "wire_bytes"))
            item.update(number=number, bucket=event.bucket, wire_bytes=sent)
        found[kind + "s"].append(item)
    return Record(
        run=ours.get("run_id", ""),
        world_size=ours.get("world_size", 0),
        events_lost=sum(rank.get("events_lost", 0) for rank in ours.get("ranks", [])),
        failures=[
            f"rank {failure.get('rank', -1)} {failure.get('state', 'failed')}: "
            f"{failure.get('message', '')}"
            for failure in ours.get("failures", [])
        ],
        **found,
        history=[  # Rank, step, time and stalled time of every step; only for drawings.
            (e.rank, e.step, e.time, _overlap(exposed[e.rank], e))
            for e in events
            if e.kind == "step"
        ],
        picture=[event._asdict() for event in _picture(events, step)],
    )


def _picture(events: list[Event], number: int | None) -> list[Event]:
    """Returns the events of one step on all ranks, from its first begin on."""
    steps = [event for event in events if event.kind == "step"]
    own = [event for event in steps if event.rank == steps[0].rank]
    if number is None and own:
        number = sorted(own, key=lambda e: e.time)[(len(own) - 1) // 2].step
    chosen = {e.rank: e for e in reversed(steps) if e.step == number}
    if not chosen and number is not None:
        raise ReportError(f"expected a step of the trace, but got {number}")
    first = min((step.begin for step in chosen.values()), default=0)
    return [
        event._replace(begin=event.begin - first)
        for event in events
        if (step := chosen.get(event.rank))
        and event.begin < step.end
        and event.end > step.begin
    ]


def check_trace(report: Record, trace: Record) -> None:
    """Raises an error if the trace is not that of the report's module."""
    here = {number: item.bucket for number, item in enumerate(report.plan.collectives)}
    for event in _events(trace):
        number, bucket = event.collective, here.get(event.collective)
        if event.kind == "collective" and number >= 0 and bucket != event.bucket:
            own = f"'{bucket}' here" if number in here else "this plan has no such collective"
            raise ReportError(
                f"expected a trace of this module, but collective {number} reduces bucket "
                f"'{event.bucket}' there, and {own}"
            )


# ---- Text -----------------------------------------------------------------------------


def _measured_name(item: Record) -> str:
    return f"{item.number}  {item.name}" if item.get("number", -1) >= 0 else str(item.name)


def _measured_lines(measured: Record) -> Iterator[str]:
    lost = measured.events_lost
    yield f"measured, medians of means over {counted(measured.world_size, 'rank')}" + (
        f"; {counted(lost, 'event')} lost" if lost else ""
    )
    yield from (f"    {failure}" for failure in measured.failures)
    for kind, parts in PARTS.items():
        for item in measured[kind]:
            times = (f", {words} {in_time(item[key + '_us'])}" for key, words in parts.items())
            whole = in_time(item.total_us) + "".join(times)
            yield f"    {_measured_name(item)}: {whole} ({counted(item.runs, 'run')})"


def _collective_line(item: Record) -> str:
    overlap = f"; {item.overlap}" if item.overlap else ""
    return f"    {item.number}  {item.what}{overlap}"


def _gradient_rows(bucket: Record) -> list[tuple[str, str, str, str]]:
    return [
        (g.name, in_shape(g.shape), in_bytes(g.bytes), g.source) for g in bucket.gradients
    ]


def _bucket_lines(bucket: Record) -> Iterator[str]:
    yield f"bucket {bucket.name}: {bucket.how}"
    origin = f", from {bucket.hook_from}" if bucket.hook_from else ""
    yield f"  hook {bucket.hook}{origin}"
    yield (
        f"  {in_bytes(bucket.gradient_bytes)} of gradients, {in_bytes(bucket.wire_bytes)} on "
        f"the wire, compression {ratio(bucket.gradient_bytes, bucket.wire_bytes)}, states "
        f"{in_bytes(bucket.state_bytes)}"
    )
    rows = _gradient_rows(bucket)
    width, shape_width = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    yield "  gradients"
    for name, shape, size, source in rows:
        yield f"    {name:{width}}  {shape:{shape_width}}  {size:>8}  {source}".rstrip()
    if bucket.collectives:
        yield "  collectives"
    yield from map(_collective_line, bucket.collectives)


def _memory_words(item: Record) -> str:
    bucket = f", bucket {item.bucket}" if item.get("bucket") else ""
    return f"{item.type}, {in_bytes(item.bytes)}{bucket}, in '{item.function}'"


def text(report: Record) -> Iterator[str]:
    """Yields the lines of a report for terminals."""
    gradients = sum(len(bucket.gradients) for bucket in report.buckets)
    yield (
        f"plan{' of ' if report.module else ''}{report.module}: "
        f"{counted(len(report.buckets), 'bucket')}, {counted(gradients, 'gradient')}, "
        f"{counted(len(report.collectives), 'collective')}"
    )
    size, sent, others = report.gradient_bytes, report.wire_bytes, report.others
    line = f"  gradients {in_bytes(size)}, on the wire {in_bytes(sent)} per rank and step"
    if others:
        line += f", without {counted(len(others), 'collective')} outside buckets"
    yield line + (f", compression {ratio(size, sent)}" if size else "")
    yield (
        f"  states {in_bytes(total(report.states, 'bytes'))}, arena "
        f"{in_bytes(report.arena.bytes)}, memory of the {report.memory}"
    )
    yield from (f"  @{name}: {words}" for name, words in report.groups.items())
    for bucket in report.buckets:
        yield from ("", *_bucket_lines(bucket))
    lists = {
        "collectives outside buckets": map(_collective_line, others),
        "states": (
            f"    at {s.offset}: {s.name}, {s.dtype}, {in_bytes(s.bytes)}, {s.placement}"
            for s in report.states
        ),
        "arena": (
            f"    at {b.offset}: {_memory_words(b)}  {b.source}" for b in report.buffers
        ),
        "remaining copies": (f"    {_memory_words(c)}  {c.source}" for c in report.copies),
        "nothing is copied": [""] if report.has_program and not report.copies else [],
        "remarks": (
            f"    {r['pass']}, {r.kind}: {r.text}  {r.source}" for r in report.remarks
        ),
    }
    for title, lines in lists.items():
        if found := [line.rstrip() for line in lines]:
            yield from ("", title, *filter(None, found))
    if report.measured:
        yield from ("", *_measured_lines(report.measured))


# ---- Differences ----------------------------------------------------------------------


def _change(what: str, before: str, after: str) -> Iterator[str]:
    if before != after:
        yield f"{what}: {before or 'none'} → {after or 'none'}"


def _bytes_change(what: str, before: int, after: int) -> Iterator[str]:
    words = in_bytes(before), in_bytes(after)
    if words[0] == words[1]:
        words = f"{before} B", f"{after} B"
    if before != after:
        yield f"{what}: {words[0]} → {words[1]}{percent(before, after)}"


def _named_changes(what: str, before: Any, after: Any) -> Iterator[str]:
    for name in {**before, **after}:
        yield from _change(what + name, before.get(name, ""), after.get(name, ""))


def _members(names: list[str], report: Record, word: str) -> str:
    """Lists gradients, and for each bucket of `report` those that it contains."""
    by_bucket: dict[str, list[str]] = {}
    for name in names:
        by_bucket.setdefault(report.gradients.get(name, [""])[0], []).append(name)
    return ", ".join(
        listed(members) + (f" ({word} {bucket})" if bucket else "")
        for bucket, members in by_bucket.items()
    )


def _collective_changes(where: str, before: list[Any], after: list[Any]) -> Iterator[str]:
    if len(before) != len(after):
        yield f"{where}: {counted(len(before), 'collective')} → {len(after)}"
        return
    for old, new in zip(before, after):
        what = f"{where}: collective {new.number}"
        words = (f"{item.what} over @{item.group}" for item in (old, new))
        yield from _change(what, *words)
        if old.overlap and new.overlap:
            yield from _change(what, old.overlap, new.overlap)


def _bucket_changes(old: Record, new: Record, before: Record, after: Record) -> Any:
    what = f"bucket {new.name}"
    names = [{g.name: None for g in bucket.gradients} for bucket in (old, new)]
    come = [name for name in names[1] if name not in names[0]]
    gone = [name for name in names[0] if name not in names[1]]
    if come:
        yield f"{what}: now with {_members(come, before, 'from')}"
    if gone:
        yield f"{what}: without {_members(gone, after, 'now in')}"
    if not come and not gone and list(names[0]) != list(names[1]):
        yield f"{what}: its gradients are in another order"
    if old.hook != new.hook:
        origins = (f" (from {b.hook_from})" if b.hook_from else "" for b in (old, new))
        hooks = map(str.__add__, (old.hook, new.hook), origins)
        yield from _change(f"{what}: hook", *hooks)
    yield from _change(what, old.how, new.how)
    words = {"gradient": "gradients", "wire": "on the wire", "state": "states"}
    for key, word in words.items():
        sizes = (bucket[key + "_bytes"] for bucket in (old, new))
        yield from _bytes_change(f"{what}: {word}", *sizes)
    yield from _collective_changes(what, old.collectives, new.collectives)


def compare_plans(before: Record, after: Record) -> Iterator[str]:
    """Yields a line for each difference. Source lines, the module's name, and facts that
    only one of the reports has are no difference."""
    both = before, after
    entries = (", ".join(entry.name for entry in report.entries) for report in both)
    yield from _change("entry points", *entries)
    yield from _named_changes("process group @", before.groups, after.groups)
    yield from _bytes_change("gradients", before.gradient_bytes, after.gradient_bytes)
    yield from _bytes_change("on the wire", before.wire_bytes, after.wire_bytes)
    for name in [name for name in after.gradients if name in before.gradients]:
        shapes = (in_shape(report.gradients[name][1].shape) for report in both)
        yield from _change(f"gradient {name}", *shapes)
    for word, one, other in ("less", before, after), ("more", after, before):
        if names := [name for name in one.gradients if name not in other.gradients]:
            yield f"{counted(len(names), 'gradient')} {word}: {listed(names)}"
    old, new = ({bucket.name: bucket for bucket in report.buckets} for report in both)
    for name, bucket in {**old, **new}.items():
        members = [gradient.name for gradient in bucket.gradients]
        if name in old and name in new:
            yield from _bucket_changes(old[name], bucket, *both)
        elif name in old:
            yield f"bucket {name} is gone: {_members(members, after, 'now in')}"
        else:
            where = _members(members, before, "from")
            yield f"bucket {name} is new, with hook {bucket.hook}: {where}"
    if [name for name in old if name in new] != [name for name in new if name in old]:
        yield "buckets are in another order"
    yield from _collective_changes("in no bucket", before.others, after.others)
    states = (
        {s.name: f"{s.dtype}, {s.bytes} B, {s.placement}" for s in report.states}
        for report in both
    )
    yield from _named_changes("state ", *states)
    yield from _change("memory", before.memory, after.memory)
    for key in ("arena", "state_arena"):
        sizes = (report[key].bytes for report in both)
        yield from _bytes_change(key.replace("_", " "), *sizes)
    if before.has_program and after.has_program:
        yield from _change("copies of memory", *(str(len(r.copies)) for r in both))
        yield from _bytes_change("copied", *(total(r.copies, "bytes") for r in both))


Marked = tuple[str, bool]


def compare_times(before: Record, after: Record, tolerance: float) -> Iterator[Marked]:
    """Yields lines, and whether they are differences: medians that differ by more than
    `tolerance` percent, other bytes on the wire, or what only one run has."""
    if before.world_size != after.world_size:
        yield f"ranks: {before.world_size} → {after.world_size}", True
    for kind in ("steps", "collectives"):
        both = [{(i.get("number", -1), i.name): i for i in run[kind]} for run in (before, after)]
        for key, item in {**both[0], **both[1]}.items():
            old, new = (items.get(key) for items in both)
            name = ("step " if kind == "steps" else "") + _measured_name(item)
            if not old or not new:
                yield f"{name}: only in the {'first' if old else 'second'} run", True
                continue
            for what in ("total", *PARTS[kind]):
                a, b = old[what + "_us"], new[what + "_us"]
                words = f"{in_time(a)} → {in_time(b)}{percent(a, b)}"
                if what == "total":
                    differs = abs(b - a) > a * tolerance / 100
                    change = (", slower" if b > a else ", faster") if differs else ""
                    yield f"{name}: {words}{change}", differs
                else:
                    yield f"    {what.replace('exposed', 'not hidden')} {words}", False
            sent = old.get("wire_bytes", -1), new.get("wire_bytes", -1)
            if min(sent) >= 0:
                for line in _bytes_change("on the wire", *sent):
                    yield "    " + line.replace(":", "", 1), True


# ---- Drawings -------------------------------------------------------------------------

# Colours of hooks and lines on light and dark grounds, also for red-green blindness.
LIGHT = "#2f6fde #c9761a #12897a #a6458f #7c7a13 #7455cf #b8402f #4a7186".split()
DARK = "#6ea2ff #f0a44b #3fc1ae #dc85c7 #bdb93f #a792f5 #f07f6d #84b2c9".split()


def _style(colours: list[str], text: str, ground: str, track: str, plain: str) -> str:
    """Returns the style of drawings. Other programs than browsers have no variables."""
    return (
        f"svg text{{fill:{text};font:11px ui-monospace,'DejaVu Sans Mono',monospace}}"
        f"svg .t{{fill:{track}}}.g{{stroke:{track}}}.n,.x{{fill:{plain}}}"
        f".s{{fill:{ground};stroke:{plain}}}.w,.x{{stroke:{plain};stroke-dasharray:2}}"
        f".w{{fill:{ground};fill-opacity:.7}}.x{{fill-opacity:.4}}svg text.l{{fill:{ground}}}"
        + "".join(
            f".h{i}{{fill:{c};background:{c}}}.c{i}{{stroke:{c}}}"
            for i, c in enumerate(colours)
        )
    )


SVG_STYLE = _style(LIGHT, "#55585e", "#ffffff", "#efefec", "#b9bcc2")
DARK_STYLE = _style(DARK, "#9a9da5", "#1c1e22", "#26292e", "#5b6069")


def escape(value: object) -> str:
    """Escapes text for HTML that is also XML; symbols stand for control characters."""
    symbols = {code: 0x2400 + code for code in range(32)}
    symbols |= {0x7F: 0x2421, 0xFFFE: 0xFFFD, 0xFFFF: 0xFFFD}
    return html.escape(str(value).translate(symbols))


def scale(
    low: float, high: float, begin: float, end: float, base: int = 0
) -> tuple[Callable[[float], float], list[float]]:
    """Returns the position of a value between two places, and round values to mark. With
    a `base`, the scale is logarithmic and marks are its powers."""

    def at(value: float) -> float:
        value = math.log(value, base) if base else value
        return begin + (end - begin) * (
            (value - first) / (last - first) if last > first else 0.5
        )

    first, last = (math.log(low, base), math.log(high, base)) if base else (low, high)
    rough = (last - first) / 6
    if base:
        step = max(1.0, math.ceil(rough))
    elif rough < 1e-7:  # smaller than any time or size
        return at, []
    else:
        power = 10 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    marks = range(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1)
    return at, [base ** (mark * step) if base else mark * step for mark in marks]


class Bar(NamedTuple):
    begin: float
    end: float
    style: str
    title: str
    label: str = ""


def pack(bars: list[Bar]) -> tuple[list[list[Bar]], int]:
    """Distributes bars over lanes without overlap. Also returns how many are left out."""
    lanes: list[list[Bar]] = []
    left_out = 0
    for bar in sorted(bars, key=lambda bar: bar.begin):
        free = next((lane for lane in lanes if lane[-1].end <= bar.begin), None)
        if free is not None:
            free.append(bar)
        elif len(lanes) < MOST_LANES:
            lanes.append([bar])
        else:
            left_out += 1
    return lanes, left_out


def svg(width: object, height: float, parts: Iterable[str], y: float = 0) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:g}" '
        f'y="{y:g}">{"".join(parts)}</svg>\n'
    )


def _label(x: object, y: float, anchor: str, text: object, style: str = "") -> str:
    return (
        f'<text class="{style}" x="{x}" y="{y:g}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def draw_lanes(
    rows: list[tuple[str, list[Bar]]],
    end: float,
    show: Callable[[float], str] | None = None,
    width: object = "100%",
    y: float = 0,
) -> str:
    """Draws rows of bars from 0 to `end`. Places are in percent, so that it fits any
    width. `show` prints the marks below."""
    left = 15
    at, marks = scale(0, end or 1, left, 99.5)
    parts = []
    for number, (name, bars) in enumerate(rows):
        top = 26 * number
        name = name if len(name) < 20 else name[:18] + "…"
        parts.append(
            f'<g class="lane">{_label(f"{left - 1}%", top + 15, "end", name)}'
            f'<rect class="t" x="{left}%" y="{top}" width="84.5%" height="22" rx="3"></rect>'
        )
        for bar in bars[:MOST_BARS]:
            begin = at(max(bar.begin, 0))
            size = max(at(min(bar.end, end)) - begin, 0.2)
            parts.append(
                f'<rect class="b {bar.style}" x="{begin:.2f}%" y="{top + 2}" '
                f'width="{size:.2f}%" height="18" rx="2">'
                f"<title>{escape(bar.title)}</title></rect>"
            )
            if bar.label and size > 0.85 * (len(bar.label) + 1):
                middle = f"{begin + size / 2:.2f}%"
                parts.append(_label(middle, top + 15, "middle", bar.label, "l"))
        parts.append("</g>")
    height = 26 * len(rows)
    if show:
        parts += [_label(f"{at(m):.2f}%", height + 10, "middle", show(m)) for m in marks]
    return svg(width, height + (16 if show else 0), parts, y)


Lines = dict[str, list[tuple[float, float]]]


def draw_chart(
    title: str, lines: Lines, bases: tuple[int, int], show: Callable[[float], str], y: float
) -> str:
    """Draws lines, with their names on the right, over an axis whose marks `show` prints.
    `bases` are those of logarithmic scales, or 0."""
    xs, ys = ([point[i] for line in lines.values() for point in line] for i in (0, 1))
    x_at, x_marks = scale(min(xs), max(xs), 80, 640, bases[0])
    y_at, y_marks = scale(min(ys) if bases[1] else 0, max(ys), 250, 30, bases[1])
    parts = [_label(80, 16, "start", title)]
    for mark in y_marks:
        at = f"{y_at(mark):.1f}"
        parts.append(f'<line class="g" x1="80" x2="640" y1="{at}" y2="{at}"></line>')
        parts.append(_label(74, y_at(mark) + 4, "end", f"{mark:.7g}"))
    parts += [_label(f"{x_at(mark):.1f}", 268, "middle", show(mark)) for mark in x_marks]
    for i, (name, points) in enumerate(lines.items()):
        path = " ".join(f"{x_at(a):.1f},{y_at(b):.1f}" for a, b in points)
        parts.append(
            f'<polyline class="c{i % 8}" fill="none" stroke-width="2" points="{path}">'
            f'</polyline><rect class="h{i % 8}" x="660" y="{30 + 18 * i}" width="14" '
            f'height="10"></rect>{_label(682, 39 + 18 * i, "start", name)}'
        )
    return svg(960, max(CHART, 40 + 18 * len(lines)), parts, y)


CHART = 290  # The height of a chart with up to 13 lines.


def _picture_file(height: float, parts: Iterable[str]) -> str:
    ground = '<rect width="100%" height="100%" fill="white"></rect>'
    return svg(960, height, [f"<style>{SVG_STYLE}</style>{ground}", *parts])


def draw_sweep(sweep: Record) -> str:
    """Draws time and bandwidth of all-reduces in place over their size."""

    def chart(key: str, title: str, base: int, y: float) -> str:
        lines: Lines = defaultdict(list)
        for row in sweep.results:
            point = row.size_bytes, max(row.in_place[key], 1e-3)
            lines[f"{row.hook}, {row.datatype}"].append(point)
        title += f" in place, {counted(sweep.ranks, 'rank')}"
        return draw_chart(title, lines, (2, base), show, y)

    def show(size: float) -> str:
        unit = min(int(math.log2(size)) // 10, 4)
        return f"{size / 1024**unit:.7g}{('', ' KiB', ' MiB', ' GiB', ' TiB')[unit]}"

    time, bandwidth = chart("time_us", "µs", 10, 0), chart("busbw_gbs", "GB/s", 0, CHART)
    return _picture_file(2 * CHART, [time, bandwidth])


def _axis_time(microseconds: float) -> str:
    small = microseconds < 1000
    return f"{microseconds:.6g} µs" if small else f"{microseconds / 1000:.6g} ms"


def draw_step(
    measured: Record, style_of: Callable[[str], str], width: object = "100%", y: float = 0
) -> str:
    """Draws one step of the first ranks. Waits are within collectives, and everything is
    within a step."""
    rows: dict[tuple[int, int], list[Bar]] = {}
    ends: dict[tuple[int, int], float] = {}
    for event in (Event(**event) for event in measured.picture):
        lane = event.rank, event.thread
        style, label = {"kernel": "n", "step": "s"}.get(event.kind, "x"), ""
        if event.kind == "collective":
            style, ends[lane] = style_of(event.bucket), event.end
            label = event.bucket if event.waiting < event.time / 2 else ""
        elif event.kind == "wait" and event.end <= ends.get(lane, 0):
            style = "w"
        title = f"{event.name}: {in_time(event.time)}"
        rows.setdefault(lane, []).append(Bar(event.begin, event.end, style, title, label))
    ranks = sorted({rank for rank, _ in rows})[:MOST_RANKS]
    named = [
        (f"rank {rank}, {('step', 'wire')[thread]}", bars)
        for (rank, thread), bars in sorted(rows.items())
        if rank in ranks
    ]
    end = max((bar.end for bars in rows.values() for bar in bars), default=0)
    return draw_lanes(named, end, _axis_time, width, y)


def draw_trace(measured: Record) -> str:
    """Draws one step of all ranks, and the times of every step."""
    if not measured.picture:
        raise ReportError("expected a trace of steps, but it has none")
    number, ranks = measured.picture[0]["step"], counted(measured.world_size, "rank")
    title = f"step {number} of {ranks}; grey: kernels, blue: collectives, dashed: waiting"
    lanes = draw_step(measured, lambda bucket: "h0", 960, 28)
    times: Lines = defaultdict(list)
    for rank, step, time, stalled in measured.history:
        if rank < MOST_RANKS:
            times[f"rank {rank}"].append((step, time / 1e3))
            times[f"rank {rank}, stalled"].append((step, stalled / 1e3))
    top = 50 + 26 * lanes.count('class="lane"')
    chart = draw_chart("ms a step", times, (0, 0), "{:g}".format, top)
    height = top + max(CHART, 40 + 18 * len(times))
    return _picture_file(height, [_label(80, 16, "start", title), lanes, chart])


# ---- Pages ----------------------------------------------------------------------------

PAGE_STYLE = """
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--fg:#1c1d20;--dim:#6b6f76;--line:#e4e4e1}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:32px 20px 72px}
h1,td,summary span{overflow-wrap:anywhere;unicode-bidi:isolate}
h1{font-size:27px;line-height:1.25;margin:0}
h2{font-size:18px;margin:44px 0 4px}
p{margin:0 0 12px}
.dim,th,.tiles span{color:var(--dim)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:4px}
.tiles div,.card,details{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 18px}
.tiles b,.tiles span{display:block}
.tiles b{font-size:23px}
.card{overflow-x:auto;margin:8px 0}
.card svg{min-width:560px;display:block}
details{content-visibility:auto;contain-intrinsic-size:auto 46px;padding:0 18px}
summary{display:grid;grid-template-columns:minmax(70px,1fr) 190px 3fr 190px 62px;gap:18px;align-items:center;padding:10px 0;cursor:pointer}
summary b{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:7px}
.bar{height:14px}
.bar i{height:14px;display:block;border-radius:3px;min-width:2px}
.bar .pale{opacity:.3;margin-bottom:-14px}
.num{text-align:right;white-space:nowrap}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;font-size:13px}
th,td{padding:4px 18px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
.missed td:first-child{border-left:4px solid #d0682a;padding-left:6px}
@media(max-width:820px){summary{grid-template-columns:1fr 1fr}.bar{grid-column:1/-1}}
"""
DARK_ROOT = ":root{--bg:#141518;--card:#1c1e22;--fg:#e8e8e6;--dim:#9a9da5;--line:#2d3036}"


def _table(
    titles: str, rows: Sequence[Sequence[object]], style: str = "", most: int = MOST_ROWS
) -> str:
    """Returns a table of at most `most` rows, or nothing without rows; titles that begin with
    > are above numbers. `style` is that of rows whose last cell, which has no title, is true."""
    if not rows:
        return ""
    names = titles.split("|")
    kinds = [' class="num"' if name[0] == ">" else "" for name in names]
    heads = (f"<th{kind}>{name.lstrip('>')}</th>" for name, kind in zip(names, kinds))
    lines = [f"<tr>{''.join(heads)}</tr>"]
    for row in rows[:most]:
        cells = (f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds))
        mark = f' class="{style}"' if style and row[-1] else ""
        lines.append(f"<tr{mark}>{''.join(cells)}</tr>")
    return _card("<table>" + "\n".join(lines) + "</table>", len(rows) - most)


def _card(text: str, left_out: int = 0) -> str:
    more = f'<p class="dim">{left_out} more are in the report\'s JSON.</p>'
    return f'<div class="card">{text}</div>' + (more if left_out > 0 else "")


def _section(title: str, text: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    head = f'<section><h2>{title}</h2><p class="dim">{text}</p>'
    return f"{head}\n{body}</section>\n" if body else ""


def _collective_table(report: Record, items: list[Record]) -> str:
    measured = report.measured.collectives if report.measured else []
    times = {item.number: in_time(item.total_us) for item in measured}
    rows = [(i.number, i.what, i.overlap, times.get(i.number, "")) for i in items]
    return _table(">No.|Collective|Where the step waits|>Measured", rows)


def _bucket_details(report: Record, bucket: Record, style: str, most: int) -> str:
    sizes = bucket.gradient_bytes, bucket.wire_bytes
    bars = "".join(
        f'<i class="{style}{pale}" style="width:{100 * size / most:.1f}%"></i>'
        for size, pale in zip(sizes, (" pale", ""))
    )
    own = [r for r in report.remarks if r.bucket == bucket.name and r.kind == "missed"]
    facts = [
        ("hook", bucket.hook),
        ("hook from", bucket.hook_from),
        ("reduction", bucket.how),
        ("states", in_bytes(bucket.state_bytes)),
        *(("copied", remark.text) for remark in own),
    ]
    gradients = _gradient_rows(bucket)
    return (
        f"<details><summary><span>{escape(bucket.name)}</span>"
        f'<span><b class="{style}"></b>{escape(bucket.kind)}</span>'
        f'<span class="bar">{bars}</span>'
        f'<span class="num">{in_bytes(sizes[0])} → {in_bytes(sizes[1])}</span>'
        f'<span class="num">{ratio(*sizes) + " ×" if sizes[1] else "–"}</span></summary>'
        + _table("Bucket|" + escape(bucket.name), facts)
        + _table("Gradient|Shape|>Size|Source", gradients, most=len(gradients))
        + f"{_collective_table(report, bucket.collectives)}</details>"
    )


def _schedule(report: Record, style_of: Callable[[str], str]) -> Iterator[str]:
    for function in report.functions:
        size = function.operations
        items = [item for item in report.collectives if item.function == function.name]
        step = [Bar(0, size, "s", counted(size, "operation"))]
        flying: list[Bar] = []
        for item in items[:MOST_BARS] if size else []:
            is_flying = item.wait > item.start
            end = item.wait if is_flying else item.start + 1
            title = f"No. {item.number}, {item.name}: {item.what}; {item.overlap}"
            bar = Bar(item.start, end, style_of(item.bucket), title, item.name)
            (flying if is_flying else step).append(bar)
        lanes, left_out = pack(flying)
        if items and size:
            rows = [(function.name, step), *(("in flight", lane) for lane in lanes)]
            yield _card(draw_lanes(rows, size), left_out)


def _memory(report: Record, style_of: Callable[[str], str]) -> Iterator[str]:
    def bar(item: Record, name: str, style: str, where: str = "") -> Bar:
        title = f"{name}, {in_bytes(item.bytes)} at byte {item.offset}{where}"
        return Bar(item.offset, item.offset + item.bytes, style, title, name)

    largest = sorted(report.buffers, key=lambda buffer: -buffer.bytes)[:MOST_BARS]
    lanes, left_out = pack(
        [
            bar(b, b.bucket or b.type, style_of(b.bucket), f", in '{b.function}', {b.source}")
            for b in largest
        ]
    )
    if lanes and report.arena.bytes:
        rows = [("arena", lane) for lane in lanes]
        left_out += len(report.buffers) - len(largest)
        yield _card(draw_lanes(rows, report.arena.bytes, in_bytes), left_out)
    states = [bar(state, state.name, "n") for state in report.states]
    if states and report.state_arena.bytes:
        yield _card(draw_lanes([("states", states)], report.state_arena.bytes, in_bytes))
        table = [(s.name, s.dtype, s.placement, s.offset, in_bytes(s.bytes)) for s in report.states]
        yield _table("State|Type|Of|>At byte|>Size", table)


def _measured(measured: Record, style_of: Callable[[str], str]) -> Iterator[str]:
    yield from (f"<p>{escape(failure)}</p>" for failure in measured.failures)
    if measured.events_lost:
        yield f"<p>{counted(measured.events_lost, 'event')} lost</p>"
    yield _card(draw_step(measured, style_of))
    titles = {"steps": "Entry point", "collectives": "Collective"}
    for kind, parts in PARTS.items():
        rows = [
            (_measured_name(i), i.runs, *(in_time(i[f"{part}_us"]) for part in ("total", *parts)))
            for i in measured[kind]
        ]
        heads = [part.replace("exposed", "not hidden").capitalize() for part in parts]
        yield _table("|>".join([titles[kind], "Runs", "Time", *heads]), rows)


def _tiles(report: Record) -> str:
    sizes, others = (report.gradient_bytes, report.wire_bytes), len(report.others)
    arrays = sum(len(bucket.gradients) for bucket in report.buckets)
    flying = sum(item.wait > item.start for item in report.collectives)
    outside = f"without {counted(others, 'collective')} outside buckets"
    tiles = [
        ("Gradients", in_bytes(sizes[0]), f"{arrays} in {counted(len(report.buckets), 'bucket')}"),
        ("On the wire", in_bytes(sizes[1]), outside if others else "per rank and step"),
        ("Compression", f"{ratio(*sizes)} ×" if sizes[1] else "–", "gradients to wire"),
        ("Collectives", len(report.collectives), f"{flying} alongside computation"),
        ("States", in_bytes(total(report.states, "bytes")), "kept from step to step"),
        ("Arena", in_bytes(report.arena.bytes), "buffers of a step"),
    ]
    cells = (f"<div>{a}<b>{b}</b><span>{c}</span></div>" for a, b, c in tiles)
    return f'<div class="tiles">{"".join(cells)}</div>'


def page(report: Record) -> str:
    """Returns the page of a report. It has no script, and may load nothing."""
    kinds = list(dict.fromkeys(bucket.kind for bucket in report.buckets))
    styles = {b.name: f"h{kinds.index(b.kind) % 8}" for b in report.buckets}
    most = max([1, *(max(b.gradient_bytes, b.wire_bytes) for b in report.buckets)])
    remarks = [(r["pass"], r.text, r.source, r.kind == "missed") for r in report.remarks]
    remarks.sort(key=lambda row: not row[-1])
    copies = [(c.type, in_bytes(c.bytes), c.function, c.source) for c in report.copies]

    def style_of(bucket: str) -> str:
        return styles.get(bucket, "n")

    title = escape(f"Plan of {report.module}" if report.module else "Plan")
    dark = "@media(prefers-color-scheme:dark){" + DARK_ROOT + DARK_STYLE + "}"
    facts = [f"entry point {entry.name}" for entry in report.entries]
    facts += [f"@{name}: {words}" for name, words in report.groups.items()]
    facts += [f"arrays in memory of the {report.memory}", f"plan version {report.abi}"]
    sections = [
        _section(
            "Buckets",
            "In the order of the step. Open a bucket to see its gradients, its hook and its "
            "collectives. The pale bar is the size of the gradients, the full one the bytes on "
            "the wire. Sizes are in units of 1000 bytes.",
            [_bucket_details(report, b, style_of(b.name), most) for b in report.buckets]
            or [_card("The step reduces no gradient.")],
        ),
        _section(
            "Outside buckets",
            "Collectives of no bucket.",
            [_collective_table(report, report.others)],
        ),
        _section(
            "As compiled",
            "Operations from left to right, in the order of the program, and the collectives in "
            "flight alongside them. The step waits for a collective that is in the step itself. "
            "This is an order, not a time.",
            _schedule(report, style_of),
        ),
        _section(
            "As measured",
            "One step of median time, and medians over all steps of means over ranks. Waiting "
            "(dashed) is for other ranks; moving is the rest of a collective. What is not hidden "
            "is time in which the step itself stalled.",
            _measured(report.measured, style_of) if report.measured else [],
        ),
        _section(
            "Memory",
            "Buffers of the arena are adjacent, or overlap if they are never needed at the same "
            "time. States are kept from step to step.",
            _memory(report, style_of),
        ),
        _section(
            "Copies",
            "Copies of memory that are left in the step.",
            [_table("Type|>Size|Function|Source", copies)],
        ),
        _section(
            "Remarks",
            "What passes did and, marked, what they could not do.",
            [_table("Pass|Remark|Source", remarks, "missed")],
        ),
    ]
    return (
        '<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head>'
        '<meta charset="utf-8"/><meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\"/>"
        '<meta name="viewport" content="width=device-width"/>'
        f"<title>{title}</title><style>{PAGE_STYLE}{SVG_STYLE}{dark}</style></head>\n"
        f'<body><main><h1>{title}</h1><p class="dim">{escape(" · ".join(facts))}</p>\n'
        f"{_tiles(report)}\n{''.join(sections)}</main></body></html>\n"
    )


# ---- The command ----------------------------------------------------------------------


def _read_module(text: bytes) -> bytes:
    """Returns the report of a module with a plan, from ddphook-opt."""
    here = os.path.dirname(os.path.realpath(__file__))
    opt = shutil.which("ddphook-opt", path=here) or shutil.which("ddphook-opt")
    if not opt:
        raise ReportError("expected ddphook-opt, which reads modules, on the PATH")
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        flags = ["--allow-unregistered-dialect", "-o", os.devnull]
        command = [opt, *flags, f"--ddp-plan-report={report}"]
        done = subprocess.run(command, input=text, stderr=subprocess.PIPE, check=False)
        if done.returncode == 0:
            return report.read_bytes()
    message = done.stderr.decode(errors="replace").partition("error: ")[2].split("\n")[0]
    raise ReportError(f"expected a report, a plan, a trace or a module: {message}")


def _open(path: str, step: int | None = None) -> Record:
    """Reads a report, a plan, a module, a trace, or the result of a sweep. The result has
    `source`, and of `plan`, `times` and `sweep` what the file contains."""
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    if not data.lstrip().startswith(b"{"):
        data = _read_module(data)
    source = json.loads(data, object_hook=Record)
    if "traceEvents" in source:
        return Record(source=source, times=summarize(source, step))
    if "average_busbw_gbs" in source:
        return Record(source=source, sweep=source)
    if "ddphook_report" not in source:
        source = Record(plan=source, module="", functions=[], collectives=[], remarks=[])
    elif source.ddphook_report != REPORT_VERSION:
        version = source.ddphook_report
        raise ReportError(f"expected a report of version {REPORT_VERSION}, not {version}")
    plan = explain(source)
    return Record(source=source, plan=plan, times=plan.measured)


DAMAGED = (ValueError, TypeError, AttributeError, OverflowError, RecursionError, IndexError)


@contextlib.contextmanager
def _naming(path: str, verb: str = "read") -> Iterator[None]:
    """Names the file in errors about it."""
    try:
        yield
    except OSError as error:
        raise ReportError(f"cannot {verb} '{path}': {error.strerror}") from error
    except ReportError as error:
        raise ReportError(f"in '{path}': {error}") from error
    except KeyError as error:
        raise ReportError(f"in '{path}': expected {error}, which is missing") from error
    except DAMAGED as error:
        message = f"in '{path}': cannot read it, is it truncated? {error}"
        raise ReportError(message) from error


def _compare(before: Record, after: Record, tolerance: float) -> tuple[str, int]:
    """Returns the lines about two files, and the exit status."""
    marked: list[Marked] = []
    if "plan" in before and "plan" in after:
        marked += ((line, True) for line in compare_plans(before.plan, after.plan))
    if before.get("times") and after.get("times"):
        marked += compare_times(before.times, after.times, tolerance)
    return _join(line for line, _ in marked), int(any(differs for _, differs in marked))


def _show(found: Record, path: str) -> str:
    """Returns the contents of the file `path`, whose suffix is its form."""
    suffix = Path(path).suffix
    if suffix == ".svg" and "sweep" in found:
        return draw_sweep(found.sweep)
    if suffix == ".svg" and "traceEvents" in found.source:
        return draw_trace(found.times)
    if suffix == ".json" and "plan" in found:
        return json.dumps(found.source) + "\n"
    if suffix == ".html" and "plan" in found:
        return page(found.plan)
    if suffix in (".json", ".html", ".svg") or "sweep" in found:
        raise ReportError(f"'{path}' cannot show this kind of input")
    return _join(text(found.plan) if "plan" in found else _measured_lines(found.times))


def _join(lines: Iterable[str]) -> str:
    return "".join(printable(line) + "\n" for line in lines)


def _run(options: argparse.Namespace) -> int:
    if not options.tolerance >= 0:
        raise ReportError("expected a tolerance of at least 0 percent")
    if not 1 <= len(options.files) <= 2:
        raise ReportError(f"expected one file, or two, but got {len(options.files)}")
    found = []
    for path in options.files:
        with _naming(path):
            found.append(_open(path, options.step))
    if options.trace:
        with _naming(options.trace):
            trace = _open(options.trace, options.step)
            for one in found:
                check_trace(one.source, trace.source)
                times = Record({k: v for k, v in trace.times.items() if k != "history"})
                one["times"] = one.plan["measured"] = one.source["measured"] = times
    kinds = [{key for key in ("plan", "times") if one.get(key)} for one in found]
    if not set.intersection(*kinds) and len(found) == 2:
        raise ReportError("expected two plans or two traces, but got one of each")
    with _naming(options.files[-1]):
        if len(found) == 2:
            shown, status = _compare(found[0], found[1], options.tolerance)
        else:
            shown, status = _show(found[0], options.output), 0
    with _naming(options.output, "write"):
        data = shown.encode(errors="replace")
        if options.output == "-":
            sys.stdout.buffer.write(data)
        else:
            Path(options.output).write_bytes(data)
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 nothing differs, 1 something does, 2 an error."""
    parser = argparse.ArgumentParser("ddphook-report", add_help=False, allow_abbrev=False)
    parser.add_argument("files", nargs="*")
    parser.add_argument("-o", dest="output", default="-")
    parser.add_argument("--trace")
    parser.add_argument("--step", type=int)
    parser.add_argument("--tolerance", type=float, default=10)
    parser.add_argument("--help", action="help")
    parser.format_help = lambda: HELP  # type: ignore[method-assign]
    try:
        return _run(parser.parse_args(arguments))
    except ReportError as error:
        print(f"ddphook-report: error: {printable(str(error))}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
