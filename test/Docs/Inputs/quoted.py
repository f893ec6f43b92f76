# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a page quotes programs as they are.

Every block of C, C++ or CMake of the page has to stand, line by line, in one of the
files given, which other tests compile and run. Indentation may differ by the same
amount on all lines.
"""

import argparse
import pathlib
import re
import sys
import textwrap


def blocks(text):
    """The page's blocks that are programs: (line, text)."""
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        if match[1] in ("c", "cpp", "cmake"):
            yield text.count("\n", 0, match.start()) + 1, match[2]


def contains(program, block):
    """Whether the lines of the block stand in the program, one after the other."""
    lines, wanted = program.splitlines(), block.splitlines()
    return any(
        textwrap.dedent("\n".join(lines[i : i + len(wanted)])).rstrip()
        == textwrap.dedent(block).rstrip()
        for i in range(len(lines) - len(wanted) + 1)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("programs", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    programs = [path.read_text() for path in options.programs]
    found = list(blocks(options.page.read_text()))
    wrong = [
        line
        for line, block in found
        if not any(contains(program, block) for program in programs)
    ]
    for line in wrong:
        print(f"{options.page.name}:{line}: no program has this block")
    print(f"{len(found)} blocks, {len(wrong)} wrong")
    sys.exit(1 if wrong or not found else 0)


if __name__ == "__main__":
    main()
