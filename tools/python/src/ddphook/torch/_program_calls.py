# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program that is traced calls of PyTorch, seen from the program."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.fx.traceback
from torch.overrides import TorchFunctionMode

from ddphook._errors import UnsupportedError

# Where PyTorch's own lines are.
TORCH = str(Path(torch.__file__).parent)

_SET_DATA = vars(torch._C.TensorBase)["data"].__set__


class ProgramCalls(TorchFunctionMode):
    """Notes which lines of the program call PyTorch, for the nodes of a trace, and
    makes writes of what a trace does not see.

    Parameters
    ----------
    until
        The file that calls the program.
    memory
        The storages of models' tensors, with where these are inputs.
    """

    def __init__(self, until: str, memory: Mapping[int, str]) -> None:
        super().__init__()
        self._until = until
        self._memory = memory
        # What has become the data of a tensor, by its storage: the storage of that
        # tensor, and the data, kept since another storage could get its number.
        self._data: dict[int, tuple[int, torch.Tensor]] = {}

    def __enter__(self) -> ProgramCalls:
        self._data.clear()
        super().__enter__()
        return self

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
        if function == _SET_DATA:
            self._check_data(*args)
            return _set_data(*args)
        return function(*args, **(kwargs or {}))

    def _check_data(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Refuses ``.data`` that two tensors would share afterwards: here each keeps
        memory of its own, and a write to one would not reach the other."""
        own, other = (each.untyped_storage()._cdata for each in (tensor, value))
        before, _ = self._data.setdefault(other, (own, value))
        if other != own and (other in self._memory or before != own):
            whose = self._memory.get(other, "what is another tensor's .data")
            raise UnsupportedError(
                f"expected a new tensor as .data of {self._memory.get(own, 'a tensor')}, "
                f"but got the memory of {whose}; assign a clone() of it"
            )


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """``tensor.data = value`` as a write, since a trace does not see that another
    tensor has taken the place of the first."""
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        raise UnsupportedError(
            f"expected .data of {tensor.dtype} and shape {tuple(tensor.shape)}, as it "
            f"is, but got {value.dtype} and shape {tuple(value.shape)}"
        )
    tensor.detach().copy_(value.detach())
