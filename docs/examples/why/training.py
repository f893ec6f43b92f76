# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of a PyTorch training job, with its gradients reduced in one of four
ways: by DDP's eager hooks, by PyTorch's compiler in two settings, by ddphook.

Started by compiled_path.py, one process a rank. Runs small models whose
gradients are known in advance, for counting differences, and one of 25 MiB, for
time. Writes what it saw to files; draws no conclusions.
"""

import contextlib
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    powerSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel

HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "noop": debugging_hooks.noop_hook,
    "powersgd": powerSGD_hook.powerSGD_hook,
}
ELEMENTS = 1 << 20
# Gradients of a young model, and of one that has nearly learnt: half precision
# is subnormal below 6e-5.
SCALES = {"gaussian": 1.0, "small": 1e-6}


class Given(torch.nn.Module):
    """The gradient of its only parameter is its input."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(ELEMENTS))

    def forward(self, gradient):
        return (self.weight * gradient).sum()


class Mlp(torch.nn.Module):
    """Seven linear layers, 25.02 MiB of gradients."""

    def __init__(self):
        super().__init__()
        layers = []
        for _ in range(6):
            layers += [torch.nn.Linear(1024, 1024), torch.nn.ReLU()]
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 256))

    def forward(self, batch):
        return self.net(batch).square().mean()


MODELS = {"gaussian": Given, "small": Given, "mlp": Mlp}


def ready_order(module):
    """Names and parameters as DDP packs them: the last layer first, a layer's
    bias before its weight."""
    return list(reversed(list(module.named_parameters())))


def make_ddp(module, hook):
    ddp = DistributedDataParallel(module)
    if hook == "none":
        return ddp
    state = None
    if hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2)
    ddp.register_comm_hook(state, HOOKS[hook])
    return ddp


def backward(step, mode, batch):
    """One forward and backward pass; compiled autograd surrounds both, as its
    documentation asks."""
    context = contextlib.nullcontext()
    if mode in COMPILED:
        from torch._dynamo import compiled_autograd

        context = compiled_autograd._enable(
            lambda graph: torch.compile(graph, fullgraph=True)
        )
    with context:
        step(batch).backward()


def gradients(module):
    return {
        name: p.grad.detach().clone().reshape(-1)
        for name, p in module.named_parameters()
    }


def measure(module, hook, mode, batch, steps, compiled):
    """Gradients of the last of `steps` steps, the time of each step, and with
    ddphook the part of it that the reduction took, in ms. The gradients are
    cleared in between; parameters do not change."""
    step = module
    if mode != "ddphook":
        step = make_ddp(module, hook)
    if mode in COMPILED:
        step = torch.compile(step)
    times, reductions = [], []
    for _ in range(steps):
        module.zero_grad()
        dist.barrier()
        begin = time.perf_counter()
        backward(step, mode, batch)
        if mode == "ddphook":
            local = time.perf_counter()
            parameters = [p for _, p in ready_order(module)]
            reduced = compiled.reduce([p.grad for p in parameters])
            for parameter, gradient in zip(parameters, reduced):
                parameter.grad = gradient
            reductions.append(1e3 * (time.perf_counter() - local))
        times.append(1e3 * (time.perf_counter() - begin))
    return gradients(module), times, reductions


COMPILED = ("compiled", "emulated")


def main():
    rank, world, port, hook, mode, folder, steps = sys.argv[1:]
    rank, world, steps = int(rank), int(world), int(steps)
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if mode in COMPILED:
        torch._dynamo.config.optimize_ddp = "python_reducer"
        torch._inductor.config.emulate_precision_casts = mode == "emulated"
    dist.init_process_group("gloo", rank=rank, world_size=world)
    runtime = None
    if mode == "ddphook":
        import c_runtime

        runtime = c_runtime.Runtime(rank, world)
    report = {}
    for name, model in MODELS.items():
        torch._dynamo.reset()
        torch.manual_seed(7)
        module = model()
        torch.manual_seed(1000 + rank)
        if name == "mlp":
            batch = torch.randn(32, 1024)
        else:
            batch = SCALES[name] * torch.randn(ELEMENTS)
        compiled = runtime and runtime.load(f"{folder}/{name}.so")
        count = steps if name == "mlp" else 3
        grads, times, reductions = measure(
            module, hook, mode, batch, count, compiled
        )
        save_file(grads, f"{folder}/{name}.{rank}")
    # The first steps compile, allocate, and let DDP form its buckets.
    report["first_ms"] = times[0]
    report["step_ms"] = statistics.median(times[4:])
    if reductions:
        report["reduction_ms"] = statistics.median(reductions[4:])
    with open(f"{folder}/report.{rank}.json", "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        # One line for the table; whoever started the ranks ends the others.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = [line for line in lines if line.startswith("Explanation: ")]
        reason = told[0].removeprefix("Explanation: ") if told else lines[0]
        print(f"{type(error).__name__}: {reason}", file=sys.stderr, flush=True)
        os._exit(1)
