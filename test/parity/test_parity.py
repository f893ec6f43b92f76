# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules compared with PyTorch's hooks: every result, to the last bit.

A test id that ends in "torch" was compared with PyTorch's real hooks on real Gloo
process groups (for a `sum`, on a group that reports size one, see oracle.py); "numpy"
means the model of model.py, for cases with more ranks than the oracle has processes.
"""

import itertools
import math

import numpy as np
import pytest

import cases
import runner
from cases import Function, Grad, Module, Options
from oracle import WORLD

WORLDS = range(1, WORLD + 1)


def check(directory, reference, module, options, world, steps=2, **rest):
    """Runs every function of the module and compares with the reference.
    rest: env, partitions, one_owner."""
    directory = runner.Directory(directory)
    directory.write_module(module.text())
    for function in module.functions:
        seed = [runner.SEED, world]
        inputs = cases.make_inputs(module, function.name, world, steps, seed)
        if rest.get("one_owner"):
            inputs = cases.with_one_owner(inputs)
        directory.write_inputs(inputs)
        got = runner.run(
            directory, function.name, world, steps, options.text(), rest.get("env")
        )
        want = cases.expected(
            module,
            function.name,
            options,
            inputs,
            reference,
            rest.get("partitions"),
        )
        report = cases.difference_of(got, want)
        assert not report, (
            f"seed {runner.SEED}, @{function.name}, {options.text() or 'no options'}, "
            f"{world} ranks; {directory.module}:\n{report}"
        )


@pytest.fixture
def torch_hooks(pool):
    return pool.run_groups


def buckets_id(buckets):
    return Options(**buckets).text() or "default"


# The settings of the bucket options; each combination of hook and wrapper uses one.
BUCKETS = [
    {},
    {"bucket_cap_mb": 0.01},
    {"bucket_cap_mb": 0.002, "first_bucket_mb": 0.0005},
    {"first_bucket_mb": 0.01, "order": "reverse"},
    {"bucket_cap_mb": 0.03, "order": "reverse"},
    {"bucket_cap_mb": 0, "order": "forward"},
    {"bucket_cap_mb": 0.004, "order": "ready"},
    {"first_bucket_mb": 0, "bucket_cap_mb": math.inf},
]


@pytest.mark.parametrize("world", [pytest.param(w, id=f"{w}-torch") for w in WORLDS])
@pytest.mark.parametrize("wrapper", cases.WRAPPERS, ids=lambda w: w or "bare")
@pytest.mark.parametrize("hook", cases.BASES)
def test_every_hook(torch_hooks, tmp_path, hook, wrapper, world):
    number = 3 * cases.BASES.index(hook) + cases.WRAPPERS.index(wrapper)
    buckets = BUCKETS[(number + 5 * world) % len(BUCKETS)]
    options = Options(hook=hook, wrapper=wrapper, **buckets)
    module = cases.everything(groups=("dp", "dp2"))
    check(tmp_path, torch_hooks, module, options, world)


@pytest.mark.parametrize("buckets", BUCKETS, ids=buckets_id)
@pytest.mark.parametrize("body", ["plain", "produced", "consumed"])
def test_bucket_options(torch_hooks, tmp_path, body, buckets):
    """With three ranks, an element's position in its bucket determines the order of its sum,
    so that a gradient in the wrong bucket or position makes a difference."""
    (function,) = cases.everything().functions
    ready = np.random.default_rng(runner.SEED).permutation(len(function.grads))
    module = Module([Function("step", function.grads, None, body, list(ready))])
    check(tmp_path, torch_hooks, module, Options(hook="fp16", **buckets), 3)


@pytest.mark.parametrize("buckets", BUCKETS, ids=buckets_id)
def test_bucket_limits_count_bytes_of_the_gradient(torch_hooks, tmp_path, buckets):
    """Gradients end exactly at a limit, one element before it, and one after it."""
    limits = [int(min(limit, 1200000)) for limit in Options(**buckets).limits]
    sizes = [n for limit in limits for n in (limit // 4 - 1, 1, limit // 4, 3)]
    sizes = [max(1, size) for size in sizes] * 2
    grads = [Grad((size,), dtype) for size in sizes for dtype in ("f32", "f64")]
    module = Module([Function("step", grads)])
    check(tmp_path, torch_hooks, module, Options(**buckets), 3, steps=1)


@pytest.mark.parametrize("world", [pytest.param(w, id=f"{w}-torch") for w in WORLDS])
def test_sums_in_a_type_of_their_own(torch_hooks, tmp_path, world):
    hook = "allreduce_and_upcast"
    hooks = [(hook,), *((hook, dtype) for dtype in ("f16", "bf16", "f32", "f64"))]
    grads = [
        Grad((41, 3), dtype, reduction, values=values, hook=hook)
        for hook in hooks
        for dtype in ("f16", "bf16", "f32", "f64")
        for reduction in ("mean", "sum")
        for values in ("special", "halfway", "wide")
    ]
    check(tmp_path, torch_hooks, Module([Function("step", grads)]), Options(), world)


@pytest.mark.parametrize("world", [pytest.param(w, id=f"{w}-torch") for w in (2, 3)])
def test_innermost_hook_wins(torch_hooks, tmp_path, world):
    """Hooks are on operations, given by names, on functions, on the module and in the
    pipeline."""
    hooks = [None, ("allreduce",), ("fp16",), ("bf16",), ("noop",)]
    hooks += [("wrap", t, (base,)) for t in ("f16", "bf16") for base in cases.BASES]

    def function(name, hook):
        grads = [
            Grad((41, 3), dtype, reduction, values=values, hook=inner)
            for inner in hooks
            for dtype, reduction, values in [
                ("f32", "mean", "special"),
                ("f64", "sum", "halfway"),
                ("f32", "mean", "halfway"),
            ]
        ]
        return Function(name, grads, hook)

    module = Module(
        [function("inner", ("bf16",)), function("outer", None)], hook=("noop",)
    )
    check(tmp_path, torch_hooks, module, Options(hook="fp16"), world)
    # Names take precedence over functions and the module, but not over operations.
    for exempt, hook in [("inner", None), (r"\.arg1?[13579]$", "bf16")]:
        options = Options(hook="fp16", exempt=exempt, exempt_hook=hook)
        check(tmp_path, torch_hooks, module, options, world)
    module.hook = None
    check(tmp_path, torch_hooks, module, Options(wrapper="bf16"), world)


@pytest.mark.parametrize("world", [pytest.param(w, id=f"{w}-torch") for w in (1, 3)])
def test_wrappers_of_wrappers(torch_hooks, tmp_path, world):
    wires = itertools.product(("f16", "bf16"), ("f16", "bf16"), cases.BASES)
    grads = [
        Grad((997,), dtype, values=values, hook=("wrap", a, ("wrap", b, (c,))))
        for a, b, c in wires
        for dtype, values in (("f32", "wide"), ("bf16", "bits"), ("f64", "halfway"))
    ]
    check(tmp_path, torch_hooks, Module([Function("step", grads)]), Options(), world)


@pytest.mark.parametrize("world", [pytest.param(w, id=f"{w}-torch") for w in WORLDS])
def test_every_16_bit_value_and_its_neighbours(torch_hooks, tmp_path, world):
    grads = [
        Grad((6, 2**16), "f32", reduction, values="every", hook=hook)
        for reduction in ("mean", "sum")
        for hook in (("fp16",), ("bf16",), ("wrap", "f16", ("bf16",)))
    ]
    module = Module([Function("step", grads)])
    check(tmp_path, torch_hooks, module, Options(), world, steps=1)


@pytest.mark.parametrize("world", [pytest.param(w, id=f"{w}-torch") for w in (2, 3, 4)])
@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_transports(torch_hooks, tmp_path, transport, world):
    """Tests both transports, including buckets of many ring segments."""
    (function,) = cases.everything(groups=("dp", "dp2")).functions
    grads = list(function.grads)
    grads += [
        Grad((2**19 * world + 3,), "f32", hook=("fp16",)),
        Grad((2**18 * world + 1,), "f32", values="wide"),
        Grad((2**18, 3), "f64", "sum"),
        Grad((2**20 + 5,), "bf16"),
    ]
    module = Module([Function("step", grads)], {"dp": "", "dp2": ""})
    env = {"DDPHOOK_TRANSPORT": transport}
    options = Options(hook="bf16" if world == 3 else "allreduce")
    check(tmp_path, torch_hooks, module, options, world, steps=1, env=env)


@pytest.mark.parametrize("hook", cases.BASES)
def test_partitioned_groups(torch_hooks, tmp_path, hook):
    """Four ranks form one group, neighbours, every other rank, and single ranks."""
    partitions = {
        "pairs": [(0, 1), (2, 3)],
        "odds": [(0, 2), (1, 3)],
        "alone": [(0,), (1,), (2,), (3,)],
    }
    module = cases.everything(groups=("dp", *partitions))
    for name, ranks in partitions.items():
        lists = [list(group) for group in ranks]
        module.groups[name] = f"size {len(lists[0])} ranks {lists}"
    module.groups["dp"] = "size 4"
    options = Options(hook=hook, bucket_cap_mb=0.01)
    check(tmp_path, torch_hooks, module, options, 4, partitions=partitions)


@pytest.mark.parametrize("seed", [pytest.param(s, id=f"{s}-torch") for s in range(12)])
def test_random_modules(torch_hooks, tmp_path, seed):
    rng = np.random.default_rng([runner.SEED, 2000, seed])
    module, options = cases.random_module(rng)
    env = {} if seed % 3 else {"DDPHOOK_TRANSPORT": "gloo"}
    check(tmp_path, torch_hooks, module, options, 1 + seed % WORLD, env=env)


@pytest.mark.parametrize("world", [pytest.param(w, id=f"{w}-numpy") for w in (5, 6, 8)])
@pytest.mark.parametrize("hook", ["allreduce", "fp16", "bf16"])
def test_more_ranks_than_the_oracle_has(tmp_path, hook, world):
    module = cases.everything()
    options = Options(hook=hook, bucket_cap_mb=0.01)
    check(tmp_path, cases.model_reference, module, options, world)


def run_launched(directory, world, steps, pipeline, port, nodes=None, env_of=None):
    """Like runner.run, but launches every rank as a separate process. `nodes` gives each
    rank's machine name, env_of(rank) more variables."""
    processes = []
    for rank in range(world):
        env = runner.launch(rank, world, port)
        if nodes:
            env["DDPHOOK_NODE"] = nodes[rank]
        env.update(env_of(rank) if env_of else {})
        arguments = directory.arguments("step", None, steps, pipeline)
        processes.append(runner.start(arguments, env))
    for result in [runner.finish(process) for process in processes]:
        assert result.code == 0, result.stderr
    return directory.read_outputs(world, steps)


@pytest.mark.parametrize("nodes", [None, "aab", "abc"], ids=["one", "mixed", "apart"])
def test_ranks_that_were_launched_one_by_one(torch_hooks, tmp_path, free_port, nodes):
    """torchrun's variables replace --ranks, on one machine or as if on several: the job has
    the same bits."""
    world, steps = 3, 2
    module = cases.everything()
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", world, steps, runner.SEED)
    directory.write_inputs(inputs)
    got = run_launched(directory, world, steps, "hook=fp16", free_port, nodes)
    want = cases.expected(module, "step", Options(hook="fp16"), inputs, torch_hooks)
    assert not cases.difference_of(got, want)


def test_groups_by_placement(torch_hooks, tmp_path, free_port):
    """Two machines of two ranks: in one step, groups inside a machine use shared memory, and
    groups across machines use TCP."""
    partitions = {"node": [(0, 1), (2, 3)], "rail": [(0, 2), (1, 3)]}
    module = cases.everything(groups=("dp", *partitions))
    module.groups["node"] = "placement intra_node"
    module.groups["rail"] = "placement inter_node"
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", 4, 2, runner.SEED)
    directory.write_inputs(inputs)
    options = Options(hook="bf16", bucket_cap_mb=0.01)
    got = run_launched(directory, 4, 2, options.text(), free_port, "aabb")
    want = cases.expected(module, "step", options, inputs, torch_hooks, partitions)
    assert not cases.difference_of(got, want)


def test_outputs_are_official_safetensors(pool, tmp_path):
    """The official library reads the outputs of ddphook-run."""
    module = cases.everything()
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    directory.write_inputs(cases.make_inputs(module, "step", 1, 1, runner.SEED))
    ((ours,),) = runner.run(directory, "step", 1, 1, "hook=bf16")
    path = str(directory.outputs).format(rank=0, step=0)
    names = [f"result{i}" for i in range(len(ours))]
    official = pool.call("load_official", [(path, names)], [0])[0]
    for name, tensor in zip(names, ours):
        theirs = cases.Tensor(tensor.dtype, official[name])
        assert not cases.difference(theirs, tensor)
