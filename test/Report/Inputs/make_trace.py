# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""make_trace.py [MOVING [WAITING]]: prints a trace of three steps on two ranks.

A step computes for 3 ms and has two collectives: that of b0 in flight, that of b1 in the
step itself. Each moves bytes for MOVING µs; rank 0 waits WAITING µs for the other one.
"""

import json
import sys


def main():
    moving = float(sys.argv[1]) if len(sys.argv) > 1 else 400.0
    waiting = float(sys.argv[2]) if len(sys.argv) > 2 else 100.0
    events = []

    def add(cat, name, rank, thread, begin, duration, **arguments):
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": rank, "tid": thread,
             "ts": begin, "dur": duration, "args": arguments}
        )  # fmt: skip

    for rank in range(2):
        own = waiting if rank == 0 else 0.0
        for step in range(3):
            begin = 10000.0 * step
            add("step", "step", rank, 0, begin, 3000 + 2 * moving + own, step=step + 1)
            add("kernel", "matmul", rank, 0, begin, 3000)
            add("collective", "all_reduce b0", rank, 1, begin + 1000, moving + own,
                collective=0, bucket="b0", group="dp", wire_bytes=512)  # fmt: skip
            add("wait", "ranks", rank, 1, begin + 1000, own)
            add("collective", "all_reduce b1", rank, 0, begin + 3000, moving + own,
                collective=1, bucket="b1", group="dp", wire_bytes=512, wait_us=own)  # fmt: skip
    ours = {
        "version": 1,
        "run_id": "by hand",
        "world_size": 2,
        "ranks": [{"rank": rank, "events_lost": 0} for rank in range(2)],
        "failures": [],
    }
    print(json.dumps({"displayTimeUnit": "ms", "traceEvents": events, "ddphook": ours}))


if __name__ == "__main__":
    main()
