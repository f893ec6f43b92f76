# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole training steps as modules for the compiler's tools.

A step is traced twice: first with autograd, into PyTorch's operators, and then without
writes to memory, into the operators that torch-mlir lowers to linalg.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.nn.attention import SDPBackend, sdpa_kernel

from ddphook._errors import InvalidArgumentError, UnsupportedError
from ddphook.torch import _decompositions, _private, _random
from ddphook.torch._inputs import Inputs
from ddphook.torch._lowering import Lowering, Partition, import_torch_mlir
from ddphook.torch._lowering import known_decompositions, started
from ddphook.torch._next_step import check_next
from ddphook.torch._private import OpOverload, collectives, pytree
from ddphook.torch._program_calls import ProgramCalls, innermost

_REDUCTIONS = (collectives.all_reduce.default, collectives.reduce_scatter_tensor.default)


@dataclasses.dataclass
class Step:
    """A captured step: PyTorch's operators on tensors, none of which writes to memory.

    `inputs` and `outputs` are the locations of arguments and results in what the step
    takes and returns: ``[0]['fc.weight']``. For an optimizer that has not taken a step yet,
    an argument's text also has its initial value. `names` are those of gradients'
    reductions, by the nodes that start them; `groups` has the partition of the ranks that
    each process group belongs to.
    """

    graph: torch.fx.Graph
    inputs: list[str]
    outputs: list[str]
    names: dict[torch.fx.Node, str]
    groups: dict[str, Partition]


class _Output(NamedTuple):
    """A result: its name in the module's comment, the name of the gradient that
    determines it, and the number of the input that it replaces."""

    path: str
    name: str
    changes: int | None = None


def module_text(step: Any, inputs: Sequence[Any], partitions: Sequence[Any] = ()) -> str:
    """Returns the module of a whole step, in MLIR's textual form, for ddp-import-fx.

    Raises UnsupportedError, with the line of the program, for an operator that cannot be
    compiled, and InvalidArgumentError for a step that reduces nothing.
    """
    import_torch_mlir()
    captured = capture(step, inputs, partitions)
    lines = [f"// arg{i} is {path}" for i, path in enumerate(captured.inputs)]
    lines += [f"// result{i} is {path}" for i, path in enumerate(captured.outputs)]
    lowering = Lowering(captured.graph, captured.names, captured.groups)
    return "\n".join(lines) + "\n" + lowering.text()


def capture(step: Any, inputs: Sequence[Any], partitions: Sequence[Any] = ()) -> Step:
    """Traces a step with example arguments."""
    if not isinstance(partitions, Sequence):
        raise InvalidArgumentError(f"expected a list of partitions, but got {partitions!r}")
    lists = [_check_partition(partition) for partition in partitions]
    taken = Inputs(inputs, step)
    function, lines = _as_function(step)
    outputs: list[_Output] = []
    draws = _random.Draws()
    table = _decompositions.before_functionalization()

    def flat(*arguments: torch.Tensor) -> list[torch.Tensor]:
        with taken.given(arguments) as given:
            with lines, draws:
                result = function(*given)
            states = taken.states()
        leaves = pytree.tree_flatten_with_path(result)[0]
        outputs[:] = [
            _Output(pytree.keystr(path) or "what the step returns", _name(path))
            for path, _ in leaves
        ]
        outputs.extend(
            _Output(f"{taken.paths[number]} afterwards", taken.names[number], number)
            for number in states
        )
        return [value for _, value in leaves] + list(states.values())

    def trace(arguments: list[torch.Tensor]) -> torch.fx.GraphModule:
        return _functional(_trace(flat, arguments, table), arguments, draws)

    with contextlib.ExitStack() as stack:
        # A backend of torch.compile has its own trace, with dynamic shapes.
        stack.enter_context(_private.tracing(None))
        with _private.FakeTensorMode(static_shapes=True):
            # Dynamic sizes become the example's numbers.
            values = [
                torch.empty_strided(
                    [*map(int, value.shape)], [*map(int, value.stride())], dtype=value.dtype
                )
                for value in taken.tensors
            ]
        # Attention becomes matrix products and a softmax: its other operators are opaque.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        # A part of the step that is compiled separately runs uncompiled.
        stack.enter_context(_private.dynamo.config.patch(error_on_nested_fx_trace=False))
        # An LSTM becomes cells.
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(preserve_node_meta())
        # As under torch.compile, dropout then stays one operator.
        stack.enter_context(_private.enable_python_dispatcher())
        module = trace(values)
        graph = module.graph
        _check_operators(graph)
        check_next(module, values, taken, trace)
    places = [
        path + _describe_first(taken.first.get(number))
        for number, path in enumerate(taken.paths)
    ]
    if any(map(_random.is_seed, graph.nodes)):
        outputs.append(_Output("the seed of the next step", ""))
        places.append("the seed of random numbers, of each rank another: rank << 32")
    outputs = _drop_unchanged(graph, outputs)
    for output, value in zip(outputs, _results(graph)):
        if not isinstance(value, torch.fx.Node):
            raise UnsupportedError(
                f"expected tensors as results, but {output.path} is {value!r}"
            )
    groups = {}
    for node in graph.nodes:
        if name := (started(node) or {}).get("group_name"):
            groups[name] = _find_partition(node, name, lists)
    if not groups:
        raise InvalidArgumentError("expected a step with a reduction")
    names = _gradient_names(graph, [output.name for output in outputs])
    return Step(graph, places, [output.path for output in outputs], names, groups)


def _describe_first(value: torch.Tensor | None) -> str:
    if value is None or not value.numel():
        return ""
    number = value.flatten()[0].item()
    is_one = bool((value == number).all())
    return f", at first {number:g}" if is_one else ", at first of several values"


def _as_function(step: Any) -> tuple[Any, Any]:
    """Returns the function that computes a step, and the mode that records its lines."""
    if isinstance(step, torch.export.ExportedProgram):
        step = step.module()
    if isinstance(step, torch.fx.GraphModule):
        # The interpreter runs the nodes one by one; they have their lines already.
        return torch.fx.Interpreter(step).run, contextlib.nullcontext()
    return step, ProgramCalls(until=__file__)


_HERE = Path(__file__).parent


def _trace(function: Any, values: list[torch.Tensor], table: Any) -> Any:
    try:
        return make_fx(function, decomposition_table=table, tracing_mode="fake")(*values)
    except (
        _private.DataDependentOutputException,
        _private.DynamicOutputShapeException,
    ) as error:
        raise UnsupportedError(
            "expected a step in which no size and no Python number depends on the values "
            f"of tensors, but one does because of '{error.func}' ({_place_of(error)})"
        ) from error
    except AssertionError as error:
        if "FakeTensor" not in str(error):
            raise
        # The error's text contains the tensor, which may be long.
        found = re.search(r"Found in ([\w.]+)", str(error))
        by = f" by '{found[1]}'" if found else ""
        raise UnsupportedError(
            "expected a step that gets all its tensors as inputs, including models, but "
            f"it uses one of its own{by} ({_place_of(error)}); give it to the step, or the "
            "model that it is in"
        ) from error


def _place_of(error: BaseException) -> str:
    """Returns the line of the program that raised an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, str(frame.lineno)) for frame in reversed(frames)]
    return innermost(p for p in places if Path(p[0]).parent != _HERE)


def _functional(traced: Any, values: list[torch.Tensor], draws: _random.Draws) -> Any:
    """Returns the trace without writes, in operators that torch-mlir knows."""
    # Unused draws do not count.
    traced.graph.eliminate_dead_code(_is_needed)
    table = {**known_decompositions(), **_decompositions.for_linalg()}
    run = torch.func.functionalize(_random.seeded(traced, draws), remove="mutations")
    seed = torch.zeros((), dtype=torch.int64)
    make = make_fx(run, decomposition_table=table, tracing_mode="fake")
    try:
        module = make(*values, seed)
    except RuntimeError as error:
        if "frozen storage" not in str(error):
            raise
        raise UnsupportedError(
            f"expected no write to the former .data of a tensor ({_place_in(str(error))}); "
            "assign a clone() of it"
        ) from error
    module.graph.eliminate_dead_code(_is_needed)
    _random.keep_seed(module)
    return module


def _is_needed(node: torch.fx.Node) -> bool:
    """Returns whether a node has an effect even if its result is unused."""
    if isinstance(node.target, OpOverload):
        is_collective = node.target.namespace.startswith(_private.COLLECTIVES)
        return is_collective or _private.writes_memory(node)
    return node.op in ("placeholder", "output")


def _results(graph: torch.fx.Graph) -> Any:
    return graph.output_node().args[0]


def _drop_unchanged(graph: torch.fx.Graph, outputs: list[_Output]) -> list[_Output]:
    """Removes the results that are a model's tensors unchanged by the step."""
    inputs = graph.find_nodes(op="placeholder")
    aten = torch.ops.aten
    copies = (aten.clone.default, aten.detach.default, aten.alias.default)
    kept = []
    for output, value in zip(outputs, _results(graph)):
        source = value
        while isinstance(source, torch.fx.Node) and source.target in copies:
            source = source.args[0]
        if output.changes is None or source is not inputs[output.changes]:
            kept.append((output, value))
    graph.output_node().args = ([value for _, value in kept],)
    return [output for output, _ in kept]


def _check_operators(graph: torch.fx.Graph) -> None:
    """Refuses operators that torch-mlir would silently drop or lower incorrectly."""
    for node in graph.nodes:
        if node.op == "get_attr":
            raise UnsupportedError(
                "expected a step that gets all its tensors as inputs, but it has "
                f"one of its own: {_describe(node)}"
            )
        if isinstance(node.target, OpOverload):
            if _private.writes_memory(node):
                raise UnsupportedError(
                    f"expected operators without side effects, but {_describe(node)} "
                    "writes to memory"
                )
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                raise UnsupportedError(
                    "expected uniform random numbers from PyTorch's default generator, "
                    f"such as those of dropout, but got {_describe(node)}"
                )


def _check_partition(partition: Any) -> Partition:
    """Returns groups of equal size in which each rank of the job occurs once."""
    try:
        lists = [[int(rank) for rank in ranks] for ranks in partition]
    except TypeError:
        lists = []
    world = dist.get_world_size()
    is_even = len({len(ranks) for ranks in lists}) == 1
    if not is_even or sorted(sum(lists, [])) != list(range(world)):
        raise InvalidArgumentError(
            "expected a partition to be equally long lists of ranks with each of the "
            f"{world} ranks once, but got {partition!r}"
        )
    return lists


def _find_partition(
    node: torch.fx.Node, name: str, partitions: list[Partition]
) -> Partition:
    ranks = dist.get_process_group_ranks(_private.resolve_process_group(name))
    if len(ranks) == dist.get_world_size():
        return [ranks]
    for partition in partitions:
        if any(sorted(part) == sorted(ranks) for part in partition):
            return partition
    raise UnsupportedError(
        f"expected reductions over all {dist.get_world_size()} ranks, or over groups of "
        f"one of the partitions, but {_describe(node)} reduces over the ranks {ranks}"
    )


def _name(path: tuple[Any, ...]) -> str:
    """Returns a parameter's name: the strings among the keys that lead to it."""
    keys = [getattr(key, "key", getattr(key, "name", None)) for key in path]
    return ".".join(key for key in keys if isinstance(key, str))


def _gradient_names(graph: torch.fx.Graph, outputs: list[str]) -> dict[torch.fx.Node, str]:
    """Returns names of gradients: each is named after the first result of its shape that
    depends on it through values with the same number of elements.

    This result is the parameter's new value. A gradient without such a result, or whose
    name is taken, is named ``gradient<number>``.
    """
    results: dict[torch.fx.Node, str] = {}
    for value, name in zip(_results(graph), outputs):
        results.setdefault(value, name)
    names: dict[torch.fx.Node, str] = {}
    taken = set()
    for start in graph.nodes:
        if start.target not in _REDUCTIONS or not (shape := start.meta["val"].shape):
            continue
        reached, work = set[torch.fx.Node](), [start]
        while work:
            node = work.pop()
            value = node.meta.get("val")
            has_size = isinstance(value, torch.Tensor) and value.numel() == shape.numel()
            if has_size and node not in reached:
                reached.add(node)
                work += node.users
        ends = (n for n in results if n in reached and n.meta["val"].shape == shape)
        name = results.get(next(ends, start), "")
        if not name or name in taken:
            name = f"gradient{len(names)}"
        taken.add(name)
        names[start] = name
    return names


def _describe(node: torch.fx.Node) -> str:
    return f"'{node.target}' ({_place_in(node.meta.get('stack_trace') or '')})"


def _place_in(stack: str) -> str:
    """Returns the innermost line of the program in a stack."""
    return innermost(reversed(re.findall(r'File "([^"]+)", line (\d+)', stack)))
