# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the fuzzer for some time, or on given seeds; tools/fuzz.sh calls it.

Failures are kept, with what reproduces them, as KEEP/seed-N: the module, its
inputs, the command line and the outcome, and the same of the smaller program that
the reducer found."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import shlex
import sys
import time
import traceback

import generate
import reduce
import run

BAD = ("wrong", "crashed", "hung")


def run_seed(seed):
    """The outcome of one seed. An exception is the fuzzer's own mistake."""
    try:
        return seed, run.run(generate.generate(seed))
    except Exception:
        return seed, run.Outcome("invalid", traceback.format_exc(limit=-3))


def write(program, outcome, directory):
    """The files of one run, and how to repeat it."""
    os.makedirs(directory, exist_ok=True)
    again = run.run(program, keep=str(directory))
    command = shlex.join(run.command(program, str(directory)))
    commands = "".join(
        f"{' '.join(f'{k}={v}' for k, v in launch.items())} {command} &\n"
        for launch in run.launches(program, port=29500)
    )
    command = f"{commands}wait" if program.nodes else command
    (directory / "README").write_text(
        f"{run.describe(program)}\n{outcome.kind}: {outcome.message}\n"
        f"again: {again.kind}: {again.message}\n\n{command}\n"
    )


def keep_failure(seed, outcome, keep, seconds):
    """Where the failure is kept, with a smaller one beside it."""
    directory = pathlib.Path(keep) / f"seed-{seed}"
    program = generate.generate(seed)
    write(program, outcome, directory)
    if seconds > 0:
        smaller = reduce.reduce(program, outcome, seconds)
        write(smaller, outcome, directory / "reduced")
        directory /= "reduced"
        return f"  {directory}: {reduce.summary(smaller)}"
    return f"  {directory}"


class Tally:
    def __init__(self):
        self.kinds = collections.Counter()
        self.messages = collections.Counter()
        self.start = time.monotonic()

    def add(self, outcome):
        self.kinds[outcome.kind] += 1
        if outcome.kind not in ("ok", "wrong"):
            self.messages[outcome.key] += 1

    def summary(self):
        kinds = self.kinds
        count = sum(kinds.values())
        share = 100 * kinds["refused"] / max(count, 1)
        seconds = time.monotonic() - self.start
        lines = [f"{n:6d}  {key}" for key, n in self.messages.most_common()]
        lines.append(
            f"fuzz: {count} modules in {seconds:.0f} s, {kinds['wrong']} wrong, "
            f"{kinds['crashed']} crashed, {kinds['hung']} hung, "
            f"{kinds['refused']} refused ({share:.1f} %), {kinds['invalid']} invalid"
        )
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=0, help="instead of minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", default="build/fuzz")
    parser.add_argument("--reduce", type=float, default=120, help="seconds a failure")
    options = parser.parse_args()
    if not os.access(run.tool(), os.X_OK):
        parser.error(f"expected {run.tool()}, which does not exist: build it first")

    tally, end = Tally(), time.monotonic() + options.minutes * 60
    next_seed, kept = options.seed, collections.Counter()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        running = set()

        def wants_more():
            if options.count:
                return next_seed < options.seed + options.count
            return time.monotonic() < end

        while True:
            while wants_more() and len(running) < 2 * options.jobs:
                running.add(pool.submit(run_seed, next_seed))
                next_seed += 1
            if not running:
                break
            done, running = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                result = future.result()
                if isinstance(result, str):
                    print(result, flush=True)
                    continue
                seed, outcome = result
                tally.add(outcome)
                if outcome.kind in (*BAD, "invalid"):
                    print(f"seed {seed}: {outcome.kind}: {outcome.message}", flush=True)
                # All that is bad is kept, and one refusal of a kind; a few of each
                # kind are made smaller.
                kept[outcome.key] += 1
                is_first = kept[outcome.key] <= (5 if outcome.kind in BAD else 1)
                if outcome.kind in BAD or outcome.kind == "refused" and is_first:
                    seconds = options.reduce if is_first else 0
                    running.add(
                        pool.submit(keep_failure, seed, outcome, options.keep, seconds)
                    )
    print(tally.summary())
    return 1 if any(tally.kinds[kind] for kind in (*BAD, "invalid")) else 0


if __name__ == "__main__":
    sys.exit(main())
