# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The results of PyTorch's communication hooks: real hooks on real processes.

Four worker processes form a Gloo world once per test session; a case with W ranks runs
on a process group of the first W of them. For CUDA tensors (test/gpu), it is an NCCL
world with one worker per GPU. A worker calls PyTorch's hooks once per bucket, with an
object that has the methods of torch.distributed.GradBucket (which Python cannot
construct); test_oracle.py shows that this gives the bits of DistributedDataParallel.

PyTorch's hooks always divide by the group's size. A `sum` therefore runs the same hooks
on a group that reports size one: x / 1 is x, and everything else is unchanged.

This module imports torch only in the workers, so that collecting tests is fast.
"""

import contextlib
import faulthandler
import functools
import multiprocessing
import os
import tempfile
import traceback
import warnings
from types import SimpleNamespace

import numpy as np

import powersgd_oracle
from tensors import DTYPES, Tensor

WORLD = 4
TIMEOUT_S = 120
# The device of a worker's tensors.
_DEVICE = "cpu"


class Pool:
    """The worker processes. They run one job at a time; if a worker raises an exception, the
    job fails with its traceback. A worker first sets the environment variables
    `variables(rank)`.

    The results of a job depend on its arguments alone. So if PyTorch ends a worker, or hangs,
    new workers repeat the job once, with a warning that says what happened."""

    def __init__(
        self,
        world=WORLD,
        device="cpu",
        variables=lambda rank: {},
        timeout=TIMEOUT_S,
    ):
        self.world, self.timeout = world, timeout
        self.device, self.variables = device, variables
        # The process groups that the workers have made.
        self.groups = []
        self._start()

    def _start(self):
        # The workers meet at a file: a free port may be taken before they listen on it.
        self.directory = tempfile.TemporaryDirectory(prefix="ddphook-oracle-")
        store = os.path.join(self.directory.name, "store")
        # A fork server imports torch once for all workers.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch.distributed"])
        self.workers = []
        for rank in range(self.world):
            here, there = context.Pipe()
            arguments = (rank, self.world, store, there, self.device)
            process = context.Process(
                target=_serve, args=(*arguments, self.variables(rank)), daemon=True
            )
            process.start()
            there.close()
            self.workers.append((process, here))

    def call(self, function, arguments, ranks=None):
        """Runs function(*arguments[rank]) on each of `ranks` (default: all); returns the
        results."""
        ranks = list(range(self.world) if ranks is None else ranks)
        try:
            answers = self._ask(function, arguments, ranks)
        except (EOFError, OSError) as error:
            warnings.warn(f"new oracle, for {self._stop() or error!r}", stacklevel=2)
            self._start()
            if self.groups:
                self._ask("make_groups", [(self.groups,)] * self.world, range(self.world))
            answers = self._ask(function, arguments, ranks)
        failures = [value for done, value in answers if not done]
        if failures:
            raise RuntimeError("the oracle failed:\n" + "\n".join(failures))
        return [value for _, value in answers]

    def _ask(self, function, arguments, ranks):
        """Returns one pair per rank: whether the function returned, and its result or its
        traceback."""
        for rank in ranks:
            self.workers[rank][1].send((function, arguments[rank]))
        answers = []
        for rank in ranks:
            pipe = self.workers[rank][1]
            if not pipe.poll(self.timeout):
                raise TimeoutError(f"oracle rank {rank} gave no answer")
            answers.append(pipe.recv())
        return answers

    def _stop(self):
        """Kills all workers. Returns how those that had ended by themselves did so."""
        ended = []
        for rank, (process, pipe) in enumerate(self.workers):
            pipe.close()
            process.join(0.1)
            if process.exitcode:
                ended.append(f"rank {rank} ended with exit code {process.exitcode}")
            process.kill()
            process.join()
        self.directory.cleanup()
        return ", ".join(ended)

    def close(self):
        for _, pipe in self.workers:
            pipe.close()
        for process, _ in self.workers:
            process.join(10)
            if process.is_alive():
                process.kill()
        self.directory.cleanup()

    def run_barrier(self):
        """Checks that the world works."""
        self.call("run_barrier", [()] * self.world)

    def make_groups(self, groups):
        """Makes those of these process groups (tuples of ranks) that do not exist."""
        new = [group for group in groups if group not in self.groups]
        self.call("make_groups", [(new,)] * self.world)
        self.groups += new

    def run_buckets(self, world, jobs):
        """Runs hooks on ranks 0 … world−1. jobs: a list of (hook, mean, bucket tensors by rank).
        Returns the list of results by rank."""
        return self.run_groups(world, [(None, *job) for job in jobs])

    def run_groups(self, world, jobs):
        """Does the same as run_buckets, but each job starts with the partition of the ranks into
        process groups; None is one group of all."""
        whole = (tuple(range(world)),)
        jobs = [(tuple(job[0] or whole), *job[1:]) for job in jobs]
        partitions = {job[0] for job in jobs}
        everyone = sorted({group for parts in partitions for group in parts})
        self.make_groups(everyone)
        arguments = []
        for rank in range(world):
            mine = []
            for partition, hook, mean, tensors in jobs:
                (group,) = [g for g in partition if rank in g]
                tensor = tensors[rank]
                mine.append((group, hook, mean, tensor.dtype, tensor.data))
            arguments.append((mine,))
        results = self.call("run_jobs", arguments, range(world))
        return [
            [Tensor(job[3][0].dtype, results[r][i]) for r in range(world)]
            for i, job in enumerate(jobs)
        ]

    def run_powersgd(self, world, jobs):
        """Runs PowerSGD on ranks 0 … world−1. jobs: (Config, buckets, dtype, gradients
        [rank][step][bucket] as Tensors). Returns, per job, the results in the same nesting,
        and snapshots [rank][step]."""
        ranks = tuple(range(world))
        self.make_groups([ranks])
        arguments = []
        for rank in ranks:
            mine = [
                (config, buckets, dtype, [[t.data for t in s] for s in grads[rank]])
                for config, buckets, dtype, grads in jobs
            ]
            arguments.append((ranks, mine))
        by_rank = self.call("run_powersgd", arguments, ranks)
        results = []
        for i, (_, _, dtype, _) in enumerate(jobs):
            out = [
                [[Tensor(dtype, flat) for flat in step] for step in by_rank[r][i][0]]
                for r in ranks
            ]
            results.append((out, [by_rank[r][i][1] for r in ranks]))
        return results


def _serve(rank, world, store, pipe, device, variables):
    global _DEVICE
    os.environ.update(variables)
    faulthandler.enable()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if device == "cuda":
        _DEVICE = f"cuda:{rank % torch.cuda.device_count()}"
        torch.cuda.set_device(_DEVICE)
    # Peers are processes of this machine; the host's name need not resolve.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, f"file://{store}", rank=rank, world_size=world)
    worker = _Worker(rank)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            pipe.send((True, getattr(worker, function)(*arguments)))
        except Exception:
            pipe.send((False, f"rank {rank}: {traceback.format_exc()}"))


class _SizeOne:
    """A process group that reports a single member."""

    def __init__(self, group):
        self._group = group

    def size(self):
        return 1

    def __getattr__(self, name):
        return getattr(self._group, name)


class _Bucket:
    """An object with the methods of torch.distributed.GradBucket that hooks call."""

    def __init__(self, buffer):
        self._buffer = buffer

    def buffer(self):
        return self._buffer

    def set_buffer(self, buffer):
        self._buffer = buffer

    def parameters(self):
        return []


class _Worker:
    """The functions that a worker process runs; only workers have torch."""

    def __init__(self, rank):
        self.rank = rank
        self.groups = {}

    def run_barrier(self):
        import torch.distributed as dist

        dist.barrier()

    def make_groups(self, members):
        import torch.distributed as dist

        for ranks in members:
            self.groups[ranks] = dist.new_group(list(ranks))

    def run_jobs(self, jobs):
        results = []
        for group, hook, mean, dtype, data in jobs:
            group = self.groups[group]
            state = group if mean else _SizeOne(group)
            buffer = _to_torch(dtype, data)
            bucket = _Bucket(buffer.clone())
            out = _find_hook(hook)(state, bucket).wait()
            results.append(_to_numpy(out.to(buffer.dtype)))
        return results

    def run_exchanges(self, group, arrays):
        """Runs torch.distributed's own collectives on each array: reduce-scatter, all-gather of
        its parts, all-to-all, and broadcast from rank 0."""
        import torch
        import torch.distributed as dist

        ranks, group, results = len(group), self.groups[group], []
        for dtype, data in arrays:
            whole = _to_torch(dtype, data)
            part = torch.empty_like(whole[: len(whole) // ranks])
            dist.reduce_scatter_tensor(part, whole.clone(), group=group)
            together, exchanged = torch.empty_like(whole), torch.empty_like(whole)
            dist.all_gather_into_tensor(together, part, group=group)
            dist.all_to_all_single(exchanged, whole, group=group)
            sent = whole.clone()
            dist.broadcast(sent, 0, group=group)
            for tensor in (part, together, exchanged, sent):
                results.append(_to_numpy(tensor))
        return results

    def run_ddp(self, group, hook, dtype, grads, cap_mb, steps):
        """Runs real DistributedDataParallel over a module whose gradients are given;
        grads[step][i] belongs to parameter i. Returns, per step, the gradients after DDP and,
        per bucket in order of communication, the numbers of its parameters, its initial flat
        gradient, and the hook's result."""
        import torch
        from torch.nn.parallel import DistributedDataParallel

        class Linear(torch.nn.Module):
            def __init__(self):
                super().__init__()
                zeros = [torch.zeros_like(_to_torch(dtype, g)) for g in grads[0]]
                self.weights = torch.nn.ParameterList(zeros)

            def forward(self, coefficients):
                # The derivative of sum(w · c) with respect to w is c, whatever its value.
                parts = zip(self.weights, coefficients)
                return sum((w * c).sum() for w, c in parts)

        module = Linear()
        numbers = {id(w): i for i, w in enumerate(module.weights)}
        caps = {} if cap_mb is None else {"bucket_cap_mb": cap_mb}
        ddp = DistributedDataParallel(
            module, process_group=self.groups[group], **caps
        )
        state, real = self._state_and_hook(hook, group)
        log = []

        def recorder(state, bucket):
            members = [numbers[id(p)] for p in bucket.parameters()]
            before = _to_numpy(bucket.buffer().clone())
            future = real(state, bucket)
            # Waits here: DDP on Gloo may start chained collectives in different orders on
            # different ranks.
            out = future.wait()
            log.append((members, before, _to_numpy(out.to(bucket_type))))
            done = torch.futures.Future()
            done.set_result(out)
            return done

        bucket_type = _to_torch(dtype, grads[0][0]).dtype
        recorder.__annotations__.clear()
        ddp.register_comm_hook(state, recorder)
        results = []
        for step in range(steps):
            log.clear()
            ddp.zero_grad()
            ddp([_to_torch(dtype, g) for g in grads[step]]).backward()
            left = [_to_numpy(w.grad.clone()) for w in module.weights]
            results.append((left, list(log)))
        return results

    def _state_and_hook(self, hook, group):
        if hook[0] == "powersgd":
            return powersgd_oracle.state_and_hook(hook[1], self.groups[group])
        return self.groups[group], _find_hook(hook)

    def run_powersgd(self, group, jobs):
        return powersgd_oracle.run(self.groups[group], jobs, _to_torch, _to_numpy)

    def run_powersgd_as_it_is(self, group, jobs):
        run = powersgd_oracle.run
        return run(self.groups[group], jobs, _to_torch, _to_numpy, unsqueeze=False)

    def draw(self, seeds, jobs):
        return powersgd_oracle.draw(seeds, jobs, _to_numpy)

    def assign_buckets(self, tensors, limits):
        """Returns DDP's own bucket assignment: lists of tensor numbers."""
        import torch.distributed as dist

        tensors = [_to_torch(dtype, data) for dtype, data in tensors]
        return dist._compute_bucket_assignment_by_size(
            tensors, limits, [False] * len(tensors)
        )[0]

    def load_official(self, path, names):
        """Reads a file with the safetensors library and returns its tensors."""
        from safetensors.torch import load_file

        tensors = load_file(path)
        return {name: _to_numpy(tensors[name]) for name in names}


def _find_hook(hook):
    from torch.distributed.algorithms.ddp_comm_hooks import (
        debugging_hooks,
        default_hooks,
        quantization_hooks,
    )

    if hook[0] == "allreduce_and_upcast":
        return _allreduce_and_upcast(*hook[1:])
    if hook[0] == "wrap":
        wrappers = {
            "f16": default_hooks.fp16_compress_wrapper,
            "bf16": default_hooks.bf16_compress_wrapper,
        }
        return wrappers[hook[1]](_find_hook(hook[2]))
    return {
        "allreduce": default_hooks.allreduce_hook,
        "fp16": default_hooks.fp16_compress_hook,
        "bf16": default_hooks.bf16_compress_hook,
        "noop": debugging_hooks.noop_hook,
        "quantization_pertensor": quantization_hooks.quantization_pertensor_hook,
        "quantization_perchannel": functools.partial(
            quantization_hooks.quantization_perchannel_hook,
            bucket_size=hook[1] if len(hook) > 1 else 512,
        ),
    }[hook[0]]


def _allreduce_and_upcast(reduce_dtype=None):
    """The hook that DDP installs for `mixed_precision`, with a substitute for the parts of DDP
    that it needs: DDP itself creates a stream, which a CPU does not have."""
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import mixed_precision_hooks

    def run(group, bucket):
        own = bucket.buffer().dtype
        wanted = {
            None: own,
            "f16": torch.float16,
            "bf16": torch.bfloat16,
            "f32": torch.float32,
            "f64": torch.float64,
        }[reduce_dtype]

        def all_reduce(bucket):
            work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
            return work.get_future()

        ddp = SimpleNamespace(
            reducer=SimpleNamespace(_run_allreduce_hook=all_reduce),
            process_group=group,
            mixed_precision=SimpleNamespace(param_dtype=own, reduce_dtype=wanted),
        )
        state = SimpleNamespace(
            ddp_weakref=lambda: ddp,
            upcast_stream=contextlib.nullcontext(),
            # Nothing waits for a stream at the end of a backward pass.
            wait_for_stream_enqueued=True,
        )
        return mixed_precision_hooks._reducer_allreduce_and_upcast_hook(state, bucket)

    return run


def _to_torch(dtype, data):
    import torch

    tensor = torch.from_numpy(np.array(data, order="C"))
    tensor = tensor.view(torch.bfloat16) if dtype == "bf16" else tensor
    return tensor.to(_DEVICE)


def _to_numpy(tensor):
    import torch

    tensor = tensor.detach().contiguous().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
        return tensor.numpy().view(DTYPES["bf16"][0])
    return tensor.numpy()
