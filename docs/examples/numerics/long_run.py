#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How large PowerSGD's error becomes over a long run, by its numerics.

Compiles step.mlir with each of OPTIONS, runs it on ranks of this machine with
random gradients, the same for all of them, and reads the states it leaves.
Prints a Markdown table; takes seconds.

    $(tools/python-env.sh) docs/examples/numerics/long_run.py --bin=build/bin
"""

import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
from safetensors import safe_open

HERE = pathlib.Path(__file__).resolve().parent
MATRIX = 64 * 48  # elements in front of the vector
HOOK = "hook=powersgd start-powersgd-iter=2 matrix-approximation-rank=4"
OPTIONS = {
    "eager": "",
    "`local-error-feedback`": "local-error-feedback=true",
    "`wrapper=fp16`": "wrapper=fp16",
    "`wrapper=fp16 numerics=improved fp32-error=false`": (
        "wrapper=fp16 numerics=improved fp32-error=false"
    ),
    "`wrapper=fp16 fp32-error`": "wrapper=fp16 fp32-error=true",
    "`wrapper=fp16 numerics=improved`": "wrapper=fp16 numerics=improved",
    "`wrapper=bf16`": "wrapper=bf16",
    "`wrapper=bf16 numerics=improved fp32-error=false`": (
        "wrapper=bf16 numerics=improved fp32-error=false"
    ),
    "`wrapper=bf16 fp32-error`": "wrapper=bf16 fp32-error=true",
    "`wrapper=bf16 numerics=improved`": "wrapper=bf16 numerics=improved",
}


def read_state(path, name):
    """A state as float64; numpy has no bfloat16, so PyTorch reads it."""
    with safe_open(path, "pt") as file:
        return file.get_tensor(name).double().numpy().reshape(-1)


def run(tool, directory, options, ranks, steps, seed):
    """The errors by rank, and what neither result nor error has any more."""
    states = str(pathlib.Path(directory) / "state.{rank}.safetensors")
    command = [tool, HERE / "step.mlir", "--entry=step", f"--ranks={ranks}"]
    command += [f"--steps={steps}", f"--inputs=random:{seed}"]
    command += [f"--ddp-pipeline={HOOK} {options}", f"--state-out={states}"]
    subprocess.run(list(map(str, command)), check=True)
    paths = [states.format(rank=rank) for rank in range(ranks)]
    errors = np.array([read_state(path, "b0.error") for path in paths])
    return errors, read_state(paths[0], "lost") - errors.mean(axis=0)


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/bin", help="where ddphook-run is")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 500, 2000])
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tool = pathlib.Path(args.bin) / "ddphook-run"

    steps = ", ".join(map(str, args.steps))
    print(f"{args.ranks} ranks, seed {args.seed}, {HOOK}, after {steps} steps\n")
    print("| numerics | error, matrix | error, vector | mean error | lost |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for name, options in OPTIONS.items():
            columns = [[], [], [], []]
            for steps in args.steps:
                errors, lost = run(
                    tool, directory, options, args.ranks, steps, args.seed
                )
                columns[0].append(f"{rms(errors[:, :MATRIX]):.1f}")
                columns[1].append(f"{rms(errors[:, MATRIX:]):.1f}")
                columns[2].append(f"{rms(errors.mean(axis=0)):.1f}")
                columns[3].append(f"{rms(lost):.1e}")
            print(f"| {name} | {' | '.join(map(', '.join, columns))} |", flush=True)


if __name__ == "__main__":
    main()
