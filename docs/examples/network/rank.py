# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of network.py: measures compiled steps and PyTorch's hooks in turns.

    rank.py RANK FOLDER ROUNDS STEPS

The environment has the launch variables and DDPHOOK_RT, the runtime's path;
FOLDER has one NAME.so per hook, and LOCAL.so, the step without its collectives.
Writes FOLDER/rank.RANK.json.
"""

import json
import os
import pathlib
import socket
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "why"))

import model
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)

from c_runtime import Runtime
from compiled import Compiled

HOOKS = {
    "none": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "quantization_pertensor": quantization_hooks.quantization_pertensor_hook,
    "quantization_perchannel": quantization_hooks.quantization_perchannel_hook,
}
# PyTorch has none of these: how far they may be from the uncompressed averages, in
# the 2-norm of all gradients (docs/quantization.md, what to expect).
ONLY_OURS = {"int8": 0.02, "fp8": 0.08, "int4": 0.3}
RANKS = {"powersgd-1": 1, "powersgd-2": 2, "powersgd-4": 4}
LOCAL = "local"
# PyTorch's smallest. The first compressed call is compared.
START = 2


class Bucket:
    """The methods of torch.distributed.GradBucket that these hooks call."""

    def __init__(self, index, count, gradients):
        self.number, self.last = index, index == count - 1
        self.shapes = [gradient.shape for gradient in gradients]
        flat = np.concatenate([gradient.reshape(-1) for gradient in gradients])
        self.source = torch.from_numpy(flat)
        self.tensor = self.source.clone()

    def reset(self):
        self.tensor.copy_(self.source)

    def buffer(self):
        return self.tensor

    def set_buffer(self, tensor):
        self.tensor = tensor

    def gradients(self):
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        parts = self.tensor.split(sizes)
        return [part.view(shape) for part, shape in zip(parts, self.shapes)]

    def parameters(self):
        return self.gradients()

    def index(self):
        return self.number

    def is_last(self):
        return self.last


class Eager:
    """PyTorch's hook, on one bucket after the other. Hooks that chain several
    collectives must not overlap: on Gloo the ranks may issue them in different
    orders then, and the job aborts."""

    def __init__(self, name, buckets):
        self.buckets = buckets
        self.state, self.hook = None, HOOKS.get(name)
        if name in RANKS:
            self.hook = powerSGD_hook.powerSGD_hook
            self.state = powerSGD_hook.PowerSGDState(
                None,
                matrix_approximation_rank=RANKS[name],
                start_powerSGD_iter=START,
            )

    def reset(self):
        for bucket in self.buckets:
            bucket.reset()

    def step(self):
        for bucket in self.buckets:
            bucket.set_buffer(self.hook(self.state, bucket).wait())


def averages(buckets):
    named = {}
    for bucket, parameters in zip(buckets, model.buckets()):
        for (name, _, _), tensor in zip(parameters, bucket.gradients()):
            named[name] = tensor.numpy().copy()
    return named


def distance(ours, uncompressed):
    """In the 2-norm of all gradients, relative to theirs."""
    keys = model.returned()
    lost = sum(float(((ours[k] - uncompressed[k]) ** 2).sum()) for k in keys)
    return (lost / sum(float((uncompressed[k] ** 2).sum()) for k in keys)) ** 0.5


def compare(name, ours, theirs):
    """The largest difference, relative to the tensor's largest element."""
    worst = 0.0
    for key in model.returned():
        a, b = ours[key], theirs[key]
        if name in HOOKS:
            assert a.tobytes() == b.tobytes(), f"{name}: {key} differs"
        worst = max(worst, float(np.abs(a - b).max() / np.abs(b).max()))
    # docs/parity.md; uncompressed steps before it are equal to the bit.
    assert worst <= 1.5e-5, f"{name}: {worst}"
    return worst


def link_speed(rank, size=64 << 20):
    """Bits per second from rank 0 to rank 1, over a plain TCP connection."""
    port = int(os.environ["MASTER_PORT"]) + 2
    data = bytes(1 << 20)
    if rank == 1:
        with socket.create_server(("", port)) as server:
            dist.barrier()
            peer, _ = server.accept()
            with peer:
                begin, got = time.perf_counter(), 0
                while got < size:
                    got += len(peer.recv(1 << 20))
                return 8 * size / (time.perf_counter() - begin)
    dist.barrier()
    with socket.create_connection((os.environ["PEER"], port)) as peer:
        for _ in range(size >> 20):
            peer.sendall(data)
    return None


def measure(runtime, case, steps, reset=None):
    seconds = []
    for _ in range(steps):
        if reset:
            reset()
        runtime.barrier()
        begin = time.perf_counter()
        case.step()
        seconds.append(time.perf_counter() - begin)
    return seconds


def main():
    rank, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    rounds, steps = int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{address}:{port + 1}",
        rank=rank,
        world_size=2,
    )
    report = {"link_bits_per_s": link_speed(rank), "cases": {}}
    values = model.make_inputs(rank)
    gradients = [
        [model.gradient(kind, o, values) for _, kind, o in parameters]
        for parameters in model.buckets()
    ]
    buckets = [Bucket(i, len(gradients), g) for i, g in enumerate(gradients)]

    runtime = Runtime()
    names = [LOCAL, *HOOKS, *RANKS, *ONLY_OURS]
    ours = {n: Compiled(runtime, folder / f"{n}.so", values) for n in names}
    theirs = {n: Eager(n, buckets) for n in [*HOOKS, *RANKS]}
    for name, case in ours.items():
        row = report["cases"][name] = {"ours": [], "pytorch": []}
        if name == LOCAL:
            case.step()
            continue
        for _ in range(START + 1 if name in RANKS else 1):
            before = case.wire_bytes()
            case.step()
            if name in theirs:
                theirs[name].reset()
                theirs[name].step()
        row["wire_bytes"] = case.wire_bytes() - before
        if name in theirs:
            row["difference"] = compare(name, case.results, averages(buckets))
        else:
            row["difference"] = distance(case.results, ours["none"].results)
            assert row["difference"] <= ONLY_OURS[name], row["difference"]
    for _ in range(rounds):
        for name in names:
            row = report["cases"][name]
            # Short steps vary most.
            count = 5 * steps if name in (LOCAL, *RANKS) else steps
            row["ours"] += measure(runtime, ours[name], count)
            if name in theirs:
                eager = theirs[name]
                row["pytorch"] += measure(runtime, eager, count, eager.reset)
    (folder / f"rank.{rank}.json").write_text(json.dumps(report))
    runtime.barrier()
    dist.destroy_process_group()


main()
