# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's own tests of DDP pass with our hook in each model.

These seven pass with PyTorch's hooks on the host, and are part of PyTorch's package. Most are
written for GPUs; mocks let them run on the host. A model to which the test gives no hook
gets the hook "allreduce".
"""

import contextlib
import inspect
import os
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel

import ranks

TESTS = [
    "test_DistributedDataParallel",
    "test_DistributedDataParallelCPU",
    "test_DistributedDataParallelCPU_grad_is_view",
    "test_DistributedDataParallel_SyncBatchNorm_Channels_Last",
    "test_ddp_comm_hook_logging",
    "test_ddp_profiling_torch_profiler",
    "test_ddp_python_error_logged",
]


def on_host(function):
    """Returns the function without its argument for a GPU's index."""

    def call(*arguments, **keywords):
        if isinstance(keywords.get("device"), int):
            del keywords["device"]
        return function(*arguments, **keywords)

    return call


def normalized(self, x):
    """SyncBatchNorm.forward for the host, which PyTorch only has for GPUs."""
    dimensions = [number for number in range(x.dim()) if number != 1]
    counts = torch.full((x.shape[1],), x.numel() / x.shape[1])
    sums = torch.stack([x.sum(dimensions), (x * x).sum(dimensions), counts])
    first, second, count = torch.distributed.nn.all_reduce(sums)
    shape = [1, -1] + [1] * (x.dim() - 2)
    mean = (first / count).view(shape)
    variance = (second / count).view(shape) - mean * mean
    x = (x - mean) / torch.sqrt(variance + self.eps)
    return x * self.weight.view(shape) + self.bias.view(shape)


def with_hooks(registered, has_default):
    """Patches DDP to run on the host with our hooks; appends the models to a list."""
    import ddphook.torch

    make = DistributedDataParallel.__init__
    forward = DistributedDataParallel.forward
    theirs = DistributedDataParallel.register_comm_hook

    def init(self, module, device_ids=None, output_device=None, **keywords):
        make(self, module, **keywords)

    def register(self, state, hook):
        if type(hook).__name__ == "CommHook":
            return theirs(self, state, hook)
        try:
            ddphook.torch.register(self, hook, state=state)
        except ddphook.Error:
            return theirs(self, state, hook)
        registered.append(self)

    def call(self, *arguments, **keywords):
        if has_default and self not in registered:
            register(self, None, "allreduce")
        return forward(self, *arguments, **keywords)

    stand_ins = {"__init__": init, "forward": call, "register_comm_hook": register}
    stand_ins["_passing_sync_batchnorm_handle"] = lambda self, module: None
    return mock.patch.multiple(DistributedDataParallel, **stand_ins)


@contextlib.contextmanager
def without_gpus():
    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in (
            (torch.Tensor, "cuda", lambda self, *_: self),
            (torch.nn.Module, "cuda", lambda self, *_: self),
            (torch.nn.SyncBatchNorm, "forward", normalized),
            (torch.cuda, "set_device", lambda _: None),
            (torch, "rand", on_host(torch.rand)),
            (torch, "ones", on_host(torch.ones)),
        ):
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        yield


def _run(rank, world):
    # The module reads these when it is imported.
    os.environ |= {"WORLD_SIZE": str(world), "BACKEND": "gloo", "INIT_METHOD": "env://"}
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.distributed import distributed_test

    distributed_test.BACKEND = "gloo"
    base = distributed_test.DistributedTest._DistTestBase
    case = type("Case", (base, TestCase), {"runTest": None, "rank": rank})()
    case._barrier = lambda *_: dist.barrier()
    one_gpu_each = {number: [number] for number in range(world)}
    gpus = mock.patch.object(distributed_test, "init_multigpu_helper", lambda *_: one_gpu_each)
    counts = {}
    for name in TESTS:
        registered = []
        with gpus, without_gpus(), with_hooks(registered, "logging" not in name):
            # Without the decorators, which look for GPUs.
            inspect.unwrap(getattr(base, name))(case)
        counts[name] = len(registered)
    return counts


def test_pytorchs_tests():
    for counts in ranks.run(2, _run, 2):
        # This test gives DDP an object that is no hook, and expects PyTorch's error.
        assert counts.pop("test_ddp_python_error_logged") == 0
        assert all(counts.values()), counts
