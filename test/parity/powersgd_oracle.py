# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's real PowerSGD hooks, step by step with their state.

An oracle worker runs this (oracle.py). It passes the buckets of a step to the hook one
at a time, and waits for each: with several buckets in flight, Gloo may see their
collectives in different orders on different ranks.
"""

import contextlib

from powersgd_model import Snapshot
from powersgd_random import generator_words
from tensors import Tensor


class _Bucket:
    """An object with the methods of torch.distributed.GradBucket that PowerSGD calls."""

    def __init__(self, number, is_last, shapes, buffer):
        self._number, self._is_last = number, is_last
        self._shapes, self._buffer = shapes, buffer

    def index(self):
        return self._number

    def is_last(self):
        return self._is_last

    def buffer(self):
        return self._buffer

    def set_buffer(self, buffer):
        self._buffer = buffer

    def gradients(self):
        sizes = [shape.numel() for shape in self._shapes]
        parts = self._buffer.split(sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes)]


@contextlib.contextmanager
def _unsqueezed_factors():
    """Gives `_orthogonalize` a batch of one: the batched hook passes a matrix, but the
    function asserts a batch of matrices."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    real = powerSGD_hook._orthogonalize

    def orthogonalize(matrices, epsilon=0):
        real(matrices if matrices.dim() == 3 else matrices.unsqueeze(0), epsilon)

    powerSGD_hook._orthogonalize = orthogonalize
    try:
        yield
    finally:
        powerSGD_hook._orthogonalize = real


def state_and_hook(config, group):
    """Returns the arguments of register_comm_hook."""
    from torch.distributed.algorithms.ddp_comm_hooks import (
        default_hooks,
        powerSGD_hook,
    )

    hook = powerSGD_hook.powerSGD_hook
    if config.batched:
        hook = powerSGD_hook.batched_powerSGD_hook
    wrappers = {
        "fp16": default_hooks.fp16_compress_wrapper,
        "bf16": default_hooks.bf16_compress_wrapper,
    }
    hook = wrappers[config.wrapper](hook) if config.wrapper else hook
    return powerSGD_hook.PowerSGDState(group, **config.torch_options()), hook


def _snapshot(state, to_numpy, dtype):
    def copied(tensors):
        # Before the first product, P's memory is not initialized.
        return {
            number: Tensor(dtype, to_numpy(tensor.reshape(-1)).copy())
            for number, tensor in tensors.items()
        }

    return Snapshot(
        state.iter,
        generator_words(state.rng),
        copied(state.error_dict),
        copied(state.p_memory_dict),
        copied(state.q_memory_dict),
        state.compression_stats()[1:],
    )


def run(group, jobs, to_torch, to_numpy, unsqueeze=True):
    """Runs jobs: (Config, buckets as lists of shapes, element type, this rank's gradients
    [step][bucket], flat). Returns, for each job, the results in the same nesting, and the
    snapshots before every step and after the last."""
    import torch

    results = []
    for config, buckets, dtype, grads in jobs:
        state, hook = state_and_hook(config, group)
        inner = config.inner_dtype(dtype)
        shapes = [[torch.Size(shape) for shape in bucket] for bucket in buckets]
        out, snapshots = [], [_snapshot(state, to_numpy, inner)]
        with _unsqueezed_factors() if unsqueeze else contextlib.nullcontext():
            for step in grads:
                out.append([])
                for number, flat in enumerate(step):
                    buffer = to_torch(dtype, flat)
                    is_last = number + 1 == len(step)
                    bucket = _Bucket(number, is_last, shapes[number], buffer.clone())
                    result = hook(state, bucket).wait()
                    # DDP does the same with the result of a wrapped hook.
                    result = result[: buffer.numel()].to(buffer.dtype)
                    out[-1].append(to_numpy(result.clone()))
                snapshots.append(_snapshot(state, to_numpy, inner))
        results.append((out, snapshots))
    return results


def draw(seeds, jobs, to_numpy):
    """Returns, per job (sizes, dtype) and seed, what the first bucket of a state draws."""
    import numpy as np
    import torch

    types = {
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "f32": torch.float32,
        "f64": torch.float64,
    }
    results = []
    for seed in seeds:
        for sizes, dtype in jobs:
            torch.manual_seed(np.random.RandomState(seed).randint(1_000_000_000))
            parts = [torch.randn(size, dtype=types[dtype]) for size in sizes]
            results.append(to_numpy(torch.cat(parts)))
    return results
