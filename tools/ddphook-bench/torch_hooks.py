# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's side of ddphook-bench: measures its DDP communication hooks.

Run by ddphook-bench. Reads one JSON object per line from standard input, runs
its job, and writes one JSON object per line. There are two ranks, each with one
thread bound to a different processor; rank 0 is the process that reads. Between
commands both wait without using a processor.

Jobs, each on the bucket that measure.h defines:
  cast        kind f16 | bf16: float32 to it              (rank 0 alone)
  decompress  kind f16 | bf16: it to float32              (rank 0 alone)
  encode      kind int8 | fp8: float32 to codes with a scale for each block of
              256, written with tensor operations       (rank 0 alone)
  decode      kind int8 | fp8: codes to float32           (rank 0 alone)
  local       kind allreduce | fp16 | bf16: the hook in a group of one
  reduce      kind f32 | f16 | bf16: dist.all_reduce, two ranks
  hook        kind allreduce | fp16 | bf16: the hook, two ranks
  powersgd    kind {"shapes": [[1024, 1024], …], "rank": 1, "together": false}:
              the hook on a bucket of such tensors, in a group of one or on both
              ranks, each with a different gradient; in a group of one with
              "threads": 2 or more on all processors
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
)

RANKS = 2
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}
# For each code of docs/quantization.md: its type, its largest value, elements of a block.
CODES = {"int8": (torch.int8, 127, 256), "fp8": (torch.float8_e4m3fn, 448, 256)}


class Bucket:
    """The methods of torch.distributed.GradBucket that these hooks call."""

    def __init__(self, tensor, shapes=()):
        self.tensor = tensor
        self.shapes = [torch.Size(shape) for shape in shapes]

    def buffer(self):
        return self.tensor

    def set_buffer(self, tensor):
        self.tensor = tensor

    def gradients(self):
        parts = self.tensor.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes)]

    def parameters(self):
        return self.gradients()

    def index(self):
        return 0

    def is_last(self):
        return True


def make_input(n, rank):
    bits = np.arange(n, dtype=np.uint32) * np.uint32(2654435761)
    bits += np.uint32(rank * 40503 + 12345)
    values = bits.view(np.int32).astype(np.float64) * 2.0**-31
    return torch.from_numpy(values.astype(np.float32))


def checksum(tensor):
    words = tensor.to(torch.float32).contiguous().numpy().view(np.uint32)
    odd = 2 * np.arange(words.size, dtype=np.uint64) + np.uint64(1)
    return int((words.astype(np.uint64) * odd).sum(dtype=np.uint64))


def mixed_bits(n, first=0):
    """Returns 32 well mixed bits for each of n numbers, as powersgd_bucket.cpp does."""
    bits = np.arange(first, first + n, dtype=np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits ^= bits >> np.uint32(shift)
        bits *= np.uint32(factor)
    return bits ^ bits >> np.uint32(16)


def make_full_rank(n, rank):
    """Returns the elements of full-rank matrices; make_input() has a very low rank."""
    values = mixed_bits(n, rank * n).view(np.int32).astype(np.float64) * 2.0**-31
    return torch.from_numpy(values.astype(np.float32))


def fingerprint(tensor):
    """Returns the norm, and sums with four sequences of signs."""
    values = tensor.double().cpu().numpy()
    bits = mixed_bits(values.size)
    sums = [float(np.linalg.norm(values))]
    for k in range(4):
        signs = 1.0 - 2.0 * (bits >> np.uint32(k) & np.uint32(1))
        sums.append(float(signs @ values))
    return sums


class PowerSgd:
    """A bucket and its state, from the first compressed step on."""

    def __init__(self, group, shapes, rank, job_rank, device="cpu"):
        self.input = make_full_rank(
            sum(torch.Size(shape).numel() for shape in shapes), job_rank,
        ).to(device)
        self.bucket = Bucket(self.input.clone(), shapes)
        self.state = powerSGD_hook.PowerSGDState(
            group, matrix_approximation_rank=rank, start_powerSGD_iter=2)
        self.state.iter = 2

    def reset(self):
        self.bucket.tensor.copy_(self.input)

    def step(self):
        powerSGD_hook.powerSGD_hook(self.state, self.bucket).wait()


class Codes:
    """Codes of a tensor in blocks, the last one padded with zeros."""

    def __init__(self, tensor, kind):
        self.type, self.most, block = CODES[kind]
        self.count = tensor.numel()
        padding = -self.count % block
        self.blocks = torch.nn.functional.pad(tensor, (0, padding)).view(-1, block)
        self.encode()

    def encode(self):
        largest = self.blocks.abs().amax(1, keepdim=True)
        self.scales = (largest / self.most).bfloat16().float()
        quotients = (self.blocks / self.scales).clamp_(-self.most, self.most)
        if not self.type.is_floating_point:
            quotients.round_()
        self.codes = quotients.to(self.type)

    def decode(self):
        return (self.codes.float() * self.scales).view(-1)[: self.count]


class Worker:
    def __init__(self, rank, n, flush_bytes, cpus):
        self.rank = rank
        self.cpus = cpus
        self.input = make_input(n, rank)
        self.bucket = self.input.clone()
        self.wide = torch.empty_like(self.input)
        self.other = torch.zeros(flush_bytes // 4)
        groups = [dist.new_group([r]) for r in range(RANKS)]
        self.alone = groups[rank]
        self.together = dist.new_group(list(range(RANKS)))

    def make(self, job, kind):
        """Returns the function to measure, and the tensor for its result."""
        if job == "cast":
            out = torch.empty_like(self.input, dtype=DTYPES[kind])
            return (lambda: out.copy_(self.bucket)), out
        if job == "decompress":
            half = self.input.to(DTYPES[kind])
            return (lambda: self.wide.copy_(half)), self.wide
        if job in ("encode", "decode"):
            codes = Codes(self.bucket, kind)
            return getattr(codes, job), codes.decode()
        if job == "reduce":
            tensor = self.bucket
            if kind != "f32":
                tensor = self.bucket.to(DTYPES[kind])
            return (lambda: dist.all_reduce(tensor, group=self.together)), tensor
        group = self.alone if job == "local" else self.together
        bucket, hook = Bucket(self.bucket), HOOKS[kind]
        return (lambda: hook(group, bucket).wait()), self.bucket

    def run_powersgd(self, shapes, rank, together, cold, repetitions, threads=1):
        """Returns fingerprints of the first step's result and error, and times."""
        if not together and self.rank != 0:
            return None
        if threads > 1:
            os.sched_setaffinity(0, self.cpus)
            torch.set_num_threads(threads)
        group = self.together if together else self.alone
        work = PowerSgd(group, shapes, rank, self.rank)
        work.step()
        values = fingerprint(work.bucket.buffer())
        values += fingerprint(work.state.error_dict[0])
        seconds = []
        for _ in range(repetitions):
            work.reset()
            if cold:
                self.other.add_(1)
            if together:
                dist.barrier(group)
            begin = time.perf_counter()
            work.step()
            seconds.append(time.perf_counter() - begin)
        if together:
            seconds = self.slowest(seconds)
        return {"seconds": seconds, "checksum": 0, "values": values}

    def slowest(self, seconds):
        """Returns the times of the slowest rank, which completes a collective."""
        slowest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=self.together)
        return slowest.tolist()

    def run(self, job, kind, cold, repetitions):
        """Returns the result's checksum after one run, and the seconds of more."""
        if job == "powersgd":
            return self.run_powersgd(**json.loads(kind), cold=cold,
                                     repetitions=repetitions)
        both = job in ("reduce", "hook")
        if not both and self.rank != 0:
            return None
        self.bucket.copy_(self.input)
        fn, result = self.make(job, kind)
        fn()
        value = checksum(result)
        self.bucket.copy_(self.input)
        seconds = []
        for _ in range(repetitions):
            if cold:
                self.other.add_(1)
            if both:
                dist.barrier(self.together)
            begin = time.perf_counter()
            fn()
            seconds.append(time.perf_counter() - begin)
        if both:
            seconds = self.slowest(seconds)
        return {"seconds": seconds, "checksum": value}


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--flush-bytes", type=int, required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.rank == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            options.port = probe.getsockname()[1]
        for rank in range(1, RANKS):
            subprocess.Popen(
                [sys.executable, __file__, f"--elements={options.elements}",
                 f"--flush-bytes={options.flush_bytes}", f"--rank={rank}",
                 f"--port={options.port}"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[options.rank % len(cpus)]})
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{options.port}",
        rank=options.rank, world_size=RANKS,
    )
    worker = Worker(options.rank, options.elements, options.flush_bytes, cpus)
    if options.rank == 0:
        print(json.dumps({"torch": torch.__version__}), flush=True)
    while True:
        command = [None]
        if options.rank == 0:
            line = sys.stdin.readline()
            command = [json.loads(line) if line else None]
        dist.broadcast_object_list(command, src=0)
        if command[0] is None:
            break
        answer = worker.run(**command[0])
        if options.rank == 0:
            print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
