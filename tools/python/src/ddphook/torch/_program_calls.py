# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the lines of a traced program that call PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.fx.traceback
from torch.overrides import TorchFunctionMode

from ddphook._errors import UnsupportedError
from ddphook.torch import _private

# The directory of PyTorch's own code.
TORCH = str(Path(torch.__file__).parent)


class ProgramCalls(TorchFunctionMode):
    """Records which lines of the program, below the file `until` that calls it, call
    PyTorch, for the nodes of a trace, and turns assignments that a trace cannot see
    into operators."""

    def __init__(self, until: str) -> None:
        super().__init__()
        self._until = until

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        stack: list[str] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self._until:
            if not frame.f_code.co_filename.startswith(TORCH):
                place = f'File "{frame.f_code.co_filename}", line {frame.f_lineno}'
                stack.insert(0, f"  {place}, in {frame.f_code.co_name}\n")
            frame = frame.f_back
        torch.fx.traceback.set_stack_trace(stack)
        if function == _private.SET_DATA:
            return _set_data(*args)
        return function(*args, **(kwargs or {}))


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Performs ``tensor.data = value`` as an operator: a trace does not see assignments."""
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        raise UnsupportedError(
            f"expected .data to keep the type {tensor.dtype} and shape "
            f"{tuple(tensor.shape)}, but got {value.dtype} and shape {tuple(value.shape)}"
        )
    if _private.storage_of(tensor) != _private.storage_of(value):
        with torch.no_grad():
            torch.ops.aten.set_.source_Tensor(tensor, value.detach())
    elif _place_of(tensor) != _place_of(value):
        raise UnsupportedError(
            "expected .data in different memory than the tensor's, but got a view of the "
            "tensor; assign a clone() of it"
        )


def _place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.storage_offset(), tensor.stride()


def innermost(places: Iterable[tuple[str, str]]) -> str:
    """Returns the first line that is not PyTorch's own; `places` starts at the innermost."""
    for file, line in places:
        if not file.startswith(TORCH):
            return f"{file}:{line}"
    return "its line is not known"
