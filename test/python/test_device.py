# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks in models on a device: the emulated CUDA device, and refusals.

The oracle is the same model with the same hook on the host: with exact divisions, and
sums of at most two addends, a hook has the same bits on all backends.
test/gpu/test_torch_cuda.py has the real GPU.
"""

import gc
import os
import time
import weakref
from unittest import mock

import pytest
import torch

import models
import ranks

# Gives these models several buckets after DDP has rebuilt them.
BUCKETS = {"bucket_cap_mb": 0.02}
STEPS = 4
HOOKS = [
    ("allreduce", {}),
    ("fp16", {}),
    ("fp16", {"accumulate": torch.float32}),
    ("bf16", {}),
    ("noop", {}),
    ("allreduce", {"wrapper": "bf16"}),
    ("powersgd", {"start_powerSGD_iter": 2}),
    ("powersgd", {"start_powerSGD_iter": 2, "numerics": "improved"}),
    ("powersgd", {"warm_start": False, "start_powerSGD_iter": 2}),
    ("batched_powersgd", {"start_powerSGD_iter": 2, "wrapper": "fp16"}),
    ("post_local_sgd", {"start_localSGD_iter": 2}),
    ("allreduce_and_upcast", {"reduce_dtype": torch.bfloat16}),
    ("int8", {}),
    ("int4", {"rounding": "stochastic"}),
    ("fp8", {}),
    ("quantization_pertensor", {}),
    ("quantization_perchannel", {}),
    ("topk", {"density": 0.1}),
    ("powersgd", {"start_powerSGD_iter": 2, "exempt": "bias"}),
]
# Each uses a kind of memory that the others do not.
LENT_HOOKS = [
    ("powersgd", {"start_powerSGD_iter": 2}),
    ("int8", {}),
    ("topk", {"density": 0.1}),
]


def _every_hook(rank, name, hooks, ddp_options):
    import ddphook.torch
    import staged

    for hook, options in hooks:
        host = models.make(name, rank, **ddp_options)
        with ddphook.torch.register(host, hook, **options) as handle:
            expected = models.train(host, rank, STEPS)
            counters = handle.statistics()
            states = handle.state_dict()["states"]
        ours = models.make(name, rank, **ddp_options)
        with staged.registered(ours, rank, hook, **options) as handle:
            got = models.train(ours, rank, STEPS)
            for field in ("steps", "wire_bytes", "elements_after_compression"):
                assert handle.statistics()[field] == counters[field], (hook, field)
            check_states(handle.state_dict()["states"], states, hook)
        _check_parameters(got, expected, f"{name}, {hook}, {options}")


def _check_parameters(got, expected, what):
    """Checks for equal bits, except for PowerSGD and three ranks: a GPU adds products, and
    NCCL adds ranks, in another order."""
    if "powersgd" not in what and torch.distributed.get_world_size() <= 2:
        models.check_equal(got, expected, what)
    assert models.difference(got, expected) < (1e-2 if "16" in what else 1e-4), what


def check_states(got, expected, what):
    assert got.keys() == expected.keys(), what
    for role, values in expected.items():
        assert got[role].keys() == values.keys(), (what, role)
        largest = max(
            float(value.abs().max()) for value in values.values() if value.numel()
        )
        for key, value in values.items():
            mine = got[role][key]
            if "powersgd" in what and value.is_floating_point():
                close = (mine - value).abs() <= 1e-2 * largest
                assert close.all(), (what, role, key)
            else:
                assert torch.equal(mine, value), (what, role, key)


@pytest.mark.parametrize(
    "world",
    [
        2,
        pytest.param(1, marks=pytest.mark.full("two ranks do the same and more")),
        pytest.param(3, marks=pytest.mark.full("as two ranks")),
    ],
)
def test_every_hook(world):
    ranks.run(world, _every_hook, "mlp", HOOKS, BUCKETS)


@pytest.mark.parametrize("name", ["mixed-types", "sixteen-bits", "odd", "strided"])
def test_other_parameters(name):
    hooks = [("fp16", {}), ("int8", {}), ("powersgd", {"start_powerSGD_iter": 2})]
    ranks.run(2, _every_hook, name, hooks, BUCKETS)


def _lent_memory(rank):
    """Checks that modules allocate all of their memory with PyTorch's allocator."""
    import ddphook.torch
    import staged

    for hook, options in LENT_HOOKS:
        host = models.make("mlp", rank, **BUCKETS)
        with ddphook.torch.register(host, hook, **options):
            expected = models.train(host, rank, STEPS)
        ours = models.make("mlp", rank, **BUCKETS)
        with staged.lent(rank) as lender:
            with staged.registered(ours, rank, hook, **options) as handle:
                assert lender.allocated > 0, "the device's own memory"
                before = lender.allocated
                got = models.train(ours, rank, STEPS)
                states = handle.state_dict()["states"]
                size = sum(
                    value.nbytes
                    for values in states.values()
                    for value in values.values()
                    if value.is_floating_point()
                )
                assert lender.allocated >= before + size, hook
            assert lender.allocated == 0, hook
        _check_parameters(got, expected, f"{hook}, {options}")


@pytest.mark.parametrize("world", [1, 2])
def test_memory_is_pytorchs(world):
    ranks.run(world, _lent_memory)


def _no_memory(rank):
    """Whichever allocation fails, PyTorch's exception is the cause of the error."""
    import ddphook
    import staged

    failures = 0
    for number in range(1, 50):
        model = models.make("mlp", rank)
        with staged.lent(rank) as lender:
            lender.fail_at = number
            try:
                with staged.registered(model, rank, "powersgd", start_powerSGD_iter=2):
                    models.train(model, rank, 3)
            except ddphook.ResourceExhaustedError as error:
                # The allocation failed while joining the job.
                assert "the caller's allocator to return" in str(error)
                assert isinstance(error.__cause__, torch.OutOfMemoryError)
            except RuntimeError as error:
                # It failed in backward(), which only raises RuntimeError.
                assert "ResourceExhaustedError" in str(error), error
                assert "the caller's allocator to return" in str(error)
            else:
                assert lender.allocations < number
                assert failures > 5
                return
            failures += 1
    raise AssertionError("expected that all memory was given at last")


def test_memory_that_pytorch_lacks():
    ranks.run(1, _no_memory)


class _Strange:
    """An allocator that returns something other than an address."""

    given = None

    def alloc(self, size, device, stream):
        return self.given


@pytest.mark.parametrize("given", [None, "memory", 256.0, b"memory"])
def test_what_is_no_address(given):
    from ddphook import _runtime

    allocator = _Strange()
    allocator.given = given
    table, failures = _runtime._lent(allocator)
    for _ in range(2):
        assert not table.alloc(None, 64, 0, None)
    [failure] = failures
    assert isinstance(failure, TypeError)


def test_allocators_go_with_their_contexts():
    from ddphook import _runtime

    allocator = _Strange()
    gone = weakref.ref(allocator)
    lent = _runtime._lent(allocator)
    gc.disable()
    try:
        del allocator, lent
        assert gone() is None
    finally:
        gc.enable()


def _resumes(rank):
    """Loads the host's states after four steps, and runs four more steps on the device."""
    import ddphook.torch
    import staged

    options = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2}
    fixed = {"find_unused_parameters": True}
    whole = models.make("mlp", rank, **fixed)
    with ddphook.torch.register(whole, "powersgd", **options):
        expected = models.train(whole, rank, 2 * STEPS)
    model = models.make("mlp", rank, **fixed)
    with ddphook.torch.register(model, "powersgd", **options) as handle:
        models.train(model, rank, STEPS)
        state = handle.state_dict()
    again = models.make("mlp", rank, **fixed)
    again.load_state_dict(model.state_dict())
    with staged.registered(again, rank, "powersgd", **options) as handle:
        handle.load_state_dict(state)
        got = models.train(again, rank, STEPS, first=STEPS)
    _check_parameters(got[-1:], expected[-1:], "resumed with powersgd")


def test_states_between_host_and_device():
    ranks.run(2, _resumes)


def _loses_a_peer(rank):
    import staged

    model = models.make("mlp", rank)
    with staged.registered(model, rank, "fp16", timeout=30) as handle:
        models.train(model, rank, 3)  # Afterwards DDP has its final buckets.
        if rank == 1:
            os._exit(3)
        begin = time.monotonic()
        with pytest.raises(RuntimeError, match="PeerLostError"):
            models.train(model, rank, 1)
        with pytest.raises(RuntimeError):
            handle.statistics()
    return time.monotonic() - begin


def test_a_lost_peer_is_an_exception():
    (kind, seconds), died = ranks.collect(2, _loses_a_peer)
    assert died == ("died", 3)
    assert kind == "ok", seconds
    assert seconds < 30


def _disagree(rank):
    import ddphook.torch
    import staged

    model = models.make("mlp", rank)
    with pytest.raises(ddphook.PlanMismatchError, match="on a device: cuda"):
        if rank == 0:
            ddphook.torch.register(model, "fp16")
        else:
            with staged.registered(model, rank, "fp16"):
                pass


def test_ranks_agree_on_the_kind_of_device():
    ranks.run(2, _disagree)


def _refuse_optimizer(rank):
    import ddphook.torch
    import staged

    model = models.make("mlp", rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = optimizer.step
    with pytest.raises(ddphook.UnsupportedError, match="on a CPU for an optimizer"):
        with staged.registered(model, rank, "fp16", optimizer=optimizer):
            pass
    assert optimizer.step == step
    # Every PyTorch has this device.
    elsewhere = torch.nn.Parameter(torch.ones(2, device="meta"))
    elsewhere.grad = torch.ones(2, device="meta")
    averager = ddphook.torch.PeriodicModelAverager(1)
    with pytest.raises(ddphook.UnsupportedError, match="in the host's memory"):
        averager.average_parameters([elsewhere])


def test_what_is_for_the_host_alone():
    ranks.run(1, _refuse_optimizer)


class Somewhere:
    """A parameter on a device that this machine may not have."""

    def __init__(self, device):
        self.device = torch.device(device)


def test_which_devices(monkeypatch):
    import ddphook
    from ddphook.torch import _device

    def of(*devices):
        return _device.device_of((f"p{i}", Somewhere(d)) for i, d in enumerate(devices))

    monkeypatch.delenv("DDPHOOK_BACKEND", raising=False)
    monkeypatch.delenv("DDPHOOK_BACKEND_OPTIONS", raising=False)
    assert type(of("cpu", "cpu")) is _device.Device
    assert type(of()) is _device.Device
    refused = ddphook.UnsupportedError
    with pytest.raises(refused, match="'p0' on cpu and 'p1' on cuda:0"):
        of("cpu", "cuda:0", "cuda:0")
    with pytest.raises(refused, match="on one device"):
        of("cuda:0", "cuda:1")
    with pytest.raises(refused, match="but got meta"):
        of("meta")
    monkeypatch.setenv("DDPHOOK_BACKEND", "cuda")
    with pytest.raises(refused, match="DDPHOOK_BACKEND=host for parameters on cpu"):
        of("cpu")
    monkeypatch.setenv("DDPHOOK_BACKEND", "host")
    with pytest.raises(refused, match="DDPHOOK_BACKEND=cuda for parameters on cuda:1"):
        of("cuda:1")


def test_examining_arrays_does_not_wait_for_a_gpu():
    from ddphook.torch import _device

    calls = mock.MagicMock()
    calls.cuda.Event().query.side_effect = [False, True]
    with mock.patch.object(torch, "cuda", calls.cuda):
        look = _device.Cuda(torch.device("cuda", 1)).examine(calls.look)
        assert look() is None
        found = look()
    assert found is calls.look().to("cpu", non_blocking=True)
    names = [name for name, *_ in calls.mock_calls]
    assert names.index("look().to") < names.index("cuda.Event().record")
    assert not any("synchronize" in name or "item" in name for name in names)


def test_what_is_called_of_a_gpu(monkeypatch):
    """Streams and events order a run after its gradients, and the users of its future after
    the run. PyTorch's are mocks here."""
    from ddphook.torch import _device

    monkeypatch.setenv("DDPHOOK_BACKEND_OPTIONS", "roots=2")
    calls = mock.MagicMock()
    calls.cuda.Stream.return_value = side = calls.side
    calls.cuda.Event.return_value = event = calls.event
    calls.cuda.current_stream.return_value = current = calls.current
    side.cuda_stream = 77
    memory = torch.device("cuda:1")
    with mock.patch.object(torch, "cuda", calls.cuda):
        device = _device.Cuda(memory)
        device.attach(calls.context)
        array = calls.array
        array.data_ptr.return_value = 4096
        begun = device.begin([array])
        device.run(calls.module, [array], begun)
        device.finish(calls.future, array)
        device.allocator.alloc(100, 1, 5)
        device.allocator.free(8192, 100, 1, 5)
        monkeypatch.setenv("DDPHOOK_BACKEND_OPTIONS", "roots=2,register=0")
        assert _device.Cuda(memory).allocator is not None
        monkeypatch.setenv("DDPHOOK_BACKEND_OPTIONS", "register=1,roots=2")
        assert _device.Cuda(memory).allocator is None, "NCCL allocates it"
    assert device.backend_options == "roots=2,device=1"
    assert (device.backend, device.target, device.memory) == ("cuda", "cuda", memory)
    assert calls.mock_calls == [
        mock.call.cuda.Stream(memory),
        mock.call.context.set_stream(77),
        mock.call.cuda.Event(),
        mock.call.cuda.current_stream(memory),
        mock.call.event.record(current),
        mock.call.array.record_stream(side),
        mock.call.side.wait_event(event),
        mock.call.array.data_ptr(),
        mock.call.module.run([4096]),
        mock.call.cuda.stream(side),
        mock.call.cuda.stream().__enter__(),
        mock.call.future.set_result(array),
        mock.call.cuda.stream().__exit__(None, None, None),
        mock.call.cuda.caching_allocator_alloc(100, 1, 5),
        mock.call.cuda.caching_allocator_delete(8192),
        mock.call.cuda.Stream(memory),
        mock.call.cuda.Stream(memory),
    ]
