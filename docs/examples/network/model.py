# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""100 MiB of gradients with the shapes of a small language model.

Eight transformer blocks of width 512 and an embedding of 2048 words. A weight's
gradient is the product of eight rows of activations and of deltas, as behind a
backward pass with eight tokens. The compiled step and gradients() make the same
bits.
"""

import numpy as np

BLOCKS, WIDTH, HIDDEN, WORDS, TOKENS = 8, 512, 2048, 2048, 8
BUCKET_BYTES = 25 << 20


def inputs():
    """The arguments of a step, by name: columns of their matrices."""
    columns = {}
    for block in reversed(range(BLOCKS)):
        columns.update(
            {
                f"x{block}": WIDTH,  # into the block
                f"qkv{block}": 3 * WIDTH,
                f"out{block}": WIDTH,
                f"up{block}": HIDDEN,
                f"down{block}": WIDTH,
            }
        )
    return {**columns, "words": WORDS, "embedded": WIDTH}


def parameters():
    """(name, kind, operands) in the order in which gradients become ready."""
    result = []
    for b in reversed(range(BLOCKS)):
        layers = [("down", "up"), ("up", "x"), ("out", "x"), ("qkv", "x")]
        for delta, activation in layers:
            # Weights first, then the bias.
            result += [
                (f"{delta}{b}.weight", "matmul", (f"{delta}{b}", f"{activation}{b}")),
                (f"{delta}{b}.bias", "sum", (f"{delta}{b}",)),
            ]
            if delta in ("up", "qkv"):
                kind = "sum" if delta == "up" else "product"
                result.append((f"{delta}{b}.norm", kind, (f"x{b}",)))
    return [*result, ("embedding", "matmul", ("words", "embedded"))]


def shape(kind, operands):
    columns = inputs()
    sizes = tuple(columns[name] for name in operands)
    return sizes if kind == "matmul" else sizes[:1]


def returned():
    """The averages that the step gives back to be compared: a few, because each
    of them is copied."""
    return ["out7.weight", "qkv7.bias", "up3.norm", "out3.weight", "out0.weight"]


def buckets():
    """Lists of parameters, as DDP's reducer makes them: a bucket is closed when
    it has reached the limit."""
    result, size = [[]], 0
    for parameter in parameters():
        if size >= BUCKET_BYTES:
            result.append([])
            size = 0
        result[-1].append(parameter)
        size += 4 * int(np.prod(shape(*parameter[1:])))
    return result


def make_inputs(rank):
    random = np.random.default_rng([2026, rank])
    return {
        name: random.standard_normal((TOKENS, columns)).astype(np.float32)
        for name, columns in inputs().items()
    }


def gradient(kind, operands, values):
    """One term after the other, as the compiled loops add and multiply."""
    first, *others = (values[name] for name in operands)
    if kind == "matmul":
        result = np.zeros((first.shape[1], others[0].shape[1]), np.float32)
        for row, column in zip(first, others[0]):
            result += np.outer(row, column)
        return result
    ufunc = np.add if kind == "sum" else np.multiply
    return ufunc.accumulate(first, axis=0)[-1]


MODULE = """// Written by model.py.
#left = affine_map<(m, n, k) -> (k, m)>
#right = affine_map<(m, n, k) -> (k, n)>
#product = affine_map<(m, n, k) -> (m, n)>
module {{
  ddp.process_group @dp{ranks}
  func.func @step({arguments}) -> ({results}) {{
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
{body}
    return {averages} : {results}
  }}
}}
"""

GRADIENT = """
    %m{i} = tensor.empty() : {type}
    %f{i} = linalg.fill ins(%{start} : f32) outs(%m{i} : {type}) -> {type}
    %g{i} = {operation}
    %r{i} = ddp.all_reduce mean %g{i} on @dp : {type}"""

MATMUL = """linalg.matmul indexing_maps = [#left, #right, #product]
        ins({operands}) outs(%f{i} : {type}) -> {type}"""

REDUCE = """linalg.reduce {{{scalar}}} ins({operands}) outs(%f{i} : {type})
        dimensions = [0]"""


def module_text(ranks=""):
    """The step in MLIR. Gradients are born in their buckets and stay there."""
    columns = inputs()
    types = {name: f"tensor<{TOKENS}x{n}xf32>" for name, n in columns.items()}
    body, numbers, result_types = [], {}, {}
    for i, (name, kind, operands) in enumerate(parameters()):
        sizes = "x".join(map(str, shape(kind, operands)))
        type = f"tensor<{sizes}xf32>"
        text = ", ".join(f"%{o}" for o in operands)
        text += " : " + ", ".join(types[o] for o in operands)
        scalar = "arith.mulf" if kind == "product" else "arith.addf"
        template = MATMUL if kind == "matmul" else REDUCE
        operation = template.format(i=i, type=type, operands=text, scalar=scalar)
        start = "one" if kind == "product" else "zero"
        body.append(
            GRADIENT.format(i=i, type=type, start=start, operation=operation)
        )
        numbers[name], result_types[name] = i, type
    return MODULE.format(
        ranks=ranks,
        arguments=", ".join(f"%{name}: {type}" for name, type in types.items()),
        body="".join(body),
        averages=", ".join(f"%r{numbers[name]}" for name in returned()),
        results=", ".join(result_types[name] for name in returned()),
    )
