# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes a failing program small: applies one simplification after another as long
as the outcome stays the same. Every candidate is a program that the model can
evaluate, so that a wrong result stays a wrong result."""

import copy
import time

import run
from printer import print_program
from program import count_operations, walk
from simplify import SIMPLIFICATIONS, blocks


def reduce(program, outcome, seconds=120):
    """A smaller program with the same outcome."""
    end = time.monotonic() + seconds
    seen = {_text(program)}

    def fails(candidate):
        text = _text(candidate)
        if text in seen:
            return False
        seen.add(text)
        try:
            return run.run(candidate).key == outcome.key
        except Exception:  # The candidate makes no sense.
            return False

    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for simplify in SIMPLIFICATIONS:
            number = 0
            while time.monotonic() < end:
                candidate = copy.deepcopy(program)
                if not simplify(candidate, number):
                    break
                _tidy(candidate)
                # Where it succeeds, the next candidate has the same number.
                if fails(candidate):
                    program, changed = candidate, True
                else:
                    number += 1
    return program


def _text(program):
    return f"{run.describe(program)} {program.values}\n{print_program(program)}"


def _tidy(program):
    """Drops what nothing uses: pure operations, functions, groups."""
    changed = True
    while changed:
        changed = False
        used = set()
        for block in blocks(program):
            used.update(block.yields)
            for op in block.ops:
                used.update(op.operands)
        for block in blocks(program):
            for op in list(block.ops):
                is_pure = op.kind in ("const", "empty", "pack", "unpack")
                is_pure |= not op.results and op.kind != "state_store"
                if is_pure and not used.intersection(op.results):
                    block.ops.remove(op)
                    changed = True
    ops = [op for func in program.funcs for op in walk(func.body)]
    names = {op.attrs.get("callee") for op in ops} | {program.entry}
    program.funcs = [f for f in program.funcs if f.name in names]
    groups = {op.attrs.get("group") for op in ops}
    groups |= {"dp", program.options.get("subgroup")}
    hooks = [program.hook, *(f.hook for f in program.funcs)]
    hooks += [op.attrs.get("hook") for op in ops]
    # A hook may name a group.
    if not any(hooks):
        program.groups = {n: r for n, r in program.groups.items() if n in groups}


def summary(program):
    return f"{count_operations(program)} operations; {run.describe(program)}"
