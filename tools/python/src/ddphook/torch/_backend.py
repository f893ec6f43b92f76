# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backend ``"ddphook"`` of ``torch.compile``: Inductor with an additional pass."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

import ddphook
from ddphook._errors import UnsupportedError
from ddphook.torch import _graph, _ops, _private, _steps
from ddphook.torch._bucket import check_cap
from ddphook.torch._bucket import pipeline as bucket_pipeline
from ddphook.torch._hooks import check_scatters, resolve_for_graph, states_of
from ddphook.torch._private import CompileContext, CustomGraphPass, config
from ddphook.torch._rendezvous import timeout_seconds


@dataclasses.dataclass(eq=False)
class ReplaceReductions(CustomGraphPass):
    """Inductor's pass that replaces reductions of a graph by compiled modules.

    Graphs of different steps, which `step` numbers, share no states. `hook` and
    `left_alone` are those of `_steps.Step`; `states` are the roles of the hooks' states. If
    `reorders` is true, Inductor may order graphs with reductions for minimal memory. It then
    awaits a reduction as soon as that frees memory, and leaves the link idle while the next
    gradients are computed.
    """

    pipeline: str
    shard_pipeline: str  # That of reduce-scatters.
    timeout_s: float
    bucket_bytes: int
    step: int = 0
    hook: str = ""
    left_alone: list[str] = dataclasses.field(default_factory=list)
    reorders: bool = False
    states: Sequence[str] = ()

    def __call__(self, graph: torch.fx.Graph) -> None:
        # Inductor has called the pass for the graphs in this one before.
        module = graph.owning_module
        if self.states and module is not None and _ops.starts_in(*module.modules()):
            raise UnsupportedError(
                "reductions in a region of the graph, such as a nested_compile_region, would "
                f"share {', '.join(self.states)} of '{self.hook}' with other reductions: "
                "reduce outside of the region, or use a hook without states"
            )
        owner = self._frame()
        if any(node.name.startswith("tangents_") for node in graph.nodes):
            owner += " backward"
        how = self.pipeline, self.timeout_s, self.bucket_bytes, owner, self.left_alone
        replaced = _graph.rewrite(graph, *how, self.shard_pipeline)
        if replaced > 0 and not self.reorders:
            # For this graph only: `backend` has Inductor restore it after each graph.
            config.reorder_for_peak_memory = False

    def uuid(self) -> Any:
        """Returns the part of Inductor's cache key that identifies this pass."""
        how = self.pipeline, self.shard_pipeline, self.timeout_s, self.bucket_bytes, self.reorders
        # Groups' sizes tell averages from other quotients, and a group may have its own hook.
        return _private.get_hash_for_files(
            (__file__, _graph.__file__, _ops.__file__),
            ddphook.__version__ + json.dumps([*how, self._frame(), _private.groups()]),
        )

    def _frame(self) -> str:
        """Returns a name of the compiled code, which stays the same on recompilation."""
        compiled = CompileContext.current_compile_id()
        frame = "" if compiled is None else compiled.frame_id
        return f"{_steps.prefix_of(self.step)}frame {frame}"


def backend(
    model: torch.fx.GraphModule,
    inputs: list[torch.Tensor],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
    name: str | None = None,
    **inductor: Any,
) -> Any:
    """Compiles a graph with Inductor, and its reductions with ddphook.

    ``torch.compile`` finds it under the name ``"ddphook"``. The options are those of
    ``ddphook.torch.compile`` and of Inductor. Among them, ``"step"`` is an object that
    identifies the step: all graphs that are compiled with it share states. By default it
    is `options`, which ``torch.compile`` passes to all graphs of a step.

    Raises UnsupportedError if another pass is already registered.
    """
    known = config.get_config_copy()
    given = dict(options or {})
    patches = _private.list_mode_options(mode) if mode else {}
    patches |= {key: given.pop(key) for key in list(given) if key in known}
    if config.post_grad_custom_pre_pass or "post_grad_custom_pre_pass" in patches:
        raise UnsupportedError(
            "torch._inductor.config.post_grad_custom_pre_pass is already in use"
        )
    step = _steps.step_of(given.pop("step", options))
    replace = make_pass(step.number, **given)
    step.hook, replace.left_alone = replace.hook, step.left_alone
    replace.reorders = "reorder_for_peak_memory" in patches
    patches.setdefault("reorder_for_peak_memory", config.reorder_for_peak_memory)
    patches["post_grad_custom_pre_pass"] = replace
    inductor = {**_private.region_argument(name), **inductor}
    ddp = _steps.ddp_in(model)  # Comes before Inductor, which changes the graph.
    compiled: Any = _private.compile_fx(model, inputs, config_patches=patches, **inductor)
    return step.watch(compiled, ddp)


def step_of(compiler: Any) -> _steps.Step | None:
    """Returns the step of a TorchDynamo backend, or None if the backend is another."""
    if getattr(compiler, "compiler_fn", None) is not backend:
        return None
    options = compiler.kwargs.get("options")
    step = _steps.step_of((options or {}).get("step", options))
    step.hook = step.hook or f"hook={(options or {}).get('hook', 'allreduce')}"
    return step


_private.on_announcement(backend, functools.partial(_steps.begin, step_of))


def make_pass(
    step: int = 0,
    hook: Any = "allreduce",
    wrapper: Any = None,
    *,
    shard_hook: Any = None,
    bucket_cap_mb: float = 25,
    timeout: timedelta | float | None = None,
    **options: Any,
) -> ReplaceReductions:
    """Returns the pass for options of ``ddphook.torch.compile``, in the step `step`."""
    hooks = [resolve_for_graph(hook, wrapper, options)]
    if hooks[0].exempt:
        raise UnsupportedError(
            "gradients of a graph have no names that 'exempt' could match; use "
            "ddphook.torch.register"
        )
    check_cap(bucket_cap_mb)
    if shard_hook is not None:
        hooks.append(resolve_for_graph(shard_hook))
        check_scatters(bucket_pipeline(hooks[1].pipeline()))
    return ReplaceReductions(
        bucket_pipeline(hooks[0].pipeline()),
        bucket_pipeline(hooks[-1].pipeline()),
        timeout_seconds(timeout),
        max(1, int(bucket_cap_mb * (1 << 20))),
        step,
        hooks[0].pipeline(),
        states=[state for each in hooks for state in states_of(each)],
    )
