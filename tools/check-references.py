#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks references in the documents, and that they render:

- links of all Markdown files to files and headings of the project;
- paths in backquotes that begin with a top-level directory (`runtime/src/...`, `tools/...`);
  patterns with `*` must match something;
- the tests in the lines of test/status.txt and test/faults.txt, `feature | path::name,name path`;
- that test/faults.txt names the tests of each fault of docs/faults.md;
- messages, in tables and after `error:` in code blocks: the text between names and numbers must
  be in a string of the sources. For docs/passes.md and the generated pages, test/Docs compares
  them with the compiler's output;
- fences of code blocks: all blocks are closed, and none contains another.

Prints PASS or FAIL and one line for each broken reference.
"""

import errno
import itertools
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FAULTS = ROOT / "docs/faults.md"
FAULT_TESTS = ROOT / "test/faults.txt"
STATUS = ROOT / "test/status.txt"
ROOMS = ("lib/", "include/", "runtime/", "tools/", "test/", "docs/", ".ci/")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.*/-]+")
SOURCES = ("lib", "include", "runtime", "tools", "docs/examples")
SUFFIXES = (".cpp", ".h", ".td", ".inc", ".py")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Variable parts of messages: names, numbers, statuses.
FILLED_IN = re.compile(
    r"""…|: |'[^']*'|"[^"]*"|\([A-Z][^)]*\)|\b\w*\d[\w.]*( [KMG]?B)?|@\w+|\b[A-Z_]{3,}\b|\{\w+\}|\[|\]"""
)


def files(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]


def strings():
    """Returns all string literals of the sources, one per line with adjacent ones joined, and
    the system's error messages."""
    texts = (path.read_text() for path in files(*SOURCES) if path.suffix in SUFFIXES)
    joined = (re.sub(r'(?<!\\)"\s+f?"', "", text) for text in texts)
    found = (STRING.findall(text) for text in joined)
    texts = [text.replace('\\"', '"') for many in found for text in many]
    return "\n".join(texts + [os.strerror(number) for number in errno.errorcode])


def check_fences(text):
    """Yields code blocks that a CommonMark renderer would read differently than intended."""
    opened = None
    for number, line in enumerate(text.split("\n"), 1):
        if not (fence := re.match(r" {0,3}(`{3,})(.*)", line)):
            continue
        if not opened:
            opened = number, fence[1]
        elif len(fence[1]) >= len(opened[1]):
            if fence[2].strip():
                yield f"line {number}: a code block begins in that of line {opened[0]}"
                return
            opened = None
    if opened:
        yield f"line {opened[0]}: the code block has no end"


def faults(page):
    """Returns the two cells of each row of the page's tables of faults."""
    tables = re.findall(r"^\| fault \|.*\n\|-.*\n((?:\|.*\n)+)", page, re.M)
    return [re.findall(r"\| (.*?) (?=\|)", row) for table in tables for row in table.splitlines()]


def check_messages(path, text, known):
    quoted = []
    if path.name != "passes.md" and path.parent.name != "generated":
        for block in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S):
            quoted += re.findall(r"^(?!#).*\berror: (.*)$", block, re.M)
    for table in re.findall(r"^\| message \|.*\n((?:\|.*\n)+)", text, re.M):
        quoted += re.findall(r"^\| `([^`]+)`", table, re.M)
    if path.name == "faults.md":
        for _, named_by in faults(text):
            quoted += re.findall(r"`([^`]+)`", named_by)
    for message in quoted:
        for part in FILLED_IN.split(message):
            part = (part or "").strip(" :,;.")
            if len(part.split()) > 2 and part not in known:
                yield f"no message '{part}'"


def without_code(text):
    """Returns the text without fenced blocks, with its line count unchanged."""
    return re.sub(r"^```.*?^```", lambda m: "\n" * m.group().count("\n"), text,
                  flags=re.S | re.M)


def anchors(path):
    """Returns GitHub's anchors of the headings of a file."""
    names = set()
    for heading in re.findall(r"^#+\s+(.*)$", without_code(path.read_text()), re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        base = plain.replace(" ", "-")
        candidates = (f"{base}-{i}" if i else base for i in itertools.count())
        names.add(next(name for name in candidates if name not in names))
    return names


def found(pattern, base=ROOT):
    # Recipes write Name for a name that the reader chooses.
    pattern = re.sub(r"\b[Nn]ame\b", "*", pattern)
    return any(base.glob(pattern)) if "*" in pattern else (base / pattern).exists()


def check_links(path, text):
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists():
            yield f"no file {file}"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"no heading #{anchor} in {target.relative_to(ROOT)}"


def check_quoted_paths(text):
    for quoted in QUOTED.findall(text):
        if quoted.startswith(ROOMS) and PATH.fullmatch(quoted) and not found(quoted):
            yield f"no file {quoted}"


def check_faults(page, tests):
    """Checks that the tables of the page and the lines of test/faults.txt have the same faults."""
    named = [fault for fault, _ in faults(page)]
    tested = re.findall(r"^(?!#)(.*?) \| ", tests, re.M)
    for fault in sorted(set(named) ^ set(tested)):
        yield f"'{fault}' is not both in {FAULTS.name} and in {FAULT_TESTS.name}"


def check_status(text):
    """The lines of test/status.txt and test/faults.txt."""
    features = set()
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        feature, bar, tests = (part.strip() for part in line.partition(" | "))
        if not bar or not tests:
            yield f"no test for '{feature}'"
        if feature in features:
            yield f"two lines for '{feature}'"
        features.add(feature)
        for test in tests.split():
            name, _, inside = test.partition("::")
            base = ROOT if name.startswith(("runtime/", "tools/")) else ROOT / "test"
            if not found(name, base):
                yield f"no file {name}"
                continue
            paths = base.glob(name) if "*" in name else [base / name]
            texts = [path.read_text() for path in paths if path.is_file()]
            for word in filter(None, inside.split(",")):
                if not any(re.search(rf"\b{re.escape(word)}\b", text) for text in texts):
                    yield f"no {word} in {name}"


def report(path, problems):
    """Prints the problems of a file, and returns their number."""
    lines = [f"{path.relative_to(ROOT)}: {problem}" for problem in problems]
    print("".join(line + "\n" for line in lines), end="")
    return len(lines)


def main():
    failures = 0
    known = strings()
    for path in files("*.md"):
        whole = path.read_text()
        text = without_code(whole)
        problems = [*check_fences(whole), *check_messages(path, whole, known),
                    *check_links(path, text), *check_quoted_paths(text)]
        if path == FAULTS:
            problems += check_faults(text, FAULT_TESTS.read_text())
        failures += report(path, problems)
    for path in (STATUS, FAULT_TESTS):
        failures += report(path, check_status(path.read_text()))
    print("FAIL references" if failures else "PASS references")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
