# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Post-local SGD and periodic averages, compared with PyTorch's.

post_localSGD_hook and PeriodicModelAverager run in separate processes, on real Gloo
process groups; everything is compared to the bit. Only `sum`, which PyTorch's hooks do
not have, is compared with the model of model.py.
"""

import multiprocessing
import os
import traceback
import warnings

import numpy as np
import pytest

import cases
import model
import oracle
import runner
import tensors
from cases import Function, Grad, Module, Options
from tensors import Tensor, difference

START, STEPS = 3, 7
WAIT_S = 120
SHAPES = ((64, 32), (64,), (48, 64), (), (5, 0), (48,), (3, 3, 3), (257,))
# Partitions into subgroups by world size, as PyTorch and IR define them.
SUBGROUPS = {
    1: [((0,),)],
    2: [((0,), (1,)), ((0, 1),)],
    3: [((0,), (1,), (2,)), ((0, 1, 2),)],
    4: [((0, 1), (2, 3)), ((0, 3), (1, 2)), ((0, 1, 2, 3),)],
}


def on_ranks(world, function, arguments):
    """Runs function(rank, *arguments[rank]) in a Gloo job of `world` processes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed"])
    port, ranks = runner.free_port(), []
    for rank in range(world):
        here, there = context.Pipe()
        job = (rank, world, port, there, function, arguments[rank])
        process = context.Process(target=_serve, args=job, daemon=True)
        process.start()
        there.close()
        ranks.append((process, here))
    results = []
    for rank, (_, pipe) in enumerate(ranks):
        if not pipe.poll(WAIT_S):
            raise TimeoutError(f"rank {rank} of PyTorch gave no answer")
        results.append(pipe.recv())
    for process, _ in ranks:
        process.join()
    failures = [value for done, value in results if not done]
    assert not failures, "\n".join(failures)
    return [value for _, value in results]


def _serve(rank, world, port, pipe, function, arguments):
    import torch
    import torch.distributed as dist

    try:
        torch.set_num_threads(1)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        # Peers are processes of this machine; its name need not resolve.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", rank=rank, world_size=world)
        pipe.send((True, function(rank, *arguments)))
        dist.barrier()
        dist.destroy_process_group()
    except Exception:
        pipe.send((False, f"rank {rank}: {traceback.format_exc()}"))


class _Bucket:
    """An object with the methods of torch.distributed.GradBucket that the hook calls."""

    def __init__(self, buffer, is_last):
        self._buffer, self._is_last = buffer, is_last

    def buffer(self):
        return self._buffer

    def set_buffer(self, buffer):
        self._buffer = buffer

    def is_last(self):
        return self._is_last


def _make_subgroup(rank, partition):
    """Makes all groups, as every rank must; returns the group of this rank."""
    import torch.distributed as dist

    groups = [dist.new_group(list(ranks)) for ranks in partition]
    mine = [g for g, ranks in zip(groups, partition) if rank in ranks]
    return mine[0] if mine else None


def _run_hook(rank, subgroups, all_reduces, wrapper, dtype, gradients):
    """Runs PyTorch's hook on [step][bucket]; returns this rank's results in the same nesting."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import (
        default_hooks,
        post_localSGD_hook,
    )

    mine = _make_subgroup(rank, subgroups)
    hook = post_localSGD_hook.post_localSGD_hook
    if wrapper:
        hook = getattr(default_hooks, f"{wrapper}_compress_wrapper")(hook)
    state = post_localSGD_hook.PostLocalSGDState(
        dist.group.WORLD, mine, START, post_local_gradient_allreduce=all_reduces
    )
    results = []
    for step in gradients:
        results.append([])
        for number, flat in enumerate(step):
            buffer = oracle._to_torch(dtype, flat)
            bucket = _Bucket(buffer.clone(), number + 1 == len(step))
            out = hook(state, bucket).wait()
            # DDP does the same with the result of a wrapped hook.
            results[-1].append(oracle._to_numpy(out.to(buffer.dtype).clone()))
    return results


def _run_averager(rank, period, warmup, dtype, parameters):
    """Runs PeriodicModelAverager on [step][number], each step from given values."""
    from torch import nn
    from torch.distributed.algorithms.model_averaging import averagers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns that a period of 1 is not useful.
        averager = averagers.PeriodicModelAverager(period, warmup)
    results = []
    for step in parameters:
        values = [
            nn.Parameter(oracle._to_torch(dtype, data).clone()) for data in step
        ]
        for value in values:  # Parameters without a gradient are not averaged.
            value.grad = value.detach().clone()
        averager.average_parameters(values)
        results.append([oracle._to_numpy(value.data.clone()) for value in values])
    return results


def group_text(subgroups):
    lists = ", ".join(f"[{', '.join(map(str, group))}]" for group in subgroups)
    return f"ranks [{lists}]"


def make_module(dtype, subgroups, reduction="mean", values="gaussian"):
    grads = [Grad(shape, dtype, reduction, values=values) for shape in SHAPES]
    groups = {"dp": ""}
    if subgroups:
        groups["near"] = group_text(subgroups)
    return Module([Function("step", grads)], groups)


def run_ours(path, module, world, inputs, options):
    directory = runner.Directory(path)
    directory.write_module(module.text())
    directory.write_inputs(inputs)
    return runner.run(directory, "step", world, len(inputs[0]), options)


def to_buckets(values, buckets):
    """Converts [number] to the flat data of [bucket]."""
    return [
        np.concatenate([values[i].data.reshape(-1) for i in numbers])
        for numbers in buckets
    ]


def compare(module, buckets, got, want):
    """Compares `got` [rank][step][number] with `want` [rank][step][bucket] of flat data."""
    dtype = module.functions[0].grads[0].dtype
    for rank, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            for number, flat in enumerate(to_buckets(mine, buckets)):
                report = difference(Tensor(dtype, flat), Tensor(dtype, other[number]))
                assert not report, f"rank {rank}, step {step}, b{number}: {report}"


def buckets_of(module, cap_mb):
    (function,) = module.functions
    options = Options(bucket_cap_mb=cap_mb)
    return [bucket[0] for bucket in cases.buckets_of(module, function, options)]


HOOKS = [
    (world, subgroups, all_reduces)
    for world, partitions in SUBGROUPS.items()
    for subgroups, all_reduces in [(p, True) for p in partitions] + [(None, False)]
]
# Element type, wrapper, values, bucket cap: one bucket, several.
SETTINGS = [
    ("f32", None, "gaussian", None),
    ("f32", None, "special", 0.01),
    ("f32", "fp16", "gaussian", 0.01),
    ("f32", "bf16", "special", None),
    ("f16", None, "wide", None),
    ("bf16", None, "gaussian", 0.01),
    ("f64", "fp16", "gaussian", None),
]


# Each of the hooks with four of the settings.
CASES = [
    (*hook, *SETTINGS[(4 * i + k) % len(SETTINGS)])
    for i, hook in enumerate(HOOKS)
    for k in range(4)
]


@pytest.mark.parametrize(
    "world, subgroups, all_reduces, dtype, wrapper, values, cap_mb", CASES
)
def test_hook(tmp_path, world, subgroups, all_reduces, dtype, wrapper, values, cap_mb):
    """Runs steps before and after the switch, on all ranks."""
    module = make_module(dtype, subgroups, values=values)
    inputs = cases.make_inputs(module, "step", world, STEPS, runner.SEED)
    buckets = buckets_of(module, cap_mb)
    assert (len(buckets) > 1) == (cap_mb is not None)
    options = f"hook=post_local_sgd start-localsgd-iter={START}"
    options += " subgroup=near" if all_reduces else ""
    options += f" post-local-gradient-allreduce={str(all_reduces).lower()}"
    options += f" wrapper={wrapper}" if wrapper else ""
    options += f" bucket-cap-mb={cap_mb}" if cap_mb else ""
    got = run_ours(tmp_path, module, world, inputs, options)
    flat = [[to_buckets(step, buckets) for step in rank] for rank in inputs]
    arguments = (subgroups or (), all_reduces, wrapper, dtype)
    want = on_ranks(world, _run_hook, [(*arguments, flat[r]) for r in range(world)])
    compare(module, buckets, got, want)
    if not all_reduces and world > 1:
        assert difference(got[0][-1][0], got[1][-1][0]), "ranks are on their own"
        assert not difference(got[0][START - 1][0], got[1][START - 1][0])


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("start", [-2, 0, 1])
def test_local_from_the_start(tmp_path, start, world):
    module = make_module("f32", None)
    inputs = cases.make_inputs(module, "step", world, 3, runner.SEED)
    options = (
        f"hook=post-local-sgd start-localsgd-iter={start} "
        "post-local-gradient-allreduce=false"
    )
    got = run_ours(tmp_path, module, world, inputs, options)
    for rank in range(world):
        for step in range(max(start, 0), 3):
            for ours, given in zip(got[rank][step], inputs[rank][step], strict=True):
                assert not difference(ours, given)
    if world > 1 and start == 1:
        assert difference(got[0][0][0], inputs[0][0][0])


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("wrapper", [None, "fp16"])
def test_the_default_are_ranks_of_one_machine(tmp_path, wrapper, world):
    """By default, the subgroup is a machine's ranks: here all. (PyTorch needs a GPU for that.)"""
    module = make_module("f32", None)
    inputs = cases.make_inputs(module, "step", world, 4, runner.SEED)
    options = "hook=post_local_sgd start-localsgd-iter=2"
    options += f" wrapper={wrapper}" if wrapper else ""
    got = run_ours(tmp_path, module, world, inputs, options)
    hook = ("wrap", "f16", ("allreduce",)) if wrapper else ("allreduce",)
    check_model(module, got, inputs, [hook] * 4, [None] * 4)


def check_model(module, got, inputs, hooks, partitions):
    """Compares one bucket per step with the model; `hooks` and `partitions` are by step."""
    grads = module.functions[0].grads
    (numbers,) = buckets_of(module, None)
    world = len(inputs)
    for step, (hook, partition) in enumerate(zip(hooks, partitions, strict=True)):
        for group in partition or (tuple(range(world)),):
            flat = [
                Tensor(grads[0].dtype, to_buckets(inputs[r][step], [numbers])[0])
                for r in group
            ]
            want = model.run_hook(hook, flat, grads[0].reduction == "mean")
            for rank, result in zip(group, want, strict=True):
                (ours,) = to_buckets(got[rank][step], [numbers])
                report = difference(Tensor(result.dtype, ours), result)
                assert not report, f"rank {rank}, step {step}: {report}"


@pytest.mark.parametrize("world", [2, 3, 4])
def test_sums(tmp_path, world):
    subgroups = SUBGROUPS[world][0]
    module = make_module("f32", subgroups, reduction="sum")
    inputs = cases.make_inputs(module, "step", world, 4, runner.SEED)
    options = "hook=post_local_sgd start-localsgd-iter=2 subgroup=@near"
    got = run_ours(tmp_path, module, world, inputs, options)
    partitions = [None, None, subgroups, subgroups]
    check_model(module, got, inputs, [("allreduce",)] * 4, partitions)


@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_transports(tmp_path, transport):
    module = make_module("f32", SUBGROUPS[4][1])
    inputs = cases.make_inputs(module, "step", 4, 4, runner.SEED)
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    directory.write_inputs(inputs)
    options = "hook=post_local_sgd start-localsgd-iter=2 subgroup=near"
    env = {"DDPHOOK_TRANSPORT": transport}
    got = runner.run(directory, "step", 4, 4, options, env)
    partitions = [None, None, SUBGROUPS[4][1], SUBGROUPS[4][1]]
    check_model(module, got, inputs, [("allreduce",)] * 4, partitions)


def test_the_counter_is_a_state(tmp_path):
    """Four steps equal two steps, their states, and two more."""
    module = make_module("f32", None)
    inputs = cases.make_inputs(module, "step", 2, 4, runner.SEED)
    options = (
        "hook=post_local_sgd start-localsgd-iter=3 post-local-gradient-allreduce=false"
    )
    whole = run_ours(tmp_path, module, 2, inputs, options)
    directory = runner.Directory(tmp_path)
    file = tmp_path / "middle.{rank}.safetensors"
    halves = []
    for part, flag in (
        (slice(0, 2), f"--state-out={file}"),
        (slice(2, 4), f"--state-in=strict:{file}"),
    ):
        directory.clear_outputs()
        directory.write_inputs([rank[part] for rank in inputs])
        arguments = directory.arguments("step", 2, 2, options)
        result = runner.finish(runner.start([*arguments, flag]))
        assert (result.code, result.stderr) == (0, "")
        halves.append(directory.read_outputs(2, 2))
    states = tensors.load(str(file).format(rank=0))
    assert set(states) == {"post_local_sgd.iter"}
    assert int(states["post_local_sgd.iter"].data.reshape(())) == 2
    for rank in range(2):
        steps = halves[0][rank] + halves[1][rank]
        for step in range(4):
            for got, want in zip(steps[step], whole[rank][step], strict=True):
                assert not difference(got, want)


def averaging_text(dtype, clauses, groups=("@dp",)):
    """Returns a module whose entry point averages every argument."""
    types = [Grad(shape, dtype).type for shape in SHAPES]
    arguments = ", ".join(f"%w{i}: {t}" for i, t in enumerate(types))
    lines = [f"ddp.process_group {group}" for group in groups]
    lines.append(f"func.func @step({arguments}) -> ({', '.join(types)}) {{")
    for i, type in enumerate(types):
        lines.append(f"  %r{i} = ddp.average %w{i} on @dp {clauses} : {type}")
    results = ", ".join(f"%r{i}" for i in range(len(types)))
    return "\n".join([*lines, f"  return {results} : {', '.join(types)}", "}", ""])


AVERAGES = [
    *[("f32", period, warmup) for period, warmup in ((1, 0), (2, 0), (4, 1), (1, 3), (9, 8))],
    *[(dtype, 3, 2) for dtype in ("f32", "f64", "f16", "bf16")],
]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype, period, warmup", AVERAGES)
def test_averages(tmp_path, dtype, period, warmup, world):
    """Ten steps contain several periods."""
    steps = 10
    module = make_module(dtype, None)
    inputs = cases.make_inputs(module, "step", world, steps, runner.SEED)
    clauses = f"every {period}" + (f" warmup {warmup}" if warmup else "")
    directory = runner.Directory(tmp_path)
    directory.write_module(averaging_text(dtype, clauses))
    directory.write_inputs(inputs)
    got = runner.run(directory, "step", world, steps)
    data = [[[t.data for t in step] for step in rank] for rank in inputs]
    arguments = [(period, warmup, dtype, data[r]) for r in range(world)]
    want = on_ranks(world, _run_averager, arguments)
    averaged = 0
    for rank in range(world):
        for step in range(steps):
            for i, data in enumerate(want[rank][step]):
                report = difference(got[rank][step][i], Tensor(dtype, data))
                assert not report, f"rank {rank}, step {step}, {i}: {report}"
            first = got[rank][step][0]
            averaged += difference(first, inputs[rank][step][0]) is not None
    due = sum(s >= warmup and (s - warmup) % period == 0 for s in range(steps))
    assert averaged == (due * world if world > 1 else 0)


TRAINING = """
ddp.process_group @dp
ddp.process_group @near ranks [[0, 1], [2, 3]]
func.func @step(%w: tensor<24x16xf32>, %b: tensor<16xf32>,
                %dw: tensor<24x16xf32>, %db: tensor<16xf32>)
    -> (tensor<24x16xf32>, tensor<16xf32>) {
  %gw = ddp.all_reduce mean %dw on @dp : tensor<24x16xf32>
  %gb = ddp.all_reduce mean %db on @dp : tensor<16xf32>
  %ew = tensor.empty() : tensor<24x16xf32>
  %nw = linalg.sub ins(%w, %gw : tensor<24x16xf32>, tensor<24x16xf32>)
      outs(%ew : tensor<24x16xf32>) -> tensor<24x16xf32>
  %aw = ddp.average %nw on @dp every 4 warmup 3 : tensor<24x16xf32>
  %eb = tensor.empty() : tensor<16xf32>
  %nb = linalg.sub ins(%b, %gb : tensor<16xf32>, tensor<16xf32>)
      outs(%eb : tensor<16xf32>) -> tensor<16xf32>
  %ab = ddp.average %nb on @dp every 4 warmup 3 : tensor<16xf32>
  return %aw, %ab : tensor<24x16xf32>, tensor<16xf32>
}
"""


def _train(rank, all_reduces, weights, gradients):
    """Trains with the parts of PostLocalSGDOptimizer: hook, SGD with a rate of 1, averager."""
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
    from torch.distributed.algorithms.model_averaging import averagers

    mine = _make_subgroup(rank, ((0, 1), (2, 3)))
    state = post_localSGD_hook.PostLocalSGDState(
        dist.group.WORLD, mine, START, post_local_gradient_allreduce=all_reduces
    )
    averager = averagers.PeriodicModelAverager(4, START)
    parameters = [torch.nn.Parameter(torch.from_numpy(w.copy())) for w in weights]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    results = []
    for step in gradients:
        buffer = torch.cat([torch.from_numpy(g.reshape(-1).copy()) for g in step])
        bucket = _Bucket(buffer, True)
        flat = post_localSGD_hook.post_localSGD_hook(state, bucket).wait()
        parts = flat.split([p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()
        optimizer.step()
        averager.average_parameters(iter(parameters))
        results.append([p.detach().numpy().copy() for p in parameters])
    return results


@pytest.mark.parametrize(
    "all_reduces", [True, pytest.param(False, marks=pytest.mark.full("compiles eight times"))]
)
def test_training(tmp_path, all_reduces):
    """Hook and averages are in one step, whose weights are inputs of the next one."""
    world, steps = 4, 8
    rng = np.random.default_rng(runner.SEED)
    shapes = [(24, 16), (16,)]
    weights = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    gradients = [
        [[rng.standard_normal(s).astype(np.float32) for s in shapes] for _ in range(steps)]
        for _ in range(world)
    ]
    arguments = [(all_reduces, weights, gradients[r]) for r in range(world)]
    want = on_ranks(world, _train, arguments)
    options = (
        f"hook=post_local_sgd start-localsgd-iter={START} subgroup=near "
        f"post-local-gradient-allreduce={str(all_reduces).lower()}"
    )
    directory = runner.Directory(tmp_path)
    directory.write_module(TRAINING)
    file = tmp_path / "state.{rank}.safetensors"
    now = [weights] * world
    for step in range(steps):
        inputs = [
            [[Tensor("f32", v) for v in (*now[r], *gradients[r][step])]]
            for r in range(world)
        ]
        directory.clear_outputs()
        directory.write_inputs(inputs)
        arguments = directory.arguments("step", world, 1, options)
        arguments.append(f"--state-out={file}")
        if step:
            arguments.append(f"--state-in=strict:{file}")
        result = runner.finish(runner.start(arguments))
        assert (result.code, result.stderr) == (0, "")
        got = directory.read_outputs(world, 1)
        for rank in range(world):
            for i, ours in enumerate(got[rank][0]):
                report = difference(ours, Tensor("f32", want[rank][step][i]))
                assert not report, f"rank {rank}, step {step}, {i}: {report}"
        now = [[t.data for t in got[r][0]] for r in range(world)]
        together = not difference(got[0][0][0], got[2][0][0])
        assert together == (step < START or (step - START) % 4 == 0)
