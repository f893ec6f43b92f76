#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the includes of lib, include and runtime follow docs/architecture.md.

The table of *Who may include whom* lists what each directory may include besides its own headers
and those of runtime/include. A directory of runtime/src may also include those above it in the
table of the tree; a file with a row of its own, what its directory may. A directory of lib stands
for its headers in include/ddphook, too. The last line is "N of N files pass".
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/architecture.md").read_text()
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
SUFFIXES = (".h", ".cpp", ".c", ".cu", ".inc")


def layer(path):
    """Returns the path as the table has it: headers are next to their sources."""
    path = re.sub(r"^include/ddphook-c/", "lib/CAPI/", path)
    return re.sub(r"^include/ddphook/", "lib/", path)


def is_in(path, place):
    return path == place or path.startswith(place + "/")


def read_rules():
    """Returns what each directory or file of the table may include."""
    section = PAGE.split("### Who may include whom")[1].split("\n### ")[0]
    rules = {}
    for line in re.findall(r"^\|(.*`.*)\|$", section, re.MULTILINE):
        places, allowed = (
            [layer(place) for place in re.findall(r"`([^`]+)`", cell)] for cell in line.split("|")
        )
        rules.update(dict.fromkeys(places, allowed))
    order = re.findall(r"^\| `src/(\w+)`", PAGE, re.MULTILINE)
    for number, name in enumerate(order):
        rules[f"runtime/src/{name}"] = [f"runtime/src/{one}" for one in order[:number]]
    return rules


def find(path, name, files):
    """Returns the file of the project that is included; none for others."""
    backend = "/".join(path.split("/")[:3])
    near = [str(pathlib.PurePosixPath(path).parent), backend, f"{backend}/kernels"]
    host = ["runtime/backends/host", "runtime/backends/host/kernels"]
    for root in [*near, "include", "lib", "runtime/include", "runtime/src", "runtime/exec", *host]:
        found = (ROOT / root / name).resolve()
        if found.is_relative_to(ROOT) and str(found.relative_to(ROOT)) in files:
            return str(found.relative_to(ROOT))
    return None


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "lib", "include", "runtime"],
        cwd=ROOT, check=True, capture_output=True, text=True)
    files = {f for f in listed.stdout.split() if f.endswith(SUFFIXES) and (ROOT / f).exists()}
    rules, used = read_rules(), set()
    checked = {f for f in files if not is_in(f, "runtime/test") and not is_in(f, "runtime/include")}
    wrong = set()
    for path in sorted(checked):
        mine = [place for place in rules if is_in(layer(path), place)]
        used.update(mine)
        allowed = {*mine, "runtime/include"}.union(*(rules[place] for place in mine))
        for name in INCLUDE.findall((ROOT / path).read_text()):
            other = find(path, name, files)
            if other and not any(is_in(layer(other), place) for place in allowed):
                wrong.add(path)
                print(f"{path}: docs/architecture.md does not permit {name}")
    for place in sorted(rules.keys() - used):
        wrong.add(place)
        print(f"docs/architecture.md: there is no {place}")
    print(f"{len(checked) - len(wrong)} of {len(checked)} files pass")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
