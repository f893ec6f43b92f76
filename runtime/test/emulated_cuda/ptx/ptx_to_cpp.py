#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Translates PTX to C++ that the emulated device runs, a thread per fiber.

usage: ptx_to_cpp.py SOURCE OUTPUT.cpp MODULE [ARCH]

SOURCE is PTX as LLVM or nvcc writes it, or an object file of nvcc's: then it is the PTX
in there for compute capability ARCH (90), which is written next to OUTPUT.cpp. OUTPUT.cpp
defines MODULE, a ptx::Module (ptx.h). An instruction that is not known here is an error
that names it, and so is everything else that could change the meaning of one.
"""

import ctypes
import pathlib
import re
import struct
import sys

# Register types and those of instructions, with how C++ reads their bits.
TYPES = {
    "pred": "bool",
    "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t",
    "b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t",
    "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t",
    "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
    "f16": "ptx::Half", "bf16": "ptx::Bfloat16", "f32": "float", "f64": "double",
}  # fmt: skip
SPECIAL = {
    f"%{name}.{axis}": f"thread.{name}[{i}]"
    for name in ("tid", "ntid", "ctaid", "nctaid")
    for i, axis in enumerate("xyz")
} | {"%laneid": "thread.laneid"}
ROUNDING = {
    "rn": "Nearest", "rni": "Nearest", "rzi": "Zero", "rmi": "Down", "rpi": "Up",
}  # fmt: skip
# Instructions that are a function of their operands, with the types of the operands;
# "" is the instruction's own type.
FUNCTIONS = {
    "add": ["", ""], "sub": ["", ""], "mul": ["", ""], "div": ["", ""], "rem": ["", ""],
    "min": ["", ""], "max": ["", ""], "neg": [""], "abs": [""], "fma": ["", "", ""],
    "rcp": [""], "sqrt": [""], "copysign": ["", ""], "mul.lo": ["", ""],
    "mad.lo": ["", "", ""], "mul.hi": ["", ""], "mul.wide": ["", ""], "shl": ["", "u32"],
    "shr": ["", "u32"], "clz": [""], "bfi": ["", "", "u32", "u32"],
    "bfe": ["", "u32", "u32"], "min.NaN": ["", ""], "max.NaN": ["", ""],
}  # fmt: skip
NAMES = {
    "mul.lo": "mul", "mad.lo": "mad", "mul.hi": "mulHi", "mul.wide": "mulWide",
    "min.NaN": "minNaN", "max.NaN": "maxNaN",
}  # fmt: skip
# Those whose result of floating-point numbers is rounded; only to the nearest is known,
# which also says that the compiler may not contract them.
ROUNDED = {"add", "sub", "mul", "div", "fma", "rcp", "sqrt"}
LOGIC = {"and": "&", "or": "|", "xor": "^"}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
ATOMIC = {"add", "or"}
SHUFFLES = {"up": "Up", "down": "Down", "bfly": "Butterfly", "idx": "Index"}
CACHES = {"ca", "cg", "cs", "wb", "nc", "relaxed", "gpu", "volatile"}


class Unknown(Exception):
    pass


def ptx_of_object(data, arch):
    """Returns the PTX for `arch` in an object's fat binaries. Their layout is not
    documented: a header (magic, version, its size, size of the rest), then parts: kind (1:
    PTX), …, the part's header size, size, compressed size, …, architecture, …,
    uncompressed size."""
    for at in (m.start() for m in re.finditer(b"\x50\xed\x55\xba", data)):
        header, size = struct.unpack_from("<HQ", data, at + 6)
        part, end = at + header, at + header + size
        while part < end:
            kind, _, skipped, size, compressed = struct.unpack_from("<HHIQI", data, part)
            if kind == 1 and struct.unpack_from("<I", data, part + 28)[0] == arch:
                body = data[part + skipped : part + skipped + (compressed or size)]
                full = struct.unpack_from("<Q", data, part + 56)[0]
                return (decompress(body, full) if compressed else body).rstrip(b"\0")
            part += skipped + size
    raise Unknown(f"no PTX for compute capability {arch} in the object")


def decompress(body, size):
    if body[:4] != b"\x28\xb5\x2f\xfd":
        raise Unknown("PTX that zstd did not compress")
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    zstd.ZSTD_decompress.argtypes = [
        ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t,
    ]  # fmt: skip
    text = ctypes.create_string_buffer(size)
    if zstd.ZSTD_decompress(text, size, body, len(body)) != size:
        raise Unknown("PTX that zstd cannot decompress")
    return text.raw


def identifier(name):
    return re.sub(r"\W", "_", name.lstrip("%"))


def split(text):
    """Splits operands at commas that stand outside of braces and brackets."""
    return re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", text.strip())


def members(text):
    return [member.strip() for member in text.strip()[1:-1].split(",")]


def bits(kind):
    return int(re.sub(r"\D", "", kind)) if kind != "pred" else 1


class Kernel:
    """Translates a function's body, statement by statement."""

    def __init__(self, name, parameters, shared):
        self.name, self.shared = name, shared
        self.parameters = parameters
        self.registers = {}
        self.line = 0

    # Operands.

    def operand(self, text, kind):
        """Returns the C++ expression of an operand's bits."""
        text = text.strip()
        if text in SPECIAL:
            return SPECIAL[text]
        if text in self.registers:
            return identifier(text)
        if text in self.shared:
            return f"{self.shared[text]}u"
        if m := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
            return f"0x{m[1]}u"
        if m := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
            return f"0x{m[1]}ull"
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
            value = int(text.rstrip("U"), 0)
            if kind == "pred":
                return "true" if value else "false"
            width = bits(kind)
            return f"uint{width}_t({value % (1 << width)}ull)"
        if re.fullmatch(r"[\w$]+", text):
            return f"reinterpret_cast<uint64_t>(&{identifier(text)})"
        raise Unknown(f"operand {text}")

    def target(self, text):
        text = text.strip()
        if text not in self.registers:
            raise Unknown(f"result {text}")
        return identifier(text)

    def address(self, text, space):
        """Returns the generic address of what is in brackets."""
        m = re.fullmatch(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]", text.strip())
        if not m:
            raise Unknown(f"address {text}")
        base, offset = m[1], int(m[2] or 0)
        if space == "param":
            if base not in self.parameters:
                raise Unknown(f"parameter {base}")
            number = list(self.parameters).index(base)
            return f"static_cast<const char *>(parameters[{number}]) + {offset}"
        if space == "shared":
            return f"thread.sharedAddress({self.operand(base, 'u32')} + {offset % 2**32}u)"
        return f"({self.operand(base, 'u64')} + {offset % 2**64}ull)"

    # Instructions. Each returns a statement.

    def instruction(self, text):
        m = re.fullmatch(r"(?:@(!?)(%?\w+)\s+)?([a-z][\w.:]*)\s*(.*)", text, re.DOTALL)
        if not m:
            raise Unknown("statement")
        inverted, predicate, name, rest = m.groups()
        base, *modifiers = name.split(".")
        guard = f"if ({inverted}{self.operand(predicate, 'pred')}) " if predicate else ""
        if guard and base in ("bar", "barrier", "shfl", "vote"):
            raise Unknown("predicate of an operation in which other threads take part")
        arguments = [argument.strip() for argument in split(rest)]
        translate = getattr(self, f"do_{base}", None)
        if translate:
            statement = translate(modifiers, arguments)
        elif base in LOGIC:
            a, b = (self.operand(argument, modifiers[-1]) for argument in arguments[1:])
            statement = f"{self.target(arguments[0])} = {a} {LOGIC[base]} {b};"
        else:
            statement = self.function(base, modifiers, arguments)
        return f"{guard}{{ {statement} }}" if guard else statement

    def function(self, base, modifiers, arguments):
        *qualifiers, kind = modifiers or [""]
        if kind not in TYPES:
            raise Unknown("type")
        if base in ROUNDED and kind in ("f16", "f32", "f64"):
            if qualifiers != ["rn"]:
                raise Unknown("rounding")
            qualifiers = []
        key = ".".join([base, *qualifiers])
        kinds = FUNCTIONS.get(key)
        if not kinds or len(kinds) != len(arguments) - 1:
            raise Unknown("instruction")
        name = NAMES.get(key, key)
        values = (
            self.operand(argument, own or kind)
            for argument, own in zip(arguments[1:], kinds, strict=True)
        )
        result = f"ptx::{name}<{TYPES[kind]}>({', '.join(values)})"
        return f"{self.target(arguments[0])} = {result};"

    def do_mad(self, modifiers, arguments):
        if modifiers[0] != "wide":
            return self.function("mad", modifiers, arguments)
        kind = modifiers[1]
        a, b = (self.operand(argument, kind) for argument in arguments[1:3])
        c = self.operand(arguments[3], f"u{2 * bits(kind)}")
        return f"{self.target(arguments[0])} = ptx::madWide<{TYPES[kind]}>({a}, {b}, {c});"

    def do_not(self, modifiers, arguments):
        value = self.operand(arguments[1], modifiers[0])
        operator = "!" if modifiers == ["pred"] else "~"
        return f"{self.target(arguments[0])} = {operator}{value};"

    def do_mov(self, modifiers, arguments):
        to, value = arguments
        kind = modifiers[-1]
        if value.startswith("{"):
            parts = members(value)
            width = bits(kind) // len(parts)
            values = [self.operand(part, f"b{width}") for part in parts]
            pieces = (
                f"uint{bits(kind)}_t(uint{width}_t({value})) << {width * i}"
                for i, value in enumerate(values)
            )
            return f"{self.target(to)} = {' | '.join(pieces)};"
        source = self.operand(value, kind)
        if to.startswith("{"):
            parts = members(to)
            width = bits(kind) // len(parts)
            return " ".join(
                f"{self.target(part)} = uint{width}_t({source} >> {width * i});"
                for i, part in enumerate(parts)
                if part != "_"
            )
        return f"{self.target(to)} = {source};"

    def do_cvta(self, modifiers, arguments):
        value = self.operand(arguments[1], "u64")
        if modifiers[0] == "shared":
            value = f"thread.sharedAddress({value})"
        elif modifiers[:-1] not in (["to", "global"], ["global"]):
            raise Unknown("space")
        return f"{self.target(arguments[0])} = {value};"

    def do_cvt(self, modifiers, arguments):
        *how, to, kind = modifiers
        if len(how) > 1 or any(name not in ROUNDING for name in how):
            raise Unknown("rounding")
        rounding = f"ptx::Rounding::{ROUNDING[how[0]] if how else 'None'}"

        def converted(argument, to):
            value = self.operand(argument, kind)
            return f"ptx::cvt<{TYPES[to]}, {TYPES[kind]}, {rounding}>({value})"

        if to.endswith("x2"):
            high, low = (converted(argument, to[:-2]) for argument in arguments[1:])
            return f"{self.target(arguments[0])} = uint32_t({high}) << 16 | {low};"
        if to not in TYPES or kind not in TYPES:
            raise Unknown("type")
        result = converted(arguments[1], to)
        if to[0] == "s":  # extends the sign where the register is wider
            result = f"{TYPES[to]}({result})"
        return f"{self.target(arguments[0])} = {result};"

    def do_selp(self, modifiers, arguments):
        a, b = (self.operand(argument, modifiers[0]) for argument in arguments[1:3])
        choice = self.operand(arguments[3], "pred")
        return f"{self.target(arguments[0])} = {choice} ? {a} : {b};"

    def do_setp(self, modifiers, arguments):
        comparison, *combined, kind = modifiers
        comparison = UNSIGNED.get(comparison, comparison)
        a, b = (self.operand(argument, kind) for argument in arguments[1:3])
        result = f"ptx::{comparison}<{TYPES[kind]}>({a}, {b})"
        if combined:
            result += f" {LOGIC[combined[0]]} {self.operand(arguments[3], 'pred')}"
        return f"{self.target(arguments[0])} = {result};"

    def do_prmt(self, modifiers, arguments):
        if modifiers != ["b32"]:
            raise Unknown("mode")
        values = ", ".join(self.operand(argument, "b32") for argument in arguments[1:])
        return f"{self.target(arguments[0])} = ptx::prmt({values});"

    def do_bra(self, modifiers, arguments):
        return f"goto {identifier(arguments[0])};"

    def do_ret(self, modifiers, arguments):
        return "return;"

    do_exit = do_ret

    def do_prefetch(self, modifiers, arguments):
        return ";"

    def memory(self, modifiers):
        """Returns the space, the number of values, and their type."""
        *where, kind = modifiers
        vector = next((int(name[1]) for name in where if name in ("v2", "v4")), 1)
        spaces = [name for name in where if name in ("global", "shared", "param", "const")]
        rest = set(where) - set(spaces) - {"v2", "v4"} - CACHES
        if rest or kind not in TYPES:
            raise Unknown(f"modifier {' '.join(rest)}")
        return (spaces or [""])[0], vector, kind

    def do_ld(self, modifiers, arguments):
        space, count, kind = self.memory(modifiers)
        address = self.address(arguments[1], space)
        element = TYPES[kind] if kind[0] == "s" else f"uint{bits(kind)}_t"
        targets = members(arguments[0]) if count > 1 else [arguments[0]]
        take = " ".join(
            f"{self.target(to)} = values[{i}];" for i, to in enumerate(targets) if to != "_"
        )
        if space == "param":
            get = f"std::memcpy(values, {address}, sizeof(values));"
        else:
            get = f"thread.load({address}, values, {self.line});"
        return f"{{ {element} values[{count}]; {get} {take} }}"

    def do_st(self, modifiers, arguments):
        space, count, kind = self.memory(modifiers)
        element = f"uint{bits(kind)}_t"
        sources = members(arguments[1]) if count > 1 else [arguments[1]]
        values = ", ".join(f"{element}({self.operand(source, kind)})" for source in sources)
        store = f"thread.store({self.address(arguments[0], space)}, values, {self.line});"
        return f"{{ const {element} values[{count}] = {{{values}}}; {store} }}"

    def do_atom(self, modifiers, arguments):
        *where, operation, kind = modifiers
        space = next((name for name in where if name in ("global", "shared")), "")
        if set(where) - {space} - {"relaxed", "gpu"} or operation not in ATOMIC:
            raise Unknown("operation")
        value = self.operand(arguments[2], kind)
        call = f"ptx::atom{operation.capitalize()}<{TYPES[kind]}>"
        call += f"(thread, {self.address(arguments[1], space)}, {value}, {self.line})"
        return f"{self.target(arguments[0])} = {call};"

    def do_bar(self, modifiers, arguments):
        if modifiers == ["warp", "sync"]:
            mask = self.operand(arguments[0], "u32")
            return f"thread.block.warpBarrier({mask}, {self.line});"
        if modifiers != ["sync"] or arguments != ["0"]:
            raise Unknown("barrier")
        return f"thread.block.barrier({self.line});"

    def do_barrier(self, modifiers, arguments):
        return self.do_bar([name for name in modifiers if name != "cta"], arguments)

    def do_shfl(self, modifiers, arguments):
        if modifiers[0] != "sync" or modifiers[1] not in SHUFFLES or modifiers[2] != "b32":
            raise Unknown("shuffle")
        to, _, inside = arguments[0].partition("|")
        values = ", ".join(self.operand(argument, "b32") for argument in arguments[1:])
        flag = f"&{self.target(inside)}" if inside else "nullptr"
        call = f"ptx::shfl<ptx::Shuffle::{SHUFFLES[modifiers[1]]}>"
        return f"{self.target(to)} = {call}(thread, {values}, {flag}, {self.line});"

    def do_vote(self, modifiers, arguments):
        if modifiers[0] != "sync" or modifiers[1] not in ("ballot", "all", "any"):
            raise Unknown("vote")
        predicate = self.operand(arguments[1], "pred")
        mask = self.operand(arguments[2], "b32")
        call = f"ptx::vote{modifiers[1].capitalize()}(thread, {predicate}, {mask}"
        return f"{self.target(arguments[0])} = {call}, {self.line});"

    def do_cp(self, modifiers, arguments):
        if modifiers == ["async", "commit_group"]:
            return "thread.block.commitCopies();"
        if modifiers == ["async", "wait_group"]:
            return f"thread.block.waitForCopies({int(arguments[0])});"
        if modifiers[0] != "async" or modifiers[-2:] != ["shared", "global"]:
            raise Unknown("copy")
        size = int(arguments[2])
        used = self.operand(arguments[3], "u32") if len(arguments) > 3 else str(size)
        to = f"reinterpret_cast<char *>({self.address(arguments[0], 'shared')})"
        source = f"reinterpret_cast<const char *>({self.address(arguments[1], 'global')})"
        places = f"{to}, {source}, {size}, {size} - {used}"
        return f"thread.block.copyAsync({places}, {self.line});"

    # Bodies.

    def declare(self, text):
        """Declares registers: `.reg .b32 %r<9>` or `.reg .b16 a, b`."""
        m = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text, re.DOTALL)
        kind, names = m[1], []
        for name in m[2].split(","):
            name = name.strip()
            if several := re.fullmatch(r"(.*)<(\d+)>", name):
                names += [f"{several[1]}{i}" for i in range(int(several[2]))]
            else:
                names.append(name)
        self.registers.update(dict.fromkeys(names, kind))
        element = "bool" if kind == "pred" else f"uint{bits(kind)}_t"
        return f"{element} {', '.join(f'{identifier(name)} = 0' for name in names)};"

    def translate(self, body, first_line):
        """Returns the lines of the function. Instructions are counted once for each part of
        the body that runs as a whole."""
        lines, part, count, depth = [], [], 0, 0

        def end_part():
            nonlocal part, count
            if count:
                lines.append(f"thread.count({count});")
            lines.extend(part)
            part, count = [], 0

        at = 0
        while m := STATEMENT.match(body, at):
            begin, at = m.end() - len(m[0].lstrip()), m.end()
            self.line = first_line + body.count("\n", 0, begin)
            brace, label, text = m.groups()
            if brace:
                depth += 1 if brace == "{" else -1
                part.append(brace)
            elif label:
                end_part()
                lines.append(f"{identifier(label)}:;")
            elif text.startswith(".reg"):
                part.append(self.declare(text))
            elif text and not text.startswith((".pragma", ".loc", ".branchtargets")):
                try:
                    part.append(self.instruction(" ".join(text.split())))
                except (Unknown, KeyError, ValueError, IndexError) as error:
                    raise Unknown(
                        f"line {self.line}: unknown {error}: {' '.join(text.split())}"
                    ) from error
                count += 1
                if depth == 0 and re.search(r"\b(bra|ret|exit)\b", text):
                    end_part()
        if body[at:].strip():
            raise Unknown(f"line {self.line}: unknown text {body[at:].strip()[:60]}")
        end_part()
        return lines


def variables(text):
    """Returns the definitions of variables in global and constant memory, and the offsets
    of those in shared memory, which must be the launch's."""
    defined, shared = [], {}
    for m in VARIABLE.finditer(text):
        spaces, align, kind, name, count, value = m.groups()
        if ".shared" in spaces:
            if count != "":
                raise Unknown(f"shared memory {name} with a size of its own")
            shared[name] = 0
        elif ".global" in spaces or ".const" in spaces:
            value = value or "0"
            value = value if value.startswith("{") else f"{{{value}}}"
            declared = f"const uint{bits(kind)}_t {identifier(name)}[{count or 1}]"
            defined.append(f"alignas({align}) static {declared} = {value};")
        elif ".param" not in spaces:
            raise Unknown(f"variable {name}")
    return defined, shared


STATEMENT = re.compile(r"\s*(?:([{}])|([$\w]+):|([^;]*);)", re.DOTALL)
# Spaces, alignment, type, name, number of elements, value.
VARIABLE = re.compile(
    r"^\s*((?:\.\w+\s+)*)\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)"
    r"(?:\[(\d*)\])?(?:\s*=\s*([^;]*))?;",
    re.MULTILINE,
)
# Type, name, number of elements.
PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+"
    r"(?:\.ptr\s+(?:\.\w+\s+)?\.align\s+\d+\s+)?([\w$]+)(?:\[(\d+)\])?"
)
ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{", re.DOTALL)


def body_of(text, begin):
    """Returns the text up to the brace that matches the one before `begin`."""
    depth = 1
    for m in re.compile(r"[{}]").finditer(text, begin):
        depth += 1 if m[0] == "{" else -1
        if depth == 0:
            return text[begin : m.start()]
    raise Unknown("end of a kernel")


def dimensions(attributes, name):
    m = re.search(rf"\.{name}\s+([\d,\s]+)", attributes)
    sizes = [int(size) for size in m[1].split(",")] if m else [0, 0, 0]
    return [*sizes, 1, 1][:3]


def translate(text, source, module):
    """Returns the C++ of a PTX file, as lines."""
    # Comments go, lines stay where they are.
    text = re.sub(r"//[^\n]*", "", text)
    if m := re.search(r"^\s*(?:\.\w+\s+)*\.func\b", text, re.MULTILINE):
        raise Unknown(f"function at line {text.count(chr(10), 0, m.end())}")
    first = ENTRY.search(text)
    heads = ENTRY.sub("", text[: first.start()] if first else text)
    defined, shared = variables(heads)
    out = ['#include "ptx.h"', "namespace {", *defined]
    names = [re.search(r"(\w+)\[\d+\] =", line)[1] for line in defined]
    known = [f"{{{name}, sizeof({name})}}," for name in names]
    table = []
    for m in ENTRY.finditer(text):
        name, declared, attributes = m.groups()
        parameters = {}
        for parameter in filter(str.strip, declared.split(",")):
            kind, symbol, count = PARAMETER.search(parameter).groups()
            parameters[symbol] = bits(kind) // 8 * int(count or 1)
        kernel = Kernel(name, parameters, shared)
        lines = kernel.translate(
            body_of(text, m.end()), 1 + text.count("\n", 0, m.end())
        )
        sizes = ", ".join(map(str, parameters.values())) or "0"
        required = dimensions(attributes, "reqntid")
        required = ", ".join(map(str, required if required[0] else [0, 0, 0]))
        x, y, z = dimensions(attributes, "maxntid")
        number = len(table)
        out += [
            f"const unsigned bytes{number}[] = {{{sizes}}};",
            f"void kernel{number}(ptx::Thread &thread, const void *const *parameters) {{",
            *lines,
            "}",
        ]
        table.append(
            f'{{"{name}", kernel{number}, {len(parameters)}, bytes{number}, '
            f"{{{required}}}, {x * y * z}}},"
        )
    out += [
        "const ptx::Kernel kernels[] = {", *(table or ["{}"]), "};",
        "const ptx::Variable variables[] = {", *(known or ["{}"]), "};", "} // namespace",
        f'extern "C" const ptx::Module {module};',
        f"const ptx::Module {module} = {{kernels, {len(table)}, variables, {len(known)},",
        f'    "{source}"}};',
    ]  # fmt: skip
    return out


def main():
    source, output, module, *arch = sys.argv[1:]
    data = pathlib.Path(source).read_bytes()
    try:
        if data[:4] == b"\x7fELF":
            data = ptx_of_object(data, int(arch[0]) if arch else 90)
            source = str(pathlib.Path(output).with_suffix(".ptx"))
            pathlib.Path(source).write_bytes(data)
        lines = translate(data.rstrip(b"\0").decode(), source, module)
    except Unknown as error:
        sys.exit(f"{source}: error: {error}")
    pathlib.Path(output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
