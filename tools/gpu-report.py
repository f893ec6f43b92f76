# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes report.txt and report.json from the files of gpu-test.sh in a directory, at
any time while it runs.

usage: gpu-report.py DIRECTORY OUT
       gpu-report.py --tests <JSON    the tests that ctest --show-only=json-v1 lists,
                                      one per line: name, program, arguments
"""

import datetime
import json
import os
import pathlib
import re
import sys
import time
import xml.etree.ElementTree as xml

LEFT_OUT = "left out"
# The result of the step that is running when the report is written.
CUT_OFF = "cut off"
# Steps whose logs are tables.
FIGURES = {
    "sweep": "All-reduces of two ranks, on one GPU if there is one alone",
    "bench": "Benchmarks, with their baselines",
}
# The results of steps that did not fail.
GOOD = ("pass", LEFT_OUT)


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def write(path, text):
    """Writes a file atomically: the report must survive whatever ends the run."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.rename(path)


def list_tests(source):
    for test in json.load(source)["tests"]:
        if "command" in test:
            program, *arguments = test["command"]
            name = pathlib.Path(program).name
            print(test["name"], name, " ".join(arguments), sep="\t")


def counts_of(results):
    """Counts results; those that are neither passed nor skipped have failed."""
    passed = sum(result.lower() == "passed" for result in results)
    skipped = sum(result.lower().startswith("skipped") for result in results)
    failed = len(results) - passed - skipped
    return {"passed": passed, "failed": failed, "skipped": skipped} if results else None


def count_pytest(path, log):
    """Counts from pytest's file, or from its log if pytest was killed before writing it."""
    try:
        suites = list(xml.parse(path).getroot().iter("testsuite"))
    except (OSError, xml.ParseError):
        results = r"(?:^| )(PASSED|FAILED|ERROR|SKIPPED)(?: |$)"
        return counts_of(re.findall(results, log, re.M))
    names = ("tests", "failures", "errors", "skipped")
    totals = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in names}
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    return {"passed": passed, "failed": failed, "skipped": totals["skipped"]}


def describe(name, logs):
    """Returns the counts in a step's log, in addition to its exit status."""
    text = read(logs / f"{name}.log")
    if name in ("parity", "torch", "two-ranks"):
        return count_pytest(logs / f"{name}.xml", text)
    # The log of each_test in gpu-test.sh may be truncated.
    return counts_of(re.findall(r"^TEST \S+: (.*)", text, re.M))


def figures_of(text):
    """Returns the benchmark's results so far."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def steps_of(work):
    rows = [line.split("\t") for line in read(work / "steps.tsv").splitlines()]
    running = read(work / "running").split()
    if len(running) == 2:
        seconds = max(0, round(time.time() - int(running[1])))
        rows.append([running[0], CUT_OFF, -1, seconds])
    return [
        {
            "name": name,
            "result": result,
            "status": int(status),
            "seconds": int(seconds),
            "counts": describe(name, work / "logs"),
        }
        for name, result, status, seconds in rows
    ]


def main(work, out):
    work, out = pathlib.Path(work), pathlib.Path(out)
    logs = work / "logs"
    steps = steps_of(work)
    report = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "minutes"),
        "versions": read(logs / "versions.log").splitlines(),
        "passed": bool(steps) and all(s["result"] in GOOD for s in steps),
        "steps": steps,
        "deviations": re.findall(r"^PowerSGD, .*", read(logs / "parity.log"), re.MULTILINE),
        "bench": figures_of(read(logs / "bench.json")),
    }
    write(out / "report.json", json.dumps(report, indent=2) + "\n")

    lines = [f"ddphook on a GPU, {report['date']}", "", *report["versions"], ""]
    lines.append(f"{'step':<14}{'result':<10}{'seconds':>8}   tests")
    for step in steps:
        counts = step["counts"]
        tests = ", ".join(f"{n} {what}" for what, n in counts.items()) if counts else ""
        lines.append(f"{step['name']:<14}{step['result']:<10}{step['seconds']:>8}   {tests}")
    lines += ["", "all passed" if report["passed"] else "NOT all passed"]
    for step in steps:
        if step["result"] == LEFT_OUT:
            tail = read(logs / f"{step['name']}.log").strip().splitlines()[-5:]
            lines += [f"{step['name']}: {line}" for line in tail]
    if report["deviations"]:
        lines += ["", *report["deviations"]]
    for name, title in FIGURES.items():
        if figures := read(logs / f"{name}.log").rstrip():
            lines += ["", f"{title}:", "", figures]
    for step in steps:
        if step["result"] not in GOOD:
            tail = read(logs / f"{step['name']}.log").splitlines()[-40:]
            lines += ["", f"-- {step['name']}: {step['result']} --", *tail]
    write(out / "report.txt", "\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--tests"]:
        list_tests(sys.stdin)
    else:
        main(*sys.argv[1:])
