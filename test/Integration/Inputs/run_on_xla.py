#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs what ddp-export-stablehlo wrote, on as many CPU devices as there are ranks.

    run_on_xla.py EXECUTOR RANKS STEPS FOLDER

EXECUTOR is xla, or interpreter, StableHLO's own inside jaxlib. FOLDER has

- module.mlir with @main, and manifest.json;
- in.RANK.STEP.safetensors with arg0, arg1, …;
- before.RANK.safetensors with the states by name, if there are any.

It gets out.RANK.STEP.safetensors, with result0, result1, … and the states' new values.
"""

import json
import os
import pathlib
import sys

EXECUTOR, RANKS, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
FOLDER = pathlib.Path(sys.argv[4])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={RANKS}"
os.environ["JAX_PLATFORMS"] = "cpu"

import dataclasses

import jax
import numpy as np
from jax import export
from jax.interpreters import mlir
from jax.sharding import Mesh, PartitionSpec
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from safetensors.numpy import load_file, save_file

TEXT = (FOLDER / "module.mlir").read_text(encoding="utf-8")
MANIFEST = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))


def signature():
    """The types of @main: shapes and dtypes of its arguments and results."""
    with mlir.make_ir_context():
        module = ir.Module.parse(TEXT)
        [main] = [op for op in module.body if op.attributes["sym_name"].value == "main"]
        kinds = main.attributes["function_type"].value

        def read(types):
            shaped = [ir.RankedTensorType(kind) for kind in types]
            return [jax.ShapeDtypeStruct(s.shape, dtype(s.element_type)) for s in shaped]

        return read(kinds.inputs), read(kinds.results)


def dtype(kind):
    text = str(kind)
    if text == "bf16":
        return jax.numpy.bfloat16
    return np.dtype({"f": "float", "i": "int"}[text[0]] + text[1:])


def on_xla(inputs, results):
    """A function of each rank's arguments, stacked, to its results, stacked."""

    def placeholder(*_):
        return [jax.numpy.zeros(r.shape, r.dtype) for r in results]

    exported = export.export(jax.jit(placeholder, keep_unused=True))(*inputs)
    version = stablehlo.get_current_version()
    exported = dataclasses.replace(
        exported,
        mlir_module_serialized=stablehlo.serialize_portable_artifact_str(TEXT, version),
    )

    def rank(*stacked):
        return [result[None] for result in exported.call(*(array[0] for array in stacked))]

    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    split = PartitionSpec("ranks")
    return jax.jit(
        jax.shard_map(rank, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
    )


def on_interpreter(inputs, results):
    """The same; ranks are threads there."""

    def tensors(shapes):
        names = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32"}
        for shape in shapes:
            sizes = "".join(f"{size}x" for size in shape.shape)
            yield f"tensor<{sizes}{names[np.dtype(shape.dtype).name]}>"

    takes, gives = list(tensors(inputs)) * RANKS, list(tensors(results)) * RANKS
    count = len(inputs)
    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(takes))
    operands = ", ".join(f"%a{i}" for i in range(len(takes)))
    values = ", ".join(f"%r#{i}" for i in range(len(gives)))
    run = f"""func.func @main({arguments}) -> ({", ".join(gives)}) {{
      %r:{len(gives)} = "interpreter.run_parallel"({operands})
          {{programs = [[{", ".join(["@rank"] * RANKS)}]]}}
          : ({", ".join(takes)}) -> ({", ".join(gives)})
      return {values} : {", ".join(gives)}
    }}"""

    def call(*stacked):
        with mlir.make_ir_context() as context:
            stablehlo.register_interpreter_dialect(context)
            text = TEXT.replace("@main(", "@rank(")
            start = text.index("{", text.index("module")) + 1
            module = ir.Module.parse(text[:start] + run + text[start:])
            given = [
                ir.DenseElementsAttr.get(np.array(array[rank], order="C"))
                for rank in range(RANKS)
                for array in stacked
            ]
            done = [np.array(attribute) for attribute in stablehlo.eval_module(module, given)]
        assert len(given) == count * RANKS
        return [
            np.stack([done[rank * len(results) + i].reshape(r.shape) for rank in range(RANKS)])
            for i, r in enumerate(results)
        ]

    return call


def main():
    inputs, results = signature()
    states = [f["states"] for f in MANIFEST["functions"] if f["name"] == "main"]
    states = states[0] if states else []
    step = {"xla": on_xla, "interpreter": on_interpreter}[EXECUTOR](inputs, results)

    kept = []
    if states:
        before = [load_file(FOLDER / f"before.{r}.safetensors") for r in range(RANKS)]
        for state in states:
            kind = inputs[state["argument"]]
            arrays = [rank[state["name"]].reshape(kind.shape) for rank in before]
            kept.append(np.stack(arrays).astype(kind.dtype))
    own = len(inputs) - len(states)
    assert [s["argument"] for s in states] == list(range(own, len(inputs)))
    for number in range(STEPS):
        files = [load_file(FOLDER / f"in.{r}.{number}.safetensors") for r in range(RANKS)]
        given = [np.stack([file[f"arg{i}"] for file in files]) for i in range(own)]
        done = [np.asarray(array) for array in step(*given, *kept)]
        kept = [done[state["result"]] for state in states]
        names = [f"result{i}" for i in range(len(results) - len(states))]
        names += [state["name"] for state in states]
        for rank in range(RANKS):
            save_file(
                {name: np.array(array[rank], order="C") for name, array in zip(names, done)},
                FOLDER / f"out.{rank}.{number}.safetensors",
            )


main()
