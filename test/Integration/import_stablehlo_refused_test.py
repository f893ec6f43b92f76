# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `ddp-import-stablehlo` and the road behind it refuse, and hostile text."""

import functools
import re
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_steps import (
    HANG_S,
    OPT,
    SEED,
    accumulate,
    export,
    imported,
    loss,
    lower,
    make_arguments,
    mesh,
    move,
    opt,
    random,
    shard_map,
    step_of_means,
    value_and_sums,
)


def refuse(text, options=""):
    done = subprocess.run(
        [OPT, f"--ddp-import-stablehlo={options}"],
        input=text,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 1
    return done.stderr


def test_a_sum_of_sums_is_refused():
    """JAX's grad gives the sum already; who averages it again changes nothing, or
    makes it too large."""
    devices, arguments = mesh(2), make_arguments()

    def twice(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return move(params, jax.lax.pmean(grads, "dp")), jax.lax.pmean(value, "dp")

    step = shard_map(twice, devices, (P(), P("dp"), P("dp")))
    text = export(step, arguments)
    message = refuse(text)
    assert message.count("op expected a value that is not reduced over the same") == 3
    assert "this 'stablehlo.all_reduce' has reduced it" in message
    assert imported(text, "allow-repeated=true").count('"ddp.all_reduce"') == 7


def test_others_are_refused():
    devices, arguments = mesh(2), make_arguments()

    def others(params, x, y):
        (params, value) = step_of_means(params, x, y)
        largest = jax.lax.pmax(value, "dp")
        count = jax.lax.psum(jnp.int32(x.shape[0]), "dp")
        return params, value * largest / count + jax.lax.axis_index("dp")

    step = shard_map(others, devices, (P(), P("dp"), P("dp")), check_vma=False)
    text = export(step, arguments)
    message = refuse(text)
    assert "expected a sum, but got 'stablehlo.maximum'" in message
    assert "but got 'tensor<i32>'" in message
    assert "'stablehlo.partition_id' op expected a program that does not need" in message
    kept = opt(text, "--ddp-import-stablehlo=keep-others=true")
    assert kept.count("ddp.all_reduce mean") == 4
    assert kept.count('"stablehlo.all_reduce"') == 2


def test_what_jaxlib_does_not_lower_is_named():
    devices, (params, x, y) = mesh(2), make_arguments()
    specs = (P(), P("dp"), P("dp"))
    sorts = functools.partial(
        value_and_sums, function=lambda p, x, y: loss(p, jnp.sort(x, axis=0), y)
    )
    mapped = jax.shard_map(sorts, mesh=devices, in_specs=specs, out_specs=(P(), P()))
    program = imported(export(jax.jit(mapped), (params, x, y)))
    with pytest.raises(ValueError, match="stablehlo.sort at"):
        lower(program)


def test_what_is_not_partitioned_is_refused():
    devices, arguments = mesh(2), make_arguments()
    shardings = tuple(NamedSharding(devices, spec) for spec in (P(), P("dp"), P("dp")))
    step = jax.jit(lambda p, x, y: loss(p, x, y), in_shardings=shardings)
    assert "run Shardy's passes up to" in refuse(export(step, arguments))


@pytest.mark.parametrize("what", ["argument", "result"])
def test_other_shardings_of_jit_are_refused(what):
    """JAX moves what jit splits along other axes than shard_map does. The parts look
    alike."""
    devices = mesh(2, 2)
    mapped = jax.shard_map(
        lambda x: jax.lax.psum(x, "mp"), mesh=devices, in_specs=P("dp"), out_specs=P("dp")
    )
    arguments, place = (random(4, 3),), NamedSharding(devices, P("mp"))
    side = "in_shardings" if what == "argument" else "out_shardings"
    message = refuse(export(jax.jit(mapped, **{side: place}), arguments))
    assert f"expected {what} #0 to be split as in its 'sdy.manual_computation'" in message
    same = NamedSharding(devices, P("dp"))
    step = jax.jit(mapped, in_shardings=same, out_shardings=same)
    assert "on @mp" in opt(imported(export(step, arguments)))


def test_a_mesh_of_very_many_axes_is_refused():
    """The last one's number is not that of an axis of one device."""
    axes = ", ".join(f'"a{i}"={1 + i // 65536}' for i in range(65537))
    sharding = '#sdy.sharding<@mesh, [{"a65536"}]>'
    message = refuse(
        f'"sdy.mesh"() <{{mesh = #sdy.mesh<[{axes}]>, sym_name = "mesh"}}> : () -> ()\n'
        f"func.func @f(%a: tensor<4xf32> {{sdy.sharding = {sharding}}}) {{ return }}"
    )
    assert f"one rank's tensors, but got {sharding}" in message


def mutate(text, generator):
    """A text with a few things in other places."""
    patterns = [
        r"%\d+|%arg\d+",
        r"tensor<[^>]*>",
        r'"(stablehlo|sdy|func)\.\w+"',
        r'\{"?\w*"?\}|@\w+|"\w+"',
        r"<\{[^}]*\}>",
        r"\d+",
        r".*\n",
        r"\[[^\]]*\]",
    ]
    for _ in range(generator.integers(1, 4)):
        found = list(re.finditer(generator.choice(patterns), text))
        at, other = generator.choice(len(found), 2)
        text = text[: found[at].start()] + found[other].group() + text[found[at].end() :]
    return text


def test_malformed_programs_do_not_crash():
    devices, generator = mesh(2), np.random.default_rng(SEED)
    arguments = make_arguments(batch=(3, 8))
    specs = (P(), P(None, "dp"), P(None, "dp"))
    body = functools.partial(accumulate, reduce_each=True)
    step = shard_map(body, devices, specs, check_vma=False)
    module = step.lower(*arguments).compiler_ir("stablehlo")
    text = module.operation.get_asm(print_generic_op_form=True)
    statuses = []
    for _ in range(150):
        malformed = mutate(text, generator)
        done = subprocess.run(
            [
                OPT,
                "--ddp-import-stablehlo=keep-others=true",
                "--ddp-convert-stablehlo-control-flow",
                "--allow-unregistered-dialect",
            ],
            input=malformed,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode in (0, 1), f"{done.stderr[-2000:]}\n{malformed}"
        statuses.append(done.returncode)
    # Some of them are programs, and some are none.
    assert 0 < sum(statuses) < len(statuses)
