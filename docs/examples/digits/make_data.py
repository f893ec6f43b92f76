#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes digits.txt, the data of this example.

The images are the test half of "Optical Recognition of Handwritten Digits" of
the UCI Machine Learning Repository (Alpaydin and Kaynak, 1998), which ships
with scikit-learn. Only this script needs scikit-learn, and the file is kept in
the repository, so nobody has to run it:

    pip install scikit-learn && ./make_data.py

Format: one image a line; 64 characters, the 8 x 8 pixels row by row, each a
base-17 digit (0 = white … g = 16 = black); a blank; the label, 0 to 9. Lines
that begin with '#' are comments.
"""

import pathlib

from sklearn.datasets import load_digits

BASE_17 = "0123456789abcdefg"
HEADER = """\
# Handwritten digits, 8 x 8 pixels, 1797 images. Written by make_data.py, which
# documents the format. Source: E. Alpaydin and C. Kaynak, "Optical Recognition
# of Handwritten Digits", UCI Machine Learning Repository (1998),
# https://doi.org/10.24432/C50P49, CC BY 4.0; here as in scikit-learn.
"""


def main():
    digits = load_digits()
    lines = [
        "".join(BASE_17[int(pixel)] for pixel in image) + f" {label}\n"
        for image, label in zip(digits.data, digits.target)
    ]
    path = pathlib.Path(__file__).with_name("digits.txt")
    path.write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    main()
