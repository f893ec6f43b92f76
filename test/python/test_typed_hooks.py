# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks as classes mean what their names and options mean, and mypy checks them."""

import copy
import dataclasses
import inspect
import pathlib
import pickle
import re
import subprocess
import sys

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

import ddphook
import ddphook.torch
from ddphook.torch._hooks import HOOKS, resolve

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLASSES = ddphook.TypedHook.__subclasses__()
IDS = [hook.name for hook in CLASSES]


@pytest.mark.parametrize("hook", CLASSES, ids=IDS)
def test_a_class_means_what_its_name_means(hook):
    assert resolve(hook()) == resolve(hook) == resolve(hook.name)
    assert resolve(ddphook.Wrap("bf16", hook())) == resolve(hook.name, "bf16")
    assert getattr(ddphook, hook.__name__) is hook and hook().options() == {}


@pytest.mark.parametrize("hook", CLASSES, ids=IDS)
def test_each_option_has_a_field(hook):
    """The fields are the options, and giving the default changes nothing: the compiler
    has the same defaults."""
    fields = dataclasses.fields(hook)
    assert len(fields) == len(HOOKS[hook.name])
    described = re.findall(r"^(\w+)\n    \S", inspect.getdoc(hook), re.MULTILINE)
    assert described == [field.name for field in fields]
    given = {name: f.default for name, f in zip(HOOKS[hook.name], fields)}
    given = {name: value for name, value in given.items() if value is not None}
    assert _expanded(hook.name, given) == _expanded(hook.name, {})


def _expanded(hook, options):
    """Returns a bucket's code, and its plan with the hook's attribute."""
    from ddphook import compiler
    from ddphook.torch import _bucket

    text = _bucket.example_text(False, None)
    pipeline = _bucket.pipeline(resolve(hook, None, options).pipeline())
    return compiler.transform_module(text, f"ddp-pipeline{{{pipeline}}}")


def test_options():
    powersgd = ddphook.PowerSGD(rank=2, start_powerSGD_iter=3, numerics="improved")
    options = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 3}
    assert powersgd.options() == {**options, "numerics": "improved"}
    exact = dataclasses.replace(powersgd, numerics="eager", independent_columns=False)
    expected = resolve("powersgd", None, {**options, "independent_columns": False})
    assert resolve(exact, None, {"exempt": "b", "exempt_hook": ddphook.FP16()}) == (
        dataclasses.replace(expected, exempt="b", exempt_hook="fp16")
    )
    assert resolve(ddphook.FP16(accumulate=torch.float32)).pipeline() == (
        "hook=fp16 accumulate=f32"
    )
    assert resolve(None, None, {"ddp_comm_hook": ddphook.TopK(density=0.1)}) == (
        resolve("topk", None, {"density": 0.1})
    )


def test_values():
    hook = ddphook.PowerSGD(rank=2, warm_start=False)
    assert repr(hook) == "PowerSGD(rank=2, warm_start=False)"
    assert repr(ddphook.Wrap("fp16", hook)).endswith(f"inner={hook!r})")
    for same in pickle.loads(pickle.dumps(hook)), copy.deepcopy(hook), eval(repr(hook), vars(ddphook)):
        assert same == hook and hash(same) == hash(hook)
    with pytest.raises(dataclasses.FrozenInstanceError):
        hook.rank = 3
    with pytest.raises(TypeError, match="rnk"):
        ddphook.PowerSGD(rnk=3)


@pytest.mark.parametrize(
    "hook, wrapper, options, text",
    [
        (ddphook.PowerSGD(rank=2), None, {"matrix_approximation_rank": 4}, "PowerSGD(rank=2)"),
        (ddphook.PowerSGD(), None, {"warm_start": True}, "'warm_start' is also given by"),
        (ddphook.PowerSGD(rank=2), None, {"rank": 2}, "'rank' is also given by"),
        (ddphook.Int8(), None, {"warm_start": True}, "has no option 'warm_start'"),
        (ddphook.Wrap("fp16", ddphook.Int8()), "fp16", {}, "no wrapper beside"),
        (ddphook.Wrap("fp8", ddphook.Int8()), None, {}, "hook 'int8': expected wrapper=fp8 only with"),
        (ddphook.Int8(block_size=33), None, {}, "hook 'int8': "),
        (ddphook.Int8(block_size="64"), None, {}, "expected int for 'block_size'"),
        (ddphook.PowerSGD(), None, {"state": PowerSGDState(None, 1)}, "no state beside"),
        (ddphook.PowerSGD(), None, {"ddp_comm_hook": "fp16"}, "expected one hook"),
    ],
)
def test_contradictions(hook, wrapper, options, text):
    with pytest.raises(ddphook.InvalidArgumentError, match=re.escape(text)):
        resolve(hook, wrapper, options)


def test_compiled_and_exported_steps(tmp_path):
    hook = ddphook.Wrap("fp16", ddphook.PowerSGD(rank=3))
    ddphook.torch.compile(lambda x: x, hook=hook)
    with pytest.raises(ddphook.InvalidArgumentError, match="also given by"):
        ddphook.torch.compile(lambda x: x, hook=hook, warm_start=False)
    with pytest.raises(ddphook.InvalidArgumentError, match="also given by"):
        ddphook.torch.export(lambda x: x, file=tmp_path / "m", hook=hook, warm_start=False)


def test_jax():
    jax = pytest.importorskip("jax")
    import ddphook.jax

    mesh = jax.make_mesh((1,), ("x",))
    specs = {"mesh": mesh, "in_specs": None, "out_specs": None}

    def pipeline(*arguments, **options):
        return ddphook.jax.compress(lambda x: x, *arguments, **specs, **options)._pipeline

    typed = pipeline(ddphook.Wrap("bf16", ddphook.PowerSGD(rank=2)))
    assert typed == pipeline("powersgd", wrapper="bf16", matrix_approximation_rank=2)
    assert "matrix_view=first" in pipeline(ddphook.PowerSGD(matrix_view="first"))
    with pytest.raises(ddphook.InvalidArgumentError, match="'rank' is also given by"):
        pipeline(ddphook.PowerSGD(rank=2), rank=3)


PROGRAM = '''
import torch
import ddphook
import ddphook.accelerate
import ddphook.jax
import ddphook.torch
from jax.sharding import Mesh
from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

def right(model: DistributedDataParallel, hook: ddphook.HookName) -> float:
    ddphook.torch.register(model, "powersgd", matrix_approximation_rank=2)
    ddphook.torch.register(model, hook, "bf16")
    ddphook.torch.register(model, fp16_compress_hook)
    ddphook.torch.register(model, DDPCommHookType.FP16_COMPRESS)
    ddphook.torch.compile(model, hook=ddphook.Int8(block_size=64, rounding="stochastic"))
    ddphook.accelerate.register(None, model, ddphook.FP16(accumulate=torch.float32))
    with ddphook.torch.register(model, ddphook.Wrap("fp16", ddphook.PowerSGD(rank=2))) as handle:
        return handle.statistics()["compression_ratio"]

def wrong(model: DistributedDataParallel, mesh: Mesh) -> None:
    ddphook.torch.register(model, "powerSGD2")  # wrong: arg-type
    ddphook.torch.register(model, "fp16", "fp9")  # wrong: arg-type
    ddphook.torch.compile(model, hook="int9")  # wrong: arg-type
    ddphook.jax.compress(right, "top_k", mesh=mesh, in_specs=0, out_specs=0)  # wrong: arg-type
    ddphook.accelerate.register(None, model, 17)  # wrong: arg-type
    ddphook.Int8(block_size="64")  # wrong: arg-type
    ddphook.Int8(blocksize=64)  # wrong: call-arg
    ddphook.PowerSGD(2)  # wrong: call-arg
    ddphook.PowerSGD(matrix_view="last")  # wrong: arg-type
    ddphook.PowerSGD().rank = 3  # wrong: misc
    ddphook.Wrap("fp16", "powersgd")  # wrong: arg-type
    ddphook.torch.register(model, "fp16").statistics()["step"]  # wrong: typeddict-item
'''


@pytest.mark.full("half a minute; the lint suite runs mypy on the package")
def test_mypy(tmp_path):
    """mypy accepts right uses, and finds each wrong one at its line."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    flags = ["--cache-dir", str(tmp_path / "cache"), "--config-file", "pyproject.toml"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, "--no-error-summary", str(file)],
        cwd=ROOT / "tools" / "python",
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"program\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    lines = enumerate(PROGRAM.splitlines(), 1)
    expected = [(str(n), line.partition("# wrong: ")[2]) for n, line in lines if "# wrong" in line]
    assert [(n, kind) for n, kind in found] == expected, done.stdout + done.stderr
