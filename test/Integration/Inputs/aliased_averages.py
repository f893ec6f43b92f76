# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the entry points of aliased-averages.mlir and compares every bit.

usage: aliased_averages.py DDPHOOK-EXEC MODULE.so DIRECTORY HOOK

The model is that of awkward_gradients.py.
"""

import sys

from awkward_gradients import A, B, PerRank, f32, run


def absolute(x):
    return PerRank([[abs(a) for a in values] for values in x.lists])


def replace_last_row(x, row):
    return PerRank([a[:10] + b for a, b in zip(x.lists, row.lists)])


def computed_in_place(dp, a, b):
    return absolute(dp.mean(a)), dp.mean(b)


def computed_in_place_later(dp, a, b):
    return computed_in_place(dp, a, b)


def reshaped(dp, a, b):
    s = dp.mean(b)
    return dp.mean(a), dp.mean(s), s.slice(5, 10)


def inserted(dp, a, b, c):
    return replace_last_row(dp.mean(a), dp.mean(b).slice(0, 5)), dp.mean(c)


def selected(dp, a, b, c):
    r, s = dp.mean(a), dp.mean(b)
    return (r if c else absolute(s)), dp.mean(b)


def loop_from_average(dp, a, b):
    x = dp.mean(a)
    for _ in range(3):
        x = x + b
    return x, dp.mean(b)


def called_in_place(dp, a, b):
    s = dp.mean(b)
    return absolute(dp.mean(a)), s, absolute(s)


def called_for_a_view(dp, a, b):
    r = dp.mean(a)
    return r + b, absolute(r + b), r


def called_for_sums(dp, a, b, c):
    r = dp.mean(a)
    return absolute(r + b), (r + b if c else b) - a, r


def loop_reads_what_it_overwrites(dp, a, b):
    r = dp.mean(a)
    y, z = r, b
    for _ in range(4):
        y, z = y - z, y
    return y, z, r


def loop_swaps_views(dp, a, b):
    y, z = a, b
    for _ in range(3):
        y, z = z, dp.mean(y) + y
    return y, z


def while_swaps(dp, a, b, n):
    y, z = dp.mean(a), dp.mean(b)
    for _ in range(n):
        y, z = z, y + z
    return y, z


def while_of_other_values(dp, a, b, n):
    y, i = dp.mean(a), 0
    while True:
        m = y - b
        if not i < n:
            return m, y
        y, i = y + m, i + 1


def branches_carry(dp, a, b, n):
    last, total = a, b
    for _ in range(n):
        r = dp.mean(total + a)
        last, total = r, r + last
    return last, total


def branches_swap(dp, a, b, n):
    y, z = dp.mean(a), dp.mean(b)
    for _ in range(n):
        y, z = z, y
    return y, z


def map_reads_its_destination(dp, a, b):
    r = dp.mean(a)
    return r + b, r, b - a


def switched(dp, a, b, n):
    r = dp.mean(a)
    return absolute({0: r, 2: b}.get(n, r + b)), r, absolute(a), b


def only_default(dp, a, b, n):
    return absolute(b), dp.mean(a)


def strided_element(dp, a, b, n):
    return (dp.mean(a).slice(7, 8),)


def one_or_the_other(dp, a, b, n):
    r = dp.mean(a)
    y, z = r, b
    for i in range(n):
        o = r if i == 1 else z + y
        y, z = absolute(y if i == 1 else o), o
    return y, z


def branches_write_outside(dp, a, b, n):
    r, y = dp.mean(a), b
    for _ in range(n):
        y = y + r
    return y, b


def branches_write_arguments(dp, a, b, n):
    r = dp.mean(a)
    return dp.mean(b), -b, r - b, r


def region_yields(dp, a, b, n):
    r = dp.mean(a)
    return (r if n == 0 else r + b) - absolute(b), r


def reduced_in_a_branch(dp, a, b, c):
    return (dp.mean(a), dp.mean(b), a) if c else (a, b, a)


def started_on_a_condition(dp, a, b, c):
    """Written behind the hooks: a sum, whatever the hook is."""

    def total(x):
        sums = [f32(sum(values)) for values in zip(*x.lists)]
        return PerRank([sums for _ in x.lists])

    return (total(a), total(b), a) if c else (a, b, a)


ENTRIES = {
    computed_in_place: [A, B],
    computed_in_place_later: [A, B],
    reshaped: [A, B],
    inserted: [A, B, A],
    selected: [A, B, "i1"],
    loop_from_average: [A, B],
    called_in_place: [A, B],
    called_for_a_view: [A, B],
    called_for_sums: [A, B, "i1"],
    loop_reads_what_it_overwrites: [A, B],
    loop_swaps_views: [A, B],
    while_swaps: [A, B, "index"],
    while_of_other_values: [A, B, "index"],
    branches_carry: [A, B, "index"],
    branches_swap: [A, B, "index"],
    map_reads_its_destination: [A, B],
    switched: [A, B, "index"],
    only_default: [A, B, "index"],
    strided_element: [A, B, "index"],
    one_or_the_other: [A, B, "index"],
    branches_write_outside: [A, B, "index"],
    branches_write_arguments: [A, B, "index"],
    region_yields: [A, B, "index"],
    reduced_in_a_branch: [A, B, "i1"],
    started_on_a_condition: [A, B, "i1"],
}


if __name__ == "__main__":
    sys.exit(run(ENTRIES))
