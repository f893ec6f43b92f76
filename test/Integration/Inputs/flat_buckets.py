# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reduces gradients in one tensor and one by one, and compares every bit.

usage: flat_buckets.py DDPHOOK-RUN DIRECTORY
"""

import itertools
import math
import os
import random
import struct
import subprocess
import sys

import plain_safetensors

SHAPES = [(16, 8), (16,), (), (3, 4, 2, 2), (0, 3), (1, 7), (5, 1), (4, 16), (4,)]
STEPS = 4
# The letter of Python's struct, the name in safetensors.
TYPES = {"f32": ("f", "F32"), "f64": ("d", "F64"), "f16": ("e", "F16"), "bf16": ("H", "BF16")}
POWERSGD = "powersgd start-powersgd-iter=2 min-compression-rate=0.5"
HOOKS = [
    "allreduce",
    "fp16",
    "bf16",
    "noop",
    POWERSGD,
    POWERSGD + " use-error-feedback=false warm-start=false",
    POWERSGD + " wrapper=bf16",
    "batched_powersgd start-powersgd-iter=2",
    "allreduce wrapper=fp16",
    "fp16 fuse=false",
    "post_local_sgd start-localsgd-iter=2",
    # Several buckets, each a part of the tensor; some of them in flight at once.
    "allreduce bucket-cap-mb=0.0003",
    "fp16 bucket-cap-mb=0 overlap=true",
    POWERSGD + " bucket-cap-mb=0.0003 overlap=true",
]


def spell(shape, dtype):
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>"


def one_by_one(dtype):
    types = [spell(shape, dtype) for shape in SHAPES]
    lines = ["ddp.process_group @dp"]
    arguments = ", ".join(f"%g{i}: {t}" for i, t in enumerate(types))
    lines.append(f"func.func @step({arguments}) -> ({', '.join(types)}) {{")
    for i, t in enumerate(types):
        lines.append(f'  %r{i} = ddp.all_reduce mean %g{i} on @dp {{ddp.name = "g{i}"}} : {t}')
    results = ", ".join(f"%r{i}" for i in range(len(types)))
    return "\n".join(lines + [f"  return {results} : {', '.join(types)}", "}", ""])


def in_one_tensor(dtype):
    whole = spell((sum(map(math.prod, SHAPES)),), dtype)
    take, reduce, put = [], [], []
    offset, last = 0, "%flat"
    for i, shape in enumerate(SHAPES):
        size = math.prod(shape)
        piece, tensor = spell((size,), dtype), spell(shape, dtype)
        groups = f"[{list(range(len(shape)))}]" if shape else "[]"
        place = f"[{offset if size else 0}] [{size}] [1]"
        take.append(f"%s{i} = tensor.extract_slice %flat{place} : {whole} to {piece}")
        reduce.append(f'%r{i} = ddp.all_reduce mean %g{i} on @dp {{ddp.name = "g{i}"}} : {tensor}')
        if not shape:
            take.append(f"%g{i} = tensor.collapse_shape %s{i} [] : {piece} into {tensor}")
            put.append(f"%p{i} = tensor.expand_shape %r{i} [] output_shape [1] : {tensor} into {piece}")
        else:
            take.append(f"%g{i} = tensor.expand_shape %s{i} {groups} output_shape {list(shape)} : {piece} into {tensor}")
            put.append(f"%p{i} = tensor.collapse_shape %r{i} {groups} : {tensor} into {piece}")
        put.append(f"%o{i} = tensor.insert_slice %p{i} into {last}{place} : {piece} into {whole}")
        offset, last = offset + size, f"%o{i}"
    lines = ["ddp.process_group @dp"]
    lines.append(f"func.func @step(%flat: {whole} {{bufferization.writable = true}}) -> {whole} {{")
    lines += [f"  {line}" for line in take + reduce + put]
    return "\n".join(lines + [f"  return {last} : {whole}", "}", ""])


def write_inputs(directory, dtype, ranks):
    """The same numbers in one tensor and in many."""
    code, name = TYPES[dtype]
    numbers = random.Random(7)
    for rank, step in itertools.product(range(ranks), range(STEPS)):
        pieces = []
        for shape in SHAPES:
            values = [numbers.gauss(0, 1) for _ in range(math.prod(shape))]
            if dtype == "bf16":
                values = [struct.unpack("<I", struct.pack("<f", x))[0] >> 16 for x in values]
            pieces.append(struct.pack(f"<{len(values)}{code}", *values))
        many = {f"arg{i}": (name, s, p) for i, (s, p) in enumerate(zip(SHAPES, pieces))}
        whole = {"arg0": (name, (sum(map(math.prod, SHAPES)),), b"".join(pieces))}
        plain_safetensors.write(f"{directory}/many.in.{rank}.{step}", many)
        plain_safetensors.write(f"{directory}/flat.in.{rank}.{step}", whole)


def run(tool, directory, kind, ranks, options):
    """What each rank gets in each step, as the bytes of one tensor."""
    prefix = f"{directory}/{kind}"
    command = [tool, prefix + ".mlir", "--entry=step", f"--ranks={ranks}", f"--steps={STEPS}"]
    command += [f"--ddp-pipeline=hook={options}", f"--inputs={prefix}.in.{{rank}}.{{step}}"]
    command.append(f"--outputs={prefix}.out.{{rank}}.{{step}}")
    subprocess.run(command, check=True, timeout=120)
    results = []
    for rank, step in itertools.product(range(ranks), range(STEPS)):
        path = f"{prefix}.out.{rank}.{step}"
        tensors = plain_safetensors.read(path)
        os.remove(path)
        results.append(b"".join(tensors[f"result{i}"][2] for i in range(len(tensors))))
    return results


def main():
    tool, directory = sys.argv[1:]
    failures = 0
    ranks = itertools.cycle([2, 3, 1, 4])
    for dtype in TYPES:
        for kind, text in ("many", one_by_one(dtype)), ("flat", in_one_tensor(dtype)):
            with open(f"{directory}/{kind}.mlir", "w") as file:
                file.write(text)
        write_inputs(directory, dtype, 4)
        # Types differ in kernels, which other tests compare.
        for options in HOOKS if dtype == "f32" else HOOKS[::3]:
            count = next(ranks)
            many = run(tool, directory, "many", count, options)
            # That hook's square is another memory than the bucket.
            strict = "" if "batched" in options else " require-no-copy=true"
            flat = run(tool, directory, "flat", count, options + strict)
            if not many or many != flat or not any(many[0]):
                print(f"{dtype}, {count} ranks: {options} gives other bits in one tensor")
                failures += 1
    sys.exit(failures != 0)


main()
