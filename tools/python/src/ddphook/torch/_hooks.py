# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns every way to name a hook into the compiler's options.

A hook is named by ddphook's name or class, by PyTorch's function, enumeration or state,
by Accelerate's keyword arguments or by Lightning's.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

from ddphook import compiler
from ddphook._errors import CompileError, InvalidArgumentError, UnsupportedError
from ddphook._generated_hooks import HookName
from ddphook._typed_hook import TypedHook, Wrap, WrapperName, exempt_option, take_apart
from ddphook.torch import _bucket, _private
from ddphook.torch._bucket import ELEMENT_TYPES

_log = logging.getLogger("ddphook")

# The names of types in IR.
_TYPE_NAMES = ELEMENT_TYPES | {
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2: "f8E5M2",
}
# The types of option values, by their annotations; those of words begin with Literal.
_TYPES: dict[str, type] = {
    "int": int,
    "float": float,
    "bool": bool,
    "DType": torch.dtype,
    "ProcessGroup": dist.ProcessGroup,
}

# The options of each hook, by PyTorch's names, with their types.
HOOKS: dict[str, dict[str, type]] = {
    hook.name: {
        name: _TYPES.get(annotation.removesuffix(" | None"), str)
        for name, annotation in hook.option_types().items()
    }
    for hook in TypedHook.__subclasses__()
}


@runtime_checkable
class AcceleratesHook(Protocol):
    """``accelerate.DistributedDataParallelKwargs``."""

    comm_hook: Any
    comm_wrapper: Any
    comm_state_option: Any


# Every way to name a hook or a wrapper.
AnyHook: TypeAlias = (
    HookName
    | TypedHook
    | Wrap
    | Callable[..., Any]
    | enum.Enum
    | dist.BuiltinCommHookType
    | PowerSGDState
    | PostLocalSGDState
    | AcceleratesHook
)
AnyWrapper: TypeAlias = WrapperName | Callable[..., Any]

# The classes of PyTorch's states, by hook.
STATES: dict[str, type] = {
    "powersgd": PowerSGDState,
    "batched_powersgd": PowerSGDState,
    "post_local_sgd": PostLocalSGDState,
}

# Names of PyTorch's enumeration and Accelerate's, and of PyTorch's functions.
_ALIASES = {
    "no": "allreduce",
    "fp16_compress": "fp16",
    "bf16_compress": "bf16",
    "power_sgd": "powersgd",
    "batched_power_sgd": "batched_powersgd",
}
_ALIASES |= {h.function: h.name for h in TypedHook.__subclasses__() if h.function}
# PyTorch's wrappers, and all names of wrappers.
_MAKERS = {f"{name}_compress_wrapper": name for name in ("fp16", "bf16")}
_WRAPPERS = {name: name for name in get_args(WrapperName)} | _MAKERS


@dataclasses.dataclass(frozen=True)
class Hook:
    """A hook with its options, checked.

    `name` and `exempt_hook` are in ``HOOKS``. Wrappers are listed with the outermost
    first. Options are those that were given, by PyTorch's names; `state` is PyTorch's
    object that they come from, if any. Parameters whose names the regular expression
    `exempt` matches have the hook `exempt_hook`; an empty expression matches none. By
    default, `group` is the model's. `optimizer` was given to PyTorch's
    ``_hook_then_optimizer``. `title` is the name in DDP's logging data: the function's
    if the hook is a function.
    """

    name: str
    wrappers: tuple[str, ...] = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    exempt: str = ""
    exempt_hook: str = "allreduce"
    topology: str = "flat"
    state: Any = dataclasses.field(default=None, compare=False)
    group: dist.ProcessGroup | None = dataclasses.field(default=None, compare=False)
    optimizer: Any = dataclasses.field(default=None, compare=False)
    title: str = dataclasses.field(default="", compare=False)

    def pipeline(self) -> str:
        """Returns the options of ``ddp-pipeline``; equal texts mean equal hooks."""
        parts = [f"hook={self.name}"]
        parts += [f"{key}={_text(value)}" for key, value in sorted(self.options.items())]
        parts += [f"wrapper={wrapper}" for wrapper in self.wrappers]
        if self.exempt:
            parts += [exempt_option(self.exempt), f"exempt-hook={self.exempt_hook}"]
        if self.topology != "flat":
            parts += [f"topology={self.topology}"]
        return " ".join(parts)

    def for_modules(self) -> str:
        """Returns the options for modules whose text has the hooks of exempt parameters."""
        return _bucket.pipeline(dataclasses.replace(self, exempt="").pipeline())

    @property
    def own_hook_of_exempt(self) -> str | None:
        """The hook of all exempt parameters as an attribute, or None."""
        return f"#ddp.{self.exempt_hook}" if self.exempt else None

    def own_hook(self, name: str) -> str | None:
        """Returns the hook of an exempt parameter as an attribute, or None."""
        is_exempt = self.exempt and re.search(self.exempt, name)
        return self.own_hook_of_exempt if is_exempt else None

    def check_names(self, names: Iterable[str]) -> None:
        """Checks that `exempt`, if given, matches the name of a parameter."""
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
    """Returns the hook that the arguments of ``register`` name.

    Raises InvalidArgumentError for an unknown hook, wrapper or option, or an option's
    value of another type or out of range, and UnsupportedError for a hook of PyTorch's
    that ddphook does not have.
    """
    given = dict(options or {})
    exempt = _take_exempt(given)
    topology = given.pop("topology", "flat")
    if topology not in ("flat", "hierarchical"):
        raise InvalidArgumentError(
            f"expected 'topology' to be 'flat' or 'hierarchical', but got {topology!r}"
        )
    hook, wrapper, state = _unpack_frameworks(hook, wrapper, given)
    title = _title(hook, wrapper)
    typed = hook
    hook, wrapper, given = take_apart(hook, wrapper, given)
    wrappers = [] if wrapper is None else [_wrapper_name(wrapper)]
    optimizer = None
    if _maker(hook) == _private.hook_then_optimizer.__name__:
        captured = inspect.getclosurevars(hook).nonlocals
        hook, optimizer = captured["hook"], captured["optimizer_state"]
    while (maker := _maker(hook)) in _MAKERS:
        wrappers.append(_MAKERS[maker])
        hook = inspect.getclosurevars(hook).nonlocals["hook"]
    if isinstance(hook, (PowerSGDState, PostLocalSGDState)):
        name = "powersgd" if isinstance(hook, PowerSGDState) else "post_local_sgd"
        state = _only("state", hook, state)
    else:
        name, implied = _hook_name(hook)
        given = {**implied, **given}
    state, group = _divide_state(name, state)
    if state is not None and isinstance(typed, (TypedHook, Wrap)):
        raise InvalidArgumentError(f"expected no state beside {typed!r}, which has options")
    given = _merge("the state", _options_of_state(name, state), given)
    if len(wrappers) > 1:
        raise UnsupportedError(
            "expected at most one wrapper, but got " + ", ".join(wrappers)
        )
    checked = {key: _check_option(name, key, value) for key, value in given.items()}
    result = Hook(
        name, tuple(wrappers), checked, *exempt, topology, state, group, optimizer,
        title or name,
    )
    _check_values(result)
    return result


def resolve_for_graph(
    hook: Any, wrapper: Any = None, options: Mapping[str, Any] | None = None
) -> Hook:
    """Returns the hook for reductions that are found in a graph; see `resolve`.

    Refuses a hook that does more than reduce, or whose state a graph cannot use.
    """
    resolved = resolve(hook, wrapper, options)
    check_reduces(
        resolved,
        local="post_local_sgd also averages parameters, which a graph's reductions do not "
        "cover; use ddphook.torch.register",
        optimizer="an optimizer in the hook needs ddphook.torch.register; a compiled step "
        "runs its own optimizer",
        group="each reduction of a graph names its own",
        advice=", or use ddphook.torch.register",
    )
    return resolved


def check_reduces(
    hook: Hook, *, local: str, optimizer: str, group: str, advice: str = ""
) -> None:
    """Refuses a hook that does more than reduce, with the text for what it does."""
    if hook.name == "post_local_sgd":
        raise UnsupportedError(local)
    if hook.optimizer is not None:
        raise UnsupportedError(optimizer)
    if hook.group is not None:
        raise UnsupportedError(f"expected no process group in the hook's state: {group}")
    state = hook.state
    if state is not None and (state.iter > 0 or _has_own_seed(state)):
        raise UnsupportedError(
            "expected a state that has not been used, with the random seed 0; give its "
            f"options by name{advice}"
        )


def resolve_for_group(
    hook: Any,
    wrapper: Any = None,
    options: Mapping[str, Any] | None = None,
    user: str = "a process group",
    advice: str = "; use ddphook.torch.register",
) -> Hook:
    """Returns the hook for all that `user` reduces or gathers; see `resolve`.

    Refuses a hook that needs to know which gradient that is.
    """
    resolved = resolve(hook, wrapper, options)
    states = states_of(resolved)
    for what, is_given in {
        "an optimizer in the hook": resolved.optimizer is not None,
        "a process group in the hook's state": resolved.group is not None,
        "'exempt', since its tensors have no names": resolved.exempt,
        f"'{resolved.pipeline()}', which keeps {', '.join(states)} of each gradient": states,
    }.items():
        if is_given:
            raise UnsupportedError(f"{user} cannot have {what}{advice}")
    return resolved


def states_of(hook: Hook) -> list[str]:
    """Returns the roles of the states that a hook keeps of each gradient."""
    return sorted(set(re.findall(r'role = "([^"]+)"', _check_values(hook))))


@functools.cache
def check_scatters(pipeline: str, advice: str = "", own_hook: str | None = None) -> str:
    """Refuses a hook, as options of a pipeline, that cannot reduce parts of a tensor, or
    the own hook of some tensors that cannot; returns a compiled example.

    `advice` ends the message.
    """
    if "topology=" in pipeline:
        raise UnsupportedError(f"expected topology='flat' for a reduce-scatter{advice}")
    whole = _bucket.Scattered(0, (("a",), ("b",)), (1 << 11,) * 2, 2, torch.float32, "sum")
    groups = _bucket.with_group_size(_bucket.WHOLE_GROUP, 2)
    text = whole.text(groups, lambda name: own_hook if name == "b" else None)
    try:
        return compiler.transform_module(text, f"ddp-pipeline{{{pipeline}}}")
    except CompileError as error:
        raise UnsupportedError(
            f"a reduce-scatter cannot have this hook: {error}{advice}"
        ) from None


def _check_values(hook: Hook) -> str:
    """Runs the compiler, which knows the range of each option, on an example; returns
    the compiled example."""
    text = _bucket.example_text("subgroup" in hook.options, hook.own_hook_of_exempt)
    try:
        return compiler.transform_module(text, f"ddp-pipeline{{{hook.for_modules()}}}")
    except CompileError as error:
        raise InvalidArgumentError(f"hook '{hook.name}': {error}") from None


def _take_exempt(given: dict[str, Any]) -> tuple[str, str]:
    """Removes `exempt` and `exempt_hook`, which every hook has, from the options."""
    exempt = given.pop("exempt", None)
    hook = given.pop("exempt_hook", None)
    if hook is not None and exempt is None:
        raise InvalidArgumentError("expected 'exempt' together with 'exempt_hook'")
    if exempt is not None:
        exempt_option(exempt)  # Checks it.
    name, implied = _hook_name(hook or "allreduce")
    if implied or name == "post_local_sgd":
        raise UnsupportedError(
            f"expected an 'exempt_hook' without options, but got {hook!r}"
        )
    return exempt or "", name


def _unpack_frameworks(
    hook: Any, wrapper: Any, given: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """Returns hook, wrapper and state by any framework's names; removes them from `given`."""
    if isinstance(hook, AcceleratesHook):
        options = dict(hook.comm_state_option or {})
        given.update(_merge("comm_state_option", options, given))
        inner = _text_of_enum(hook.comm_wrapper)
        hook = _text_of_enum(hook.comm_hook)
        if inner != "no" and hook == "no":
            _log.warning(
                "comm_wrapper=%s has no effect without a comm_hook, as in Accelerate", inner
            )
        elif inner != "no":
            wrapper = _only("wrapper", wrapper, inner)
    hook = _only("hook", hook, given.pop("ddp_comm_hook", None))
    wrapper = _only("wrapper", wrapper, given.pop("ddp_comm_wrapper", None))
    state = _only("state", given.pop("state", None), given.pop("ddp_comm_state", None))
    if given.pop("model_averaging_period", None) is not None:
        raise UnsupportedError(
            "model_averaging_period is not an option of a hook; use "
            "ddphook.torch.PeriodicModelAverager"
        )
    if isinstance(hook, enum.Enum) and not isinstance(hook, DDPCommHookType):
        hook = _text_of_enum(hook)
    return hook, wrapper, state


def _only(what: str, *values: Any) -> Any:
    """Returns the only value that is not None, if there is one."""
    given = [value for value in values if value is not None]
    if len(given) > 1:
        raise InvalidArgumentError(f"expected one {what}, but got two")
    return given[0] if given else None


def _merge(
    whose: str, options: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns both together; an option may not be in both."""
    if twice := sorted(set(options) & set(given)):
        raise InvalidArgumentError(f"'{twice[0]}' is also given by {whose}")
    return {**options, **given}


def _title(hook: Any, wrapper: Any) -> str:
    """Returns PyTorch's name of its own hooks, or an empty one for other hooks."""
    if isinstance(hook, dist.BuiltinCommHookType):
        return str(hook)
    if callable(hook) and callable(wrapper):
        hook = wrapper(hook)
    return getattr(hook, "__qualname__", "")


def _divide_state(name: str, state: Any) -> tuple[Any, dist.ProcessGroup | None]:
    """Returns a hook's state, or None if it is a process group, and the process group."""
    group = getattr(state, "process_group", None)
    if isinstance(state, dist.ProcessGroup) or state is dist.GroupMember.NON_GROUP_MEMBER:
        state, group = None, state
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgumentError(
            f"expected a process group with this rank in the state of the hook '{name}'"
        )
    return state, group


def _text_of_enum(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _maker(hook: Any) -> str:
    """Returns the name of the function that made a hook, or of the hook itself."""
    return getattr(hook, "__qualname__", "").partition(".")[0]


def _wrapper_name(wrapper: Any) -> str:
    is_text = isinstance(wrapper, str)
    found = _WRAPPERS.get(wrapper) if is_text else _MAKERS.get(_maker(wrapper))
    if found is None:
        names = ", ".join(get_args(WrapperName))
        raise InvalidArgumentError(f"expected the wrapper {names}, but got {wrapper!r}")
    return found


def _hook_name(hook: Any) -> tuple[str, dict[str, Any]]:
    """Returns a name of ``HOOKS``, and the options that it implies."""
    hook, _, implied = take_apart(hook, None, {})
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
    if isinstance(name, str):
        name = _ALIASES.get(name, name)
    if not isinstance(name, str) or name not in HOOKS:
        near = difflib.get_close_matches(str(name), [*HOOKS, *_ALIASES], 1)
        hint = f", did you mean '{near[0]}'?" if near else ""
        raise InvalidArgumentError(
            f"expected one of {', '.join(HOOKS)}, but got {name!r}{hint}"
        )
    return name, implied


def _options_of_state(name: str, state: Any) -> dict[str, Any]:
    """Returns the options that a state object of PyTorch's carries."""
    if state is None:
        return {}
    if not isinstance(state, STATES.get(name, ())):
        expected = f"a {STATES[name].__name__}" if name in STATES else "a process group"
        raise InvalidArgumentError(
            f"expected {expected} as the state of the hook '{name}', but got "
            f"{type(state).__name__}"
        )
    options = {key: getattr(state, key) for key in HOOKS[name] if hasattr(state, key)}
    if options.get("subgroup", True) is None:
        del options["subgroup"]
    return options


def _has_own_seed(state: Any) -> bool:
    """Returns true if PyTorch's state draws other random numbers than with seed 0."""
    if not isinstance(state, PowerSGDState):
        return False
    first: Any = np.random.RandomState(0).get_state()
    own: Any = state.rng.get_state()
    return not np.array_equal(own[1], first[1])


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
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # A scalar of NumPy or PyTorch.
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
        # The value becomes part of a string of options.
        raise InvalidArgumentError(f"expected a word for '{name}', but got {value!r}")
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, torch.dtype):
        return _TYPE_NAMES[value]
    if isinstance(value, dist.ProcessGroup):
        return "@near"
    return str(value)
