# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all tests of ddphook-exec are given."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

pytest.register_assert_rewrite("exec_harness")


@pytest.fixture
def files(tmp_path):
    return {
        "inputs": f"--inputs={tmp_path}/in.{{rank}}.{{step}}.safetensors",
        "outputs": f"--outputs={tmp_path}/out.{{rank}}.{{step}}.safetensors",
    }
