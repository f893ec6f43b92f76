# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base of the classes of hooks in ``_generated_hooks``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from ddphook._errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy
    import torch

DType: TypeAlias = "torch.dtype | numpy.dtype[Any] | type[Any]"
ProcessGroup: TypeAlias = "torch.distributed.ProcessGroup"
WrapperName = Literal["fp16", "bf16", "int8", "int4", "fp8"]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TypedHook:
    """The base of `PowerSGD`, `Int8` and the other hooks."""

    name: ClassVar[str]
    function: ClassVar[str]  # PyTorch's, if there is one.
    # The names of fields in strings, if they differ.
    _option_names: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def option_types(cls) -> dict[str, str]:
        """Returns the annotations of all options, by their names in strings."""
        names = cls._option_names
        return {names.get(f.name, f.name): str(f.type) for f in dataclasses.fields(cls)}

    def options(self) -> dict[str, Any]:
        """Returns the options that differ from the defaults, by their names in strings."""
        return {self._option_names.get(key, key): value for key, value in self._changed()}

    def _changed(self) -> list[tuple[str, Any]]:
        values = [(field, getattr(self, field.name)) for field in dataclasses.fields(self)]
        return [(field.name, value) for field, value in values if value != field.default]

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={value!r}" for name, value in self._changed())
        return f"{type(self).__name__}({changed})"


@dataclasses.dataclass(frozen=True)
class Wrap:
    """Runs another hook in a 16-bit type, as PyTorch's ``fp16_compress_wrapper`` does.

    Parameters
    ----------
    wire_type
        The type; or, for `PowerSGD` and `BatchedPowerSGD`, the encoding of what they send:
        ``"int8"``, ``"int4"`` or ``"fp8"``.
    inner
        The hook.
    """

    wire_type: WrapperName
    inner: TypedHook


def exempt_option(pattern: Any) -> str:
    """Returns a regular expression of names as the option ``exempt`` of a pipeline."""
    try:
        re.compile(pattern)
    except (TypeError, re.error) as error:
        raise InvalidArgumentError(
            f"expected a regular expression for 'exempt', but got {pattern!r}: {error}"
        ) from None
    if not pattern or {"'", '"'} <= set(pattern):
        # The pattern becomes part of a string of options.
        raise InvalidArgumentError(
            "expected 'exempt' to be non-empty and to have at most one kind of "
            f"quotation mark, but got {pattern!r}"
        )
    quote = '"' if "'" in pattern else "'"
    return f"exempt={quote}{pattern}{quote}"


def take_apart(
    hook: Any, wrapper: Any, given: Mapping[str, Any]
) -> tuple[Any, Any, dict[str, Any]]:
    """Returns the name, wrapper and options of a typed hook; others stay as they are.

    Raises InvalidArgumentError if `wrapper` or an option in `given` is also part of the
    typed hook.
    """
    whole = hook
    if isinstance(hook, Wrap):
        if wrapper is not None:
            raise InvalidArgumentError(f"expected no wrapper beside {hook!r}")
        hook, wrapper = hook.inner, hook.wire_type
    if isinstance(hook, type) and issubclass(hook, TypedHook):
        hook = hook()
    if not isinstance(hook, TypedHook):
        return hook, wrapper, dict(given)
    names = {*hook.option_types(), *hook._option_names}
    for name in given:
        if name in names:
            raise InvalidArgumentError(f"'{name}' is also given by {whole!r}")
    return hook.name, wrapper, {**hook.options(), **given}
