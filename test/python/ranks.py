# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs functions on the ranks of a PyTorch job, one process each."""

import multiprocessing
import os
import pathlib
import sys
import traceback
import warnings
from collections import Counter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "runtime" / "test"))
from ports import free_port as free_port  # noqa: E402

WAIT_S = 900  # Far more than any test needs, even on a busy machine.

# Imports of a rank with a distributed model, which take seconds. The process from which
# ranks are forked imports them once. They start no thread, and include nothing of ddphook.
_PRELOADED = [
    "pytest",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.distributed.algorithms.ddp_comm_hooks",
    "torch.distributed.checkpoint",
    "torch.nn.parallel",
    "torch.testing",
]


def use_pytorchs_kernels():
    """Makes Inductor call PyTorch's kernels: compiling its own takes most of a test's time."""
    import torch._inductor.config

    config = torch._inductor.config
    if hasattr(config, "fallback_by_default"):  # Older releases of PyTorch lack it.
        config.fallback_by_default = True
    config.compile_threads = 1


class Failure(Exception):
    """A rank raised an exception; the text has its traceback."""


def run(world, function, *arguments):
    """Runs function(rank, *arguments) on `world` ranks; returns the results by rank."""
    results = collect(world, function, *arguments)
    failures = [f"rank {r}: {v}" for r, (kind, v) in enumerate(results) if kind != "ok"]
    if failures:
        raise Failure("\n".join(failures))
    return [value for _, value in results]


def collect(world, function, *arguments):
    """Returns ("ok", result), ("raised", text) or ("died", exit status) for each rank."""
    import torch.distributed as dist

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    # This process hosts the store: a rank might exit while others still need it.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = []
    environment = {k: v for k, v in os.environ.items() if k.startswith("DDPHOOK_")}
    for rank in range(world):
        here, there = context.Pipe()
        job = (rank, world, store.port, environment, there, function, arguments)
        process = context.Process(target=_serve, args=job, daemon=True)
        process.start()
        there.close()
        ranks.append((process, here))
    results = []
    for rank, (process, pipe) in enumerate(ranks):
        try:
            if not pipe.poll(WAIT_S):
                raise TimeoutError(f"rank {rank} gave no answer")
            results.append(pipe.recv())
        except EOFError:
            process.join(WAIT_S)
            results.append(("died", process.exitcode))
    for process, _ in ranks:
        process.join(WAIT_S)
        assert process.exitcode is not None, "a rank does not end"
    return results


def counters_of(session):
    """Returns the sums of the counters of a compiled step's modules, after all their runs."""

    def add():
        session._finish()
        modules = session._modules.values()
        return sum((Counter(module.statistics()) for module in modules), Counter())

    return session._worker.call(add)


def _serve(rank, world, port, environment, pipe, function, arguments):
    os.environ.update(environment)
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
        # A rank that ends at once would break connections that others are still making.
        store.set(f"connected {rank}", "")
        store.wait([f"connected {each}" for each in range(world)])
        result = function(rank, *arguments)
        pipe.send(("ok", result))
        dist.destroy_process_group()
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))
