# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The small tier of the Python suites (docs/testing.md).

  --small   of each parametrized test, runs a few cases in which every value of every
            parameter occurs, and of cases that differ in their seed alone the first
            ones; leaves out tests that are marked `full`

Without the option, everything runs.
"""

import collections
import dataclasses

# Parameters, and fields of them, that only tell cases apart.
LABELS = {"number", "seed"}
LABEL_FIELDS = LABELS | {"name"}
# How many cases run that only labels tell apart.
SEEDS = 4


def pytest_addoption(parser):
    parser.addoption(
        "--small", action="store_true", help="only the small tier of every suite"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "full(reason): runs only without --small")


def settings_of(name, value):
    """Yields each setting of a parameter: the value, or the fields of a dataclass."""
    if not dataclasses.is_dataclass(value):
        yield name, repr(value)
        return
    for field in dataclasses.fields(value):
        if field.name not in LABEL_FIELDS:
            yield from settings_of(f"{name}.{field.name}", getattr(value, field.name))


def choose(cases):
    """Returns cases, given with their settings, that have every setting between them.
    Greedy, and the same for the same cases. Of equally good ones it takes the one whose
    other settings were chosen least often."""
    chosen, missing, uses = [], set().union(*cases.values()), collections.Counter()

    def gain(case):
        return len(cases[case] & missing), -sum(uses[s] for s in cases[case])

    while missing:
        best = max(cases, key=gain)
        chosen.append(best)
        missing -= cases[best]
        uses.update(cases[best])
    return chosen


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--small"):
        return
    kept, functions = set(), {}
    for item in items:
        if item.get_closest_marker("full"):
            continue
        if not hasattr(item, "callspec"):
            kept.add(item)
            continue
        parameters = item.callspec.params
        cases = functions.setdefault(item.nodeid.split("[")[0], {})
        cases[item] = {
            setting
            for name in parameters.keys() - LABELS
            for setting in settings_of(name, parameters[name])
        }
    for cases in functions.values():
        kept.update(choose(cases) or list(cases)[:SEEDS])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
