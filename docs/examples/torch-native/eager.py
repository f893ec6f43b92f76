# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of PyTorch's own run: DistributedDataParallel with PyTorch's hooks.

    torchrun --nproc-per-node=2 eager.py conv STEPS DIRECTORY

Writes the mean loss of each step for each hook, as DIRECTORY/eager.json.
"""

import json
import os
import pathlib
import sys

import tasks
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

HOOKS = ("allreduce", "fp16", "powersgd")
POWERSGD = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 3}


def register(ddp, hook):
    if hook == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd":
        state = powersgd.PowerSGDState(None, **POWERSGD)
        ddp.register_comm_hook(state, powersgd.powerSGD_hook)


def train(task, hook, steps):
    torch.manual_seed(0)
    # As in the exported step, each rank has buffers of its own.
    ddp = DistributedDataParallel(task.make_model(), forward_sync_buffers=False)
    register(ddp, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=task.learning_rate)
    losses = []
    for step in range(steps):
        x, y = task.batch(generator_of(dist.get_rank(), step))
        optimizer.zero_grad()
        loss = tasks.loss_of(ddp(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def generator_of(rank, step):
    """Draws the data of a rank in a step, here and in native.py."""
    return torch.Generator().manual_seed(1000 * step + rank)


def main():
    name, steps, directory = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = tasks.TASKS[name]()
    losses = {hook: train(task, hook, steps) for hook in HOOKS}
    if dist.get_rank() == 0:
        (directory / "eager.json").write_text(json.dumps(losses))
    dist.destroy_process_group()
    # Of PyTorch's threads one may be left, with which the interpreter's own end
    # sometimes aborts the process.
    os._exit(0)


if __name__ == "__main__":
    main()
