# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a step with and without overlap, and compares every bit of its results and
of the states that it leaves.

usage: overlap.py DDPHOOK-CC DDPHOOK-EXEC STEP.mlir DIRECTORY
"""

import pathlib
import subprocess
import sys

import plain_safetensors

SEED, STEPS = 2718, 5
POWERSGD = "hook=powersgd start-powersgd-iter=2 "
# Options, numbers of ranks, and how many collectives may be in flight.
CASES = [
    ("bucket-cap-mb=0", (1, 3), (1, 2, 4)),
    ("bucket-cap-mb=0 hook=fp16", (2,), (1, 2, 4)),
    ("bucket-cap-mb=0 hook=fp16 fuse=false", (3,), (2,)),
    ("bucket-cap-mb=0.006 hook=bf16", (2,), (2,)),
    (POWERSGD + "bucket-cap-mb=0", (1, 3), (1, 2, 4)),
    ("hook=powersgd start-powersgd-iter=4 bucket-cap-mb=0.006", (2,), (1, 4)),
    ("hook=post_local_sgd start-localsgd-iter=3 bucket-cap-mb=0", (3,), (1,)),
    (POWERSGD + "bucket-cap-mb=0 matrix-approximation-rank=4", (2,), (2,)),
    (POWERSGD + "bucket-cap-mb=0 wrapper=fp16 pack-collectives=false", (2,), (4,)),
    (POWERSGD + "bucket-cap-mb=0 warm-start=false fuse=false", (3,), (2,)),
    (POWERSGD + "bucket-cap-mb=0 numerics=improved", (2,), (2,)),
    (POWERSGD + "group-mb=0.00001", (2, 3), (1, 2, 4)),
    (POWERSGD + "group-mb=0.004 matrix-approximation-rank=4", (3,), (2,)),
    (POWERSGD + "group-mb=0.00001 use-error-feedback=false", (2,), (2,)),
    ("hook=batched_powersgd start-powersgd-iter=2 bucket-cap-mb=0", (2,), (2,)),
    ("hook=post_local_sgd start-localsgd-iter=2 bucket-cap-mb=0", (2,), (2,)),
]


def run(execute, module, folder, world):
    folder.mkdir()
    words = [execute, module, "--entry=step", f"--ranks={world}"]
    words += [f"--steps={STEPS}", f"--inputs=random:{SEED}"]
    words += [f"--outputs={folder}/out.{{rank}}.{{step}}"]
    words += [f"--state-out={folder}/state.{{rank}}"]
    subprocess.run(words, check=True, timeout=120)
    names = [f"out.{r}.{s}" for r in range(world) for s in range(STEPS)]
    names += [f"state.{r}" for r in range(world)]
    return {name: plain_safetensors.read(folder / name) for name in names}


def main():
    compiler, execute, source = sys.argv[1:4]
    directory = pathlib.Path(sys.argv[4])
    print(f"seed {SEED}")
    numbers = {}

    def build(options):
        number = numbers.setdefault(options, len(numbers))
        module = directory / f"{number}.so"
        if not module.exists():
            words = [compiler, source, "--shared", "-o", module]
            subprocess.run([*words, f"--ddp-pipeline={options}"], check=True)
        return module

    differences, compared = [], 0
    for options, worlds, depths in CASES:
        for world in worlds:
            module = build(f"{options} overlap=false")
            expected = run(execute, module, directory / f"{module.stem}.{world}", world)
            assert expected["out.0.0"] != expected["out.0.4"], "inputs never change"
            overlaps = [f"overlap-depth={depth}" for depth in depths]
            if "powersgd" in options:
                overlaps += [f"{overlap} interleave=true" for overlap in overlaps]
            for overlap in overlaps:
                module = build(f"{options} overlap=true {overlap}")
                got = run(execute, module, directory / f"{module.stem}.{world}", world)
                for file, tensors in expected.items():
                    assert tensors.keys() == got[file].keys(), file
                    for name, data in tensors.items():
                        compared += 1
                        if got[file][name] != data:
                            differences.append(
                                f"{options}, {world} ranks, {overlap}: "
                                f"{name} of {file} differs"
                            )
    print("\n".join(differences) or f"{compared} arrays are equal")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
