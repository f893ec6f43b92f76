# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Wrong programs, made from correct ones: ddp-verify-sync (on tensors) and
ddp-verify-order (on all levels) refuse each of them, and none of the correct
ones. With DDPHOOK_ALL_MUTANTS=1 all that there are, not a seeded choice."""

import os
import random
import re
import shlex
import subprocess

import bases
import mutations
import pytest

SEED = 20260413
SEPARATOR = "\n// -----\n"
# What may be said of a mutant. An operation's own verifier counts as well where
# a wait is missing: the module is refused when it is read.
MESSAGES = {
    "dropped": "not reduced|on some paths only|in some of its elements only"
    "|under control flow that may differ|but part of it was not reduced"
    "|mixed with data|which is replicated|a collective that reduces bucket",
    "doubled": "reduced more than once|operand is already reduced|on some paths only",
    "conditional": "under control flow that may differ"
    "|to execute this operation equally often, but they may not",
    "reordered": "under control flow that may differ"
    "|to execute this operation equally often, but they may not",
    "regrouped": "not reduced|on some paths only|to be reduced over @|under control flow",
    "forgotten": "to be stored again after this|to be written by some function",
    "lost": "awaited exactly once|to be awaited",
    "delayed": "no access to memory that a collective in flight uses",
    "hastened": "no access to memory that a collective in flight uses",
    "misplaced": "awaited exactly once|to be awaited"
    "|under control flow that may differ"
    "|to execute this operation equally often, but they may not"
    "|operand is already reduced|but part of it was not reduced",
    "misplaced_at_runtime": "awaited exactly once",
}


def verify(texts, passes):
    """The errors of each of these modules, from one process for all."""
    begins, line = [], 1
    for text in texts:
        begins.append(line)
        line += text.count("\n") + SEPARATOR.count("\n")
    result = subprocess.run(
        [bases.OPT, "-", f"--pass-pipeline=builtin.module({passes})",
         "-split-input-file", "-allow-unregistered-dialect", "-o", "/dev/null"],
        input=SEPARATOR.join(texts), capture_output=True, text=True, timeout=600,
    )
    assert result.returncode in (0, 1), result.stderr[-2000:]
    errors = [[] for _ in texts]
    for found in re.finditer(r"^<stdin>:(\d+):\d+: error: (.*)$", result.stderr, re.M):
        number = int(found[1])
        errors[sum(begin <= number for begin in begins) - 1].append(found[2])
    # Nothing is refused without a word, and nobody crashes behind the last one.
    assert (result.returncode != 0) == any(errors), result.stderr[-2000:]
    return errors


def verify_levels(modules):
    """The same for pairs of a level and a text: on tensors both passes."""
    errors = [None] * len(modules)
    for onTensors, passes in [(True, "ddp-verify-sync,ddp-verify-order"), (False, "ddp-verify-order")]:
        numbers = [i for i, (level, _) in enumerate(modules) if (level == "tensors") == onTensors]
        for i, found in zip(numbers, verify([modules[i][1] for i in numbers], passes)):
            errors[i] = found
    return errors


@pytest.fixture(scope="module")
def correct():
    return bases.collect()


def test_correct_modules_are_accepted(correct):
    errors = verify_levels([(base.level, base.text) for base in correct])
    for base, found in zip(correct, errors):
        assert not found, f"{base.name}: {found}"
    print(f"{len(correct)} correct modules")


def test_mutants_are_refused(correct):
    chosen = []
    for mutate, share in mutations.CLASSES.items():
        candidates = []
        for base in correct:
            excluded = bases.PROGRAMS.get(base.name, ())
            module = mutations.Module(base, excluded)
            candidates += [(mutate.__name__, base, text) for text in mutate(module)]
        assert len(candidates) >= share, f"{mutate.__name__}: only {len(candidates)}"
        if os.environ.get("DDPHOOK_ALL_MUTANTS"):
            share = len(candidates)
        chosen += random.Random(f"{SEED}/{mutate.__name__}").sample(candidates, share)
    errors = verify_levels([(base.level, text) for _, base, text in chosen])
    print(f"seed {SEED}")
    survivors, counts = [], {}
    for (name, base, text), found in zip(chosen, errors):
        killed = any(re.search(MESSAGES[name], message) for message in found)
        counts[name] = counts.get(name, 0) + killed
        if not killed:
            survivors.append((f"{name}, {base.name}: {found}", text))
    for name, count in counts.items():
        print(f"{name}: {count} killed")
    for survivor, _ in survivors:
        print(survivor)
    assert not survivors, f"{len(survivors)} of {len(chosen)}\n{survivors[0][1]}"
    assert len(chosen) >= 200


def pipelines():
    """The lit tests' own runs of ddp-pipeline, in which nothing is to be refused."""
    for path in sorted((bases.ROOT / "test").rglob("*.mlir")):
        text = re.sub(r"\\\n// RUN: *", "", path.read_text())
        for line in re.findall(r"^// RUN: (ddphook-(?:test-)?opt %s .*)$", text, re.M):
            command = re.split(r" 2?>|\|", line)[0]
            if re.search(r"--ddp-pipeline(=| |$)", command) and "-verify-diagnostics" not in command:
                yield pytest.param(path, command, id=f"{path.name}-{len(command)}")


@pytest.mark.parametrize("path, command", list(pipelines()))
def test_pipelines_are_accepted(path, command):
    plugin = bases.ROOT / "build" / "lib" / "DDPHookTestHookPlugin.so"
    words = shlex.split(command.replace("%testhook-plugin", str(plugin)))
    run = [str(bases.ROOT / "build" / "bin" / words[0]), str(path)] + [
        word for word in words[2:]
        if not word.startswith(("--remarks", "--mlir-print", "--mlir-timing"))
    ]
    checked = [
        re.sub(
            r"^(--ddp-pipeline)=?(.*)$", r"\1=\2 verify-order=true",
            word.replace("verify-order=true", ""), flags=re.S,
        )
        for word in run
    ]
    plain = subprocess.run(run + ["-o", "/dev/null"], capture_output=True, text=True, timeout=300)
    result = subprocess.run(
        checked + ["-o", "/dev/null"], capture_output=True, text=True, timeout=300
    )
    assert any("verify-order=true" in word for word in checked)
    assert plain.returncode == 0, plain.stderr
    assert result.returncode == 0, result.stderr
