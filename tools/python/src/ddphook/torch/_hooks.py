# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From every way to name a hook to the compiler's options.

A hook is named by ddphook's name, by PyTorch's function, enumeration or state,
by Accelerate's keyword arguments or by Lightning's.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

from ddphook import _compiler
from ddphook._errors import CompileError, InvalidArgumentError, UnsupportedError
from ddphook.torch import _bucket
from ddphook.torch._bucket import ELEMENT_TYPES
from ddphook.torch._hook_options import HOOK_OPTIONS

# As IR spells them.
_TYPE_NAMES = ELEMENT_TYPES | {
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
}
# Of the values of options.
_TYPES: dict[str, type] = {
    "Integer": int,
    "Number": float,
    "Flag": bool,
    "WireType": bool,
    "Choice": str,
    "Type": torch.dtype,
    "Symbol": dist.ProcessGroup,
}

# The options of each hook, by PyTorch's names, with their types.
HOOKS: dict[str, dict[str, type]] = {
    hook: {name: _TYPES[kind] for name, kind in options.items()}
    for hook, options in HOOK_OPTIONS.items()
}

# Names of PyTorch's functions and of Accelerate's enumeration.
_ALIASES = {
    "allreduce_hook": "allreduce",
    "no": "allreduce",
    "fp16_compress": "fp16",
    "fp16_compress_hook": "fp16",
    "bf16_compress": "bf16",
    "bf16_compress_hook": "bf16",
    "noop_hook": "noop",
    "power_sgd": "powersgd",
    "powerSGD_hook": "powersgd",
    "batched_power_sgd": "batched_powersgd",
    "batched_powerSGD_hook": "batched_powersgd",
    "post_localSGD_hook": "post_local_sgd",
    "_reducer_allreduce_and_upcast_hook": "allreduce_and_upcast",
    "quantization_pertensor_hook": "quantization_pertensor",
    "quantization_perchannel_hook": "quantization_perchannel",
}
_WRAPPERS = {
    "fp16": "fp16",
    "bf16": "bf16",
    "fp16_compress_wrapper": "fp16",
    "bf16_compress_wrapper": "bf16",
}


@dataclasses.dataclass(frozen=True)
class Hook:
    """A hook with its options, checked.

    Attributes
    ----------
    name
        One of ``HOOKS``.
    wrappers
        ``"fp16"`` and ``"bf16"``, the outermost first.
    options
        By PyTorch's names, without those that are not given.
    exempt
        A regular expression: parameters in whose names it matches have another
        hook. Empty: there are none.
    exempt_hook
        Their hook, one of ``HOOKS``.
    topology
        ``"flat"`` or ``"hierarchical"``.
    state
        The state object of PyTorch's that the options come from, if any.
    optimizer
        What PyTorch's ``_hook_then_optimizer`` was given, if any.
    """

    name: str
    wrappers: tuple[str, ...] = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    exempt: str = ""
    exempt_hook: str = "allreduce"
    topology: str = "flat"
    state: Any = dataclasses.field(default=None, compare=False)
    optimizer: Any = dataclasses.field(default=None, compare=False)

    def pipeline(self) -> str:
        """As options of ``ddp-pipeline``; equal texts are equal hooks."""
        parts = [f"hook={self.name}"]
        parts += [
            f"{name}={_text(value)}" for name, value in sorted(self.options.items())
        ]
        parts += [f"wrapper={wrapper}" for wrapper in self.wrappers]
        if self.exempt:
            quote = '"' if "'" in self.exempt else "'"
            parts += [f"exempt={quote}{self.exempt}{quote}"]
            parts += [f"exempt-hook={self.exempt_hook}"]
        if self.topology != "flat":
            parts += [f"topology={self.topology}"]
        return " ".join(parts)

    @property
    def own_hook_of_exempt(self) -> str | None:
        """The hook of all parameters that are exempt, as an attribute, or None."""
        return f"#ddp.{self.exempt_hook}" if self.exempt else None

    def own_hook(self, name: str) -> str | None:
        """The hook of a parameter that is exempt, as an attribute, or None."""
        if not self.exempt or not re.search(self.exempt, name):
            return None
        return self.own_hook_of_exempt

    def check_names(self, names: Iterable[str]) -> None:
        """Checks that a parameter is exempt, if any is meant to be.

        Raises
        ------
        InvalidArgumentError
            ``exempt`` matches no name.
        """
        names = list(names)
        if self.exempt and not any(map(self.own_hook, names)):
            shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            raise InvalidArgumentError(
                f"expected 'exempt' to match the name of a parameter, but "
                f"{self.exempt!r} matches none of {shown}"
            )


def resolve(
    hook: Any, wrapper: Any = None, options: Mapping[str, Any] | None = None
) -> Hook:
    """The hook that the arguments of ``register`` name.

    Raises
    ------
    InvalidArgumentError
        There is no such hook or wrapper, the hook does not have an option, or
        an option's value has another type or is out of its range.
    UnsupportedError
        A hook of PyTorch's that ddphook does not have.
    """
    given = dict(options or {})
    exempt = _take_exempt(given)
    topology = _take_topology(given)
    hook, wrapper, state = _unpack_frameworks(hook, wrapper, given)
    wrappers = [] if wrapper is None else [_wrapper_name(wrapper)]
    optimizer = None
    if _maker(hook) == "_hook_then_optimizer":
        optimizer = _captured(hook, "optimizer_state")
        hook = _captured(hook, "hook")
    hook, inner = _unwrap(hook)
    wrappers += inner
    if isinstance(hook, (PowerSGDState, PostLocalSGDState)):
        if state is not None:
            raise InvalidArgumentError("expected one state, but got two")
        name = "powersgd" if isinstance(hook, PowerSGDState) else "post_local_sgd"
        state = hook
    else:
        name, implied = _hook_name(hook)
        given = {**implied, **given}
    from_state = _options_of_state(name, state)
    twice = sorted(set(from_state) & set(given))
    if state is not None and twice:
        raise InvalidArgumentError(f"'{twice[0]}' is given by the state as well")
    given = {**from_state, **given}
    if len(wrappers) > 1:
        raise UnsupportedError(
            "expected at most one wrapper, but got " + ", ".join(wrappers)
        )
    checked = {key: _check_option(name, key, value) for key, value in given.items()}
    result = Hook(
        name, tuple(wrappers), checked, *exempt, topology, state, optimizer
    )
    _check_values(result)
    return result


def _check_values(hook: Hook) -> None:
    """Lets the compiler, which knows the range of each option, take the hook."""
    text = _bucket.example_text("subgroup" in hook.options, hook.own_hook_of_exempt)
    pipeline = _bucket.pipeline(dataclasses.replace(hook, exempt="").pipeline())
    try:
        with _compiler.Parsed(text) as parsed:
            parsed.run(f"ddp-pipeline{{{pipeline}}}")
    except CompileError as error:
        raise InvalidArgumentError(f"hook '{hook.name}': {error}") from None


def _take_exempt(given: dict[str, Any]) -> tuple[str, str]:
    """Takes what every hook has out of the options: `exempt`, `exempt_hook`."""
    exempt = given.pop("exempt", None)
    hook = given.pop("exempt_hook", None)
    if hook is not None and exempt is None:
        raise InvalidArgumentError("expected 'exempt' beside 'exempt_hook'")
    if exempt is not None:
        try:
            re.compile(exempt)
        except (TypeError, re.error) as error:
            raise InvalidArgumentError(
                f"expected a regular expression for 'exempt', but got {exempt!r}: "
                f"{error}"
            ) from None
        if not exempt or {"'", '"'} <= set(exempt):
            # It becomes a part of a text.
            raise InvalidArgumentError(
                "expected 'exempt' not to be empty, nor to have quotation marks "
                f"of both kinds, but got {exempt!r}"
            )
    name, implied = _hook_name(hook or "allreduce")
    if implied or name == "post_local_sgd":
        raise UnsupportedError(
            f"expected an 'exempt_hook' without options, but got {hook!r}"
        )
    return exempt or "", name


def _take_topology(given: dict[str, Any]) -> str:
    """Takes `topology`, which every hook has, out of the options."""
    topology = given.pop("topology", "flat")
    if topology not in ("flat", "hierarchical"):
        raise InvalidArgumentError(
            f"expected 'topology' to be 'flat' or 'hierarchical', but got {topology!r}"
        )
    return topology


def _unpack_frameworks(
    hook: Any, wrapper: Any, given: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """Accelerate's and Lightning's names; takes what it uses out of `given`."""
    state = given.pop("state", None)
    if all(hasattr(hook, name) for name in ("comm_hook", "comm_wrapper")):
        # accelerate.DistributedDataParallelKwargs. Enumerations of texts.
        options = getattr(hook, "comm_state_option", None) or {}
        given.update({key: value for key, value in options.items() if key not in given})
        wrapper = wrapper if wrapper is not None else _text_of_enum(hook.comm_wrapper)
        wrapper = None if wrapper == "no" else wrapper
        hook = hook.comm_hook
    for name in ("ddp_comm_hook", "ddp_comm_wrapper", "ddp_comm_state"):
        value = given.pop(name, None)
        if value is None:
            continue
        if name == "ddp_comm_hook":
            hook = value
        elif name == "ddp_comm_wrapper":
            wrapper = value
        else:
            state = value
    if given.pop("model_averaging_period", None) is not None:
        raise UnsupportedError(
            "model_averaging_period is not of the hook; use "
            "ddphook.torch.PeriodicModelAverager"
        )
    if isinstance(hook, enum.Enum) and not isinstance(hook, DDPCommHookType):
        hook = _text_of_enum(hook)
    if isinstance(state, dist.ProcessGroup):
        state = None  # What PyTorch's simple hooks take; DDP has its own.
    return hook, wrapper, state


def _text_of_enum(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _unwrap(hook: Any) -> tuple[Any, list[str]]:
    """Takes PyTorch's wrappers off a function."""
    wrappers = []
    while (name := _maker(hook)) in _WRAPPERS:
        wrappers.append(_WRAPPERS[name])
        hook = _captured(hook, "hook")
    return hook, wrappers


def _maker(hook: Any) -> str:
    """The name of the function that made a hook, or of the hook itself."""
    name: str = getattr(hook, "__qualname__", "")
    return name.partition(".")[0]


def _captured(function: Any, name: str) -> Any:
    """What a function has captured under this name."""
    number = function.__code__.co_freevars.index(name)
    return function.__closure__[number].cell_contents


def _wrapper_name(wrapper: Any) -> str:
    name = getattr(wrapper, "__name__", wrapper)
    if name not in _WRAPPERS:
        raise InvalidArgumentError(
            f"expected the wrapper fp16 or bf16, but got {wrapper!r}"
        )
    return _WRAPPERS[name]


def _hook_name(hook: Any) -> tuple[str, dict[str, Any]]:
    """A name of ``HOOKS``, and options that the name implies."""
    implied: dict[str, Any] = {}
    if isinstance(hook, dist.BuiltinCommHookType):
        hook = hook.name.lower()
    if isinstance(hook, DDPCommHookType):
        arguments = hook.value.keywords
        hook = arguments["comm_hook"]
        options = HOOKS["powersgd"].keys()
        implied = {key: arguments[key] for key in arguments.keys() & options}
    if isinstance(hook, functools.partial):
        raise InvalidArgumentError("expected a hook, but got a functools.partial")
    name = getattr(hook, "__name__", hook)
    if callable(hook) and not getattr(hook, "__module__", "").startswith(
        "torch.distributed.algorithms.ddp_comm_hooks"
    ):
        raise UnsupportedError(
            f"expected a hook of PyTorch's, but got the function '{name}', which "
            "cannot be compiled"
        )
    name = _ALIASES.get(name, name)
    if not isinstance(name, str) or name not in HOOKS:
        near = difflib.get_close_matches(str(name), [*HOOKS, *_ALIASES], 1)
        hint = f", did you mean '{near[0]}'?" if near else ""
        raise InvalidArgumentError(
            f"expected one of {', '.join(HOOKS)}, but got {name!r}{hint}"
        )
    return name, implied


def _options_of_state(name: str, state: Any) -> dict[str, Any]:
    """The options that a state object of PyTorch's carries."""
    if state is None:
        return {}
    kinds = {
        PowerSGDState: ("powersgd", "batched_powersgd"),
        PostLocalSGDState: ("post_local_sgd",),
    }
    if name not in kinds.get(type(state), ()):
        raise InvalidArgumentError(
            f"expected no state of the type {type(state).__name__} for the hook "
            f"'{name}'"
        )
    options = {
        key: getattr(state, key) for key in HOOKS[name] if hasattr(state, key)
    }
    if options.get("subgroup", True) is None:
        del options["subgroup"]
    return options


def _check_option(hook: str, name: str, value: Any) -> Any:
    types = HOOKS[hook]
    if name not in types:
        near = difflib.get_close_matches(name, types, 1)
        hint = f", did you mean '{near[0]}'?" if near else ""
        known = ", ".join(types) or "none"
        raise InvalidArgumentError(
            f"the hook '{hook}' has no option '{name}'{hint} (it has: {known})"
        )
    expected = types[name]
    is_bool = isinstance(value, bool)
    if expected is float and isinstance(value, int) and not is_bool:
        return value
    if not isinstance(value, expected) or (is_bool and expected is not bool):
        raise InvalidArgumentError(
            f"expected {expected.__name__} for '{name}', but got {value!r}"
        )
    if isinstance(value, torch.dtype) and value not in _TYPE_NAMES:
        known = ", ".join(map(str, _TYPE_NAMES))
        raise InvalidArgumentError(
            f"expected one of {known} for '{name}', but got {value}"
        )
    if isinstance(value, str) and not value.isidentifier():
        # It becomes a part of a text.
        raise InvalidArgumentError(
            f"expected a word for '{name}', but got {value!r}"
        )
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, torch.dtype):
        return _TYPE_NAMES[value]
    if isinstance(value, dist.ProcessGroup):
        return "@near"
    return str(value)
