#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks over a slow network, ours and PyTorch's in turns.

Makes two network namespaces on this machine that are joined by a link of
1 Gbit/s, runs one rank in each, and measures how long 100 MiB of gradients
(model.py) take with every hook. Compiled steps make gradients and reduce them;
what making them costs is measured apart and taken off. Results are compared
first: bits for 16-bit and PyTorch's quantization hooks, the tolerance of
docs/parity.md for PowerSGD, the uncompressed averages for hooks that PyTorch lacks.
Prints a table, and JSON with --json=FILE. As root:

    $(tools/python-env.sh) docs/examples/network/network.py --build=build

With --local, and as anybody, there is no slow link: compiled steps reduce
through shared memory, PyTorch's hooks through the loopback interface.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import link
import model
import torch

HERE = pathlib.Path(__file__).resolve().parent
POWERSGD = "hook=powersgd start-powersgd-iter=2 matrix-approximation-rank="
CASES = {
    "none": "hook=allreduce",
    "fp16": "hook=fp16",
    "bf16": "hook=bf16",
    "powersgd-1": POWERSGD + "1",
    "powersgd-2": POWERSGD + "2",
    "powersgd-4": POWERSGD + "4",
    "quantization_pertensor": "hook=quantization_pertensor",
    "quantization_perchannel": "hook=quantization_perchannel",
    "int8": "hook=int8",
    "fp8": "hook=fp8",
    "int4": "hook=int4",
}
PORT = 29500
HANG_S = 900


def compile_steps(build, folder, more):
    sources = {
        "shared": (model.module_text(), CASES),
        # Groups of one rank: nothing travels.
        "alone": (model.module_text(" ranks [[0], [1]]"), {"local": CASES["none"]}),
    }
    for source, (text, cases) in sources.items():
        path = folder / f"{source}.mlir"
        path.write_text(text)
        for name, options in cases.items():
            subprocess.run(
                [
                    *(build / "bin" / "ddphook-cc", path, "--shared"),
                    *("-o", folder / f"{name}.so"),
                    f"--ddp-pipeline={options} bucket-cap-mb=25 "
                    f"{more if 'powersgd' in options else ''}",
                ],
                check=True,
            )


def run_ranks(network, arguments, folder):
    processes = []
    for rank in range(2):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": network.addresses[0],
            "MASTER_PORT": str(PORT),
            "PEER": network.addresses[1 - rank],
            "DDPHOOK_PORT": str(PORT),
            "DDPHOOK_RT": str(arguments.build / "lib" / "libddphook_rt.so"),
            "GLOO_SOCKET_IFNAME": network.interface,
            # Addresses without names are no news.
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        if arguments.local:
            environment["LOCAL_RANK"] = str(rank)
        else:
            # One machine each: no shared memory.
            environment["DDPHOOK_NODE"] = f"machine-{rank}"
            environment["DDPHOOK_TRANSPORT"] = "gloo"
        words = [sys.executable, HERE / "rank.py", rank, folder]
        words += [arguments.rounds, arguments.steps]
        processes.append(network.start(rank, words, env=environment))
    deadline = time.monotonic() + HANG_S
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            raise SystemExit("error: a rank failed")
        if time.monotonic() > deadline:
            raise SystemExit(f"error: no answer within {HANG_S} s")
        time.sleep(0.1)
    if any(process.returncode for process in processes):
        raise SystemExit("error: a rank failed")
    return [json.loads((folder / f"rank.{r}.json").read_text()) for r in range(2)]


def summarize(reports):
    """Per case, medians of steps; a step is over when its slower rank is."""

    def median(name, side):
        pairs = zip(*(report["cases"][name][side] for report in reports))
        return statistics.median(map(max, pairs))

    local = median("local", "ours")
    rows = {}
    for name in CASES:
        row = reports[0]["cases"][name]
        rows[name] = {
            "ours_s": median(name, "ours") - local,
            # None where PyTorch has no such hook.
            "pytorch_s": median(name, "pytorch") if row["pytorch"] else None,
            "wire_bytes": row["wire_bytes"],
            "difference": max(r["cases"][name]["difference"] for r in reports),
        }
    return {"gradients_s": local, "hooks": rows}


def print_table(summary):
    rows = summary["hooks"]
    none = rows["none"]
    print("| hook | bytes | ours | × none | PyTorch | × none | ours × PyTorch |")
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        ours, theirs = row["ours_s"], row["pytorch_s"]
        beside = "| | | |"
        if theirs:
            beside = (
                f"| {1e3 * theirs:.1f} ms | {none['pytorch_s'] / theirs:.1f} "
                f"| {theirs / ours:.2f} |"
            )
        print(
            f"| {name} | {row['wire_bytes']:,} "
            f"| {1e3 * ours:.1f} ms | {none['ours_s'] / ours:.1f} {beside}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--rate", default="1gbit", help="of the link, for tc")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="per round and hook; five times as many of short ones")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run ranks before other programs of this machine (SCHED_RR)",
    )
    parser.add_argument(
        "--local",
        action="store_true",
        help="two ranks of one machine, without namespaces and slow link",
    )
    parser.add_argument(
        "--options",
        default="",
        help="more options of ddp-pipeline, for PowerSGD (group-mb=0, say)",
    )
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    if os.geteuid() != 0 and not arguments.local:
        parser.error("network namespaces need root")
    for program in () if arguments.local else ("ip", "tc"):
        if not shutil.which(program):
            parser.error(f"expected the program {program} (package iproute2)")
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        compile_steps(arguments.build, folder, arguments.options)
        with link.Loopback() if arguments.local else link.Link(
            arguments.rate
        ) as network:
            reports = run_ranks(network, arguments, folder)
    summary = {
        "date": datetime.date.today().isoformat(),
        "rate": "local" if arguments.local else arguments.rate,
        "options": arguments.options,
        "link_bits_per_s": reports[1]["link_bits_per_s"],
        "load_before": load,
        "realtime": arguments.realtime,
        "processors": os.cpu_count(),
        "torch": torch.__version__,
        "rounds": arguments.rounds,
        "steps": arguments.steps,
        **summarize(reports),
    }
    print_table(summary)
    print(
        f"\nlink: {summary['link_bits_per_s'] / 1e6:.0f} Mbit/s; making the "
        f"gradients: {1e3 * summary['gradients_s']:.1f} ms; load before: {load:.1f}"
    )
    if arguments.json:
        reported = {**summary, "ranks": reports}
        arguments.json.write_text(json.dumps(reported, indent=2) + "\n")


if __name__ == "__main__":
    main()
