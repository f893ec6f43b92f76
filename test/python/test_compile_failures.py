# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions of compiled steps that raise, fail, or are late."""

import pytest
import ranks
import torch
import torch.distributed as dist

TEXT = """ddp.process_group @dp
func.func @bucket(%flat: tensor<{0}xf32> {{bufferization.writable = true}})
    -> tensor<{0}xf32> {{
  %r = ddp.all_reduce mean %flat on @dp : tensor<{0}xf32>
  return %r : tensor<{0}xf32>
}}
"""
TIMEOUT_S = 60.0


def start(value, length=3, timeout_s=TIMEOUT_S, group="0"):
    import ddphook.torch._ops  # noqa: F401 - it registers the operators.

    gradients, text = [torch.full((length,), value)], TEXT.format(length)
    return torch.ops.ddphook.start(
        gradients, 1, "", text, "hook=allreduce", group, timeout_s
    )


def check(ticket, value, length=3):
    """Waits for a reduction and compares its result."""
    (average,) = torch.ops.ddphook.wait(
        ticket, [length], [1], "float32", torch.device("cpu")
    )
    assert torch.equal(average, torch.full((length,), value))


def memory_in_use():
    """Returns the number of pending reductions, and the bytes of all buckets."""
    from ddphook.torch import _ops, _session

    (session,) = _session._sessions["0"]._opened.values()
    memory = session.device._flat
    session.finish_given_up()
    with memory._lock:
        memory._collect()
    return len(_ops._pending), memory._used


def break_steps(rank, who):
    """Runs steps that start two buckets; some of them raise before they wait."""
    import ddphook.torch

    def step(raises):
        tickets = [(start(2.0), 3), (start(2.0, 1000), 1000)]
        if raises:
            raise ValueError("broken")
        for ticket, length in tickets:
            check(ticket, 2.0, length)

    used, broken = [], 0
    for number in range(12):
        try:
            step(number % 3 == 1 and rank in who)
        except ValueError:
            broken += 1
        # A reduction after a broken step first awaits the reductions that the step left.
        check(start(2.0), 2.0)
        used.append(memory_in_use())
    ddphook.torch.close()
    return used, broken


@pytest.mark.parametrize("who", [(0, 1, 2), (1,)])
def test_a_step_that_raises_keeps_no_bucket(who):
    for rank, (used, broken) in enumerate(ranks.run(3, break_steps, who)):
        assert broken == (4 if rank in who else 0)
        assert used == [(0, 0)] * 12


def go_on_after_a_failure(rank):
    """Retries steps after the other rank has left."""
    import ddphook.torch
    from ddphook._errors import Error

    check(start(2.0), 2.0)
    if rank == 1:
        ddphook.torch.close()
        return []
    used = []
    for _ in range(5):
        with pytest.raises(Error):
            check(start(2.0), 2.0)
        with pytest.raises(Error):
            check(start(2.0), 2.0)
        used.append(memory_in_use())
    ddphook.torch.close()
    return used


def test_a_failed_job_keeps_no_more_than_one_step():
    used, _ = ranks.run(2, go_on_after_a_failure)
    assert used[1:] == used[:1] * 4


def keep_a_deadline(rank):
    """Uses two deadlines in one group; the other rank is late for the shorter one."""
    import ddphook.torch
    from ddphook._errors import DeadlineExceededError

    for _ in range(2):
        check(start(2.0, timeout_s=600.0), 2.0)
        check(start(2.0, timeout_s=1.0), 2.0)
    dist.barrier()
    if rank == 0:
        with pytest.raises(DeadlineExceededError, match=" 1 s"):
            check(start(2.0, timeout_s=1.0), 2.0)
    dist.barrier()
    ddphook.torch.close()


def test_each_step_has_its_own_deadline():
    ranks.run(2, keep_a_deadline)
