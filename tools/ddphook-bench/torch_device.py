# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's side of `ddphook-bench device`: its hooks on one device.

Run by ddphook-bench with the protocol of torch_hooks.py, in a group of one on
one device (`--device=cuda` or `cpu`). Calls are repeated for two milliseconds
per measurement; a GPU's events measure the time.

Jobs, each on the bucket that measure.h defines:
  copy        float32 to float32
  cast        kind f16 | bf16: float32 to it
  decompress  kind f16 | bf16: it to float32
  divide      by two
  hook        kind fp16 | bf16: the hook
  elements    kind N: the bucket has N elements from now on
  powersgd    kind {"shapes": [[1024, 1024], …], "rank": 1}: the hook on a bucket
              of such tensors
"""

import argparse
import json
import sys
import tempfile
import time

import torch
import torch.distributed as dist

from torch_hooks import DTYPES, HOOKS, Bucket, PowerSgd, fingerprint, make_input

SAMPLE_SECONDS = 2e-3
# As in ddphook-bench.
MOST_CALLS = 200


class Worker:
    def __init__(self, device, n):
        self.device = torch.device(device)
        self.group = dist.group.WORLD
        self.resize(n)

    def resize(self, n):
        self.input = self.bucket = self.wide = None
        self.input = make_input(n, 0).to(self.device)
        self.bucket = self.input.clone()
        self.wide = torch.empty_like(self.input)

    def time(self, fn, calls):
        if self.device.type == "cuda":
            return self.time_by_events(fn, calls)
        begin = time.perf_counter()
        for _ in range(calls):
            fn()
        return (time.perf_counter() - begin) / calls

    def time_by_events(self, fn, calls):
        torch.cuda.synchronize(self.device)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            fn()
        last.record()
        # Poll without a pause, as on the other side.
        while not last.query():
            pass
        return 1e-3 * first.elapsed_time(last) / calls

    def sample(self, fn, count):
        self.time(fn, 1)
        once = max(self.time(fn, 1), 1e-7)
        calls = min(max(round(SAMPLE_SECONDS / once), 1), MOST_CALLS)
        return [self.time(fn, calls) for _ in range(count)]

    def make(self, job, kind):
        if job == "copy":
            return lambda: self.wide.copy_(self.input)
        if job == "cast":
            out = torch.empty_like(self.input, dtype=DTYPES[kind])
            return lambda: out.copy_(self.input)
        if job == "decompress":
            half = self.input.to(DTYPES[kind])
            return lambda: self.wide.copy_(half)
        if job == "divide":
            return lambda: torch.div(self.input, 2, out=self.wide)
        bucket, hook = Bucket(self.bucket), HOOKS[kind]
        return lambda: hook(self.group, bucket).wait()

    def run(self, job, kind, repetitions, **_):
        if job == "elements":
            self.resize(int(kind))
            return {"seconds": [], "checksum": 0}
        if job == "powersgd":
            what = json.loads(kind)
            work = PowerSgd(self.group, what["shapes"], what["rank"], 0,
                            self.device)
            work.step()
            values = fingerprint(work.bucket.buffer())
            values += fingerprint(work.state.error_dict[0])
            work.reset()
            seconds = self.sample(work.step, repetitions) if repetitions else []
            return {"seconds": seconds, "checksum": 0, "values": values}
        return {"seconds": self.sample(self.make(job, kind), repetitions),
                "checksum": 0}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--elements", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.device == "cuda":
        torch.cuda.set_device(0)
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group(
            "nccl" if options.device == "cuda" else "gloo",
            init_method=f"file://{store.name}", rank=0, world_size=1)
        worker = Worker(options.device, options.elements)
        print(json.dumps({"torch": torch.__version__}), flush=True)
        for line in sys.stdin:
            print(json.dumps(worker.run(**json.loads(line))), flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
