# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules, their inputs, and their expected results.

A Module is a list of functions whose arguments are gradients; it prints as MLIR like
that which users write by hand. `expected` packs the gradients into buckets as
`ddp-bucketize` documents it, runs a reference on every bucket, and unpacks. Buckets
affect the numbers: from W = 3 on, the rank order of a sum depends on an element's
position in its bucket.
"""

import itertools
import math
import re
from dataclasses import dataclass, field

import numpy as np

import model
from tensors import DTYPES, Tensor, difference, itemsize

MIB = 2**20


@dataclass(frozen=True)
class Grad:
    shape: tuple
    dtype: str = "f32"
    reduction: str = "mean"
    group: str = "dp"
    values: str = "gaussian"
    hook: tuple = None

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def type(self):
        return "tensor<" + "x".join([*map(str, self.shape), self.dtype]) + ">"


@dataclass
class Function:
    """A function of a module. The `body` "plain" reduces the arguments in their order.
    "produced" reduces the negated arguments, negated in `ready` order but reduced in their
    own. "consumed" negates every result before it reduces the next argument."""

    name: str
    grads: list
    hook: tuple = None
    body: str = "plain"
    ready: list = None


@dataclass
class Module:
    functions: list
    groups: dict = field(default_factory=lambda: {"dp": ""})
    hook: tuple = None

    def function(self, name):
        (function,) = [f for f in self.functions if f.name == name]
        return function

    def text(self):
        attributes = f" attributes {_attribute(self.hook)}" if self.hook else ""
        lines = [f"module{attributes} {{"]
        for group, properties in self.groups.items():
            lines.append(f"  ddp.process_group @{group} {properties}".rstrip())
        for function in self.functions:
            lines += _function_text(function)
        return "\n".join(lines + ["}", ""])


def hook_text(hook):
    if hook[0] == "wrap":
        return f"#ddp.wrap<{hook[1]}, {hook_text(hook[2])}>"
    if hook[0] == "allreduce_and_upcast" and len(hook) > 1:
        return f"#ddp.allreduce_and_upcast<reduce_dtype = {hook[1]}>"
    if len(hook) > 1:
        parameter, value = {
            "fp16": "accumulate",
            "bf16": "accumulate",
            "quantization_perchannel": "bucket_size",
        }.get(hook[0], "block_size"), hook[1]
        more = ", error_feedback = false" if hook[0] == "int4" else ""
        if len(hook) > 2:
            more += f", format = {hook[2]}"
        return f"#ddp.{hook[0]}<{parameter} = {value}{more}>"
    return f"#ddp.{hook[0]}"


def hook_name(hook):
    """Returns a short name for test ids."""
    return "-".join(
        hook_name(part) if isinstance(part, tuple) else str(part) for part in hook
    )


def _attribute(hook):
    return f"{{ddp.hook = {hook_text(hook)}}}"


def _function_text(function):
    grads = function.grads
    types = ", ".join(grad.type for grad in grads)
    arguments = ", ".join(f"%g{i}: {g.type}" for i, g in enumerate(grads))
    attributes = f" attributes {_attribute(function.hook)}" if function.hook else ""
    yield f"  func.func @{function.name}({arguments}) -> ({types}){attributes} {{"
    result, gradient = "r", "g"
    if function.body == "produced":
        gradient = "n"
        for i in function.ready:
            yield from _negation(grads[i].type, f"%g{i}", f"%n{i}")
    for i, grad in enumerate(grads):
        attributes = f" {_attribute(grad.hook)}" if grad.hook else ""
        yield (
            f"    %r{i} = ddp.all_reduce {grad.reduction} %{gradient}{i} on "
            f"@{grad.group}{attributes} : {grad.type}"
        )
        if function.body == "consumed":
            result = "n"
            yield from _negation(grad.type, f"%r{i}", f"%n{i}")
    results = ", ".join(f"%{result}{i}" for i in range(len(grads)))
    yield f"    return {results} : {types}"
    yield "  }"


def _negation(type, operand, result):
    yield f"    {result}_init = tensor.empty() : {type}"
    yield (
        f"    {result} = linalg.negf ins({operand} : {type}) "
        f"outs({result}_init : {type}) -> {type}"
    )


def _negated(tensor):
    storage = tensor.data
    if tensor.dtype == "bf16":
        return Tensor("bf16", storage ^ np.uint16(0x8000))
    return Tensor(tensor.dtype, np.negative(storage))


@dataclass(frozen=True)
class Options:
    """The pipeline's options; None means "not given"."""

    hook: str = None
    wrapper: str = None
    bucket_cap_mb: float = None
    first_bucket_mb: float = None
    order: str = None
    exempt: str = None
    exempt_hook: str = None

    def text(self):
        return " ".join(
            f"{name.replace('_', '-')}={value}"
            for name, value in vars(self).items()
            if value is not None
        )

    @property
    def default_hook(self):
        hook = (self.hook or "allreduce",)
        element = {"fp16": "f16", "bf16": "bf16"}.get(self.wrapper)
        return ("wrap", element, hook) if element else hook

    def hook_by_name(self, name):
        """Returns the hook of an exempt gradient, or None."""
        if self.exempt and re.search(self.exempt, name):
            return (self.exempt_hook or "allreduce",)
        return None

    @property
    def limits(self):
        """The sizes in bytes at which the first and every later bucket closes."""
        cap = 25 if self.bucket_cap_mb is None else self.bucket_cap_mb
        first = self.first_bucket_mb
        if first is None:
            first = 1 if self.bucket_cap_mb is None else cap
        return tuple(
            limit if math.isinf(limit) else int(limit * MIB)
            for limit in (first, cap)
        )


def assign_buckets(grads, limits):
    """Returns lists of positions in `grads`, a list of (key, bytes): one chain of buckets
    per key; a bucket is closed after the gradient that fills it."""
    buckets, chains = [], {}
    for position, (key, size) in enumerate(grads):
        if key not in chains:
            chains[key] = [list(limits), None, 0]
        chain = chains[key]
        if chain[1] is None:
            chain[1], chain[2] = [], 0
            buckets.append(chain[1])
        chain[1].append(position)
        chain[2] += size
        if chain[2] >= chain[0][0]:
            chain[1] = None
            if len(chain[0]) > 1:
                chain[0].pop(0)
    return buckets


def buckets_of(module, function, options):
    """Returns [(grads' numbers, hook, reduction, group)] of one function."""
    order = list(range(len(function.grads)))
    if options.order == "reverse":
        order.reverse()
    elif options.order in (None, "ready") and function.body == "produced":
        order = list(function.ready)

    def key(number):
        # A hook that the IR names makes a separate bucket, even if it equals the pipeline's
        # default.
        grad = function.grads[number]
        exempt = options.hook_by_name(f"{function.name}.arg{number}")
        hook = grad.hook or exempt or function.hook or module.hook
        return grad.group, grad.dtype, grad.reduction, hook

    sized = [
        (key(i), function.grads[i].size * itemsize(function.grads[i].dtype))
        for i in order
    ]
    result = []
    for positions in assign_buckets(sized, options.limits):
        group, _, reduction, hook = sized[positions[0]][0]
        numbers = [order[p] for p in positions]
        result.append((numbers, hook or options.default_hook, reduction, group))
    return result


def model_reference(world, jobs, on_cuda=False):
    """Runs buckets through the numpy model; has the signature of the oracle's
    Pool.run_groups."""
    results = []
    for partition, hook, mean, tensors in jobs:
        out = [None] * world
        for group in partition or (tuple(range(world)),):
            values = model.run_hook(hook, [tensors[r] for r in group], mean, on_cuda)
            for rank, value in zip(group, values):
                out[rank] = value
        results.append(out)
    return results


def expected(module, name, options, inputs, reference, partitions=None):
    """Returns the expected results for `inputs` [rank][step][number], nested in the same way.
    `partitions` has the ranks of groups that are not the whole world."""
    function = module.function(name)
    if function.body == "produced":
        inputs = _map(_negated, inputs)
    world, steps = len(inputs), len(inputs[0])
    buckets = buckets_of(module, function, options)
    jobs = []
    for step in range(steps):
        for numbers, hook, reduction, group in buckets:
            dtype = function.grads[numbers[0]].dtype
            flats = [
                np.concatenate(
                    [inputs[r][step][i].data.reshape(-1) for i in numbers]
                )
                for r in range(world)
            ]
            tensors = [Tensor(dtype, flat) for flat in flats]
            partition = (partitions or {}).get(group)
            jobs.append((partition, hook, reduction == "mean", tensors))
    results = iter(reference(world, jobs))
    out = [
        [[None] * len(function.grads) for _ in range(steps)]
        for _ in range(world)
    ]
    for step in range(steps):
        for numbers, *_ in buckets:
            by_rank = next(results)
            for rank in range(world):
                offset = 0
                for i in numbers:
                    grad = function.grads[i]
                    data = by_rank[rank].data[offset : offset + grad.size]
                    out[rank][step][i] = Tensor(
                        grad.dtype, data.reshape(grad.shape)
                    )
                    offset += grad.size
    return _map(_negated, out) if function.body == "consumed" else out


def _map(change, values):
    return [[[change(t) for t in step] for step in rank] for rank in values]


def with_one_owner(inputs):
    """Returns gradients [rank][step][number] of which every element is 0 on all ranks but
    one, so that no sum depends on the order of the ranks."""
    def owned(rank, tensor):
        data = tensor.data.copy()
        flat = data.reshape(-1)
        flat[np.arange(flat.size) % len(inputs) != rank] = 0
        return Tensor(tensor.dtype, data)

    return [
        [[owned(rank, tensor) for tensor in step] for step in steps]
        for rank, steps in enumerate(inputs)
    ]


def make_inputs(module, name, world, steps, seed):
    """Returns gradients [rank][step][number], all different, from one seed."""
    grads = module.function(name).grads
    return [
        [
            [
                make_values(g, rank, np.random.default_rng([seed, rank, step, i]))
                for i, g in enumerate(grads)
            ]
            for step in range(steps)
        ]
        for rank in range(world)
    ]


# Values at which a 16-bit cast, a division or a sum could go wrong.
_SPECIAL = [
    0.0, 1.0, 2.0**-14, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 2.0**-26, 2.0**-126,
    2.0**-133, 2.0**-134, 2.0**-149, 2.0**-1074, 65504.0, 65519.9, 65519.996,
    65520.0, 65535.0, 65536.0, 131040.0, 3.3895313892515355e38,
    3.3961775292304957e38, 3.4028234663852886e38, math.inf, math.nan, 1 / 3,
    2049.0, 0.1,
]  # fmt: skip


def make_values(grad, rank, rng):
    """Returns a tensor of the gradient's class of values."""
    count = grad.size
    wide = _VALUES[grad.values](grad.dtype, count, rank, rng)
    if isinstance(wide, Tensor):
        return Tensor(grad.dtype, wide.data.reshape(grad.shape))
    tensor = model.cast(Tensor("f64", wide), grad.dtype)
    return Tensor(grad.dtype, tensor.data.reshape(grad.shape))


def _signs(count, rng):
    return rng.choice([-1.0, 1.0], count)


def _gaussian(dtype, count, rank, rng):
    return rng.standard_normal(count)


def _wide(dtype, count, rank, rng):
    low, high = {"f16": (-26, 16), "f64": (-160, 140)}.get(dtype, (-150, 128))
    exponents = rng.uniform(low, high, count)
    return _signs(count, rng) * np.exp2(exponents)


def _subnormal(dtype, count, rank, rng):
    """Returns values in the subnormal range of half, or of bfloat16 and float, or just above."""
    low, high = rng.choice([[-27, -13], [-150, -125]], count).T
    return _signs(count, rng) * np.exp2(rng.uniform(low, high))


def _special(dtype, count, rank, rng):
    with np.errstate(all="ignore"):
        return _signs(count, rng) * rng.choice(_SPECIAL, count)


def _halfway(dtype, count, rank, rng):
    """Returns values around the midpoints between neighbours of a 16-bit type: on them, off
    by less than an f32 can hold (f64 only), and off by one in f32."""
    bits = rng.integers(0, 2**16, count, dtype=np.uint16)
    half = bits.view(np.float16).astype(np.float64)
    brain = Tensor("bf16", bits)
    brain = model.cast(brain, "f64").data
    with np.errstate(all="ignore"):
        midpoint = np.where(
            rng.random(count) < 0.5,
            half + np.ldexp(0.5, np.maximum(np.frexp(half)[1] - 11, -24)),
            brain + np.ldexp(0.5, np.maximum(np.frexp(brain)[1] - 8, -133)),
        )
        nudge = rng.choice([0.0, 2.0**-40, -(2.0**-40), 2.0**-23], count)
        return midpoint * (1 + nudge)


def _bits(dtype, count, rank, rng):
    """Returns any bit patterns."""
    storage = np.dtype(DTYPES[dtype][0])
    raw = rng.integers(0, 256, count * storage.itemsize, dtype=np.uint8)
    return Tensor(dtype, raw.view(storage))


def _every_16_bit_value(dtype, count, rank, rng):
    """Returns every value of both 16-bit types with its two neighbours in f32, in another
    order on every rank. Needs an f32 gradient of 6 · 65536 elements."""
    patterns = np.arange(2**16, dtype=np.uint16)
    values = np.concatenate(
        [
            patterns.view(np.float16).astype(np.float32),
            model.cast(Tensor("bf16", patterns), "f32").data,
        ]
    )
    infinity = np.float32(np.inf)
    with np.errstate(all="ignore"):
        values = np.concatenate(
            [values, np.nextafter(values, infinity), np.nextafter(values, -infinity)]
        )
    if dtype != "f32" or count != values.size:
        raise ValueError(f"expected {values.size} f32 elements, but got {count}")
    return Tensor(dtype, values if rank == 0 else rng.permutation(values))


_VALUES = {
    "gaussian": _gaussian,
    "wide": _wide,
    "subnormal": _subnormal,
    "special": _special,
    "halfway": _halfway,
    "bits": _bits,
    "every": _every_16_bit_value,
}
# The classes that any gradient can use.
VALUES = [name for name in _VALUES if name != "every"]


SHAPES = [
    (), (1,), (7,), (0,), (1, 13), (13, 1), (0, 5), (31, 17), (2, 1, 3, 1), (127,),
    (3, 5, 7), (257, 3), (1, 1), (64, 64), (1009,), (100, 41), (7, 0, 2), (33, 129),
]  # fmt: skip
BASES = ["allreduce", "fp16", "bf16", "noop"]
WRAPPERS = [None, "fp16", "bf16"]


def everything(groups=("dp",), shapes=SHAPES):
    """Returns a module with every element type, every class of values, and both reductions."""
    shapes = itertools.cycle(shapes)
    grads = [
        Grad(next(shapes), dtype, reduction, groups[i % len(groups)], values)
        for i, (dtype, values, reduction) in enumerate(
            itertools.product(DTYPES, VALUES, ("mean", "sum"))
        )
    ]
    # Neighbours have different types, so that packing has to gather.
    grads = grads[::5] + grads[1::5] + grads[2::5] + grads[3::5] + grads[4::5]
    return Module([Function("step", grads)], {group: "" for group in groups})


def random_hook(rng, depth=0):
    if depth < 2 and rng.random() < 0.3:
        wire = str(rng.choice(["f16", "bf16"]))
        return ("wrap", wire, random_hook(rng, depth + 1))
    return (str(rng.choice(BASES)),)


def random_module(rng):
    """Returns a module and options, with hooks on some operations, functions and the module."""

    def maybe(probability, value):
        return value if rng.random() < probability else None

    groups = ["dp", "dp2", "other_group"][: rng.integers(1, 4)]
    functions = []
    for number in range(rng.integers(1, 3)):
        grads = [
            Grad(
                SHAPES[rng.integers(len(SHAPES))],
                str(rng.choice(list(DTYPES))),
                str(rng.choice(["mean", "sum"])),
                groups[rng.integers(len(groups))],
                str(rng.choice(VALUES)),
                maybe(0.2, random_hook(rng)),
            )
            for _ in range(rng.integers(1, 30))
        ]
        body = str(rng.choice(["plain", "produced", "consumed"]))
        ready = [int(i) for i in rng.permutation(len(grads))]
        hook = maybe(0.3, random_hook(rng))
        functions.append(Function(f"step{number}", grads, hook, body, ready))
    module = Module(functions, {g: "" for g in groups}, maybe(0.3, random_hook(rng)))
    options = Options(
        hook=maybe(0.7, str(rng.choice(BASES))),
        wrapper=maybe(0.3, str(rng.choice(["fp16", "bf16"]))),
        bucket_cap_mb=maybe(0.7, float(2.0 ** rng.integers(-12, 0))),
        first_bucket_mb=maybe(0.3, float(2.0 ** rng.integers(-12, 0))),
        order=maybe(0.5, str(rng.choice(["ready", "forward", "reverse"]))),
    )
    return module, options


def difference_of(got, want):
    """Compares [rank][step][number]; returns None or one line per differing tensor."""
    lines = []
    for rank, steps in enumerate(want):
        for step, tensors in enumerate(steps):
            for number, tensor in enumerate(tensors):
                report = difference(got[rank][step][number], tensor)
                if report:
                    lines.append(
                        f"rank {rank}, step {step}, gradient {number}: {report}"
                    )
    return "\n".join(lines) or None
