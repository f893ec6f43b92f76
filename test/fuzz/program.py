# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the fuzzer generates: a small program of SSA values, and its MLIR text.

A program is functions of blocks of operations, close enough to MLIR that printing
is straightforward, and small enough that model.py can evaluate it without MLIR.
Every destination-passing operation of linalg is one kind, `linalg`: indexing maps,
iterator types and a body. How it is written (linalg.generic, linalg.map, a named
operation) is an attribute that changes the text alone.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Optional

FLOATS = ("f16", "bf16", "f32", "f64")
# Kinds of operations that reduce something on their own.
COLLECTIVES = (
    "all_reduce",
    "bucket_reduce",
    "bucket_start",
    "exchange",
    "exchange_start",
)


class Type(NamedTuple):
    """A tensor, or a scalar where `shape` is None."""

    shape: Optional[tuple]
    dtype: str

    def __str__(self):
        if self.shape is None:
            return self.dtype
        return "tensor<" + "".join(f"{n}x" for n in self.shape) + self.dtype + ">"


def bucket_type(members):
    """The type of a bucket of tensors of these types. To everything but phases.py it
    is a scalar of a type that nothing else has."""
    shapes = ["x".join(map(str, member.shape)) for member in members]
    return Type(None, f"!ddp.bucket<{members[0].dtype}, [{', '.join(shapes)}]>")


@dataclass(eq=False)
class Value:
    type: Type
    # False for memory that holds nothing yet: tensor.empty.
    is_defined: bool = True
    # Of an argument: which inputs it gets, whatever is removed around it.
    number: int = -1
    # Of an argument: "replicated", "writable".
    marks: tuple = ()


@dataclass(eq=False)
class Block:
    args: list = field(default_factory=list)
    ops: list = field(default_factory=list)
    yields: list = field(default_factory=list)


@dataclass(eq=False)
class Op:
    kind: str
    operands: list
    results: list
    attrs: dict = field(default_factory=dict)
    regions: list = field(default_factory=list)

    @property
    def result(self):
        return self.results[0]


@dataclass(eq=False)
class Func:
    name: str
    body: Block
    is_private: bool = False
    hook: Optional[tuple] = None
    # Numbers of results that are marked `ddp.gradient`.
    gradients: tuple = ()
    # Whether it, or what it calls, holds a collective.
    communicates: bool = False


@dataclass(eq=False)
class Program:
    seed: int
    funcs: list
    entry: str
    # Name: lists of ranks, or None for all ranks.
    groups: dict
    world: int = 1
    steps: int = 1
    # The node of each rank, as a letter; empty: all are on this machine. And the
    # groups that say that they are hierarchical.
    nodes: str = ""
    hierarchical: tuple = ()
    # Whether groups say their size, for collectives on parts (exchanges.py).
    has_exchanges: bool = False
    # What is put into tensors: see inputs.py.
    values: str = "normal"
    options: dict = field(default_factory=dict)
    hook: Optional[tuple] = None
    # Of each value that is a bucket: the types of its tensors.
    members: dict = field(default_factory=dict)
    # Name: type and placement, as they are printed.
    states: dict = field(default_factory=dict)
    # For the generator: functions that may be called, how often an operation has a
    # hook of its own, and whether hooks may leave ranks with different averages.
    callees: list = field(default_factory=list)
    own_hooks: float = 0
    keeps_ranks_apart: bool = False
    bucket_count: int = 0

    def func(self, name):
        return next(f for f in self.funcs if f.name == name)

    def like(self, value):
        """A new value of the same type."""
        other = Value(value.type)
        if value in self.members:
            self.members[other] = self.members[value]
        return other

    def name_bucket(self):
        self.bucket_count += 1
        return f"hand{self.bucket_count}"

    def declare_state(self, type_, placement):
        name = f"state{len(self.states)}"
        self.states[name] = (type_, placement)
        return name

    @property
    def pipeline(self):
        return " ".join(f"{name}={value}" for name, value in self.options.items())


def walk(block):
    """All operations of a block, those in regions included."""
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from walk(region)


def inner_ops(op):
    """All operations in an operation's regions."""
    for region in op.regions:
        yield from walk(region)


def uses(op):
    """All values that an operation and its regions use."""
    yield from op.operands
    for region in op.regions:
        for nested in region.ops:
            yield from uses(nested)
        yield from region.yields


def dtype_of(program, value):
    """The element type of a tensor or of a bucket."""
    members = program.members.get(value)
    return members[0].dtype if members else value.type.dtype


def count_operations(program):
    return sum(1 for func in program.funcs for _ in walk(func.body))


def split_operands(op):
    """The inputs and the outputs of a linalg operation."""
    ins, outs = op.attrs["ins"], op.attrs["outs"]
    return op.operands[:ins], op.operands[ins : ins + outs]
