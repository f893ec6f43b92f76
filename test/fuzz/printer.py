# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The MLIR text of a generated program (program.py)."""

from exchanges import print_exchange
from program import Type, Value, split_operands

# Hooks are tuples, as in MLIR: ("fp16",), ("wrap", "f16", hook),
# ("post_local_sgd", start, subgroup or None, all-reduce afterwards).
def print_hook(hook):
    if hook[0] == "wrap":
        return f"#ddp.wrap<{hook[1]}, {print_hook(hook[2])}>"
    if hook[0] == "post_local_sgd":
        parts = [f"start_localSGD_iter = {hook[1]}"]
        if hook[2]:
            parts.append(f"subgroup = @{hook[2]}")
        if not hook[3]:
            parts.append("post_local_gradient_allreduce = false")
        return f"#ddp.post_local_sgd<{', '.join(parts)}>"
    if hook[0] in ("powersgd", "batched_powersgd"):
        parts = [
            f"{name} = {str(value).lower() if isinstance(value, bool) else value}"
            for name, value in hook[1]
        ]
        return f"#ddp.{hook[0]}" + (f"<{', '.join(parts)}>" if parts else "")
    return f"#ddp.{hook[0]}"


def print_float(value):
    """A decimal that MLIR reads as this number."""
    text = repr(float(value))
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


def print_program(program):
    return _Printer(program).text()


class _Printer:
    def __init__(self, program):
        self.program = program
        self.lines = []
        self.names = {}
        self.blocks = 0

    def text(self):
        program = self.program
        if program.hook:
            hook = print_hook(program.hook)
            self.lines.append(f"module attributes {{ddp.hook = {hook}}} {{")
        for name, ranks in program.groups.items():
            clauses = "" if ranks is None else f" ranks {[list(r) for r in ranks]}"
            if program.has_exchanges and ranks is None:
                clauses = f" size {program.world}"
            if name in program.hierarchical:
                clauses += " topology hierarchical"
            self.lines.append(f"ddp.process_group @{name}{clauses}")
        for name, (type_, placement) in program.states.items():
            self.lines.append(f"ddp.state @{name} : {type_} {placement} zero")
        for func in program.funcs:
            self._func(func)
        if program.hook:
            self.lines.append("}")
        return "\n".join(self.lines) + "\n"

    def _name(self, value):
        if value not in self.names:
            self.names[value] = f"%v{len(self.names)}"
        return self.names[value]

    def _list(self, values):
        return ", ".join(map(self._name, values))

    def _typed(self, values):
        types = ", ".join(str(v.type) for v in values)
        return f"{self._list(values)} : {types}"

    def _func(self, func):
        self.names, self.blocks = {}, 0
        args = []
        for value in func.body.args:
            marks = []
            if "replicated" in value.marks:
                marks.append("ddp.replicated")
            if "writable" in value.marks:
                marks.append("bufferization.writable = true")
            suffix = f" {{{', '.join(marks)}}}" if marks else ""
            args.append(f"{self._name(value)}: {value.type}{suffix}")
        results = []
        for number, value in enumerate(func.body.yields):
            mark = " {ddp.gradient}" if number in func.gradients else ""
            results.append(f"{value.type}{mark}")
        private = "private " if func.is_private else ""
        tail = f" -> ({', '.join(results)})" if results else ""
        if func.hook:
            tail += f" attributes {{ddp.hook = {print_hook(func.hook)}}}"
        self.lines.append(
            f"func.func {private}@{func.name}({', '.join(args)}){tail} {{"
        )
        self._block(func.body, "  ", in_function=True)
        values = func.body.yields
        self.lines.append(f"  return {self._typed(values)}" if values else "  return")
        self.lines.append("}")

    def _block(self, block, indent, in_function=False):
        for op in block.ops:
            if in_function and op.attrs.get("cf"):
                getattr(self, f"_cf_{op.kind}")(op)
            else:
                getattr(self, f"_{op.kind}")(op, indent)

    def _assign(self, op):
        return f"{self._list(op.results)} = " if op.results else ""

    def _simple(self, op, indent, text):
        self.lines.append(f"{indent}{self._assign(op)}{text}")

    # Scalars and what is not destination-passing.

    def _const(self, op, indent):
        type_, value = op.result.type, op.attrs["value"]
        if type_.shape is not None:
            text = f"dense<{print_float(value)}> : {type_}"
        elif type_.dtype == "i1":
            text = "true" if value else "false"
        elif type_.dtype in ("index", "i64"):
            text = f"{value} : {type_.dtype}"
        else:
            text = f"{print_float(value)} : {type_}"
        self._simple(op, indent, f"arith.constant {text}")

    def _scalar(self, op, indent):
        name = op.attrs["name"]
        if name.startswith("arith.cmp"):
            name += f" {op.attrs['predicate']},"
        text = f"{name} {self._list(op.operands)} : {op.operands[-1].type}"
        self._simple(op, indent, text)

    def _empty(self, op, indent):
        self._simple(op, indent, f"tensor.empty() : {op.result.type}")

    def _alloc_copy(self, op, indent):
        text = f"bufferization.alloc_tensor() copy({self._list(op.operands)})"
        self._simple(op, indent, f"{text} : {op.result.type}")

    def _fill(self, op, indent):
        scalar, out = op.operands
        text = (
            f"linalg.fill ins({self._typed([scalar])}) outs({self._typed([out])})"
            f" -> {out.type}"
        )
        self._simple(op, indent, text)

    def _extract(self, op, indent):
        index = ", ".join(map(self._name, op.operands[1:]))
        tensor = op.operands[0]
        text = f"tensor.extract {self._name(tensor)}[{index}] : {tensor.type}"
        self._simple(op, indent, text)

    def _insert(self, op, indent):
        scalar, tensor = op.operands[:2]
        index = ", ".join(map(self._name, op.operands[2:]))
        text = f"tensor.insert {self._name(scalar)} into {self._name(tensor)}[{index}]"
        self._simple(op, indent, f"{text} : {tensor.type}")

    def _from_elements(self, op, indent):
        text = f"tensor.from_elements {self._list(op.operands)} : {op.result.type}"
        self._simple(op, indent, text)

    def _slice(self, op):
        """An offset of None is the operation's last operand."""
        offsets = [
            self._name(op.operands[-1]) if offset is None else str(offset)
            for offset in op.attrs["offsets"]
        ]
        sizes, strides = map(list, (op.attrs["sizes"], op.attrs["strides"]))
        return f"[{', '.join(offsets)}] {sizes} {strides}"

    def _extract_slice(self, op, indent):
        source = op.operands[0]
        text = f"tensor.extract_slice {self._name(source)}{self._slice(op)}"
        self._simple(op, indent, f"{text} : {source.type} to {op.result.type}")

    def _insert_slice(self, op, indent):
        source, into = op.operands[:2]
        text = f"tensor.insert_slice {self._name(source)} into {self._name(into)}"
        text += f"{self._slice(op)} : {source.type} into {into.type}"
        self._simple(op, indent, text)

    def _reshape(self, op, indent):
        source, groups = op.operands[0], [list(g) for g in op.attrs["groups"]]
        name = "collapse_shape" if op.attrs["collapse"] else "expand_shape"
        text = f"tensor.{name} {self._name(source)} {groups}"
        if not op.attrs["collapse"]:
            text += f" output_shape {list(op.result.type.shape)}"
        self._simple(op, indent, f"{text} : {source.type} into {op.result.type}")

    # The dialect's own, and calls.

    def _all_reduce(self, op, indent):
        hook = op.attrs.get("hook")
        text = f"ddp.all_reduce {op.attrs['reduction']} {self._list(op.operands)}"
        text += f" on @{op.attrs['group']}"
        text += f" {{ddp.hook = {print_hook(hook)}}}" if hook else ""
        self._simple(op, indent, f"{text} : {op.result.type}")

    def _average(self, op, indent):
        attrs = op.attrs
        text = f"ddp.average {self._list(op.operands)} on @{attrs['group']}"
        text += f" every {attrs['every']}"
        text += f" warmup {attrs['warmup']}" if attrs["warmup"] else ""
        self._simple(op, indent, f"{text} : {op.result.type}")

    def _call(self, op, indent):
        types = ", ".join(str(v.type) for v in op.operands)
        results = ", ".join(str(v.type) for v in op.results)
        text = f"func.call @{op.attrs['callee']}({self._list(op.operands)})"
        self._simple(op, indent, f"{text} : ({types}) -> ({results})")

    # Buckets.

    def _types(self, values):
        return ", ".join(str(v.type) for v in values)

    def _pack(self, op, indent):
        text = f"ddp.pack {self._typed(op.operands)} -> {op.result.type}"
        self._simple(op, indent, text)

    def _unpack(self, op, indent):
        text = f"ddp.unpack {self._typed(op.operands)} -> {self._types(op.results)}"
        self._simple(op, indent, text)

    def _bucket_scale(self, op, indent):
        text = f"ddp.scale {self._list(op.operands)} by {op.attrs['factor']}"
        self._simple(op, indent, f"{text} : {op.result.type}")

    def _bucket_binary(self, op, indent):
        text = f"ddp.{op.attrs['name']} {self._list(op.operands)}"
        self._simple(op, indent, f"{text} : {self._types(op.operands)}")

    def _bucket_reduce(self, op, indent):
        attrs, hook = op.attrs, op.attrs.get("hook")
        text = f"ddp.all_reduce {attrs['reduction']} {self._list(op.operands)}"
        text += f" on @{attrs['group']} as \"{attrs['bucket']}\""
        text += f" {{ddp.hook = {print_hook(hook)}}}" if hook else ""
        self._simple(op, indent, f"{text} : {op.result.type}")

    def _bucket_start(self, op, indent):
        attrs, bucket = op.attrs, op.operands[0]
        text = f"ddp.all_reduce_start {attrs['reduction']} {self._name(bucket)}"
        text += f" on @{attrs['group']}"
        text += f" wire {attrs['wire']}" if attrs["wire"] else ""
        text += f" if {self._name(op.operands[1])}" if op.operands[1:] else ""
        text += f" : {bucket.type} -> !ddp.future<{bucket.type}>"
        self._simple(op, indent, text)

    def _exchange(self, op, indent):
        operand = op.operands[0]
        text = f"{print_exchange(op, self._name(operand))} : {operand.type}"
        if op.attrs["name"] in ("reduce_scatter", "all_gather"):
            text += f" -> {op.result.type}"
        self._simple(op, indent, text)

    def _exchange_start(self, op, indent):
        operand = op.operands[0]
        text = f"{print_exchange(op, self._name(operand))} : {operand.type}"
        self._simple(op, indent, f"{text} -> !ddp.future<{op.attrs['type']}>")

    def _bucket_wait(self, op, indent):
        text = f"ddp.wait {self._list(op.operands)} : !ddp.future<{op.result.type}>"
        self._simple(op, indent, text)

    def _state_load(self, op, indent):
        self._simple(op, indent, f"ddp.load @{op.attrs['state']} : {op.result.type}")

    def _state_store(self, op, indent):
        value = op.operands[0]
        text = f"{indent}ddp.store {self._name(value)}, @{op.attrs['state']} : "
        self.lines.append(text + str(value.type))

    # linalg.

    def _linalg(self, op, indent):
        ins, outs = split_operands(op)
        form = op.attrs["form"]
        inputs = f" ins({self._typed(ins)})" if ins else ""
        outputs = f" outs({self._typed(outs)})"
        if form == "generic":
            self._generic(op, indent, inputs, outputs)
        elif form == "map":
            self._simple(op, indent, f"linalg.map{inputs}{outputs}")
            self.lines.append(f"{indent}  ({self._body_arguments(op, '%x')}) {{")
            self._body(op, indent + "    ")
            self.lines.append(f"{indent}  }}")
        elif form == "short_map":
            name = op.attrs["body"][0][0]
            text = f"linalg.map {{ {name} }}{inputs}{outputs}"
            self._simple(op, indent, text)
        elif form == "reduce":
            name, dims = op.attrs["body"][0][0], list(op.attrs["dimensions"])
            text = f"linalg.reduce {{ {name} }}{inputs}{outputs} dimensions = {dims}"
            self._simple(op, indent, text)
        elif form == "transpose":
            text = f"linalg.transpose{inputs}{outputs} permutation = "
            self._simple(op, indent, text + str(list(op.attrs["permutation"])))
        elif form == "broadcast":
            text = f"linalg.broadcast{inputs}{outputs} dimensions = "
            self._simple(op, indent, text + str(list(op.attrs["dimensions"])))
        else:
            types = ", ".join(str(v.type) for v in outs)
            self._simple(op, indent, f"linalg.{form}{inputs}{outputs} -> {types}")

    def _generic(self, op, indent, inputs, outputs):
        rank = len(op.attrs["iterators"])
        dims = ", ".join(f"d{i}" for i in range(rank))
        maps = ", ".join(
            f"affine_map<({dims}) -> ({', '.join(f'd{i}' for i in m)})>"
            for m in op.attrs["maps"]
        )
        iterators = ", ".join(f'"{name}"' for name in op.attrs["iterators"])
        text = f"linalg.generic {{indexing_maps = [{maps}], "
        text += f"iterator_types = [{iterators}]}}{inputs}{outputs} {{"
        self._simple(op, indent, text)
        self.lines.append(f"{indent}^bb0({self._body_arguments(op, '%x')}):")
        self._body(op, indent + "  ")
        results = ", ".join(str(v.type) for v in op.results)
        results = f"({results})" if len(op.results) > 1 else results
        self.lines.append(f"{indent}}} -> {results}")

    def _body_arguments(self, op, prefix):
        ins, outs = split_operands(op)
        types = [v.type.dtype for v in ins + outs]
        return ", ".join(f"{prefix}{i}: {t}" for i, t in enumerate(types))

    def _body(self, op, indent):
        """Instructions are (name, references, types, attributes); a reference is
        ("arg", number), ("tmp", number) or ("captured", number)."""
        count = op.attrs["ins"] + op.attrs["outs"]

        def name(reference):
            kind, number = reference
            if kind == "captured":
                return self._name(op.operands[count + number])
            return f"%x{number}" if kind == "arg" else f"%t{number}"

        for i, (mnemonic, references, types, attrs) in enumerate(op.attrs["body"]):
            operands = ", ".join(map(name, references))
            if mnemonic == "arith.constant":
                operands = print_float(attrs["value"])
            elif mnemonic == "arith.cmpf":
                operands = f"{attrs['predicate']}, {operands}"
            text = f"{indent}%t{i} = {mnemonic} {operands} : {types[0]}"
            self.lines.append(text + (f" to {types[1]}" if types[1:] else ""))
        _, outs = split_operands(op)
        yields = ", ".join(map(name, op.attrs["yields"]))
        types = ", ".join(v.type.dtype for v in outs)
        self.lines.append(f"{indent}linalg.yield {yields} : {types}")

    # Control flow.

    def _region(self, region, indent, end="scf.yield"):
        self._block(region, indent)
        if region.yields:
            self.lines.append(f"{indent}{end} {self._typed(region.yields)}")

    def _if(self, op, indent):
        types = ", ".join(str(v.type) for v in op.results)
        arrow = f" -> ({types})" if op.results else ""
        self._simple(op, indent, f"scf.if {self._list(op.operands)}{arrow} {{")
        self._region(op.regions[0], indent + "  ")
        self.lines.append(f"{indent}}} else {{")
        self._region(op.regions[1], indent + "  ")
        self.lines.append(f"{indent}}}")

    def _switch(self, op, indent):
        types = ", ".join(str(v.type) for v in op.results)
        text = f"scf.index_switch {self._list(op.operands)} -> {types}"
        self._simple(op, indent, text)
        for number, region in enumerate(op.regions):
            last = number + 1 == len(op.regions)
            self.lines.append(f"{indent}{'default' if last else f'case {number}'} {{")
            self._region(region, indent + "  ")
            self.lines.append(f"{indent}}}")

    def _for(self, op, indent):
        lower, upper, step = map(self._name, op.operands[:3])
        body = op.regions[0]
        pairs = zip(body.args[1:], op.operands[3:])
        inits = ", ".join(f"{self._name(a)} = {self._name(b)}" for a, b in pairs)
        types = ", ".join(str(v.type) for v in op.results)
        text = f"scf.for {self._name(body.args[0])} = {lower} to {upper} step {step}"
        if op.results:
            text += f" iter_args({inits}) -> ({types})"
        self._simple(op, indent, text + " {")
        self._region(body, indent + "  ")
        self.lines.append(f"{indent}}}")

    def _while(self, op, indent):
        before, after = op.regions
        pairs = zip(before.args, op.operands)
        inits = ", ".join(f"{self._name(a)} = {self._name(b)}" for a, b in pairs)
        types = ", ".join(str(v.type) for v in op.operands)
        results = ", ".join(str(v.type) for v in op.results)
        text = f"scf.while ({inits}) : ({types}) -> ({results}) {{"
        self._simple(op, indent, text)
        self._block(before, indent + "  ")
        condition, *rest = before.yields
        text = f"{indent}  scf.condition({self._name(condition)}) {self._typed(rest)}"
        self.lines.append(text)
        self.lines.append(f"{indent}}} do {{")
        args = ", ".join(f"{self._name(a)}: {a.type}" for a in after.args)
        self.lines.append(f"{indent}^bb0({args}):")
        self._region(after, indent + "  ")
        self.lines.append(f"{indent}}}")

    def _new_block(self):
        self.blocks += 1
        return f"^bb{self.blocks}"

    def _open_block(self, name, args):
        text = ", ".join(f"{self._name(a)}: {a.type}" for a in args)
        self.lines.append(f"{name}({text}):" if args else f"{name}:")

    def _target(self, name, values):
        return f"{name}({self._typed(values)})" if values else name

    def _cf_if(self, op):
        branches = [self._new_block(), self._new_block()]
        end = self._new_block()
        condition = self._list(op.operands)
        self.lines.append(f"  cf.cond_br {condition}, {branches[0]}, {branches[1]}")
        for name, region in zip(branches, op.regions):
            self._open_block(name, [])
            self._block(region, "  ", in_function=True)
            self.lines.append(f"  cf.br {self._target(end, region.yields)}")
        self._open_block(end, op.results)

    def _cf_for(self, op):
        lower, upper, step = map(self._name, op.operands[:3])
        body = op.regions[0]
        head, inside, end = (self._new_block() for _ in range(3))
        count, *carried = body.args
        index = Type(None, "index")
        first, done, following = Value(index), Value(Type(None, "i1")), Value(index)
        passed = [Value(v.type) for v in carried]
        start = [op.operands[0], *op.operands[3:]]
        self.lines.append(f"  cf.br {self._target(head, start)}")
        self._open_block(head, [first, *passed])
        self.lines.append(
            f"  {self._name(done)} = arith.cmpi slt, {self._name(first)}, {upper} : index"
        )
        values = [first, *passed]
        self.lines.append(
            f"  cf.cond_br {self._name(done)}, {self._target(inside, values)}, "
            f"{self._target(end, passed)}"
        )
        self._open_block(inside, [count, *carried])
        self._block(body, "  ", in_function=True)
        self.lines.append(
            f"  {self._name(following)} = arith.addi {self._name(count)}, {step} : index"
        )
        self.lines.append(f"  cf.br {self._target(head, [following, *body.yields])}")
        self._open_block(end, op.results)
