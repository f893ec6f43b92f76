# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled modules on disk are shared and complete, and never cause a failure."""

import multiprocessing
import os
import types
from unittest import mock

import pytest

import ddphook
from ddphook import _cache, _runtime, compiler

TEXT = """ddp.process_group @dp
func.func @bucket(%g: tensor<7xf32> {bufferization.writable = true}) -> tensor<7xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<7xf32>
  return %r : tensor<7xf32>
}
"""
PIPELINE = "hook=fp16"


@pytest.fixture
def place(tmp_path, monkeypatch):
    place = tmp_path / "modules"
    monkeypatch.setenv("DDPHOOK_CACHE_DIR", str(place))
    yield place
    _cache.warn_once.cache_clear()


def get(text, pipeline, build):
    """Returns a module from the cache, or the one that `build` makes."""
    with mock.patch.object(compiler, "compile_module", lambda *_: build()):
        return _cache.compiled(text, pipeline)


def never():
    raise AssertionError("the module is in the cache")


def files(place):
    return [path for path in place.iterdir() if _cache.is_module(path.name)]


def test_hit_and_miss(place):
    assert get(TEXT, PIPELINE, lambda: b"first") == b"first"
    assert get(TEXT, PIPELINE, never) == b"first"
    assert get(TEXT, "hook=bf16", lambda: b"second") == b"second"
    assert get(TEXT + " ", PIPELINE, lambda: b"third") == b"third"
    assert len(files(place)) == 3


@pytest.mark.parametrize("fact", ["__version__", "abi", "compiler", "processor"])
def test_what_a_module_depends_on(place, monkeypatch, fact):
    get(TEXT, PIPELINE, lambda: b"first")
    if fact == "__version__":
        monkeypatch.setattr(ddphook, "__version__", "9")
    elif fact == "abi":
        library = types.SimpleNamespace(ddphook_abi_version=lambda: 99)
        monkeypatch.setattr(_runtime, "library", lambda: library)
    elif fact == "compiler":
        monkeypatch.setattr(_cache, "_compiler_identity", lambda: "another")
    else:
        monkeypatch.setattr(_cache, "processor", lambda: "another")
    assert get(TEXT, PIPELINE, lambda: b"second") == b"second"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
        lambda data: data.replace(b"module 1", b"module 2"),
    ],
)
def test_a_damaged_file_is_made_again(place, damage):
    get(TEXT, PIPELINE, lambda: b"content" * 10)
    (path,) = files(place)
    path.write_bytes(damage(path.read_bytes()))
    assert get(TEXT, PIPELINE, lambda: b"content" * 10) == b"content" * 10
    assert get(TEXT, PIPELINE, never) == b"content" * 10


def test_a_full_disk(place, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert get(TEXT, PIPELINE, lambda: b"first") == b"first"
    assert get(TEXT, PIPELINE, lambda: b"second") == b"second"
    assert not [path for path in place.iterdir() if path.name.startswith("new-")]


def test_no_place(place, monkeypatch):
    place.parent.joinpath("file").write_text("")
    monkeypatch.setenv("DDPHOOK_CACHE_DIR", str(place.parent / "file" / "modules"))
    assert get(TEXT, PIPELINE, lambda: b"first") == b"first"


def test_a_place_that_others_can_write_to(place):
    place.mkdir()
    place.chmod(0o777)
    assert get(TEXT, PIPELINE, lambda: b"first") == b"first"
    assert not list(place.iterdir())


@pytest.mark.parametrize("kept", [True, False], ids=["sticky", "open"])
def test_a_place_whose_parent_others_can_write_to(place, caplog, kept):
    """Others could replace the directory, even after the first check."""
    assert get(TEXT, PIPELINE, lambda: b"first") == b"first"
    place.parent.chmod(0o1777 if kept else 0o777)
    assert get(TEXT, PIPELINE, lambda: b"second") == (
        b"first" if kept else b"second"
    )
    assert ("other users can write to" in caplog.text) is not kept


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
def test_a_place_in_a_directory_of_another_user(place, caplog):
    os.chown(place.parent, 12345, -1)
    get(TEXT, PIPELINE, lambda: b"first")
    assert get(TEXT, PIPELINE, lambda: b"second") == b"second"
    assert caplog.text.count("belongs to user 12345") == 1


@pytest.mark.parametrize("other", ["link", "pipe"])
def test_what_is_no_file(place, other):
    get(TEXT, PIPELINE, lambda: b"first")
    (path,) = files(place)
    path.rename(place / "elsewhere")
    if other == "link":
        path.symlink_to("elsewhere")
    else:
        os.mkfifo(path)
    assert get(TEXT, PIPELINE, lambda: b"second") == b"second"
    assert get(TEXT, PIPELINE, never) == b"second"


def test_errors_of_the_compiler_are_not_the_cache_s(place):
    def wrong():
        raise ddphook.CompileError("wrong")

    with pytest.raises(ddphook.CompileError, match="wrong"):
        get(TEXT, PIPELINE, wrong)
    assert get(TEXT, PIPELINE, lambda: b"right") == b"right"


def test_the_oldest_go(place, monkeypatch):
    monkeypatch.setattr(_cache, "_MOST_FILES", 10)
    for number in range(12):
        get(TEXT, f"hook={number}", lambda: b"x")
        for path in files(place):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    assert len(files(place)) == 10
    get(TEXT, "hook=11", never)


def _build_once(start, built):
    def build():
        with built.get_lock():
            built.value += 1
        return b"module"

    start.wait()
    assert get(TEXT, PIPELINE, build) == b"module"


def test_of_eight_ranks_one_compiles(place):
    context = multiprocessing.get_context("fork")
    start, built = context.Event(), context.Value("i", 0)
    processes = [
        context.Process(target=_build_once, args=(start, built)) for _ in range(8)
    ]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert built.value == 1


def test_a_module_runs_twice_at_the_same_time(place):
    """Each load of equal bytes makes another copy of the code."""
    import ctypes

    image = _cache.compiled(TEXT, PIPELINE)
    context = _runtime.Context(0, 1, None, 10.0)
    modules = [_runtime.Module(context, image) for _ in range(2)]
    values = (ctypes.c_float * 7)(*[1 / 3] * 7)
    modules[0].run([ctypes.addressof(values)])
    assert list(values) == [0.333251953125] * 7
    assert [m.statistics()["steps"] for m in modules] == [1, 0]
    for module in modules:
        module.unload()
    context.destroy()


def test_diagnostics_of_the_compiler():
    with pytest.raises(ddphook.CompileError, match="group @no to be declared"):
        compiler.compile_module(TEXT.replace("on @dp", "on @no"), PIPELINE)
    with pytest.raises(ddphook.CompileError, match="fp61"):
        compiler.compile_module(TEXT, "hook=fp61")
    with pytest.raises(ddphook.CompileError, match="expected"):
        compiler.compile_module("func.func @", PIPELINE)


def test_what_is_no_module():
    context = _runtime.Context(0, 1, None, 10.0)
    with pytest.raises(ddphook.DataLossError):
        _runtime.Module(context, b"not an object")
    context.destroy()
