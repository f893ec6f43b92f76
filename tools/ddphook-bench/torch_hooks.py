# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's side of ddphook-bench: measures its DDP communication hooks.

Run by ddphook-bench, with options as a JSON object. Reads a job per line from standard
input, as a JSON object, and writes the seconds of its repetitions. Rank 0 is the process
that reads; each rank is bound to a different processor, unless it has several threads.
Between jobs all of them wait without using a processor.

A job is {"hook": "allreduce" | "fp16" | "bf16" | "powersgd", "shapes": [[1024, 1024], …],
"rank": 1, "cold": true, "repetitions": 5}: the hook on one bucket of such tensors.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import types

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "powersgd": powerSGD_hook.powerSGD_hook,
}
# On a GPU, as in measure.cpp.
SAMPLE_SECONDS = 2e-3
MOST_CALLS = 200


class Bucket:
    """The methods of torch.distributed.GradBucket that these hooks call."""

    def __init__(self, tensor, shapes):
        self.tensor = tensor
        self.shapes = shapes

    def buffer(self):
        return self.tensor

    def set_buffer(self, tensor):
        self.tensor = tensor

    def gradients(self):
        parts = self.tensor.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes)]

    parameters = gradients

    def index(self):
        return 0

    def is_last(self):
        return True


class Worker:
    def __init__(self, options):
        self.device = torch.device(options.device)
        self.other = torch.zeros(options.flush_bytes // 4)

    def run(self, hook, shapes, cold, repetitions, rank=0):
        shapes = [torch.Size(shape) for shape in shapes]
        generator = torch.Generator().manual_seed(dist.get_rank())
        size = sum(shape.numel() for shape in shapes)
        gradients = torch.randn(size, generator=generator).to(self.device)
        bucket = Bucket(gradients.clone(), shapes)
        state = dist.group.WORLD
        if hook == "powersgd":
            state = powerSGD_hook.PowerSGDState(
                state, matrix_approximation_rank=rank, start_powerSGD_iter=2
            )
            state.iter = 2  # Compresses from the first step on.

        def step():
            HOOKS[hook](state, bucket).wait()

        step()
        calls = 1
        if self.device.type == "cuda" and dist.get_world_size() == 1:
            once = max(self.time(step, 1), 1e-7)
            calls = min(max(round(SAMPLE_SECONDS / once), 1), MOST_CALLS)
        seconds = []
        for _ in range(repetitions):
            bucket.buffer().copy_(gradients)
            if cold:
                self.other.add_(1)
            dist.barrier()
            seconds.append(self.time(step, calls))
        slowest = torch.tensor(seconds, dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return {"seconds": slowest.tolist()}

    def time(self, step, calls):
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            step()
        self.synchronize()
        return (time.perf_counter() - begin) / calls

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def main():
    given = {"rank": 0, "port": 0, **json.loads(sys.argv[1])}
    options = types.SimpleNamespace(**given)
    store = dist.TCPStore(
        "127.0.0.1", options.port, is_master=options.rank == 0, wait_for_workers=False
    )
    if options.rank == 0:
        for rank in range(1, options.ranks):
            given |= {"rank": rank, "port": store.port}
            subprocess.Popen(
                [sys.executable, __file__, json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # It dies with its parent.
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),
            )
    if options.threads == 1:
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[options.rank % len(cpus)]})
    torch.set_num_threads(options.threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "nccl" if options.device == "cuda" else "gloo"
    dist.init_process_group(
        backend, store=store, rank=options.rank, world_size=options.ranks
    )
    worker = Worker(options)
    # The streams of the other ranks are /dev/null.
    print(json.dumps({"torch": torch.__version__}), flush=True)
    while True:
        line = [sys.stdin.readline()]
        dist.broadcast_object_list(line, src=0)
        if not line[0]:
            break
        print(json.dumps(worker.run(**json.loads(line[0]))), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
