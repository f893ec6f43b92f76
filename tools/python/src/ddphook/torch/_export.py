# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions of a PyTorch program, or whole steps, as modules for native programs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddphook._errors import InvalidArgumentError, UnsupportedError
from ddphook.torch import _bucket
from ddphook.torch._hooks import resolve_for_graph
from ddphook.torch._rendezvous import group_of_name

# DDP's, where none is given.
_BUCKET_CAP_MB = 25
_IMPORT = "builtin.module(ddp-import-fx)"


def export(
    step: Any,
    *inputs: Any,
    file: str | os.PathLike[str],
    hook: Any = "allreduce",
    wrapper: Any = None,
    bucket_cap_mb: float | None = None,
    whole: bool = False,
    partitions: Sequence[Sequence[Sequence[int]]] = (),
    **options: Any,
) -> str:
    """Writes the reductions of a step as a module for the compiler's tools.

    The module has one function, ``@step``, which takes the gradients and returns
    their averages. Its states are those of the hook. What else is in the step,
    such as the model, is not exported; with ``whole`` it is, and ``@step`` takes
    and returns what the step does.

    Parameters
    ----------
    step
        A function with functional collectives, as for ``compile``, that is
        traced without running; or a DDP model, whose parameters' gradients are
        exported under the parameters' names. A whole step gets all tensors as
        inputs, parameters and buffers too, and returns what changes; it is a
        function, a graph of ``make_fx`` or ``torch.compile``, or what
        ``torch.export.export`` returns.
    *inputs
        Of the function: examples of its arguments. Those of a whole step may be
        models: ``@step`` then takes their parameters and buffers, and returns, behind
        what the step does, the new values of those that it changes. A DDP model
        reduces gradients in ``backward()`` then; it has to be made under
        ``optimize_ddp="python_reducer"``. So may optimizers of
        these models be, which stand for what they keep from step to step.
    file
        Where to write the module, in MLIR's textual form.
    whole
        Whether to export the whole step, as linalg. Needs the package
        ``torch-mlir``. The file's comments say which argument and which result
        of ``@step`` is what, among them the seed of dropout; ``ddphook-cc`` and
        ``ddphook-run`` need the option
        ``--preprocessing-pass-pipeline='builtin.module(ddp-import-fx)'`` then.
    partitions
        How a whole step's process groups of a part of the ranks divide up the job:
        ``[[[0, 1], [2, 3]]]`` if some reductions are over ranks 0 and 1, and over 2
        and 3 on the others. One process does not know what groups others have.
    hook, wrapper, **options
        As for ``register``; ``post_local_sgd`` is no hook of a graph.
    bucket_cap_mb
        MiB of gradients in a bucket; by default the DDP model's, or 25.

    Returns
    -------
    str
        Options of ``ddp-pipeline`` for ``ddphook-cc`` and ``ddphook-run``. The
        file begins with a comment that has them in a command.

    Raises
    ------
    InvalidArgumentError
        There is no such hook or option, or the step reduces no gradients.
    UnsupportedError
        The hook is no mere reduction; a reduction is over a part of the ranks that
        is in no partition;
        a parameter is of a kind that no module can hold; torch-mlir is not
        installed; a whole step has an operator that cannot be compiled, which
        the message names, with its line in the program.
    """
    resolved = resolve_for_graph(hook, wrapper, options)
    if partitions and not whole:
        raise InvalidArgumentError("expected partitions for a whole step only")
    if bucket_cap_mb is not None:
        _bucket.check_cap(bucket_cap_mb)
    if isinstance(step, DistributedDataParallel):
        if inputs:
            raise InvalidArgumentError("expected no inputs for a DDP model")
        if whole:
            raise UnsupportedError(
                "expected a function for a whole step, but got a DDP model, which may "
                "be an input of that function"
            )
        text = _text_of_model(step)
        cap = step.bucket_bytes_cap / (1 << 20)
        order = "reverse"
    else:
        if whole:
            from ddphook.torch import _whole

            text = _whole.module_text(step, inputs, partitions)
        else:
            text = _text_of_step(step, inputs)
        cap, order = _BUCKET_CAP_MB, "forward"
    if bucket_cap_mb is not None:
        cap = bucket_cap_mb
    pipeline = f"{resolved.pipeline()} order={order} bucket-cap-mb={cap:g}"
    path = Path(file)
    words = ["ddphook-cc", path.name, "-o", path.with_suffix(".o").name]
    words.append(f"--ddp-pipeline={pipeline}")
    if whole:
        words.append(f"--preprocessing-pass-pipeline={_IMPORT}")
    path.write_text(f"// {shlex.join(words)}\n{text}")
    return pipeline


def _text_of_model(model: DistributedDataParallel) -> str:
    """The module that averages the gradients of a model's parameters."""
    parameters = _bucket.reduced_parameters(model)
    return _bucket.reductions_text(
        "step",
        ["mean"] * len(parameters),
        [_bucket.tensor_type(value.shape, value.dtype) for _, value in parameters],
        [name for name, _ in parameters],
    )


def _text_of_step(step: Any, inputs: Sequence[Any]) -> str:
    """The module of what a function reduces."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from ddphook.torch import _graph

    graph = make_fx(step, tracing_mode="fake")(*inputs).graph
    reductions = list(_graph.find_reductions(graph))
    for reduction in reductions:
        group = group_of_name(reduction.group)
        if group.size() != dist.get_world_size():
            raise UnsupportedError(
                f"expected reductions over all {dist.get_world_size()} ranks, but "
                f"got one over {group.size()}"
            )
    values = [reduction.value for reduction in reductions]
    return _bucket.reductions_text(
        "step",
        [reduction.kind for reduction in reductions],
        [_bucket.tensor_type(value.shape, value.dtype) for value in values],
        [f"gradient{number}" for number in range(len(values))],
    )
