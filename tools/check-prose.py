#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds prose that CONTRIBUTING.md (*Prose*) rules out, in comments, docstrings and pages.

    check-prose.py

- A sentence of a comment begins with "Of", or with "What" and is not a question.
- A word of WORDS occurs, outside of code.
- A sentence of a page has more than LONGEST words.

Prints each finding as FILE: TEXT. The last line is "N of N files are in plain English".
"""

import ast
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ("lib", "include", "runtime", "tools")
WORDS = re.compile(r"\b(behind|deal|dealt|belongs? into|in turns|be it|who forgets|as one sees)\b")
LONGEST = 40


def listed(*patterns):
    names = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [n for n in names if "test/" not in n and "generated" not in n]


def python_comments(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
    block = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            block.append(token.string.lstrip("# "))
        elif token.type != tokenize.NL:
            yield "\n".join(block)
            block = []


def comments(name, text):
    """Returns the blocks of prose in a source file."""
    if name.endswith(".py"):
        return python_comments(text)
    if name.endswith((".sh", ".cmake")):
        return (re.sub(r"^#\s?", "", b, flags=re.M) for b in re.findall(r"(?:^#.*\n)+", text, re.M))
    blocks = re.findall(r"(?:^[ \t]*//.*\n)+", text, re.M)
    blocks = [re.sub(r"^[ \t]*//+[!<]?\s?", "", block, flags=re.M) for block in blocks]
    blocks += [re.sub(r"\n\s*\*", "\n", b) for b in re.findall(r"/\*(.*?)\*/", text, re.S)]
    if name.endswith(".td"):
        # The others are code.
        blocks += [b for b in re.findall(r"\[\{(.*?)\}\]", text, re.S) if ";\n" not in b]
    return blocks


def prose(page):
    """Returns a page without its tables, headings, code and generated parts."""
    page = re.sub(r"```.*?```|^<!--.*?written by.*?<!-- end of.*?-->", " ", page, flags=re.S | re.M)
    return "\n".join("" if re.match(r"\s*(\||#|<|!\[)", line) else line for line in page.split("\n"))


def sentences(block):
    block = re.sub(r"```.*?```", " ", block, flags=re.S)
    for paragraph in re.split(r"\n\s*(?:\n|[-*] |\d+\. )", block):
        yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z`\[])", " ".join(paragraph.split()))


def findings(name, text):
    is_page = name.endswith(".md")
    for block in [prose(text)] if is_page else comments(name, text):
        for sentence in sentences(block):
            if match := WORDS.search(re.sub(r"`[^`]*`", "", sentence)):
                yield f"'{match.group()}': {sentence}"
            if not is_page and re.match(r"(Of|What)\s", sentence) and not sentence.endswith("?"):
                yield f"begins with '{sentence.split()[0]}': {sentence}"
            if is_page and len(sentence.split()) > LONGEST:
                yield f"{len(sentence.split())} words: {sentence}"


def main():
    endings = ("cpp", "h", "inc", "cu", "cuh", "td", "py", "sh", "cmake")
    names = listed(*(f"{top}/*.{ending}" for top in SOURCES for ending in endings))
    names += listed("*.md")
    bad = collections.Counter()
    for name in names:
        for finding in findings(name, (ROOT / name).read_text()):
            print(f"{name}: {finding[:150]}")
            bad[name] += 1
    print(f"{len(names) - len(bad)} of {len(names)} files are in plain English")
    return bool(bad)


sys.exit(main())
