#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What encoded collectives lose of one average, and of the sum of many.

Averages arrays with ddphook-run on 2, 4 and 8 ranks of this machine, with each
hook of HOOKS: random ones, and gradients of the networks of the examples digits
and wide after some steps, each rank with images of its own. Prints three tables in
Markdown: the squared error of an average over the squared average; the same
of the sum of STEPS averages, with error feedback and without; and that of one
average and of the mean of STEPS averages of the same arrays, rounded
stochastically. Beside them stands what int8 would lose if each hop of a ring
encoded anew, by a model. Takes some minutes.

    $(tools/python-env.sh) docs/examples/numerics/encodings.py --bin=build/bin
"""

import argparse
import pathlib
import subprocess
import tempfile

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
IMAGES = HERE.parent / "digits" / "digits.txt"
BASE_17 = "0123456789abcdefg"
SIZE = 1 << 18
STEPS = 16
HOOKS = {
    "bf16": "hook=bf16",
    "per tensor": "hook=quantization_pertensor",
    "per channel": "hook=quantization_perchannel",
    "int8": "hook=int8",
    "fp8": "hook=fp8",
    "fp8, f8E5M2": "hook=fp8 format=f8E5M2",
    "int4": "hook=int4 error-feedback=false",
}
FEEDBACK = {
    "int8": "hook=int8 error-feedback=false",
    "int8, error feedback": "hook=int8 error-feedback=true",
    "int4": "hook=int4 error-feedback=false",
    "int4, error feedback": "hook=int4 error-feedback=true",
}

CHANCE = ("stochastic", f"mean of {STEPS}")
ROUNDED = {
    "int8": "hook=int8",
    "fp8": "hook=fp8",
    "int4": "hook=int4 error-feedback=false",
}


class Network:
    """Gradients of a network of rectifiers that learns to read digits."""

    def __init__(self, hidden, seed):
        lines = IMAGES.read_text(encoding="utf-8").splitlines()
        lines = [line for line in lines if line and line[0] != "#"]
        pixels = [[BASE_17.index(c) / 16 for c in line[:64]] for line in lines]
        self.images = np.array(pixels, np.float32)
        self.labels = np.array([int(line[-1]) for line in lines])
        self.rng = np.random.default_rng(seed)
        sizes = [64, *hidden, 10]
        self.weights = [
            (self.rng.standard_normal((n, m)) * np.sqrt(2 / n)).astype(np.float32)
            for n, m in zip(sizes, sizes[1:])
        ]
        self.has_learnt = False

    def _learn(self):
        for _ in range(100):
            for weight, gradient in zip(self.weights, self._gradients()):
                weight -= 0.05 * gradient
        self.has_learnt = True

    def _gradients(self):
        batch = self.rng.integers(len(self.images), size=32)
        values = [self.images[batch]]
        for weight in self.weights[:-1]:
            values.append(np.maximum(values[-1] @ weight, 0))
        logits = values[-1] @ self.weights[-1]
        slope = np.exp(logits - logits.max(axis=1, keepdims=True))
        slope /= slope.sum(axis=1, keepdims=True)
        slope[np.arange(32), self.labels[batch]] -= 1
        slope /= 32
        gradients = []
        for value, weight in zip(values[::-1], self.weights[::-1]):
            gradients.append(value.T @ slope)
            slope = (slope @ weight.T) * (value > 0)
        return gradients[::-1]

    def __call__(self):
        """One rank's gradients, as one array."""
        if not self.has_learnt:
            self._learn()
        parts = [gradient.reshape(-1) for gradient in self._gradients()]
        return np.concatenate(parts).astype(np.float32)


def make_data(seed):
    rng = np.random.default_rng(seed)
    layers = np.repeat(10.0 ** rng.uniform(-4, 0, 64), SIZE // 64)
    return {
        "gaussian": lambda: rng.standard_normal(SIZE, np.float32),
        "heavy tails (t, 3)": lambda: rng.standard_t(3, SIZE).astype(np.float32),
        "64 layers, 1e-4 to 1": lambda: (
            (rng.standard_normal(SIZE) * layers).astype(np.float32)
        ),
        "digits": Network([128, 64], seed),
        "wide": Network([1024, 1024], seed),
    }


def average(tool, directory, arrays, options):
    """Rank 0's average of each step; `arrays` by step and rank."""
    size, world = len(arrays[0][0]), len(arrays[0])
    module = directory / "step.mlir"
    module.write_text(
        "ddp.process_group @dp\n"
        f"func.func @step(%g: tensor<{size}xf32>) -> tensor<{size}xf32> {{\n"
        f"  %r = ddp.all_reduce mean %g on @dp : tensor<{size}xf32>\n"
        f"  return %r : tensor<{size}xf32>\n}}\n",
        encoding="utf-8",
    )
    inputs = str(directory / "in.{rank}.{step}.safetensors")
    outputs = str(directory / "out.{rank}.{step}.safetensors")
    for step, ranks in enumerate(arrays):
        for rank, array in enumerate(ranks):
            save_file({"arg0": array}, inputs.format(rank=rank, step=step))
    command = [tool, module, "--entry=step", f"--ranks={world}", "--quiet"]
    command += [f"--steps={len(arrays)}", f"--inputs={inputs}"]
    command += [f"--outputs={outputs}", f"--ddp-pipeline={options}"]
    subprocess.run(list(map(str, command)), check=True)
    files = (outputs.format(rank=0, step=step) for step in range(len(arrays)))
    return [load_file(file)["result0"] for file in files]


def encode(array):
    """What int8 in blocks of 256 makes of an array."""
    rows = np.pad(array, (0, -len(array) % 256)).reshape(-1, 256)
    scales = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    scales = scales.astype(ml_dtypes.bfloat16).astype(np.float32)
    codes = np.rint(np.divide(rows, scales, where=scales > 0, out=np.zeros_like(rows)))
    return (np.clip(codes, -127, 127) * scales).reshape(-1)[: len(array)]


def average_at_every_hop(arrays):
    """As a ring does that encodes each partial sum."""
    total = encode(arrays[0])
    for array in arrays[1:]:
        total = encode(total + array)
    return total / np.float32(len(arrays))


def exact(arrays):
    return np.mean([array.astype(np.float64) for array in arrays], axis=0)


def error(got, want):
    return f"{np.square(got - want).sum() / np.square(want).sum():.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/bin", help="where ddphook-run is")
    parser.add_argument("--worlds", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", nargs="+", help="some of the rows, by their names")
    args = parser.parse_args()
    tool = pathlib.Path(args.bin) / "ddphook-run"
    data = make_data(args.seed)
    data = {kind: data[kind] for kind in args.data or data}

    columns = [*HOOKS, "int8 at every hop"]
    print(f"seed {args.seed}\n\n| data | ranks | {' | '.join(columns)} |")
    print("|---|---|" + "---|" * len(columns))
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        for kind, make in data.items():
            for world in args.worlds:
                arrays = [make() for _ in range(world)]
                want = exact(arrays)
                row = [
                    error(average(tool, directory, [arrays], options)[0], want)
                    for options in HOOKS.values()
                ]
                row.append(error(average_at_every_hop(arrays), want))
                print(f"| {kind} | {world} | {' | '.join(row)} |", flush=True)
        print(f"\nThe sum of {STEPS} steps:\n\n| data | ranks | {' | '.join(FEEDBACK)} |")
        print("|---|---|" + "---|" * len(FEEDBACK))
        for kind, make in data.items():
            world = args.worlds[0]
            steps = [[make() for _ in range(world)] for _ in range(STEPS)]
            want = sum(map(exact, steps))
            row = []
            for options in FEEDBACK.values():
                got = average(tool, directory, steps, options)
                row.append(error(sum(map(np.float64, got)), want))
            print(f"| {kind} | {world} | {' | '.join(row)} |", flush=True)
        titles = [f"{name}, {what}" for name in ROUNDED for what in ("nearest", *CHANCE)]
        print(f"\nThe same {STEPS} times:\n\n| data | ranks | {' | '.join(titles)} |")
        print("|---|---|" + "---|" * len(titles))
        for kind, make in data.items():
            world = args.worlds[0]
            arrays = [make() for _ in range(world)]
            want, row = exact(arrays), []
            for options in ROUNDED.values():
                row.append(error(average(tool, directory, [arrays], options)[0], want))
                options += " rounding=stochastic"
                got = average(tool, directory, [arrays] * STEPS, options)
                row += [error(got[0], want), error(exact(got), want)]
            print(f"| {kind} | {world} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
