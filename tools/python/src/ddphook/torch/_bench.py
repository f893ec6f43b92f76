# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m ddphook bench``: compares ddphook's hooks with PyTorch's.

Each hook is measured in two ways, alternating between ours and PyTorch's in the same
processes. The first is a whole step of DDP, which is also measured without a hook, with
the optimizer in our hook, and without communication, the lower bound of all hooks. The
second is the hook alone, on one bucket. With ``--compile``, the bench instead compares a
whole step under ``torch.compile`` with Inductor's own, which does not compress. Results
are compared before times are reported.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import json
import operator
import os
import pathlib
import re
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.multiprocessing.spawn import ProcessException, spawn
from torch.nn.parallel import DistributedDataParallel

import ddphook
import ddphook.torch
from ddphook._errors import InternalError, InvalidArgumentError
from ddphook.torch import _private

_WIDTH = 1024  # The width of a layer, which has 4 MiB of weights.
_FIRST_COMPRESSED_STEP = 2  # The smallest value that PyTorch allows.
_WARM_UP_STEPS = 4  # Modules are then loaded, and PowerSGD compresses.
_LARGE_MB = 1 << 20  # Makes a single bucket.
# The tolerance of an average by PowerSGD, relative to the largest element, by wrapper:
# some roundings of the type in which matrices are multiplied (docs/parity.md).
_POWERSGD_TOLERANCES = {None: 1.5e-5, "fp16": 4e-3, "bf16": 3e-2}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "powersgd": powersgd.powerSGD_hook,
}
_SGD_RATE = 0.05
_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": functools.partial(torch.optim.SGD, lr=_SGD_RATE),
    "adam": functools.partial(torch.optim.Adam, lr=1e-3),
    "adamw": functools.partial(torch.optim.AdamW, lr=1e-3),
}
_groups_left: list[dist.ProcessGroup | None] = []
_WRAPPERS: dict[str | None, Callable[..., Any]] = {
    None: lambda hook: hook,
    "fp16": default_hooks.fp16_compress_wrapper,
    "bf16": default_hooks.bf16_compress_wrapper,
}

# Seconds of each step on its slowest rank, round by round.
_Rounds = list[list[float]]


@dataclasses.dataclass(frozen=True)
class _Hook:
    """A hook of PyTorch's, with options that also apply to ours."""

    name: str
    function: Callable[..., Any]
    options: dict[str, Any]
    tolerance: float  # The tolerance of a step's averages; 0 for equal bits.

    @classmethod
    def parse(cls, name: str) -> _Hook:
        """Returns the hook with this name on the command line."""
        match = re.fullmatch(r"(\w+?)(?:-([1-9]\d*))?(?:\+(\w+))?", name)
        base, rank, wrapper = match.groups() if match else ("", None, None)
        is_known = base in _FUNCTIONS and wrapper in _WRAPPERS
        if not is_known or (base == "powersgd") != bool(rank):
            raise InvalidArgumentError(
                "expected allreduce, fp16, bf16 or powersgd-RANK, with '+fp16' or "
                f"'+bf16' for a wrapper, but got '{name}'"
            )
        function = _WRAPPERS[wrapper](_FUNCTIONS[base])
        if not rank:
            return cls(name, function, {}, 0.0)
        options = {"matrix_approximation_rank": int(rank)}
        options["start_powerSGD_iter"] = _FIRST_COMPRESSED_STEP
        return cls(name, function, options, _POWERSGD_TOLERANCES[wrapper])

    @property
    def is_exact(self) -> bool:
        """Whether ours has the same bits as PyTorch's."""
        return self.tolerance == 0

    def state(self) -> Any:
        return powersgd.PowerSGDState(None, **self.options) if self.options else None

    def register_ours(
        self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer | None = None
    ) -> ddphook.torch.Handle:
        return ddphook.torch.register(
            model, self.function, optimizer=optimizer, **self.options
        )


def main(options: Namespace) -> None:
    """Measures, prints tables, and writes the JSON file.

    Without a launcher's variables, this process starts the ranks; otherwise it is one
    of them. Raises InternalError if a result of ours differs from PyTorch's, or a rank
    failed.
    """
    _parse(options)  # Fails now if there is no such hook.
    if options.json and os.environ.get("RANK", "0") == "0":
        # Fails now if the file cannot be written, rather than after the measurement.
        with tempfile.NamedTemporaryFile(dir=pathlib.Path(options.json).parent):
            pass
    if "RANK" in os.environ:
        return _be_rank(options)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    try:
        spawn(_serve, (options, store.port), options.ranks)
    except ProcessException as error:
        raise InternalError(str(error).strip()) from error


def _serve(rank: int, options: Namespace, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    _be_rank(options, store=store, rank=rank, world_size=options.ranks)


def _be_rank(options: Namespace, **of_group: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", **of_group)
    _measure_as_rank(options)
    # The destructor of Gloo's group joins the group's threads, so a thread that drops
    # the last reference ends the process. Keep one until Python ends.
    _groups_left.append(dist.group.WORLD)
    dist.destroy_process_group()


def _parse(options: Namespace) -> list[_Hook]:
    return [_Hook.parse(name) for name in options.hooks.split(",")]


def _measure_as_rank(options: Namespace) -> None:
    load = os.getloadavg()[0]
    results = {}
    parts = {"step": _measure_steps, "hook": _measure_hook}
    if options.compile:
        parts = {"compiled": _measure_compiled_steps}
    for hook in _parse(options):
        results[hook.name] = {part: run(options, hook) for part, run in parts.items()}
    if dist.get_rank() != 0:
        return
    given = ("model_mb", "optimizer", "samples", "steps", "rounds")
    report = {
        "date": datetime.date.today().isoformat(),
        "ddphook": ddphook.__version__,
        "torch": torch.__version__,
        "ranks": dist.get_world_size(),
        "processors": os.cpu_count(),
        **{name: getattr(options, name) for name in given},
        "load_before": load,
        "realtime": os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO),
        "hooks": results,
    }
    _print(report)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n")


def _make_model(mb: float) -> nn.Module:
    """Returns a multilayer perceptron with about `mb` MiB of weights."""
    torch.manual_seed(0)
    mb_of_layer = _WIDTH * _WIDTH * 4 / 2**20
    count = int(mb // mb_of_layer)
    layers: list[nn.Module] = []
    for _ in range(count):
        layers += [nn.Linear(_WIDTH, _WIDTH), nn.ReLU()]
    outputs = round((mb / mb_of_layer - count) * _WIDTH)
    return nn.Sequential(*layers, nn.Linear(_WIDTH, max(outputs, 1)))


def _generator() -> torch.Generator:
    """Returns a generator of random numbers that differ between ranks."""
    return torch.Generator().manual_seed(dist.get_rank())


def _timed(prepare: Callable[[], Any], run: Callable[[Any], object]) -> Callable[[], float]:
    """Returns a function that calls `run` with what `prepare` returns. The function returns
    how long that call took, from a common begin on all ranks.
    """

    def once() -> float:
        prepared = prepare()
        dist.barrier()
        begin = time.perf_counter()
        run(prepared)
        return time.perf_counter() - begin

    return once


class _Training:
    def __init__(self, options: Namespace, bucket_cap_mb: int) -> None:
        self.ddp = DistributedDataParallel(
            _make_model(options.model_mb),
            gradient_as_bucket_view=True,
            bucket_cap_mb=bucket_cap_mb,
        )
        self.parameters = list(self.ddp.parameters())
        self.optimizer = _OPTIMIZERS[options.optimizer](self.parameters)

    def step(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.ddp(x).sub(1).square().mean().backward()
        self.optimizer.step()


class CompiledTraining:
    """A copy of a model that trains with SGD in a step of one graph, which averages its
    gradients with functional collectives.

    Unless the step reduces gradients, each rank trains separately. Without options of
    ``ddphook.torch.compile``, PyTorch's own compiler and collectives are used.
    """

    def __init__(
        self, model: nn.Module, *, reduces: bool, options: dict[str, Any] | None
    ) -> None:
        _private.trace_autograd()
        named = dict(model.named_parameters())
        self.parameters = [p.detach().clone() for p in named.values()]
        collectives = _private.collectives

        def step(parameters: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            given = dict(zip(named, parameters))
            loss = torch.func.functional_call(model, given, (x,)).sub(1).square().mean()
            gradients = torch.autograd.grad(loss, parameters)
            if reduces:
                gradients = tuple(
                    collectives.wait_tensor(collectives.all_reduce(g, "avg", "0"))
                    for g in gradients
                )
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients):
                    parameter.sub_(_SGD_RATE * gradient)
            return loss.detach()

        make = torch.compile if options is None else ddphook.torch.compile
        self._step = make(step, fullgraph=True, **(options or {}))

    def step(self, x: torch.Tensor) -> None:
        for parameter in self.parameters:
            parameter.requires_grad_()
        self._step(self.parameters, x)


def _measure_steps(options: Namespace, hook: _Hook) -> dict[str, Any]:
    """Measures whole steps; returns times, and the final difference of parameters.

    With several buckets, PyTorch's PowerSGD starts collectives in a different order on
    each rank, which ends the process on Gloo. So PowerSGD gets one bucket, in ours as
    well.
    """
    cap = 25 if hook.is_exact else _LARGE_MB
    none = _Training(options, 25)
    theirs, ours, fused, silent = (_Training(options, cap) for _ in range(4))
    theirs.ddp.register_comm_hook(hook.state(), hook.function)
    silent.ddp.register_comm_hook(None, debugging_hooks.noop_hook)
    sides = {"none": none, "pytorch": theirs, "ours": ours, "fused": fused, "silent": silent}
    with hook.register_ours(ours.ddp), hook.register_ours(fused.ddp, fused.optimizer):
        rounds = _train_by_turns(sides, options)
    difference = _difference(ours.parameters, theirs.parameters)
    # Rounding errors have no bound over many steps. PowerSGD rounds unlike PyTorch's,
    # and so does Adam in the hook.
    _check(hook, "parameters", difference, 0.0 if hook.is_exact else float("inf"))
    if hook.is_exact and options.optimizer == "sgd":
        in_hook = _difference(fused.parameters, theirs.parameters)
        _check(hook, "parameters with the optimizer in the hook", in_hook, 0.0)
    return _summarize(rounds, difference)


def _measure_compiled_steps(options: Namespace, hook: _Hook) -> dict[str, Any]:
    """Measures whole steps under ``torch.compile``; returns times, and the final
    difference of parameters from those without compression.
    """
    _private.dynamo.reset()  # Hooks do not share graphs.
    make = functools.partial(CompiledTraining, _make_model(options.model_mb))
    theirs = make(reduces=True, options=None)
    ours = make(reduces=True, options={"hook": hook.function, **hook.options})
    silent = make(reduces=False, options=None)
    sides = {"pytorch": theirs, "ours": ours, "silent": silent}
    rounds = _train_by_turns(sides, options)
    difference = _difference(ours.parameters, theirs.parameters)
    ddphook.torch.close()
    # The effect of compression depends on the hook. Without compression, results must
    # be equal.
    _check(hook, "parameters", difference, 0.0 if hook.name == "allreduce" else float("inf"))
    return _summarize(rounds, difference)


def _measure_hook(options: Namespace, hook: _Hook) -> dict[str, Any]:
    """Measures the hook alone, from its call to the completion of its future.

    Each call gets the same random gradients. Real gradients may be so close to a rank
    below PowerSGD's that rounding turns its factors far. The compared averages are, for
    PowerSGD, those of the first compressed step.
    """
    model = _make_model(options.model_mb)
    bucket = _capture_bucket(model)
    buffer, state = bucket.buffer(), hook.state()
    gradients = torch.randn(buffer.shape, generator=_generator())
    fill = functools.partial(buffer.copy_, gradients)
    compared = 1 if hook.is_exact else _FIRST_COMPRESSED_STEP + 1

    def average(call: Callable[[], float]) -> torch.Tensor:
        for _ in range(compared):
            call()
        return torch.clone(buffer)

    with hook.register_ours(DistributedDataParallel(model)) as handle:
        sides = {
            "pytorch": _timed(fill, lambda _: hook.function(state, bucket).wait()),
            "ours": _timed(fill, lambda _: handle.start(bucket).wait()),
        }
        expected = average(sides["pytorch"])
        difference = _difference([average(sides["ours"])], [expected])
        _check(hook, "averages", difference, hook.tolerance)
        return _summarize(_by_turns(sides, options), difference)


def _capture_bucket(model: nn.Module) -> dist.GradBucket:
    """Returns the single bucket that a hook of this model gets."""
    buckets: list[dist.GradBucket] = []

    # Has no annotations: DDP does not understand those that are strings.
    def keep(state, bucket):  # type: ignore[no-untyped-def]
        buckets.append(bucket)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp = DistributedDataParallel(model, bucket_cap_mb=_LARGE_MB)
    ddp.register_comm_hook(None, keep)
    for _ in range(2):  # DDP makes its final buckets after the first step.
        ddp(torch.ones(1, _WIDTH)).sum().backward()
    return buckets[-1]


def _train_by_turns(
    trainings: Mapping[str, _Training | CompiledTraining], options: Namespace
) -> dict[str, _Rounds]:
    randn = functools.partial(torch.randn, options.samples, _WIDTH)
    sides = {
        side: _timed(functools.partial(randn, generator=_generator()), training.step)
        for side, training in trainings.items()
    }
    return _by_turns(sides, options)


def _by_turns(
    sides: dict[str, Callable[[], float]], options: Namespace
) -> dict[str, _Rounds]:
    """Calls each side `steps` times in each round, after a warm-up.

    Steps of a side are consecutive, as in a job with one model. Each round begins with
    another side.
    """
    for step in sides.values():
        for _ in range(_WARM_UP_STEPS):
            step()
    rounds: dict[str, _Rounds] = {name: [] for name in sides}
    order = list(sides)
    for _ in range(options.rounds):
        for name in order:
            sides[name]()  # Brings the side's memory into the caches.
            seconds = torch.tensor([sides[name]() for _ in range(options.steps)])
            dist.all_reduce(seconds, dist.ReduceOp.MAX)
            rounds[name].append(seconds.tolist())
        order.append(order.pop(0))
    return rounds


def _difference(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    """Returns the largest difference on any rank, relative to the largest element."""
    mine, other = (torch.cat([p.detach().flatten() for p in side]) for side in (ours, theirs))
    worst = ((mine - other).abs().max() / other.abs().max()).reshape(1)
    worst.nan_to_num_(nan=float("inf"))  # NaN is the largest difference of all.
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return float(worst)


def _check(hook: _Hook, what: str, difference: float, tolerance: float) -> None:
    if not difference <= tolerance:  # Also true for NaN.
        raise InternalError(
            f"expected {what} of {hook.name} within {tolerance:g} of PyTorch's, but "
            f"got {difference:g}"
        )


def _summarize(rounds: dict[str, _Rounds], difference: float) -> dict[str, Any]:
    """Returns the difference, medians of all steps, and ratios of each round's medians."""
    summary: dict[str, Any] = {"difference": difference}
    for side, times in rounds.items():
        summary[f"{side}_s"] = statistics.median(itertools.chain(*times))
    medians = {side: list(map(statistics.median, rounds[side])) for side in rounds}
    pairs = ("ours", "none"), *((side, "pytorch") for side in ("ours", "fused", "silent"))
    for one, other in pairs:
        if one in medians and other in medians:
            ratios = map(operator.truediv, medians[one], medians[other])
            summary[f"{one}_of_{other}"] = list(ratios)
    summary["rounds_s"] = rounds
    return summary


# The columns of a table with their keys in a summary: seconds end in _s, ratios are lists.
_COLUMNS = (
    ("none, ms", "none_s"),
    ("PyTorch's, ms", "pytorch_s"),
    ("ours, ms", "ours_s"),
    ("ours / PyTorch's", "ours_of_pytorch"),
    ("ours / none", "ours_of_none"),
    ("optimizer in the hook, ms", "fused_s"),
    ("that / PyTorch's", "fused_of_pytorch"),
    ("without communication, ms", "silent_s"),
    ("that / PyTorch's", "silent_of_pytorch"),
    ("largest difference", "difference"),
)


def _cell(key: str, value: Any) -> str:
    if isinstance(value, list):
        return f"{statistics.median(value):.2f} ({min(value):.2f} to {max(value):.2f})"
    return f"{1e3 * value:.2f}" if key.endswith("_s") else f"{value:.1g}"


def _print(report: dict[str, Any]) -> None:
    print(
        f"model and bucket: {report['model_mb']:g} MiB; ranks: {report['ranks']}; "
        f"processors: {report['processors']}; PyTorch {report['torch']}; "
        f"{report['optimizer']}; samples: {report['samples']}; "
        f"{report['rounds']} rounds of {report['steps']} steps; load before: "
        f"{report['load_before']:.1f}"
    )
    parts = {"compiled": "compiled step", "step": "whole step", "hook": "hook alone"}
    for part, title in parts.items():
        results = {name: of[part] for name, of in report["hooks"].items() if part in of}
        if results:
            some = next(iter(results.values()))
            columns = [(head, key) for head, key in _COLUMNS if key in some]
            lines = [[title, *(head for head, _ in columns)], ["---"] * (1 + len(columns))]
            for name, result in results.items():
                lines.append([name, *(_cell(key, result[key]) for _, key in columns)])
            print("\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines), flush=True)
