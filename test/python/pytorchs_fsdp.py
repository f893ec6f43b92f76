# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs PyTorch's own tests of FSDP2, HSDP and ``replicate`` with a hook, on CPUs.

    python test/python/pytorchs_fsdp.py CHECKOUT [--hook=allreduce] [--only=REGEX]

CHECKOUT is PyTorch's repository at the tag of the installed release; its package has no such
tests. They are written for GPUs and NCCL. Here, each one runs on up to four processes with
Gloo, also if PyTorch runs it in threads. A test that passes runs again with the hook
registered with each of its models, when the model first runs. Each line of the output has
what became of a test without the hook and with it; the last lines count them.

Run with PyTorch 2.15.0 and ``--hook=allreduce``, from shortened copies; all 34 pass without
a hook and with it:

  fsdp/test_fully_shard_training.py: test_root_no_forward_inputs,
    test_param_registration_after_backward,
    test_modules_to_run_forward_empty_for_single_module, test_to_float64_after_init,
    test_train_parity_single_group_shard_dim0,
    test_train_parity_single_group_shard_largest_dim, test_non_root_forward_backward,
    test_multi_forward_module, test_explicit_prefetching, test_post_optim_event,
    test_train_parity_multi_group_unshard_async_op,
    test_train_parity_multi_group_cpu_offload_eager, test_double_partial_forward_then_backward,
    test_train_parity_shard_placement_fn_shard_largest_dim,
    test_shard_placement_fn_contiguous_params_grads, test_train_parity_with_shared_params,
    test_train_shared_params_uneven_shard, test_layer_by_layer_shard_no_false_positive,
    test_gradient_accumulation (FSDP2 and HSDP; with reshard_after_forward=True, without its
    counts of collectives), test_1f1b_microbatching, test_2d_mlp_with_nd_mesh (with tensor
    parallelism)
  fsdp/test_fully_shard_frozen.py: all three
  fsdp/test_fully_shard_autograd.py: all three
  test_replicate_training.py: test_to_float64_after_init, test_train_parity_single_group,
    test_non_root_forward_backward, test_multi_forward_module, test_explicit_prefetching,
    test_train_parity_with_shared_params, test_train_parity_with_activation_checkpointing
"""

import argparse
import collections
import contextlib
import importlib
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from torch.distributed.fsdp._fully_shard import _fsdp_state  # noqa: E402
from torch.testing._internal import common_distributed, common_fsdp, common_utils  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python" / "src"))
import ddphook.torch  # noqa: E402

PLACE = "test/distributed/_composable"
FILES = ["fsdp/test_*.py", "test_replicate_*.py"]
# Tests that want more ranks get as many.
RANKS = 4


def adapt(seconds):
    """Makes PyTorch's tests run here; called before they are imported."""
    base = common_fsdp.FSDPTest
    fork = torch.multiprocessing.get_context("fork").Process
    base._run = classmethod(common_fsdp.FSDPTestMixin.__dict__["_run"].__func__)
    common_distributed.MultiProcessTestCase._spawn_processes = (
        lambda self: self._start_processes(fork)
    )
    base.world_size = property(lambda self: 2)
    # Its other bases run ranks as threads, or one process for several tests.
    common_fsdp.FSDPTestMultiThread = common_fsdp.FSDPTestContinuous = base
    common_distributed.TIMEOUT_DEFAULT = seconds
    common_distributed.skip_if_lt_x_gpu = lambda *_, **__: lambda test: test
    common_utils.get_cycles_per_ms = lambda *_: 0
    torch.cpu.device_count = lambda: RANKS
    torch.cpu._sleep = lambda *_: None


def limited(size):
    return property(lambda self: min(RANKS, size.fget(self) if hasattr(size, "fget") else size))


def cases(checkout, only):
    """Yields the tests, by file, whose names match a regular expression."""
    kind, place = common_distributed.MultiProcessTestCase, pathlib.Path(checkout) / PLACE
    sys.path[:0] = [str(place), str(place / "fsdp"), str(pathlib.Path(checkout) / "test")]
    for path in sorted(path for pattern in FILES for path in place.glob(pattern)):
        try:
            module = importlib.import_module(path.stem)
        except Exception as error:  # noqa: BLE001 - says so.
            print(f"not imported: {path.stem}: {error}", flush=True)
            continue
        for made in list(vars(module).values()):
            if isinstance(made, type) and issubclass(made, kind):
                if "world_size" in vars(made):
                    made.world_size = limited(vars(made)["world_size"])
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            for case in suite:
                # The others have no ranks.
                if isinstance(case, kind) and re.search(only, case.id()):
                    yield case


@contextlib.contextmanager
def registered(hook, notes):
    """Registers a hook with each model that runs; notes it in a file."""
    lazy_init = _fsdp_state.FSDPState._lazy_init

    def call(self):
        is_first = self._is_root is None
        lazy_init(self)
        if is_first and self._is_root:
            try:
                ddphook.torch.register(self._modules[0], hook, timeout=30)
                note = "registered"
            except ddphook.Error as error:
                note = f"refused: {error}"
            with open(notes, "a") as file:
                file.write(f"{note}\n")

    with mock.patch.object(_fsdp_state.FSDPState, "_lazy_init", call):
        yield


def outcome(case):
    """Runs a test; returns what became of it, with the reason."""
    result = unittest.TestResult()
    case = type(case)(case._testMethodName)
    case.run(result)
    problems = [text for _, text in result.failures + result.errors]
    if problems:
        # The last line says how to run the test again.
        lines = [line for line in problems[0].splitlines() if re.match(r"[\w.]+(Error|Exit)", line)]
        return "failed", (lines or problems[0].strip().splitlines())[-1]
    if result.skipped or not result.testsRun:
        return "skipped", str(result.skipped[:1])
    return "passed", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout")
    parser.add_argument("--hook", default="allreduce")
    parser.add_argument("--only", default="", help="a regular expression of tests' names")
    parser.add_argument("--seconds", type=int, default=120, help="how long a test may take")
    parser.add_argument("--out", help="a file for the results, as JSON")
    given = parser.parse_args()
    adapt(given.seconds)
    counts, results = collections.Counter(), []
    with tempfile.TemporaryDirectory() as place:
        notes = pathlib.Path(place) / "notes"
        os.environ.setdefault("DDPHOOK_CACHE_DIR", place)
        for case in cases(given.checkout, given.only):
            without, reason = outcome(case)
            with_hook, models = "", []
            if without == "passed":
                notes.write_text("")
                with registered(given.hook, notes):
                    with_hook, reason = outcome(case)
                models = notes.read_text().splitlines()
                if with_hook == "passed" and "registered" not in models:
                    with_hook = "has no model" if not models else "refused"
            name = ".".join(case.id().split(".")[-3:])
            refused = sorted({text for text in models if text != "registered"})
            counts[without, with_hook] += 1
            results.append([name, without, with_hook, reason, refused])
            print(f"{without:8}{with_hook:14}{name} {reason} {refused or ''}", flush=True)
            if given.out:
                pathlib.Path(given.out).write_text(json.dumps(results, indent=1))
    for (without, with_hook), count in sorted(counts.items()):
        print(f"{count} {without} without a hook{', with it ' * bool(with_hook)}{with_hook}")


if __name__ == "__main__":
    main()
