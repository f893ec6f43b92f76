# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains natively with an exported step, and prints its losses beside PyTorch's.

    native.py conv STEPS DIRECTORY --bin=BUILD/bin

`ddphook-cc` compiles the step once with each hook, and `ddphook-exec` runs it, two
ranks a step. What a step returns is what the next one gets: parameters and buffers
come first in its arguments and in its results.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

import eager
import tasks
from safetensors.torch import load_file, save_file

RANKS = 2
LAST = 5  # steps, of which the table shows the mean loss
OPTIONS = {
    "allreduce": "hook=allreduce",
    "fp16": "hook=fp16",
    "powersgd": "hook=powersgd matrix-approximation-rank="
    f"{eager.POWERSGD['matrix_approximation_rank']} start-powersgd-iter="
    f"{eager.POWERSGD['start_powerSGD_iter']}",
}


def compile_step(binaries, directory, hook):
    """A shared object for ddphook-exec."""
    module = directory / f"{hook}.so"
    command = [binaries / "ddphook-cc", directory / "step.mlir", "-o", module]
    command += ["--shared", f"--ddp-pipeline={OPTIONS[hook]}"]
    command += ["--preprocessing-pass-pipeline=builtin.module(ddp-import-fx)"]
    subprocess.run(command, check=True)
    return module


def run_step(binaries, directory, module, is_first):
    """One step on both ranks, with the hook's states of the step before."""
    states = f"{directory}/states.{{rank}}"
    command = [binaries / "ddphook-exec", module, "--entry=step", f"--ranks={RANKS}"]
    command += [f"--inputs={directory}/in.{{rank}}", f"--outputs={directory}/out.{{rank}}"]
    command += [f"--state-out={states}", "--quiet"]
    if not is_first:
        command.append(f"--state-in=strict:{states}")
    subprocess.run(command, check=True)
    return [load_file(directory / f"out.{rank}") for rank in range(RANKS)]


def train(task, binaries, directory, hook, steps):
    """The mean loss of each step."""
    module = compile_step(binaries, directory, hook)
    begin = load_file(directory / "begin.safetensors")
    kept = [begin] * RANKS
    losses = []
    for step in range(steps):
        for rank, tensors in enumerate(kept):
            data = task.batch(eager.generator_of(rank, step))
            numbered = {f"arg{len(begin) + i}": v.clone() for i, v in enumerate(data)}
            save_file({**tensors, **numbered}, directory / f"in.{rank}")
        results = run_step(binaries, directory, module, step == 0)
        losses.append(results[0][f"result{len(begin)}"].item())
        kept = [
            {f"arg{i}": result[f"result{i}"] for i in range(len(begin))}
            for result in results
        ]
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=tasks.TASKS)
    parser.add_argument("steps", type=int)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    theirs = json.loads((arguments.directory / "eager.json").read_text())
    task = tasks.TASKS[arguments.task]()
    ours = {}
    for hook in eager.HOOKS:
        losses = train(
            task, arguments.bin, arguments.directory, hook, arguments.steps
        )
        ours[hook] = losses
        difference = max(abs(a - b) for a, b in zip(losses, theirs[hook]))
        print(
            f"| {arguments.task} | {hook} | {losses[0]:.4f} | "
            f"{statistics.mean(theirs[hook][-LAST:]):.4f} | "
            f"{statistics.mean(losses[-LAST:]):.4f} | {difference:.1e} |",
            flush=True,
        )
    (arguments.directory / "native.json").write_text(json.dumps(ours))


if __name__ == "__main__":
    main()
