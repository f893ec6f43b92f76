# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the errors in the code blocks of pages are what the tools print.

Every line of a page that begins with "error: " must be, up to an ellipsis, an error
of one of the commands below.
"""

import argparse
import pathlib
import re
import subprocess
import sys

MEAN = """
ddp.process_group @dp
func.func @step(%w: tensor<8xf32>, %b: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %rw = ddp.all_reduce mean %w on @dp {ddp.name = "w"} : tensor<8xf32>
  %rb = ddp.all_reduce mean %b on @dp {ddp.name = "b"} : tensor<4xf32>
  return %rw, %rb : tensor<8xf32>, tensor<4xf32>
}
"""
TWICE = """
ddp.process_group @dp
func.func @step(%g: tensor<8xf32>) -> (tensor<8xf32> {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %s = ddp.all_reduce mean %r on @dp : tensor<8xf32>
  return %s : tensor<8xf32>
}
"""
SOME_RANKS = """
ddp.process_group @dp
func.func @step(%g: tensor<8xf32>, %own: i1) -> tensor<8xf32> {
  %r = scf.if %own -> tensor<8xf32> {
    %s = ddp.all_reduce mean %g on @dp : tensor<8xf32>
    scf.yield %s : tensor<8xf32>
  } else {
    scf.yield %g : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}
"""
NOT_LOWERED = """
func.func @step(%a: tensor<4xf32>) -> tensor<4xf32> {
  %b = "stablehlo.add"(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}
"""
LOADS = """
ddp.process_group @dp
func.func @step(%g: tensor<8xf32>, %i: index) -> (tensor<8xf32>, f32) {
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %x = tensor.extract %r[%i] : tensor<8xf32>
  return %r, %x : tensor<8xf32>, f32
}
"""
# Modules, and options of ddp-pipeline for them.
PIPELINES = [
    (MEAN, "hok=fp16"),
    (MEAN, "order=backward"),
    (MEAN, "hook=fp9"),
    (MEAN, "hook=fp16 warm-start=false"),
    (MEAN, "hook=powersgd matrix-approximation-rank=two"),
    (MEAN, "exempt=bais"),
    (MEAN, "require-no-copy=true"),
    (TWICE, ""),
    (SOME_RANKS, "verify-order=true"),
    (NOT_LOWERED, "all-functions=true"),
]


def printed(command, module):
    result = subprocess.run(command, input=module, capture_output=True, text=True)
    return re.findall(r"^.*?\berror: (.*)$", result.stderr, re.M)


def shown(page):
    """The errors of a page; lines that go on are joined."""
    for match in re.finditer(r"^( *)error: (.*(?:\n +\S.*)*)", page, re.M):
        lines = match[2].split("\n")
        same = [line for line in lines[1:] if match[1] and line.startswith(match[1])]
        yield " ".join([lines[0], *(line.strip() for line in same)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--opt", required=True)
    parser.add_argument("--cc", required=True)
    parser.add_argument("pages", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    errors = []
    for module, options in PIPELINES:
        command = [arguments.opt, "--allow-unregistered-dialect", "-o", "/dev/null"]
        errors += printed([*command, f"--ddp-pipeline={options}"], module)
    errors += printed([arguments.cc, "-", "-o", "/dev/null", "--device=cuda"], LOADS)
    count = wrong = 0
    for page in arguments.pages:
        for text in shown(page.read_text()):
            count += 1
            pattern = ".*".join(map(re.escape, text.split("…")))
            if not any(re.fullmatch(pattern, error) for error in errors):
                wrong += 1
                print(f"{page.name}: no command prints '{text}'")
    print(f"{count} errors, {wrong} wrong; printed were:", *errors, sep="\n  ")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
