#!/usr/bin/env python3
"""Writes the tables of hooks and of their options from TableGen's records, and
those of the plan from the list of its fields.

    hook-tables.py [--check] RECORDS.json

Called by generate-docs.sh. A table is between two lines

    <!-- NAME, written by tools/generate-docs.sh -->
    <!-- end of NAME -->

The Python package's classes of hooks are a separate file.
"""

import functools
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": ["hooks in short"],
    "docs/plan.md": ["Group", "Bucket", "State", "MatrixList", "Collective", "Assignment"]
    + ["Argument", "Result"],
    "docs/generated/Hooks.md": ["hook names", "hooks", "hook options"],
}
FIELDS = "runtime/include/ddphook/runtime/plan_fields.inc"
PYTHON = "tools/python/src/ddphook/_generated_hooks.py"
# Python's types of options, by kind. A choice has the literals of its words.
ANNOTATIONS = {"Integer": "int", "Number": "float", "Flag": "bool", "WireType": "bool"}
ANNOTATIONS |= {"Type": "DType", "Symbol": "ProcessGroup"}
# Names of fields that differ from the option's.
SHORT = {"matrix_approximation_rank": "rank"}
# Options whose defaults depend on others, and on what.
OPEN = {"matrix_view": "; by default first, but fitted in JAX"}
OPEN["improvement"] = "; by default, ``numerics`` decides"
DECORATOR = "@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)"
PREAMBLE = '''\
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hooks as classes, and their names.

Written by tools/generate-docs.sh from the definitions of the hooks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Literal

from ddphook._typed_hook import DType, ProcessGroup, TypedHook

HookName = Literal[
    {names},
]
'''


class Records:
    """The hooks of the dialect, in the order of their definitions."""

    def __init__(self, path):
        self.records = json.loads(pathlib.Path(path).read_text())
        hooks = map(self.records.get, self.records["!instanceof"]["DDP_HookAttrBase"])
        self.hooks = sorted(
            hooks, key=lambda hook: [*map(int, re.findall(r"\d+", hook["!locs"][0]))]
        )
        self.named = [h for h in self.hooks if "DDP_HookAttr" in h["!superclasses"]]

    def parameters(self, hook):
        """Returns names with their definitions."""
        arguments = hook["parameters"]["args"]
        return [(name, self.records[value["def"]]) for value, name in arguments]


def table(header, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return [lines[0], "|---" * len(header) + "|", *lines[1:]]


def hooks(records, is_short=False):
    columns = {"hook": "usage", "PyTorch's": "pytorch"}
    columns |= {} if is_short else {"what a rank contributes, W ranks": "contributes"}
    columns |= {"bytes on the wire, n elements of f32": "bytesOnTheWire"}
    columns |= {} if is_short else {"compared with PyTorch": "parity"}
    # Wrappers of hooks come last.
    order = sorted(records.hooks, key=lambda hook: hook not in records.named)
    rows = [[hook[field] for field in columns.values()] for hook in order]
    return table(list(columns), rows)


def hook_names(records):
    rows = [[f"`{hook['mnemonic']}`", hook["summary"]] for hook in records.named]
    return table(["hook", ""], rows)


def default_of(owners):
    """Returns the default of most hooks that have an option, and the other defaults."""
    values = list(owners.values())
    usual = max(values, key=values.count)
    others = (f"`{value}` of `{owner}`" for owner, value in owners.items() if value != usual)
    return ", ".join([*([f"`{usual}`"] if usual else []), *others])


def hook_options(records):
    options = {}
    for hook in records.named:
        for name, parameter in records.parameters(hook):
            option = (parameter["optionName"] or name).lower().replace("_", "-")
            default = parameter["optionDefault"]
            options.setdefault(option, (parameter, {}))[1][hook["mnemonic"]] = default
    rows, numerics = [], None
    for option, (parameter, owners) in options.items():
        of = ", ".join(f"`{owner}`" for owner in owners)
        meaning = parameter["summary"]
        if parameter["isImprovement"]:
            meaning += "; `true` with `numerics=improved`"
            if parameter["improves"]:
                meaning += f" and `{parameter['improves'].replace('_', '-')}`"
            if numerics is None:
                numerics = len(rows)
                what = "`eager`: as PyTorch computes; `improved`: better than that"
                rows.append(["`numerics`", of, "`eager`", what])
        rows.append([f"`{option}`", of, default_of(owners), meaning])
    return table(["option", "of", "default", "meaning"], rows)


def plan_fields(plan_object):
    """Returns the fields of an object of the plan that have a description."""
    macros = rf"PLAN_FIELD\({plan_object}, |PLAN_{plan_object.upper()}\("
    if plan_object == "Collective":
        macros += r"|COLLECTIVE_FIELD\("
    field = rf'^DDPHOOK_(?:{macros})\w+, (\w+), .*?"(.+)"\)$'
    rows = re.findall(field, (ROOT / FIELDS).read_text(), re.MULTILINE)
    return table(["key", "meaning"], [[f"`{key}`", text] for key, text in rows])


TABLES = {"hooks in short": functools.partial(hooks, is_short=True), "hooks": hooks}
TABLES |= {"hook names": hook_names, "hook options": hook_options}


def sentence(text):
    """Returns a text with a capital letter at the start, unless a name is there."""
    return text[0].upper() + text[1:] if text.split()[0].islower() else text


def python_fields(parameters):
    """Yields the name, the option, the annotation, the default and the text of each field."""
    for name, parameter in parameters:
        option, text = parameter["optionName"] or name, sentence(parameter["summary"])
        words, default = parameter["optionWords"], parameter["optionDefault"]
        kind = ANNOTATIONS.get(parameter["optionKind"]) or f"Literal{json.dumps(words)}"
        rule = OPEN.get("improvement" if parameter["isImprovement"] else option)
        if rule or not default:
            kind, default, text = f"{kind} | None", "None", f"{text}{rule or ''}"
        else:
            default = json.dumps(default) if words else str(json.loads(default))
        name = SHORT.get(option, option)
        if name != option:
            text += f". ``{option}`` in strings and in PyTorch"
        yield name, option, kind, default, text
    if any(parameter["isImprovement"] for _, parameter in parameters):
        text = "``eager``: as PyTorch computes; ``improved``: better than that"
        yield "numerics", "numerics", 'Literal["eager", "improved"]', '"eager"', text


def python_class(hook, fields):
    """Returns the lines of a dataclass for a hook."""
    name, of_pytorch = hook["mnemonic"], hook["pytorch"].replace("`", "``")
    known = f"; in PyTorch, {of_pytorch}" if of_pytorch != "none" else ""
    yield from [DECORATOR, f"class {hook['cppClassName'][:-len('HookAttr')]}(TypedHook):"]
    yield from [f'    """{sentence(hook["summary"])}.', ""]
    yield from wrap(f'As a string, ``"{name}"``{known}.', 4)
    yield from ["", "    Parameters", "    ----------"] if fields else []
    for field, *_, text in fields:
        yield from [f"    {field}", *wrap(text + ".", 8)]
    function = re.search(r"\w+_hook|$", of_pytorch)[0]
    yield from ['    """', "", f'    name: ClassVar[str] = "{name}"']
    yield f'    function: ClassVar[str] = "{function}"'
    if short := {field: option for field, option, *_ in fields if field != option}:
        yield f"    _option_names: ClassVar[Mapping[str, str]] = {json.dumps(short)}"
    yield from (f"    {field}: {kind} = {default}" for field, _, kind, default, _ in fields)


def wrap(text, indent):
    margin = " " * indent
    return textwrap.wrap(text, 88, initial_indent=margin, subsequent_indent=margin)


def python_hooks(records):
    """Returns the Python package's file of classes."""
    names = ",\n    ".join(json.dumps(hook["mnemonic"]) for hook in records.named)
    lines = PREAMBLE.format(names=names).splitlines()
    for hook in records.named:
        fields = list(python_fields(records.parameters(hook)))
        lines += ["", "", *python_class(hook, fields)]
    exported = ["HookName", *re.findall(r"^class (\w+)", "\n".join(lines), re.MULTILINE)]
    lines += ["", "", "__all__ = [", *(f'    "{name}",' for name in sorted(exported)), "]"]
    return "\n".join([*lines, ""])


def replace(text, name, lines):
    begin = f"<!-- {name}, written by tools/generate-docs.sh -->\n"
    end = f"<!-- end of {name} -->\n"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"expected the lines {begin.strip()} and {end.strip()}")
    return head + begin + "\n".join(lines) + "\n" + end + tail


def main():
    check = "--check" in sys.argv[1:]
    records = Records(sys.argv[-1])
    files = {}
    for page, names in PAGES.items():
        files[page] = (ROOT / page).read_text()
        for name in names:
            lines = TABLES[name](records) if name in TABLES else plan_fields(name)
            files[page] = replace(files[page], name, lines)
    files[PYTHON] = python_hooks(records)
    failures = 0
    for file, text in files.items():
        path = ROOT / file
        if not check:
            path.write_text(text)
            print(f"wrote tables of {file}")
        elif path.exists() and path.read_text() == text:
            print(f"PASS tables of {file}")
        else:
            print(f"FAIL tables of {file}: run tools/generate-docs.sh")
            failures += 1
    sys.exit(failures > 0)


main()
