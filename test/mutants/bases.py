# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The correct modules that mutants are made from: the tests' own programs on
# tensors, and what the pipeline makes of some steps, printed after its passes.

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPT = os.environ.get("DDPHOOK_OPT", str(ROOT / "build" / "bin" / "ddphook-opt"))


@dataclass
class Base:
    """A correct module: its text, and between which passes it was printed."""

    name: str
    level: str  # tensors, buckets, flat, memory or runtime
    text: str


# Programs of the lit suites, and what is left out: functions whose collectives
# do not all carry a whole gradient, so that one more or less is another program
# but not a wrong one.
PROGRAMS = {
    "Dialect/DDP/Transforms/verify-sync.mlir": {"unmarked", "reduced_condition", "in_flight"},
    "Dialect/DDP/Transforms/verify-sync-flow.mlir": {
        "synchronized_statistics",
        "two_levels",
        "condition_of_a_group",
        "condition_of_the_job",
        "overwritten",
        "two_returns",
    },
}

STEP = """
ddp.process_group @dp
func.func @step(%x: tensor<16x8xf32>, %y: tensor<12x16xf32>, %b: tensor<16xf32>, %c: tensor<8xf32>)
    -> (tensor<16x8xf32> {ddp.gradient}, tensor<12x16xf32> {ddp.gradient},
        tensor<16xf32> {ddp.gradient}, tensor<8xf32> {ddp.gradient}) {
  %e0 = tensor.empty() : tensor<16x8xf32>
  %e1 = tensor.empty() : tensor<12x16xf32>
  %g0 = linalg.exp ins(%x : tensor<16x8xf32>) outs(%e0 : tensor<16x8xf32>) -> tensor<16x8xf32>
  %r0 = ddp.all_reduce mean %g0 on @dp : tensor<16x8xf32>
  %g1 = linalg.exp ins(%y : tensor<12x16xf32>) outs(%e1 : tensor<12x16xf32>) -> tensor<12x16xf32>
  %r1 = ddp.all_reduce mean %g1 on @dp : tensor<12x16xf32>
  %r2 = ddp.all_reduce mean %b on @dp : tensor<16xf32>
  %r3 = ddp.all_reduce mean %c on @dp : tensor<8xf32>
  return %r0, %r1, %r2, %r3
      : tensor<16x8xf32>, tensor<12x16xf32>, tensor<16xf32>, tensor<8xf32>
}
"""

# Two buckets of it.
OPTIONS = [
    "hook=fp16 bucket-cap-mb=0.0005 overlap=false",
    "hook=bf16 bucket-cap-mb=0.0005",
    "hook=powersgd start-powersgd-iter=2 bucket-cap-mb=0.0005 overlap=false",
    "hook=powersgd start-powersgd-iter=2 bucket-cap-mb=0.0005",
    "hook=powersgd start-powersgd-iter=2 bucket-cap-mb=0.0005 interleave=true",
    "hook=powersgd start-powersgd-iter=3 numerics=improved fuse=false pack-collectives=false",
    "hook=powersgd start-powersgd-iter=2 group-mb=0.0005 interleave=true",
    "hook=batched_powersgd start-powersgd-iter=2 wrapper=fp16",
    "hook=post_local_sgd start-localsgd-iter=4 bucket-cap-mb=0.0005",
]

# What is printed after these passes, and what it is then.
STAGES = {
    "ddp-expand-hooks": "buckets",
    "ddp-fuse": "buckets",
    "ddp-overlap": "buckets",
    "ddp-thread-states": "flat",
    "ddp-plan-arena": "memory",
    "convert-ddp-to-runtime": "runtime",
}

DUMP = re.compile(r"^// -----// IR Dump After \w+ \((.*?)\).*$", re.M)


def print_stages(text, options):
    """What the pipeline makes of a module, by the pass that made it."""
    printed = subprocess.run(
        [OPT, "-", f"--ddp-pipeline={options}", "-o", os.devnull]
        + [f"--mlir-print-ir-after={name}" for name in STAGES]
        + ["--mlir-print-ir-module-scope", "--mlir-disable-threading"],
        input=text, capture_output=True, text=True, timeout=300,
    )
    assert printed.returncode == 0, printed.stderr
    parts = DUMP.split(printed.stderr)
    return dict(zip(parts[1::2], parts[2::2]))


def collect():
    """All correct modules."""
    bases = []
    for path in PROGRAMS:
        text = (ROOT / "test" / path).read_text()
        bases.append(Base(path, "tensors", re.sub(r"^\s*//.*\n", "", text, flags=re.M)))
    bases.append(Base("step", "tensors", STEP))
    digits = (ROOT / "docs/examples/digits/step.mlir").read_text()
    for name, options, text in [("step", o, STEP) for o in OPTIONS] + [
        ("digits", "hook=powersgd start-powersgd-iter=2", digits)
    ]:
        for stage, printed in print_stages(text, options).items():
            bases.append(Base(f"{name}, {options}, after {stage}", STAGES[stage], printed))
    return bases
