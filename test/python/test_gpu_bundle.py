# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/gpu-bundle.sh and tools/gpu-test.sh, rehearsed with the emulated device.

Neither the checkout nor LLVM's directory can be seen by what is tested here, where
the kernel lets this user mount. The runtime comes from the build tree: a machine
with a GPU builds it, which would take minutes here.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT

# Of test/gpu one recorded module, and of test_torch_cuda.py two tests.
RECORDED = "test_every_16_bit_value"
CHOSEN = f"{RECORDED} or test_powersgd or test_a_lost_peer_is"
HIDDEN = [ROOT, pathlib.Path("/usr/lib/llvm-22")]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    place = tmp_path_factory.mktemp("bundle")
    build = pathlib.Path(os.environ["DDPHOOK_LIBRARY_DIR"]).resolve().parent
    packed = place / "bundle.tar"
    script = ROOT / "tools" / "gpu-bundle.sh"
    environment = {**os.environ, "DDPHOOK_TEST_PYTHON": sys.executable}
    command = [script, build, packed, "-k", RECORDED]
    subprocess.run(command, check=True, env=environment)
    subprocess.run(["tar", "xf", packed, "-C", place], check=True)
    packed.unlink()
    for built in (
        "bin/ddphook-exec",
        "lib/libddphook_rt.so.0.1",
        "lib/libddphook_backend_cuda_emulated.so",
    ):
        copy = place / "report" / "build" / built
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build / built, copy)
    return place


def hiding(place):
    """The start of a command for which other directories than its own are empty."""
    empty = place / "empty"
    empty.mkdir(exist_ok=True)
    mounts = [f"mount --bind '{empty}' '{path}'" for path in HIDDEN if path.exists()]
    for flags in (["-m"], ["-r", "-m"]):
        shell = ["unshare", *flags, "sh", "-ec"]
        script = "; ".join([*mounts, f"cd '{place}'", 'exec "$@"'])
        prefix = [*shell, script, "sh"]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
            return prefix
    print("nothing is hidden: this user may not mount", file=sys.stderr)
    return []


def run(place, steps):
    kept = {"HOME", "PATH", "TMPDIR", "LANG"}
    environment = {name: os.environ[name] for name in kept & os.environ.keys()}
    environment["DDPHOOK_TEST_PYTHON"] = sys.executable
    environment["PYTEST_ADDOPTS"] = f"-k '{CHOSEN}' --basetemp={place / 'tests'}"
    script = place / "ddphook-gpu" / "tools" / "gpu-test.sh"
    command = [*hiding(place), script, "--out", place / "report", "--only", steps]
    command += ["--device", "cuda_emulated"]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True
    )
    report = json.loads((place / "report" / "report.json").read_text())
    return done, {step["name"]: step for step in report["steps"]}


def test_hooks_and_recorded_modules_without_llvm(bundle):
    done, steps = run(bundle, "parity,torch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: step["result"] for name, step in steps.items()} == {
        "parity": "pass",
        "torch": "pass",
    }
    assert steps["torch"]["counts"] == {"passed": 2, "failed": 0, "skipped": 0}
    assert steps["parity"]["counts"]["passed"] > 0


def test_a_missing_compiler(bundle):
    compiler = bundle / "ddphook-gpu" / "compiler"
    (library,) = compiler.glob("libDDPHookCAPI.so.*")
    aside = library.rename(bundle / library.name)
    try:
        done, steps = run(bundle, "torch")
        assert done.returncode == 1 and steps["torch"]["result"] == "fail"
        assert "expected libDDPHookCAPI.so in" in done.stdout
        (compiler / "LEFT_OUT").touch()
        done, steps = run(bundle, "torch")
        assert done.returncode == 0 and steps["torch"]["result"] == "left out"
        assert "packed --without-compiler" in done.stdout
    finally:
        (compiler / "LEFT_OUT").unlink(missing_ok=True)
        aside.rename(library)
