# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs two shared objects of one program and compares every bit.

usage: device_memory.py DDPHOOK-EXEC HOST.so DEVICE.so DIRECTORY [DEVICE]

HOST.so was compiled for arrays in the host's memory, DEVICE.so for arrays that
only the runtime may touch, in the host's memory or on DEVICE. Both run on 1, 2 and
3 ranks (on DEVICE on 1 and 2: it adds more in an order of its own) for some steps,
each of which depends on the states that the one before left; ddphook-exec poisons
results. Results of all steps and the states after the last one must be equal.
"""

import pathlib
import subprocess
import sys

import plain_safetensors

SEED, STEPS = 2718, 5


def run(tool, module, ranks, prefix, device="host"):
    subprocess.run(
        [
            tool,
            module,
            "--entry=step",
            f"--ranks={ranks}",
            f"--device={device}",
            f"--steps={STEPS}",
            f"--inputs=random:{SEED}",
            f"--outputs={prefix}.{{rank}}.{{step}}",
            f"--state-out={prefix}.state.{{rank}}",
        ],
        check=True,
    )


def main(tool, host, device, directory, backend="host"):
    directory = pathlib.Path(directory)
    compared = 0
    print(f"seed {SEED}")
    for ranks in (1, 2, 3) if backend == "host" else (1, 2):
        run(tool, host, ranks, directory / f"host{ranks}")
        run(tool, device, ranks, directory / f"device{ranks}", backend)
        files = [f"{rank}.{step}" for rank in range(ranks) for step in range(STEPS)]
        files += [f"state.{rank}" for rank in range(ranks)]
        for file in files:
            expected, got = (
                plain_safetensors.read(directory / f"{name}{ranks}.{file}")
                for name in ("host", "device")
            )
            if expected != got:
                sys.exit(f"{ranks} ranks: {file} differs")
            compared += len(expected)
    if compared == 0:
        sys.exit("there was nothing to compare")
    print(f"{compared} tensors are equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
