# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inserts upstream's passes between ours: wherever one is inserted, the compiled module
computes the same bits, or a pass refuses it.

One rank is enough: the hooks lose digits, so that a value computed in memory that its
reduction overwrites differs. Modules with the same text run only once."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import pytest

import run

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(run.tool()).resolve().parent
os.environ.setdefault("DDPHOOK_LIBRARY_DIR", str(BIN.parent / "lib"))
sys.path.append(str(HERE.parents[1] / "tools" / "python" / "src"))
import ddphook.compiler  # noqa: E402

PROGRAM = (HERE / "interleaved.mlir").read_text(encoding="utf-8")
HOOKS = {
    "powersgd": "hook=powersgd matrix-approximation-rank=2 start-powersgd-iter=2",
    "fp16": "hook=fp16",
}
ONE_SHOT = (
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map}"
)
PASSES = """
    affine-expand-index-ops arith-expand arith-unsigned-when-equivalent buffer-hoisting
    buffer-loop-hoisting canonicalize control-flow-sink convert-elementwise-to-linalg
    convert-linalg-to-loops convert-scf-to-cf cse drop-equivalent-buffer-results
    duplicate-function-elimination eliminate-empty-tensors empty-tensor-to-alloc-tensor
    expand-strided-metadata fold-memref-alias-ops fold-tensor-subset-ops inline
    int-range-optimizations lift-cf-to-scf linalg-detensorize linalg-fold-into-elementwise
    linalg-fold-unit-extent-dims linalg-fuse-elementwise-ops linalg-generalize-named-ops
    linalg-inline-scalar-operands linalg-morph-ops linalg-specialize-generic-ops
    loop-invariant-code-motion loop-invariant-subset-hoisting lower-affine
    math-expand-ops mem2reg memref-expand normalize-memrefs optimize-allocation-liveness
    promote-buffers-to-stack remove-dead-values resolve-ranked-shaped-type-result-dims
    resolve-shaped-type-result-dims sccp scf-for-loop-canonicalization scf-for-loop-peeling
    scf-for-loop-range-folding scf-for-to-while scf-forall-to-for scf-parallel-loop-fusion
    sroa strip-debuginfo symbol-dce topological-sort
""".split()


def nested(name):
    """Returns a pipeline that runs the pass on the module or on its functions."""
    for text in (name, f"func.func({name})"):
        try:
            ddphook.compiler.parse("module {}").run(text)
            return text
        except ddphook.CompileError as error:
            failure = error
    raise failure


def split(text):
    """Splits the text at commas outside of parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "({") - (c in ")}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def passes_of(hook):
    """Returns the passes of ddp-pipeline."""
    command = [BIN / "ddphook-opt", f"--ddp-pipeline={hook}", "--dump-pass-pipeline"]
    done = subprocess.run(command, input="module {}", capture_output=True, text=True)
    return split(re.search(r"pipeline=\{builtin\.module\((.*)\)\}\}", done.stderr)[1])


def execute(text, folder):
    """Runs three steps. Returns their output files, or why the run failed."""
    folder.mkdir()
    (folder / "module.mlir").write_text(text, encoding="utf-8")
    command = [BIN / "ddphook-run", "module.mlir", "--entry=step", "--ranks=1", "--quiet"]
    command += ["--steps=3", "--inputs=random:7", "--outputs=out.{step}"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=run.HANG_S
    )
    if done.returncode:
        return f"status {done.returncode}: {done.stderr[-500:]}"
    return [(folder / f"out.{step}").read_bytes() for step in range(3)]


def check(ways, right, folder):
    """Compares each module of `ways`, which maps modules to how they were compiled, with
    `right`. Returns how many gave its results."""
    expected = execute(right, folder / "right")
    assert not isinstance(expected, str), expected
    ways.pop(right, None)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folders = [folder / str(number) for number in range(len(ways))]
        results = list(pool.map(execute, ways, folders))
    wrong = [
        f"{how}: {got if isinstance(got, str) else 'other numbers'}"
        for how, got in zip(ways.values(), results)
        # A module that upstream left with operations to lower fails with an error.
        if got != expected and not (isinstance(got, str) and "error:" in got)
    ]
    assert not wrong, "\n".join(wrong)
    return results.count(expected)


@pytest.mark.parametrize(
    "hook", ["powersgd", pytest.param("fp16", marks=pytest.mark.full("as powersgd"))]
)
def test_pass_at_each_place(hook, tmp_path):
    ours, theirs = passes_of(HOOKS[hook]), [nested(name) for name in PASSES]
    right = str(ddphook.compiler.parse(PROGRAM).run(",".join(ours)))
    ways, refused = {}, 0
    module = ddphook.compiler.parse(PROGRAM)
    for place in range(len(ours) + 1):
        here, seen = module.bytecode(), {str(module)}
        for name in theirs:
            changed = ddphook.compiler.parse(here)
            try:
                changed.run(name)
                if str(changed) in seen:
                    continue
                seen.add(str(changed))
                changed.run(",".join(ours[place:]))
            except ddphook.CompileError:
                refused += 1
                continue
            ways.setdefault(str(changed), f"{name} before {ours[place:][:1]}")
        if place < len(ours):
            module.run(ours[place])
    assert len(theirs) == 52 and refused < 100
    assert check(ways, right, tmp_path) > 20


@pytest.mark.parametrize("hook", HOOKS)
def test_halves_around_one_shot(hook, tmp_path):
    """The section "Your own bufferization" of docs/embedding.md."""
    first, last = f"ddp-tensor-pipeline{{{HOOKS[hook]}}}", "ddp-memory-pipeline"
    right = str(ddphook.compiler.parse(PROGRAM).run(f"{first},{ONE_SHOT},{last}"))
    ways = {}
    for before in (True, False):
        middle = ddphook.compiler.parse(PROGRAM).run(first if before else f"{first},{ONE_SHOT}")
        here, rest = middle.bytecode(), f"{ONE_SHOT},{last}" if before else last
        for name in PASSES:
            try:
                changed = ddphook.compiler.parse(here).run(f"{nested(name)},{rest}")
            except ddphook.CompileError:
                continue
            ways.setdefault(str(changed), f"{name} {'before' if before else 'after'} One-Shot")
    assert check(ways, right, tmp_path) > 5
