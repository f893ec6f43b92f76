"""Uses a second of processor time in a process whose parent nobody waits for."""

import multiprocessing
import time


def compute():
    while time.process_time() < 1:
        pass


if __name__ == "__main__":
    process = multiprocessing.get_context("forkserver").Process(target=compute)
    process.start()
    process.join()
    assert process.exitcode == 0
