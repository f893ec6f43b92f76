# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What computing while collectives are in flight gains: the step of model.py,
compiled with and without `overlap`, in turns, on a slow link or (--local) through
shared memory.

    overlap.py --build=build [--local] [--tokens=64]
    chrt -r 10 overlap.py --local --launches=20 --hooks=none,fp16 --depths=1

With more tokens the backward pass takes longer, and the buckets do not. A launch
compares each step with the one beside it that does not overlap, and takes the
median of their ratios; the table has the mean of the launches and, if there are
several, its standard error, since memory lies elsewhere in each of them.

    overlap.py --options=group-mb=0,group-mb=8 --hooks=powersgd-1,powersgd-4

compares steps with these options to the step without them, in the same way.
"""

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "why"))

import numpy as np

import job
import link
import model

RANK = "hook=powersgd matrix-approximation-rank=4"
POWERSGD = f"{RANK} start-powersgd-iter=2"
HOOKS = {
    "none": "hook=allreduce",
    "fp16": "hook=fp16",
    "powersgd-4": POWERSGD,
    "powersgd-4 interleave": f"{POWERSGD} interleave=true",
    "powersgd-4 group-mb=8": f"{POWERSGD} group-mb=8",
    "powersgd-4 group-mb=8 interleave": f"{POWERSGD} group-mb=8 interleave=true",
    "powersgd-4 vanilla phase": f"{RANK} start-powersgd-iter=1000000",
}
DEFAULT_HOOKS = list(HOOKS)
HOOKS.update(
    {
        f"powersgd-{rank}": "hook=powersgd start-powersgd-iter=2 "
        f"matrix-approximation-rank={rank}"
        for rank in (1, 2, 8)
    }
)


def name_of(hook, variant):
    """Of the compiled step; variant 0 is what the others are compared to."""
    return f"{list(HOOKS).index(hook)}.{variant}"


def compile_steps(arguments, folder):
    build, source = arguments.build, folder / "step.mlir"
    source.write_text(model.module_text())
    for hook in arguments.hooks:
        for number, more in enumerate(arguments.variants):
            output = folder / f"{name_of(hook, number)}.so"
            pipeline = f"{HOOKS[hook]} bucket-cap-mb={arguments.bucket_mb} {more}"
            words = [build / "bin" / "ddphook-cc", source, "--shared", "-o", output]
            subprocess.run([*words, f"--ddp-pipeline={pipeline}"], check=True)


def run_rank(arguments):
    rank, folder = arguments.rank, arguments.folder
    from c_runtime import Runtime

    runtime = Runtime()
    values = model.make_inputs(rank)
    shapes = {name: model.shape(kind, o) for name, kind, o in model.parameters()}
    results, entries = {}, {}
    variants = range(len(arguments.variants))
    for hook in arguments.hooks:
        for number in variants:
            name = name_of(hook, number)
            library = ctypes.CDLL(str(folder / f"{name}.so"))
            module = runtime.load_module(library)
            results[name] = [
                np.full(shapes[key], np.nan, np.float32) for key in model.returned()
            ]
            arrays = [*values.values(), *results[name]]
            pointers = [array.ctypes.data for array in arrays]
            buffers = (ctypes.c_void_p * len(pointers))(*pointers)
            entries[name] = (library, module, buffers)

    def step(name):
        _, module, buffers = entries[name]
        runtime.check(module.entries[0].invoke(buffers))

    def measure(name):
        runtime.barrier()
        begin = time.perf_counter()
        step(name)
        return time.perf_counter() - begin

    for hook in arguments.hooks:
        for number in variants:
            # Vanilla steps, and the first compressed one.
            for _ in range(3):
                step(name_of(hook, number))
            plain, other = results[name_of(hook, 0)], results[name_of(hook, number)]
            for a, b in zip(plain, other):
                more = arguments.variants[number]
                assert a.tobytes() == b.tobytes(), f"{hook}, {more}: differs"
    pairs = {}
    for number in range(arguments.pairs):
        for hook in arguments.hooks:
            for variant in variants[1:]:
                names = [name_of(hook, 0), name_of(hook, variant)]
                # Neither of them is always the first.
                order = names if number % 2 == 0 else names[::-1]
                seconds = {name: measure(name) for name in order}
                pair = [seconds[name] for name in names]
                pairs.setdefault(names[1], []).append(pair)
    job.write_report(folder, rank, pairs)
    runtime.barrier()


def read_pairs(folder):
    """Per step that overlaps, (without, with) of all pairs in seconds. A step is
    over when its slower rank is."""
    reports = job.read_reports(folder, 2)
    return {
        name: np.maximum(*(np.array(report[name]) for report in reports))
        for name in reports[0]
    }


def print_table(arguments, launches):
    def describe(name):
        with_ms = 1e3 * np.median([np.median(times[name][:, 1]) for times in launches])
        ratios = [times[name][:, 1] / times[name][:, 0] for times in launches]
        costs = [100 * (np.median(ratio) - 1) for ratio in ratios]
        text = f"{with_ms:.1f} ms, {np.mean(costs):+.1f}"
        if len(costs) > 1:
            text += f" ± {np.std(costs, ddof=1) / len(costs) ** 0.5:.1f}"
        return text + " %"

    print("| hook | " + " | ".join(arguments.variants) + " |")
    print("|---" * (1 + len(arguments.variants)) + "|")
    for hook in arguments.hooks:
        names = [name_of(hook, n) for n in range(1, len(arguments.variants))]
        without = [np.median(times[name][:, 0]) for times in launches for name in names]
        cells = [describe(name) for name in names]
        print(f"| {hook} | {1e3 * np.median(without):.1f} ms | " + " | ".join(cells) + " |")


def comma_separated(of):
    return lambda text: [of(item) for item in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--rate", default="1gbit", help="of the link, for tc")
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=9, help="per launch and case")
    parser.add_argument("--hooks", type=comma_separated(str), default=DEFAULT_HOOKS)
    parser.add_argument("--depths", type=comma_separated(int), default=[1, 2, 4])
    parser.add_argument("--options", type=comma_separated(str), default=[])
    parser.add_argument("--variants", type=comma_separated(str), help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=model.TOKENS)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--local", action="store_true", help="no slow link")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for hook in arguments.hooks:
        if hook not in HOOKS:
            parser.error(f"expected hooks of {', '.join(HOOKS)}, but got {hook}")
    model.TOKENS = arguments.tokens
    if not arguments.variants:
        depths = [f"overlap-depth={depth}" for depth in arguments.depths]
        arguments.variants = ["overlap=false", *depths]
    if arguments.options:
        arguments.variants = ["overlap=true", *arguments.options]
    if arguments.rank is not None:
        run_rank(arguments)
        return
    arguments.build = arguments.build.resolve()
    if os.geteuid() != 0 and not arguments.local:
        parser.error("network namespaces need root")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        compile_steps(arguments, folder)
        network = link.Loopback() if arguments.local else link.Link(arguments.rate)
        launches = []
        with network:
            for _ in range(arguments.launches):
                words = [HERE / "overlap.py", f"--folder={folder}"]
                words += [f"--pairs={arguments.pairs}"]
                words += [f"--hooks={','.join(arguments.hooks)}"]
                words += [f"--variants={','.join(arguments.variants)}"]
                words += [f"--tokens={arguments.tokens}"]
                job.run_ranks(
                    network, arguments.build, range(2), words, arguments.local
                )
                launches.append(read_pairs(folder))
        print_table(arguments, launches)


if __name__ == "__main__":
    main()
