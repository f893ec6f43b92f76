# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What computing while collectives are in flight gains: the step of model.py,
compiled with and without `overlap`, in turns, on a slow link or (--local) through
shared memory.

    overlap.py --build=build [--local] [--tokens=64]

With more tokens the backward pass takes longer, and the buckets do not.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "why"))

import numpy as np

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
DEPTHS = (0, 1, 2, 4)  # 0: without
PORT = 29500


def name_of(hook, depth):
    return f"{list(HOOKS).index(hook)}.{depth}"


def compile_steps(build, folder, bucket_mb):
    source = folder / "step.mlir"
    source.write_text(model.module_text())
    for hook, options in HOOKS.items():
        for depth in DEPTHS:
            more = f"overlap=true overlap-depth={depth}" if depth else "overlap=false"
            output = folder / f"{name_of(hook, depth)}.so"
            pipeline = f"{options} bucket-cap-mb={bucket_mb} {more}"
            words = [build / "bin" / "ddphook-cc", source, "--shared", "-o", output]
            subprocess.run([*words, f"--ddp-pipeline={pipeline}"], check=True)


def run_rank(arguments):
    rank, folder = arguments.rank, arguments.folder
    from ddphook import Runtime

    runtime = Runtime()
    values = model.make_inputs(rank)
    shapes = {name: model.shape(kind, o) for name, kind, o in model.parameters()}
    seconds, results = {}, {}
    entries = {}
    for hook in HOOKS:
        for depth in DEPTHS:
            name = name_of(hook, depth)
            library = ctypes.CDLL(str(folder / f"{name}.so"))
            module = runtime.load_module(library)
            results[name] = [
                np.full(shapes[key], np.nan, np.float32) for key in model.returned()
            ]
            arrays = [*values.values(), *results[name]]
            pointers = [array.ctypes.data for array in arrays]
            buffers = (ctypes.c_void_p * len(pointers))(*pointers)
            entries[name] = (library, module, buffers)
            seconds[name] = []

    def step(name):
        _, module, buffers = entries[name]
        runtime.check(module.entries[0].invoke(buffers))

    for hook in HOOKS:
        for depth in DEPTHS:
            # Vanilla steps, and the first compressed one.
            for _ in range(3):
                step(name_of(hook, depth))
            plain, other = results[name_of(hook, 0)], results[name_of(hook, depth)]
            for a, b in zip(plain, other):
                assert a.tobytes() == b.tobytes(), f"{hook}, depth {depth}: differs"
    for _ in range(arguments.rounds):
        for hook in HOOKS:
            for depth in DEPTHS:
                name = name_of(hook, depth)
                for _ in range(arguments.steps):
                    runtime.barrier()
                    begin = time.perf_counter()
                    step(name)
                    seconds[name].append(time.perf_counter() - begin)
    (folder / f"rank.{rank}.json").write_text(json.dumps(seconds))
    runtime.barrier()


def start_ranks(arguments, network, folder):
    processes = []
    for rank in range(2):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank if arguments.local else 0),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": network.addresses[0],
            "MASTER_PORT": str(PORT),
            "DDPHOOK_PORT": str(PORT),
            "DDPHOOK_RT": str(arguments.build / "lib" / "libddphook_rt.so"),
            "OMP_NUM_THREADS": "1",
        }
        if not arguments.local:
            # One machine each: no shared memory.
            environment["DDPHOOK_NODE"] = f"machine-{rank}"
            environment["DDPHOOK_TRANSPORT"] = "gloo"
        words = [sys.executable, HERE / "overlap.py", f"--rank={rank}"]
        words += [f"--folder={folder}", f"--rounds={arguments.rounds}"]
        words += [f"--steps={arguments.steps}", f"--tokens={arguments.tokens}"]
        processes.append(network.start(rank, words, env=environment))
    if any([process.wait() for process in processes]):
        raise SystemExit("error: a rank failed")


def print_table(folder):
    reports = [json.loads((folder / f"rank.{r}.json").read_text()) for r in range(2)]

    def median(name):
        # A step is over when its slower rank is.
        return 1e3 * statistics.median(map(max, *(report[name] for report in reports)))

    print("| hook | without | " + " | ".join(f"depth {d}" for d in DEPTHS[1:]) + " |")
    print("|---" * (1 + len(DEPTHS)) + "|")
    for hook in HOOKS:
        times = [median(name_of(hook, depth)) for depth in DEPTHS]
        print(f"| {hook} | " + " | ".join(f"{t:.1f} ms" for t in times) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--rate", default="1gbit", help="of the link, for tc")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="per round and case")
    parser.add_argument("--tokens", type=int, default=model.TOKENS)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--local", action="store_true", help="no slow link")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    model.TOKENS = arguments.tokens
    if arguments.rank is not None:
        run_rank(arguments)
        return
    arguments.build = arguments.build.resolve()
    if os.geteuid() != 0 and not arguments.local:
        parser.error("network namespaces need root")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        compile_steps(arguments.build, folder, arguments.bucket_mb)
        network = link.Loopback() if arguments.local else link.Link(arguments.rate)
        with network:
            start_ranks(arguments, network, folder)
        print_table(folder)


if __name__ == "__main__":
    main()
