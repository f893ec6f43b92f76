# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's post-local SGD hook and its averager of parameters, the real ones.
What an oracle worker runs (oracle.py)."""


class _Bucket:
    """The methods of torch.distributed.GradBucket that the hook calls."""

    def __init__(self, is_last, buffer):
        self._is_last, self._buffer = is_last, buffer

    def is_last(self):
        return self._is_last

    def buffer(self):
        return self._buffer

    def set_buffer(self, buffer):
        self._buffer = buffer


def run_hook(group, subgroup, options, dtype, grads, to_torch, to_numpy):
    """options: start_localSGD_iter, post_local_gradient_allreduce, wrapper;
    grads[step][bucket], flat. The results in the same nesting."""
    from torch.distributed.algorithms.ddp_comm_hooks import (
        default_hooks,
        post_localSGD_hook,
    )

    start, reduces, wrapper = options
    hook = post_localSGD_hook.post_localSGD_hook
    wrappers = {
        "fp16": default_hooks.fp16_compress_wrapper,
        "bf16": default_hooks.bf16_compress_wrapper,
    }
    hook = wrappers[wrapper](hook) if wrapper else hook
    state = post_localSGD_hook.PostLocalSGDState(group, subgroup, start, reduces)
    out = []
    for step in grads:
        out.append([])
        for number, flat in enumerate(step):
            buffer = to_torch(dtype, flat)
            bucket = _Bucket(number + 1 == len(step), buffer.clone())
            result = hook(state, bucket).wait()
            out[-1].append(to_numpy(result.to(buffer.dtype)))
    return out


def run_averager(group, period, warmup, dtype, parameters, to_torch, to_numpy):
    """PeriodicModelAverager over parameters[step][number]."""
    import torch
    from torch.distributed.algorithms.model_averaging import averagers

    averager = averagers.PeriodicModelAverager(period, warmup, group)
    out = []
    for step in parameters:
        module = [torch.nn.Parameter(to_torch(dtype, data)) for data in step]
        for parameter in module:
            # The averager skips what has no gradient.
            parameter.grad = torch.zeros_like(parameter)
        averager.average_parameters(module)
        out.append([to_numpy(parameter.data.clone()) for parameter in module])
    return out
