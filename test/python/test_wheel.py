# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheels: built, installed in another environment, used from another directory."""

import email
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
import torch

import ddphook
import ranks
from conftest import ROOT

# Trains a step with the package's own libraries, and prints their paths.
PROGRAM = """
import sys
import torch
import torch._inductor.config
import torch.distributed as dist
import ddphook.torch

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[1], rank=0,
                        world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
with ddphook.torch.register(model, hook="fp16") as handle:
    model(torch.ones(5, 3)).sum().backward()
    assert handle.statistics()["steps"] == 1
assert model.module.bias.grad.tolist() == [5.0, 5.0]
# Found by its entry point. Compiling Inductor's kernel in C++ would take most of the time.
torch._inductor.config.fallback_by_default = True
step = torch.compile(lambda x: x.relu() + 1, backend="ddphook")
assert step(torch.ones(2)).tolist() == [2.0, 2.0]
dist.destroy_process_group()
for line in open("/proc/self/maps"):
    print(line.split()[-1])
"""


LIBRARIES = pathlib.Path(os.environ["DDPHOOK_LIBRARY_DIR"])
SCRIPT = ROOT / "tools" / "python" / "build-wheel.sh"


def built(output, *options):
    """Returns the wheel that the script makes."""
    command = [str(SCRIPT), *options, str(LIBRARIES.parent), str(output)]
    environment = {**os.environ, "PYTHON": sys.executable}
    # Its messages are not captured: pytest shows them with a failure.
    done = subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True
    )
    (made,) = output.iterdir()
    assert done.stdout.strip() == str(made)
    return made


@pytest.mark.parametrize("sets, expected", [("MACHINE", 1), ("ALL", 0)])
def test_a_build_for_one_processor_is_noticed(tmp_path, sets, expected):
    # The script warns before it builds, which this directory cannot.
    text = f"DDPHOOK_INSTRUCTION_SETS:STRING={sets}\n"
    (tmp_path / "CMakeCache.txt").write_text(text)
    done = subprocess.run(
        [str(SCRIPT), str(tmp_path), str(tmp_path / "output")],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and not done.stdout
    assert done.stderr.count("DDPHOOK_INSTRUCTION_SETS=ALL") == expected


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(tmp_path_factory.mktemp("wheel"))


def libraries_in(wheel):
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".so" in name}


def needed(library):
    """Returns the names of the libraries that this one asks the loader for."""
    command = ["readelf", "-W", "-d", str(library)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"NEEDED.*\[(.*)\]", text))


def is_portable(wheel, name):
    """True if the wheel is for all Pythons, and for systems with glibc 2.28 or later."""
    platform = re.fullmatch(
        rf"{name}-{re.escape(ddphook.__version__)}-py3-none-"
        r"(?:manylinux2014_\w+\.)?manylinux_2_(\d+)_\w+\.whl",
        wheel.name,
    )
    return platform and int(platform[1]) <= 28


def metadata_of(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


# Every system with glibc 2.28 or later has these.
SYSTEM = {f"lib{name}" for name in ("c.so.6", "m.so.6", "dl.so.2", "rt.so.1")} | {
    "libpthread.so.0",
    "libgcc_s.so.1",
    "libz.so.1",
}


def test_it_is_for_any_python_on_one_platform(wheel):
    assert is_portable(wheel, "ddphook")
    assert libraries_in(wheel) == {
        "ddphook/lib/libddphook_rt.so.0.1",
        "ddphook/lib/libDDPHookCAPI.so.0.1",
    }
    assert "ddphook/py.typed" in zipfile.ZipFile(wheel).namelist()
    assert wheel.stat().st_size <= 30e6


def test_it_needs_only_the_systems_libraries(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for library in (tmp_path / "ddphook" / "lib").iterdir():
        assert needed(library) <= SYSTEM


def test_it_has_the_licences_of_what_is_inside(wheel):
    archive = zipfile.ZipFile(wheel)
    texts = {
        name.rsplit("/", 1)[1]: archive.read(name).decode()
        for name in archive.namelist()
        if ".dist-info/licenses/" in name and not name.endswith("/")
    }
    assert "LLVM Exceptions" in texts["LICENSE"]
    assert "version 3.1" in next(t for n, t in texts.items() if "stdc++" in n).lower()
    for part in ("llvm", "gloo", "hwy", "json", "xxhash", "zstd"):
        assert any(part in name for name in texts), part
    expression = metadata_of(wheel)["License-Expression"]
    assert "GCC-exception-3.1" in expression and "LLVM-exception" in expression


def test_it_works_without_our_libraries_and_llvms(wheel, tmp_path):
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    # The environment of this test provides PyTorch.
    (packages,) = place.glob("lib/python3*/site-packages")
    torch_packages = pathlib.Path(torch.__file__).parents[1]
    (packages / "torch.pth").write_text(f"{torch_packages}\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python)]
    install = [*pip, "install", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "DDPHOOK_LIBRARY_DIR")
    }
    environment["DDPHOOK_CACHE_DIR"] = str(tmp_path / "modules")
    done = subprocess.run(
        [str(python), "-c", PROGRAM, str(ranks.free_port())],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    mapped = set(done.stdout.split())
    ours = {
        path
        for path in mapped
        if any(word in path for word in ("ddphook_rt", "DDPHook", "LLVM", "MLIR"))
    }
    assert len(ours) == 2
    assert all(path.startswith(str(packages)) for path in ours)


# Runs passes of MLIR that wheels have, and asks for others.
TRANSFORMS = """
from ddphook import CompileError, compiler

module = compiler.parse("")
for passes in ("func.func(tosa-to-linalg,affine-loop-fusion)", "one-shot-bufferize",
               "gpu.module(convert-gpu-to-nvvm)", "convert-to-llvm", "sparsifier"):
    module.run(passes)
for passes in "convert-to-emitc", "gpu.module(convert-gpu-to-rocdl)", "convert-scf-to-openmp":
    try:
        module.run(passes)
    except CompileError as error:
        print(str(error).splitlines()[0])
try:
    compiler.parse("spirv.module Logical GLSL450 {}")
except CompileError as error:
    print(error)
"""


def run_with(place, program):
    """Returns the lines that a program prints if the package is the one in ``place``."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    for name in "DDPHOOK_LIBRARY_DIR", "LD_LIBRARY_PATH":
        environment.pop(name, None)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_it_lacks_what_leads_to_other_code(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    *passes, dialect = run_with(tmp_path, TRANSFORMS)
    assert len(passes) == 3 and all("registered pass" in line for line in passes)
    assert "Dialect `spirv' not found" in dialect


# Prints why there is no context, or nothing, and the libraries of this process.
ON_CUDA = """
import ddphook
from ddphook._runtime import Context

try:
    Context(0, 1, None, 10, "cuda")
except ddphook.UnsupportedError as error:
    print(error)
print(*(line.split()[-1] for line in open("/proc/self/maps")), sep="\\n")
"""


@pytest.mark.skipif(
    not (LIBRARIES / "libddphook_backend_cuda.so").exists(), reason="built without CUDA"
)
@pytest.mark.full("builds both wheels")
def test_the_wheel_for_cuda_uses_pytorchs_libraries(wheel, tmp_path):
    cuda = built(tmp_path / "wheel", "--cuda")
    backend = "ddphook/lib/libddphook_backend_cuda.so"
    assert is_portable(cuda, "ddphook_cuda")
    assert libraries_in(cuda) == {backend}
    metadata = metadata_of(cuda)
    assert metadata["Name"] == "ddphook-cuda"
    required = metadata.get_all("Requires-Dist")
    assert f"ddphook=={ddphook.__version__}" in required
    assert {re.split("[<=>]", each)[0] for each in required} == {
        "ddphook",
        "nvidia-cublas",
        "nvidia-cuda-runtime",
        "nvidia-nccl-cu13",
    }
    extras = metadata_of(wheel).get_all("Requires-Dist")
    assert 'ddphook-cuda; extra == "cuda"' in extras

    place = tmp_path / "site-packages"
    for each in wheel, cuda:
        with zipfile.ZipFile(each) as archive:
            archive.extractall(place)
    theirs = {"libcudart.so.13", "libcublas.so.13", "libnccl.so.2"}
    assert theirs <= needed(place / backend) <= theirs | SYSTEM
    nvidia = pathlib.Path(torch.__file__).parents[1] / "nvidia"
    (place / "nvidia").symlink_to(nvidia)
    lines = run_with(place, ON_CUDA)
    mapped = {pathlib.Path(line) for line in lines}
    assert place / backend in mapped
    for name in theirs:
        (path,) = {path for path in mapped if path.name == name}
        assert path.is_relative_to(nvidia.resolve())
    if not torch.cuda.is_available():
        assert lines[0] in (
            "no CUDA device: this machine has no NVIDIA driver (cudaErrorInsufficientDriver)",
            "no CUDA device: the driver shows no GPU to this process (cudaErrorNoDevice); "
            "CUDA_VISIBLE_DEVICES may hide them",
        )
