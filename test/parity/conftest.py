# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fixtures of the parity suite and the line that says what the oracle is."""

import importlib.metadata
import os

import pytest

import oracle
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
