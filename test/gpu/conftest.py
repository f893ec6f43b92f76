# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options and fixtures of the suite that runs on devices.

  --device=NAME   cuda (default): PyTorch's hooks on CUDA tensors beside it;
                  any other backend (cuda_emulated, guarded): on CPU tensors, Gloo
  --modules=DIR   compiled modules (default: compiled when needed, and kept)
  --record=DIR    compiles all modules of the chosen tests into DIR, runs nothing

Without a GPU all tests are skipped, and fail where DDPHOOK_REQUIRE_GPU is 1.
"""

import importlib.metadata
import os
import pathlib
import re
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity"))

import device as devices  # noqa: E402
import oracle  # noqa: E402
import powersgd_cases  # noqa: E402
import runner  # noqa: E402

# Ranks of the emulated devices.
WORLD = 3
# One algorithm and one protocol on both sides: both decide the order of sums.
NCCL = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


def pytest_addoption(parser):
    parser.addoption("--device", default="cuda")
    parser.addoption("--modules")
    parser.addoption("--record")
    parser.addoption("--worlds", help="numbers of ranks, as 1,2")


def pytest_configure(config):
    """Who is told to end, by a limit of time, still says what failed."""
    if not hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_report_header(config):
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy")
    )
    requirements = pathlib.Path(__file__).parents[1] / "requirements.txt"
    pinned = re.findall(r"^torch==.*", requirements.read_text(), re.MULTILINE)
    return [
        f"device: {config.getoption('--device')}; oracle: {versions}; "
        f"what is expected was tried with {' '.join(pinned)}",
        f"seed: {runner.SEED} (DDPHOOK_TEST_SEED)",
    ]


def pytest_ignore_collect(collection_path, config):
    """Models of PyTorch's on CUDA tensors are for a GPU, and compile what they need.
    On the emulated device they are a rehearsal, for who names the file."""
    if collection_path.name != "test_torch_cuda.py":
        return None
    is_named = any(argument.endswith(collection_path.name) for argument in config.args)
    device = config.getoption("--device")
    can_run = device == "cuda" or device == "cuda_emulated" and is_named
    return None if can_run and not config.getoption("--record") else True


def make_device(config):
    record = config.getoption("--record")
    directory = record or config.getoption("--modules")
    if not directory:
        directory = pathlib.Path(config.rootpath) / "build" / "device-modules"
    return devices.Device(
        config.getoption("--device"), devices.Modules(directory, bool(record))
    )


@pytest.fixture(scope="session", autouse=True)
def device(request):
    device = make_device(request.config)
    if device.is_real:
        os.environ.update(NCCL)
        if device.gpus == 0 and not device.modules.record:
            reason = "no GPU: the driver finds none"
            if os.environ.get("DDPHOOK_REQUIRE_GPU") == "1":
                pytest.fail(f"{reason}, and DDPHOOK_REQUIRE_GPU is 1")
            pytest.skip(reason)
    elif device.name == "cuda_emulated":
        os.environ.setdefault("EMULATED_CUDA_DEVICES", str(WORLD))
    runner.start = device.start
    return device


def set_division(device, is_exact):
    device.divides_exactly = is_exact
    yield
    device.divides_exactly = False


@pytest.fixture
def exact(device):
    """For tests that expect the host's numbers: the device divides as the host does."""
    yield from set_division(device, device.name != "guarded")


@pytest.fixture
def like_the_oracle(device):
    """For tests that compare with PyTorch on tensors of the device; beside the emulated one
    these are the host's."""
    yield from set_division(device, device.name == "cuda_emulated")


# What works takes a few seconds.
PROBE_S = 30
PROBE = """ddp.process_group @dp
func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def why_not_two_on_one_gpu(device, directory):
    """Empty where NCCL allows it, ours and PyTorch's; else what they said."""
    device.shares = True
    directory = runner.Directory(directory)
    directory.write_module(PROBE)
    arguments = [directory.module, "--entry=step", "--inputs=random:1", "--ranks=2"]
    try:
        process = runner.start(arguments, {"DDPHOOK_TIMEOUT_S": PROBE_S})
        result = runner.finish(process, 2 * PROBE_S)
        if result.code != 0:
            return "ours: " + result.stderr.strip()
        pool = oracle.Pool(2, "cuda", device.rank_variables, PROBE_S)
        try:
            pool.run_barrier()
        finally:
            pool.close()
    except (AssertionError, RuntimeError, TimeoutError, EOFError) as error:
        return f"PyTorch's: {error}"
    return ""


@pytest.fixture(scope="session")
def worlds(request, device, tmp_path_factory):
    """The numbers of ranks that there is room for."""
    if device.modules.record:
        device.modules.make(PROBE, "")
        return [1]
    chosen = request.config.getoption("--worlds")
    if chosen:
        numbers = [int(world) for world in chosen.split(",")]
        device.shares = device.is_real and max(numbers) > device.gpus
        return numbers
    if not device.is_real:
        return list(range(1, WORLD + 1))
    if device.gpus > 1:
        return [1, 2] + ([4] if device.gpus >= 4 else [])
    device.modules.make(PROBE, "")
    reason = why_not_two_on_one_gpu(device, tmp_path_factory.mktemp("probe"))
    if not reason:
        return [1, 2]
    device.shares = False
    print(f"\none rank only: two cannot share the GPU; {reason}", file=sys.stderr)
    return [1]


@pytest.fixture(scope="session")
def pool(device, worlds):
    if device.modules.record:
        yield None
        return
    if device.is_real:
        pool = oracle.Pool(max(worlds), "cuda", device.rank_variables)
    else:
        pool = oracle.Pool()
    yield pool
    pool.close()


def pytest_sessionfinish(session):
    """In a process of pytest-xdist: what it measured, for the one that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["measured"] = {
            kind: (deviations.worst, deviations.share)
            for kind, deviations in powersgd_cases.MEASURED.items()
        }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    measured = getattr(node, "workeroutput", {}).get("measured", {})
    for kind, (worst, share) in measured.items():
        deviations = powersgd_cases.Deviations()
        deviations.worst, deviations.share = worst, share
        all_of_kind = powersgd_cases.MEASURED.setdefault(
            kind, powersgd_cases.Deviations()
        )
        all_of_kind.merge(deviations)


def pytest_terminal_summary(terminalreporter):
    for kind, deviations in sorted(powersgd_cases.MEASURED.items()):
        terminalreporter.line(
            f"PowerSGD, {kind}, largest deviations: {deviations.report()}"
        )
