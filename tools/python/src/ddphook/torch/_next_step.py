# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a whole step, taken again, is the same step.

A step may leave gradients, modes of modules and containers of tensors, and it may change
objects that `Reached` does not inspect. So it is traced a second time with what the first
trace left, and refused if that trace computes something else: the module is the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ddphook._errors import UnsupportedError
from ddphook.torch import _private, _random
from ddphook.torch._inputs import Inputs

# Operators that use only the sizes of their tensors.
_SIZES_ONLY = ("zeros_like", "ones_like", "full_like", "empty_like")


def check_next(
    module: torch.fx.GraphModule,
    values: list[torch.Tensor],
    taken: Inputs,
    trace: Callable[[list[torch.Tensor]], torch.fx.GraphModule],
) -> None:
    """Refuses a step whose second trace differs from its first, `module`.

    That trace had the arguments `values`, and left the inputs as `taken` has them. `trace`
    traces the step again with the inputs and the gradients that the first trace left.
    """
    kept, modes = taken.kept_gradients(), dict(taken.modes)
    again = trace([*values, *(torch.empty_like(values[number]) for number in kept)])
    _check_gradients(again.graph, taken, kept)
    if taken.modes != modes:
        names = {type(m).__name__ for m in {**modes, **taken.modes}}
        raise UnsupportedError(
            "expected a step that leaves its modules in the same mode every time, but it "
            f"changes .training of {', '.join(sorted(names))} once more in the next step; "
            "say train() or eval() in each step, or before the export"
        )
    if _operators(module.graph) == _operators(again.graph):
        return
    if modes or not _computes_the_same(module, again, taken, kept):
        left = "the modes of modules" if modes else "the .grad or the tensors"
        raise UnsupportedError(
            "expected a step that computes the same every time, but the next one differs "
            f"because of {left} that the first one leaves, or of an object that export "
            "does not inspect; begin the step with zero_grad() and train(), or do what is "
            "done once before the export"
        )


def _check_gradients(graph: torch.fx.Graph, taken: Inputs, kept: Sequence[int]) -> None:
    """Refuses a step that reads gradients left by an earlier step: a parameter's
    ``.grad`` is no argument of the module."""
    inputs = graph.find_nodes(op="placeholder")
    places = [node for node in inputs if not _random.is_seed(node)]
    for number, place in zip(kept, places[len(taken.tensors) :], strict=True):
        for user in place.users:
            name = _private.operator_name(user.target)
            # The step's writes to the gradient are returned at the end.
            if name not in _SIZES_ONLY and (name != "copy_" or user.args[1] is place):
                raise UnsupportedError(
                    "expected a step that recomputes its gradients, but it uses the "
                    f"earlier .grad of {taken.paths[number]}, which would be lost; begin "
                    "the step with zero_grad()"
                )


def _operators(graph: torch.fx.Graph) -> list[str]:
    """Returns a graph's operators and their operands, except writes to arguments."""
    names: dict[torch.fx.Node, str] = {}
    operators: list[str] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = "the seed" if _random.is_seed(node) else f"argument {len(names)}"
        elif _private.operator_name(node.target) != "copy_":
            names[node] = f"value {len(operators)}"
            taken = torch.fx.map_arg((node.args, node.kwargs), lambda n: "%" + names[n])
            operators.append(f"{node.target} {taken}")
    return operators


class _Alone(torch.fx.Interpreter):
    """Runs a step as if this rank were the only one: others may not be tracing."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if getattr(target, "namespace", "").startswith(_private.COLLECTIVES):
            value = args[0]
            return value.clone() if isinstance(value, torch.Tensor) else list(value)
        return super().call_function(target, args, kwargs)


def _computes_the_same(
    first: torch.fx.GraphModule,
    again: torch.fx.GraphModule,
    taken: Inputs,
    kept: Sequence[int],
) -> bool:
    """Returns whether two traces with different operators have the same results for the
    examples, as when one adds to gradients that are zero."""
    if any(isinstance(value, _private.FakeTensor) for value in taken.tensors):
        return False

    def results_of(step: torch.fx.GraphModule, left: Sequence[int]) -> Any:
        # Each trace has its own copies, to which it may write.
        own = [value.detach().clone() for value in taken.tensors]
        gradients = [torch.full_like(own[number], 3.0) for number in left]
        seeds = map(_random.is_seed, step.graph.find_nodes(op="placeholder"))
        return _Alone(step).run(*own, *gradients, *[torch.tensor(0)] * sum(seeds))

    with torch.no_grad():
        results = results_of(first, ()), results_of(again, kept)
    try:
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6, equal_nan=True)
    except (AssertionError, TypeError):
        return False
    return True
