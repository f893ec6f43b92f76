#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generates manual pages and shell completion from the tools' --help.

    generate-manuals.py --version=VERSION --out=DIRECTORY TOOL…

writes for each tool (a path) DIRECTORY/man1/NAME.1, bash/NAME, zsh/_NAME and
fish/NAME.fish. It parses two kinds of help, from LLVM's command line library and from
our own parser, which is the only source of this text.

Every program that links LLVM has options of all its code generators. An option that
two tools of different kinds (ddphook-opt and ddphook-lsp-server) both have is one of
these and is omitted; --help lists it. Manual pages also omit upstream's passes.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

# The tools whose common options are LLVM's, and common options that are the tools'.
LLVM_TOOLS = {"ddphook-opt", "ddphook-lsp-server"}
OWN = {"--help", "--version"}

SPEC = re.compile(
    r"(?P<spec>-[^\s<,]*(?:<[^>]*>)?[^\s,]*(?: <[^>]*>)?(?:, -\S+)*)(?:\s+-(?=\s|$)|\s|$)"
)


@dataclasses.dataclass
class Entry:
    """An option, a pass, or a subcommand."""

    spec: str
    text: str
    indent: int
    values: list = dataclasses.field(default_factory=list)  # of (value, text)

    @property
    def names(self):
        return [re.match(r"-*[^\s=\[<]*", one).group() for one in self.spec.split(", ")]

    @property
    def argument(self):
        """The placeholder of the value, such as `<file>`; empty if there is none."""
        last = self.spec.split(", ")[-1]
        return last[len(self.names[-1]) :].strip("[]= ")

    @property
    def is_optional(self):
        return "[=" in self.spec

    @property
    def words(self):
        """The values to complete; more text follows one that ends in a colon."""
        if self.values:
            return [value for value, _ in self.values if re.match(r"[\w.+-]+$", value)]
        literals = map(re.compile(r"[a-z][a-z0-9_-]*(:|$)").match, self.argument.split("|"))
        return [literal.group() for literal in literals if literal]


class Completion:
    """The completion of an option, from its entries."""

    def __init__(self, name, entries):
        first = entries[0]
        self.name, self.text = name, first.text
        self.takes_value, self.is_optional = bool(first.argument), first.is_optional
        self.what = re.sub(r"[^\w. -]", " ", first.argument).strip() or "value"
        self.words = list(dict.fromkeys(word for each in entries for word in each.words))
        self.takes_files = any(
            not each.values and not set(each.argument.split("|")) <= set(each.words)
            for each in entries
        )


@dataclasses.dataclass
class Section:
    title: str
    text: str = ""
    entries: list = dataclasses.field(default_factory=list)


class Help:
    """The parsed --help of a tool."""

    def __init__(self, tool):
        self.name = os.path.basename(tool)
        self.overview, self.usage, self.paragraphs = "", [], []
        self.sections = [Section("")]
        self.gap = False  # true if the previous line was empty
        pipes = {"stdin": subprocess.DEVNULL, "capture_output": True}
        printed = subprocess.run([tool, "--help"], encoding="utf-8", **pipes)
        if printed.returncode or not printed.stdout.strip():
            sys.exit(f"error: {tool} --help failed: {printed.stderr.strip()}")
        for line in printed.stdout.splitlines():
            self.read(line)

    def read(self, line):
        entries = self.sections[-1].entries
        body = line.strip()
        indent = len(line) - len(line.lstrip())
        key, _, rest = body.partition(":")
        if not body:
            self.gap = True
            return
        after_gap, self.gap = self.gap, False
        if not indent and key.lower() == "usage":
            self.usage.append(rest.strip())
        elif not indent and key.lower() == "overview":
            self.overview = rest.strip()
        elif not indent and self.usage and not after_gap and not entries:
            if self.sections[-1].title:
                self.sections[-1].text = body
            else:
                self.paragraphs.append(body)  # the line after the usage
        elif not indent:
            if body.endswith(":"):
                self.sections.append(Section("" if body == "OPTIONS:" else body[:-1]))
            elif entries or self.sections[-1].title:
                self.sections.append(Section(body))
            elif not self.overview and not self.paragraphs:
                self.overview = body.rstrip(".")
            else:
                self.paragraphs.append(body)
        elif body.startswith("=") and entries:
            value, _, text = re.sub(r"\s+- +", "\0", body[1:], count=1).partition("\0")
            entries[-1].values.append((value.strip(), text.strip()))
        elif body.startswith("-") and (found := SPEC.match(body)):
            text = body[found.end() :].strip()
            entries.append(Entry(found["spec"], re.sub(r"^- *", "", text), indent))
        elif indent > 6 and entries:
            entries[-1].text = f"{entries[-1].text} {body}".strip()
        elif indent <= 4 and re.match(r"\S+ {2,}\S", body):
            name, text = body.split(None, 1)
            entries.append(Entry(name, text, indent))
        elif not entries and not self.sections[-1].title and self.usage:
            self.usage.append(body.removeprefix("or:").strip())

    def options(self):
        return [e for s in self.sections for e in s.entries if e.spec.startswith("-")]

    def leave_out(self, names):
        for section in self.sections:
            section.entries = [
                e for e in section.entries if not names & set(e.names) or e.indent > 6
            ]

    def for_reading(self):
        """Yields sections without upstream's passes; a pass precedes its options."""
        for section in self.sections:
            kept, ours = [], True
            for entry in section.entries:
                if entry.indent <= 6:
                    ours = entry.indent < 6 or "ddp" in entry.names[0]
                if ours:
                    kept.append(entry)
            if kept:
                yield Section(section.title, section.text, kept)

    def for_completion(self):
        """Returns one completion per option, which may have several lines of help."""
        found = collections.defaultdict(list)
        for entry in self.options():
            if entry.indent <= 6:  # others are options of passes, inside quotes
                for name in entry.names:
                    found[name].append(entry)
        return [Completion(name, entries) for name, entries in found.items()]


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text)


def manual(tool, version, others):
    lines = [
        f'.TH {tool.name.upper()} 1 "" "ddphook {version}" "User Commands"',
        ".SH NAME",
        f"{tool.name} \\- {roff(tool.overview or 'a tool of ddphook')}",
        ".SH SYNOPSIS",
    ]
    for number, usage in enumerate(tool.usage):
        name, _, rest = usage.partition(" ")
        lines += [".br"] * bool(number) + [f".B {roff(name)}", roff(rest) or "\\&"]
    for number, paragraph in enumerate(tool.paragraphs):
        lines += [".PP" if number else ".SH DESCRIPTION", roff(paragraph)]
    lines += [".SH OPTIONS"]
    for section in tool.for_reading():
        if section.title:
            lines += [f".SS {roff(section.title)}"]
            lines += [roff(section.text)] if section.text else []
        for entry in section.entries:
            nested = entry.indent > 6
            lines += [".RS"] if nested else []
            lines += [".TP", f".B {roff(entry.spec)}", roff(entry.text) or "\\&"]
            if entry.values:
                lines += [".RS"]
                for value, text in entry.values:
                    lines += [".TP", f".B {roff(value)}", roff(text) or "\\&"]
                lines += [".RE"]
            lines += [".RE"] if nested else []
    if tool.name in LLVM_TOOLS:
        lines += [".SH NOTES", "Options of LLVM and passes of MLIR are left out here;"]
        lines += [f".B {tool.name} \\-\\-help", "lists them."]
    see = ",\n".join(f".BR {roff(other)} (1)" for other in others)
    lines += [".SH SEE ALSO", see]
    return "\n".join(lines) + "\n"


def shell_quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def bash(tool):
    function = "_" + re.sub(r"\W", "_", tool.name)
    options, cases = [], []
    for option in tool.for_completion():
        long = option.name.startswith("--") and option.takes_value
        options.append(option.name + "=" * (long and not option.is_optional))
        if option.words:
            words = shell_quoted(" ".join(option.words))
            cases.append(f"  {option.name}=*) words={words} ;;")
    return f"""# bash completion for {tool.name}, made of its --help
{function}() {{
  local line=${{COMP_LINE:0:COMP_POINT}}
  local word=${{line##*[[:space:]]}} words= start=
  case $word in
{chr(10).join(cases) or "  '') ;;"}
  esac
  case $word in
  -*=*)
    # Where '=' is no end of a word for bash, the answer begins with the option.
    [[ $COMP_WORDBREAKS == *=* ]] || start=${{word%%=*}}=
    word=${{word#*=}}
    if [[ $words ]]; then
      mapfile -t COMPREPLY < <(compgen -P "$start" -W "$words" -- "$word")
    fi
    if ((${{#COMPREPLY[@]}} == 0)); then
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -P "$start" -f -- "$word")
    fi
    ;;
  -*)
    mapfile -t COMPREPLY < <(compgen -W {shell_quoted(" ".join(options))} -- "$word")
    ;;
  *)
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    ;;
  esac
  if [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *[=:] ]]; then
    compopt -o nospace
  fi
}}
complete -F {function} {tool.name}
"""


def zsh(tool):
    lines = [f"#compdef {tool.name}", f"# made of {tool.name} --help", "_arguments \\"]
    for option in tool.for_completion():
        text = re.sub(r"([\[\]\\:])", r"\\\1", option.text)
        spec = f"*{option.name}[{text}]"
        if option.takes_value:
            equals = "=" if option.name.startswith("--") else ""
            dash, colons = ("-", "::") if option.is_optional else ("", ":")
            action = "_files" if option.takes_files else f"({' '.join(option.words)})"
            spec = f"*{option.name}{equals}{dash}[{text}]{colons}{option.what}:{action}"
        lines.append(f"  {shell_quoted(spec)} \\")
    return "\n".join(lines) + "\n  '*:file:_files'\n"


def fish(tool):
    lines = [f"# made of {tool.name} --help"]
    for option in tool.for_completion():
        short = "-s" if len(option.name) == 2 else "-o"
        kind = "-l" if option.name.startswith("--") else short
        line = f"complete -c {tool.name} {kind} {option.name.lstrip('-')}"
        if option.takes_value and not option.is_optional:
            line += " -r" if option.takes_files else " -x"
        if option.words:
            line += f" -a {shell_quoted(' '.join(option.words))}"
        text = option.text.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"{line} -d '{text}'")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("tools", nargs="+")
    arguments = parser.parse_args()

    tools = [Help(path) for path in arguments.tools]
    of_llvm = [{n for e in t.options() for n in e.names} for t in tools if t.name in LLVM_TOOLS]
    if len(of_llvm) == len(LLVM_TOOLS):
        for tool in tools:
            tool.leave_out(set.intersection(*of_llvm) - OWN)
    for tool in tools:
        others = [other.name for other in tools if other is not tool]
        for name, text in (
            (f"man1/{tool.name}.1", manual(tool, arguments.version, others)),
            (f"bash/{tool.name}", bash(tool)),
            (f"zsh/_{tool.name}", zsh(tool)),
            (f"fish/{tool.name}.fish", fish(tool)),
        ):
            path = pathlib.Path(arguments.out, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
