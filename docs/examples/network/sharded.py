#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What collectives in flight gain in a step with sharded optimizer states, on a slow
network.

Makes two network namespaces on this machine that are joined by a link of
1 Gbit/s, and runs a rank in each. A step computes the gradients of eight layers of
1024 x 1024, scatters each, updates this rank's parts of the parameters, and gathers
all of them; it is compiled without overlap, and with one to four collectives in
flight, and all of these run in turns. As root:

    $(tools/python-env.sh) docs/examples/network/sharded.py --build=build

Prints, per variant, the time of a step. All have the same bits, which is checked
first. --local uses no slow link: both ranks share this machine's memory.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "why"))

import job
import link
import numpy as np

LAYERS, SIZE, TOKENS, RANKS = 8, 1024, 256, 2
PART = SIZE * SIZE // RANKS
VARIANTS = {
    "no overlap": "overlap=false",
    "1 in flight": "overlap-depth=1",
    "2 in flight": "overlap-depth=2",
    "4 in flight": "overlap-depth=4",
}
TYPES = f"""
!x = tensor<{SIZE}x{TOKENS}xf32>
!d = tensor<{TOKENS}x{SIZE}xf32>
!w = tensor<{SIZE}x{SIZE}xf32>
!p = tensor<{PART}xf32>
"""
LAYER = """
  %g{i} = linalg.matmul ins(%x, %d{i} : !x, !d) outs(%z : !w) -> !w
  %s{i} = ddp.reduce_scatter mean %g{i} on @dp : !w -> !p
  %u{i} = linalg.sub ins(%p{i}, %s{i} : !p, !p) outs(%f : !p) -> !p
  %w{i} = ddp.all_gather %u{i} on @dp : !p -> !w
"""


def module():
    layers = range(LAYERS)
    arguments = ["%x: !x", *(f"%d{i}: !d" for i in layers), *(f"%p{i}: !p" for i in layers)]
    results, types = ", ".join(f"%w{i}" for i in layers), ", ".join(["!w"] * LAYERS)
    return f"""{TYPES}
ddp.process_group @dp size {RANKS}
func.func @step({", ".join(arguments)}) -> ({types}) {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !w
  %f = tensor.empty() : !p
  %z = linalg.fill ins(%zero : f32) outs(%e : !w) -> !w
{"".join(LAYER.format(i=i) for i in layers)}
  return {results} : {types}
}}
"""


def library_of(folder, variant):
    return folder / f"{list(VARIANTS).index(variant)}.so"


def compile_steps(arguments, folder):
    source = folder / "step.mlir"
    source.write_text(module())
    for variant, options in VARIANTS.items():
        words = [arguments.build / "bin" / "ddphook-cc", source, "--shared"]
        words += ["-o", library_of(folder, variant), f"--ddp-pipeline={options}"]
        subprocess.run(words, check=True)


def draw(random, *shape):
    return random.standard_normal(shape, np.float32)


def run_rank(arguments):
    from c_runtime import Runtime
    from compiled import Compiled

    runtime = Runtime()
    random = np.random.default_rng([1, arguments.rank])
    values = {"x": draw(random, SIZE, TOKENS)}
    for i in range(LAYERS):
        values[f"d{i}"] = draw(random, TOKENS, SIZE)
    for i in range(LAYERS):
        values[f"p{i}"] = draw(random, PART)
    steps, report, expected = {}, {}, None
    for variant in VARIANTS:
        results = {
            f"w{i}": np.full((SIZE, SIZE), np.nan, np.float32) for i in range(LAYERS)
        }
        library = library_of(arguments.folder, variant)
        steps[variant] = Compiled(runtime, library, values, results)
        steps[variant].step()
        bits = [array.tobytes() for array in results.values()]
        expected = expected or bits
        if bits != expected:
            raise SystemExit(f"error: {variant} gives other bits")
        report[variant] = []
    for _ in range(arguments.rounds):
        for variant, step in steps.items():
            runtime.barrier()
            begin = time.perf_counter()
            step.step()
            report[variant].append(time.perf_counter() - begin)
    runtime.barrier()
    job.write_report(arguments.folder, arguments.rank, report)


def print_table(folder):
    """Medians; a step is over when its slower rank is."""
    reports = job.read_reports(folder, RANKS)
    times = {}
    for variant in VARIANTS:
        steps = zip(*(report[variant] for report in reports))
        times[variant] = statistics.median(map(max, steps))
    print("| variant | time | of that without overlap |")
    print("|---|---|---|")
    for variant, seconds in times.items():
        ratio = seconds / times["no overlap"]
        print(f"| {variant} | {1e3 * seconds:.1f} ms | {ratio:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--rate", default="1gbit", help="of the link, for tc")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--local", action="store_true", help="no slow link")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        run_rank(arguments)
        return
    if os.geteuid() != 0 and not arguments.local:
        parser.error("network namespaces need root")
    arguments.build = arguments.build.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        arguments.folder = pathlib.Path(scratch)
        compile_steps(arguments, arguments.folder)
        with link.Loopback() if arguments.local else link.Link(arguments.rate) as network:
            words = [HERE / "sharded.py", f"--folder={arguments.folder}"]
            words += [f"--rounds={arguments.rounds}"]
            job.run_ranks(network, arguments.build, range(RANKS), words, arguments.local)
        print_table(arguments.folder)


if __name__ == "__main__":
    main()
