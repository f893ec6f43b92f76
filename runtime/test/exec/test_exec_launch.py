# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ddphook-exec as a rank of a job that a launcher has started."""

import re

import numpy
import pytest
from exec_harness import (
    expect_error,
    finish,
    outputs_in,
    start,
    vectors,
    write_vectors,
)
from ports import free_port
from safetensors.numpy import load_file


def launch(world, arguments, **variables):
    """Starts the tool once per rank, as torchrun does."""
    port = free_port()
    processes = [
        start(
            arguments,
            RANK=rank,
            LOCAL_RANK=rank,
            WORLD_SIZE=world,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            **variables,
        )
        for rank in range(world)
    ]
    return [finish(process) for process in processes]


@pytest.mark.parametrize("ranks", [[], ["--ranks=3"]])
def test_joins_a_launched_job(tmp_path, files, ranks):
    write_vectors(tmp_path, 3, 2)
    arguments = ["--entry=step", "--steps=2", *ranks, *files.values()]
    assert launch(3, arguments) == [(0, "")] * 3
    assert len(outputs_in(tmp_path)) == 6
    for step in range(2):
        expected = numpy.mean([vectors(rank, step) for rank in range(3)], axis=0)
        for rank in range(3):
            got = load_file(tmp_path / f"out.{rank}.{step}.safetensors")
            numpy.testing.assert_array_equal(got["result0"], expected)


def test_a_rank_of_a_launched_job_fails(tmp_path, files):
    write_vectors(tmp_path, 2, 1)
    (tmp_path / "in.1.0.safetensors").unlink()
    results = launch(2, ["--entry=step", *files.values()], DDPHOOK_TIMEOUT_S=3)
    assert [code for code, _ in results] == [1, 1]
    assert re.fullmatch(
        "ddphook-exec: error: rank 0: entry 'step' failed in step 1: "
        "(PEER_LOST|ABORTED|DEADLINE_EXCEEDED): .*\n",
        results[0][1],
    )
    assert re.fullmatch(
        "ddphook-exec: error: rank 1: cannot open '.*': No such file or directory\n",
        results[1][1],
    )


def test_wrong_launch_variables():
    expect_error(
        "expected --ranks to be the world size of the launched job, 1, but got 2",
        "--entry=nothing",
        "--ranks=2",
        RANK=0,
        WORLD_SIZE=1,
    )
    expect_error(
        ".*RANK.*WORLD_SIZE.*",
        "--entry=nothing",
        RANK=0,
    )
    expect_error(
        "launch variables contradict each other: .*",
        "--entry=nothing",
        RANK=0,
        WORLD_SIZE=2,
        OMPI_COMM_WORLD_RANK=1,
        OMPI_COMM_WORLD_SIZE=2,
    )
    expect_error(
        r"expected \{rank\} in --outputs with 2 ranks, but got 'out'",
        "--entry=nothing",
        "--outputs=out",
        RANK=0,
        WORLD_SIZE=2,
        MASTER_ADDR="127.0.0.1",
    )
    expect_error(
        "expected DDPHOOK_TIMEOUT_S to be a number of seconds above 0, but got 'soon'",
        "--entry=nothing",
        DDPHOOK_TIMEOUT_S="soon",
    )
