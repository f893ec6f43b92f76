# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Failures of a device after the last bucket has started."""

import logging
import os
import time
from unittest import mock

import models
import pytest
import ranks
import staged

LOST = "rank 7 was lost"


def until_it_raises(function):
    """Returns the exception that repeated calls finally raise; losses are noticed with a delay."""
    from ddphook._errors import Error

    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            function()
        except Error as error:
            return type(error).__name__
        time.sleep(0.05)
    return "nothing"


def lose_a_peer_at_the_end(rank):
    import ddphook.torch
    from ddphook.torch import _session
    from test_device_compile import gradients_of, rewritten

    model = models.make("mlp", rank)
    graph = rewritten("fp16")
    with staged.registered(model, rank, "fp16", timeout=60) as handle:
        models.train(model, rank, 3)
        with staged.steps(rank):
            graph(*gradients_of(rank, 0))
            session = _session.session_of("0", 60.0)
            if rank == 1:
                os._exit(3)
            names = [until_it_raises(lambda: ranks.counters_of(session))]
            # Raises the failure of a compiled step, which the step itself has not seen.
            with pytest.raises(ddphook.Error):
                ddphook.torch.close()
            names.append(until_it_raises(handle.statistics))
    return names


def test_a_peer_lost_behind_the_last_step_is_an_exception():
    (kind, names), died = ranks.collect(2, lose_a_peer_at_the_end)
    assert died == ("died", 3)
    assert kind == "ok", names
    assert names == ["PeerLostError", "PeerLostError"]


def lost_device(device):
    from ddphook._errors import PeerLostError

    return mock.patch.object(
        device, "finish_all", side_effect=PeerLostError(LOST), create=True
    )


def messages():
    """Returns the list that collects messages of the logger from now on."""
    texts, handler = [], logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())
    logging.getLogger("ddphook").addHandler(handler)
    return texts


def close_a_hook(rank):
    from ddphook._errors import PeerLostError
    from ddphook.torch import _handle

    texts = messages()
    for ends_by in ("close", "exit", "exception"):
        model = models.make("mlp", rank)
        with staged.registered(model, rank, "fp16") as handle:
            models.train(model, rank, 1)
            with lost_device(handle._device):
                if ends_by == "close":
                    with pytest.raises(PeerLostError, match=LOST):
                        handle.close()
                elif ends_by == "exit":
                    _handle._close_all()
                else:
                    with pytest.raises(ValueError, match="mine"), handle:
                        raise ValueError("mine")
        assert not handle._worker._thread.is_alive()
    return texts


def test_closing_a_hook_raises_what_nobody_has_seen():
    (texts,) = ranks.run(1, close_a_hook)
    assert texts == [f"the last step of 'hook=fp16' failed: {LOST}"] * 2


def close_steps(rank):
    import ddphook.torch
    from ddphook._errors import PeerLostError
    from ddphook.torch import _ops, _session
    from test_device_compile import gradients_of, rewritten

    texts = messages()
    graph = rewritten("fp16")
    with staged.steps(rank) as device:
        for close in (ddphook.torch.close, _ops._close_at_exit):
            graph(*gradients_of(rank, 0))
            session = _session.session_of("0", 60.0)
            with lost_device(device):
                if close is ddphook.torch.close:
                    with pytest.raises(PeerLostError, match=LOST):
                        close()
                else:
                    close()
            assert not session._worker._thread.is_alive()
            assert not _session._sessions
    return texts


def test_closing_steps_raises_what_nobody_has_seen():
    (texts,) = ranks.run(1, close_steps)
    assert texts == [f"the last compiled step failed: {LOST}"]
