# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DDP with our hook behaves as with PyTorch's: pickling, logs, profiles, names."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import _apply_optimizer_in_backward

import models
import ranks
from test_requests import log


def _copies(rank):
    """A copy of the model has no hook, as with PyTorch's, and accepts a new one."""
    import ddphook.torch

    ddp = models.make("mlp", rank)
    handle = ddphook.torch.register(ddp, default_hooks.fp16_compress_hook)
    models.train(ddp, rank, 1)
    file = io.BytesIO()
    torch.save(ddp, file)
    file.seek(0)
    with log() as warnings:
        loaded = torch.load(file, weights_only=False)
    assert len(warnings) == 1 and "'fp16_compress_hook'" in warnings[0]
    with log() as warnings:
        copied = copy.deepcopy(ddp)
    assert not warnings
    handle.close()
    with pytest.raises(ddphook.FailedPreconditionError, match="hook already"):
        ddphook.torch.register(ddp, "fp16")
    expected = models.make("mlp", rank)
    expected.load_state_dict(ddp.state_dict())
    expected.register_comm_hook(None, default_hooks.fp16_compress_hook)
    wanted = models.train(expected, rank, 3)
    for model in (loaded, copied):
        (lost, _), = model._comm_hooks
        with pytest.raises(ddphook.FailedPreconditionError, match="register to give the copy"):
            lost(None, None)
        with ddphook.torch.register(model, "fp16"):
            models.check_equal(models.train(model, rank, 3), wanted)


def test_copies_of_a_model():
    ranks.run(2, _copies)


def _profile(rank):
    import ddphook.torch

    for hook, name in (
        (default_hooks.fp16_compress_hook, "fp16_compress_hook"),
        ("int8", "int8"),
        ("noop", "noop"),
    ):
        ddp = models.make("mlp", rank, bucket_cap_mb=0.02)
        with ddphook.torch.register(ddp, hook) as handle:
            assert ddp._get_ddp_logging_data()["comm_hook"] == name
            models.train(ddp, rank, 2)
            before = handle.statistics()["steps"]
            with torch.profiler.profile() as profiler:
                models.train(ddp, rank, 1)
            buckets = handle.statistics()["steps"] - before
        short = name.partition("_")[0]
        records = [e for e in profiler.events() if e.name.startswith("ddphook")]
        assert sorted(record.name for record in records) == [
            f"ddphook: {short} bucket {number}" for number in range(buckets)
        ]
        reductions = [e for e in profiler.events() if e.name == "gloo:all_reduce"]
        assert len(reductions) == (0 if hook == "noop" else buckets)
        # backward() starts them, and the thread that reduces ends them.
        assert buckets > 1 and all(event.is_async for event in records + reductions)


def test_names_in_ddps_log_and_in_profiles():
    ranks.run(2, _profile)


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def _wrapped(rank):
    """States and `exempt` use the model's own names, whatever its wrappers."""
    import ddphook.torch

    def ddp_of(wrap):
        torch.manual_seed(7)
        return nn.parallel.DistributedDataParallel(wrap(models.mlp()))

    def compiled(model):
        return torch.compile(model, backend="eager")

    options = {"start_powerSGD_iter": 2}
    states = {}
    for name, wrap in (
        ("plain", lambda model: model),
        ("compiled", compiled),
        ("wrapped", lambda model: Wrapper(compiled(Wrapper(model)))),
    ):
        ddp = ddp_of(wrap)
        with ddphook.torch.register(ddp, "fp16", exempt=r"^4\.bias$"):
            pass
        ddp = ddp_of(wrap)
        with ddphook.torch.register(ddp, "powersgd", **options) as handle:
            models.train(ddp, rank, 4)
            states[name] = handle.state_dict()["states"]
            for state in states.values():
                handle.load_state_dict({**handle.state_dict(), "states": state})
    for state in states.values():
        assert state.keys() == states["plain"].keys()
        for role, values in states["plain"].items():
            assert values.keys() == state[role].keys()
            assert all(torch.equal(values[name], state[role][name]) for name in values)
    # Registering a compiled DDP model registers the DDP model in it.
    ddp = ddp_of(lambda model: model)
    with ddphook.torch.register(torch.compile(ddp, backend="eager"), "fp16") as handle:
        models.train(ddp, rank, 1)
        assert handle.statistics()["steps"] == 1


def test_names_of_wrapped_models():
    ranks.run(1, _wrapped)


def _refused(rank):
    import ddphook.torch
    from test_names import CommHook, DistributedDataParallelKwargs

    asked = {"find_unused_parameters": True, "bucket_cap_mb": 0.3}

    class Kwargs(DistributedDataParallelKwargs):
        def to_kwargs(self):
            return asked

    ddp, given = models.make("mlp", rank), Kwargs(CommHook.FP16)
    for name in asked:
        others = {key: value for key, value in asked.items() if key != name}
        with pytest.raises(ddphook.InvalidArgumentError, match=f"{name}={asked[name]}"):
            ddphook.torch.register(models.make("mlp", rank, **others), given)
    ddphook.torch.register(models.make("mlp", rank, **asked), given)
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    with pytest.raises(ddphook.FailedPreconditionError, match="without comm_hook"):
        ddphook.torch.register(ddp, DistributedDataParallelKwargs(CommHook.FP16))
    with pytest.raises(ddphook.InvalidArgumentError, match="expected one of allreduce"):
        ddphook.torch.register(models.make("mlp", rank))
    model = models.mlp()
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    with pytest.raises(ddphook.UnsupportedError, match="optimizer="):
        ddphook.torch.register(nn.parallel.DistributedDataParallel(model), "fp16")


def test_what_register_refuses():
    ranks.run(1, _refused)
