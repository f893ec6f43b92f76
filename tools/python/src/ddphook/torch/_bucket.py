# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bucket of DDP as a module for the compiler.

Only this module knows the text of a module, and the order in which its entry point
takes arrays.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch.nn.parallel import DistributedDataParallel

from ddphook._errors import InvalidArgumentError, UnsupportedError
from ddphook.torch._private import ORIG_MOD
from ddphook.torch._rules import SCALARS, Rule

ELEMENT_TYPES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}

# Larger than any bucket, so that a bucket of DDP stays one bucket.
_BUCKET_OPTIONS = "order=forward bucket-cap-mb=16777216"
_WRITABLE = "bufferization.writable = true"
# Declares the group of all ranks, whose size is not known yet.
WHOLE_GROUP = "ddp.process_group @dp\n"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The contents of a bucket, to which DDP has given a number, `index`.

    The shapes of gradients have dimensions in memory order. If an optimizer runs in the
    module, the rules say how each parameter is updated. `kind` is ``"mean"`` or ``"sum"``.
    """

    index: int
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    rules: tuple[Rule | None, ...] = ()
    kind: str = "mean"

    @classmethod
    def of(
        cls,
        index: int,
        names: Sequence[str],
        gradients: Sequence[torch.Tensor],
        rules: Sequence[Rule | None] = (),
    ) -> Layout:
        """Returns the layout of these gradients.

        Raises UnsupportedError if a gradient has gaps, or elements that share memory.
        """
        shapes = tuple(map(memory_shape, gradients))
        return cls(index, tuple(names), shapes, gradients[0].dtype, tuple(rules))

    def text(
        self, groups: str, own_hook: Callable[[str], str | None] = lambda name: None
    ) -> str:
        """Returns the module that reduces this bucket, in MLIR's textual form.

        Its entry point takes the bucket as one tensor and updates it in place: the
        compiler sees that consecutive gradients cover it. If there are rules, the
        arrays of `Optimizer.arrays` follow; they are updated in place as well, except
        for the table.

        `groups` are lines that declare ``@dp``, over which gradients are averaged, and
        the other process groups that the hook names. `own_hook` returns the hook of a
        parameter, as an attribute, or None if it has the bucket's hook.
        """
        sizes = [math.prod(shape) for shape in self.shapes]
        flat = tensor_type([flat_size(sum(sizes))], self.dtype)
        lines: tuple[list[str], ...] = [], [], []
        take, reduce, put = lines
        begin, last = 0, "%flat"
        for i, (name, shape, size) in enumerate(zip(self.names, self.shapes, sizes)):
            piece, tensor = tensor_type([size], self.dtype), tensor_type(shape, self.dtype)
            place = f"[{begin if size else 0}] [{size}] [1]"
            dimensions = [list(range(len(shape)))] if shape else []
            expand = f"tensor.expand_shape %{{}} {dimensions} output_shape {list(shape) or [1]}"
            reshapes = [expand, f"tensor.collapse_shape %{{}} {dimensions}"]
            into, back = reshapes if shape else reshapes[::-1]
            take += [
                f"%s{i} = tensor.extract_slice %flat{place} : {flat} to {piece}",
                f"%g{i} = {into.format(f's{i}')} : {piece} into {tensor}",
            ]
            hook = own_hook(name)
            reduce.append(_reduction("all_reduce", i, self.kind, name, tensor, hook))
            put += [
                f"%p{i} = {back.format(f'r{i}')} : {tensor} into {piece}",
                f"%o{i} = tensor.insert_slice %p{i} into {last}{place} : {piece} into {flat}",
            ]
            begin, last = begin + size, f"%o{i}"
        update = _Updates(self, sizes)
        return groups + _function(
            "bucket",
            [f"%flat: {flat} {{{_WRITABLE}}}", *update.arguments],
            [*take, *reduce, *put, *update.lines],
            [last, *update.results],
            [flat, *update.types],
        )


@dataclasses.dataclass(frozen=True)
class Scattered:
    """Flat arrays of which each rank gets its part of the sum or mean.

    An array holds gradients of one parameter group, whose names it has. With another
    hook for exempt parameters, theirs are in an array of their own. If `keeps` is true, the
    module leaves the arrays as they are.
    """

    index: int
    members: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]
    parts: int
    dtype: torch.dtype
    kind: str
    keeps: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays in states."""
        return tuple(map(", ".join, self.members))

    def text(
        self, groups: str, own_hook: Callable[[str], str | None] = lambda name: None
    ) -> str:
        """Returns the module that reduces the arrays and returns this rank's parts."""
        wholes = [tensor_type([size], self.dtype) for size in self.sizes]
        types = [tensor_type([size // self.parts], self.dtype) for size in self.sizes]
        lines = []
        for i, (name, members) in enumerate(zip(self.names, self.members)):
            how = "reduce_scatter", i, self.kind, name, f"{wholes[i]} -> {types[i]}"
            lines.append(_reduction(*how, own_hook(members[0])))
        attributes = "" if self.keeps else f" {{{_WRITABLE}}}"
        arguments = [f"%g{i}: {whole}{attributes}" for i, whole in enumerate(wholes)]
        results = [f"%r{i}" for i in range(len(types))]
        return groups + _function("bucket", arguments, lines, results, types)


@dataclasses.dataclass(frozen=True)
class Gathered:
    """An array of which each of `parts` ranks has a part, and all get the whole.

    `wire` is the type in which elements are sent. There are no states, and no names.
    """

    size: int
    parts: int
    dtype: torch.dtype
    wire: str
    index: ClassVar[int] = 0
    names: ClassVar[tuple[str, ...]] = ()

    def text(self, groups: str, _: object = None) -> str:
        """Returns the module that takes this rank's part and returns the whole."""
        part, whole = (
            tensor_type([size], self.dtype) for size in (self.size // self.parts, self.size)
        )
        gather = f"%r = ddp.all_gather %g on @dp wire {self.wire} : {part} -> {whole}"
        return groups + _function("bucket", [f"%g: {part}"], [gather], ["%r"], [whole])


def _reduction(
    operation: str, number: int, kind: str, name: str, types: str, hook: str | None = None
) -> str:
    """Returns the reduction of ``%g<number>``."""
    attributes = f"ddp.name = {_quoted(name)}"
    attributes += f", ddp.hook = {hook}" if hook else ""
    reduced = f"ddp.{operation} {kind} %g{number} on @dp {{{attributes}}}"
    return f"%r{number} = {reduced} : {types}"


def _function(
    name: str,
    arguments: Iterable[str],
    lines: Iterable[str],
    results: Iterable[str],
    types: Iterable[str],
) -> str:
    listed = ", ".join(types)
    body = "".join(f"  {line}\n" for line in lines)
    return (
        f"func.func @{name}({', '.join(arguments)}) -> ({listed}) {{\n"
        f"{body}  return {', '.join(results)} : {listed}\n}}\n"
    )


class _Updates:
    """The part of a bucket's module that updates parameters.

    The operations use the average ``%p<number>`` of each gradient. `arguments` are
    those of the entry point after the bucket; `results` are the parameters and states
    that it returns.
    """

    def __init__(self, layout: Layout, sizes: Sequence[int]) -> None:
        self.arguments: list[str] = []
        self.lines: list[str] = []
        self.results: list[str] = []
        self.types: list[str] = []
        ruled = [(i, rule) for i, rule in enumerate(layout.rules) if rule is not None]
        if not ruled:
            return
        table = tensor_type([len(ruled), SCALARS], layout.dtype)
        element = ELEMENT_TYPES[layout.dtype]
        self.lines += [f"%column{j} = arith.constant {j} : index" for j in range(SCALARS)]
        for row, (i, rule) in enumerate(ruled):
            scalars = [f"%h{i}_{j}" for j in range(rule.scalars)]
            self.lines.append(f"%row{row} = arith.constant {row} : index")
            self.lines += [
                f"{name} = tensor.extract %table[%row{row}, %column{j}] : {table}"
                for j, name in enumerate(scalars)
            ]
            piece = tensor_type([sizes[i]], layout.dtype)
            updated = [f"%u{i}_{j}" for j in range(1 + len(rule.states))]
            self.arguments += [f"{name}: {piece} {{{_WRITABLE}}}" for name in updated]
            maps = ", ".join(["affine_map<(d0) -> (d0)>"] * (1 + len(updated)))
            types = ", ".join([piece] * len(updated))
            generic = (
                f"%n{i}:{len(updated)} = linalg.generic {{indexing_maps = [{maps}], "
                f'iterator_types = ["parallel"]}} ins(%p{i} : {piece}) '
                f"outs({', '.join(updated)} : {types}) {{"
            )
            self.lines += [generic, *rule.body(scalars, element), f"}} -> ({types})"]
            self.results += [f"%n{i}#{j}" for j in range(len(updated))]
            self.types += [piece] * len(updated)
        self.arguments.append(f"%table: {table}")


def flat_size(elements: int) -> int:
    """Returns the size of a flat array for gradients of `elements` elements in total.

    MLIR takes no slice of an empty array, not even an empty slice.
    """
    return max(elements, 1)


def reductions_text(gradients: Sequence[tuple[str, Sequence[int], torch.dtype, str]]) -> str:
    """Returns a module with one function, ``@step``, which returns reduced gradients.

    They are given with their kinds (``"mean"`` or ``"sum"``) and their names in states. The
    size of the group ``@dp`` is that of the job that runs the module.
    """
    if not gradients:
        raise InvalidArgumentError("expected a step that reduces gradients")
    types = [tensor_type(shape, dtype) for _, shape, dtype, _ in gradients]
    arguments = [f"%g{i}: {type_}" for i, type_ in enumerate(types)]
    lines = [
        _reduction("all_reduce", i, kind, name, type_)
        for i, ((kind, _, _, name), type_) in enumerate(zip(gradients, types))
    ]
    results = [f"%r{i}" for i in range(len(types))]
    return WHOLE_GROUP + _function("step", arguments, lines, results, types)


def with_group_size(text: str, ranks: int) -> str:
    """Returns a module whose group ``@dp`` has a size, which some hooks depend on."""
    return text.replace(WHOLE_GROUP, f"ddp.process_group @dp size {ranks}\n", 1)


def tensor_type(shape: Iterable[int], dtype: torch.dtype) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{ELEMENT_TYPES[dtype]}>"


def example_text(has_near_group: bool, own_hook: str | None) -> str:
    """Returns a bucket of two ranks that every hook with valid options accepts.

    It is larger than any option reasonably needs. If ``own_hook`` is the hook of
    exempt parameters, one of the two parameters is exempt.
    """
    groups = with_group_size(WHOLE_GROUP, 2)
    if has_near_group:
        groups += "ddp.process_group @near ranks [[0], [1]]\n"
    layout = Layout(0, ("a", "b"), ((1 << 14, 1 << 14), (1,)), torch.float32)
    return layout.text(groups, lambda name: own_hook if name == "b" else None)


def check_cap(bucket_cap_mb: float) -> None:
    """Refuses a size of buckets that is not above 0, or not finite."""
    if not (isinstance(bucket_cap_mb, (int, float)) and 0 < bucket_cap_mb < math.inf):
        raise InvalidArgumentError(
            f"expected 'bucket_cap_mb' to be above 0, but got {bucket_cap_mb!r}"
        )


def pipeline(hook: str) -> str:
    """Returns the options of ``ddp-pipeline`` for a bucket with this hook."""
    return f"{hook} {_BUCKET_OPTIONS}"


def check_tiling(buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> None:
    """Refuses a bucket whose gradients are not consecutive or do not cover it."""
    offset = buffer.storage_offset()
    for gradient in gradients:
        if gradient.numel() > 0 and gradient.storage_offset() != offset:
            break
        offset += gradient.numel()
    if offset != buffer.storage_offset() + buffer.numel():
        raise UnsupportedError(
            "expected a bucket with consecutive gradients, but got one with gaps"
        )


def parameter_names(model: DistributedDataParallel) -> dict[torch.nn.Parameter, str]:
    """Returns the names of all parameters, which do not depend on the model's wrappers.

    They lack the ``_orig_mod`` that ``torch.compile`` adds, and a ``module`` at the
    beginning of every name, which comes from another wrapper.
    """
    parameters = dict(model.module.named_parameters())
    names = [".".join(filter(ORIG_MOD.__ne__, name.split("."))) for name in parameters]
    while names and all(name.startswith("module.") for name in names):
        names = [name.removeprefix("module.") for name in names]
    if len(set(names)) < len(names):
        names = list(parameters)
    return dict(zip(parameters.values(), names, strict=True))


def reduced_parameters(
    model: DistributedDataParallel,
) -> list[tuple[str, torch.nn.Parameter]]:
    """Returns the parameters whose gradients DDP reduces, with their names.

    Refuses one whose gradients a module cannot hold.
    """
    result = []
    names = parameter_names(model)
    for wrapped, parameter in model.module.named_parameters():
        if parameter.requires_grad and wrapped not in model.parameters_to_ignore:
            check_tensor(parameter, f"parameter '{names[parameter]}': ")
            result.append((names[parameter], parameter))
    return result


def check_tensor(tensor: torch.Tensor, whose: str = "", dtype: Any = None) -> None:
    """Refuses gradients that a module cannot hold: sparse, complex or integers.

    Gradients have the tensor's type, unless `dtype` is given. `whose` begins the message.
    """
    if tensor.layout != torch.strided:
        raise UnsupportedError(
            f"{whose}expected dense gradients, but got {tensor.layout}; use "
            "sparse=False in embeddings, or leave their parameters to DDP with "
            "_set_params_and_buffers_to_ignore_for_model"
        )
    if (dtype or tensor.dtype) not in ELEMENT_TYPES:
        raise UnsupportedError(
            f"{whose}expected gradients of float16, bfloat16, float32 or float64, but got "
            f"{dtype or tensor.dtype}"
        )


def memory_shape(gradient: torch.Tensor, what: str = "gradients") -> tuple[int, ...]:
    """Returns the shape whose row-major order is the order in memory.

    DDP gives a gradient its parameter's strides, such as those of
    ``torch.channels_last``.
    """
    order = sorted(range(gradient.dim()), key=gradient.stride, reverse=True)
    if gradient.is_contiguous():
        return tuple(gradient.shape)
    if not gradient.permute(order).is_contiguous():
        raise UnsupportedError(
            f"expected {what} without gaps, but got the shape "
            f"{tuple(gradient.shape)} with the strides {gradient.stride()}"
        )
    return tuple(gradient.shape[dimension] for dimension in order)


def _quoted(name: str) -> str:
    if name.isascii() and name.isprintable() and not set(name) & set('"\\'):
        return f'"{name}"'
    return '"' + "".join(f"\\{byte:02X}" for byte in name.encode()) + '"'
