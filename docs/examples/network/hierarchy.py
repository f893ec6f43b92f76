#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hierarchical groups on a slow network: two machines of two ranks.

Makes two network namespaces on this machine that are joined by a link of
1 Gbit/s, and runs two ranks in each, which share memory as ranks of one machine do.
The step of model.py, 100 MiB of gradients, is compiled with every hook over a flat
group and over a hierarchical one (docs/hierarchy.md), and both run in turns. As root:

    $(tools/python-env.sh) docs/examples/network/hierarchy.py --build=build

Prints, per hook, the time of a step without making its gradients, what one machine
sends to the other, and how far averages are from the uncompressed ones; JSON with
--json=FILE.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "why"))

import job
import link
import model
import numpy as np

POWERSGD = "hook=powersgd start-powersgd-iter=2 matrix-approximation-rank="
HOOKS = {
    "none": "hook=allreduce",
    "fp16": "hook=fp16",
    "bf16": "hook=bf16",
    "int8": "hook=int8",
    "fp8": "hook=fp8",
    "powersgd-1": POWERSGD + "1",
    "powersgd-4": POWERSGD + "4",
}
TOPOLOGIES = ("flat", "hierarchical")
LOCAL = "local"
MACHINES, RANKS = 2, 2


def name_of(hook, topology):
    return f"{hook}.{topology}"


def compile_steps(arguments, folder):
    alone = [[rank] for rank in range(MACHINES * RANKS)]
    jobs = {LOCAL: (model.module_text(f" ranks {alone}"), HOOKS["none"])}
    for hook in arguments.hooks:
        for topology in TOPOLOGIES:
            options = f"{HOOKS[hook]} topology={topology}"
            jobs[name_of(hook, topology)] = (model.module_text(), options)
    for name, (text, options) in jobs.items():
        source = folder / f"{name}.mlir"
        source.write_text(text)
        words = [arguments.build / "bin" / "ddphook-cc", source, "--shared"]
        words += ["-o", folder / f"{name}.so"]
        words += [f"--ddp-pipeline={options} bucket-cap-mb=25"]
        subprocess.run(words, check=True)


def sent_bytes():
    """What this machine has sent over the link so far."""
    statistics_of = pathlib.Path("/sys/class/net", link.Link.interface, "statistics")
    return int((statistics_of / "tx_bytes").read_text())


def run_rank(arguments):
    from c_runtime import Runtime
    from compiled import Compiled

    rank = arguments.rank
    runtime = Runtime()
    values = model.make_inputs(rank)
    names = [LOCAL, *(name_of(h, t) for h in arguments.hooks for t in TOPOLOGIES)]
    steps = {n: Compiled(runtime, arguments.folder / f"{n}.so", values) for n in names}
    report = {name: {"seconds": [], "sent": []} for name in names}
    exact = None
    for name, step in steps.items():
        # Vanilla steps, and the first compressed one.
        for _ in range(3):
            step.step()
        averages = np.concatenate([a.reshape(-1) for a in step.results.values()])
        if name == name_of("none", "flat"):
            exact = averages
        if exact is not None:
            lost = np.linalg.norm(averages - exact) / np.linalg.norm(exact)
            report[name]["error"] = float(lost)
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            runtime.barrier()
            before, begin = sent_bytes(), time.perf_counter()
            step.step()
            report[name]["seconds"].append(time.perf_counter() - begin)
            runtime.barrier()
            report[name]["sent"].append(sent_bytes() - before)
    job.write_report(arguments.folder, rank, report)
    runtime.barrier()


def summarize(arguments):
    """Medians; a step is over when its slowest rank is."""
    reports = job.read_reports(arguments.folder, MACHINES * RANKS)

    def seconds(name):
        steps = zip(*(report[name]["seconds"] for report in reports))
        return statistics.median(map(max, steps))

    local = seconds(LOCAL)
    rows = {}
    for hook in arguments.hooks:
        for topology in TOPOLOGIES:
            name = name_of(hook, topology)
            first = reports[0][name]
            rows[name] = {
                "seconds": seconds(name) - local,
                "sent_bytes": statistics.median(first["sent"]),
                "error": first.get("error"),
            }
    return {"gradients_s": local, "steps": rows}


def print_table(arguments, summary):
    print("| hook | flat | sent | hierarchical | sent | time | bytes | error |")
    print("|---|---|---|---|---|---|---|---|")
    for hook in arguments.hooks:
        flat, other = (summary["steps"][name_of(hook, t)] for t in TOPOLOGIES)
        cells = [hook]
        for row in (flat, other):
            cells += [f"{1e3 * row['seconds']:.1f} ms", f"{row['sent_bytes'] / 1e6:.1f} MB"]
        cells.append(f"{flat['seconds'] / other['seconds']:.2f}x")
        cells.append(f"{other['sent_bytes'] / flat['sent_bytes']:.2f}")
        if other["error"] is not None:
            cells.append(f"{flat['error']:.1e}, {other['error']:.1e}")
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--rate", default="1gbit", help="of the link, for tc")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--hooks", default=",".join(HOOKS))
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run ranks before other programs of this machine (SCHED_RR)",
    )
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.hooks = arguments.hooks.split(",")
    for hook in arguments.hooks:
        if hook not in HOOKS:
            parser.error(f"expected hooks of {', '.join(HOOKS)}, but got {hook}")
    if arguments.rank is not None:
        run_rank(arguments)
        return
    if os.geteuid() != 0:
        parser.error("network namespaces need root")
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    load = os.getloadavg()[0]
    arguments.build = arguments.build.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        arguments.folder = pathlib.Path(scratch)
        compile_steps(arguments, arguments.folder)
        with link.Link(arguments.rate) as network:
            words = [HERE / "hierarchy.py", f"--folder={arguments.folder}"]
            words += [f"--rounds={arguments.rounds}"]
            words += [f"--hooks={','.join(arguments.hooks)}"]
            machines = [rank // RANKS for rank in range(MACHINES * RANKS)]
            job.run_ranks(network, arguments.build, machines, words)
        summary = {"load_before": load, **summarize(arguments)}
    print_table(arguments, summary)
    if arguments.json:
        arguments.json.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
