# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs two shared objects of one program and compares every bit.

usage: device_memory.py DDPHOOK-EXEC HOST.so DEVICE.so DIRECTORY

HOST.so was compiled for arrays in the host's memory, DEVICE.so for arrays that
only the runtime may touch. Both run on 1, 2 and 3 ranks for some steps, each of
which depends on the states that the one before left; ddphook-exec poisons
results. Results of all steps and the states after the last one must be equal.
"""

import json
import pathlib
import struct
import subprocess
import sys

SEED, STEPS = 2718, 5


def data(path):
    """The tensors of a safetensors file: names, types, shapes, and bytes."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)  # of states: the plan's hash
    return header, content[8 + size :]


def run(tool, module, ranks, prefix):
    subprocess.run(
        [
            tool,
            module,
            "--entry=step",
            f"--ranks={ranks}",
            f"--steps={STEPS}",
            f"--inputs=random:{SEED}",
            f"--outputs={prefix}.{{rank}}.{{step}}",
            f"--state-out={prefix}.state.{{rank}}",
        ],
        check=True,
    )


def main(tool, host, device, directory):
    directory = pathlib.Path(directory)
    compared = 0
    print(f"seed {SEED}")
    for ranks in 1, 2, 3:
        for name, module in ("host", host), ("device", device):
            run(tool, module, ranks, directory / f"{name}{ranks}")
        files = [f"{rank}.{step}" for rank in range(ranks) for step in range(STEPS)]
        files += [f"state.{rank}" for rank in range(ranks)]
        for file in files:
            expected, got = (
                data(directory / f"{name}{ranks}.{file}")
                for name in ("host", "device")
            )
            if expected != got:
                sys.exit(f"{ranks} ranks: {file} differs")
            compared += len(expected[0])
    if compared == 0:
        sys.exit("there was nothing to compare")
    print(f"{compared} tensors are equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
