# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the references that test_parity.py relies on.

The hooks called with our bucket object are compared with real DistributedDataParallel,
the numpy model with the hooks, our bucket assignment with DDP's, and the comparison
with deliberate differences. Needs no ddphook.
"""

import itertools

import numpy as np
import pytest

import cases
import model
import runner
from cases import Grad
from oracle import WORLD
from tensors import DTYPES, Tensor, difference, load, save

HOOKS = [(base,) for base in cases.BASES] + [
    ("wrap", element, (base,))
    for element in ("f16", "bf16")
    for base in cases.BASES
]
HOOKS += [("wrap", "f16", ("wrap", "bf16", ("allreduce",)))]


def bucket(dtype, world, size, seed):
    """Returns the tensors by rank of a bucket with every class of values."""
    def part(values, rank):
        rng = np.random.default_rng([runner.SEED, seed, rank])
        grad = Grad((size,), dtype, values=values)
        return cases.make_values(grad, rank, rng).data

    return [
        Tensor(dtype, np.concatenate([part(v, rank) for v in cases.VALUES]))
        for rank in range(world)
    ]


@pytest.mark.parametrize("world", range(1, WORLD + 1))
@pytest.mark.parametrize("hook", HOOKS, ids=cases.hook_name)
def test_model_follows_the_hooks(pool, hook, world):
    jobs = [
        (hook, mean, bucket(dtype, world, 997, seed))
        for seed, (dtype, mean) in enumerate(
            itertools.product(DTYPES, (True, False))
        )
    ]
    for job, real in zip(jobs, pool.run_buckets(world, jobs)):
        for rank, modelled in enumerate(model.run_hook(*job[::2], job[1])):
            report = difference(modelled, real[rank])
            assert not report, f"{real[rank].dtype}, rank {rank}: {report}"


@pytest.mark.parametrize("seed", range(8))
def test_model_follows_the_hooks_on_whole_modules(pool, seed):
    """Both references agree on bucketing, on hooks on operations and functions, and on
    partitioned groups."""
    rng = np.random.default_rng([runner.SEED, 1000, seed])
    module, options = cases.random_module(rng)
    world = int(rng.integers(1, WORLD + 1))
    partitions = {"dp": [(0, 2), (1, 3)]} if world == 4 else None
    for function in module.functions:
        inputs = cases.make_inputs(module, function.name, world, 2, seed)
        arguments = (module, function.name, options, inputs)
        real = cases.expected(*arguments, pool.run_groups, partitions)
        modelled = cases.expected(*arguments, cases.model_reference, partitions)
        report = cases.difference_of(modelled, real)
        assert not report, f"{function.name}, {options}:\n{report}"


@pytest.mark.parametrize("world", range(1, WORLD + 1))
@pytest.mark.parametrize("dtype", DTYPES)
def test_model_follows_the_ring_at_every_size(pool, dtype, world):
    """Sizes are around the ring's segments, including empty ones and several MiB."""
    sizes = [0, 1, 2, 3, 5, 7, 8, 9, 31, 64, 1001, 524287, 2**19 * world + 3]
    jobs = []
    for size in sizes:
        grad = Grad((size,), dtype)
        rngs = [np.random.default_rng([size, rank]) for rank in range(world)]
        values = [cases.make_values(grad, r, rng) for r, rng in enumerate(rngs)]
        jobs.append((("allreduce",), False, values))
    for size, job, real in zip(sizes, jobs, pool.run_buckets(world, jobs)):
        for rank, modelled in enumerate(model.run_hook(*job[::2], job[1])):
            report = difference(modelled, real[rank])
            assert not report, f"{size} elements, rank {rank}: {report}"


DDP_SHAPES = [(64, 33), (33,), (), (5, 7, 3), (1, 64), (129, 2), (2,)]


@pytest.mark.parametrize("cap_mb", [None, 0.004], ids=["default", "small"])
@pytest.mark.parametrize("world", range(1, WORLD + 1))
@pytest.mark.parametrize("hook", HOOKS[:3] + HOOKS[4:6], ids=cases.hook_name)
def test_bucket_object_gives_the_bits_of_ddp(pool, hook, world, cap_mb):
    """Runs real DDP with a real hook for three steps: compares the hook's input, the buckets,
    and the gradients after DDP."""
    dtype, steps = "f32", 3
    function = cases.Function(
        "step",
        [
            Grad(shape, dtype, values=values)
            for shape, values in zip(DDP_SHAPES, itertools.cycle(cases.VALUES[:4]))
        ],
    )
    module = cases.Module([function])
    inputs = cases.make_inputs(module, "step", world, steps, runner.SEED)
    ranks = tuple(range(world))
    pool.make_groups([ranks])
    grads = [[[t.data for t in step] for step in rank] for rank in inputs]
    runs = pool.call(
        "run_ddp",
        [(ranks, hook, dtype, grads[r], cap_mb, steps) for r in ranks],
        ranks,
    )
    jobs, left = [], []
    for step in range(steps):
        buckets = [run[step][1] for run in runs]
        members = [numbers for numbers, _, _ in buckets[0]]
        assert sorted(sum(members, [])) == list(range(len(DDP_SHAPES)))
        if step > 0:
            # From the second step on, DDP packs in the order in which gradients became ready; for
            # that order, our assignment equals DDP's.
            order = sum(members, [])
            limits = cases.Options(bucket_cap_mb=cap_mb).limits
            sized = [(dtype, 4 * function.grads[i].size) for i in order]
            ours = cases.assign_buckets(sized, limits)
            assert [[order[p] for p in bucket] for bucket in ours] == members
        for number, numbers in enumerate(members):
            flats = [buckets[rank][number][1] for rank in ranks]
            for rank in ranks:
                given = np.concatenate(
                    [grads[rank][step][i].reshape(-1) for i in numbers]
                )
                report = difference(
                    Tensor(dtype, flats[rank]), Tensor(dtype, given)
                )
                assert not report, f"DDP's bucket {number}: {report}"
            jobs.append((hook, True, [Tensor(dtype, flat) for flat in flats]))
            left.append((step, numbers))
    for (step, numbers), results in zip(left, pool.run_buckets(world, jobs)):
        for rank in ranks:
            have = np.concatenate(
                [runs[rank][step][0][i].reshape(-1) for i in numbers]
            )
            report = difference(results[rank], Tensor(dtype, have))
            assert not report, f"step {step}, rank {rank}: {report}"


@pytest.mark.parametrize("seed", range(5))
def test_bucket_assignment_is_that_of_ddp(pool, seed):
    rng = np.random.default_rng([runner.SEED, seed])
    limits = [int(x) for x in rng.integers(1, 3000, rng.integers(1, 3))]
    names = [d for d in DTYPES if d != "bf16"]
    values = [
        Tensor(d, np.zeros(rng.integers(0, 500), DTYPES[d][0]))
        for d in rng.choice(names, 40)
    ]
    sized = [(t.dtype, t.data.nbytes) for t in values]
    ours = cases.assign_buckets(sized, limits)
    given = [(t.dtype, t.data) for t in values]
    theirs = pool.call("assign_buckets", [(given, limits)], [0])[0]
    assert sorted(ours) == sorted(theirs)


def test_new_workers_repeat_the_job_of_a_worker_that_ended(pool):
    tensors = bucket("f32", 2, 10, 0)
    jobs = [(("allreduce",), True, tensors)]
    expected = pool.run_buckets(2, jobs)
    pool.workers[0][0].kill()
    with pytest.warns(UserWarning, match="rank 0 ended with exit code -9"):
        ((first, second),) = pool.run_buckets(2, jobs)
    assert not difference(expected[0][0], first)
    assert not difference(expected[0][1], second)


def test_double_goes_to_half_through_float(pool):
    """The model's two roundings are not an accident of the values."""
    (values,) = bucket("f64", 1, 5000, 99)
    with np.errstate(all="ignore"):
        once = Tensor("f16", values.data.astype(np.float16))
    assert difference(model.cast(values, "f16"), once)
    ((real,),) = pool.run_buckets(1, [(("fp16",), False, [values])])
    assert not difference(model.cast(model.cast(values, "f16"), "f64"), real)


def divide_then_cast(tensors):
    parts = [model.divide(tensor, len(tensors)) for tensor in tensors]
    return model.ring_sum([model.cast(part, "f16") for part in parts])


def half_parts(tensors):
    return [model.divide(model.cast(t, "f16"), len(tensors)) for t in tensors]


def sum_in_rank_order(tensors):
    values = [part.data.astype(np.float32) for part in half_parts(tensors)]
    total = values[0]
    with np.errstate(all="ignore"):
        for value in values[1:]:
            total = (total + value).astype(np.float16).astype(np.float32)
    return model.cast(Tensor("f32", total), "f16")


def sum_in_float(tensors):
    wide = [model.cast(part, "f32") for part in half_parts(tensors)]
    return model.cast(model.ring_sum(wide), "f16")


@pytest.mark.parametrize(
    "wrong", [divide_then_cast, sum_in_rank_order, sum_in_float]
)
def test_a_wrong_reference_is_noticed(pool, wrong):
    """Plausible mistakes in the fp16 hook at W = 3 must differ from the real hook; otherwise
    the inputs are too simple to prove anything."""
    tensors = bucket("f32", 3, 997, 5)
    (real,) = pool.run_buckets(3, [(("fp16",), True, tensors)])
    assert difference(model.cast(wrong(tensors), "f32"), real[0])
    assert not difference(model.run_hook(("fp16",), tensors, True)[0], real[0])


def test_comparison_reports_a_single_bit():
    want = Tensor("f32", np.array([[1, -0.0, np.nan, np.inf]], np.float32))
    assert difference(Tensor("f32", want.data.copy()), want) is None
    zero = Tensor("f32", np.array([[1, 0.0, np.nan, np.inf]], np.float32))
    assert difference(zero, want) == (
        "1 of 4 elements differ, first at 1: expected bits 0x80000000, but got "
        "0x00000000"
    )
    number = Tensor("f32", np.array([[1, -0.0, 7, np.inf]], np.float32))
    assert difference(number, want).startswith("1 of 4 elements differ, first at 2")
    payload = want.data.copy()
    payload.view(np.uint32)[0, 2] = 0xFFFFFFFF
    assert difference(Tensor("f32", payload), want) is None
    brain = Tensor("bf16", np.array([0x7F80, 0x7FC0], np.uint16))
    nans = Tensor("bf16", np.array([0x7FFF, 0x7FC0], np.uint16))
    assert difference(nans, brain).startswith("1 of 2 elements differ, first at 0")
    flat = Tensor("f32", want.data.reshape(4))
    assert difference(flat, want) == "expected [1, 4] f32, but got [4] f32"


def test_files_are_what_the_safetensors_library_reads(pool, tmp_path):
    path = str(tmp_path / "all.safetensors")
    tensors = {d: bucket(d, 1, 7, 3)[0] for d in DTYPES}
    tensors["empty"] = Tensor("f32", np.empty((0, 5), np.float32))
    tensors["scalar"] = Tensor("bf16", np.array(0x3F80, np.uint16))
    save(path, tensors)
    official = pool.call("load_official", [(path, list(tensors))], [0])[0]
    ours = load(path)
    for name, tensor in tensors.items():
        assert not difference(Tensor(tensor.dtype, official[name]), tensor)
        assert not difference(ours[name], tensor)
