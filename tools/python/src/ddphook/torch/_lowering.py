# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers graphs of PyTorch's operators to linalg, by torch-mlir.

Each collective becomes a call of a function without a body, which torch-mlir leaves
unchanged; ddp-import-fx turns these calls into operations of the dialect.

Only this file imports torch-mlir.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ddphook._errors import UnsupportedError
from ddphook.torch import _private, _random
from ddphook.torch._program_calls import innermost

_PREFIX = f"torch.{_private.COLLECTIVES}."
_WAIT = _private.collectives.wait_tensor.default

# torch-mlir's own pipelines, without the check at the end, which refuses calls;
# `_check_lowered` replaces it.
_TO_TORCH = "builtin.module(torchdynamo-export-to-torch-backend-pipeline)"
_TO_LINALG = (
    "builtin.module(func.func(torch-restructure-non-constant-axes,"
    "torch-fuse-quantized-ops,convert-torch-to-tmtensor,canonicalize,"
    "convert-torch-to-linalg,canonicalize,convert-torch-to-scf,"
    "convert-torch-to-arith,convert-torch-to-tensor),"
    "convert-torch-conversion-to-mlprogram,"
    "func.func(memref-expand,canonicalize,resolve-shaped-type-result-dims,cse),"
    "torch-func-backend-type-conversion,"
    "func.func(canonicalize,torch-finalizing-backend-type-conversion))"
)
# Before it, a draw is some 150 operations on whole tensors; after it, a single loop.
_FUSE = "builtin.module(func.func(linalg-fuse-elementwise-ops),lower-affine)"
# Dialects that the compiler's tools lower to machine code.
_LOWERED = ("arith", "builtin", "cf", "func", "linalg", "math", "scf", "tensor")

Partition = list[list[int]]


def import_torch_mlir() -> None:
    """Raises the exception for a step that cannot be lowered if torch-mlir is missing."""
    try:
        import torch_mlir.fx  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            "whole steps need torch-mlir, which cannot be imported "
            f"({error}); install the package torch-mlir, or export reductions "
            "alone, with whole=False"
        ) from error


def known_decompositions() -> dict[Any, Any]:
    """Returns decompositions of operators that torch-mlir supports only decomposed."""
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    return get_decomposition_table()


def started(node: torch.fx.Node) -> dict[str, Any] | None:
    """Returns the arguments of the collective that the node starts, by name, or None if
    it starts none."""
    target = node.target
    if not isinstance(target, _private.OpOverload) or target is _WAIT:
        return None
    if target.namespace != _private.COLLECTIVES:
        return None
    return dict(zip(_private.argument_names(target), node.args))


class Lowering:
    """Takes the graph of a captured step, with its names and groups, through
    torch-mlir."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        names: Mapping[torch.fx.Node, str],
        groups: Mapping[str, Partition],
    ) -> None:
        from torch_mlir import ir
        from torch_mlir.dialects import torch as dialect
        from torch_mlir.extras.fx_importer import FxImporter

        self._graph, self._names, self._groups = graph, names, groups
        self._ir = ir
        self._context = ir.Context()
        self._context.allow_unregistered_dialects = True
        dialect.register_dialect(self._context)
        importer = FxImporter(context=self._context)
        try:
            importer.import_stateless_graph(graph, func_name="step")
        except NotImplementedError as error:
            raise UnsupportedError(f"torch-mlir cannot import this step: {error}") from error
        self._module = importer.module

    def text(self) -> str:
        with self._context:
            self._call_collectives()
            for pipeline in (_TO_TORCH, _TO_LINALG):
                self._run(pipeline)
            if any(map(_random.is_seed, self._graph.nodes)):
                self._run(_FUSE)
            self._check_lowered()
            self._declare_groups()
            operation = self._module.operation
            return str(operation.get_asm(enable_debug_info=True, large_elements_limit=None))

    def _operations(self) -> Iterator[Any]:
        work = [self._module.operation]
        while work:
            for region in work.pop().regions:
                for block in region:
                    for op in block:
                        yield op.operation
                        work.append(op.operation)

    def _call_collectives(self) -> None:
        """Turns collectives into calls of functions whose attributes describe them."""
        from torch_mlir.dialects import func

        ir = self._ir
        starts = (n for n in self._graph.nodes if started(n) is not None)
        for number, op in enumerate(list(self._operations())):
            if op.name != "torch.operator":
                continue
            target = ir.StringAttr(op.attributes["name"]).value
            if not target.startswith(_PREFIX):
                raise UnsupportedError(
                    f"torch-mlir does not know '{target.removeprefix('torch.')}' "
                    f"({_place(op.location)})"
                )
            tensors = [v for v in op.operands if str(v.type).startswith("!torch.vtensor")]
            fx = {"target": ir.StringAttr.get(target.removeprefix("torch."))}
            if target != _PREFIX + "wait_tensor":
                node = next(starts)
                for key, value in (started(node) or {}).items():
                    if not isinstance(value, torch.fx.Node):
                        fx[key] = self._attribute(value)
                fx["names"] = self._attribute([self._names.get(node, "")])
            type_ = [value.type for value in tensors], [value.type for value in op.results]
            name = f"{target.removeprefix(_PREFIX)}_{number}"
            with op.location:
                with ir.InsertionPoint.at_block_begin(self._module.body):
                    function = func.FuncOp(name, type_, visibility="private")
                    function.attributes["fx"] = ir.DictAttr.get(fx)
                with ir.InsertionPoint(op):
                    call = func.CallOp(function, tensors)
            for old, new in zip(op.results, call.results):
                old.replace_all_uses_with(new)
            op.erase()

    def _attribute(self, value: str | int | Sequence[Any]) -> Any:
        ir = self._ir
        if isinstance(value, str):
            return ir.StringAttr.get(value)
        if isinstance(value, int):
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        return ir.ArrayAttr.get([self._attribute(part) for part in value])

    def _run(self, pipeline: str) -> None:
        from torch_mlir.passmanager import PassManager

        try:
            PassManager.parse(pipeline).run(self._module.operation)
        except self._ir.MLIRError as error:
            # The pass stops at constants, which remain together with their user.
            prefixes = ("torch.aten.", "torch.operator")
            left = [op for op in self._operations() if op.name.startswith(prefixes)]
            first = error.error_diagnostics[0]
            reason = f"'{left[0].name}'" if left else first.message
            location = left[0].location if left else first.location
            raise UnsupportedError(
                f"torch-mlir cannot lower {reason} ({_place(location)}) to linalg"
            ) from error

    def _check_lowered(self) -> None:
        for op in self._operations():
            if op.name.split(".")[0] not in _LOWERED:
                raise UnsupportedError(
                    f"linalg cannot express what torch-mlir makes '{op.name}' of "
                    f"({_place(op.location)})"
                )

    def _declare_groups(self) -> None:
        ir = self._ir
        for name, partition in self._groups.items():
            attributes = {
                "sym_name": self._attribute(name),
                "size": self._attribute(len(partition[0])),
            }
            # A single list is the whole job.
            if len(partition) > 1:
                lists = [ir.DenseI64ArrayAttr.get(ranks) for ranks in partition]
                attributes["ranks"] = ir.ArrayAttr.get(lists)
            with self._module.operation.location:
                with ir.InsertionPoint.at_block_begin(self._module.body):
                    ir.Operation.create("ddp.process_group", attributes=attributes)


def _place(location: Any) -> str:
    """Returns the line of the program in a location."""
    return innermost(re.findall(r'"([^"]+)":(\d+):\d+', str(location)))
