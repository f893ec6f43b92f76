#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes docs/benchmarks.md from recorded runs, and compares two builds.

    benchmarks.py docs/benchmarks.json >docs/benchmarks.md
    benchmarks.py --record=RESULT.json --machine=NAME [--conditions=TEXT] docs/benchmarks.json
    benchmarks.py --turns=5 OLD/ddphook-bench NEW/ddphook-bench join steps save

The second line adds a result of ddphook-bench to the runs, in place of earlier ones of its
machine and command. The third runs both programs by turns, and prints the medians of what both
measure: first, second, and their ratio. For an old runtime, build today's tools/ddphook-bench in
the old tree.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

INTRODUCTION = """\
<!-- Written by tools/benchmarks.py from benchmarks.json; do not edit. -->

# Benchmarks

No GPU is among these machines, and all networks are simulated on one machine.
[benchmarking.md](benchmarking.md) measures your own.

- Times are medians, with data in no cache unless the table says *warm*.

- Numbers in parentheses say how many times as fast this is as a baseline that was measured
  alternately in the same run. Gloo is its algorithm over ddphook's connections, the copy the fastest
  one of the same bytes.

- *Load* is the machine's load average, most of it from other work. Compare ratios: both sides ran
  under the same load."""


def several(value, form):
    values = value if isinstance(value, list) else [value]
    return ", ".join(form(each) for each in values)


def rounded(value):
    return str(round(value, 2))


def milliseconds(value):
    if value >= 1000:
        return f"{value / 1000:.4g} s"
    return f"{value:.4g} ms" if value >= 0.1 else f"{1000 * value:.4g} µs"


def results_of(run):
    """Yields the results; those of ddphook-bench are in sections."""
    yield from run.get("results", [])
    for section in run.get("sections", []):
        for result in section["results"]:
            title = section["title"].partition(";")[0]
            yield {**result, "name": f"{title}: {result['name'].strip()}"}


def cell(result):
    parts = []
    if "median_ms" in result:
        parts.append(several(result["median_ms"], milliseconds))
    if "of_best_copy" in result:
        parts.append(several(result["of_best_copy"], "{:.2f}".format) + " of the copy")
    if fast := result.get("times_as_fast_as"):
        ratios = [f"{name} {several(value, rounded)}" for name, value in fast.items()]
        parts.append(f"({', '.join(ratios)})")
    return " ".join(parts)


def table(runs):
    """Yields the lines of a table of all results, without empty columns."""
    rows = {}
    for number, run in enumerate(runs, 1):
        for result in results_of(run):
            cells = rows.setdefault((number, result["name"]), ["", "", ""])
            cells[result.get("caches") == "warm"] = cell(result)
            cells[2] = result.get("note", cells[2])
    titles = ["time", "warm caches", "notes"]
    kept = [column for column in range(3) if any(cells[column] for cells in rows.values())]
    yield f"\n| run | measured | {' | '.join(titles[column] for column in kept)} |"
    yield f"|{'---|' * (2 + len(kept))}"
    for (number, name), cells in rows.items():
        yield f"| {number} | {name} | {' | '.join(cells[column] for column in kept)} |"


def page(recorded):
    yield INTRODUCTION
    for machine, description in recorded["machines"].items():
        runs = [run for run in recorded["runs"] if run["machine"] == machine]
        yield f"\n## {machine}\n\nA {description}.\n"
        yield "| run | of | command | date, commit | conditions |\n|---|---|---|---|---|"
        for number, run in enumerate(runs, 1):
            cells = [str(number), run["title"], f"`{run['command']}`"]
            cells += [f"{run['date']}, {run['commit']}", run["conditions"]]
            yield f"| {' | '.join(cells)} |"
        yield from table(runs)


def record(recorded, result, options):
    commit = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], text=True)
    if options.machine not in recorded["machines"]:
        sys.exit(f"error: expected one of {', '.join(recorded['machines'])}: describe it first")
    run = {"machine": options.machine, "title": "ddphook-bench"}
    run |= {"command": result["command"], "date": result["date"], "commit": commit.strip()}
    given = [f"PyTorch {result['torch']}"] if "torch" in result else []
    given += [f"load {result['load']:.1f}", *filter(None, [options.conditions])]
    run |= {"conditions": "; ".join(given), "sections": result["sections"]}
    same = ("machine", "command")
    kept = [old for old in recorded["runs"] if any(old[key] != run[key] for key in same)]
    recorded["runs"] = [*kept, run]


def take_turns(count, programs, words):
    medians = [{}, {}]
    for turn in range(2 * count):
        # Each of the two begins every other turn.
        side = (turn + turn // 2) % 2
        with tempfile.NamedTemporaryFile() as file:
            command = [programs[side], *words, "--rounds=1", f"--json={file.name}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for result in results_of(json.load(open(file.name))):
                key = f"{result['name']} {result.get('caches', '')}"
                medians[side].setdefault(key, []).append(result["median_ms"])
    for key in (both := [key for key in medians[0] if key in medians[1]]):
        old, new = (statistics.median(side[key]) for side in medians)
        print(f"{key:72} {milliseconds(old):>9} {milliseconds(new):>9} {new / old:6.3f}")
    return None if both else sys.exit("error: the programs measure nothing in common")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="+", metavar="FILE | OLD NEW SUBCOMMAND")
    parser.add_argument("--turns", type=int)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--machine")
    parser.add_argument("--conditions")
    options, more = parser.parse_known_args()
    if options.turns:
        return take_turns(options.turns, options.words[:2], [*options.words[2:], *more])
    path = pathlib.Path(options.words[0])
    recorded = json.loads(path.read_text())
    if not options.record:
        return print("\n".join(page(recorded)))
    record(recorded, json.loads(options.record.read_text()), options)
    path.write_text(json.dumps(recorded, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
