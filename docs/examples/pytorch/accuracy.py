# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a small GPT knows of text that it has not seen, trained with each hook.

    torchrun --nproc-per-node=2 accuracy.py --page=docs/quantization.md

One after the other, models that begin equal train on equal data, each with
another hook, and predict the next byte of the last tenth of the text; and so from
several seeds, of which each gives the models other parameters and other data.
Prints a table in Markdown, or puts it into a page, between two lines

    <!-- small GPT, written by docs/examples/pytorch/accuracy.py -->
    <!-- end of small GPT -->

With --sharded, fully_shard is applied to the models, and the all-gathers of parameters have
the hooks.
"""

import argparse
import pathlib
import statistics
import sys

import gpt  # Finds shared.
import shared
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import ddphook.torch

SCRIPT = "docs/examples/pytorch/accuracy.py"
HOOKS = {
    "none": None,
    "fp16": {"hook": "fp16"},
    "int8": {"hook": "int8"},
    "fp8": {"hook": "fp8"},
    "int4": {"hook": "int4"},
    "int4, no error feedback": {"hook": "int4", "error_feedback": False},
    "quantization_pertensor": {"hook": "quantization_pertensor"},
    "quantization_perchannel": {"hook": "quantization_perchannel"},
    **{
        f"PowerSGD, rank {rank}{name}": {
            "hook": "powersgd",
            "matrix_approximation_rank": rank,
            "start_powerSGD_iter": 10,
            **options,
        }
        for rank, name, options in (
            (8, "", {}),
            (4, "", {}),
            (4, ", int8", {"wrapper": "int8"}),
            (4, ", int4", {"wrapper": "int4"}),
            (4, ", alternating", {"alternate": True}),
            (4, ", int8, alternating", {"wrapper": "int8", "alternate": True}),
            (2, "", {}),
        )
    },
}
# For all-gathers of parameters.
SHARDED = {
    "none": {},
    **{name: {"gather_hook": name} for name in ("bf16", "int8", "fp8")},
    "int4": {"gather_hook": ddphook.Int4(error_feedback=False)},
}
SIZES = (64, 2, 4, 32)  # width, layers, heads, context


class Task(gpt.Task):
    """The GPT of gpt.py, with fewer parameters and a text to be tested on."""

    def __init__(self, is_tiny, sizes=SIZES):
        super().__init__(is_tiny)
        if not is_tiny:
            self.sizes = sizes
        self.context = self.sizes[-1]
        begin = len(self.text) * 9 // 10
        self.text, self.unseen = self.text[:begin], self.text[begin:]

    def test(self, model):
        """Of the bytes of the unseen text the share that is predicted, and the loss;
        every rank tests some windows."""
        rank, world = dist.get_rank(), dist.get_world_size()
        windows = len(self.unseen) // (self.context + 1)
        rows = self.unseen[: windows * (self.context + 1)].view(windows, -1)
        rows = rows[rank::world]
        with torch.no_grad():
            logits = model(rows[:, :-1]).flatten(0, 1)
        wanted = rows[:, 1:].flatten()
        right = (logits.argmax(1) == wanted).sum()
        loss = functional.cross_entropy(logits, wanted, reduction="sum")
        sums = torch.tensor([right, loss, len(wanted)], dtype=torch.float64)
        dist.all_reduce(sums)
        return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def shard(model, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def train(task, options, steps, seed, is_sharded):
    """Accuracy and loss on the unseen text, and what a rank sends in a step."""
    torch.manual_seed(seed)
    model = task.make_model()
    if is_sharded:
        ddp, options = shard(model), {"hook": "allreduce", **options}
    else:
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = task.make_optimizer(ddp.parameters())
    handle = options and ddphook.torch.register(ddp, **options)
    for step in range(steps):
        drawn = (seed * steps + step) * dist.get_world_size() + dist.get_rank()
        optimizer.zero_grad()
        task.loss(ddp, torch.Generator().manual_seed(drawn)).backward()
        optimizer.step()
    sent = sum(p.numel() * p.element_size() for p in ddp.parameters())
    if handle:
        sent = handle.statistics()["wire_bytes"] // steps
    tested = task.test(ddp if is_sharded else ddp.module)
    if handle:
        handle.close()
    return *tested, sent


def spread(values, digits):
    """The mean and the standard deviation of what the seeds gave."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0
    mean = round(statistics.mean(values), digits) + 0.0  # No zero has a sign.
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def table(results):
    """Results of a hook are of one seed after the other; the first hook's are what others'
    losses are compared with, seed by seed."""
    lines = [
        "| hook | test accuracy, % | test loss | more than none's | bytes a step |",
        "|---|---|---|---|---|",
    ]
    [first, *_] = results.values()
    for name, runs in results.items():
        accuracies, losses, sent = zip(*runs)
        more = [loss - other[1] for loss, other in zip(losses, first)]
        columns = (
            spread([100 * accuracy for accuracy in accuracies], 2),
            spread(losses, 3),
            spread(more, 4),
        )
        lines.append(f"| {name} | {' | '.join(columns)} | {sent[0]:,} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hooks", nargs="+", choices=HOOKS | SHARDED)
    parser.add_argument("--sharded", action="store_true", help="hooks of all-gathers")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a model for tests")
    parser.add_argument("--page", type=pathlib.Path, help="put the table there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    task = Task(arguments.tiny)
    results = {}
    hooks = SHARDED if arguments.sharded else HOOKS
    for name in arguments.hooks or hooks:
        results[name] = [
            train(task, hooks[name], arguments.steps, seed, arguments.sharded)
            for seed in range(arguments.seeds)
        ]
        if dist.get_rank() == 0:
            print(table(results)[-1], file=sys.stderr, flush=True)
    if dist.get_rank() == 0:
        if arguments.page:
            shared.write_into(arguments.page, "small GPT", SCRIPT, table(results))
        else:
            print("\n".join(table(results)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
