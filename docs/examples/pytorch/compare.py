# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two models, each hook of ours beside PyTorch's and beside none, on two ranks.

    $(tools/python-env.sh) docs/examples/pytorch/compare.py \
        --page=docs/pytorch-speed.md --plot=docs/examples/pytorch/loss-and-bytes.svg

Prints a table in Markdown, or puts it into a page, between two lines

    <!-- models on NAME, written by docs/examples/pytorch/compare.py -->
    <!-- end of models on NAME -->

where NAME is "one machine", or "a link" with --link, which needs root. The runs
are kept in the folder that --results names; those that are there already are
not done again.
"""

import argparse
import importlib.metadata
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap

import ddphook

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "network")]
import link  # noqa: E402
import shared  # noqa: E402

SCRIPT = "docs/examples/pytorch/compare.py"
TITLES = {"resnet": "ResNet-18", "gpt": "GPT"}
HOOKS = {
    "allreduce": "allreduce",
    "fp16": "fp16",
    "bf16": "bf16",
    "powersgd-2": "PowerSGD, rank 2",
    "powersgd-4": "PowerSGD, rank 4",
}
SIDES = ("none", "pytorch", "ours")
# The first round trains longer, for the losses.
TRAINING_STEPS = {"resnet": 120, "gpt": 200}
TIMED_STEPS = 40
# PyTorch's hooks warm up, and DDP makes its buckets anew.
WARM_UP = 3
SMOOTH = 20  # steps, of which losses are means
DRAWN = 4  # Every fourth step, for a file of half the size.
HANG_S = 1800


def run(arguments, settings, path):
    """Runs train.py on two ranks, which writes `path`."""
    environment = {
        "OMP_NUM_THREADS": "1",
        # Addresses without names are no news.
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    words = [str(HERE / "train.py"), settings["task"], settings["hook"]]
    words += [f"--steps={settings['steps']}", f"--json={path}"]
    words += [f"--compress-from={settings['compress_from']}"]
    words += ["--tiny"] * settings["tiny"]
    if arguments.link:
        with link.Link(arguments.link) as network:
            settings = [f"{name}={value}" for name, value in environment.items()]
            words = ["env", *settings, sys.executable, *words]
            status = link.run_job(network, words)
    else:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
        launcher += ["--standalone", "--local-addr=127.0.0.1"]
        status = subprocess.run(
            [sys.executable, *launcher, *words],
            env={**os.environ, **environment},
            timeout=HANG_S,
            check=False,
        ).returncode
    if status:
        sys.exit(f"error: {settings['task']} with {settings['hook']} failed")


def run_all(arguments, folder):
    """For each task and hook the results of its rounds, the longest run first."""
    results = {task: {hook: [] for hook in arguments.hooks} for task in arguments.tasks}
    rounds = range(arguments.rounds)
    for number, task, hook in itertools.product(
        rounds, arguments.tasks, arguments.hooks
    ):
        is_training = number == 0 and not arguments.link
        steps = TRAINING_STEPS[task] if is_training else TIMED_STEPS
        settings = {
            "task": task,
            "hook": hook,
            "steps": arguments.steps or steps,
            "compress_from": arguments.compress_from,
            "tiny": arguments.tiny,
        }
        path = folder / f"{arguments.link or 'local'}.{task}.{hook}.{number}.json"
        if not path.exists():
            run(arguments, settings, path)
        result = json.loads(path.read_text())
        if result["settings"] != settings:
            sys.exit(f"error: expected a run of {settings} in {path}")
        results[task][hook].append(result)
    return results


def milliseconds(result, side, first):
    return 1e3 * statistics.median(result[side]["seconds"][first:])


def final_loss(result, side):
    return statistics.mean(result[side]["losses"][-SMOOTH:])


def ratio(rounds, side, baseline, first):
    """The median of the runs' ratios, with the lowest and the highest one."""
    ratios = [
        milliseconds(result, side, first) / milliseconds(result, baseline, first)
        for result in rounds
    ]
    text = f"{statistics.median(ratios):.2f}"
    if len(ratios) > 1:
        text += f" ({min(ratios):.2f} to {max(ratios):.2f})"
    return text


def rows_of_task(hooks, first, is_link):
    """The rows of the table: none, and each hook, beside its own runs of none."""

    def median(rounds, side):
        return statistics.median(milliseconds(result, side, first) for result in rounds)

    def on_link(rounds, side):
        sent = [count for result in rounds for count in result[side]["sent"][first:]]
        return f"{statistics.median(sent):,.0f}"

    every = [result for rounds in hooks.values() for result in rounds]
    row = ["none", f"{every[0]['none']['bytes'][-1]:,}"]
    row += [on_link(every, "none"), ""] if is_link else []
    row += [""] * 5
    row += [] if is_link else [f"{final_loss(every[0], 'none'):.3f}", ""]
    yield row
    for hook, rounds in hooks.items():
        row = [HOOKS[hook], f"{rounds[0]['ours']['bytes'][-1]:,}"]
        row += [on_link(rounds, side) for side in SIDES[1:]] if is_link else []
        row += [f"{median(rounds, side):.1f}" for side in SIDES]
        row += [ratio(rounds, "ours", "pytorch", first)]
        row += [ratio(rounds, "ours", "none", first)]
        if not is_link:
            row += [f"{final_loss(rounds[0], side):.3f}" for side in SIDES[1:]]
        yield row


def table(results, first, is_link):
    header = ["", "bytes a step"]
    header += ["on the link, PyTorch's", "ours"] if is_link else []
    header += ["none, ms", "PyTorch's, ms", "ours, ms"]
    header += ["ours / PyTorch's", "ours / none"]
    header += [] if is_link else ["loss, PyTorch's", "ours"]
    lines = [header]
    for task, hooks in results.items():
        rows = list(rows_of_task(hooks, first, is_link))
        rows[0][0] = f"**{TITLES[task]}**, none"
        lines += rows
    lines = ["| " + " | ".join(line) + " |" for line in lines]
    return [lines[0], "|---" * len(header) + "|", *lines[1:]]


def conditions(arguments, results):
    """A sentence on what was measured, where and when."""
    of_hooks = [rounds for hooks in results.values() for rounds in hooks.values()]
    every = [result for rounds in of_hooks for result in rounds]
    processors = pathlib.Path("/proc/cpuinfo").read_text()
    processor = re.search(r"model name\s*: (.*)", processors)
    loads = sorted(result["load"] for result in every)
    dates = sorted({result["date"] for result in every})
    rate = f", a link of {arguments.link}" if arguments.link else ""
    text = (
        f"{' to '.join(dict.fromkeys([dates[0], dates[-1]]))}, PyTorch "
        f"{importlib.metadata.version('torch')}, ddphook {ddphook.__version__}. Two "
        f"ranks with one thread each on {os.cpu_count()} cores"
        f"{f' of an {processor[1]}' if processor else ''}{rate}. "
        f"Runs of each hook: {arguments.rounds}; with real-time priority: "
        f"{sum(r['realtime'] for r in every)} of {len(every)}. Load of the machine: "
        f"{loads[0]:.0f} to {loads[-1]:.0f}."
    )
    return textwrap.fill(text, 98)


def smooth(values):
    """Means of up to SMOOTH values before and at each one."""
    windows = (values[max(0, i + 1 - SMOOTH) : i + 1] for i in range(len(values)))
    return [statistics.mean(window) for window in windows]


def draw(results, path):
    figure, grid = shared.make_figure(len(results), 2)
    for (left, right), (task, hooks) in zip(grid, results.items()):
        lines = [("no hook", next(iter(hooks.values()))[0]["none"], "black", "-")]
        for number, (hook, rounds) in enumerate(hooks.items()):
            color = f"C{number}"
            ours, theirs = rounds[0]["ours"], rounds[0]["pytorch"]
            lines.append((f"{HOOKS[hook]}, ours", ours, color, "-"))
            lines.append((f"{HOOKS[hook]}, PyTorch's", theirs, color, ":"))
        for label, side, color, style in lines:
            losses, sent = smooth(side["losses"]), 0
            megabytes = [(sent := sent + count) / 1e6 for count in side["bytes"]]
            look = {"color": color, "linestyle": style, "linewidth": 1.2}
            steps = range(1, len(losses) + 1)
            left.plot(steps[::DRAWN], losses[::DRAWN], label=label, **look)
            right.plot(megabytes[::DRAWN], losses[::DRAWN], **look)
        left.set(xlabel="step", ylabel="loss", title=TITLES[task])
        right.set(xlabel="MB handed to all-reduces by each rank", xscale="log")
        left.legend(fontsize="small")
    shared.save_figure(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--hooks", nargs="+", choices=HOOKS, default=list(HOOKS))
    parser.add_argument("--rounds", type=int, default=3, help="runs of each hook")
    parser.add_argument("--steps", type=int, help="of every run")
    parser.add_argument(
        "--compress-from", type=int, default=10, help="PowerSGD's first compressed step"
    )
    parser.add_argument("--tiny", action="store_true", help="models for tests")
    parser.add_argument(
        "--link", metavar="RATE", help="between network namespaces; 1gbit, say"
    )
    parser.add_argument("--results", type=pathlib.Path, help="where runs are kept")
    parser.add_argument("--page", type=pathlib.Path, help="put the table there")
    parser.add_argument("--plot", type=pathlib.Path, help="an SVG file: losses")
    arguments = parser.parse_args()
    first = arguments.compress_from + WARM_UP
    if (arguments.steps or TIMED_STEPS) <= first:
        parser.error(f"expected more than {first} steps, of which that many warm up")
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.results or pathlib.Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        results = run_all(arguments, folder)
    lines = table(results, first, bool(arguments.link))
    lines += ["", conditions(arguments, results)]
    if arguments.page:
        place = "a link" if arguments.link else "one machine"
        shared.write_into(arguments.page, f"models on {place}", SCRIPT, lines)
    else:
        print("\n".join(lines))
    if arguments.plot:
        draw(results, arguments.plot)


if __name__ == "__main__":
    main()
