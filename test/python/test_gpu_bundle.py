# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/gpu-bundle.sh and tools/gpu-test.sh, tested with the emulated device.

The tested scripts cannot see the checkout or LLVM's directory if the kernel lets this
user mount. The programs come from the bundle: building them, as a machine does where
they do not start, would take minutes.
"""

import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from conftest import ROOT

# Select one recorded module of test/gpu, and two tests of test_torch_cuda.py.
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
    carried = place / "ddphook-gpu" / "built"
    assert carried.exists(), "expected a build with the CUDA backend, DDPHOOK_CUDA=ON"
    shutil.copy(build / "lib" / "libddphook_backend_cuda_emulated.so", carried / "lib")
    shutil.copy(build / "bin" / "ddphook-cuda_job_test", carried / "bin")
    shutil.copytree(build / "gpu-library", place / "gpu-library", symlinks=True)
    return place


def hiding(place):
    """Returns a command prefix that makes all directories except `place` empty."""
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


@functools.cache
def toolkit():
    """Returns the CUDA toolkit of the build, which is installed already."""
    script = ROOT / "tools" / "cuda-toolkit.sh"
    done = subprocess.run([script], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def start(place, *arguments, device="cuda_emulated", **variables):
    kept = {"HOME", "PATH", "TMPDIR", "LANG"}
    environment = {name: os.environ[name] for name in kept & os.environ.keys()}
    environment["DDPHOOK_TEST_PYTHON"] = sys.executable
    environment["DDPHOOK_CUDA_ROOT"] = toolkit()
    environment["PYTEST_ADDOPTS"] = f"-k '{CHOSEN}' --basetemp={place / 'tests'}"
    script = place / "ddphook-gpu" / "tools" / "gpu-test.sh"
    command = [*hiding(place), script, "--out", place / "report"]
    command += ["--device", device, *arguments]
    return subprocess.Popen(
        command,
        cwd=place,
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def read_report(place):
    """Returns the steps of the report, and checks that its three files are complete."""
    report = place / "report"
    files = {path.name for path in report.iterdir() if not path.name.startswith(".")}
    assert files == {"report.txt", "report.json", "logs.tar.gz"}
    steps = json.loads((report / "report.json").read_text())["steps"]
    text = (report / "report.txt").read_text()
    with tarfile.open(report / "logs.tar.gz") as archive:
        names = archive.getnames()
    for step in steps:
        assert step["name"] in text and f"logs/{step['name']}.log" in names
    return {step["name"]: step for step in steps}


def run(place, *arguments, **options):
    process = start(place, *arguments, **options)
    output, _ = process.communicate()
    return process.returncode, output, read_report(place)


def results(steps):
    return {name: step["result"] for name, step in steps.items()}


@pytest.mark.full("links a wheel and runs the steps of a bundle")
def test_steps(bundle):
    """The programs start, and a second run continues the report of the first."""
    chosen = "carried,gpu-tests,sweep,torch"
    code, output, steps = run(bundle, "--only", chosen)
    assert code == 0, output
    assert steps["carried"]["result"] == steps["sweep"]["result"] == "pass", output
    text = (bundle / "report" / "report.txt").read_text()
    assert "# wrong elements: 0" in text
    # The runtime would warn about variables of the script that reach it.
    assert "unknown environment variable" not in text
    # Either there is no GPU, or another test uses it.
    assert steps["gpu-tests"]["result"] in ("left out", "pass"), output
    assert sum(steps["gpu-tests"]["counts"].values()) > 0
    code, output, both = run(bundle, "--continue", "--only", "parity,sweep")
    assert code == 0, output
    assert both["sweep"] == steps["sweep"], "it ran again"
    assert {**results(steps), "parity": "pass"} == results(both)
    assert both["torch"]["counts"] == {"passed": 2, "failed": 0, "skipped": 0}
    assert both["parity"]["counts"]["passed"] > 0


@pytest.mark.full("runs every test for a GPU")
def test_steps_for_a_gpu(bundle):
    """The shipped programs, in the script's own branches for a GPU, on the GPU library."""
    code, output, steps = run(
        bundle,
        "--only",
        "carried,gpu-tests,bench,failures,sweep",
        device="cuda",
        DDPHOOK_GPU_LIBRARY=str(bundle / "gpu-library"),
        DDPHOOK_GPU_BUDGET_S="4000",
        EMULATED_CUDA_DEVICES="4",
        EMULATED_CUDA_CHECKS="memory",
    )
    assert code == 0, output
    assert set(results(steps).values()) == {"pass"}, output
    assert steps["gpu-tests"]["counts"]["failed"] == 0
    assert "# wrong elements: 0" in (bundle / "report" / "report.txt").read_text()


def test_failures(bundle):
    """The failure tests, whose processes share a device and die, also pass in a bundle."""
    chosen = "*CapturedSteps*:*PeerIsKilled/NonBlocking*:*PeerStops/BlockingCapture"
    code, output, steps = run(bundle, "--only", "failures", GTEST_FILTER=chosen)
    assert code == 0, output
    assert steps["failures"]["counts"] == {"passed": 1, "failed": 0, "skipped": 0}
    with tarfile.open(bundle / "report" / "logs.tar.gz") as archive:
        log = archive.extractfile("logs/failures.log").read().decode()
    assert "[  PASSED  ] 6 tests." in log


@pytest.mark.parametrize(
    ("says", "status", "result"),
    [
        ("========= Error: Device not supported", 1, "left out"),
        ("========= ERROR SUMMARY: 1 error", 9, "fail"),
        ("[  PASSED  ] 3 tests.", 0, "pass"),
    ],
)
def test_sanitizers(bundle, says, status, result):
    """If the tool refuses the device, the step says nothing about the programs."""
    tools = bundle / "tools"
    tools.mkdir(exist_ok=True)
    tool = tools / "compute-sanitizer"
    tool.write_text(f'#!/bin/sh\necho "$@"\necho "{says}"\nexit {status}\n')
    tool.chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    code, output, steps = run(bundle, "--only", "memcheck,synccheck", PATH=path)
    assert results(steps) == {"memcheck": result, "synccheck": result}, output
    assert (code == 0) == (result != "fail")
    with tarfile.open(bundle / "report" / "logs.tar.gz") as archive:
        memcheck, synccheck = (
            archive.extractfile(f"logs/{name}.log").read().decode()
            for name in ("memcheck", "synccheck")
        )
    assert "--tool memcheck --report-api-errors no --error-exitcode 9" in memcheck
    assert "--tool synccheck --error-exitcode 9" in synccheck
    assert sum(steps["memcheck"]["counts"].values()) > 0


def test_libraries_of_the_system_win(bundle):
    """Programs find a library of the bundle only where the system has none of its name."""
    place = bundle / "ddphook-gpu"
    name = "libddphook-lacking.so.1"
    (place / "deps" / name).write_text("")
    try:
        code, output, _ = run(bundle, "--only", "nothing")
    finally:
        (place / "deps" / name).unlink()
    assert code == 0, output
    assert [path.name for path in (place / "build-gpu" / "lacking").iterdir()] == [name]


@pytest.fixture
def endless(bundle):
    """Returns a Python whose pytest never ends, and a file with that process's id."""
    python, mark = bundle / "python", bundle / "process"
    mark.unlink(missing_ok=True)
    python.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *"-m pytest"*) echo $$ >"{mark}"; exec sleep 600;; esac\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    yield python, mark
    if mark.exists():
        try:
            os.kill(int(mark.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            pass


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def test_no_time_left(bundle, endless):
    python, _ = endless
    code, output, steps = run(
        bundle,
        "--only",
        "parity,racecheck",
        DDPHOOK_TEST_PYTHON=str(python),
        DDPHOOK_GPU_BUDGET_S="6",
    )
    assert code == 1, output
    assert results(steps) == {"parity": "timeout", "racecheck": "timeout"}
    assert "no time was left for it" in output


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_cut_off(bundle, endless, how):
    """The report is complete whether the script gets SIGTERM or SIGKILL."""
    python, mark = endless
    report = bundle / "report" / "report.json"
    shutil.rmtree(bundle / "report", ignore_errors=True)
    process = start(
        bundle,
        "--only",
        "parity",
        DDPHOOK_TEST_PYTHON=str(python),
        DDPHOOK_GPU_KEEP_S="0.2" if how == signal.SIGKILL else "600",
    )
    wait_for(lambda: mark.exists() and mark.read_text().endswith("\n"), process)
    if how == signal.SIGKILL:
        wait_for(report.exists, process)
        wait_for((bundle / "report" / "logs.tar.gz").exists, process)
    os.killpg(process.pid, how)
    output, _ = process.communicate()
    assert process.returncode != 0, output
    assert results(read_report(bundle)) == {"parity": "cut off"}
    # A second run without time keeps the first one's results.
    _, output, steps = run(
        bundle, "--continue", "--only", "racecheck", DDPHOOK_GPU_BUDGET_S="1"
    )
    assert results(steps) == {"parity": "cut off", "racecheck": "timeout"}, output


def test_a_missing_compiler(bundle):
    compiler = bundle / "ddphook-gpu" / "compiler"
    (library,) = compiler.glob("libDDPHookCAPI.so.*")
    aside = library.rename(bundle / library.name)
    try:
        code, output, steps = run(bundle, "--only", "torch")
        assert code == 1 and results(steps) == {"torch": "fail"}
        assert "expected libDDPHookCAPI.so in" in output
        (compiler / "LEFT_OUT").touch()
        code, output, steps = run(bundle, "--only", "torch")
        assert code == 0 and results(steps) == {"torch": "left out"}
        assert "packed --without-compiler" in output
    finally:
        (compiler / "LEFT_OUT").unlink(missing_ok=True)
        aside.rename(library)
