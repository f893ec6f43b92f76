# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sharded optimizers: a step of SGD with momentum, in three ways. Each rank updates all
parameters by an all-reduced gradient; each rank updates its part of them by a
reduce-scattered gradient and gathers the others' parts; the same with all parameters in
one bucket. Parameters and momenta have the same bits.
"""

import numpy as np
import pytest

import runner
from oracle import WORLD
from tensors import Tensor, difference

SHAPES = {"w": (7, 5), "b": (3,)}


def part(count, ranks):
    return -(-count // ranks)


def part_of(count, ranks, rank):
    """Returns the number of elements in a rank's part, without padding."""
    return max(0, min(part(count, ranks), count - rank * part(count, ranks)))


def type_of(shape):
    return f"tensor<{''.join(f'{size}x' for size in shape)}f32>"


def update(name, shape, weight, momentum, gradient):
    """Returns m' = 0.9 m + g and w' = w - 0.1 m' as linalg, and the names of both."""
    t, dims = type_of(shape), ", ".join(f"d{i}" for i in range(len(shape)))
    maps = ", ".join([f"affine_map<({dims}) -> ({dims})>"] * 5)
    kinds = ", ".join(['"parallel"'] * len(shape))
    return f"""
  %{name}_e0 = tensor.empty() : {t}
  %{name}_e1 = tensor.empty() : {t}
  %{name}:2 = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins({weight}, {momentum}, {gradient} : {t}, {t}, {t})
      outs(%{name}_e0, %{name}_e1 : {t}, {t}) {{
  ^bb0(%p: f32, %v: f32, %d: f32, %x: f32, %y: f32):
    %decay = arith.constant 0.9 : f32
    %rate = arith.constant 0.1 : f32
    %0 = arith.mulf %v, %decay : f32
    %1 = arith.addf %0, %d : f32
    %2 = arith.mulf %1, %rate : f32
    %3 = arith.subf %p, %2 : f32
    linalg.yield %3, %1 : f32, f32
  }} -> ({t}, {t})
"""


def function(name, arguments, body, results):
    arguments = ", ".join(f"{value}: {type_of(shape)}" for value, shape in arguments)
    values = ", ".join(value for value, _ in results)
    types = ", ".join(type_of(shape) for _, shape in results)
    end = f"  return {values} : {types}\n}}\n"
    return f"func.func @{name}({arguments}) -> ({types}) {{{body}\n{end}"


def program(ranks):
    """Returns a program with all three ways."""
    text = f"ddp.process_group @dp size {ranks}\n"
    arguments, body, results = [], "", []
    for name, shape in SHAPES.items():
        arguments += [(f"%{kind}_{name}", shape) for kind in "wmg"]
        t = type_of(shape)
        body += f"\n  %r_{name} = ddp.all_reduce mean %g_{name} on @dp : {t}"
        body += update(f"u_{name}", shape, f"%w_{name}", f"%m_{name}", f"%r_{name}")
        results += [(f"%u_{name}#0", shape), (f"%u_{name}#1", shape)]
    text += function("replicated", arguments, body, results)

    arguments, body, results = [], "", []
    for name, shape in SHAPES.items():
        own = (part(int(np.prod(shape)), ranks),)
        arguments += [(f"%w_{name}", own), (f"%m_{name}", own), (f"%g_{name}", shape)]
        t, p = type_of(shape), type_of(own)
        body += f"\n  %r_{name} = ddp.reduce_scatter mean %g_{name} on @dp : {t} -> {p}"
        body += update(f"u_{name}", own, f"%w_{name}", f"%m_{name}", f"%r_{name}")
        body += f"  %n_{name} = ddp.all_gather %u_{name}#0 on @dp : {p} -> {t}"
        results += [(f"%n_{name}", shape), (f"%u_{name}#1", own)]
    text += function("sharded", arguments, body, results)

    total = sum(int(np.prod(shape)) for shape in SHAPES.values())
    own = (part(total, ranks),)
    shapes = ["x".join(map(str, shape)) for shape in SHAPES.values()]
    bucket, p = f"!ddp.bucket<f32, [{', '.join(shapes)}]>", type_of(own)
    types = ", ".join(type_of(shape) for shape in SHAPES.values())
    arguments = [("%w", own), ("%m", own)]
    arguments += [(f"%g_{name}", shape) for name, shape in SHAPES.items()]
    gradients = ", ".join(f"%g_{name}" for name in SHAPES)
    body = f"\n  %b = ddp.pack {gradients} : {types} -> {bucket}"
    body += f"\n  %r = ddp.reduce_scatter mean %b on @dp : {bucket} -> {p}"
    body += update("u", own, "%w", "%m", "%r")
    body += f"  %n = ddp.all_gather %u#0 on @dp : {p} -> {bucket}"
    body += f"\n  %all:{len(SHAPES)} = ddp.unpack %n : {bucket} -> {types}"
    results = [(f"%all#{i}", shape) for i, shape in enumerate(SHAPES.values())]
    return text + function("packed", arguments, body, [*results, ("%u#1", own)])


def parts(array, ranks):
    flat = array.reshape(-1)
    size = part(flat.size, ranks)
    flat = np.concatenate([flat, np.zeros(size * ranks - flat.size, np.float32)])
    return flat.reshape(ranks, size)


@pytest.mark.parametrize("options", ["", "hook=bf16 verify-order=true", "hook=int8"])
@pytest.mark.parametrize("ranks", range(1, WORLD + 1))
def test_sharded_is_replicated(tmp_path, ranks, options):
    random = np.random.default_rng([runner.SEED, ranks])

    def draw(shape):
        return random.standard_normal(shape, np.float32)

    weights = {name: draw(shape) for name, shape in SHAPES.items()}
    momenta = {name: draw(shape) for name, shape in SHAPES.items()}
    gradients = [
        {name: draw(shape) for name, shape in SHAPES.items()} for _ in range(ranks)
    ]
    directory = runner.Directory(tmp_path)
    directory.write_module(program(ranks))

    def run(entry, inputs, transport):
        directory.write_inputs([[[Tensor("f32", v) for v in rank]] for rank in inputs])
        environment = {"DDPHOOK_TRANSPORT": transport}
        pipeline = f"bucket-cap-mb=0 {options}".strip()
        got = runner.run(directory, entry, ranks, 1, pipeline, environment)
        return [[tensor.data for tensor in rank[0]] for rank in got]

    def flat(arrays):
        return np.concatenate([arrays[name].reshape(-1) for name in SHAPES])

    def check(got, want, what):
        problem = difference(Tensor("f32", got), Tensor("f32", want))
        assert problem is None, f"{what}: {problem}"

    inputs = [
        [values[name] for name in SHAPES for values in (weights, momenta, own)]
        for own in gradients
    ]
    whole = run("replicated", inputs, "shm")[0]
    for transport in ("shm", "gloo"):
        inputs = [
            [
                array
                for name in SHAPES
                for array in (
                    parts(weights[name], ranks)[rank],
                    parts(momenta[name], ranks)[rank],
                    gradients[rank][name],
                )
            ]
            for rank in range(ranks)
        ]
        for rank, got in enumerate(run("sharded", inputs, transport)):
            for i, name in enumerate(SHAPES):
                check(got[2 * i], whole[2 * i], f"rank {rank}, {name}")
                own = parts(whole[2 * i + 1], ranks)[rank]
                # The padding of a short part has no meaning.
                size = part_of(whole[2 * i + 1].size, ranks, rank)
                check(
                    got[2 * i + 1][:size], own[:size], f"rank {rank}, momentum of {name}"
                )

        # With three ranks and more, an element's position in the collective determines the order
        # of additions; with two, there is only one order. Blocks of codes also begin with a
        # bucket.
        if ranks > 2 or "int8" in options:
            continue
        inputs = [
            [
                parts(flat(weights), ranks)[rank],
                parts(flat(momenta), ranks)[rank],
                *(gradients[rank][name] for name in SHAPES),
            ]
            for rank in range(ranks)
        ]
        for rank, got in enumerate(run("packed", inputs, transport)):
            for i, name in enumerate(SHAPES):
                check(got[i], whole[2 * i], f"rank {rank}, {name} of the bucket")
