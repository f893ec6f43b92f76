#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Widens the network of ../digits: prints its step.mlir with other hidden layers.

    widen.py 1024 1024 > step.mlir

Every shape of digits' step says by itself which layers it belongs to, except
that images have as many pixels as its second layer has neurons; but images are
always called %images.
"""

import pathlib
import re
import sys

DIGITS = pathlib.Path(__file__).resolve().parent.parent / "digits" / "step.mlir"


def widen(line, first, second):
    def replace(match):
        sizes = match[1].split("x")
        images = "%images" in line and sizes in (["32", "64"], ["359", "64"])
        # Rows of w1 are pixels.
        keep = 1 if sizes == ["64", "128"] else len(sizes) if images else 0
        for i in range(keep, len(sizes)):
            sizes[i] = {"128": first, "64": second}.get(sizes[i], sizes[i])
        return f"tensor<{'x'.join(sizes)}x{match[2]}>"

    line = re.sub(r"tensor<([0-9x]+)x([fi]\d+)>", replace, line)
    layers = "//   images 32x64 → 128 → relu → 64 → relu"
    return line.replace(layers, f"//   images 32x64 → {first} → relu → {second} → relu")


def main():
    first, second = sys.argv[1:]
    for line in DIGITS.read_text().splitlines():
        print(widen(line, first, second))


main()
