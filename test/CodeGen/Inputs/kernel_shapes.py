# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a module whose operations have all sizes and places that kernels treat
differently: vectors and what is left of them, arrays that begin anywhere, rows of
all lengths, transposes, reductions, products with tiles, and operations that share
a launch.

usage: kernel_shapes.py > MODULE
"""

SIZES = [0, 1, 2, 3, 4, 5, 7, 127, 1009, 1024, 2048, 2053, 4099, 8192]
FLOATS = ["f16", "bf16", "f32", "f64"]


def tensor(shape, element):
    return f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>"


def identity(rank):
    loops = ", ".join(f"d{i}" for i in range(rank))
    return f"affine_map<({loops}) -> ({loops})>"


class Module:
    def __init__(self):
        self.arguments, self.lines, self.results, self.count = [], [], [], 0

    def name(self):
        self.count += 1
        return f"%v{self.count}"

    def emit(self, text):
        self.lines.append("  " + text)

    def argument(self, shape, element, writable=False):
        name = self.name()
        attribute = " {bufferization.writable = true}" if writable else ""
        self.arguments.append(f"{name}: {tensor(shape, element)}{attribute}")
        return name

    def scalar(self, element):
        name = self.name()
        self.arguments.append(f"{name}: {element}")
        return name

    def empty(self, shape, element):
        name = self.name()
        self.emit(f"{name} = tensor.empty() : {tensor(shape, element)}")
        return name

    def filled(self, shape, element, value="0.0"):
        constant, name = self.name(), self.name()
        self.emit(f"{constant} = arith.constant {value} : {element}")
        start, kind = self.empty(shape, element), tensor(shape, element)
        self.emit(
            f"{name} = linalg.fill ins({constant} : {element}) outs({start} : {kind})"
            f" -> {kind}"
        )
        return name

    def result(self, name, shape, element):
        self.results.append((name, tensor(shape, element)))

    def generic(self, inputs, out, body, maps, loops=None):
        """inputs, out: (name, shape, element); the body computes %r of %x0, %x1, …,
        and of %o, the old element."""
        name, kind = self.name(), tensor(out[1], out[2])
        loops = loops or ["parallel"] * len(out[1])
        names = "".join(f"{n}, " for n, _, _ in inputs)[:-2]
        kinds = "".join(f"{tensor(s, e)}, " for _, s, e in inputs)[:-2]
        ins = f" ins({names} : {kinds})" if inputs else ""
        parameters = [f"%x{i}: {e}" for i, (_, _, e) in enumerate(inputs)]
        iterators = ", ".join(f'"{loop}"' for loop in loops)
        self.emit(
            f"{name} = linalg.generic {{indexing_maps = [{', '.join(maps)}],"
            f" iterator_types = [{iterators}]}}{ins} outs({out[0]} : {kind}) {{"
        )
        self.emit(f"^bb0({', '.join(parameters + [f'%o: {out[2]}'])}):")
        for line in body:
            self.emit("  " + line)
        self.emit(f"  linalg.yield %r : {out[2]}")
        self.emit(f"}} -> {kind}")
        return name

    def part(self, name, whole, shape, offsets, element):
        """A slice that is not copied, from `offsets` on."""
        result = self.name()
        ones = ", ".join("1" for _ in shape)
        self.emit(
            f"{result} = tensor.extract_slice {name}[{', '.join(map(str, offsets))}]"
            f" [{', '.join(map(str, shape))}] [{ones}]"
            f" : {tensor(whole, element)} to {tensor(shape, element)}"
        )
        return result

    def text(self):
        kinds = ", ".join(kind for _, kind in self.results)
        return "\n".join(
            [
                "func.func @step("
                + ",\n    ".join(self.arguments)
                + f")\n    -> ({kinds}) {{",
                *self.lines,
                f"  return {', '.join(n for n, _ in self.results)} : {kinds}",
                "}",
                "",
            ]
        )


def elementwise(m):
    for element in FLOATS:
        scale = m.scalar(element)
        for size in SIZES:
            shape = (size,)
            x, p = m.argument(shape, element), m.argument(shape, element, True)
            body = [
                f"%0 = arith.mulf %x0, {scale} : {element}",
                f"%r = arith.subf %o, %0 : {element}",
            ]
            new = m.generic(
                [(x, shape, element)], (p, shape, element), body, [identity(1)] * 2
            )
            m.result(new, shape, element)
    for element in ["i8", "i32"]:
        for size in [5, 2053, 8192]:
            x = m.argument((size,), element)
            out = (m.empty((size,), element), (size,), element)
            body = [f"%r = arith.muli %x0, %x0 : {element}"]
            new = m.generic([(x, (size,), element)], out, body, [identity(1)] * 2)
            m.result(new, (size,), element)
    scalar = m.argument((), "f32")
    out = (m.empty((), "f32"), (), "f32")
    body = ["%r = arith.addf %x0, %x0 : f32"]
    m.result(m.generic([(scalar, (), "f32")], out, body, [identity(0)] * 2), (), "f32")


def mixtures(m):
    """Operands of several widths."""
    for narrow, wide in [("f16", "f32"), ("bf16", "f32"), ("f32", "f64")]:
        for size in [3, 1024, 2053, 8192]:
            shape = (size,)
            x, y = m.argument(shape, narrow), m.argument(shape, wide)
            body = [
                f"%0 = arith.extf %x0 : {narrow} to {wide}",
                f"%r = arith.addf %0, %x1 : {wide}",
            ]
            out = (m.empty(shape, wide), shape, wide)
            inputs = [(x, shape, narrow), (y, shape, wide)]
            new = m.generic(inputs, out, body, [identity(1)] * 3)
            m.result(new, shape, wide)
            body = [f"%r = arith.truncf %x0 : {wide} to {narrow}"]
            out = (m.empty(shape, narrow), shape, narrow)
            cast = m.generic([(new, shape, wide)], out, body, [identity(1)] * 2)
            m.result(cast, shape, narrow)


def parts(m):
    """Arrays that begin where vectors do not, known when compiling or not."""
    number, index, rest = m.scalar("i64"), m.name(), m.name()
    four = m.name()
    m.emit(f"{four} = arith.constant 4 : i64")
    m.emit(f"{rest} = arith.remui {number}, {four} : i64")
    m.emit(f"{index} = arith.index_cast {rest} : i64 to index")
    for element in ["f16", "f32"]:
        for offset in [1, 2, 4, 8, index]:
            for size in [5, 4096, 4099]:
                whole, shape = (size + 8,), (size,)
                x, y = m.argument(whole, element), m.argument(shape, element)
                x = m.part(x, whole, shape, [offset], element)
                body = [f"%r = arith.mulf %x0, %x1 : {element}"]
                out = (m.empty(shape, element), shape, element)
                inputs = [(x, shape, element), (y, shape, element)]
                new = m.generic(inputs, out, body, [identity(1)] * 3)
                m.result(new, shape, element)
    for offsets, shape in [((0, 0), (40, 64)), ((1, 4), (40, 64)), ((2, 3), (39, 61))]:
        x = m.argument((42, 68), "f32")
        x = m.part(x, (42, 68), shape, offsets, "f32")
        body = ["%r = arith.addf %x0, %x0 : f32"]
        out = (m.empty(shape, "f32"), shape, "f32")
        new = m.generic([(x, shape, "f32")], out, body, [identity(2)] * 2)
        m.result(new, shape, "f32")


def rows(m):
    """Broadcasts and transposes in two dimensions and more; positions."""
    for shape in [(37, 53), (64, 100), (96, 128), (1, 4100), (4100, 1), (33, 64)]:
        for element in ["f32", "bf16"]:
            x = m.argument(shape, element)
            row, column = m.argument(shape[1:], element), m.argument(shape[:1], element)
            body = [
                f"%0 = arith.addf %x0, %x1 : {element}",
                f"%r = arith.mulf %0, %x2 : {element}",
            ]
            maps = [
                identity(2),
                "affine_map<(d0, d1) -> (d1)>",
                "affine_map<(d0, d1) -> (d0)>",
                identity(2),
            ]
            inputs = [(x, shape, element), (row, shape[1:], element)]
            inputs.append((column, shape[:1], element))
            out = (m.empty(shape, element), shape, element)
            m.result(m.generic(inputs, out, body, maps), shape, element)
            turned = shape[::-1]
            y = m.argument(turned, element)
            body = [f"%r = arith.subf %x0, %x1 : {element}"]
            maps = ["affine_map<(d0, d1) -> (d1, d0)>", identity(2), identity(2)]
            inputs = [(x, shape, element), (y, turned, element)]
            out = (m.empty(turned, element), turned, element)
            m.result(m.generic(inputs, out, body, maps), turned, element)
    for shape, order in [((3, 40, 36), (0, 2, 1)), ((8, 12, 64), (2, 1, 0))]:
        turned = tuple(shape[i] for i in order)
        x = m.argument(shape, "f32")
        loops = ", ".join(f"d{order.index(i)}" for i in range(3))
        maps = [f"affine_map<(d0, d1, d2) -> ({loops})>", identity(3)]
        out = (m.empty(turned, "f32"), turned, "f32")
        body = ["%r = arith.negf %x0 : f32"]
        m.result(m.generic([(x, shape, "f32")], out, body, maps), turned, "f32")
    for shape in [(5, 7, 3, 2), (4, 6, 8, 16)]:
        x, y = m.argument(shape, "f32"), m.argument((shape[1], shape[3]), "f32")
        maps = [identity(4), "affine_map<(d0, d1, d2, d3) -> (d1, d3)>", identity(4)]
        out = (m.empty(shape, "f32"), shape, "f32")
        body = [
            "%i = linalg.index 3 : index",
            "%j = arith.index_cast %i : index to i32",
            "%k = arith.sitofp %j : i32 to f32",
            "%0 = arith.mulf %x0, %k : f32",
            "%r = arith.addf %0, %x1 : f32",
        ]
        inputs = [(x, shape, "f32"), (y, (shape[1], shape[3]), "f32")]
        m.result(m.generic(inputs, out, body, maps), shape, "f32")


def reductions(m):
    """Along rows and columns; with what comes before and behind them."""
    maps = {
        "rows": ("affine_map<(d0, d1) -> (d0)>", ["parallel", "reduction"], 0),
        "columns": ("affine_map<(d0, d1) -> (d1)>", ["reduction", "parallel"], 1),
        "all": ("affine_map<(d0, d1) -> ()>", ["reduction", "reduction"], None),
    }
    shapes = [(7, 1000), (7, 1001), (1, 64), (64, 1), (300, 20), (0, 5), (5, 0)]
    for shape in shapes:
        for out_map, loops, kept in maps.values():
            for element in FLOATS:
                x = m.argument(shape, element)
                out_shape = () if kept is None else (shape[kept],)
                start = (m.filled(out_shape, element), out_shape, element)
                body = [f"%r = arith.addf %o, %x0 : {element}"]
                inputs = [(x, shape, element)]
                total = m.generic(inputs, start, body, [identity(2), out_map], loops)
                out = (m.empty(out_shape, element), out_shape, element)
                body = [f"%r = arith.mulf %x0, %x0 : {element}"]
                square = m.generic(
                    [(total, out_shape, element)],
                    out,
                    body,
                    [identity(len(out_shape))] * 2,
                )
                m.result(total, out_shape, element)
                m.result(square, out_shape, element)
    # What is reduced begins where vectors do not.
    for offset in [1, 4]:
        x = m.part(m.argument((9, 136), "f32"), (9, 136), (9, 128), [0, offset], "f32")
        start = (m.filled((9,), "f32"), (9,), "f32")
        body = ["%r = arith.addf %o, %x0 : f32"]
        out_map, loops, _ = maps["rows"]
        total = m.generic(
            [(x, (9, 128), "f32")], start, body, [identity(2), out_map], loops
        )
        m.result(total, (9,), "f32")


def products(m):
    """A row of biases, a product, and what follows, in one launch."""
    forms = [("m, k", "k, n"), ("m, k", "n, k"), ("k, m", "k, n")]
    sizes = [(5, 7, 3), (256, 256, 12), (300, 258, 20), (257, 301, 9), (1024, 1028, 8)]
    for rows_, columns, depth in sizes:
        for left, right in forms:
            for element in ["f32", "f64"] if rows_ < 1000 else ["f32"]:
                extents = {"m": rows_, "n": columns, "k": depth}
                shapes = [
                    tuple(extents[loop] for loop in operand.split(", "))
                    for operand in (left, right)
                ]
                a, b = (m.argument(shape, element) for shape in shapes)
                shape, bias = (rows_, columns), m.argument((columns,), element)
                start, begun = m.empty(shape, element), m.name()
                kind, row = tensor(shape, element), tensor((columns,), element)
                m.emit(
                    f"{begun} = linalg.broadcast ins({bias} : {row})"
                    f" outs({start} : {kind}) dimensions = [0]"
                )
                maps = [
                    f"affine_map<(m, n, k) -> ({indices})>"
                    for indices in (left, right, "m, n")
                ]
                body = [
                    f"%0 = arith.mulf %x0, %x1 : {element}",
                    f"%r = arith.addf %o, %0 : {element}",
                ]
                product = m.generic(
                    [(a, shapes[0], element), (b, shapes[1], element)],
                    (begun, shape, element),
                    body,
                    maps,
                    ["parallel", "parallel", "reduction"],
                )
                body = [f"%r = arith.mulf %o, %o : {element}"]
                m.result(
                    m.generic([], (product, shape, element), body, [identity(2)]),
                    shape,
                    element,
                )
    # Operands that begin where vectors do not.
    a = m.part(m.argument((258, 20), "f32"), (258, 20), (256, 16), [1, 1], "f32")
    b = m.part(m.argument((20, 260), "f32"), (20, 260), (16, 256), [0, 2], "f32")
    start, name = m.filled((256, 256), "f32"), m.name()
    kind = tensor((256, 256), "f32")
    m.emit(
        f"{name} = linalg.matmul ins({a}, {b} : tensor<256x16xf32>, tensor<16x256xf32>)"
        f" outs({start} : {kind}) -> {kind}"
    )
    m.result(name, (256, 256), "f32")


def main():
    m = Module()
    for part in (elementwise, mixtures, parts, rows, reductions, products):
        part(m)
    print(m.text())


if __name__ == "__main__":
    main()
