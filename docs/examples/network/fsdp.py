#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sharded training (FSDP2, HSDP) with each hook, beside PyTorch's own reductions.

    fsdp.py train       a GPT of 10 million parameters learns, from several seeds
    fsdp.py replicas    steps that hardly compute, with 25 MiB of shards on each rank
    fsdp.py shards      such steps on one machine, with PyTorch's reductions and ours

In the first two, models are replicated on two machines, which are network namespaces
joined by a link of 1 Gbit/s; each shards its replica over two ranks. Hooks are between
the machines. In the third, two ranks of this machine have the shards. As root:

    $(tools/python-env.sh) docs/examples/network/fsdp.py replicas --build=build \\
        --page=docs/examples/network/README.md

The models of a run train by turns, step by step, in the same processes. Prints a table,
or puts it into a page, between two lines

    <!-- MODE with FSDP, written by docs/examples/network/fsdp.py -->
    <!-- end of MODE with FSDP -->

--json=FILE is for tools/benchmarks.py --record.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path += [str(HERE.parent / "pytorch"), str(ROOT / "tools" / "python" / "src")]

import accuracy
import compare
import job
import link
import shared
import torch
import torch.distributed as dist
import train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy

import ddphook.torch

SCRIPT = "docs/examples/network/fsdp.py"
# The steps of each mode.
MODES = {"train": 80, "replicas": 40, "shards": 60}
# PowerSGD's first compressed step, and steps to warm up.
FIRST = 10 + compare.WARM_UP
NONE, OURS = "none", ", ours"
BETWEEN_MACHINES = {
    NONE: None,
    "bf16": {"hook": "bf16"},
    **{name: accuracy.HOOKS[name] for name in ("int8", "int4", "PowerSGD, rank 4")},
}
# The types in which PyTorch reduces, for hooks between shards.
TYPES = {NONE: None, "fp16": torch.float16, "bf16": torch.bfloat16}
# A step without its reductions.
LOCAL = "local"


class GPT(accuracy.Task):
    """The GPT of accuracy.py with 10 million parameters. A rank computes with two
    sequences, because four of them share two cores."""

    batch = 2

    def __init__(self, is_tiny):
        super().__init__(is_tiny, (320, 8, 5, 32))

    def make_optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


class Layers:
    """50 MiB of parameters, and eight rows of input. No step changes the parameters, so
    that gradients can be compared."""

    def __init__(self, is_tiny):
        self.width = 16 if is_tiny else 1280

    def make_model(self):
        layers = [nn.Linear(self.width, self.width, bias=False) for _ in range(8)]
        for layer in layers:
            nn.init.normal_(layer.weight, std=self.width**-0.5)
        return nn.Sequential(collections.OrderedDict(blocks=nn.Sequential(*layers)))

    def make_optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.0)

    def loss(self, model, generator):
        x = torch.randn(8, self.width, generator=generator)
        return model(x).square().sum()


class NoReduction:
    """A reduce-scatter that sends nothing: it returns this rank's own part."""

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])


class Sharded(train.Training):
    """One of the models: with a hook, or with reductions of PyTorch's."""

    def __init__(self, task, seed, mesh, hook=None, reduce_dtype=None):
        policy = MixedPrecisionPolicy(reduce_dtype=reduce_dtype)
        options = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": False}
        super().__init__(task, seed, **options)
        self.handle = hook and ddphook.torch.register(self.ddp, **hook)

    def wrap(self, model, **options):
        return accuracy.shard(model, **options)

    def error(self, exact):
        """Returns the distance of the last gradient from that of another model, relative
        to it, in the 2-norm."""
        squares = [0.0, 0.0]
        for mine, other in zip(self.ddp.parameters(), exact.ddp.parameters()):
            wanted = other.grad.to_local()
            squares[0] += (mine.grad.to_local() - wanted).square().sum().item()
            squares[1] += wanted.square().sum().item()
        lost, whole = train.over_ranks(squares, dist.ReduceOp.SUM)
        return (lost / whole) ** 0.5

    def result(self, exact):
        losses = train.over_ranks(self.losses, dist.ReduceOp.SUM)
        is_gpt = isinstance(self.task, GPT)
        return {
            "seconds": train.over_ranks(self.seconds, dist.ReduceOp.MAX)[FIRST:],
            "sent": statistics.median(self.sent[FIRST:]),
            "losses": [loss / dist.get_world_size() for loss in losses],
            "tested": self.task.test(self.ddp) if is_gpt else self.error(exact),
        }


def make_trainings(mode, task, seed, mesh):
    if mode == "shards":
        made = {}
        for name, dtype in TYPES.items():
            hook = {"hook": "allreduce" if dtype is None else name}
            made[name] = Sharded(task, seed, mesh, reduce_dtype=dtype)
            made[name + OURS] = Sharded(task, seed, mesh, hook)
    else:
        hooks = BETWEEN_MACHINES.items()
        made = {name: Sharded(task, seed, mesh, hook) for name, hook in hooks}
    if mode != "train":
        local = made[LOCAL] = Sharded(task, seed, mesh["shard"])
        for module in local.ddp.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_reduce_scatter(NoReduction())
    return made


def run_rank(arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dimensions = ("shard",) if arguments.mode == "shards" else ("replicate", "shard")
    shape = (2,) * len(dimensions)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=dimensions)
    task = (GPT if arguments.mode == "train" else Layers)(arguments.tiny)
    report = collections.defaultdict(list)
    for seed in range(arguments.seeds):
        trainings = make_trainings(arguments.mode, task, seed, mesh)
        train.train(trainings, arguments.steps, seed)
        for name, training in trainings.items():
            report[name].append(training.result(trainings[NONE]))
        for training in trainings.values():
            if training.handle:
                training.handle.close()
    job.write_report(arguments.folder, arguments.rank, report)
    dist.destroy_process_group()


def step_ms(runs):
    return 1e3 * statistics.median(time for run in runs for time in run["seconds"])


def speeds(report):
    """Yields names, each with the name that it is compared with, and pairs of a time in
    milliseconds and the multiple of the other's speed: for steps and, if local steps were
    measured, for reductions."""
    steps = {name: step_ms(runs) for name, runs in report.items()}
    for name in filter(LOCAL.__ne__, steps):
        base = name.removesuffix(OURS) if name.endswith(OURS) else NONE
        pairs = [(steps[name], steps[base] / steps[name])]
        if LOCAL in steps:
            mine, other = (steps[each] - steps[LOCAL] for each in (name, base))
            pairs.append((mine, other / mine))
        yield name, base, pairs


def train_table(report):
    """Returns the table of accuracy.py, with two more columns."""
    results = {
        name: [(*run["tested"], round(run["sent"])) for run in runs]
        for name, runs in report.items()
    }
    cells = [f" {time:.0f} | {ratio:.2f} |" for _, _, [(time, ratio)] in speeds(report)]
    cells = [" step, ms | times as fast |", "---|---|", *cells]
    return [line + cell for line, cell in zip(accuracy.table(results), cells)]


def steps_table(report):
    titles = ["", "compared with", "step, ms", "times as fast", "reductions, ms"]
    titles += ["times as fast", "bytes a step", "error"]
    rows = [titles, ["---"] * len(titles)]
    for name, base, pairs in speeds(report):
        [run] = report[name]
        row = [name, base if base != name else ""]
        for time, ratio in pairs:
            row += [f"{time:.1f}", f"{ratio:.2f}"]
        rows.append([*row, f"{run['sent']:,.0f}", f"{run['tested']:.1e}"])
    return ["| " + " | ".join(row) + " |" for row in rows]


def draw(report, path):
    """Draws losses over steps and over time, means of all seeds."""
    times = {name: step_ms(runs) / 1e3 for name, runs in report.items()}
    losses = {
        name: compare.smooth(list(map(statistics.mean, zip(*(run["losses"] for run in runs)))))
        for name, runs in report.items()
    }
    figure, [[left, right]] = shared.make_figure(1, 2)
    shared.draw_losses(left, losses, "GPT, 2 × 2 ranks")
    shared.draw_losses(right, losses, "1 Gbit/s between machines", times)
    shared.save_figure(figure, path)


def summarize(arguments, report, load):
    """Returns what tools/benchmarks.py records, and all runs."""
    sections = [{"title": title, "results": []} for title in ("step", "reductions")]
    for name, base, pairs in speeds(report):
        for section, (time, ratio) in zip(sections, pairs):
            result = {"name": name, "median_ms": round(time, 1)}
            if base != name:
                result["times_as_fast_as"] = {base: round(ratio, 2)}
            section["results"].append(result)
        sent = report[name][0]["sent"]
        sections[0]["results"][-1]["note"] = f"{sent:,.0f} bytes"
    return {
        "command": f"{SCRIPT} {arguments.mode}",
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "load": load,
        "sections": sections,
        "steps": arguments.steps,
        "realtime": arguments.realtime,
        "runs": report,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--rate", default="1gbit", help="of the link, for tc")
    parser.add_argument("--local", action="store_true", help="no slow link")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int, default=3, help="of the GPT")
    parser.add_argument("--tiny", action="store_true", help="a model for tests")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run ranks before other programs of this machine (SCHED_RR)",
    )
    parser.add_argument("--page", type=pathlib.Path, help="put the table there")
    parser.add_argument("--plot", type=pathlib.Path, help="an SVG file: losses of the GPT")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.steps = arguments.steps or MODES[arguments.mode]
    if arguments.steps <= FIRST:
        parser.error(f"expected more than {FIRST} steps, of which that many warm up")
    if arguments.rank is not None:
        run_rank(arguments)
        return
    is_local = arguments.local or arguments.mode == "shards"
    if os.geteuid() != 0 and not is_local:
        parser.error("network namespaces need root")
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    load = os.getloadavg()[0]
    build = arguments.build.resolve()
    os.environ.setdefault("DDPHOOK_LIBRARY_DIR", str(build / "lib"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        seeds = arguments.seeds if arguments.mode == "train" else 1
        words = [HERE / "fsdp.py", arguments.mode, f"--folder={folder}"]
        words += [f"--steps={arguments.steps}", f"--seeds={seeds}"]
        words += ["--tiny"] * arguments.tiny
        machines = [0, 0] if arguments.mode == "shards" else [0, 0, 1, 1]
        with link.Loopback() if is_local else link.Link(arguments.rate) as network:
            job.run_ranks(network, build, machines, words)
        report = job.read_reports(folder, 1)[0]
    table = (train_table if arguments.mode == "train" else steps_table)(report)
    if arguments.page:
        shared.write_into(arguments.page, f"{arguments.mode} with FSDP", SCRIPT, table)
    else:
        print("\n".join(table))
    if arguments.plot and arguments.mode == "train":
        draw(report, arguments.plot)
    if arguments.json:
        summary = summarize(arguments, report, load)
        arguments.json.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
