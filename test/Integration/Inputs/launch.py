# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs a program on ranks, as a launcher does: launch.py RANKS PROGRAM [ARGUMENT…].
# Prints the ranks' output in their order; the exit status is the largest of theirs.

import os
import socket
import subprocess
import sys

ranks, command = int(sys.argv[1]), sys.argv[2:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
processes = []
for rank in range(ranks):
    job = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "DDPHOOK_TIMEOUT_S": "120",
    }
    processes.append(
        subprocess.Popen(command, env=os.environ | job, stdout=subprocess.PIPE, text=True)
    )
statuses = []
for process in processes:
    print(process.communicate()[0], end="", flush=True)
    # A signal's number is negative.
    statuses.append(abs(process.returncode))
sys.exit(max(statuses))
