# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules, hooks and options that cannot be compiled: one error, no output."""

import pytest

import harness


def module(
    type="tensor<4xf32>", hook="", group="ddp.process_group @dp", on="@dp", extra=""
):
    return f"""module {{
  {group}
  func.func @step(%g0: {type}) -> {type} {{
    {extra}
    %r0 = ddp.all_reduce mean %g0 on {on} {hook} : {type}
    return %r0 : {type}
  }}
}}
"""


MIXED = """module {
  ddp.process_group @dp
  func.func @step(%a: tensor<4xf32>, %b: tensor<4xf16>)
      -> (tensor<4xf32>, tensor<4xf16>) {
    %p = ddp.pack %a, %b : tensor<4xf32>, tensor<4xf16>
        -> !ddp.bucket<f32, [4, 4]>
    %q = ddp.all_reduce mean %p on @dp : !ddp.bucket<f32, [4, 4]>
    %r:2 = ddp.unpack %q : !ddp.bucket<f32, [4, 4]>
        -> tensor<4xf32>, tensor<4xf16>
    return %r#0, %r#1 : tensor<4xf32>, tensor<4xf16>
  }
}
"""
NOT_REDUCED = """module {
  ddp.process_group @dp
  func.func @step(%a: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
    return %a : tensor<4xf32>
  }
}
"""
REDUCED_TWICE = """module {
  ddp.process_group @dp
  func.func @step(%a: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
    %b = ddp.all_reduce mean %a on @dp : tensor<4xf32>
    %c = ddp.all_reduce mean %b on @dp : tensor<4xf32>
    return %c : tensor<4xf32>
  }
}
"""
NO_GRADIENT = """%n = linalg.negf {ddp.hook = #ddp.fp16}
        ins(%g0 : tensor<4xf32>) outs(%g0 : tensor<4xf32>) -> tensor<4xf32>"""

MODULES = {
    "dynamic shape": (module("tensor<?xf32>"), ["?"]),
    "dynamic shape behind a static one": (module("tensor<4x?xf32>"), ["?"]),
    "unranked": (module("tensor<*xf32>"), ["*"]),
    "integer gradient": (module("tensor<4xi32>"), ["i32"]),
    "index gradient": (module("tensor<4xindex>"), ["index"]),
    "complex gradient": (module("tensor<4xcomplex<f32>>"), ["complex"]),
    "f8 gradient": (module("tensor<4xf8E4M3FN>"), ["f8E4M3FN"]),
    "unknown hook": (module(hook="{ddp.hook = #ddp.fp9}"), ["fp9"]),
    "hook is no hook": (module(hook="{ddp.hook = 7 : i32}"), ["ddp.hook", "7"]),
    "wrapper to f32": (module(hook="{ddp.hook = #ddp.wrap<f32, #ddp.noop>}"), ["f32"]),
    "wrapper around no hook": (module(hook="{ddp.hook = #ddp.wrap<f16, 7>}"), ["7"]),
    "hook on no gradient": (module(extra=NO_GRADIENT), ["ddp.hook"]),
    "misspelt attribute": (module(hook="{ddp.hok = #ddp.fp16}"), ["ddp.hok"]),
    "group not declared": (module(on="@other"), ["other"]),
    "group declared twice": (
        module(group="ddp.process_group @dp\n  ddp.process_group @dp"),
        ["dp"],
    ),
    "group of no ranks": (module(group="ddp.process_group @dp size 0"), ["0"]),
    "ranks in two groups": (
        module(group="ddp.process_group @dp ranks [[0, 1], [1, 2]]"),
        ["ranks"],
    ),
    "mixed types in a bucket": (MIXED, ["f16"]),
    "gradient not reduced": (NOT_REDUCED, ["reduced"]),
    "gradient reduced twice": (REDUCED_TWICE, ["reduced"]),
    "syntax error": ("module {", []),
    "empty file": ("", ["entry point"]),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(tmp_path, name):
    text, words = MODULES[name]
    harness.expect_failure(harness.make(tmp_path, text), *words)


OPTIONS = {
    "hook=fp9": ["fp9"],
    "hook=": [],
    "hok=fp16": ["hok"],
    "wrapper=fp32": ["fp32"],
    "bucket-cap-mb=many": ["many"],
    "bucket-cap-mb=-1": ["not negative"],
    "bucket-cap-mb=-0.5": ["not negative"],
    "bucket-cap-mb=nan": ["nan"],
    "first-bucket-mb=-1": ["not negative"],
    "order=sideways": ["sideways"],
    "fuse=perhaps": ["perhaps"],
    "hook=fp16 nonsense": ["nonsense"],
}


@pytest.mark.parametrize("pipeline", OPTIONS)
def test_pipeline_option(tmp_path, pipeline):
    directory = harness.make(tmp_path)
    harness.expect_failure(directory, *OPTIONS[pipeline], pipeline=pipeline)


def test_entry_that_does_not_exist(tmp_path):
    harness.expect_failure(harness.make(tmp_path), "stride", entry="stride")


def test_module_that_does_not_exist(tmp_path):
    directory = harness.make(tmp_path)
    directory.module.unlink()
    harness.expect_failure(directory, "module.mlir")


def test_compile_error_is_told_once_for_all_ranks(tmp_path):
    directory = harness.make(tmp_path, module("tensor<?xf32>"), world=3)
    harness.expect_failure(directory, "?", ranks=3)


@pytest.mark.parametrize("flag", ["--speed=fast", "surplus.mlir", "--ddp-pipeline"])
def test_flag_that_does_not_exist(tmp_path, flag):
    harness.expect_failure(harness.make(tmp_path), arguments=[flag])


@pytest.mark.parametrize("size, ranks", [(4, 2), (2, 3), (2, 1)])
def test_world_size_unlike_the_job(tmp_path, size, ranks):
    group = f"ddp.process_group @dp size {size}"
    text = harness.GOOD.replace("ddp.process_group @dp", group)
    directory = harness.make(tmp_path, text, ranks)
    harness.expect_failure(
        directory, str(size), str(ranks), ranks=ranks, lines=range(1, ranks + 1)
    )


def test_rank_lists_unlike_the_job(tmp_path):
    group = "ddp.process_group @dp ranks [[0, 1], [2, 3]]"
    text = harness.GOOD.replace("ddp.process_group @dp", group)
    directory = harness.make(tmp_path, text, 3)
    harness.expect_failure(directory, "dp", ranks=3, lines=range(1, 4))
