# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""runtime/backends/cuda/kernels/check_spills.cmake, with messages of ptxas."""

import subprocess

import pytest

from conftest import ROOT

SCRIPT = ROOT / "runtime" / "backends" / "cuda" / "kernels" / "check_spills.cmake"
KERNEL = """ptxas info    : Compiling entry function 'k' for 'sm_90'
    {0} bytes stack frame, {0} bytes spill stores, {0} bytes spill loads
ptxas info    : Used 32 registers, 128 bytes smem
"""


def check(directory, text, compiler):
    (directory / "k.o.ptxas").write_text(text)
    report = directory / "report.txt"
    command = ["cmake", f"-DCOMPILER={compiler}", f"-DOBJECTS={directory / 'k.o'}"]
    done = subprocess.run(
        [*command, f"-DREPORT={report}", "-P", SCRIPT], capture_output=True, text=True
    )
    return done, report.read_text() if report.exists() else None


def test_no_spills(tmp_path):
    for compiler in ("13.0.88", "12.9.1"):
        done, report = check(tmp_path, KERNEL.format(0), compiler)
        assert done.returncode == 0 and done.stderr == ""
        assert report == "sm_90 registers 32 shared 128 spilled 0 k\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KERNEL.format(8), "expected no kernel to spill registers, but 1"),
        ("ptxas says nothing\n", "expected kernels in ptxas's messages"),
    ],
)
def test_another_compiler_only_warns(tmp_path, text, message):
    done, report = check(tmp_path, text, "13.0.88")
    assert done.returncode != 0 and report is None and message in done.stderr
    for compiler in ("13.1.2", "13", ""):
        done, report = check(tmp_path, text, compiler)
        assert done.returncode == 0 and report is not None and message in done.stderr
