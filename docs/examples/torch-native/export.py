# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a training step, with which native ranks train, and what they begin with.

    torchrun --nproc-per-node=2 export.py conv DIRECTORY

The step is plain PyTorch: parameters, buffers and data come in, new parameters,
new buffers and the mean loss go out, and each gradient goes through an all-reduce.
"""

import pathlib
import sys

import tasks
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.utils import _pytree

import ddphook.torch

collectives = torch.ops._c10d_functional


def mean(tensor):
    """Over all ranks, in a way that traces can hold."""
    return collectives.wait_tensor(collectives.all_reduce(tensor, "avg", "0"))


def make_step(model, learning_rate):
    def step(parameters, buffers, x, y):
        parameters = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        buffers = {k: v.clone() for k, v in buffers.items()}
        logits = torch.func.functional_call(model, (parameters, buffers), (x,))
        loss = tasks.loss_of(logits, y)
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        new = {
            name: (value - learning_rate * mean(gradient)).detach()
            for (name, value), gradient in zip(parameters.items(), gradients)
        }
        return new, buffers, mean(loss.detach())

    return step


def main():
    name, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    dist.init_process_group("gloo")
    task = tasks.TASKS[name]()
    torch.manual_seed(0)
    model = task.make_model()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    buffers = {k: v.detach() for k, v in model.named_buffers()}
    # Both ranks know the step; one writes it.
    if dist.get_rank() == 0:
        step = make_step(model, task.learning_rate)
        batch = task.batch(torch.Generator().manual_seed(0))
        ddphook.torch.export(
            step, parameters, buffers, *batch, file=directory / "step.mlir", whole=True
        )
        leaves = _pytree.tree_leaves((parameters, buffers))
        first = {f"arg{i}": value.clone() for i, value in enumerate(leaves)}
        save_file(first, directory / "begin.safetensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
