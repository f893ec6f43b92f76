#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs the examples of the reference pages, which come from the descriptions in the
# .td files: every ```mlir block, and every `Example: `#ddp…`` of an attribute.
#
#   examples.py --opt DDPHOOK_OPT PAGE.md...
#
# Each example has to parse, to verify, and to be the same again when it is printed
# and parsed once more. An example of an operation has to contain the operation.
# What stands below "Before" goes through the pass that the section describes, with
# the options that the text gives as `name=value`, and has to become what stands below
# "After". Below "refused" the pass has to fail, with the errors that the comments
# `// error: text` show in their lines.
#
# Examples are fragments. What they lack is put around them:
#
# - Lines that belong into a function get one. Its arguments are the names that the
#   fragment does not define; it returns the values that the fragment does not use.
#   Nobody writes down their types: they begin as `none`, and the parser's complaints
#   say what they are.
# - Symbols that an example does not define come from the example that does.

import argparse
import difflib
import re
import subprocess
import sys
from dataclasses import dataclass, field

NAME = r"%[A-Za-z0-9_$.-]+"
# What stands in a module, not in a function.
MODULE_OPS = (
    "#",
    "func.func",
    "llvm.func",
    "llvm.mlir.global",
    "gpu.module",
    "memref.global",
    "ddp.process_group",
    "ddp.bucket_info",
    "ddp.state ",
    "shard.grid",
    '"sdy.mesh"',
)
SEPARATOR = "\n// -----\n"
ANCHORS = ("{}", "func.func({})", "gpu.module({})")


@dataclass
class Example:
    where: str  # page:line
    section: str  # the title it stands under
    role: str  # plain, before, after or refused
    options: str
    text: str
    chunks: list = field(default_factory=list)
    arguments: dict = field(default_factory=dict)  # name -> type
    results: dict = field(default_factory=dict)
    error: str = ""


def read_page(path):
    """The examples of a page, in order."""
    title, prose, ended, block, start = "", [], False, None, 0
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if block is not None:
            if line == "```":
                text = " ".join(prose)
                yield Example(
                    f"{path}:{start}",
                    title,
                    role_of(text),
                    " ".join(re.findall(r"`([a-z-]+=[^`]*)`", text)),
                    "\n".join(block),
                )
                block, prose = None, []
            else:
                block.append(line)
        elif line.startswith("```mlir"):
            block, start = [], number
        elif line.startswith("#"):
            title, prose = line.lstrip("# "), []
        elif not line:
            ended = True
        else:
            if ended:
                prose, ended = [], False
            inline = re.fullmatch(r"Example: `([#!][^`]*)`", line)
            if inline:
                yield Example(f"{path}:{number}", title, "plain", "", inline[1])
            prose.append(line)


def role_of(prose):
    """What the text above an example says that it is."""
    if "refused" in prose:
        return "refused"
    for role in ("before", "after"):
        if re.match(role + r"\b", prose, re.IGNORECASE):
            return role
    return "plain"


def split(example):
    """Cuts an example into operations, by the lines that are not indented."""
    chunks = []
    for line in example.text.split("\n"):
        if not chunks or not (line == "" or line[0] in " })^"):
            chunks.append(line)
        else:
            chunks[-1] += "\n" + line
    example.chunks = chunks
    body = "\n".join(c for c in chunks if not c.startswith(MODULE_OPS))
    body = re.sub(r"//.*|\"(\\.|[^\"])*\"", "", body)
    defined = set(re.findall(rf"({NAME})(?=:\s)", body))
    for carried in re.findall(r"iter_args\(([^)]*)\)", body):
        defined.update(re.findall(rf"({NAME}) =", carried))
    body = re.sub(rf"(?<=[(,])\s*{NAME} = (?={NAME})", "", body)
    top = {}
    for match in re.finditer(
        rf"(?P<names>{NAME}(:\d+)?(?:\s*,\s*{NAME}(:\d+)?)*)\s*=(?!=)", body
    ):
        at_top = match.start() == 0 or body[match.start() - 1] == "\n"
        for name, count in re.findall(rf"({NAME})(?::(\d+))?", match["names"]):
            defined.add(name)
            if at_top:
                parts = [f"{name}#{i}" for i in range(int(count))] if count else [name]
                top[name] = (match.end(), parts)
    for end, parts in top.values():
        used = set(re.findall(rf"{NAME}(?:#\d+)?", body[end:]))
        for part in parts:
            if part not in used:
                example.results[part] = "none"
    for name in re.findall(NAME, body):
        if name not in defined:
            example.arguments[name] = "none"


def definitions(examples):
    """Symbol -> the operation of an example that defines it."""
    found = {}
    for example in examples:
        for chunk in example.chunks:
            match = re.match(r"ddp\.(?:process_group|state) @([\w.]+)", chunk)
            if match:
                found.setdefault(match[1], chunk)
    return found


def wrap(example, symbols):
    """The example as a module. Of its result each line of the fragment is one line,
    and so is each type that has to be found out."""
    text = example.text.strip()
    if re.match(r"[#!](?!\w+ = )", text):
        return "func.func private @example() attributes {example = " + text + "}"
    if text.startswith("module"):
        return text
    outside = [c for c in example.chunks if c.startswith(MODULE_OPS)]
    inside = [c for c in example.chunks if not c.startswith(MODULE_OPS)]
    own = set(definitions([example]))
    while True:
        used = set(re.findall(r"@([\w.]+)", "\n".join(outside + inside)))
        missing = sorted((used - own) & set(symbols))
        if not missing:
            break
        outside = [symbols[name] for name in missing] + outside
        own.update(missing)
    lines = list(outside)
    if inside:
        lines.append("func.func @step(")
        arguments = [f"{n}: {t}" for n, t in example.arguments.items()]
        lines.append(",\n".join(arguments) + ")")
        results = ",\n".join(example.results.values())
        lines.append(f"-> ({results}) {{" if results else "{")
        lines += inside
        lines.append("func.return")
        lines.append(",\n".join(example.results))
        lines.append((":\n" if results else "") + results + "\n}")
    return "\n".join(lines)


class Runner:
    """Runs ddphook-opt."""

    def __init__(self, opt):
        self.opt = opt

    def __call__(self, text, *flags):
        run = subprocess.run(
            [self.opt, "--allow-unregistered-dialect", *flags, "-"],
            input=text,
            capture_output=True,
            text=True,
        )
        return run.returncode, run.stdout, run.stderr

    def each(self, texts):
        """Runs it once on many modules: for each what it prints, or nothing, and
        its messages with the lines of that module."""
        _, out, errors = self(
            SEPARATOR.join(texts),
            "--split-input-file",
            "--mlir-print-op-on-diagnostic=0",
        )
        ends, line = [], 0
        for text in texts:
            line += (text + SEPARATOR).count("\n")
            ends.append(line)
        messages = [""] * len(texts)
        for message in re.split(r"(?m)^(?=<stdin>:\d+:\d+: error)", errors):
            match = re.match(r"<stdin>:(\d+):(.*)", message, re.DOTALL)
            if match:
                which = next(i for i, end in enumerate(ends) if int(match[1]) <= end)
                begin = ends[which - 1] if which else 0
                messages[which] += f"<stdin>:{int(match[1]) - begin}:{match[2]}"
        good = iter(out.split(SEPARATOR))
        return [("", m) if m else (next(good).strip() + "\n", "") for m in messages]


def infer(run, examples, symbols):
    """Finds the types of the examples' arguments and results. What the parser does
    not like in the end is the example's error."""
    open_ones = list(examples)
    while open_ones:
        texts = [wrap(e, symbols) for e in open_ones]
        again = []
        for example, text, (_, errors) in zip(open_ones, texts, run.each(texts)):
            if not errors:
                continue
            again.append(example)
            match = re.match(
                rf"<stdin>:(\d+):\d+: error: use of value '({NAME})' expects different "
                r"type than prior uses: '(.*)' vs '(.*)'",
                errors,
            )
            line, name, wanted, had = match.groups() if match else (1, "", "", "")
            # A result stands alone in its line, with its number.
            alone = text.split("\n")[int(line) - 1].rstrip(",").strip()
            if example.results.get(alone) == "none" and had != "none":
                example.results[alone] = had
            elif example.arguments.get(name) == "none" and had == "none":
                example.arguments[name] = wanted
            else:
                example.error = errors
                again.pop()
        open_ones = again


def expected_errors(text):
    return [
        (number, match[1])
        for number, line in enumerate(text.split("\n"), 1)
        if (match := re.search(r"// error: (.*)$", line))
    ]


def match_errors(wanted, got):
    """Whether each has its line in the other."""
    return len(wanted) == len(got) and all(
        line == at and text in message
        for (line, text), (at, message) in zip(sorted(wanted), sorted(got))
    )


def run_pass(run, pass_name, options, text):
    """Runs a pass on the operations that it is for."""
    step = pass_name + (f"{{{options}}}" if options else "")
    for anchor in ANCHORS:
        code, out, errors = run(
            text, f"--pass-pipeline=builtin.module({anchor.format(step)})"
        )
        if not re.search(r"[Cc]an't add pass|[Uu]nable to schedule pass", errors):
            break
    return code, out, errors


def by_operation(printed):
    """What a module holds, in any order: an example does not show where in a module
    a pass puts what it makes."""
    parts = re.split(r"\n  (?=\w)", printed.replace("\n}\n", "\n"))
    return sorted(part.strip() for part in parts)


def difference(wanted, got):
    return "\n".join(
        difflib.unified_diff(
            wanted.split("\n"), got.split("\n"), "shown", "what it is", lineterm=""
        )
    )


def check(run, example, before, symbols, printed):
    """Why an example that parses is wrong, or nothing."""
    operation = re.match(r"`(ddp\.\w+)` \(ddp::", example.section)
    if operation and not re.search(re.escape(operation[1]) + r"\b(?!_)", printed):
        return f"expected an example of '{operation[1]}'"
    pass_name = re.match(r"`-([\w-]+)`", example.section)
    if example.role == "after":
        code, out, errors = run_pass(
            run, pass_name[1], before.options, wrap(before, symbols)
        )
        if code or by_operation(out) != by_operation(printed):
            return errors or difference(printed, out)
    if example.role == "refused":
        text = wrap(example, symbols)
        code, _, errors = run_pass(run, pass_name[1], example.options, text)
        got = re.findall(r"<stdin>:(\d+):\d+: error: (.*)", errors)
        got = [(int(line), message) for line, message in got]
        wanted = expected_errors(text)
        if code == 0 or not wanted or not match_errors(wanted, got):
            return f"expected the errors {wanted}, but got {got}"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--opt", required=True)
    parser.add_argument("--show", action="store_true", help="print what passes make")
    parser.add_argument("pages", nargs="+")
    arguments = parser.parse_args()
    run = Runner(arguments.opt)
    examples = [e for page in arguments.pages for e in read_page(page)]
    for example in examples:
        split(example)
    symbols = definitions(examples)
    before = {}
    for example in examples:
        if "…" in example.text or "..." in example.text:
            example.error = "expected a whole example, but got an ellipsis"
        if example.role == "before":
            before[example.section] = example
    infer(run, [e for e in examples if e.role != "after" and not e.error], symbols)
    for example in examples:
        if example.role != "after" or example.error:
            continue
        # The same function as before, but for its body.
        first = before.get(example.section)
        if not first:
            example.error = "expected an example 'Before' above it"
            continue
        missing = [n for n in example.arguments if n not in first.arguments]
        if missing:
            example.error = f"{', '.join(missing)}: not in the example before"
        example.arguments, example.results = first.arguments, first.results
    good = [e for e in examples if not e.error]
    printed = run.each([wrap(e, symbols) for e in good])
    again = run.each([text for text, _ in printed])
    for example, (text, errors), (repeated, new_errors) in zip(good, printed, again):
        example.error = errors or new_errors
        if not example.error and text != repeated:
            example.error = difference(text, repeated)
        if not example.error:
            first = before.get(example.section)
            example.error = check(run, example, first, symbols, text)
    wrong = 0
    for example in examples:
        if example.error:
            wrong += 1
            print(f"{example.where}: {example.section}:\n{example.error}\n")
        if arguments.show and example.role == "before":
            name = re.match(r"`-([\w-]+)`", example.section)[1]
            print(*run_pass(run, name, example.options, wrap(example, symbols)))
    shown = {e.section for e in examples}
    for page in arguments.pages:
        for line in open(page, encoding="utf-8"):
            operation = re.match(r"#+ (`ddp\.\w+` \(ddp::\w+Op\))$", line)
            if operation and operation[1] not in shown:
                wrong += 1
                print(f"{page}: {operation[1]}: expected an example")
    print(
        f"{len(examples)} examples, {wrong} wrong; of these "
        f"{sum(e.role == 'after' for e in examples)} made by a pass, "
        f"{sum(e.role == 'refused' for e in examples)} refused by one"
    )
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
