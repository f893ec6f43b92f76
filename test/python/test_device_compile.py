# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled steps whose gradients are on a device: the emulated CUDA device.

The oracle is the same step on the host: a hook has the same bits on all backends.
test/gpu/test_torch_cuda.py has the real GPU.
"""

import contextlib
import gc
import os
import time
from unittest import mock

import pytest
import torch

import ranks
import test_compile
import test_device

SEED = 20261127
STEPS = 4
# Hooks that steps can have: see test_compile.test_bad_options.
HOOKS = [
    (hook, options)
    for hook, options in test_device.HOOKS
    if hook != "post_local_sgd" and "exempt" not in options
]
POWERSGD = {"start_powerSGD_iter": 2}
GRADIENTS = [
    ((37, 21), torch.float32),
    ((21,), torch.float32),
    ((5, 3, 2, 2), torch.float64),
    ((0, 3), torch.float32),
    ((1, 13), torch.float64),
    ((64, 48), torch.float32),
    ((7, 3, 5), torch.float16),
]
# Makes several buckets of these.
BUCKET_BYTES = 3000


def rewritten(hook, wrapper=None, bucket_bytes=BUCKET_BYTES, gradients=GRADIENTS, **options):
    """Returns a graph that averages gradients, without Inductor."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from ddphook.torch import _backend, _graph

    def step(*gradients):
        return [test_compile.reduced(gradient) for gradient in gradients]

    tensors = [torch.zeros(shape, dtype=dtype) for shape, dtype in gradients]
    graph = make_fx(step, tracing_mode="fake")(*tensors)
    pipeline = _backend.make_pass(hook=hook, wrapper=wrapper, **options).pipeline
    assert _graph.rewrite(graph.graph, pipeline, 60.0, bucket_bytes) == len(gradients)
    graph.recompile()
    return graph


def gradients_of(rank, step, gradients=GRADIENTS):
    generator = torch.Generator().manual_seed(SEED + 101 * step + rank)
    return [
        torch.randn(shape, generator=generator).to(dtype) for shape, dtype in gradients
    ]


def run(graph, rank, first=0, steps=STEPS):
    """Returns averages of all steps, counters and states; checks that gradients are unchanged."""
    import ddphook.torch
    from ddphook.torch import _session

    results = []
    for step in range(first, first + steps):
        gradients = gradients_of(rank, step)
        results.append([average.clone() for average in graph(*gradients)])
        for before, now in zip(gradients_of(rank, step), gradients, strict=True):
            assert torch.equal(before, now), "a gradient was changed"
    counters = ranks.counters_of(_session.session_of("0", 60.0))
    return results, counters, ddphook.torch.state_dict()


def check_averages(got, expected, what):
    """Checks for equal bits, except for PowerSGD and three ranks: a GPU adds products, and
    NCCL adds ranks, in another order."""
    for step, (mine, others) in enumerate(zip(got, expected, strict=True)):
        for number, (a, b) in enumerate(zip(mine, others, strict=True)):
            where = (what, step, number)
            assert a.dtype == b.dtype and a.shape == b.shape, where
            if "powersgd" not in what and torch.distributed.get_world_size() <= 2:
                assert torch.equal(a, b), where
            elif a.numel():
                error = (a.double() - b.double()).norm() / b.double().norm()
                is_narrow = "16" in what or a.element_size() == 2
                assert error < (1e-2 if is_narrow else 1e-3), (where, error)


def check_states(got, expected, what):
    assert got.keys() == expected.keys(), what
    for (*key, mine), (*other, theirs) in zip(
        got["0"]["modules"], expected["0"]["modules"], strict=True
    ):
        assert key == other, what
        test_device.check_states(mine, theirs, what)


def every_hook(rank, hooks):
    import ddphook.torch
    import staged

    print(f"seed {SEED}")
    for hook, options in hooks:
        graph = rewritten(hook, **options)
        ddphook.torch.close()
        averages, counters, states = run(graph, rank)
        for kind in (staged.Staged, staged.Late):
            what = f"{hook}, {options}, {kind.__name__}"
            with staged.steps(rank, kind):
                got, counted, stored = run(graph, rank)
            check_averages(got, averages, what)
            check_states(stored, states, what)
            for field in ("steps", "wire_bytes", "elements_after_compression"):
                assert counted[field] == counters[field], (what, field)


@pytest.mark.parametrize(
    "world",
    [
        2,
        pytest.param(1, marks=pytest.mark.full("two ranks do the same and more")),
        pytest.param(3, marks=pytest.mark.full("as two ranks")),
    ],
)
def test_every_hook(world):
    ranks.run(world, every_hook, HOOKS)


def scatters(rank):
    import ddphook.torch
    import staged
    import test_compile_scatters

    for given, _ in test_compile_scatters.HOOKS:
        inputs = test_compile_scatters.gradients_of(rank, 0)
        step = test_compile_scatters.scatter_some
        graph, results = test_compile_scatters.rewritten(step, inputs, **given), []
        for place in (contextlib.nullcontext(), staged.steps(rank, staged.Late)):
            with place:
                steps = [test_compile_scatters.gradients_of(rank, n) for n in range(STEPS)]
                results.append([part.clone() for inputs in steps for part in graph(*inputs)])
            ddphook.torch.close()
        assert all(map(torch.equal, *results)), given


def test_reduce_scatters():
    ranks.run(2, scatters)


def under_inductor(rank, backends):
    import staged

    host = test_compile.train(rank, backends)
    with staged.steps(rank, staged.Late) as device:
        got = test_compile.train(rank, backends)
    assert device.waited == device.ended == device.runs
    for (parameters, losses), (expected, others) in zip(got, host, strict=True):
        assert test_compile.distance(parameters, expected) < 1e-5
        assert test_compile.distance(losses, others) < 1e-5
    # Bits are equal for all hooks except PowerSGD.
    assert got[:-1] == host[:-1]


@pytest.mark.full("as on the host; the hooks on this device run without Inductor")
def test_steps_under_inductor():
    backends = [
        {"hook": "allreduce"},
        {"hook": "fp16", "bucket_cap_mb": 0.001},
        {"hook": "int8"},
        {"hook": "powersgd", "matrix_approximation_rank": 4, "start_powerSGD_iter": 2},
    ]
    ranks.run(2, under_inductor, backends)


def carried_over(rank, hooks):
    """Runs steps on the host, then on the device, then on the host again."""
    import ddphook.torch
    import staged

    for hook, options in hooks:
        graph = rewritten(hook, **options)
        ddphook.torch.close()
        expected, _, _ = run(graph, rank, steps=6)
        ddphook.torch.close()
        got, _, states = run(graph, rank, steps=2)
        for first, place in ((2, staged.steps(rank)), (4, contextlib.nullcontext())):
            ddphook.torch.close()
            with place:
                ddphook.torch.load_state_dict(states)
                averages, _, states = run(graph, rank, first, steps=2)
            got += averages
        check_averages(got, expected, f"{hook}, {options}")
        ddphook.torch.close()


def test_states_between_host_and_device():
    hooks = [("powersgd", {"start_powerSGD_iter": 2}), ("int8", {}), ("topk", {"density": 0.1})]
    ranks.run(2, carried_over, hooks)


def a_session_for_each_device(rank):
    """Uses two devices at once: each has separate modules and counters."""
    import ddphook.torch
    import staged
    from ddphook.torch import _device, _session

    text = test_compile.TEXT
    places = [torch.device("cpu"), torch.device("cuda:0")]
    devices = dict(zip(places, [_device.Device(), staged.Staged(rank)], strict=True))
    results = []
    with mock.patch.object(_device, "device_at", devices.__getitem__):
        for number, place in enumerate(places):
            session = _session.session_of("0", 60.0, place)
            assert session is _session.session_of("0", 60.0, place)
            array = torch.arange(3.0) * (rank + 1)
            key = _session.Key(f"step {number}", text, "hook=topk density=0.4")
            session.device.wait(session.run(key, [array]).result())
            assert ranks.counters_of(session)["steps"] == 1
            results.append(array)
        modules = ddphook.torch.state_dict()["0"]["modules"]
        ddphook.torch.close()
    assert torch.equal(*results)
    assert [owner for owner, *_ in modules] == ["step 0", "step 1"]


def test_a_session_for_each_device():
    ranks.run(2, a_session_for_each_device)


def keep_averages(rank):
    """Averages that the program keeps are not overwritten by later steps."""
    import staged

    graph = rewritten("fp16")
    with staged.steps(rank, staged.Late):
        kept, copies = [], []
        for step in range(STEPS):
            averages = graph(*gradients_of(rank, step))
            kept += averages[::2]
            copies += [average.clone() for average in averages[::2]]
            del averages
            gc.collect()
        for average, copy in zip(kept, copies, strict=True):
            assert torch.equal(average, copy)


def test_averages_are_the_programs():
    ranks.run(2, keep_averages)


def reduce_nothing(rank):
    import staged

    graph = rewritten("fp16", gradients=[((0, 3), torch.float32)])
    with staged.steps(rank):
        (average,) = graph(torch.zeros(0, 3))
    assert average.shape == (0, 3)


def test_gradients_without_elements():
    ranks.run(2, reduce_nothing)


def lose_a_peer(rank):
    import staged
    from ddphook._errors import Error

    graph = rewritten("fp16")
    with staged.steps(rank):
        graph(*gradients_of(rank, 0))
        if rank == 1:
            os._exit(3)
        begin = time.monotonic()
        with pytest.raises(Error) as caught:
            for _ in range(2):
                graph(*gradients_of(rank, 1))
    return type(caught.value).__name__, time.monotonic() - begin


def test_a_lost_peer_is_an_exception():
    (kind, result), died = ranks.collect(2, lose_a_peer)
    assert died == ("died", 3)
    assert kind == "ok", result
    name, seconds = result
    assert name == "PeerLostError"
    assert seconds < 60


def test_what_is_called_of_a_gpu():
    """Streams and events of a step: packing runs on the computing stream, the run follows on
    the device's stream, and uses follow the run. PyTorch's are mocks."""
    from ddphook.torch import _device

    calls = mock.MagicMock()
    calls.cuda.Stream.return_value = side = calls.side
    calls.cuda.Event.side_effect = [calls.packed, calls.ended]
    calls.cuda.current_stream.return_value = current = calls.current
    side.cuda_stream = 77
    memory = torch.device("cuda:1")
    array = calls.array
    array.data_ptr.return_value = 4096
    with mock.patch.object(torch, "cuda", calls.cuda):
        device = _device.Cuda(memory)
        calls.reset_mock()
        device.run(calls.module, [array], device.begin([array], are_kept=True))
        device.wait(device.end())
        device.release([array])
        device.finish_all(calls.context)
    assert calls.mock_calls == [
        mock.call.cuda.Event(),
        mock.call.cuda.current_stream(memory),
        mock.call.packed.record(current),
        mock.call.side.wait_event(calls.packed),
        mock.call.array.data_ptr(),
        mock.call.module.run([4096]),
        mock.call.cuda.Event(),
        mock.call.ended.record(side),
        mock.call.cuda.current_stream(memory),
        mock.call.current.wait_event(calls.ended),
        mock.call.array.record_stream(side),
        mock.call.context.synchronize(),
    ]
