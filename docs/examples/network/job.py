# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ranks of a job on the machines of a network (link.py), and what they report."""

import json
import os
import sys
import time

PORT = int(os.environ.get("DDPHOOK_PORT", 29500))


def run_ranks(network, build, machines, words, one_memory=False):
    """Runs a Python script as the ranks of a job, until all have ended.

    `machines` has the machine of each rank, those of one machine together; `words` are
    the script and its arguments, to which `--rank=N` is added. Ranks of different
    machines share no memory, unless `one_memory` says that all do.
    """
    processes = []
    for rank, machine in enumerate(machines):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank if one_memory else rank - machines.index(machine)),
            "WORLD_SIZE": str(len(machines)),
            "MASTER_ADDR": network.addresses[0],
            "MASTER_PORT": str(PORT),
            "DDPHOOK_PORT": str(PORT),
            "DDPHOOK_RT": str(build / "lib" / "libddphook_rt.so"),
            "OMP_NUM_THREADS": "1",
            # PyTorch's Gloo looks for the machine's name otherwise.
            "GLOO_SOCKET_IFNAME": network.interface,
            # Addresses without names are no news.
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        if not one_memory:
            environment["DDPHOOK_NODE"] = f"machine-{machine}"
        command = [sys.executable, *words, f"--rank={rank}"]
        processes.append(network.start(machine, command, env=environment))
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            # The others may wait for it for long.
            for process in processes:
                process.kill()
        time.sleep(0.05)
    if any(process.returncode for process in processes):
        raise SystemExit("error: a rank failed")


def write_report(folder, rank, report):
    (folder / f"rank.{rank}.json").write_text(json.dumps(report))


def read_reports(folder, count):
    texts = [(folder / f"rank.{rank}.json").read_text() for rank in range(count)]
    return [json.loads(text) for text in texts]
