# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Input files that are wrong, and outputs that cannot be written."""

import json
import struct

import numpy as np
import pytest

import harness
import runner
import tensors
from tensors import Tensor


def first_file(directory, rank=0):
    return directory.path / f"in.{rank}.0.safetensors"


def with_header(change):
    """A file whose header went through `change`, a function of the parsed one."""

    def build(good):
        (length,) = struct.unpack_from("<Q", good)
        header = json.loads(good[8 : 8 + length])
        text = change(header)
        if not isinstance(text, bytes):
            text = json.dumps(text).encode()
        return struct.pack("<Q", len(text)) + text + good[8 + length :]

    return build


def with_entry(**changes):
    def change(header):
        header["arg0"].update(changes)
        return header

    return with_header(change)


def without_offsets(header):
    del header["arg0"]["data_offsets"]
    return header


MALFORMED = {
    "empty": lambda good: b"",
    "shorter than its length": lambda good: good[:5],
    "cut in the header": lambda good: good[:40],
    "cut in the data": lambda good: good[:-1],
    "longer than its data": lambda good: good + b"\0",
    "header length beyond the file": lambda good: struct.pack("<Q", 2**63) + good[8:],
    "header length that wraps": lambda good: struct.pack("<Q", 2**64 - 8) + good[8:],
    "no JSON": with_header(lambda header: b"}{" * 40),
    "JSON, but a list": with_header(lambda header: [1, 2]),
    "deep JSON": with_header(lambda header: b"[" * 100000),
    "bytes that are no UTF-8": with_header(lambda header: b"\xff" * 64),
    "no offsets": with_header(without_offsets),
    "unknown type": with_entry(dtype="F12"),
    "negative dimension": with_entry(shape=[-3, -5]),
    "fraction as a dimension": with_entry(shape=[3.5, 5]),
    "shape whose size overflows": with_entry(shape=[2**40, 2**40]),
    "offsets backwards": with_entry(data_offsets=[60, 0]),
    "offsets beyond the data": with_entry(data_offsets=[0, 2**40]),
    "offsets that overlap": with_entry(data_offsets=[4, 64]),
    "shape unlike the bytes": with_entry(shape=[3, 6]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_safetensors(tmp_path, name):
    directory = harness.make(tmp_path)
    path = first_file(directory)
    path.write_bytes(MALFORMED[name](path.read_bytes()))
    harness.expect_failure(directory, path.name)


WRONG = {
    "missing tensor": ({"arg0": 0}, "arg1"),
    "other names": ({"g0": 0, "g1": 1}, "arg0"),
    "tensors exchanged": ({"arg0": 1, "arg1": 0}, "arg0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tensors(tmp_path, name):
    names, word = WRONG[name]
    directory = harness.make(tmp_path)
    good = harness.good_inputs()
    path = first_file(directory)
    tensors.save(path, {key: good[i] for key, i in names.items()})
    harness.expect_failure(directory, word, path.name)


SHAPES = {
    "transposed": np.zeros((5, 3), np.float32),
    "flat": np.zeros(15, np.float32),
    "one more dimension": np.zeros((1, 3, 5), np.float32),
    "no elements": np.zeros((0, 5), np.float32),
    "scalar": np.zeros((), np.float32),
}


@pytest.mark.parametrize("name", SHAPES)
def test_wrong_shape(tmp_path, name):
    directory = harness.make(tmp_path)
    good = harness.good_inputs()
    bad = Tensor("f32", SHAPES[name])
    tensors.save(first_file(directory), {"arg0": bad, "arg1": good[1]})
    harness.expect_failure(directory, "arg0")


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_wrong_type(tmp_path, dtype):
    directory = harness.make(tmp_path)
    good = harness.good_inputs()
    bad = Tensor(dtype, np.zeros((3, 5), tensors.DTYPES[dtype][0]))
    tensors.save(first_file(directory), {"arg0": bad, "arg1": good[1]})
    harness.expect_failure(directory, "arg0", "f32")


def test_missing_file(tmp_path):
    directory = harness.make(tmp_path)
    first_file(directory).unlink()
    harness.expect_failure(directory, "in.0.0.safetensors")


def test_input_that_is_a_directory(tmp_path):
    directory = harness.make(tmp_path)
    first_file(directory).unlink()
    first_file(directory).mkdir()
    harness.expect_failure(directory, "in.0.0.safetensors")


def test_missing_file_of_one_rank_ends_all(tmp_path):
    directory = harness.make(tmp_path, world=3)
    first_file(directory, rank=1).unlink()
    harness.expect_failure(
        directory, "in.1.0.safetensors", ranks=3, lines=range(1, 4)
    )


def test_later_step_that_fails_leaves_whole_files(tmp_path):
    """Step 0's results stand; step 1's input is missing."""
    directory = harness.make(tmp_path)
    process = runner.start(directory.arguments("step", 1, 2))
    result = runner.finish(process)
    harness.assert_error(result, "in.0.1.safetensors")
    harness.assert_nothing_left(directory, process)
    assert directory.output_files() == ["out.0.0.safetensors"]


def test_outputs_in_no_directory(tmp_path):
    directory = harness.make(tmp_path)
    directory.outputs = tmp_path / "nowhere" / "out.{rank}.{step}.safetensors"
    harness.expect_failure(directory, "nowhere")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "pattern", ["out.{step}.safetensors", "in.{rank}.{step}.safetensors"]
)
def test_outputs_that_would_overwrite(tmp_path, pattern):
    directory = harness.make(tmp_path, world=2)
    before = first_file(directory).read_bytes()
    directory.outputs = tmp_path / pattern
    harness.expect_failure(directory, ranks=2)
    assert first_file(directory).read_bytes() == before


@pytest.mark.parametrize(
    "flag",
    ["--ranks=0", "--ranks=-1", "--ranks=two", "--steps=0", "--steps=1.5"],
)
def test_numbers_that_are_none(tmp_path, flag):
    harness.expect_failure(harness.make(tmp_path), flag[2:7], arguments=[flag])
