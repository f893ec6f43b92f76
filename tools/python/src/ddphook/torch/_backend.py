# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backend ``"ddphook"`` of ``torch.compile``: Inductor, and a pass."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

import ddphook
from ddphook._errors import InvalidArgumentError, UnsupportedError
from ddphook.torch import _graph
from ddphook.torch._bucket import pipeline as bucket_pipeline
from ddphook.torch._hooks import resolve
from ddphook.torch._rendezvous import timeout_seconds


class ReplaceReductions(CustomGraphPass):
    """Inductor's pass that puts compiled modules into a graph.

    Parameters
    ----------
    pipeline
        Options of ``ddp-pipeline``.
    timeout_s
        Deadline of every wait for a peer, in seconds.
    bucket_bytes
        Bytes of gradients in a bucket.
    """

    def __init__(self, pipeline: str, timeout_s: float, bucket_bytes: int) -> None:
        self.pipeline = pipeline
        self.timeout_s = timeout_s
        self.bucket_bytes = bucket_bytes

    def __call__(self, graph: torch.fx.Graph) -> None:
        _graph.rewrite(graph, self.pipeline, self.timeout_s, self.bucket_bytes)

    def uuid(self) -> Any:
        """What Inductor's cache distinguishes graphs by."""
        options = [self.pipeline, self.timeout_s, self.bucket_bytes]
        return get_hash_for_files(
            (__file__, _graph.__file__), ddphook.__version__ + json.dumps(options)
        )


def backend(
    model: torch.fx.GraphModule,
    inputs: list[torch.Tensor],
    *,
    options: dict[str, Any] | None = None,
    **inductor: Any,
) -> Any:
    """Compiles a graph with Inductor, its reductions with ddphook.

    What ``torch.compile`` finds under the name ``"ddphook"``.

    Parameters
    ----------
    model, inputs
        As TorchDynamo gives them.
    options
        Those of ``ddphook.torch.compile`` but for ``step``, and options of
        Inductor's.
    **inductor
        Of ``compile_fx``.

    Raises
    ------
    InvalidArgumentError
        There is no such hook or option.
    UnsupportedError
        The hook is no mere reduction, or the place of the pass is taken.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    known = config.get_config_copy()
    given = dict(options or {})
    patches = {name: given.pop(name) for name in list(given) if name in known}
    if config.post_grad_custom_pre_pass is not None:
        raise UnsupportedError(
            "torch._inductor.config.post_grad_custom_pre_pass is used by others"
        )
    patches["post_grad_custom_pre_pass"] = make_pass(**given)
    return compile_fx(model, inputs, config_patches=patches, **inductor)


def make_pass(
    hook: Any = "allreduce",
    wrapper: Any = None,
    *,
    bucket_cap_mb: float = 25,
    timeout: timedelta | float | None = None,
    **options: Any,
) -> ReplaceReductions:
    """The pass for options of ``ddphook.torch.compile``."""
    resolved = resolve(hook, wrapper, options)
    if resolved.name == "post_local_sgd":
        raise UnsupportedError(
            "post_local_sgd averages parameters as well, which the reductions of "
            "a graph do not show; use ddphook.torch.register"
        )
    if not isinstance(bucket_cap_mb, (int, float)) or bucket_cap_mb <= 0:
        raise InvalidArgumentError(
            f"expected 'bucket_cap_mb' to be above 0, but got {bucket_cap_mb!r}"
        )
    return ReplaceReductions(
        bucket_pipeline(resolved.pipeline()),
        timeout_seconds(timeout),
        max(1, int(bucket_cap_mb * (1 << 20))),
    )
