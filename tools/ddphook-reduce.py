#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a module that averages gradient arrays, lets ddphook-cc compile it, and writes
programs that call it. docs/arrays.md is the guide."""

import argparse
import itertools
import math
import os
import re
import subprocess
import sys
from string import Template

# For each flag the default, a pattern of its values, and what --help and errors say.
FLAGS = {
    "shapes": ("", r"[1-9][0-9]*([x,][1-9][0-9]*)*", "SHAPES", "shapes of the arrays, such as 1024x1024,1024"),
    "name": ("gradients", r"[a-z][a-z0-9_]{0,31}", "NAME",
             "lower-case name of files and functions (default: gradients)"),
    "dtype": ("f32", r"f32|f64|f16|bf16", "f32|f64|f16|bf16", "type of the elements (default: f32)"),
    "op": ("mean", r"mean|sum", "mean|sum", "what to compute over all ranks (default: mean)"),
    "ranks": ("", r"([1-9][0-9]*)?", "NUMBER", "the only number of ranks to run on, which topk needs"),
    "ddp-pipeline": ("", r".*", "OPTIONS", "options of ddp-pipeline, such as \"hook=fp16\""),
}  # fmt: skip
# The type of an element in C, for the example, and in Fortran, which has no 16-bit numbers.
TYPES = {"f32": ("float", "real(c_float)"), "f64": ("double", "real(c_double)")}
TYPES |= {"f16": ("", "integer(c_int16_t)"), "bf16": ("", "integer(c_int16_t)")}

# The lines of an array: its slice, reduced and inserted, and its offset.
MATRIX = """\
  %s$i = tensor.extract_slice %0$part : $whole to $flat
  %a$i = tensor.expand_shape %s$i $dimensions output_shape $shape : $flat into $array
  %r$i = ddp.all_reduce $op %a$i on @dp {ddp.name = "array$i"} : $array
  %f$i = tensor.collapse_shape %r$i $dimensions : $array into $flat
"""
VECTOR = """\
  %a$i = tensor.extract_slice %0$part : $whole to $flat
  %f$i = ddp.all_reduce $op %a$i on @dp {ddp.name = "array$i"} : $array
"""
INSERTION = "  %$count = tensor.insert_slice %f$i into %$i$part : $flat into $whole\n"
MACRO = "#define ${NAME}_OFFSET_$i $begin\n"
PARAMETER = "  integer(c_int64_t), parameter :: ${name}_offset_$i = ${begin}_c_int64_t\n"

MODULE = """\
ddp.process_group @dp$group
func.func @reduce(%0: $whole {bufferization.writable = true}) -> $whole {
${reductions}${insertions}  return %$count : $whole
}
"""
HEADER = """
/* The number of elements, and the number before each array. */
#define ${NAME}_SIZE $size
$macros"""
FORTRAN = """\
! Written by ddphook-reduce; do not edit. Compile ddphook/runtime/ddphook.f90 first.
module ${name}_mod
  use, intrinsic :: iso_c_binding
  use ddphook
  implicit none
  type(ddphook_compiled_module_t), bind(c), protected :: ${name}_module
  interface
    integer(c_int) function ${name}_reduce(gradients) bind(c)
      import
      $real, intent(inout) :: gradients($size)
    end function
  end interface
  ! The number of elements, and the number before each array.
  integer(c_int64_t), parameter :: ${name}_size = ${size}_c_int64_t
${parameters}end module
"""
MAIN_C = """\
/* An example by ddphook-reduce, which does not overwrite it. */
#include "$name.h"
#include "ddphook/runtime/runtime.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check(ddphook_status_t status) {
  if (status == DDPHOOK_OK)
    return;
  fprintf(stderr, "%s: %s\\n", ddphook_status_name(status), ddphook_last_error());
  exit(1);
}

/* Element i of a rank's gradients, which are of rank 2 as matrices of any shape. */
static double gradient(int rank, int step, size_t i) { return sin(rank + step + (double)i); }

int main(void) {
  ddphook_context_t *context;
  check(ddphook_context_create(NULL, &context)); /* joins the job */
  check(ddphook_module_load(context, &${name}_module));
  int rank = ddphook_context_rank(context), ranks = ddphook_context_world_size(context);
  $c *gradients = malloc(${NAME}_SIZE * sizeof *gradients);
  double error = 0, norm = 0;
  for (int step = 0; step < 4; ++step) {
    for (size_t i = 0; i < ${NAME}_SIZE; ++i)
      gradients[i] = ($c)gradient(rank, step, i);
    check(${name}_reduce(gradients));
    for (size_t i = 0; i < ${NAME}_SIZE; ++i) {
      double exact = 0;
      for (int other = 0; other < ranks; ++other)
        exact += gradient(other, step, i)$divided;
      error += pow((double)gradients[i] - exact, 2);
      norm += exact * exact;
    }
  }
  printf("rank %d of %d: relative error %.1e\\n", rank, ranks, sqrt(error / norm));
  free(gradients);
  ddphook_context_destroy(context);
}
"""
MAIN_FORTRAN = """\
! An example by ddphook-reduce, which does not overwrite it.
program main
  use, intrinsic :: iso_c_binding
  use ddphook
  use ${name}_mod
  implicit none
  $real, allocatable :: gradients(:)
  real(c_double) :: exact, error = 0, norm = 0
  type(c_ptr) :: context
  integer(c_int64_t) :: i
  integer :: step, rank, ranks, other

  call ddphook_check(ddphook_context_create(c_null_ptr, context)) ! joins the job
  call ddphook_check(ddphook_module_load(context, ${name}_module))
  rank = ddphook_context_rank(context)
  ranks = ddphook_context_world_size(context)
  allocate (gradients(${name}_size))
  do step = 0, 3
    gradients = [(real(gradient(rank, i), kind(gradients)), i=1, ${name}_size)]
    call ddphook_check(${name}_reduce(gradients))
    do i = 1, ${name}_size
      exact = sum([(gradient(other, i), other=0, ranks - 1)])$divided
      error = error + (gradients(i) - exact)**2
      norm = norm + exact**2
    end do
  end do
  print '(2(a, i0), a, es7.1)', 'rank ', rank, ' of ', ranks, ': relative error ', sqrt(error/norm)
  call ddphook_context_destroy(context)
contains
  ! Element i of a rank's gradients, which are of rank 2 as matrices of any shape.
  real(c_double) function gradient(owner, i)
    integer, intent(in) :: owner
    integer(c_int64_t), intent(in) :: i
    gradient = sin(real(owner + step + i, c_double))
  end function
end program
"""
SBATCH = """\
#!/bin/sh
#SBATCH --job-name=$name
#SBATCH --ntasks=$ranks
srun ./$name
"""


def fail(message):
    sys.exit(f"ddphook-reduce: error: {message}")


def parse():
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.error = fail
    parser.add_argument("--help", action="store_true")
    for flag, (default, *_) in FLAGS.items():
        parser.add_argument(f"--{flag}", default=default)
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.cc = arguments[end + 1 :]
    if options.help:
        print("OVERVIEW: writes a C and Fortran function that averages gradient arrays")
        print("USAGE: ddphook-reduce --shapes=SHAPES [flags] [-- flags of ddphook-cc]\n")
        for flag, (_, _, kind, text) in FLAGS.items():
            print(f"  --{flag + '=' + kind:<24}  {text}")
        sys.exit()
    for flag, (_, pattern, kind, text) in FLAGS.items():
        value = getattr(options, flag.replace("-", "_"))
        if not re.fullmatch(pattern, value):
            fail(f"expected --{flag}={kind}, {text}, but got '{value}'")
    return options


def values_of(name, shapes, dtype, op, ranks):
    """Returns the values of the templates' names."""
    shapes = [[int(size) for size in shape.split("x")] for shape in shapes.split(",")]
    *begins, size = itertools.accumulate(map(math.prod, shapes), initial=0)
    c, real = TYPES[dtype]
    whole = f"tensor<{size}x{dtype}>"
    values = {"name": name, "NAME": name.upper(), "size": size, "c": c, "real": real}
    values |= {"whole": whole, "op": op, "divided": " / ranks" if op == "mean" else ""}
    values |= {"group": f" size {ranks}" if ranks else "", "ranks": ranks or 2}
    pieces = {"reductions": "", "insertions": "", "macros": "", "parameters": ""}
    for i, (shape, begin) in enumerate(zip(shapes, begins)):
        count = math.prod(shape)
        values |= {"i": i, "count": i + 1, "begin": begin, "part": f"[{begin}] [{count}] [1]"}
        values |= {"shape": shape, "dimensions": [list(range(len(shape)))]}
        values |= {"flat": f"tensor<{count}x{dtype}>"}
        values |= {"array": f"tensor<{'x'.join(map(str, shape))}x{dtype}>"}
        templates = (MATRIX if len(shape) > 1 else VECTOR, INSERTION, MACRO, PARAMETER)
        for piece, template in zip(pieces, templates):
            pieces[piece] += Template(template).substitute(values)
    return values | pieces


def main():
    options = parse()
    name = options.name
    values = values_of(name, options.shapes, options.dtype, options.op, options.ranks)

    def write(path, template, mode="w"):
        if mode != "x" or not os.path.exists(path):
            with open(path, mode, encoding="utf-8") as file:
                file.write(Template(template).substitute(values))

    write(f"{name}.mlir", MODULE)
    os.environ["PATH"] = f"{os.path.dirname(os.path.realpath(__file__))}:{os.environ['PATH']}"
    command = ["ddphook-cc", f"{name}.mlir", "-o", f"{name}.o", f"--header={name}.h"]
    command += [f"--name={name}", f"--ddp-pipeline={options.ddp_pipeline}", *options.cc]
    if subprocess.run(command).returncode:
        sys.exit(1)
    write(f"{name}.h", HEADER, "a")
    write(f"{name}.f90", FORTRAN)
    write(f"{name}.sbatch", SBATCH, "x")
    if values["c"]:
        write(f"{name}_main.c", MAIN_C, "x")
        write(f"{name}_main.f90", MAIN_FORTRAN, "x")
        print(f"cc {name}_main.c {name}.o -o {name} -lddphook_rt -lm")
        print(f"mpirun -n {values['ranks']} ./{name}")


try:
    main()
except OSError as error:
    fail(error)
