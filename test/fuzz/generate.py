# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs that the compiler has to accept: generate(seed).

Everything follows from the seed. A program has few types, so that values fit each
other's memory, and prefers recent values, so that lifetimes overlap. Collectives
stand where all ranks come by together."""

import random

import linalg
import options
import statements
from buckets import has_chains
from control import CONTROL
from exchanges import exchange, is_wanted
from phases import PHASES
from program import COLLECTIVES, Block, Func, Op, Program, Type, Value, inner_ops, uses

INDEX, FLAG = Type(None, "index"), Type(None, "i1")


class Builder:
    """Appends operations to one block. Values of enclosing blocks are in scope."""

    def __init__(self, random_, program, types, groups, outer=None):
        self.random, self.program, self.types = random_, program, types
        self.groups = groups
        self.block = Block()
        self.scope = list(outer.scope) if outer else []
        self.empties = list(outer.empties) if outer else []
        # Values that are the same on all ranks, and whether all ranks are here.
        self.same = outer.same if outer else set()
        self.is_uniform = outer.is_uniform if outer else True
        self.depth = outer.depth + 1 if outer else 0
        self.in_cf = outer.in_cf if outer else True
        self.callees = outer.callees if outer else []

    @property
    def dtypes(self):
        return sorted({t.dtype for t in self.types})

    def add(self, op):
        self.block.ops.append(op)
        self.scope += [v for v in op.results if v.is_defined]
        self.empties += [v for v in op.results if not v.is_defined]
        if self._is_same(op):
            self.same.update(op.results)
        return op

    def _is_same(self, op):
        if op.kind == "all_reduce":
            whole = self.program.groups[op.attrs["group"]] is None
            return whole and not self.program.keeps_ranks_apart
        if op.kind in ("call", "average", "state_load") or op.kind in COLLECTIVES:
            return False
        if op.regions:
            return False
        return all(v in self.same or not v.is_defined for v in op.operands)

    def add_argument(self, value):
        self.block.args.append(value)
        self.scope.append(value)

    def tensors(self):
        return [v for v in self.scope if v.type.shape is not None]

    def _choose(self, values):
        if not values:
            return None
        if self.random.random() < 0.5:
            values = values[-4:]
        return self.random.choice(values)

    def pick(self, type_):
        """A value of this type, or None."""
        return self._choose([v for v in self.scope if v.type == type_])

    def pick_where(self, predicate):
        return self._choose([v for v in self.tensors() if predicate(v)])

    def pick_scalar(self, dtype):
        return self.pick(Type(None, dtype))

    def type_of_some_tensor(self):
        return self.random.choice(self.tensors()).type

    def constant(self, dtype, value=None):
        if value is None:
            value = self.random.choice([0.0, 1.0, -1.0, 0.5, 2.0, 0.1, -3.25])
        result = Value(Type(None, dtype))
        self.block.ops.append(Op("const", [], [result], {"value": value}))
        self.same.add(result)
        return result

    def condition(self):
        """An i1; remember that it may differ between ranks (`same`)."""
        kind = self.random.random()
        flags = [v for v in self.scope if v.type == FLAG]
        if flags and kind < 0.6:
            return self.random.choice(flags)
        result = Value(FLAG)
        numbers = [v for v in self.scope if v.type == INDEX]
        if numbers and kind < 0.8:
            number = self.random.choice(numbers)
            other = self.constant("index", self.random.randint(0, 2))
            attrs = {"name": "arith.cmpi", "predicate": "slt"}
            self.add(Op("scalar", [number, other], [result], attrs))
            return result
        floats = [v for v in self.scope if v.type.shape is None]
        floats = [v for v in floats if v.type.dtype in linalg.WIDTH]
        if floats and kind < 0.95:
            value = self.random.choice(floats)
            other = self.constant(value.type.dtype, 0.0)
            attrs = {"name": "arith.cmpf", "predicate": "olt"}
            self.add(Op("scalar", [value, other], [result], attrs))
            return result
        return self.constant("i1", self.random.random() < 0.5)

    def all_reduce(self):
        if not self.is_uniform:
            return False
        x = self.pick(self.type_of_some_tensor())
        attrs = {
            "group": self.random.choice(self.groups),
            "reduction": self.random.choice(["mean", "mean", "sum"]),
        }
        if self.random.random() < self.program.own_hooks:
            attrs["hook"] = options.random_hook(self.random, self.program)
        self.add(Op("all_reduce", [x], [Value(x.type)], attrs))
        return True

    def update(self):
        """What steps do: an average, and something computed over its memory."""
        if not self.all_reduce():
            return False
        average = self.scope[-1]
        if self.random.random() < 0.3:
            statements.gradient(self, average.type)
        if self.random.random() < 0.3:
            self.all_reduce()
        statements.overwrite(self, average)
        return True

    def average(self):
        if not self.is_uniform:
            return False
        x = self.pick(self.type_of_some_tensor())
        attrs = {
            "group": self.random.choice(self.groups),
            "every": self.random.choice([1, 1, 2]),
            "warmup": self.random.choice([0, 0, 1]),
        }
        self.add(Op("average", [x], [Value(x.type)], attrs))
        return True

    def call(self):
        """A function of the program, with whatever fits."""
        callees = [f for f in self.callees if self.is_uniform or not f.communicates]
        if not callees:
            return False
        func = self.random.choice(callees)
        operands = [self._argument(v) for v in func.body.args]
        if not all(operands):
            return False
        results = [Value(v.type) for v in func.body.yields]
        self.add(Op("call", operands, results, {"callee": func.name}))
        return True

    def _argument(self, parameter):
        """An operand; a branch in a function may ask for one that is the same on
        all ranks."""
        values = [v for v in self.scope if v.type == parameter.type]
        if "replicated" in parameter.marks:
            values = [v for v in values if v in self.same]
        if not values and parameter.type in (INDEX, FLAG):
            return self.constant(parameter.type.dtype, self.random.randint(0, 1))
        return self._choose(values)


STATEMENTS = [
    (16, linalg.elementwise),
    (4, linalg.contraction),
    (5, linalg.reduction),
    (5, linalg.movement),
    (3, linalg.fill),
    (4, statements.extract_slice),
    (5, statements.insert_slice),
    (5, statements.reshape),
    (4, statements.element),
    (2, statements.scalar),
    (2, statements.select),
    (1, statements.alloc_copy),
    (1, statements.constant_tensor),
    (10, Builder.all_reduce),
    (8, Builder.update),
    (1, Builder.average),
    (5, Builder.call),
    (8, CONTROL),
    (5, PHASES),
]


def add_statements(b, count):
    choices = STATEMENTS + ([(12, exchange)] if b.program.has_exchanges else [])
    while count > 0:
        weights = [weight for weight, _ in choices]
        ((_, statement),) = b.random.choices(choices, weights)
        if isinstance(statement, list):
            if b.depth >= 3:
                continue
            b.random.choice(statement)(b, add_statements)
        else:
            statement(b)
        count -= 1


def _random_types(random_):
    """Few element types and few shapes; one of the types has most shapes."""
    dtypes = random_.sample(["f16", "bf16", "f32", "f64"], random_.choice([1, 1, 2]))
    if random_.random() < 0.5 and "f32" not in dtypes:
        dtypes[0] = "f32"
    pool = [(8,), (4, 6), (3, 5), (7,), (1,), (), (5, 1), (1, 6), (2, 3, 4), (13, 11)]
    pool += [(4, 4), (4, 4), (8, 8), (16,), (0,), (3, 0), (33,), (17, 40), (6, 4)]
    shapes = random_.sample(pool, random_.choice([1, 2, 2, 3]))
    first = [Type(shape, dtypes[0]) for shape in shapes]
    return first + [Type(random_.choice(shapes), d) for d in dtypes[1:]]


def _add_arguments(b, numbers, is_public):
    for type_ in b.types:
        for _ in range(b.random.choice([1, 1, 2])):
            marks = []
            if is_public and b.random.random() < 0.3:
                marks.append("writable")
            if is_public and b.random.random() < 0.1:
                marks.append("replicated")
            b.add_argument(Value(type_, number=next(numbers), marks=tuple(marks)))
    for type_ in (INDEX, FLAG, Type(None, b.types[0].dtype)):
        if b.random.random() < 0.35:
            marks = ("replicated",) if b.random.random() < 0.7 else ()
            b.add_argument(Value(type_, number=next(numbers), marks=marks))
    b.same.update(v for v in b.block.args if "replicated" in v.marks)


def _finish(b, count):
    """Results: anything, some of it twice, arguments as they came."""
    candidates = [v for v in b.scope if v.type.shape is not None]
    written = [v for v in candidates if v not in b.block.args] or candidates
    for _ in range(count):
        kind = b.random.random()
        if kind < 0.08:
            value = b.random.choice(b.block.args)
        elif kind < 0.14 and b.block.yields:
            value = b.random.choice(b.block.yields)
        elif kind < 0.2:
            value = b.random.choice([v for v in b.scope if v not in b.program.members])
        else:
            fresh = [v for v in written if v not in b.block.yields]
            value = b.random.choice((fresh or written)[-8 if kind < 0.7 else 0 :])
        b.block.yields.append(value)


def _function(random_, program, types, name, size, numbers, is_private):
    b = Builder(random_, program, types, list(program.groups))
    b.callees = program.callees
    _add_arguments(b, numbers, not is_private)
    add_statements(b, size)
    _finish(b, random_.choice([1, 2, 2, 3, 4]))
    func = Func(name, b.block, is_private)
    if not is_private and random_.random() < 0.3:
        func.gradients = _gradients(func, program)
    func.communicates = _communicates(b.block, program)
    if random_.random() < program.own_hooks / 2:
        func.hook = options.random_hook(random_, program)
    return func


def _gradients(func, program):
    """Results that ddp-verify-sync must find reduced exactly once: averages of what
    no other reduction went into."""
    # Over a group that says that it is one rank nothing counts as reduced.
    if program.has_exchanges and program.world == 1:
        return ()
    mixed, once = set(), set()
    for op in func.body.ops:
        is_mixed = any(v in mixed for v in uses(op))
        reduces = any(
            o.kind in ("average", "call") or o.kind in COLLECTIVES
            for o in [op, *inner_ops(op)]
        )
        if op.kind == "all_reduce" and not is_mixed:
            if program.groups[op.attrs["group"]] is None:
                once.update(op.results)
        if is_mixed or reduces:
            mixed.update(op.results)
    numbers = enumerate(func.body.yields)
    return tuple(number for number, value in numbers if value in once)


def _communicates(block, program):
    for op in block.ops:
        if op.kind in ("average", "state_load") or op.kind in COLLECTIVES:
            return True
        if op.kind == "call" and program.func(op.attrs["callee"]).communicates:
            return True
        if any(_communicates(region, program) for region in op.regions):
            return True
    return False


def generate(seed):
    random_ = random.Random(seed)
    program = Program(seed, [], "step", {"dp": None})
    program.world = random_.choice([1, 2, 2, 2, 3, 4])
    program.steps = random_.choice([1, 1, 1, 2, 3])
    program.values = random_.choice(["normal", "normal", "integers", "special"])
    options.add_groups(random_, program)
    options.add_options(random_, program)
    program.has_exchanges = is_wanted(seed)
    options.add_nodes(program)
    if random_.random() < 0.05:
        program.hook = options.random_hook(random_, program)
        program.keeps_ranks_apart = True
    types = _random_types(random_)
    numbers = iter(range(10**6))
    for i in range(random_.choice([0, 0, 1, 1, 2])):
        size = random_.randint(0, 5)
        func = _function(random_, program, types, f"f{i}", size, numbers, True)
        program.funcs.append(func)
        program.callees.append(func)
    if random_.random() < 0.1:
        size = random_.randint(1, 6)
        func = _function(random_, program, types, "other", size, numbers, False)
        program.funcs.append(func)
        if random_.random() < 0.5:
            program.callees.append(func)
    size = random_.choice([3, 5, 8, 12, 18])
    program.funcs.append(
        _function(random_, program, types, "step", size, numbers, False)
    )
    depends_on_places = program.world > 2 or "start-powersgd-iter" in program.options
    if depends_on_places and has_chains(program):
        program.options["bucket-cap-mb"] = "0"
        program.options.pop("first-bucket-mb", None)
    return program
