# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exceptions, and libraries that are missing or do not suit: one line says what was
found, what is needed, and what to do."""

import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import pytest

import ddphook
from ddphook import _errors, _libraries, _runtime

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLASSES = [*_errors._BY_STATUS, ddphook.CompileError]


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_can_be_pickled(kind):
    error = kind("a, b and c")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == "a, b and c" and copy.args == error.args
    assert copy.status == kind.status and isinstance(copy, RuntimeError)
    if isinstance(error, OSError):
        assert error.errno is None


def test_errors_are_those_of_python():
    for kind, base in (
        (ddphook.DeadlineExceededError, TimeoutError),
        (ddphook.PeerLostError, ConnectionError),
        (ddphook.InputOutputError, OSError),
        (ddphook.InvalidArgumentError, ValueError),
    ):
        with pytest.raises(base, match="^why$"):
            raise _errors.from_status(CLASSES.index(kind) + 1, "why")
    assert not issubclass(ddphook.AbortedError, OSError)


def test_the_abi_is_that_of_the_header():
    header = ROOT / "runtime" / "include" / "ddphook" / "runtime" / "compiled.h"
    [version] = re.findall(r"define DDPHOOK_ABI_VERSION (\d+)", header.read_text())
    assert _runtime._ABI_VERSION == int(version)


def made(folder, name, source, *flags):
    """Compiles a library of the given name."""
    file = folder / "library.c"
    file.write_text(source)
    out = folder / f"{name}.0.1"
    subprocess.run(["cc", "-shared", "-fPIC", str(file), "-o", str(out), *flags], check=True)


def failure(code, folder=None, **environment):
    """Returns the last line of the error of a program with this library directory."""
    environment = {**os.environ, **environment}
    environment.pop(_libraries.LIBRARY_DIR_VARIABLE)
    if folder is not None:
        environment[_libraries.LIBRARY_DIR_VARIABLE] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env=environment,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]


RUNTIME = "import ddphook._runtime; ddphook._runtime.library()"
COMPILER = "import ddphook.compiler; ddphook.compiler.parse('')"
# The functions whose types are declared, in a library that is otherwise of this version.
FUNCTIONS = " ".join(
    re.findall(r'^ +\("(ddphook_[\w ]+)", ', pathlib.Path(_runtime.__file__).read_text(), re.M)
).split()


def test_a_runtime_of_another_version(tmp_path):
    names = [name for name in FUNCTIONS if name != "ddphook_abi_version"]
    source = "".join(f"void {name}(void) {{}}\n" for name in names)
    made(tmp_path, _libraries.RUNTIME, source + "int ddphook_abi_version(void) { return 3; }")
    line = failure(RUNTIME, tmp_path)
    assert line.startswith("ddphook._errors.UnsupportedError: expected the ABI version "), line
    assert f"{tmp_path}/{_libraries.RUNTIME}.0.1 has 3; install the package and" in line


def test_libraries_without_functions(tmp_path):
    made(tmp_path, _libraries.RUNTIME, "int ddphook_abi_version(void) { return 10; }")
    line = failure(RUNTIME, tmp_path)
    assert f"expected {tmp_path}/{_libraries.RUNTIME}.0.1 to be of the version 0.1" in line
    assert "undefined symbol" in line or "ddphook_last_error" in line
    made(tmp_path, _libraries.COMPILER, "int nothing;")
    line = failure(COMPILER, tmp_path)
    assert re.search(r"another one: .*\b(mlir|ddphook)[A-Z]", line), line
    assert "from the same build" in line


def test_libraries_that_cannot_be_loaded(tmp_path):
    made(tmp_path, "libneeded.so", "int needed;", "-Wl,-soname,libneeded.so.0.1")
    needed = str(tmp_path / "libneeded.so.0.1")
    made(tmp_path, _libraries.RUNTIME, "int x;", "-Wl,--no-as-needed", needed)
    os.remove(needed)
    line = failure(RUNTIME, tmp_path)
    assert "libneeded.so.0.1: cannot open" in line and "install what it lacks, or" in line
    (tmp_path / f"{_libraries.COMPILER}.0.1").write_bytes(b"no library")
    assert "build ddphook on this one (docs/installing.md)" in failure(COMPILER, tmp_path)


def test_a_system_that_is_too_old(tmp_path):
    """The library asks for a version of glibc that no system has."""
    versions = tmp_path / "versions"
    versions.write_text("GLIBC_2.99 { global: *; };")
    glibc = "int newest(void) { return 0; }"
    flags = "-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={versions}"
    made(tmp_path, "libc.so", glibc, *flags)
    use = "int newest(void); int use(void) { return newest(); }"
    made(tmp_path, _libraries.RUNTIME, use, "-nostdlib", str(tmp_path / "libc.so.0.1"))
    line = failure(RUNTIME, tmp_path)
    assert re.search(
        rf"UnsupportedError: cannot load {_libraries.RUNTIME}: .*libc.so.6: version "
        r"`GLIBC_2.99' not found .*; use a newer system, or build ddphook on this one",
        line,
    ), line


def test_a_missing_backend(tmp_path):
    """There is a runtime, but no library of the backend next to it."""
    runtime = f"{_libraries.RUNTIME}.0.1"
    shutil.copy(_libraries.find(_libraries.RUNTIME), tmp_path / runtime)
    context = "from ddphook._runtime import Context; Context(0, 1, None, 10, %r)"
    line = failure(context % "cuda", tmp_path)
    assert line.startswith(
        "ddphook._errors.UnsupportedError: the backend 'cuda' is not available ('host' is "
        "built in): libddphook_backend_cuda.so: cannot open shared object file"
    ), line
    advice = "pip install 'ddphook[cuda]' brings it to a wheel, DDPHOOK_CUDA=ON builds it"
    assert line.endswith(f"directory; {advice}")
    (tmp_path / "libddphook_backend_mine.so").write_bytes(b"no library")
    line = failure(context % "mine", tmp_path)
    assert f"{tmp_path}/libddphook_backend_mine.so: file too short" in line, line


def test_missing_libraries(tmp_path):
    line = failure(RUNTIME, tmp_path)
    assert f"DDPHOOK_LIBRARY_DIR={tmp_path}, but there is none; correct or unset" in line
    line = failure(RUNTIME)
    assert "libddphook_rt.so.0.1: cannot open" in line and "install a wheel of ddphook" in line
    assert "ddphook/lib, " in line


def test_a_python_without_ctypes():
    line = failure("import sys; sys.modules['_ctypes'] = None; import ddphook")
    assert line.startswith("ImportError: ddphook needs ctypes, but ")
    assert "built without it" in line and "with libffi" in line


def test_no_library_needs_a_shared_python():
    """A Python that is linked statically suffices."""
    for name in _libraries.RUNTIME, _libraries.COMPILER:
        assert b"libpython" not in pathlib.Path(_libraries.find(name)).read_bytes()
