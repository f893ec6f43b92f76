# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hand-written step of docs/examples/digits against PyTorch's autograd.

Runs @step and @predict with ddphook-run and computes the same in float64 with
torch.nn.functional: gradients, averaged over the ranks, momentum, update, loss.
How hooks round is none of this file's business (test/parity).

Environment: DDPHOOK_RUN names the tool (default: build/bin/ddphook-run of this
checkout), DDPHOOK_TEST_SEED the seed of all random inputs.
"""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = ROOT / "docs" / "examples" / "digits" / "step.mlir"
TOOL = os.environ.get("DDPHOOK_RUN", ROOT / "build" / "bin" / "ddphook-run")
SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20261"))
HANG_S = 120

BATCH, TEST_SIZE, MOMENTUM = 32, 359, 0.9
SHAPES = [(64, 128), (128,), (128, 64), (64,), (64, 10), (10,)]


def run(folder, entry, inputs, *flags):
    """inputs[rank][step] is a list of arrays; so is what comes back."""
    for rank, steps in enumerate(inputs):
        for step, arrays in enumerate(steps):
            save_file(
                {f"arg{i}": array for i, array in enumerate(arrays)},
                folder / f"in.{rank}.{step}.safetensors",
            )
    command = [
        TOOL,
        STEP,
        f"--entry={entry}",
        f"--ranks={len(inputs)}",
        f"--steps={len(inputs[0])}",
        f"--inputs={folder}/in.{{rank}}.{{step}}.safetensors",
        f"--outputs={folder}/out.{{rank}}.{{step}}.safetensors",
        *flags,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    outputs = []
    for rank in range(len(inputs)):
        outputs.append([])
        for step in range(len(inputs[0])):
            named = load_file(folder / f"out.{rank}.{step}.safetensors")
            outputs[-1].append([named[f"result{i}"] for i in range(len(named))])
    return outputs


def logits(images, parameters):
    w1, b1, w2, b2, w3, b3 = parameters
    h1 = torch.relu(images @ w1 + b1)
    h2 = torch.relu(h1 @ w2 + b2)
    return h2 @ w3 + b3


def gradients(images, labels, parameters):
    """The loss of one rank's images and its gradients, in float64."""
    leaves = [torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in parameters]
    loss = torch.nn.functional.cross_entropy(
        logits(torch.tensor(images, dtype=torch.float64), leaves),
        torch.tensor(labels, dtype=torch.int64),
    )
    loss.backward()
    return loss.item(), [leaf.grad.numpy() for leaf in leaves]


def random_parameters(generator, scale):
    return [
        (scale * generator.standard_normal(shape) / 8).astype(np.float32)
        for shape in SHAPES
    ]


# With `scale` 4 logits reach hundreds: exp of them is infinite in f32, and only
# a softmax that subtracts the largest one first survives. The rounding errors
# of such logits, about 1e-5, become relative errors of the probabilities.
@pytest.mark.parametrize("scale, tolerance", [(1, 1e-5), (4, 2e-4)])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_step(tmp_path, world, scale, tolerance):
    print(f"seed {SEED}")
    generator = np.random.default_rng([SEED, world, scale])
    steps, rate = 2, np.array(0.05, dtype=np.float32)
    inputs = [[] for _ in range(world)]
    expected = []  # per step: losses of the ranks, parameters, velocities
    for _ in range(steps):
        parameters = random_parameters(generator, scale)
        velocities = random_parameters(generator, scale)
        losses, sums = [], [np.zeros(shape) for shape in SHAPES]
        for rank in range(world):
            images = generator.random((BATCH, 64), dtype=np.float32)
            labels = generator.integers(0, 10, BATCH, dtype=np.int32)
            inputs[rank].append([images, labels, rate, *parameters, *velocities])
            loss, grads = gradients(images, labels, parameters)
            losses.append(loss)
            sums = [s + g for s, g in zip(sums, grads)]
        new_velocities = [
            MOMENTUM * v.astype(np.float64) + s / world
            for v, s in zip(velocities, sums)
        ]
        new_parameters = [p - rate * v for p, v in zip(parameters, new_velocities)]
        expected.append((losses, new_parameters + new_velocities))

    outputs = run(tmp_path, "step", inputs)
    for rank in range(world):
        for step in range(steps):
            *arrays, loss = outputs[rank][step]
            losses, reference = expected[step]
            assert len(arrays) == len(reference)
            np.testing.assert_allclose(loss, losses[rank], rtol=tolerance)
            for i, (array, want) in enumerate(zip(arrays, reference)):
                # Sums of up to 128 terms in f32: an error relative to the
                # largest element, not to each.
                limit = tolerance * np.abs(want).max()
                np.testing.assert_allclose(
                    array, want, rtol=0, atol=limit, err_msg=f"result{i}"
                )
            for array, first in zip(arrays, outputs[0][step]):
                assert array.tobytes() == first.tobytes(), "ranks differ"


def test_predict(tmp_path):
    print(f"seed {SEED}")
    generator = np.random.default_rng(SEED)
    images = generator.random((TEST_SIZE, 64), dtype=np.float32)
    parameters = random_parameters(generator, 1)
    [[[result]]] = run(tmp_path, "predict", [[[images, *parameters]]])
    double = [torch.tensor(p, dtype=torch.float64) for p in parameters]
    want = logits(torch.tensor(images, dtype=torch.float64), double).numpy()
    np.testing.assert_allclose(result, want, rtol=0, atol=1e-5 * np.abs(want).max())
