#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Leaves out barriers of the kernels, one at a time, and expects that this is noticed.

usage: left_out_barriers.py BIN PTX_DIRECTORY COUNT [SEED]

Draws barriers of blocks and warps from the PTX of all kernels until COUNT of them were
reached by the tests of the kernels. At least eight of ten must then fail, by a race or by
wrong results. Some barriers end a function and are followed by another one; some order
rounds of a loop that only lists of gigabytes run twice.
"""

import os
import pathlib
import random
import re
import subprocess
import sys

# The tests that run a file's kernels.
PROGRAMS = {
    "affine": "affine",
    "lowrank_gram": "orthogonalize",
    "lowrank_orthogonalize": "orthogonalize",
    "lowrank_project": "lowrank",
    "lowrank_reconstruct": "lowrank",
    "lowrank_transposed": "lowrank",
}
BARRIER = re.compile(r"^\s*bar\.(warp\.)?sync\b")


def main():
    programs, directory, count, *seed = sys.argv[1:]
    seed = int(seed[0]) if seed else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    places = [
        (stem, number)
        for stem in PROGRAMS
        for number, line in enumerate(
            pathlib.Path(directory, f"{stem}.ptx").read_text().splitlines(), 1
        )
        if BARRIER.match(line)
    ]
    random.Random(seed).shuffle(places)
    reached = noticed = 0
    for stem, number in places:
        if reached == int(count):
            break
        skip = f"/{stem}.ptx:{number}"
        program = f"{programs}/ddphook-gpu_cuda_kernels_{PROGRAMS[stem]}_test"
        environment = os.environ | {"EMULATED_CUDA_SKIP": skip}
        done = subprocess.run(
            [program, "--gtest_brief=1", "--gtest_fail_fast"],
            env=environment,
            capture_output=True,
            text=True,
        )
        output = done.stdout + done.stderr
        if f"left out {skip}" not in output:
            continue
        reached += 1
        noticed += done.returncode != 0
        race = re.search(r"race in .* between \w+", output)
        how = race[0] if race else "wrong results"
        print(f"{skip}: {how if done.returncode else 'NOT NOTICED'}", flush=True)
    print(f"{noticed} of {reached} noticed; there are {len(places)} barriers")
    sys.exit(noticed < 0.8 * int(count))


if __name__ == "__main__":
    main()
