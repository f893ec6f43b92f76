# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the entry points of states.mlir and compares every bit.

usage: states.py DDPHOOK-EXEC MODULE.so DIRECTORY

As awkward_gradients.py, for programs whose steps remember something: each entry
point is run for some steps in new processes, so that all states begin as zeros.
"""

import functools
import random
import sys

from awkward_gradients import (
    Group,
    PerRank,
    check,
    f32,
    report,
)

SEED, STEPS = 1723, 4
A = (3, 5)


class States:
    """What lives from step to step."""

    def __init__(self, world):
        self.n = 0
        self.s = self.t = self.two = PerRank([[0.0] * 15 for _ in range(world)])
        self.world = world

    def number(self, value):
        return PerRank([[f32(value)] for _ in range(self.world)])


# One function for each entry point: from the group, the states and the arguments
# to the results.


def counter(dp, st):
    st.n += 1
    return (st.number(st.n - 1),)


def counter_twice(dp, st):
    once = st.n + 1
    st.n = 2 * once
    return st.number(once), st.number(st.n)


def counter_in_loop(dp, st, k):
    old = st.n
    st.n += k
    return (st.number(old + st.n),)


def counter_in_call(dp, st):
    st.n += 2
    return st.number(st.n - 2), st.number(st.n)


def accumulate(dp, st, a):
    st.s = st.s + a
    return (st.s,)


def old_value(dp, st, a):
    old, st.s = st.s, a
    return (old,)


def old_and_new(dp, st, a):
    old, st.s = st.s, a - st.s
    return old, old + st.s


def swap(dp, st, a):
    old = st.s, st.t
    st.s, st.t = st.t, st.s + a
    return old


def dead_store(dp, st, a, b):
    old, st.s = st.s, a + b
    return (old + a,)


def old_members(dp, st, a):
    old, st.two = st.two, a
    return old.slice(7, 15), old.slice(0, 7)


old_reshaped = old_value


def old_overwritten(dp, st, a, b):
    old, st.s = st.s, b
    return (a + old,)


def old_in_loop(dp, st, a, k):
    value, st.s = st.s, a
    for _ in range(k):
        value = value + a
    return (value,)


def old_selected(dp, st, a, c):
    old, st.s = st.s, a
    return (old if c else a,)


def old_slice(dp, st, a):
    old, st.s = st.s, a
    return (old.slice(3, 7),)


def new_overwritten(dp, st, a):
    st.s = st.s + a
    return (st.s + a,)


def new_members_overwritten(dp, st, a):
    st.two = st.two + a
    first, second = st.two.slice(0, 7), st.two.slice(7, 15)
    return first + first, second


def stored_in_branch(dp, st, a, c):
    old, new = st.s, st.s + a
    if c:
        st.s = new
    return old, new - old


def kept(dp, st, a):
    value = a + st.s
    st.t = st.t + value
    return value, st.t


def branches(dp, st, a, c):
    if c:
        old, st.s = st.s, st.s + a
        return (old,)
    st.s = a * 2.0
    return (st.s,)


def phases(dp, st, a):
    st.n += 1
    if st.n <= 2:
        return (dp.sum(a),)
    m = a + st.s
    r = dp.mean(m)
    st.s = m - r
    return (r,)


def feedback(dp, st, a, b):
    g = a * b
    m = g + st.s
    r = dp.mean(m)
    st.s = m - r
    return r, g + a


def momentum(dp, st, w, a):
    old, st.s = st.s, st.s * 0.5 + a
    return w - st.s, old


def called(dp, st, a):
    st.s = st.s + a
    return st.s, st.s


ENTRIES = {
    "counter": (counter, []),
    "counter_twice": (counter_twice, []),
    "counter_in_loop": (counter_in_loop, ["index"]),
    "counter_in_call": (counter_in_call, []),
    "accumulate": (accumulate, [A]),
    "old_value": (old_value, [A]),
    "old_and_new": (old_and_new, [A]),
    "swap": (swap, [A]),
    "dead_store": (dead_store, [A, A]),
    "old_members": (old_members, [A]),
    "old_reshaped": (old_reshaped, [A]),
    "old_overwritten": (old_overwritten, [A, A]),
    "old_in_loop": (old_in_loop, [A, "index"]),
    "old_selected": (old_selected, [A, "i1"]),
    "old_slice": (old_slice, [A]),
    "new_overwritten": (new_overwritten, [A]),
    "new_members_overwritten": (new_members_overwritten, [A]),
    "stored_in_branch": (stored_in_branch, [A, "i1"]),
    "kept": (kept, [A]),
    "branches": (branches, [A, "i1"]),
    "phases": (phases, [A]),
    "feedback": (feedback, [A, A]),
    "momentum": (momentum, [A, A]),
    "called": (called, [A]),
}


def main():
    tool, module, directory = sys.argv[1:]
    print(f"seed {SEED}")
    generator = random.Random(SEED)
    differences = []
    for name in ENTRIES:
        for world in (1, 2):
            model, shapes = ENTRIES[name]
            compute = functools.partial(model, Group("allreduce"), States(world))
            differences += check(
                *(tool, module, directory, name, compute, shapes),
                *(world, STEPS, generator),
            )
    return report(len(ENTRIES), differences)


if __name__ == "__main__":
    sys.exit(main())
