# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheel: built, installed in another environment, used from another directory."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
import torch

import ranks
from conftest import ROOT

# Trains a step with the package's own libraries, and prints their paths.
PROGRAM = """
import sys
import torch
import torch.distributed as dist
import ddphook.torch

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[1], rank=0,
                        world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
with ddphook.torch.register(model, hook="fp16") as handle:
    model(torch.ones(5, 3)).sum().backward()
    assert handle.statistics()["steps"] == 1
assert model.module.bias.grad.tolist() == [5.0, 5.0]
# Found by its entry point.
step = torch.compile(lambda x: x.relu() + 1, backend="ddphook")
assert step(torch.ones(2)).tolist() == [2.0, 2.0]
dist.destroy_process_group()
for line in open("/proc/self/maps"):
    print(line.split()[-1])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    output = tmp_path_factory.mktemp("wheel")
    script = ROOT / "tools" / "python" / "build-wheel.sh"
    libraries = pathlib.Path(os.environ["DDPHOOK_LIBRARY_DIR"])
    command = [str(script), str(libraries.parent), str(output)]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        command, check=True, env=environment, capture_output=True, text=True
    )
    (made,) = output.iterdir()
    assert done.stdout.strip() == str(made)
    return made


# Every system with glibc 2.28 or later has these.
SYSTEM = {f"lib{name}" for name in ("c.so.6", "m.so.6", "dl.so.2", "rt.so.1")} | {
    "libpthread.so.0",
    "libgcc_s.so.1",
    "libz.so.1",
}


def test_it_is_for_any_python_on_one_platform(wheel):
    glibc = re.fullmatch(
        r"ddphook-0\.1\.0-py3-none-manylinux_2_(\d+)_\w+\.whl", wheel.name
    )
    assert glibc and int(glibc[1]) <= 28
    names = zipfile.ZipFile(wheel).namelist()
    libraries = {name for name in names if ".so" in name}
    assert libraries == {
        "ddphook/lib/libddphook_rt.so.0.1",
        "ddphook/lib/libDDPHookCAPI.so.0.1",
    }
    assert "ddphook/py.typed" in names


def test_it_needs_only_the_systems_libraries(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for library in (tmp_path / "ddphook" / "lib").iterdir():
        command = ["readelf", "-W", "-d", str(library)]
        text = subprocess.run(command, check=True, capture_output=True, text=True)
        assert set(re.findall(r"NEEDED.*\[(.*)\]", text.stdout)) <= SYSTEM


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
    (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    lines = archive.read(metadata).decode().splitlines()
    (expression,) = (line for line in lines if line.startswith("License-Expression:"))
    assert "GCC-exception-3.1" in expression and "LLVM-exception" in expression


def test_it_works_without_our_libraries_and_llvms(wheel, tmp_path):
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    # The environment of this test provides PyTorch.
    (packages,) = place.glob("lib/python3*/site-packages")
    torch_packages = pathlib.Path(torch.__file__).parents[1]
    (packages / "torch.pth").write_text(f"{torch_packages}\n")
    install = [str(python), "-m", "pip", "--quiet", "install", "--no-deps", str(wheel)]
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
