# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports reductions of a PyTorch program, or whole steps, for native programs."""

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
from ddphook.torch._hooks import AnyHook, AnyWrapper, resolve_for_graph
from ddphook.torch._private import resolve_process_group as group_of_name


def export(
    step: Any,
    *inputs: Any,
    file: str | os.PathLike[str],
    hook: AnyHook = "allreduce",
    wrapper: AnyWrapper | None = None,
    bucket_cap_mb: float | None = None,
    whole: bool = False,
    partitions: Sequence[Sequence[Sequence[int]]] = (),
    **options: Any,
) -> str:
    """Writes the reductions of a step as a module for the compiler's tools.

    The module has one function, ``@step``, which takes the gradients and returns
    their averages. Its states are those of the hook. The rest of the step, such as
    the model, is not exported, unless ``whole`` is set: ``@step`` then takes and
    returns what the step does.

    Parameters
    ----------
    step
        A function with functional collectives, as for ``compile``, which is traced
        without running; or a DDP model, whose parameters' gradients are exported
        under the parameters' names. A whole step gets all tensors as inputs,
        including parameters and buffers, and returns what changes; it is a
        function, a graph of ``make_fx`` or ``torch.compile``, or the result of
        ``torch.export.export``.
    *inputs
        Example arguments of the function. For a whole step, they may be models:
        ``@step`` then takes their parameters and buffers, and returns, after the
        step's results, the new values of those that it changes. A DDP model then
        reduces gradients in ``backward()``; it has to be made under
        ``optimize_ddp="python_reducer"``. They may also be optimizers of these
        models: ``@step`` then takes and returns their states.
    file
        The file to write, in MLIR's textual form.
    whole
        Whether to export the whole step, as linalg. Needs the package
        ``torch-mlir``. The file's comments describe each argument and result of
        ``@step``, including the seed of dropout. ``ddphook-cc`` and
        ``ddphook-run`` then need the option
        ``--preprocessing-pass-pipeline='builtin.module(ddp-import-fx)'``.
    partitions
        How process groups that have only a part of the ranks partition the job, for a
        whole step: ``[[[0, 1], [2, 3]]]`` if ranks 0 and 1 reduce together, and ranks
        2 and 3. A process does not know the groups of other ranks.
    hook, wrapper, **options
        As for ``register``, but a graph cannot have ``post_local_sgd``.
    bucket_cap_mb
        The size of a bucket in MiB; by default the DDP model's, or 25.

    Returns
    -------
    str
        Options of ``ddp-pipeline`` for ``ddphook-cc`` and ``ddphook-run``. The file
        begins with a comment that shows them in a command.

    Raises
    ------
    InvalidArgumentError
        There is no such hook or option, or the step reduces no gradients.
    UnsupportedError
        The hook is more than a reduction; a reduction is over a part of the ranks that
        is in no partition; a module cannot hold a parameter of this kind; torch-mlir is
        not installed; a whole step has an operator that cannot be compiled (the message
        has the operator and its line in the program).
    """
    resolved = resolve_for_graph(hook, wrapper, options)
    if partitions and not whole:
        raise InvalidArgumentError("expected partitions only for a whole step")
    if bucket_cap_mb is not None:
        _bucket.check_cap(bucket_cap_mb)
    cap, order = 25.0, "forward"  # DDP's default.
    if isinstance(step, DistributedDataParallel):
        if inputs:
            raise InvalidArgumentError("expected no inputs for a DDP model")
        if whole:
            raise UnsupportedError(
                "expected a function for a whole step, but got a DDP model, which may "
                "be an input of that function"
            )
        parameters = _bucket.reduced_parameters(step)
        text = _bucket.reductions_text(
            [("mean", p.shape, p.dtype, name) for name, p in parameters]
        )
        cap, order = step.bucket_bytes_cap / (1 << 20), "reverse"
    elif whole:
        from ddphook.torch import _whole

        text = _whole.module_text(step, inputs, partitions)
    else:
        text = _text_of_step(step, inputs)
    cap = cap if bucket_cap_mb is None else bucket_cap_mb
    pipeline = f"{resolved.pipeline()} order={order} bucket-cap-mb={cap:g}"
    path = Path(file)
    words = ["ddphook-cc", path.name, "-o", path.with_suffix(".o").name]
    words.append(f"--ddp-pipeline={pipeline}")
    if whole:
        words.append("--preprocessing-pass-pipeline=builtin.module(ddp-import-fx)")
    path.write_text(f"// {shlex.join(words)}\n{text}")
    return pipeline


def _text_of_step(step: Any, inputs: Sequence[Any]) -> str:
    """Returns the module of a function's reductions."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from ddphook.torch import _graph

    graph = make_fx(step, tracing_mode="fake")(*inputs).graph
    reductions = list(_graph.find_reductions(graph))
    for reduction in reductions:
        if reduction.parts > 1:
            raise UnsupportedError("expected no reduce-scatter; export it with whole=True")
        size, all_ranks = group_of_name(reduction.group).size(), dist.get_world_size()
        if size != all_ranks:
            raise UnsupportedError(
                f"expected reductions over all {all_ranks} ranks, but got one over {size}"
            )
    return _bucket.reductions_text(
        [
            (each.kind, each.shape, each.value.dtype, f"gradient{number}")
            for number, each in enumerate(reductions)
        ]
    )
