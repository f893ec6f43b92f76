# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which bucket a reduction is in and where: docs/parity.md, "Buckets".

From three ranks on the place decides the order of a sum. Where reductions of a
block depend on each other, buckets are split in a way that the page leaves open;
the generator asks for one bucket a gradient then (`has_chains`)."""

import math
from dataclasses import dataclass, field

import numerics
from program import COLLECTIVES, uses, walk

DEFAULT_HOOK = ("allreduce",)
WRAPPERS = {"fp16": "f16", "bf16": "bf16"}


@dataclass
class Place:
    """Of one reduction: its hook, and its elements in the message."""

    hook: tuple
    offset: int = 0
    count: int = 0


@dataclass(eq=False)
class Bucket:
    hook: tuple
    members: list = field(default_factory=list)


def size_of(type_):
    return math.prod(type_.shape)


def default_hook(options):
    """The hook that the pipeline's options name."""
    name = options.get("hook", "allreduce")
    if name == "post_local_sgd":
        hook = (
            name,
            int(options.get("start-localsgd-iter", 100)),
            options.get("subgroup"),
            options.get("post-local-gradient-allreduce", "true") == "true",
        )
    else:
        parameters = ("accumulate", "block-size", "bucket-size", "format")
        hook = (name, *(options[p] for p in parameters if p in options))
    wrapper = options.get("wrapper")
    return ("wrap", WRAPPERS[wrapper], hook) if wrapper else hook


def innermost(hook):
    while hook[0] == "wrap":
        hook = hook[2]
    return hook[0]


class Buckets:
    def __init__(self, program):
        self.program = program
        self.places = {}
        self.by_block = {}
        # Of the buckets that are written by hand.
        self.hooks = {}
        for func in program.funcs:
            self._visit(func.body, func)

    def low_rank(self, block=None):
        """PowerSGD's buckets of the program or of one block, in the order in which
        they are reduced: a bucket stands where its last gradient stood."""
        found = []
        for owner, buckets in self.by_block.items():
            if block in (None, owner):
                mine = [
                    bucket
                    for bucket in buckets
                    if innermost(bucket.hook) in ("powersgd", "batched_powersgd")
                ]
                place = owner.ops.index
                mine.sort(key=lambda bucket: max(map(place, bucket.members)))
                found += mine
        return found

    def _visit(self, block, func):
        self.by_block[block] = []
        for ops in _printed_blocks(block):
            self.by_block[block] += self._fill(ops, func)
            self._place_averages(ops)
        for op in block.ops:
            if op.kind == "bucket_reduce":
                named = op.attrs.get("hook") or func.hook or self.program.hook
                self.hooks[op] = named or default_hook(self.program.options)
            for region in op.regions:
                self._visit(region, func)

    def _fill(self, ops, func):
        options = self.program.options
        position = {r: i for i, op in enumerate(ops) for r in op.results}
        ops = [op for op in ops if op.kind == "all_reduce"]
        order = options.get("order", "ready")
        if order == "reverse":
            ops.reverse()
        if order == "ready":
            ops.sort(key=lambda op: position.get(op.operands[0], -1))
        cap = float(options.get("bucket-cap-mb", 25))
        first = float(
            options.get("first-bucket-mb", cap if "bucket-cap-mb" in options else 1)
        )
        limits = [int(first * 2**20), int(cap * 2**20)]
        open_, closed, seen = {}, [], set()
        for op in ops:
            named = op.attrs.get("hook") or func.hook or self.program.hook
            kind = (
                op.attrs["group"],
                op.result.type.dtype,
                op.attrs["reduction"],
                named,
            )
            hook = named or default_hook(options)
            bucket = open_.setdefault(kind, Bucket(hook))
            bucket.members.append(op)
            sizes = [size_of(member.result.type) for member in bucket.members]
            size = sum(sizes) * numerics.SIZES[op.result.type.dtype]
            if size >= limits[kind in seen]:
                closed.append(open_.pop(kind))
                seen.add(kind)
        buckets = closed + list(open_.values())
        for bucket in buckets:
            self._assign(bucket.members, bucket.hook)
        return buckets

    def _assign(self, members, hook):
        offset, count = 0, sum(size_of(op.result.type) for op in members)
        for op in members:
            self.places[op] = Place(hook, offset, count)
            offset += size_of(op.result.type)

    def _place_averages(self, ops):
        """Averages of one kind are one collective, as long as nothing between them
        that has effects depends on one of them, nor one of them on another."""
        open_, sets = {}, []
        for op in ops:
            for kind, (_, tainted) in list(open_.items()):
                if any(value in tainted for value in uses(op)):
                    if _has_effects(op):
                        del open_[kind]
                    tainted.update(op.results)
            if op.kind == "average":
                attrs = op.attrs
                kind = (
                    attrs["group"],
                    attrs["every"],
                    attrs["warmup"],
                    op.result.type.dtype,
                )
                if kind not in open_:
                    open_[kind] = ([], set())
                    sets.append(open_[kind][0])
                members, tainted = open_[kind]
                members.append(op)
                tainted.update(op.results)
        for members in sets:
            self._assign(members, DEFAULT_HOOK)


EFFECTS = ("average", "call", "state_load", "state_store", *COLLECTIVES)


def _has_effects(op):
    return op.kind in EFFECTS or any(
        inner.kind in EFFECTS for region in op.regions for inner in walk(region)
    )


def _printed_blocks(block):
    """The operations of each block that MLIR sees: what follows control flow that
    is written as branches between blocks is in another one."""
    printed = [[]]
    for op in block.ops:
        printed[-1].append(op)
        if op.attrs.get("cf"):
            printed.append([])
    return printed


def has_chains(program):
    """Whether a reduction of some block depends on another one of that block."""
    for func in program.funcs:
        blocks = [func.body] + [r for op in walk(func.body) for r in op.regions]
        for block in blocks:
            tainted = set()
            for op in block.ops:
                depends = any(value in tainted for value in uses(op))
                if op.kind == "average" or op.kind in COLLECTIVES:
                    if depends:
                        return True
                    depends = True
                if depends:
                    tainted.update(op.results)
    return False
