# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains with compiled steps, and prints their losses beside JAX's.

    train.py TRAINING NAME=STEP.so... [--plot=FILE.svg] [--title=TITLE]

TRAINING is the folder that export.py has filled; each STEP.so is its step, compiled
with some hook. ddphook-exec, which has to be in the PATH, runs two ranks for one step
at a time; parameters, what the optimizer keeps and the hook's states go from one step
to the next in files.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import shared  # noqa: E402

SHOWN = 7  # steps, or some more, in the table

def train(module, folder):
    """The loss of each step."""
    params = load_file(folder / "params.safetensors")
    ranks = len(list(folder.glob("batch.0.*.safetensors")))
    steps = len(list(folder.glob("batch.*.0.safetensors")))
    losses = []
    with tempfile.TemporaryDirectory() as scratch:
        files = pathlib.Path(scratch)
        for number in range(steps):
            for rank in range(ranks):
                batch = load_file(folder / f"batch.{number}.{rank}.safetensors")
                save_file(params | batch, files / f"in.{rank}.safetensors")
            command = [
                "ddphook-exec",
                module,
                "--entry=main",
                f"--ranks={ranks}",
                f"--inputs={files}/in.{{rank}}.safetensors",
                f"--outputs={files}/out.{{rank}}.safetensors",
                f"--state-out={files}/state.{number}.{{rank}}",
                "--quiet",
            ]
            if number > 0:
                command.append(f"--state-in=strict:{files}/state.{number - 1}.{{rank}}")
            subprocess.run(command, check=True)
            results = [
                load_file(files / f"out.{rank}.safetensors") for rank in range(ranks)
            ]
            for name, array in results[0].items():
                assert all(np.array_equal(array, other[name]) for other in results)
            # The last result is the loss.
            losses.append(results[0][f"result{len(params)}"])
            params = {f"arg{i}": results[0][f"result{i}"] for i in range(len(params))}
    return np.stack(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("training", type=pathlib.Path)
    parser.add_argument("modules", nargs="+", metavar="NAME=STEP.so")
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--title")
    arguments = parser.parse_args()
    jax = load_file(arguments.training / "jax.safetensors")["losses"]
    losses = {}
    for argument in arguments.modules:
        name, module = argument.split("=", 1)
        losses[name] = train(module, arguments.training)
    print("step       JAX" + "".join(f"{name:>12}" for name in losses))
    for number in [*range(0, len(jax) - 1, -(-len(jax) // SHOWN)), len(jax) - 1]:
        row = "".join(f"{values[number]:12.6f}" for values in losses.values())
        print(f"{number:4}{jax[number]:10.6f}{row}")
    for name, values in losses.items():
        print(f"{name}: at most {np.abs(values / jax - 1).max():.1e} of JAX's loss away")
    if arguments.plot:
        figure, [[axes]] = shared.make_figure(1, 1)
        curves = {"JAX, uncompressed": jax, **losses}
        shared.draw_losses(axes, curves, arguments.title)
        shared.save_figure(figure, arguments.plot)


if __name__ == "__main__":
    main()
