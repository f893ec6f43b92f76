# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What is done to a correct module to make it a wrong one. Every function here
# gives all mutants of its class that a module has, as texts. None is harmless:
# why, is said with each.

import re

REDUCE = re.compile(
    r"^(?P<indent> *)(?P<result>%\w+) = (?P<name>ddp\.(?:flat\.)?all_reduce) (?P<kind>\w+) "
    r"(?P<input>%[\w#]+) on @(?P<group>[\w.]+)(?P<rest>.*) : "
    r"(?P<types>(?P<type>tensor<[^>]*>|[^:]+)(?:, tensor<[^>]*>)?)$"
)
START = re.compile(
    r"^(?P<indent> *)(?P<result>%\w+)(, (?P<ticket>%\w+))? = ddp\.(flat\.)?all_reduce_start \w+ (?P<input>%[\w#]+) "
    r"on @[\w.]+.*$"
)
# On memrefs: into memory, no result.
REDUCE_MEMORY = re.compile(
    r"^(?P<indent> *)ddp\.(flat\.)?all_reduce (?P<kind>\w+) (?P<input>%[\w#]+) "
    r"on @(?P<group>[\w.]+)(?P<rest>.*)$"
)
WAIT = re.compile(r"^ *((?P<result>%\w+) = )?ddp\.(flat\.)?wait (?P<flying>%[\w#]+)")

# Of a start; an `scf.if` on it has its waits.
CONDITION = re.compile(r" if (%\w+) :")

# A group that is not the job, and a condition that every rank answers for
# itself.
OTHER = "  ddp.process_group @mutant.other ranks [[0, 2], [1, 3]]\n"
ALONE = "  ddp.process_group @mutant.alone ranks [[0], [1]]\n"
MINE = "  func.func private @mutant.mine() -> i1\n"
COUNT = "  func.func private @mutant.count() -> index\n"


def declare(text, line):
    """The module with one more declaration in front."""
    if re.search(r"^module\b.*\{$", text, re.M):
        return re.sub(r"^(module\b.*\{)$", lambda m: m[0] + "\n" + line, text, count=1, flags=re.M)
    return line + text


def indentation(line):
    return len(line) - len(line.lstrip())


def replace_uses(lines, begin, old, new, indent):
    """From line `begin` on, uses of a value become those of another, up to the end
    of the region that it was defined in, at this indentation."""
    changed, pattern = 0, re.compile(re.escape(old) + r"(?![\w#])")
    for i in range(begin, len(lines)):
        if lines[i].strip() and indentation(lines[i]) < indent:
            break
        lines[i], count = pattern.subn(lambda _: new, lines[i])
        changed += count
    return changed


class Module:
    """A module by lines, with the function that each line is in."""

    def __init__(self, base, excluded=()):
        self.base = base
        self.lines = base.text.splitlines()
        self.functions, self.marked = [], {}
        name = ""
        for i, line in enumerate(self.lines):
            if found := re.match(r"^ *func\.func (?:private )?@([\w.]+)", line):
                name = found[1]
                end = i
                while not self.lines[end].rstrip().endswith("{"):
                    end += 1
                    if end == len(self.lines) or not self.lines[end].strip():
                        break
                self.marked[name] = "ddp.gradient" in " ".join(self.lines[i : end + 1])
            self.functions.append(name)
        self.excluded = excluded

    def isGradient(self, i, found):
        """Whether the collective of line i carries a gradient, or a part of one
        that its bucket cannot do without: a tensor of some size, in a function
        that is looked at."""
        return (
            self.functions[i] not in self.excluded
            and found["type"].strip() not in ("tensor<f32>",)
            and not re.search(r"bucket<\w+, \[\]>", found["type"])
        )

    def find(self, pattern):
        for i, line in enumerate(self.lines):
            if found := pattern.match(line):
                yield i, found


def join(lines):
    return "\n".join(lines) + "\n"


def dropped(module):
    """The sum becomes what this rank put in: ranks go on with different
    gradients. (Its result is used, or it is not taken.)"""
    for i, found in module.find(REDUCE):
        if module.isGradient(i, found):
            lines = list(module.lines)
            del lines[i]
            if replace_uses(lines, i, found["result"], found["input"], len(found["indent"])):
                yield join(lines)


def isOnlyADirection(lines, begin, name):
    """Whether a value only goes into an orthogonalization, which does not mind its
    length: P of PowerSGD."""
    uses = [
        line for line in lines[begin:]
        if re.search(re.escape(name) + r"(?![\w])", line.split(" = ", 1)[-1])
    ]
    return bool(uses) and re.search(r"ddp\.(flat\.)?orthogonalize", uses[0])


def doubled(module):
    """What was reduced is summed again: W times too large."""
    for i, found in module.find(REDUCE):
        if module.isGradient(i, found):
            lines = list(module.lines)
            again = "%mutant.again"
            if isOnlyADirection(lines, i + 1, found["result"]):
                continue
            if not replace_uses(lines, i + 1, found["result"], again, len(found["indent"])):
                continue
            lines.insert(
                i + 1,
                f"{found['indent']}{again} = {found['name']} sum {found['result']} "
                f"on @{found['group']}{found['rest']} : {found['types']}",
            )
            yield join(lines)
    if module.base.level == "memory":
        for i, found in module.find(REDUCE_MEMORY):
            into = re.search(r"into (%[\w#]+)", found["rest"])
            # In place, so that the second one reads what the first has left.
            if (
                into and into[1] == found["input"]
                and not isOnlyADirection(module.lines, i + 1, into[1])
            ):
                lines = list(module.lines)
                lines.insert(i + 1, lines[i].replace(" mean ", " sum "))
                yield join(lines)


def conditional(module):
    """Some ranks leave the collective out: the others wait for them. Three
    conditions that a rank answers for itself: what a function outside says, how
    often a loop runs, an element of the gradient before it is reduced."""
    for i, found in module.find(REDUCE):
        if not module.isGradient(i, found):
            continue
        indent, result, kind = found["indent"], found["result"], found["type"]
        call = module.lines[i].replace(result + " =", "%mutant.sum =", 1)
        rest = [
            f"{indent}{result} = scf.if %mutant.mine -> ({kind}) {{",
            call,
            f"{indent}scf.yield %mutant.sum : {kind}",
            f"{indent}}} else {{",
            f"{indent}scf.yield {found['input']} : {kind}",
            f"{indent}}}",
        ]
        asked = [f"{indent}%mutant.mine = func.call @mutant.mine() : () -> i1"]
        yield declare(join(module.lines[:i] + asked + rest + module.lines[i + 1 :]), MINE)

        loop = [
            f"{indent}%mutant.n = func.call @mutant.count() : () -> index",
            f"{indent}%mutant.0 = arith.constant 0 : index",
            f"{indent}%mutant.1 = arith.constant 1 : index",
            f"{indent}{result} = scf.for %mutant.i = %mutant.0 to %mutant.n step %mutant.1 "
            f"iter_args(%mutant.x = {found['input']}) -> ({kind}) {{",
            call,
            f"{indent}scf.yield %mutant.sum : {kind}",
            f"{indent}}}",
        ]
        yield declare(join(module.lines[:i] + loop + module.lines[i + 1 :]), COUNT)

        shape = re.match(r"^tensor<((?:\d+x)+)(f32)>$", kind.strip())
        if shape:
            rank = shape[1].count("x")
            indices = ", ".join(["%mutant.0"] * rank)
            element = [
                f"{indent}%mutant.0 = arith.constant 0 : index",
                f"{indent}%mutant.limit = arith.constant 1.0 : f32",
                f"{indent}%mutant.e = tensor.extract {found['input']}[{indices}] : {kind}",
                f"{indent}%mutant.mine = arith.cmpf olt, %mutant.e, %mutant.limit : f32",
            ]
            yield join(module.lines[:i] + element + rest + module.lines[i + 1 :])
    if module.base.level == "memory":
        for i, found in module.find(REDUCE_MEMORY):
            asked = [
                f"{found['indent']}%mutant.mine = func.call @mutant.mine() : () -> i1",
                f"{found['indent']}scf.if %mutant.mine {{",
                module.lines[i],
                f"{found['indent']}}}",
            ]
            yield declare(join(module.lines[:i] + asked + module.lines[i + 1 :]), MINE)


def reordered(module):
    """Two collectives, one way round on some ranks, the other way on others:
    the one's values are added to the other's. They do not depend on each other."""
    found = list(module.find(REDUCE))
    for (i, a), (j, b) in zip(found, found[1:]):
        between = module.lines[i + 1 : j]
        if (
            module.functions[i] != module.functions[j]
            or a["indent"] != b["indent"]
            or not module.isGradient(i, a)
            or not module.isGradient(j, b)
            or any(re.search(re.escape(a["result"]) + r"(?!\w)", line) for line in between)
            or re.search(re.escape(a["result"]) + r"(?!\w)", module.lines[j])
            or any(line.rstrip().endswith(("{", "}")) for line in between)
        ):
            continue
        indent = a["indent"]
        first = module.lines[i].replace(a["result"] + " =", "%mutant.a =", 1)
        second = module.lines[j].replace(b["result"] + " =", "%mutant.b =", 1)
        done = f"{indent}scf.yield %mutant.a, %mutant.b : {a['type']}, {b['type']}"
        lines = list(module.lines)
        lines[j : j + 1] = [
            f"{indent}%mutant.mine = func.call @mutant.mine() : () -> i1",
            f"{indent}%mutant.both:2 = scf.if %mutant.mine -> ({a['type']}, {b['type']}) {{",
            first, second, done,
            f"{indent}}} else {{",
            second, first, done,
            f"{indent}}}",
        ]
        behind = j + 10
        replace_uses(lines, behind, a["result"], "%mutant.both#0", len(indent))
        replace_uses(lines, behind, b["result"], "%mutant.both#1", len(indent))
        del lines[i]
        yield declare(join(lines), MINE)


def regrouped(module):
    """A bucket whose record names one group is reduced over another; a tensor
    over a group of single ranks, which leaves it as it was."""
    isTensors = module.base.level == "tensors"
    name, line = ("mutant.alone", ALONE) if isTensors else ("mutant.other", OTHER)
    patterns = [REDUCE, REDUCE_MEMORY] if module.base.level == "memory" else [REDUCE]
    for pattern in patterns:
        for i, found in module.find(pattern):
            if "type" in found.groupdict() and not module.isGradient(i, found):
                continue
            lines = list(module.lines)
            lines[i] = lines[i].replace(f"on @{found['group']}", f"on @{name}", 1)
            yield declare(join(lines), line)
    if not isTensors:
        for i, _ in module.find(START):
            lines = list(module.lines)
            lines[i] = re.sub(r"on @[\w.]+", f"on @{name}", lines[i], count=1)
            yield declare(join(lines), line)


def forgotten(module):
    """A state is not stored: what was lost is lost for good, Q never gets
    warmer, the counter stays where it is. (Empty states are not taken.)"""
    for i, line in enumerate(module.lines):
        isStore = re.match(r"^ *ddp\.store ", line) and not re.search(
            r"bucket<\w+, \[\]>|tensor<0x", line
        )
        # A counter, in memory; its buffer is read, and only this writes it.
        isMemory = module.base.level == "memory" and re.match(
            r"^ *memref\.store %\w+, (%\w+)\[\] : memref<i64>", line
        )
        if isStore or isMemory:
            yield join(module.lines[:i] + module.lines[i + 1 :])


def lost(module):
    """A collective is never awaited: the memory may be read before it is there."""
    for i, found in module.find(WAIT):
        lines = list(module.lines)
        start = next(
            (s for _, s in module.find(START) if s["result"] == found["flying"].split("#")[0]),
            None,
        )
        del lines[i]
        if found["result"] and (
            not start or not replace_uses(
                lines, i, found["result"], start["input"], indentation(module.lines[i])
            )
        ):
            continue
        yield join(lines)
    for i, line in enumerate(module.lines):
        if module.base.level == "runtime" and "llvm.call @ddphook_rt_wait(" in line:
            yield join(module.lines[:i] + module.lines[i + 1 :])


def touching(module, memory):
    """What matches a line that names this memory or a view of it."""
    names = [memory]
    for line in module.lines:
        if view := re.match(r"^ *(%\w+) = ddp\.view (%[\w#]+)\[", line):
            names += [view[1]] if view[2] in names else []
    return re.compile("|".join(re.escape(name) + r"(?![\w])" for name in names))


def delayed(module):
    """A wait is moved behind an operation that reads or writes the memory in
    flight, by the name that the wait has for it or by that of a view."""
    if module.base.level != "memory":
        return
    for i, found in module.find(WAIT):
        touches = touching(module, found["flying"])
        for j in range(i + 1, len(module.lines)):
            line = module.lines[j]
            if line.rstrip().endswith(("{", "}")) or re.match(r"^ *(scf\.yield|return)", line):
                break
            if touches.search(line) and re.match(r"^ *(ddp\.(?!view)|memref\.copy|linalg\.)", line):
                lines = list(module.lines)
                lines.insert(j + 1, lines[i])
                del lines[i]
                yield join(lines)
                break


def hastened(module):
    """A start is moved in front of an operation that writes what it reduces."""
    if module.base.level != "memory":
        return
    for i, found in module.find(START):
        touches = touching(module, found["input"])
        condition = CONDITION.search(module.lines[i])
        for j in range(i - 1, 0, -1):
            line = module.lines[j]
            if line.rstrip().endswith(("{", "}")) or (
                condition and re.match(rf"^ *{re.escape(condition[1])} = ", line)
            ):
                break
            if touches.search(line) and re.match(r"^ *(ddp\.flat|memref\.copy|linalg\.)", line):
                lines = list(module.lines)
                lines.insert(j, lines[i])
                del lines[i + 1]
                yield join(lines)
                break


def find_region(lines, begin):
    """The line of the operation whose region line `begin` is in."""
    indent = indentation(lines[begin])
    return next(i for i in range(begin, -1, -1) if indentation(lines[i]) < indent)


def find_end(lines, begin):
    """The line with which the region that line `begin` opens ends."""
    indent = indentation(lines[begin])
    return next(i for i in range(begin + 1, len(lines)) if indentation(lines[i]) <= indent)


def moved(lines, i, j, result=None, use="%mutant.moved"):
    """The lines with line i in front of line j, indented as that one is. Where it was,
    `use` stands for the value that it defines."""
    lines = list(lines)
    line, indent = lines.pop(i), indentation(lines[i])
    j -= i < j
    if result:
        replace_uses(lines, i, result, use, indent)
        line = line.replace(result + " =", "%mutant.moved =", 1)
    lines.insert(j, " " * indentation(lines[j]) + line.strip())
    return lines


def nameless(lines):
    return [re.sub(r"%[\w#]+", "%", line) for line in lines]


def misplaced(module):
    """A start on a condition, its waits and the branches that they are in do not go
    together any more: the condition of one is another, or this rank's own; a wait
    is in the other's branch, in front of the branches or behind them; the branches
    are exchanged, so that what was reduced is compressed, and what was not is
    used."""
    lines = module.lines
    for i, found in module.find(START):
        condition = CONDITION.search(lines[i])
        if not condition or "llvm" in lines[i]:
            continue
        own, indent = f"if {condition[1]}", found["indent"]
        name = found["ticket"] or found["result"]
        waits = [
            (j, wait["result"]) for j, wait in module.find(WAIT)
            if re.search(re.escape(name) + r"(?![\w])", lines[j]) and j > i
        ][:2]
        (first, result), (second, other) = waits
        choice = find_region(lines, first)
        between = find_end(lines, choice)
        end = find_end(lines, between)
        mine = f"{indent}%mutant.mine = func.call @mutant.mine() : () -> i1"

        def change(**changed):
            """With other texts in place of some lines."""
            numbers = {"start": i, "choice": choice}
            new = list(lines)
            for place, text in changed.items():
                new[numbers[place]] = new[numbers[place]].replace(own, text, 1)
            return new

        constant = f"{indent}%mutant.mine = arith.constant true"
        yield join(change(start="if %mutant.mine")[:i] + [constant]
                   + change(start="if %mutant.mine")[i:])
        yield join(lines[:i] + [constant] + change(choice="if %mutant.mine")[i:])
        both = change(start="if %mutant.mine", choice="if %mutant.mine")
        yield declare(join(both[:i] + [mine] + both[i:]), MINE)
        yield join(change(start=""))
        yield join(moved(lines, first, choice, result))
        yield join(moved(lines, second, choice, other))
        yield join(moved(lines, first, between + 1, result, found["input"]))
        yield join(moved(lines, second, choice + 1, other, found["input"]))
        # On memory nobody asks what a bucket holds that is used.
        if module.base.level == "memory":
            continue
        branches = lines[choice + 1 : between], lines[between + 1 : end]
        # Where both only wait, it makes no difference which is which.
        if nameless(branches[0]) == nameless(branches[1]):
            continue
        exchanged = branches[1] + [lines[between]] + branches[0]
        yield join(lines[: choice + 1] + exchanged + lines[end:])


def misplaced_at_runtime(module):
    """The same where only the ticket connects start and wait."""
    if module.base.level != "runtime":
        return
    lines = module.lines
    for i, line in enumerate(lines):
        wait = re.search(r"llvm.call @ddphook_rt_wait\(%\w+, (%\w+)\)", line)
        if not wait:
            continue
        choice = find_region(lines, i)
        found = re.match(r"^( *)scf\.if (%\w+)", lines[choice])
        start = next(j for j in range(i) if lines[j].strip().startswith(f"{wait[1]} = "))
        if not found or "scf.if" not in lines[start]:
            continue
        between = find_end(lines, choice)
        constant = f"{found[1]}%mutant.c = arith.constant true"
        for place in (start, choice):
            changed = lines[place].replace(f"if {found[2]}", "if %mutant.c", 1)
            yield join(lines[:start] + [constant] + lines[start:place]
                       + [changed] + lines[place + 1 :])
        yield join(moved(lines, i, choice))
        yield join(moved(lines, i, between + 1))
        yield join(lines[:i] + [line] + lines[i:])
        yield join(lines[:i] + lines[i + 1 :])


# Each with its share of the mutants.
CLASSES = {
    dropped: 35, doubled: 30, conditional: 48, reordered: 12,
    regrouped: 30, forgotten: 25, lost: 14, delayed: 6, hastened: 6,
    misplaced: 40, misplaced_at_runtime: 10,
}
