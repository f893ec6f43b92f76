# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one thread that uses a context of the runtime."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs functions in the order in which it receives them.

    Its thread does not keep the process from exiting.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, name="ddphook-torch", daemon=True
        )
        self._thread.start()

    def post(self, task: Callable[[], None]) -> None:
        """Runs ``task``, which must not raise, at a later time."""
        self._tasks.put(task)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a function; returns its result or raises its exception."""
        return self.submit(function, *arguments).result()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Returns the future result of a function, which runs later."""
        result: Future[T] = Future()

        def task() -> None:
            try:
                result.set_result(function(*arguments))
            except BaseException as error:  # noqa: BLE001 - raised by the caller.
                result.set_exception(error)

        self.post(task)
        return result

    def stop(self) -> None:
        """Ends the thread after all tasks so far; does not wait."""
        self._tasks.put(None)

    def join(self) -> None:
        self._thread.join()

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task
