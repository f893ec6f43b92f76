# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every way to name a hook, and values that are not hooks. No process group, no model."""

import dataclasses
import enum
import inspect
import math
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as default
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

import ddphook
from ddphook import compiler
from ddphook.torch import _bucket, _states
from ddphook.torch._bucket import Layout
from ddphook.torch._hooks import HOOKS, resolve, resolve_for_graph

ROOT = pathlib.Path(__file__).resolve().parents[2]


class CommHook(str, enum.Enum):
    """A copy of accelerate.utils.DDPCommunicationHookType."""

    NO = "no"
    FP16 = "fp16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"


@dataclasses.dataclass
class DistributedDataParallelKwargs:
    """The fields of Accelerate's class that concern hooks."""

    comm_hook: CommHook = CommHook.NO
    comm_wrapper: CommHook = CommHook.NO
    comm_state_option: dict = dataclasses.field(default_factory=dict)

    def to_kwargs(self):
        return {}


class OwnState(powersgd.PowerSGDState):
    """A subclass, as programs define them."""


def int8(state, bucket):
    """A program's own hook, with the name of one of ours."""


@pytest.mark.parametrize(
    "hook, options, expected",
    [
        ("fp16", {}, "hook=fp16"),
        ("fp16_compress_hook", {}, "hook=fp16"),
        ("powerSGD_hook", {}, "hook=powersgd"),
        ("no", {}, "hook=allreduce"),
        (default.allreduce_hook, {}, "hook=allreduce"),
        (default.bf16_compress_hook, {}, "hook=bf16"),
        (debugging_hooks.noop_hook, {}, "hook=noop"),
        (
            default.fp16_compress_wrapper(powersgd.powerSGD_hook),
            {"matrix_approximation_rank": 4},
            "hook=powersgd matrix_approximation_rank=4 wrapper=fp16",
        ),
        (
            powersgd.batched_powerSGD_hook,
            {"wrapper": default.bf16_compress_wrapper},
            "hook=batched_powersgd wrapper=bf16",
        ),
        (DDPCommHookType.ALLREDUCE, {}, "hook=allreduce"),
        (dist.BuiltinCommHookType.ALLREDUCE, {}, "hook=allreduce"),
        (dist.BuiltinCommHookType.FP16_COMPRESS, {}, "hook=fp16"),
        (DDPCommHookType.NOOP, {}, "hook=noop"),
        (
            DDPCommHookType.POWER_SGD_RANK2,
            {"warm_start": False},
            "hook=powersgd matrix_approximation_rank=2 warm_start=false",
        ),
        (
            DDPCommHookType.BATCHED_POWER_SGD,
            {},
            "hook=batched_powersgd matrix_approximation_rank=1",
        ),
        (
            DistributedDataParallelKwargs(
                CommHook.POWER_SGD, CommHook.FP16, {"matrix_approximation_rank": 3}
            ),
            {},
            "hook=powersgd matrix_approximation_rank=3 wrapper=fp16",
        ),
        (DistributedDataParallelKwargs(), {}, "hook=allreduce"),
        # Accelerate drops a wrapper without a hook.
        (DistributedDataParallelKwargs(CommHook.NO, CommHook.FP16), {}, "hook=allreduce"),
        (
            "powersgd",
            {
                "matrix_approximation_rank": np.int64(4),
                "min_compression_rate": np.float32(1.5),
                "use_error_feedback": np.bool_(False),
            },
            "hook=powersgd matrix_approximation_rank=4 min_compression_rate=1.5 "
            "use_error_feedback=false",
        ),
        (
            "allreduce_and_upcast",
            {"reduce_dtype": torch.bfloat16},
            "hook=allreduce_and_upcast reduce_dtype=bf16",
        ),
        ("fp8", {"format": torch.float8_e5m2}, "hook=fp8 format=f8E5M2"),
        (
            "int8",
            {"exempt": "bias|norm"},
            "hook=int8 exempt='bias|norm' exempt-hook=allreduce",
        ),
        (
            "powersgd",
            {"exempt": "it's", "exempt_hook": default.bf16_compress_hook},
            "hook=powersgd exempt=\"it's\" exempt-hook=bf16",
        ),
        (
            None,
            {
                "ddp_comm_hook": default.fp16_compress_hook,
                "ddp_comm_wrapper": None,
                "ddp_comm_state": None,
            },
            "hook=fp16",
        ),
    ],
)
def test_names(hook, options, expected):
    wrapper = options.pop("wrapper", None)
    assert resolve(hook, wrapper, options).pipeline() == expected


STATE = powersgd.PowerSGDState(
    None, matrix_approximation_rank=2, start_powerSGD_iter=7, random_seed=3
)
STATE_TEXT = (
    "hook=powersgd batch_tensors_with_same_shape=false "
    "compression_stats_logging_frequency=10000 matrix_approximation_rank=2 "
    "min_compression_rate=2 orthogonalization_epsilon=0 random_seed=3 "
    "start_powerSGD_iter=7 use_error_feedback=true warm_start=true"
)


def test_state_objects():
    # A state does not say which seed its generator started with.
    expected = STATE_TEXT.replace(" random_seed=3", "")
    assert resolve(STATE).pipeline() == expected
    by_lightning = {
        "ddp_comm_hook": powersgd.powerSGD_hook,
        "ddp_comm_state": STATE,
        "ddp_comm_wrapper": default.fp16_compress_wrapper,
    }
    assert resolve(None, None, by_lightning).pipeline() == expected + " wrapper=fp16"
    batched = resolve("batched_powersgd", None, {"state": STATE})
    assert batched.pipeline() == expected.replace("powersgd", "batched_powersgd", 1)
    own = OwnState(None, matrix_approximation_rank=2, start_powerSGD_iter=7)
    assert resolve(own).pipeline() == expected
    assert resolve(powersgd.powerSGD_hook, None, {"state": own}).pipeline() == expected
    near = local.PostLocalSGDState(None, None, 5, False)
    assert resolve(near).pipeline() == (
        "hook=post_local_sgd post_local_gradient_allreduce=false start_localSGD_iter=5"
    )


@pytest.mark.parametrize(
    "hook, options, error, text",
    [
        ("fp61", {}, "InvalidArgumentError", "did you mean 'fp16'?"),
        (17, {}, "InvalidArgumentError", "but got 17"),
        (None, {}, "InvalidArgumentError", "but got None"),
        ("fp16", {"warm_start": True}, "InvalidArgumentError", "has no option"),
        (
            "powersgd",
            {"matrix_aproximation_rank": 2},
            "InvalidArgumentError",
            "did you mean 'matrix_approximation_rank'?",
        ),
        ("powersgd", {"warm_start": 1}, "InvalidArgumentError", "expected bool"),
        ("powersgd", {"random_seed": True}, "InvalidArgumentError", "expected int"),
        ("powersgd", {"random_seed": 1.5}, "InvalidArgumentError", "expected int"),
        ("powersgd", {"numerics": "eager x=1"}, "InvalidArgumentError", "a word"),
        ("int8", {"block_size": 32.5}, "InvalidArgumentError", "expected int"),
        ("fp16", {"accumulate": "f32"}, "InvalidArgumentError", "expected dtype"),
        ("fp16", {"accumulate": torch.int8}, "InvalidArgumentError", "got torch.int8"),
        (lambda s, b: None, {}, "UnsupportedError", "cannot be compiled"),
        (
            "post_local_sgd",
            {"model_averaging_period": 4},
            "UnsupportedError",
            "PeriodicModelAverager",
        ),
        ({}, {}, "InvalidArgumentError", "but got {}"),
        ([], {}, "InvalidArgumentError", "but got []"),
        (set(), {}, "InvalidArgumentError", "but got set()"),
        ("fp16", {"wrapper": {}}, "InvalidArgumentError", "but got {}"),
        ("powersgd", {"random_seed": np.float64(1.5)}, "InvalidArgumentError", "int"),
        ("fp16", {"state": STATE}, "InvalidArgumentError", "but got PowerSGDState"),
        ("powersgd", {"state": 7}, "InvalidArgumentError", "expected a PowerSGDState"),
        (STATE, {"state": STATE}, "InvalidArgumentError", "expected one state"),
        ("fp16", {"ddp_comm_hook": "bf16"}, "InvalidArgumentError", "expected one hook"),
        (
            "fp16",
            {"wrapper": "bf16", "ddp_comm_wrapper": "bf16"},
            "InvalidArgumentError",
            "expected one wrapper",
        ),
        (
            DistributedDataParallelKwargs(
                CommHook.POWER_SGD, CommHook.NO, {"random_seed": 3}
            ),
            {"random_seed": 4},
            "InvalidArgumentError",
            "also given by comm_state_option",
        ),
        (
            "fp16",
            {"state": dist.GroupMember.NON_GROUP_MEMBER},
            "InvalidArgumentError",
            "a process group with this rank",
        ),
        (STATE, {"warm_start": True}, "InvalidArgumentError", "by the state"),
        ("fp16", {"wrapper": "fp8"}, "InvalidArgumentError", "wrapper=fp8 only with"),
        ("fp16", {"wrapper": "fp9"}, "InvalidArgumentError", "'fp9'"),
        ("fp16", {"wrapper": np.int8}, "InvalidArgumentError", "the wrapper fp16"),
        (int8, {}, "UnsupportedError", "int8"),
        ("int8", {"exempt": "("}, "InvalidArgumentError", "a regular expression"),
        ("int8", {"exempt": 7}, "InvalidArgumentError", "a regular expression"),
        ("int8", {"exempt": ""}, "InvalidArgumentError", "to be non-empty"),
        ("int8", {"exempt": "'\""}, "InvalidArgumentError", "one kind of quotation mark"),
        ("int8", {"exempt_hook": "bf16"}, "InvalidArgumentError", "'exempt' together"),
        ("int8", {"topology": "tree"}, "InvalidArgumentError", "'flat' or 'hierarchical'"),
        (
            "int8",
            {"exempt": "bias", "exempt_hook": "bf17"},
            "InvalidArgumentError",
            "did you mean 'bf16'?",
        ),
        (
            "int8",
            {"exempt": "bias", "exempt_hook": DDPCommHookType.POWER_SGD_RANK2},
            "UnsupportedError",
            "without options",
        ),
    ],
)
def test_what_is_no_hook(hook, options, error, text):
    given = dict(options)
    wrapper = given.pop("wrapper", None)
    with pytest.raises(getattr(ddphook, error), match=re.escape(text)):
        resolve(hook, wrapper, given)


# Every option with a range, just outside of it, with the compiler's message.
OUT_OF_RANGE = [
    ("topk", {"density": 1.0000001}, "at most 1, but got 1.0000001"),
    ("topk", {"density": 0}, "above 0 and at most 1, but got 0"),
    ("topk", {"density": -0.5}, "but got -0.5"),
    ("topk", {"density": math.nan}, "but got nan"),
    ("topk", {"topology": "hierarchical"}, "expected a flat group"),
    ("fp16", {"accumulate": torch.float16}, "expected accumulate to be f32"),
    ("bf16", {"accumulate": torch.float64}, "expected accumulate to be f32"),
    ("allreduce_and_upcast", {"reduce_dtype": torch.float8_e5m2}, "f16, bf16, f32 or"),
    ("powersgd", {"fp32_error": True}, "only with a wrapper"),
    ("powersgd", {"numerics": "fast"}, "numerics=eager or improved, but got 'fast'"),
    ("powersgd", {"local_error_feedback": True, "use_error_feedback": False}, "only"),
    ("batched_powersgd", {"matrix_approximation_rank": 1 << 15}, "at most 16385"),
    ("fp8", {"format": torch.float32}, "f8E4M3FN or f8E5M2"),
    ("quantization_perchannel", {"bucket_size": 0}, "from 1 to"),
    *(
        (hook, {option: value}, option)
        for hook in ("powersgd", "batched_powersgd")
        for option, value in (
            ("matrix_approximation_rank", 0),
            ("start_powerSGD_iter", 1),
            ("min_compression_rate", 0.0),
            ("min_compression_rate", math.inf),
            ("orthogonalization_epsilon", -1e-8),
            ("random_seed", -1),
            ("random_seed", 1 << 32),
        )
    ),
    *(
        (hook, {option: value}, text)
        for hook in ("int8", "int4", "fp8")
        for option, value, text in (
            ("block_size", 33, "a multiple of 32"),
            ("block_size", 1 << 13, "up to 4096"),
            ("rounding", "down", "nearest or stochastic, but got 'down'"),
            ("random_seed", -1, "random_seed from 0"),
        )
    ),
]


@pytest.mark.parametrize(("hook", "options", "text"), OUT_OF_RANGE)
def test_values_out_of_range(hook, options, text):
    with pytest.raises(ddphook.InvalidArgumentError, match=re.escape(text)) as info:
        resolve(hook, None, options)
    assert str(info.value).startswith(f"hook '{hook}': ")
    with pytest.raises(ddphook.InvalidArgumentError, match=re.escape(text)):
        ddphook.torch.compile(lambda x: x, hook=hook, **options)


@pytest.mark.parametrize("hook", HOOKS)
def test_what_is_in_range(hook):
    """Defaults are valid with every wrapper and topology, and so is an exempt hook."""
    for wrapper in (None, "fp16", "bf16"):
        resolve(hook, wrapper)
    resolve(hook, None, {"exempt": "{b}", "exempt_hook": "topk"})
    if hook != "topk":
        resolve(hook, None, {"topology": "hierarchical"})
    if hook not in ("post_local_sgd", "allreduce_and_upcast"):
        resolve("fp16", None, {"exempt": "b", "exempt_hook": hook})


def test_an_exempt_hook_that_does_not_suit():
    options = {"topology": "hierarchical", "exempt": "b", "exempt_hook": "topk"}
    with pytest.raises(ddphook.InvalidArgumentError, match="expected a flat group"):
        resolve("fp16", None, options)


def test_titles():
    """Titles are the names in DDP's log."""
    wrapped = default.fp16_compress_wrapper(default.allreduce_hook)
    for hook, wrapper, title in (
        (default.fp16_compress_hook, None, "fp16_compress_hook"),
        (wrapped, None, wrapped.__qualname__),
        (default.allreduce_hook, default.fp16_compress_wrapper, wrapped.__qualname__),
        (dist.BuiltinCommHookType.ALLREDUCE, None, "BuiltinCommHookType.ALLREDUCE"),
        ("int8", None, "int8"),
        (STATE, None, "powersgd"),
    ):
        assert resolve(hook, wrapper).title == title


@pytest.mark.parametrize(
    ("hook", "options", "text"),
    [
        (STATE, {}, "expected a state that has not been used"),
        (local.PostLocalSGDState(None, None, 5), {}, "also averages parameters"),
    ],
)
def test_what_a_graph_cannot_take(hook, options, text):
    with pytest.raises(ddphook.UnsupportedError, match=text):
        ddphook.torch.compile(lambda x: x, hook=hook, **options)


def test_a_state_for_a_graph():
    state = powersgd.PowerSGDState(None, start_powerSGD_iter=7)
    assert resolve_for_graph(state).options["start_powerSGD_iter"] == 7
    state.iter = 1
    with pytest.raises(ddphook.UnsupportedError, match="has not been used"):
        resolve_for_graph(state)


def test_one_default():
    """register requires a hook; all other functions have the same default."""
    import ddphook.jax

    defaults = {
        inspect.signature(function).parameters["hook"].default
        for function in (ddphook.torch.compile, ddphook.torch.export, ddphook.jax.compress)
    }
    assert defaults == {"allreduce"}
    assert resolve("allreduce").pipeline() == "hook=allreduce"
    assert inspect.signature(ddphook.torch.register).parameters["hook"].default is None


def test_states_out_of_range():
    state = powersgd.PowerSGDState(None, matrix_approximation_rank=0)
    with pytest.raises(ddphook.InvalidArgumentError, match="at least 1, but got 0"):
        resolve(state)


@pytest.mark.parametrize("cap", [0, -1, math.nan, math.inf, "25"])
def test_sizes_of_buckets(cap):
    with pytest.raises(ddphook.InvalidArgumentError, match="'bucket_cap_mb' to be above 0"):
        ddphook.torch.compile(lambda x: x, bucket_cap_mb=cap)


def test_shapes_are_in_the_order_of_memory():
    plain, last = torch.empty(4, 3, 2, 2), torch.empty(4, 3, 2, 2)
    last = last.to(memory_format=torch.channels_last)
    turned, scalar = torch.empty(5, 7).t(), torch.empty(())
    gradients = [plain, last, turned, scalar, torch.empty(0, 3)]
    layout = Layout.of(0, list("abcde"), gradients)
    assert layout.shapes == ((4, 3, 2, 2), (4, 2, 2, 3), (5, 7), (), (0, 3))
    with pytest.raises(ddphook.UnsupportedError, match="without gaps"):
        Layout.of(0, ["a"], [torch.empty(4, 4)[:, :2]])


def test_names_of_parameters_are_quoted():
    layout = Layout(0, ('a"b\\c\n', "ü", "w"), ((1,),) * 3, torch.float32)
    text = layout.text(_bucket.WHOLE_GROUP)
    for literal in (r'"\61\22\62\5C\63\0A"', r'"\C3\BC"', '"w"'):
        assert literal in text
    image = compiler.compile_module(text, "hook=powersgd")
    assert b'\xc3\xbc' in image


def test_the_size_of_the_group_is_stated():
    layout = Layout(0, ("w",), ((2,),), torch.float32)
    text = _bucket.with_group_size(layout.text(_bucket.WHOLE_GROUP), 3)
    assert text.startswith("ddp.process_group @dp size 3\nfunc.func")


@pytest.mark.parametrize("kind", ["error", "share_error"])
def test_states_are_errors_by_their_kinds(kind):
    """Roles do not matter: a hook of another dialect may choose any."""
    plan = {
        "states": [
            {"role": "anything.rest", "kind": kind},
            {"role": "anything.error", "kind": "factor"},
            {"role": "mine.error"},
        ]
    }
    roles = ("anything.rest", "anything.error", "mine.error")
    parts = {(role, "w"): torch.ones(1) for role in roles}
    common = _states.without_errors(parts, _states.kinds(plan))
    assert sorted(common) == [("anything.error", "w"), ("mine.error", "w")]


def test_options_are_those_of_the_compiler():
    tool = os.environ.get("DDPHOOK_OPT", ROOT / "build" / "bin" / "ddphook-opt")
    text = subprocess.run(
        [tool, "--help"], check=True, capture_output=True, text=True
    ).stdout
    section = text[text.index("--ddp-pipeline ") :]
    section = section[section.index("--hook=<string>") : section.index("--interleave")]
    found, names = {}, set()
    for line in section.splitlines()[1:-1]:
        word = line.split()[0]
        if "=" in word:
            names.add(word.partition("=")[0])
        else:
            names = found.setdefault(word, set())
    expected = {
        hook: {name.lower().replace("_", "-") for name in options}
        for hook, options in HOOKS.items()
    }
    assert found == expected


def test_the_package_needs_no_torch():
    code = (
        "import sys, ddphook, ddphook._cache, ddphook._runtime, ddphook.compiler;"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_info():
    command = [sys.executable, "-m", "ddphook", "info"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("runtime", "compiler", "cache", "PyTorch"):
        assert re.search(rf"^{word} +\S", done.stdout, re.MULTILINE), done.stdout
    environment = {**os.environ, "DDPHOOK_LIBRARY_DIR": "/nowhere"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    assert "DDPHOOK_LIBRARY_DIR=/nowhere, but there is none" in done.stdout
