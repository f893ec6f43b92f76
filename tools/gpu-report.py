# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes report.txt and report.json from what gpu-test.sh left in a directory.

usage: gpu-report.py DIRECTORY
"""

import datetime
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

LEFT_OUT = "left out"
# Of steps that did not fail.
GOOD = ("pass", LEFT_OUT)


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def count_ctest(text):
    """Passed, failed and skipped tests of ctest."""
    done = re.search(r"(\d+)% tests passed, (\d+) tests failed out of (\d+)", text)
    if not done:
        return None
    skipped = len(re.findall(r"\*\*\*Skipped", text))
    failed, total = int(done[2]), int(done[3])
    return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}


def count_pytest(path):
    if not path.exists():
        return None
    suites = xml.parse(path).getroot().iter("testsuite")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in suites:
        for name in totals:
            totals[name] += int(suite.get(name, 0))
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    return {"passed": passed, "failed": failed, "skipped": totals["skipped"]}


def count_sanitizer(text):
    programs = re.findall(r"ERROR SUMMARY: (\d+) error", text)
    programs += re.findall(r"RACECHECK SUMMARY: (\d+) hazard", text)
    if not programs:
        return None
    failed = sum(1 for count in programs if int(count) > 0)
    return {"passed": len(programs) - failed, "failed": failed, "skipped": 0}


def describe(name, logs):
    """What a step's log says beside its exit status."""
    text = read(logs / f"{name}.log")
    if name in ("gpu-tests", "host-tests"):
        return count_ctest(text)
    if name in ("parity", "torch"):
        return count_pytest(logs / f"{name}.xml")
    if name.endswith("check"):
        return count_sanitizer(text)
    return None


def main(directory):
    directory = pathlib.Path(directory)
    logs = directory / "logs"
    steps = []
    for line in read(directory / "steps.tsv").splitlines():
        name, result, status, seconds = line.split("\t")
        step = {"name": name, "result": result, "status": int(status)}
        step["seconds"] = int(seconds)
        step["counts"] = describe(name, logs)
        steps.append(step)
    figures = read(logs / "bench.json")
    report = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "minutes"),
        "versions": read(logs / "versions.log").splitlines(),
        "passed": bool(steps) and all(s["result"] in GOOD for s in steps),
        "steps": steps,
        "deviations": re.findall(
            r"^PowerSGD, .*", read(logs / "parity.log"), re.MULTILINE
        ),
        "bench": json.loads(figures) if figures else None,
    }
    (directory / "report.json").write_text(json.dumps(report, indent=2) + "\n")

    lines = [f"ddphook on a GPU, {report['date']}", "", *report["versions"], ""]
    lines.append(f"{'step':<14}{'result':<10}{'seconds':>8}   tests")
    for step in steps:
        counts = step["counts"]
        tests = ", ".join(f"{n} {what}" for what, n in counts.items()) if counts else ""
        lines.append(
            f"{step['name']:<14}{step['result']:<10}{step['seconds']:>8}   {tests}"
        )
    lines += ["", "all passed" if report["passed"] else "NOT all passed"]
    for step in steps:
        if step["result"] == LEFT_OUT:
            lines.append(read(logs / f"{step['name']}.log").strip())
    if report["deviations"]:
        lines += ["", *report["deviations"]]
    bench = read(logs / "bench.log").rstrip()
    if bench:
        lines += ["", "Benchmarks, with their baselines:", "", bench]
    for step in steps:
        if step["result"] not in GOOD:
            tail = read(logs / f"{step['name']}.log").splitlines()[-40:]
            lines += ["", f"-- {step['name']}: {step['result']} --", *tail]
    text = "\n".join(lines) + "\n"
    (directory / "report.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1])
