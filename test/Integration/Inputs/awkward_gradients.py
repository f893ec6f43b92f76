# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the entry points of awkward-gradients.mlir and compares every bit.

usage: awkward_gradients.py DDPHOOK-EXEC MODULE.so DIRECTORY HOOK

What an entry point has to give is computed here, in Python's own floats: a
product, sum or difference of two f32 numbers in f64, rounded to f32, is the f32
result. Nothing of ddphook or numpy is used. Not a test of kernels (parity is):
a test that no pass lets two values share memory that they may not share.
"""

import functools
import os
import random
import struct
import subprocess
import sys

import plain_safetensors

SEED = 4711
A, B, V = (3, 5), (3, 5), (7,)


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def bf16(x):
    """Of an f32 number, not NaN: the nearest bfloat16, to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    bits += 0x7FFF + ((bits >> 16) & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


class PerRank:
    """A tensor on every rank: flat lists of f32 numbers."""

    def __init__(self, lists):
        self.lists = lists

    def _combine(self, other, function):
        if not isinstance(other, PerRank):
            other = PerRank([[other] * len(x) for x in self.lists])
        return PerRank(
            [
                [f32(function(a, b)) for a, b in zip(x, y)]
                for x, y in zip(self.lists, other.lists)
            ]
        )

    def __add__(self, other):
        return self._combine(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._combine(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._combine(other, lambda a, b: a * b)

    def __neg__(self):
        return PerRank([[-a for a in x] for x in self.lists])

    def slice(self, begin, end):
        return PerRank([x[begin:end] for x in self.lists])

    def transpose(self, rows, columns):
        return PerRank(
            [
                [x[i * columns + j] for j in range(columns) for i in range(rows)]
                for x in self.lists
            ]
        )


class Group:
    """All-reduce as the hook does it; at most two ranks, so that the order of a
    sum does not matter."""

    def __init__(self, hook):
        self.hook = hook

    def _reduce(self, value, divide):
        world = len(value.lists)
        wire = f32 if self.hook in ("allreduce", "noop") else f16
        lists = value.lists
        if self.hook.endswith("-in-bf16"):
            lists = [[bf16(x) for x in values] for values in lists]
        lists = [[wire(x) for x in values] for values in lists]
        if not self.hook.endswith("noop"):
            if divide:
                lists = [[wire(x / world) for x in values] for values in lists]
            total = lists[0]
            for other in lists[1:]:
                total = [wire(a + b) for a, b in zip(total, other)]
            lists = [total] * world
        if self.hook.endswith("-in-bf16"):
            lists = [[bf16(x) for x in values] for values in lists]
        return PerRank([list(x) for x in lists])

    def mean(self, value):
        return self._reduce(value, True)

    def sum(self, value):
        return self._reduce(value, False)


# One function for each entry point: from the group and the arguments to the
# results.


def read_after(dp, a, b):
    g = a * b
    r = dp.mean(g)
    return r, g + b


def read_before(dp, a, b):
    g = a * b
    return dp.mean(g), g * g


def packed_twice(dp, a, b):
    g = a * b
    return dp.mean(g), dp.mean(g), dp.sum(g)


def shared_fill(dp, a, b):
    return dp.mean(a + 1.0), dp.mean(b + 1.0)


def fill_read_later(dp, a, b):
    r = dp.sum(a + 1.0)
    return r, (b * 0.0 + 1.0) + b


def loop(dp, a, b, n):
    # The number of iterations is the same on all ranks.
    g = a * 0.0 + 1.0
    for _ in range(n):
        g = g + a
    return (dp.mean(g),)


def transposed(dp, a, b):
    h = a * b
    return dp.mean(h.transpose(3, 5)), h


def argument(dp, a, b):
    r = dp.mean(a)
    return r, a + r, a


def not_in_place(dp, a, b):
    return (dp.mean(-a),)


def overwritten(dp, a, b):
    h = a * b
    g = h + a
    return dp.mean(g), h + b


def branch(dp, a, b, c):
    g = a * b
    r = dp.mean(g)
    # The condition is the same on all ranks.
    return r, (g + a if c else r)


def branch_produces(dp, a, b, c):
    return (dp.mean(a + b if c else a),)


def slice_after(dp, a, b):
    g = a * b
    return dp.mean(g), g.slice(5, 10)


def slice_is_gradient(dp, a, b):
    g = a * b
    return dp.mean(g.slice(5, 10)), dp.mean(g), g


def update(dp, w, g):
    r = dp.mean(g * g)
    return w - r, w


def update_crosswise(dp, v, w, g):
    r = dp.mean(g)
    return w - r, v - r


def dependent(dp, a, b):
    r0 = dp.mean(a * b)
    g1 = r0 * b
    return r0, dp.mean(g1), g1


def loop_of_reductions(dp, a, b):
    x = b
    for _ in range(3):
        x = dp.mean(x + a)
    return (x,)


def loop_that_swaps(dp, a, b):
    x, y = a, b
    for _ in range(3):
        x, y = y, dp.mean(x)
    return x, y


def loop_with_history(dp, a, b):
    x, last = a, b
    for _ in range(3):
        x, last = dp.mean(x + last), x
    return x, last


def reduced_is_used(dp, a, b):
    r = dp.mean(a * b)
    return r, r + r, r * a


def small(dp, z, s, v):
    return dp.mean(z), dp.mean(s * s), dp.sum(v)


def called(dp, a, b):
    def inner(x, y):
        return dp.mean(x * y)

    first = inner(a, b)
    second = inner(first, a)
    return first + second, a * b


def buckets(dp, a, b):
    # Slices of one bucket, a part computed in its place, and the whole again.
    doubled = a * 2.0
    reduced = dp.sum(b)
    return doubled, reduced, a, b


def returned_twice(dp, a, b, c):
    g = a * b
    return dp.mean(g + b), g, dp.mean(a), g.slice(5, 10), (g if c else b)


def returns_both(dp, a, b):
    g = a * b
    return g + b, dp.mean(g)


def on_memory(dp, a, b):
    r = dp.mean(a * b)
    return r, r + b, dp.sum(r + b)


ENTRIES = {
    read_after: [A, B],
    read_before: [A, B],
    packed_twice: [A, B],
    shared_fill: [A, B],
    fill_read_later: [A, B],
    loop: [A, B, "index"],
    transposed: [A, B],
    argument: [A, B],
    not_in_place: [A, B],
    overwritten: [A, B],
    branch: [A, B, "i1"],
    branch_produces: [A, B, "i1"],
    slice_after: [A, B],
    slice_is_gradient: [A, B],
    update: [A, B],
    update_crosswise: [A, A, A],
    dependent: [A, B],
    loop_of_reductions: [A, B],
    loop_that_swaps: [A, B],
    loop_with_history: [A, B],
    reduced_is_used: [A, B],
    small: [(0, 3), (), V],
    called: [A, B],
    buckets: [A, B],
    returned_twice: [A, B, "i1"],
    returns_both: [A, B],
    on_memory: [A, B],
}


def make_arguments(shapes, world, generator):
    """Values for the model, and the same as contents of files."""
    arguments, files = [], [{} for _ in range(world)]
    for index, shape in enumerate(shapes):
        name = f"arg{index}"
        if isinstance(shape, str):
            value = generator.randrange(4) if shape == "index" else generator.random() < 0.5
            content = struct.pack("<q" if shape == "index" else "<?", value)
            for file in files:
                file[name] = ("I64" if shape == "index" else "BOOL", (), content)
            arguments.append(value)
            continue
        lists = [
            [f32(generator.gauss(0, 1)) for _ in range(count(shape))]
            for _ in range(world)
        ]
        for file, values in zip(files, lists):
            file[name] = ("F32", shape, struct.pack(f"<{len(values)}f", *values))
        arguments.append(PerRank(lists))
    return arguments, files


def check(tool, module, directory, name, compute, shapes, world, steps, generator):
    """Runs one entry point in one process group; returns where its results are
    not what `compute` makes of the arguments, step by step."""
    prefix = os.path.join(directory, f"{name}.{world}")
    expected = []
    for step in range(steps):
        arguments, files = make_arguments(shapes, world, generator)
        for rank, tensors in enumerate(files):
            plain_safetensors.write(f"{prefix}.in.{rank}.{step}", tensors)
        expected.append(compute(*arguments))
    command = [tool, module, f"--entry={name}", f"--ranks={world}"]
    command += [f"--steps={steps}", f"--inputs={prefix}.in.{{rank}}.{{step}}"]
    command += [f"--outputs={prefix}.out.{{rank}}.{{step}}"]
    subprocess.run(command, check=True, timeout=120)
    differences = []
    for step, results in enumerate(expected):
        for rank in range(world):
            found = plain_safetensors.read(f"{prefix}.out.{rank}.{step}")
            where = f"{name}, {world} ranks, rank {rank}, step {step}"
            if len(found) != len(results):
                differences.append(f"{where}: {len(found)} results")
            for index, value in enumerate(results):
                want = value.lists[rank]
                _, _, got = found.get(f"result{index}", ("", (), b""))
                if got != struct.pack(f"<{len(want)}f", *want):
                    got = list(struct.unpack(f"<{len(got) // 4}f", got))
                    differences.append(
                        f"{where}, result {index}: expected {want}, but got {got}"
                    )
    return differences


def report(entries, differences):
    """Says how a whole run went; gives the exit status."""
    for difference in differences:
        print("error:", difference)
    print(f"{entries} entry points, {len(differences)} differences")
    return 1 if differences else 0


def run(entries):
    """Runs and compares entry points; the exit status of the program."""
    tool, module, directory, hook = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    print(f"seed {SEED}")
    generator = random.Random(SEED)
    differences = []
    for entry in entries:
        for world in (1, 2):
            differences += check(
                *(tool, module, directory, entry.__name__),
                *(functools.partial(entry, Group(hook)), entries[entry]),
                *(world, 2, generator),
            )
    return report(len(entries), differences)


if __name__ == "__main__":
    sys.exit(run(ENTRIES))
