# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all tests of ddphook-exec are given."""

import pytest

pytest.register_assert_rewrite("exec_harness")


@pytest.fixture
def files(tmp_path):
    return {
        "inputs": f"--inputs={tmp_path}/in.{{rank}}.{{step}}.safetensors",
        "outputs": f"--outputs={tmp_path}/out.{{rank}}.{{step}}.safetensors",
    }
