# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaces the all-reduces and reduce-scatters of a graph by compiled modules.

Works on the functional graph that Inductor has after autograd. A reduction is
`_c10d_functional.all_reduce` or `reduce_scatter_tensor` and its `wait_tensor`. An average
is an `avg`, or a sum divided by the group's size, either before, as DDP does it, or after.
Reductions are put into buckets in the order in which the graph computes their gradients. A
bucket starts right after its last gradient and is awaited before something is computed of
an average and of other values, so that it overlaps with the nodes in between. Neither a
bucket nor a use of its averages moves across a write to memory.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ddphook._cache import warn_once
from ddphook._errors import UnsupportedError
from ddphook.torch import _ops
from ddphook.torch._bucket import ELEMENT_TYPES, WHOLE_GROUP, Layout, Scattered
from ddphook.torch._device import KINDS
from ddphook.torch._hooks import check_scatters
from ddphook.torch._private import OpOverload, collectives, stable_topological_sort
from ddphook.torch._private import operator_name
from ddphook.torch._private import resolve_process_group as group_of_name
from ddphook.torch._private import writes_memory as _writes

_log = logging.getLogger("ddphook")
_aten = torch.ops.aten
# The nodes that start reductions.
_STARTS = (
    collectives.all_reduce.default,
    collectives.all_reduce_coalesced.default,
    collectives.reduce_scatter_tensor.default,
    collectives.reduce_scatter_tensor_coalesced.default,
)


@dataclasses.dataclass
class Reduction:
    """A gradient and its reduction.

    `gradient` computes it, and `reader` reads it to divide or reduce it; `write` is the last
    write to memory in between, which may change it. `result` is its sum or average, as `kind`
    says, over the process group of this name. The shape is in numbers. A reduce-scatter has
    `parts` of rows, of which each rank gets its own; an all-reduce has one part.
    """

    gradient: torch.fx.Node
    reader: torch.fx.Node
    result: torch.fx.Node
    kind: str
    group: str
    shape: tuple[int, ...]
    parts: int = 1
    write: torch.fx.Node | None = None

    @property
    def complete(self) -> torch.fx.Node:
        """The node after which the gradient has its value."""
        return self.write or self.gradient

    @property
    def value(self) -> torch.Tensor:
        return self.gradient.meta["val"]

    @property
    def key(self) -> Any:
        """The common properties of the reductions in one bucket, which is one array."""
        value = self.value
        return self.group, self.kind, value.dtype, self.parts, value.device


def rewrite(
    graph: torch.fx.Graph,
    pipeline: str,
    timeout_s: float,
    bucket_bytes: int = 25 << 20,  # DDP's bucket_cap_mb.
    owner: str = "",
    left_alone: list[str] | None = None,
    shard_pipeline: str = "",
) -> int:
    """Replaces all reductions of gradients in a graph, and returns their number.

    The graph is functional and normalized, with fake values as ``meta["val"]``. Graphs
    with different owners share no states. Other reductions are left alone: `left_alone`
    receives the reasons, and the log has them. `shard_pipeline` is for reduce-scatters, by
    default `pipeline`. Raises UnsupportedError if its hook cannot reduce parts.
    """
    reductions = list(find_reductions(graph, left_alone))
    # Gradients are numbered per group, since its ranks may be in other groups, too.
    numbers: collections.Counter[str] = collections.Counter()
    barriers = _barriers(graph, reductions)
    _find_writes(graph, reductions)
    replaced = {reduction.result for reduction in reductions}
    for node in list(replaced):
        while node.target not in _STARTS:
            node = node.all_input_nodes[0]
            replaced.add(node)
    buckets = _buckets(graph, reductions, barriers, bucket_bytes)
    for number, bucket in enumerate(buckets, 1):
        group, how = bucket[0].group, pipeline
        if bucket[0].parts > 1:
            how = shard_pipeline or pipeline
            check_scatters(how, "; give 'shard_hook', which reduce-scatters then have")
        later = next((b for b in buckets[number:] if b[0].key == bucket[0].key), None)
        averages = _replace(graph, bucket, later, barriers, numbers[group], how, timeout_s, owner)
        for reduction in reductions:
            # An average may be reduced again.
            reduction.gradient = averages.get(reduction.gradient, reduction.gradient)
        numbers[group] += len(bucket)
    for node in reversed(graph.nodes):
        # Dead-code elimination would keep waits, which count as effects.
        if node in replaced and not node.users:
            graph.erase_node(node)
    stable_topological_sort(graph)
    return len(reductions)


def find_reductions(
    graph: torch.fx.Graph, left_alone: list[str] | None = None
) -> Iterator[Reduction]:
    """Yields the reductions of a graph that modules can replace, in graph order.

    Adds the reasons against other reductions to `left_alone`.
    """
    results: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.args and operator_name(node.args[0]) == "reduce_scatter_tensor_out":
            raise UnsupportedError("expected reduce_scatter_tensor, but got its form with out=")
        if node.target not in _STARTS:
            continue
        starts = [(node, node.args[0])]
        if not isinstance(node.args[0], torch.fx.Node):
            items = [user for user in node.users if user.target is operator.getitem]
            starts = [(item, node.args[0][item.args[1]]) for item in items]
        for started, gradient in starts:
            found = _understand(node, started, gradient, results)
            if isinstance(found, Reduction):
                results.add(found.result)
                yield found
                continue
            _log.info("left alone: %s of %s: %s", started.name, gradient.name, found)
            if left_alone is not None:
                left_alone.append(found)


def _understand(
    node: Any, started: torch.fx.Node, gradient: torch.fx.Node, results: set[torch.fx.Node]
) -> Reduction | str:
    """Returns the reduction of `gradient` by `node` whose wait is the user of `started`, or
    why it is left alone.

    If `gradient` is among the `results` of other reductions, its division is theirs.
    """
    _, kind, *sizes, group = node.args
    parts = sizes[0] if sizes else 1
    value = gradient.meta["val"]
    result, *others = started.users or [None]
    if result is None:
        return "its result is never awaited"
    if others or result.target is not collectives.wait_tensor.default:
        return "its result is used before it is awaited"
    if kind not in ("sum", "avg"):
        return f"it is a '{kind}'"
    if value.dtype not in ELEMENT_TYPES:
        return f"its type is {value.dtype}"
    if value.dim() == 0:
        return "it is a scalar, such as a loss"
    if dist.get_backend(group_of_name(group)) == "ddphook":
        return "its process group has a hook of its own"
    if value.device.type not in KINDS:
        warn_once(
            f"gradients on {value.device} are reduced without compression: only those on "
            "CPUs and on CUDA devices can be compressed"
        )
        return f"it is in the memory of {value.device}"
    shape = _known_shape(gradient)
    if shape is None or parts > 1 and 0 in shape:
        return "its shape depends on data" if shape is None else "it is empty"
    if kind == "avg":
        return Reduction(gradient, node, result, "mean", group, shape, parts)
    size = group_of_name(group).size()
    divided = None if gradient in results else _divided_by(gradient, size)
    if divided is not None and len(gradient.users) == 1:
        return Reduction(divided, gradient, result, "mean", group, shape, parts)
    users = list(result.users)
    if len(users) == 1 and _divided_by(users[0], size) is result:
        return Reduction(gradient, node, users[0], "mean", group, shape, parts)
    return Reduction(gradient, node, result, "sum", group, shape, parts)


def _known_shape(gradient: torch.fx.Node) -> tuple[int, ...] | None:
    """Returns the gradient's present shape; none, with a warning, if it has none yet.

    A module is compiled for fixed sizes. A size that TorchDynamo considers dynamic
    becomes fixed here, as a guard of the compiled step, so that other sizes get
    another step.
    """
    sizes = gradient.meta["val"].shape
    if all(isinstance(size, int) for size in sizes):
        return tuple(sizes)
    try:
        shape = tuple(map(int, sizes))
    except GuardOnDataDependentSymNode:
        warn_once(
            f"a gradient of the shape {list(sizes)}, which depends on data, is reduced "
            "without compression, because modules have fixed shapes"
        )
        return None
    warn_once(
        f"the step is compiled for a gradient of the shape {list(shape)}, although that "
        "may change: it is compiled again, with its own states, for each other shape"
    )
    return shape


def _divided_by(node: torch.fx.Node, size: int) -> torch.fx.Node | None:
    """Returns what `node` divides by the number of ranks, or none."""
    left, number, *_ = (*node.args, None, None)
    if not isinstance(left, torch.fx.Node) or not isinstance(number, (int, float)):
        return None
    is_quotient = node.target is _aten.div.Tensor and number == size
    is_product = node.target is _aten.mul.Tensor and number * size == 1
    if not (is_quotient or is_product):
        return None
    return left if left.meta["val"].dtype == node.meta["val"].dtype else None


def _barriers(graph: torch.fx.Graph, reductions: list[Reduction]) -> set[torch.fx.Node]:
    """Returns the nodes that no bucket, and no use of an average, moves across: writes to
    memory, draws that depend on an average, since draws keep their order, and the output."""
    needing = {reduction.result for reduction in reductions}
    barriers = set()
    for node in graph.nodes:
        if not needing.isdisjoint(node.all_input_nodes):
            needing.add(node)
        if _writes(node) or node.op == "output" or _draws(node) and node in needing:
            barriers.add(node)
    return barriers


def _find_writes(graph: torch.fx.Graph, reductions: list[Reduction]) -> None:
    """Sets `write` of the reductions: a gradient may be a view of what is written."""
    last: torch.fx.Node | None = None
    written: dict[torch.fx.Node, torch.fx.Node | None] = {}
    readers = collections.defaultdict(list)
    for reduction in reductions:
        readers[reduction.reader].append(reduction)
    for node in graph.nodes:
        for reduction in readers[node]:
            if last is not written[reduction.gradient]:
                reduction.write = last
        last = node if _writes(node) else last
        written[node] = last


def _buckets(
    graph: torch.fx.Graph,
    reductions: list[Reduction],
    barriers: set[torch.fx.Node],
    bucket_bytes: int,
) -> list[list[Reduction]]:
    """Partitions the reductions into buckets, for each key separately.

    A bucket ends before a gradient that depends on one of its averages if it would
    otherwise wait for itself, directly or through another bucket, and before a barrier. In
    the result, a bucket depends only on earlier ones. Only then are buckets cut by size: the
    sizes in one group, such as those of uneven shards, may differ between ranks of another.
    """
    completed: dict[torch.fx.Node, list[Reduction]] = {}
    for reduction in reductions:
        completed.setdefault(reduction.complete, []).append(reduction)
    closed: list[list[Reduction]] = []
    open_buckets: dict[Any, list[Reduction]] = {}
    # For each open bucket, the nodes that need one of its averages.
    dependent: dict[Any, set[torch.fx.Node]] = {}

    def needed(bucket: list[Reduction]) -> list[Any]:
        """Returns the keys of the open buckets that a bucket waits for."""
        gradients = {member.gradient for member in bucket}
        return [key for key, nodes in dependent.items() if not nodes.isdisjoint(gradients)]

    def close(key: Any) -> None:
        """Closes an open bucket, after those that it waits for."""
        del dependent[key]
        bucket = open_buckets.pop(key)
        while keys := needed(bucket):
            close(keys[0])
        closed.append(bucket)

    for node in graph.nodes:
        for nodes in dependent.values():
            if not nodes.isdisjoint(node.all_input_nodes):
                nodes.add(node)
        while node in barriers and open_buckets:
            close(next(iter(open_buckets)))
        for reduction in completed.get(node, ()):
            key = reduction.key
            for other in needed([reduction]):
                if other in open_buckets and key in (other, *needed(open_buckets[other])):
                    close(other)
            bucket = open_buckets.setdefault(key, [])
            bucket.append(reduction)
            waiting = dependent.setdefault(key, set())
            waiting.add(reduction.result)
            for other in needed(bucket):
                dependent[other] |= waiting
    pieces: list[list[Reduction]] = []
    for bucket in closed:
        size = bucket_bytes
        for member in bucket:
            if size >= bucket_bytes:
                pieces.append([])
                size = 0
            pieces[-1].append(member)
            size += math.prod(member.shape) * member.value.element_size()
    return pieces


def _replace(
    graph: torch.fx.Graph,
    bucket: list[Reduction],
    later: list[Reduction] | None,
    barriers: set[torch.fx.Node],
    first: int,
    pipeline: str,
    timeout_s: float,
    owner: str,
) -> dict[torch.fx.Node, torch.fx.Node]:
    """Replaces a bucket's reductions by one start and one wait; `later` is the next bucket
    with its key.

    A later topological sort moves nodes that use an average before it is awaited. Returns
    the replacement of each result.
    """
    order = {node: number for number, node in enumerate(graph.nodes)}
    gradients = [member.gradient for member in bucket]
    place, ends = _start_of(bucket, order), _ends_of(bucket, later, barriers, order)
    group, kind, dtype, parts, device = bucket[0].key
    value, shapes = bucket[0].value, [member.shape for member in bucket]
    names = tuple(f"gradient{number}" for number in range(first, first + len(bucket)))
    layout: Any = Layout(0, names, tuple(shapes), dtype, kind=kind)
    if parts > 1:
        size = sum(map(math.prod, shapes))
        layout = Scattered(0, (names,), (size,), parts, dtype, kind)
        shapes = [(shape[0] // parts, *shape[1:]) for shape in shapes]
    text = _ops.quoted(layout.text(WHOLE_GROUP))
    with graph.inserting_before(place):
        started = graph.call_function(
            torch.ops.ddphook.start.default,
            (gradients, parts, owner, text, pipeline, group, timeout_s),
        )
    started.meta["val"] = value.new_empty((), dtype=torch.int64, device="cpu")
    place = min((n for n in ends if order[n] >= order[place]), key=order.__getitem__)
    averages = {}
    with graph.inserting_before(place):
        sizes, ranks = [size for shape in shapes for size in shape], list(map(len, shapes))
        what = started, sizes, ranks, str(dtype).removeprefix("torch."), device
        waited = graph.call_function(torch.ops.ddphook.wait.default, what)
        waited.meta["val"] = [value.new_empty(shape) for shape in shapes]
        for number, member in enumerate(bucket):
            average = graph.call_function(operator.getitem, (waited, number))
            average.meta["val"] = waited.meta["val"][number]
            member.result.replace_all_uses_with(average)
            averages[member.result] = average
    return averages


def _start_of(bucket: list[Reduction], order: dict[torch.fx.Node, int]) -> torch.fx.Node:
    """Returns the node before which a bucket starts."""
    place = max((member.complete for member in bucket), key=order.__getitem__).next
    while place.op == "placeholder":
        place = place.next
    return place


def _ends_of(
    bucket: list[Reduction],
    later: list[Reduction] | None,
    barriers: set[torch.fx.Node],
    order: dict[torch.fx.Node, int],
) -> list[torch.fx.Node]:
    """Returns nodes before each of which a bucket has to be awaited.

    They compute something of an average and of other values, or are barriers. Gradients that
    will be sharded are large, so few of them are in flight: they are awaited when those of
    the `later` bucket are complete.
    """
    # The averages, and what is computed of them alone.
    own, is_sharded = {member.result for member in bucket}, bucket[0].parts > 1
    ends: list[torch.fx.Node] = []
    for node in order:
        inputs = node.all_input_nodes
        if node in barriers:
            ends.append(node)
        elif node.target in _STARTS:
            is_sharded |= not own.isdisjoint(inputs)
        elif inputs and own.issuperset(inputs):
            own.add(node)
        elif not own.isdisjoint(inputs):
            ends.append(node)
    return ends + ([_start_of(later, order)] if later and is_sharded else [])


def _draws(node: torch.fx.Node) -> bool:
    """Returns whether a node draws from PyTorch's generator, itself or by an argument, as
    the operator that also saves the generator's state does."""
    seeded, places = torch.Tag.nondeterministic_seeded, (node.target, *node.args)
    return any(isinstance(each, OpOverload) and seeded in each.tags for each in places)
