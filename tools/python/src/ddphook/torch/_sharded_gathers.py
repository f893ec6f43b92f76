# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All-gathers of a sharded model's parameters with a hook."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist

from ddphook._errors import UnsupportedError
from ddphook.torch import _bucket, _private
from ddphook.torch._hooks import AnyHook, Hook, resolve_for_group
from ddphook.torch._modules import Modules
from ddphook.torch._process_group import Work
from ddphook.torch._sharded_model import check_scatter


@dataclasses.dataclass(eq=False)
class AllGather:
    """The all-gather of one parameter group, as FSDP calls it; `own` is FSDP's.

    Every rank decodes all parts, its own included, so that all have the same parameters.
    """

    own: Any
    wire: str
    group: dist.ProcessGroup
    modules: Modules
    submit: Callable[[Callable[[], None]], Future[None]]

    def allocate(self, *size: Any, **like: Any) -> torch.Tensor:
        memory: torch.Tensor = self.own.allocate(*size, **like)
        return memory

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        """Starts to gather, unless the parameters were gathered before and then sharded
        in a smaller group; FSDP waits for the result."""
        if group.group_name != self.group.group_name:
            return self.own(output_tensor, input_tensor, group, async_op)
        _bucket.check_tensor(output_tensor)
        size, dtype = output_tensor.numel(), output_tensor.dtype
        layout = _bucket.Gathered(size, group.size(), dtype, self.wire)

        def gather() -> None:
            # The input is a part of the output.
            self.modules.run(layout, [input_tensor.clone(), output_tensor], True, None)

        return Work(self.submit(gather), [output_tensor])


def resolve_gathering(given: AnyHook) -> tuple[Hook, str]:
    """Returns the hook of all-gathers, and the type in which it sends elements, in IR; an
    empty one if it sends them as they are.

    Refuses a hook that does not send each element by itself.
    """
    hook = resolve_for_group(given, user="an all-gather", advice="")
    example = check_scatter(hook, "in all-gathers")
    wire = re.search(r"wire_dtype = (\w+|!ddp\.encoded<.*?>)", example)
    return hook, wire[1] if wire else ""


def check_group(group: Any, names: dict[Any, str]) -> None:
    """Refuses a group whose parameters cannot be sent as codes."""
    parameters = group.fsdp_params
    dtypes = {each.mp_policy.param_dtype or each.sharded_param.dtype for each in parameters}
    is_plain = not any(map(_private.gathers_itself, parameters))
    if len(dtypes) > 1 or not dtypes <= _bucket.ELEMENT_TYPES.keys() or not is_plain:
        found = ", ".join(sorted(map(str, dtypes))) if is_plain else "a class of their own"
        raise UnsupportedError(
            f"the parameter group of '{names[parameters[0]]}': expected parameters of one type, "
            "float16, bfloat16, float32 or float64, for a 'gather_hook', but got " + found
        )
