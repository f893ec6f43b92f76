# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The time of a training step under DDP: PyTorch's hooks and the compiled ones.

    torchrun --nproc-per-node=2 docs/examples/pytorch/step_time.py

A multilayer perceptron of 25 MiB. Each hook trains two models, one with
PyTorch's hook and one with ours, by turns, so that both see the same machine.
Prints medians, and how far apart the parameters are in the end.
"""

import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

import ddphook.torch

ROUNDS, STEPS, WARM_UP = 6, 10, 5
POWERSGD = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 3}


def make(bucket_cap_mb):
    torch.manual_seed(0)
    layers = [
        layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())
    ]
    model = nn.Sequential(*layers, nn.Linear(1024, 256))
    return DistributedDataParallel(
        model, gradient_as_bucket_view=True, bucket_cap_mb=bucket_cap_mb
    )


class Training:
    """A model, its data, and the times of its steps in seconds."""

    def __init__(self, ddp):
        self.ddp = ddp
        self.optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        self.generator = torch.Generator().manual_seed(dist.get_rank())
        self.times = []

    def run(self, steps):
        for _ in range(steps):
            x = torch.randn(16, 1024, generator=self.generator)
            y = torch.randn(16, 256, generator=self.generator)
            dist.barrier()
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            (self.ddp(x) - y).square().mean().backward()
            self.optimizer.step()
            self.times.append(time.perf_counter() - begin)

    def median_ms(self):
        return statistics.median(self.times[WARM_UP:]) * 1e3

    def parameters(self):
        return torch.cat([p.detach().flatten() for p in self.ddp.parameters()])


def compare(name, hook, state, options, bucket_cap_mb):
    theirs, ours = make(bucket_cap_mb), make(bucket_cap_mb)
    theirs.register_comm_hook(state, hook)
    with ddphook.torch.register(ours, name, **options):
        pair = Training(theirs), Training(ours)
        for _ in range(ROUNDS):
            for training in pair:
                training.run(STEPS)
        times = [training.median_ms() for training in pair]
        difference = (pair[0].parameters() - pair[1].parameters()).abs().max()
    if dist.get_rank() == 0:
        ratio = times[1] / times[0]
        print(
            f"| {name} | {times[0]:.1f} | {times[1]:.1f} | {ratio:.2f} "
            f"| {difference.item():.1g} |",
            flush=True,
        )


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        print("| hook | PyTorch's, ms | ours, ms | ratio | largest difference |")
        print("|---|---|---|---|---|")
    compare("allreduce", default_hooks.allreduce_hook, None, {}, 25)
    compare("fp16", default_hooks.fp16_compress_hook, None, {}, 25)
    compare("bf16", default_hooks.bf16_compress_hook, None, {}, 25)
    # One bucket: with several PyTorch's hook ends the process on Gloo.
    state = powersgd.PowerSGDState(None, **POWERSGD)
    compare("powersgd", powersgd.powerSGD_hook, state, POWERSGD, 100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
