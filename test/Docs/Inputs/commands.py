#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the commands of a page: every block marked `sh`, in order, in one folder that
looks like the top of the repository.

    commands.py --tool TOOL [--mpi] PAGE.md

Programs are looked for beside TOOL first. With --mpi, Open MPI may run as root,
without ssh, and start more ranks than there are processors, and the job has a port of
its own. Stops at the first block with a command that fails. What they print is printed.
"""

import argparse
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]


def blocks(text):
    """(line, text) of each block of commands."""
    for match in re.finditer(r"^```sh\n(.*?)^```$", text, re.M | re.S):
        yield text.count("\n", 0, match.start()) + 1, match[1]


def for_mpi():
    """The variables of Open MPI 4 and 5, and a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_plm_rsh_agent": "sh",
        "PRTE_MCA_plm_ssh_agent": "sh",
        "DDPHOOK_PORT": str(port),
    }


def run(commands, folder, tool, variables):
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=os.environ | {"PATH": path} | variables,
        stderr=subprocess.STDOUT,
    )
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", type=pathlib.Path, required=True)
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("page", type=pathlib.Path)
    options = parser.parse_args()
    variables = for_mpi() if options.mpi else {}
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in ("build", "docs", "include", "runtime", "test", "tools"):
            (pathlib.Path(folder) / name).symlink_to(ROOT / name)
        for line, text in blocks(options.page.read_text(encoding="utf-8")):
            print(f"== {options.page.name}:{line}", flush=True)
            if status := run(text, folder, options.tool, variables):
                sys.exit(f"{options.page.name}:{line}: exit status {status}")
            count += 1
    print(f"{count} blocks of commands ran")


if __name__ == "__main__":
    main()
