# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fixtures of the parity suite, and the line that identifies the oracle."""

import importlib.metadata
import os

import pytest

import oracle
import powersgd_cases
import runner


def pytest_report_header(config):
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("torch", "numpy", "safetensors")
    )
    return [
        f"oracle: {versions}; CPUs: {os.cpu_count()}",
        f"seed: {runner.SEED} (DDPHOOK_TEST_SEED); tool: {runner.tool()}",
    ]


@pytest.fixture(scope="session")
def pool():
    pool = oracle.Pool()
    yield pool
    pool.close()


@pytest.fixture
def free_port():
    return runner.free_port()


def pytest_terminal_summary(terminalreporter):
    """Prints what PowerSGD's tests measured."""
    lines = []
    for kind, deviations in sorted(powersgd_cases.MEASURED.items()):
        lines.append(f"{kind}: {deviations.report()}")
    for name, drift in powersgd_cases.DRIFT.items():
        chosen = [(n, drift[n - 1]) for n in (1, 2, 3, 4, 5, 8, 20) if n <= len(drift)]
        steps = ", ".join(f"{n}: {value:.0e}" for n, value in chosen)
        lines.append(f"drift of {name} at compressed step {steps}")
    if lines:
        terminalreporter.section("PowerSGD: largest relative deviations")
        for line in lines:
            terminalreporter.line(line)
