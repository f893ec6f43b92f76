#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""measure.py FILE COMMAND...: runs a command, and writes to FILE the time that it took
and the processor time of all processes that it started.

A shell's `time` misses processes that outlive their parents, such as the fork server of
a test and all its ranks. Linux makes this process the parent of these ("subreaper"), so
that it waits for them, and their times are added to its own. Processes that still run
ten seconds after the command has ended are not counted; FILE says so.
"""

import ctypes
import os
import resource
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def wait_for_orphans(seconds):
    """Returns whether all of them have ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
        except ChildProcessError:
            return True
    return False


def main():
    path, *command = sys.argv[1:]
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("error: the kernel knows no subreapers")
    begin = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ)
    ended = None
    while ended != child:
        # Orphans, too, as soon as they end.
        ended, status = os.wait()
    seconds = time.monotonic() - begin
    have_ended = wait_for_orphans(10)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(path, "w") as file:
        print(
            f"{seconds:.0f} s, {usage.ru_utime + usage.ru_stime:.0f} s of processors"
            + ("" if have_ended else ", without processes that still run"),
            file=file,
        )
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
