# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long the import of a large step in JAX takes.

    $(tools/python-env.sh) test/frontends/scale.py [--gradients=N ...] [--no-gpt]

Prints the median user time of ddphook-opt with ddp-import-stablehlo, from text to text:
for the step of a GPT of 48 layers, which JAX writes, and for texts in its style with so
many gradients each. Nothing is asserted but that all of them are imported.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("DDPHOOK_RUN", ROOT / "build/bin/ddphook-run"))
OPT = TOOL.with_name("ddphook-opt")
RUNS = int(os.environ.get("DDPHOOK_SCALE_RUNS", "5"))
LAYERS = 48


def text_of_gpt():
    """A step of a GPT of 48 layers with AdamW."""
    sys.path.append(str(ROOT / "test" / "Integration"))
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import jax_steps
    import optax
    from jax.sharding import PartitionSpec as P

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, mask):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(y, mask=mask)
            y = nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x))
            return x + nn.Dense(x.shape[-1])(nn.gelu(y))

    class GPT(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            positions = jnp.arange(tokens.shape[1])
            x = nn.Embed(256, 32)(tokens) + nn.Embed(64, 32)(positions)
            for _ in range(LAYERS):
                x = Block()(x, nn.make_causal_mask(tokens))
            return nn.Dense(256, use_bias=False)(nn.LayerNorm()(x))

    model, optimizer = GPT(), optax.adamw(1e-3)

    def step(params, state, tokens):
        def loss(params):
            logits = model.apply(params, tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(
                logits, tokens[:, 1:]
            ).mean()

        value, grads = jax.value_and_grad(loss)(params)
        grads, value = jax.lax.pmean((grads, value), "dp")
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    tokens = jax.ShapeDtypeStruct((4, 17), jnp.int32)
    params = jax.eval_shape(model.init, jax.random.key(0), tokens)
    state = jax.eval_shape(optimizer.init, params)
    mapped = jax.shard_map(
        step,
        mesh=jax_steps.mesh(2),
        in_specs=(P(), P(), P("dp")),
        out_specs=P(),
        check_vma=False,
    )
    text = jax_steps.export(jax.jit(mapped), (params, state, tokens))
    return text, len(jax.tree.leaves(params))


def text_of(count):
    """Each parameter of 4 x 4 moves by the mean of its product with a part of the
    batch, times a rate; JAX's locations and names."""
    tensor, part, whole = "tensor<4x4xf32>", "tensor<2x4xf32>", "tensor<4x4xf32>"
    types = ", ".join([tensor] * count)
    specs = ", ".join(["<@mesh, [{}, {}]>"] * count)
    infos = ", ".join(f"{{jax.result_info = \"result['w{i}']\"}}" for i in range(count))
    outer = ", ".join(f"%a{i}: {tensor} loc(\"params['w{i}']\")" for i in range(count))
    inner = ", ".join(f'%p{i}: {tensor} loc("shard_map:"(#loc1))' for i in range(count))
    names = ", ".join(f"%a{i}" for i in range(count))
    yield f"""#loc = loc(unknown)
#loc1 = loc("shard_map")
#loc2 = loc("psum")
#loc3 = loc("sub"("step.py":12:3 to :40))
"builtin.module"() <{{sym_name = "jit_step"}}> ({{
  "sdy.mesh"() <{{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}}> : () -> () loc(#loc)
  "func.func"() <{{function_type = ({types}, {whole}) -> ({types}), res_attrs = [{infos}], sym_name = "main", sym_visibility = "public"}}> ({{
  ^bb0({outer}, %x: {whole} loc("x")):
    %r:{count} = "sdy.manual_computation"({names}, %x) <{{in_shardings = #sdy.sharding_per_value<[{specs}, <@mesh, [{{"dp"}}, {{}}]>]>, manual_axes = #sdy<manual_axes{{"dp"}}>, out_shardings = #sdy.sharding_per_value<[{specs}]>}}> ({{
    ^bb0({inner}, %part: {part} loc("shard_map:"(#loc1))):
"""
    for i in range(count):
        yield f"""      %y{i} = "stablehlo.dot_general"(%part, %p{i}) <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}}> : ({part}, {tensor}) -> {part} loc(#loc2)
      %g{i} = "stablehlo.dot_general"(%part, %y{i}) <{{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}}> : ({part}, {part}) -> {tensor} loc(#loc2)
      %s{i} = "stablehlo.all_reduce"(%g{i}) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}}> ({{
      ^bb0(%l{i}: tensor<f32> loc("psum:"(#loc2)), %m{i}: tensor<f32> loc("psum:"(#loc2))):
        %n{i} = "stablehlo.add"(%l{i}, %m{i}) : (tensor<f32>, tensor<f32>) -> tensor<f32> loc(#loc2)
        "stablehlo.return"(%n{i}) : (tensor<f32>) -> () loc(#loc2)
      }}) : ({tensor}) -> {tensor} loc(#loc2)
      %c{i} = "stablehlo.constant"() <{{value = dense<2.000000e+00> : tensor<f32>}}> : () -> tensor<f32> loc(#loc2)
      %b{i} = "stablehlo.broadcast_in_dim"(%c{i}) <{{broadcast_dimensions = array<i64>}}> : (tensor<f32>) -> {tensor} loc(#loc2)
      %d{i} = "stablehlo.divide"(%s{i}, %b{i}) : ({tensor}, {tensor}) -> {tensor} loc(#loc2)
      %e{i} = "stablehlo.constant"() <{{value = dense<1.000000e-01> : {tensor}}}> : () -> {tensor} loc(#loc3)
      %f{i} = "stablehlo.multiply"(%d{i}, %e{i}) : ({tensor}, {tensor}) -> {tensor} loc(#loc3)
      %o{i} = "stablehlo.subtract"(%p{i}, %f{i}) : ({tensor}, {tensor}) -> {tensor} loc(#loc3)
"""
    outs = ", ".join(f"%o{i}" for i in range(count))
    results = ", ".join(f"%r#{i}" for i in range(count))
    yield f"""      "sdy.return"({outs}) : ({types}) -> () loc(#loc1)
    }}) : ({types}, {whole}) -> ({types}) loc(#loc1)
    "func.return"({results}) : ({types}) -> () loc(#loc)
  }}) : () -> () loc(#loc)
}}) : () -> () loc(#loc)
"""


def measure(what, text, count):
    seconds = []
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(text)
        file.flush()
        for flags in (["--ddp-import-stablehlo"], []):
            times = []
            for _ in range(RUNS):
                before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                command = [OPT, file.name, *flags, "--mlir-print-op-generic"]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                times.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
                if flags:
                    exact = done.stdout.count("ddp.hook = #ddp.allreduce")
                    assert done.stdout.count('"ddp.all_reduce"') - exact == count
            seconds.append(statistics.median(times))
    whole, nothing = seconds
    megabytes = len(text) / 1e6
    print(f"| {what} | {megabytes:.1f} | {whole:.2f} | {nothing:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gradients", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--no-gpt", action="store_true", help="without JAX")
    arguments = parser.parse_args()
    print("| step | MB of text | import, s | reading and writing alone, s |")
    print("|---|---|---|---|")
    if not arguments.no_gpt:
        text, count = text_of_gpt()
        measure(f"GPT of {LAYERS} layers, {count} gradients", text, count)
    for count in arguments.gradients:
        measure(f"{count:,} gradients", "".join(text_of(count)), count)


if __name__ == "__main__":
    main()
