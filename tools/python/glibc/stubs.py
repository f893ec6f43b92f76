# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stubs.py VERSION READELF OUT LIBRARY...: writes stubs of an older glibc.

A stub is what a linker needs of a shared library: its functions and variables with
their versions. OUT/NAME.c and OUT/NAME.map have those of glibc VERSION, taken from the
LIBRARYs of the installed glibc, which keeps all old versions. They lack later symbols,
and have the libraries that glibc 2.34 moved into libc.
"""

import pathlib
import re
import subprocess
import sys

# The libraries that glibc 2.34 moved into libc, and their functions.
MOVED = {
    "dl": r"dl[a-z]+",
    "rt": r"(aio|lio|mq|shm|timer)_",
    "pthread": r"(__)?pthread_|sem_|mtx_|cnd_|thrd_|tss_|call_once",
}
SYMBOL = re.compile(
    r"\s*\d+: [0-9a-f]+ +(\d+) (FUNC|IFUNC|OBJECT) +\w+ +DEFAULT +\d+ "
    r"(\w+)@@?GLIBC_([\d.]+)$"
)


def number(version):
    return [int(part) for part in version.split(".")]


def main():
    newest, readelf, out, *libraries = sys.argv[1:]
    stubs = {name: {} for name in ("c", "m", *MOVED)}
    for library in libraries:
        command = [readelf, "-W", "--dyn-syms", library]
        text = subprocess.run(command, check=True, capture_output=True, text=True)
        found = {}
        for line in text.stdout.splitlines():
            if symbol := SYMBOL.match(line):
                size, kind, name, version = symbol.groups()
                found.setdefault(name, []).append((number(version), size, kind))
        home = "m" if pathlib.Path(library).name.startswith("libm.") else "c"
        for name, versions in found.items():
            old = [each for each in versions if each[0] <= number(newest)]
            if not old:
                continue
            place = home
            if len(old) < len(versions):
                matches = (k for k, v in MOVED.items() if re.match(v, name))
                place = next(matches, home)
            stubs[place][name] = max(old)
    for place, symbols in stubs.items():
        code, nodes = [], {}
        for name, (version, size, kind) in sorted(symbols.items()):
            section, text = (
                (".bss", "object") if kind == "OBJECT" else (".text", "function")
            )
            code.append(
                f'__asm__("{section}\\n.globl {name}\\n.type {name},%{text}\\n'
                f'.size {name},{size}\\n{name}: .skip {max(int(size), 1)}\\n");'
            )
            nodes.setdefault(".".join(map(str, version)), []).append(name)
        path = pathlib.Path(out, place)
        path.with_suffix(".c").write_text("\n".join(code) + "\n")
        path.with_suffix(".map").write_text(
            "".join(f"GLIBC_{v} {{ {'; '.join(n)}; }};\n" for v, n in nodes.items())
            or "GLIBC_NONE { local: *; };\n"
        )


main()
