# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Casts from f64 to bf16 and f16 in compiled code, against exact fractions.

usage: wide_casts.py DDPHOOK-EXEC MODULE.so DIRECTORY
"""

import math
import random
import struct
import subprocess
import sys
from fractions import Fraction

import plain_safetensors

SEED, COUNT = 2718, 4096


class Format:
    """A narrow type: bits of its exponent and of its fraction."""

    def __init__(self, exponent, fraction):
        self.fraction = fraction
        self.infinity = ((1 << exponent) - 1) << fraction
        self.least = 2 - (1 << (exponent - 1))  # exponent of the least normal number

    def value(self, magnitude):
        """Of a pattern without sign; infinity counts as the next power of two."""
        exponent, fraction = magnitude >> self.fraction, magnitude & ((1 << self.fraction) - 1)
        scale = Fraction(2) ** (max(exponent, 1) - 1 + self.least - self.fraction)
        return scale * (fraction + ((1 << self.fraction) if exponent else 0))

    def round(self, x):
        """The pattern nearest to the f64 number x, ties to the even one."""
        sign = 1 if math.copysign(1, x) < 0 else 0
        shift = self.fraction + (self.infinity >> self.fraction).bit_length()
        if math.isinf(x):
            return (sign << shift) | self.infinity
        exact = abs(Fraction(x))
        low, high = 0, self.infinity
        while high - low > 1:
            middle = (low + high) // 2
            if self.value(middle) <= exact:
                low = middle
            else:
                high = middle
        if exact >= self.value(self.infinity):
            return (sign << shift) | self.infinity
        below, above = exact - self.value(low), self.value(high) - exact
        up = above < below or (above == below and low & 1)
        return (sign << shift) | (high if up else low)


def main():
    tool, module, directory = sys.argv[1:]
    print(f"seed {SEED}")
    generator = random.Random(SEED)
    bf16, f16 = Format(8, 7), Format(5, 10)
    values = [0.0, -0.0, math.inf, -math.inf, 1e300, -1e-300, 5e-324, 3.4e38, 65520.0]
    while len(values) < COUNT:
        form = generator.choice((bf16, f16))
        low = generator.randrange(form.infinity - 1)
        tie = float((form.value(low) + form.value(low + 1)) / 2)
        # A tie, its neighbours in f64, and numbers that f32 rounds to the tie.
        offset = generator.choice((0, 2**-52, -(2**-52), 2**-30, -(2**-30), 0.1, -0.1))
        values.append(generator.choice((1, -1)) * tie * (1 + offset))
    content = struct.pack(f"<{COUNT}d", *values)
    plain_safetensors.write(f"{directory}/in", {"arg0": ("F64", (COUNT,), content)})
    subprocess.run(
        [tool, module, "--entry=step", f"--inputs={directory}/in", f"--outputs={directory}/out"],
        check=True,
        timeout=60,
    )
    results = plain_safetensors.read(f"{directory}/out")
    bad = 0
    for name, form in (("result0", bf16), ("result1", f16)):
        got = struct.unpack(f"<{COUNT}H", results[name][2])
        for x, bits in zip(values, got):
            if bits != form.round(x):
                print(f"{name}: {x.hex()}: expected {form.round(x):#x}, but got {bits:#x}")
                bad += 1
    print(f"{bad} differences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
