#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""seeds.py DIRECTORY: writes the modules of the compiler's tests there, as inputs
of ddphook-pipeline-fuzzer. What is done with a module is what its test does, as
far as that is our passes and options; whole pipelines for all others."""

import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parents[3]
PIPELINES = [
    "",
    "hook=fp16 overlap=true bucket-cap-mb=0 lower",
    "hook=powersgd start-powersgd-iter=0 use-error-feedback=false warm-start=false",
    "hook=powersgd wrapper=fp16 group-mb=0.0001 overlap=true lower",
    "hook=noop wrapper=bf16 fuse=false memory=device",
    "hook=batched_powersgd numerics=improved",
]


def request(text, number):
    lines = re.findall(r"^// RUN: .*(?:\n// RUN: .*)*", text, re.MULTILINE)
    command = " ".join(lines)
    passes = re.findall(r"--?((?:convert-)?ddp-[\w-]+|canonicalize|cse)\b", command)
    # Imports say what they do with the rest in their options.
    passes = [
        name + "{" + option[1] + "}"
        if (option := re.search(rf"{name}=[\"']?([\w-]+=[\w,-]+)", command))
        and name.startswith("ddp-import")
        else name
        for name in passes
    ]
    no_passes = (
        "ddp-pipeline",
        "ddp-tensor-pipeline",
        "ddp-memory-pipeline",
        "ddp-lower-to-llvm",
        "ddp-stablehlo-pipeline",
    )
    passes = dict.fromkeys(name for name in passes if name not in no_passes)
    options = re.search(r"ddp-pipeline='?\"?([^'\"|%]*)", command)
    if options:
        return " ".join(re.findall(r"[\w-]+=[\w.]+", options[1]))
    options = re.search(r"ddp-stablehlo-pipeline(?:='?\"?([^'\"|%]*))?", command)
    if options:
        return "xla " + " ".join(re.findall(r"[\w-]+=[\w.]+", options[1] or ""))
    return " ".join(passes) or PIPELINES[number % len(PIPELINES)]


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    number = 0
    for path in sorted(TESTS.glob("**/*.mlir")) + sorted(
        TESTS.parent.glob("docs/examples/**/*.mlir")
    ):
        if "libfuzzer" in path.parts:
            continue
        text = path.read_text()
        for part in re.split(r"^// -----.*$", text, flags=re.MULTILINE):
            lines = part.splitlines()
            lines = [line for line in lines if not line.lstrip().startswith("//")]
            module = "\n".join(line for line in lines if line.strip())
            if module:
                asked = request(text, number)
                (out / f"{number:04}").write_text(f"// fuzz: {asked}\n{module}\n")
                number += 1


main()
