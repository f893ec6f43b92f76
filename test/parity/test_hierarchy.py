# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hierarchical process groups, to the last bit: every hook on machines of several ranks,
compared with the model of docs/hierarchy.md: the model of an all-reduce (model.py,
checked against PyTorch), first within nodes and then between them.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import cases
import model
import runner
from cases import Function, Grad, Module, Options
from tensors import Tensor
from test_parity import run_launched


def share(tensor, number, shares):
    size = -(-tensor.data.size // shares)
    return Tensor(tensor.dtype, tensor.data[number * size : (number + 1) * size])


def reduce(hook, nodes, mean):
    """Returns the result of all ranks; `nodes` has the tensors of each node's ranks."""
    sums = [model.run_hook(("allreduce",), node, mean)[0] for node in nodes]
    shares = len(nodes[0])
    parts = [
        model.run_hook(hook, [share(total, number, shares) for total in sums], mean)[0]
        for number in range(shares)
    ]
    return Tensor(parts[0].dtype, np.concatenate([part.data for part in parts]))


def reference_of(names):
    """Returns a reference like cases.model_reference; `names` has the node of each rank."""

    def reference(world, jobs):
        results = []
        for partition, hook, mean, tensors in jobs:
            dtype = tensors[0].dtype
            while hook[0] == "wrap":
                tensors = [model.cast(tensor, hook[1]) for tensor in tensors]
                hook = hook[2]
            out = [None] * world
            for group in partition or (tuple(range(world)),):
                nodes = {}
                for rank in group:
                    nodes.setdefault(names[rank], []).append(tensors[rank])
                if hook[0] == "noop":
                    got = {rank: tensors[rank] for rank in group}
                else:
                    got = dict.fromkeys(group, reduce(hook, list(nodes.values()), mean))
                for rank in group:
                    out[rank] = model.cast(got[rank], dtype)
            results.append(out)
        return results

    return reference


def check(
    tmp_path, port, module, options, nodes, steps=2, partitions=None, env_of=None
):
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", len(nodes), steps, runner.SEED)
    directory.write_inputs(inputs)
    pipeline = options.text() + " topology=hierarchical"
    world = len(nodes)
    got = run_launched(directory, world, steps, pipeline, port, nodes, env_of)
    reference = reference_of(nodes)
    want = cases.expected(module, "step", options, inputs, reference, partitions)
    assert not cases.difference_of(got, want)


NODES = ["a", "aa", "ab", "aabb", "abba", "abcabc"]
HOOKS = ["allreduce", "fp16", "bf16", "noop"]


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks(tmp_path, free_port, hook, nodes):
    """Runs every element type, reduction and shape, in buckets of several gradients."""
    options = Options(hook=hook, bucket_cap_mb=0.01)
    check(tmp_path, free_port, cases.everything(), options, nodes)


@pytest.mark.parametrize("seed", range(6))
def test_random_modules(tmp_path, free_port, seed):
    module, options = cases.random_module(np.random.default_rng([runner.SEED, 3000, seed]))
    module.functions = [replace(module.functions[0], name="step")]
    check(tmp_path, free_port, module, options, ["abab", "aabbcc", "abc"][seed % 3])


@pytest.mark.parametrize("nodes", ["ab", "aabb"])
def test_powersgd(tmp_path, free_port, nodes):
    """PowerSGD's factors are reduced hierarchically, too: with one rank per node, bits equal
    those of a flat group; otherwise results differ only by the order of additions."""
    grads = [Grad(shape, "f32", values="gaussian") for shape in [(40, 30), (17,), (64, 8)]]
    module = Module([Function("step", grads)])
    inputs = cases.make_inputs(module, "step", len(nodes), 5, runner.SEED)
    got = {}
    for topology in ("flat", "hierarchical"):
        path = tmp_path / topology
        path.mkdir()
        directory = runner.Directory(path)
        directory.write_module(module.text())
        directory.write_inputs(inputs)
        options = "hook=powersgd start-powersgd-iter=2 matrix-approximation-rank=2"
        options += f" topology={topology}"
        got[topology] = run_launched(directory, len(nodes), 5, options, free_port, nodes)
    flat, other = got.values()
    assert not cases.difference_of(other, [other[0]] * len(nodes))
    if nodes == "ab":
        assert not cases.difference_of(other, flat)
    for step, (ours, theirs) in enumerate(zip(other[0], flat[0])):
        for a, b in zip(ours, theirs):
            np.testing.assert_allclose(
                a.data, b.data, rtol=0, atol=1e-4 * np.abs(b.data).max(), err_msg=f"{step}"
            )


def encodings():
    """Returns buckets of one gradient each (with cap 0), in every kind of code."""
    hooks = [
        ("int8",),
        ("int4", 64),
        ("fp8", 32, "f8E5M2"),
        ("bf16", "f32"),
        ("quantization_pertensor",),
        ("quantization_perchannel", 100),
    ]
    grads = [
        Grad(shape, dtype, reduction, values=values, hook=hook)
        for hook in hooks
        for dtype, values in [("f32", "wide"), ("bf16", "gaussian"), ("f64", "special")]
        for reduction, shape in [("mean", (3, 11)), ("sum", (1, 257)), ("mean", ())]
    ]
    return Module([Function("step", grads)])


@pytest.mark.parametrize("nodes", ["aabb", "abcabc"])
def test_encodings(tmp_path, free_port, nodes):
    """A node's shard is encoded as a separate array: blocks begin with it."""
    check(tmp_path, free_port, encodings(), Options(bucket_cap_mb=0), nodes, steps=1)


def test_large_arrays(tmp_path, free_port):
    """Arrays are longer than a transport's chunks, with prime sizes."""
    hooks = [("allreduce",), ("fp16",), ("int8",), ("int4", 64)]
    grads = [Grad((700001,), "f32", values="gaussian", hook=hook) for hook in hooks]
    module = Module([Function("step", grads)])
    check(tmp_path, free_port, module, Options(bucket_cap_mb=0), "ababab", steps=2)


def long_arrays(elements):
    """Returns arrays whose shards are reduced in pieces, the last of which is short."""
    hooks = [
        ("f32", ("allreduce",)),
        ("f32", ("bf16",)),
        ("f64", ("fp16",)),
        ("bf16", ("fp16",)),
        ("f32", ("bf16", "f32")),
        ("f32", ("int8",)),
        ("f16", ("int4", 64)),
        ("f32", ("quantization_perchannel", 512)),
    ]
    reductions = itertools.cycle([("mean", "gaussian"), ("sum", "wide"), ("mean", "wide")])
    grads = [
        Grad((elements,), dtype, reduction, values=values, hook=hook)
        for (dtype, hook), (reduction, values) in zip(hooks, reductions)
    ]
    return Module([Function("step", grads)])


@pytest.mark.parametrize(
    "transport", ["auto", pytest.param("gloo", marks=pytest.mark.full("as between nodes"))]
)
@pytest.mark.parametrize(
    ("nodes", "elements"),
    [
        pytest.param("aabb", 2300003, marks=pytest.mark.full("as three nodes")),
        ("aabbcc", 1700021),
        pytest.param("aaabbb", 3200007, marks=pytest.mark.full("a minute")),
    ],
)
def test_stages_in_pieces(tmp_path, free_port, nodes, elements, transport):
    """Pieces change no bit, neither for two nodes nor in the order of three."""
    check(
        tmp_path,
        free_port,
        long_arrays(elements),
        Options(bucket_cap_mb=0),
        nodes,
        steps=1,
        env_of=lambda rank: {"DDPHOOK_TRANSPORT": transport},
    )


@pytest.mark.parametrize("wrapper", ["fp16", "bf16"])
def test_wrappers(tmp_path, free_port, wrapper):
    options = Options(hook="int8", wrapper=wrapper, bucket_cap_mb=0.01)
    check(tmp_path, free_port, cases.everything(), options, "aabb")


def test_groups_of_lists(tmp_path, free_port):
    """A hierarchical group of some ranks has its own assignment to nodes."""
    partitions = {"odds": [(0, 2, 4, 6), (1, 3, 5, 7)]}
    module = cases.everything(groups=("dp", "odds"))
    module.groups["odds"] = "ranks [[0, 2, 4, 6], [1, 3, 5, 7]]"
    options = Options(hook="fp16", bucket_cap_mb=0.01)
    check(tmp_path, free_port, module, options, "aaaabbbb", partitions=partitions)


def test_unlike_nodes_are_refused(tmp_path, free_port):
    directory = runner.Directory(tmp_path)
    module = cases.everything()
    directory.write_module(module.text())
    directory.write_inputs(cases.make_inputs(module, "step", 3, 1, runner.SEED))
    processes = []
    for rank, node in enumerate("aab"):
        env = {**runner.launch(rank, 3, free_port), "DDPHOOK_NODE": node}
        arguments = directory.arguments("step", None, 1, "topology=hierarchical")
        processes.append(runner.start(arguments, env))
    for result in [runner.finish(process) for process in processes]:
        assert result.code != 0
        assert (
            "process group 'dp': expected equally many ranks on every node, but got "
            "2 (with rank 0) and 1 (with rank 2)" in result.stderr
        )
