#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles PTX for the emulated device and prints the path of the library.

usage: compile_ptx.py COMPILER DIRECTORY SOURCE

The library stays in DIRECTORY under a hash of the PTX, and of the translator.
"""

import hashlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w"]


def main():
    compiler, directory, source = sys.argv[1:]
    key = hashlib.sha256()
    for path in (source, HERE / "ptx.h", HERE / "ptx_to_cpp.py"):
        key.update(pathlib.Path(path).read_bytes())
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / f"{key.hexdigest()[:32]}.so"
    if not library.exists():
        partial = library.with_suffix(f".{os.getpid()}")
        text = f"{partial}.cpp"
        translate = [sys.executable, HERE / "ptx_to_cpp.py", source, text, "ptx_module"]
        build = [compiler, *FLAGS, "-I", HERE, text, "-o", partial]
        for command in (translate, build):
            if subprocess.run(command, stdout=sys.stderr).returncode != 0:
                sys.exit(1)
        os.remove(text)
        os.rename(partial, library)
    print(library)


if __name__ == "__main__":
    main()
