# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares functions of the device, executed on the host, with Python's.

usage: device_math.py DDPHOOK-EXEC MODULE.so DIRECTORY

Errors are in units of the last place of the f32 result (ulp), for sin and cos in
those of 1: the largest over 20000 arguments, random ones and those at which
functions go wrong.
"""

import math
import random
import struct
import subprocess
import sys

import plain_safetensors

SEED, COUNT = 31415, 20000
INFINITY, NAN = math.inf, math.nan
SMALLEST, LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def rounded(x):
    try:
        return f32(x)
    except OverflowError:
        return math.copysign(INFINITY, x)


def ulp(x):
    """Distance of the f32 numbers around x."""
    return 2.0 ** (max(math.frexp(x)[1], -125) - 24)


def total(function):
    """`function`, with limits where Python raises."""

    def call(x):
        try:
            return function(x)
        except OverflowError:
            return INFINITY
        except ValueError:
            return NAN

    return call


def log(x):
    return -INFINITY if x == 0 else math.log(x)


def log1p(x):
    return -INFINITY if x == -1 else math.log1p(x)


def rsqrt(x):
    return math.copysign(INFINITY, x) if x == 0 else 1 / math.sqrt(x)


def uniform(low, high):
    return lambda generator: generator.uniform(low, high)


def exponential(low, high):
    return lambda generator: 2.0 ** generator.uniform(low, high)


# Name: function, random arguments, arguments beside them, most ulps.
ENDS = [INFINITY, -INFINITY, NAN, 0.0]
FUNCTIONS = {
    "exp": (math.exp, uniform(-87, 88.7), ENDS + [89.0, -110.0], 3.5),
    "log": (log, exponential(-126, 127.9), ENDS + [1.0, SMALLEST, LARGEST], 1.5),
    "tanh": (math.tanh, uniform(-10, 10), ENDS + [1e-5], 5),
    "erf": (math.erf, uniform(-5, 5), ENDS + [1e-5], 5),
    "sin": (math.sin, uniform(-10, 10), [0.0, 1e-5], 8),
    "cos": (math.cos, uniform(-10, 10), [0.0, 1e-5], 8),
    "rsqrt": (rsqrt, exponential(-126, 127.9), ENDS + [SMALLEST], 2),
    "log1p": (log1p, exponential(-30, 60), ENDS + [-1.0, -2.0, -0.5], 3),
    "expm1": (math.expm1, uniform(-20, 88), ENDS + [1e-5], 3.5),
}


def error(name, got, exact):
    expected = rounded(exact)
    if math.isnan(expected) or math.isnan(got):
        return 0 if math.isnan(expected) and math.isnan(got) else INFINITY
    if math.isinf(expected) or math.isinf(got):
        return 0 if expected == got else INFINITY
    return abs(got - exact) / ulp(1.0 if name in ("sin", "cos") else exact)


def main(tool, module, directory):
    print(f"seed {SEED}")
    generator = random.Random(SEED)
    arrays = []
    for _, draw, special, _ in FUNCTIONS.values():
        numbers = [f32(draw(generator)) for _ in range(COUNT - len(special))]
        arrays.append([f32(x) for x in special] + numbers)
    arguments = {
        f"arg{i}": ("F32", (COUNT,), struct.pack(f"<{COUNT}f", *array))
        for i, array in enumerate(arrays)
    }
    plain_safetensors.write(f"{directory}/inputs", arguments)
    subprocess.run(
        [
            tool,
            module,
            "--entry=step",
            f"--inputs={directory}/inputs",
            f"--outputs={directory}/outputs",
        ],
        check=True,
    )
    results = plain_safetensors.read(f"{directory}/outputs")
    failed = False
    for i, ((name, (function, _, _, limit)), xs) in enumerate(
        zip(FUNCTIONS.items(), arrays)
    ):
        ys = struct.unpack(f"<{COUNT}f", results[f"result{i}"][2])
        errors = [error(name, y, total(function)(x)) for x, y in zip(xs, ys)]
        worst = max(range(COUNT), key=errors.__getitem__)
        print(f"{name}: {errors[worst]:.2f} ulp at {xs[worst]!r}")
        failed |= errors[worst] > limit
    if failed:
        sys.exit("errors are larger than documented")


if __name__ == "__main__":
    main(*sys.argv[1:])
