# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of compare.py: trains a model without a hook, with PyTorch's, with ours.

    torchrun --nproc-per-node=2 train.py resnet fp16 --steps=50 --json=result.json

The three models begin equal, see equal data, and train by turns, step by step,
in the same processes. A step takes as long as on its slower rank.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import time

import gpt
import resnet
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

import ddphook.torch

TASKS = {"resnet": resnet.Task, "gpt": gpt.Task}
# PyTorch's function, and for PowerSGD its rank.
HOOKS = {
    "allreduce": (default_hooks.allreduce_hook, None),
    "fp16": (default_hooks.fp16_compress_hook, None),
    "bf16": (default_hooks.bf16_compress_hook, None),
    "powersgd-2": (powersgd.powerSGD_hook, 2),
    "powersgd-4": (powersgd.powerSGD_hook, 4),
}
# Larger than any model here.
ONE_BUCKET_MB = 1000


class PayloadCounter:
    """Counts the bytes that PyTorch's hooks hand to all-reduces."""

    def __init__(self):
        self.bytes = 0
        self.all_reduce = dist.all_reduce
        dist.all_reduce = self

    def __call__(self, tensor, *arguments, **keywords):
        self.bytes += tensor.numel() * tensor.element_size()
        return self.all_reduce(tensor, *arguments, **keywords)


def sent_by_interface():
    """Bytes that have left through Gloo's network interface, if it is named."""
    name = os.environ.get("GLOO_SOCKET_IFNAME")
    if not name:
        return 0
    text = pathlib.Path("/proc/net/dev").read_text()
    return int(re.search(rf"\b{name}:(.*)", text)[1].split()[8])


class Training:
    """One of the three: a model, and what its steps took and gave."""

    def __init__(self, task, seed=0, **options):
        self.task = task
        torch.manual_seed(seed)
        self.ddp = self.wrap(task.make_model(), **options)
        self.optimizer = task.make_optimizer(self.ddp.parameters())
        self.seconds, self.losses = [], []
        self.bytes, self.sent = [], []

    def wrap(self, model, **options):
        return DistributedDataParallel(model, gradient_as_bucket_view=True, **options)

    def payload(self):
        """Bytes that this rank has handed to all-reduces so far."""
        gradients = sum(p.numel() * p.element_size() for p in self.ddp.parameters())
        return len(self.losses) * gradients

    def step(self, generator):
        payload = self.payload()
        dist.barrier()
        sent = sent_by_interface()
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.task.loss(self.ddp, generator)
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - begin)
        self.losses.append(loss.item())
        self.bytes.append(self.payload() - payload)
        # Other ranks of this machine may still be sending.
        dist.barrier()
        self.sent.append(sent_by_interface() - sent)

    def parameters(self):
        return torch.cat([p.detach().flatten() for p in self.ddp.parameters()])


class WithPyTorchs(Training):
    def __init__(self, task, counter, hook, options, **ddp_options):
        super().__init__(task, **ddp_options)
        self.counter = counter
        state = powersgd.PowerSGDState(None, **options) if options else None
        self.ddp.register_comm_hook(state, hook)

    def payload(self):
        return self.counter.bytes


class WithOurs(Training):
    def __init__(self, task, hook, options, **ddp_options):
        super().__init__(task, **ddp_options)
        self.handle = ddphook.torch.register(self.ddp, hook, **options)

    def payload(self):
        return self.handle.statistics().get("wire_bytes", 0)


def make_trainings(arguments):
    task = TASKS[arguments.task](arguments.tiny)
    hook, rank = HOOKS[arguments.hook]
    options, ddp_options = {}, {}
    if rank:
        options = {
            "matrix_approximation_rank": rank,
            "start_powerSGD_iter": arguments.compress_from,
        }
        # With several buckets PyTorch's PowerSGD ends the process on Gloo.
        ddp_options = {"bucket_cap_mb": ONE_BUCKET_MB}
    return {
        "none": Training(task),
        "pytorch": WithPyTorchs(task, PayloadCounter(), hook, options, **ddp_options),
        "ours": WithOurs(task, hook, options, **ddp_options),
    }


def train(trainings, steps, seed=0):
    order = list(trainings.values())
    for step in range(steps):
        for training in order:
            # A generator for each step of each rank; all three draw the same.
            drawn = (seed * steps + step) * dist.get_world_size() + dist.get_rank()
            training.step(torch.Generator().manual_seed(drawn))
        # Each is the first, the second and the last one equally often.
        order.append(order.pop(0))


def over_ranks(values, reduce):
    """A list of numbers, reduced over the ranks element by element."""
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, reduce)
    return tensor.tolist()


def settings(arguments):
    """What a result depends on, beside the machine."""
    names = ("task", "hook", "steps", "compress_from", "tiny")
    return {name: getattr(arguments, name) for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("hook", choices=HOOKS)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--compress-from", type=int, default=10)
    parser.add_argument("--tiny", action="store_true", help="a model for tests")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainings = make_trainings(arguments)
    train(trainings, arguments.steps)
    expected = trainings["pytorch"].parameters()
    difference = (trainings["ours"].parameters() - expected).abs().max()
    result = {
        "settings": settings(arguments),
        "date": datetime.date.today().isoformat(),
        "load": load,
        "realtime": os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO),
        "parameters": expected.numel(),
        "difference": difference.item(),
    }
    for side, training in trainings.items():
        losses = over_ranks(training.losses, dist.ReduceOp.SUM)
        result[side] = {
            "seconds": over_ranks(training.seconds, dist.ReduceOp.MAX),
            "losses": [loss / dist.get_world_size() for loss in losses],
            "bytes": training.bytes,
            "sent": training.sent,
        }
    trainings["ours"].handle.close()
    if dist.get_rank() == 0:
        arguments.json.write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
