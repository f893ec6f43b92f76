# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command as every rank of a job, each with variables of its own.

usage: launch_ranks.py PORT VARIABLES… -- COMMAND…

VARIABLES is a JSON object for every rank. Ends when all have ended; the status is
the first one that is not 0. When one fails, the runtime ends the others.
"""

import json
import os
import subprocess
import sys


def main(port, *arguments):
    separator = arguments.index("--")
    each, command = arguments[:separator], arguments[separator + 1 :]
    processes = []
    for rank, text in enumerate(each):
        launch = {
            "RANK": rank,
            "WORLD_SIZE": len(each),
            "LOCAL_RANK": rank,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        variables = {**os.environ, **json.loads(text)}
        variables.update({name: str(value) for name, value in launch.items()})
        processes.append(subprocess.Popen(command, env=variables))
    codes = [process.wait() for process in processes]
    return next((abs(code) for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
