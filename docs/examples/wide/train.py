#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the wide network on two ranks, once per hook, and draws loss and bytes.

Builds the programs of CMakeLists.txt with the ddphook in --build, prints a table
in Markdown, and writes a plot. Fails if ranks end with different parameters, or
if a hook's test accuracy is more than half a point below no compression's.

    $(tools/python-env.sh) docs/examples/wide/train.py --build=build --plot=wide.png
"""

import argparse
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "digits" / "digits.txt"
VARIANTS = {
    "allreduce": "no compression",
    "fp16": "fp16",
    "int8": "int8",
    "fp8": "fp8",
    "int4": "int4",
    "int4-forgetful": "int4, no error feedback",
    "per-tensor": "quantization_pertensor",
    "powersgd-rank4": "PowerSGD, rank 4",
    "powersgd-rank2": "PowerSGD, rank 2",
    "powersgd-rank1": "PowerSGD, rank 1",
}
RANKS = 2
LARGEST_LOSS = 0.5  # points of accuracy
EPOCH = 22  # steps
HANG_S = 600


def build(ddphook, folder):
    package = ddphook / "lib" / "cmake" / "DDPHook"
    for command in (
        ["cmake", "-S", HERE, "-B", folder, "-G", "Ninja", f"-DDDPHook_DIR={package}"],
        ["cmake", "--build", folder],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def train(program, log):
    """What rank 0 printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(RANKS):
        environment = {
            "PATH": os.environ["PATH"],
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        processes.append(
            subprocess.Popen(
                [program, DATA, f"--log={log}"],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
            )
        )
    try:
        output = [process.communicate(timeout=HANG_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    codes = [process.returncode for process in processes]
    if any(codes):
        sys.exit(f"error: {program.name}: exit statuses {codes}\n{output[0]}")
    return output[0]


def value(output, label):
    return float(re.search(rf"^{label}: ([0-9.]+)", output, re.M)[1])


def draw(logs, path):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for name, (losses, sent) in logs.items():
        steps = np.arange(1, len(losses) + 1)
        smooth = np.convolve(losses, np.full(EPOCH, 1 / EPOCH), mode="valid")
        left.plot(steps[EPOCH - 1 :], smooth, label=VARIANTS[name], linewidth=1.2)
        right.plot(steps, sent / 1e6, linewidth=1.2)
    left.set(
        yscale="log",
        xlabel="step",
        ylabel="loss of rank 0's images",
        title="Training loss, mean over 22 steps",
    )
    right.set(
        yscale="log",
        xlabel="step",
        ylabel="MB",
        title="Bytes on the wire so far, each rank",
    )
    left.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    # Nothing in the file that differs from run to run.
    figure.savefig(path, dpi=100, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--plot", type=pathlib.Path, default="wide.png")
    arguments = parser.parse_args()
    accuracies, logs = {}, {}
    print("| hook | test accuracy | loss | bytes a compressed step | bytes in all |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        build(arguments.build.resolve(), folder)
        for name in VARIANTS:
            log = folder / f"{name}.log"
            output = train(folder / f"wide-{name}", log)
            losses, sent = np.loadtxt(log, unpack=True)
            logs[name] = losses, sent
            accuracies[name] = value(output, "test accuracy")
            print(
                f"| {VARIANTS[name]} | {accuracies[name]:.2f} % "
                f"| {losses[-EPOCH:].mean():.4f} | {sent[-1] - sent[-2]:,.0f} "
                f"| {sent[-1] / 1e6:,.0f} MB |",
                flush=True,
            )
    draw(logs, arguments.plot)
    least = accuracies["allreduce"] - LARGEST_LOSS
    # Accuracies have two digits.
    bad = [name for name, got in accuracies.items() if got < least - 0.005]
    if bad:
        sys.exit(f"error: expected at least {least:.2f} % with {', '.join(bad)}")


if __name__ == "__main__":
    main()
