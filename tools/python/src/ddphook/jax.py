# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compressed gradients in JAX, on whatever XLA runs on.

``compress`` replaces ``jax.shard_map`` around a training step. JAX lowers the step,
ddphook's compiler adds a hook to its reductions in this process, and JAX runs the
resulting StableHLO like any exported function.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.interpreters import mlir
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from ddphook import _rate, _runtime, compiler
from ddphook._errors import CompileError, InvalidArgumentError, UnsupportedError
from ddphook._generated_hooks import HookName
from ddphook._typed_hook import TypedHook, Wrap, exempt_option, take_apart

__all__ = ["CompressedStep", "compress"]

State = dict[str, jax.Array]


def compress(
    step: Callable[..., Any],
    hook: HookName | TypedHook | Wrap = "allreduce",
    *,
    mesh: Mesh,
    in_specs: Any,
    out_specs: Any,
    axis: str | Sequence[str] | None = None,
    wrapper: Literal["fp16", "bf16"] | None = None,
    exempt: str | None = None,
    exempt_hook: HookName = "allreduce",
    bucket_cap_mb: float | None = None,
    check_vma: bool = True,
    donate: bool = True,
    keep_others: bool = False,
    allow_repeated: bool = False,
    **options: Any,
) -> CompressedStep:
    """Makes a training step send compressed gradients.

    Parameters
    ----------
    step
        The function that ``jax.shard_map`` would take: the step of one device, which
        sums or averages gradients with ``jax.lax.psum`` or ``pmean``, or leaves that
        to ``shard_map``. Scalars, such as the loss, are reduced exactly.
    hook
        A hook with its options, such as ``ddphook.PowerSGD(rank=2)``, or its name:
        ``"allreduce"``, ``"fp16"``, ``"bf16"``, ``"noop"``, ``"powersgd"``,
        ``"batched_powersgd"`` or ``"allreduce_and_upcast"``.
    mesh, in_specs, out_specs, check_vma
        As for ``jax.shard_map``.
    axis
        The axes of the mesh over which the hook reduces gradients; reductions over
        other axes are exact. All axes by default.
    wrapper
        ``"fp16"`` or ``"bf16"``: run the hook in that type.
    exempt
        A regular expression: reductions whose names it matches use ``exempt_hook``.
        Names are those of results, such as ``dense.kernel``.
    exempt_hook
        The hook of exempt reductions, which are exact by default.
    bucket_cap_mb
        The size of a bucket of gradients in MiB; 25 by default.
    donate
        Whether a call may overwrite the state that it takes.
    keep_others
        Whether the step may have other collectives, such as ``jax.lax.pmax``,
        ``all_gather`` and ``axis_index``. They stay unchanged, as do sums of
        integers.
    allow_repeated
        Whether the step may reduce a value twice over the same devices.
    **options
        The hook's options, by PyTorch's names: ``matrix_approximation_rank``,
        ``start_powerSGD_iter``, … PowerSGD's ``matrix_view`` is ``"fitted"``
        by default, which suits JAX's kernels; PyTorch's is ``"first"``.

    Returns
    -------
    CompressedStep
        ``init(*args)`` returns the first state; ``step(state, *args)`` returns the
        step's results and the next state.

    Raises
    ------
    InvalidArgumentError
        A name or a value is not valid for an option.
    """
    name, wrapper, options = take_apart(hook, wrapper, options)
    if name == "powersgd":
        options.setdefault("matrix_view", "fitted")
    if exempt is not None:
        options["exempt_hook"] = exempt_hook
    pipeline = _pipeline(name, wrapper, bucket_cap_mb, options)
    if exempt is not None:
        pipeline += f" {exempt_option(exempt)}"
    axes = [axis] if isinstance(axis, str) else list(axis or ())
    for known in axes:
        if known not in mesh.axis_names:
            raise InvalidArgumentError(
                f"expected axis to be of {mesh.axis_names}, but got {known!r}"
            )
    sharded = jax.shard_map(
        step, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma
    )
    imports = {
        "gradient-axes": ",".join(axes),
        "keep-others": "true" if keep_others else "",
        "allow-repeated": "true" if allow_repeated else "",
    }
    texts = [f"{key}={value}" for key, value in imports.items() if value]
    passes = f"ddp-import-stablehlo{{{' '.join(texts)}}}"
    return CompressedStep(step, sharded, mesh, in_specs, out_specs, passes, pipeline, donate)


class CompressedStep:
    """A training step with a hook; made by `compress`.

    The first call with arguments of certain shapes compiles it for them. It may be
    called within ``jax.jit``. It has no derivative: a hook reduces gradients, which
    the step itself takes.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        sharded: Callable[..., Any],
        mesh: Mesh,
        in_specs: Any,
        out_specs: Any,
        passes: str,
        pipeline: str,
        donate: bool,
    ) -> None:
        self._step = step
        self._sharded = sharded
        self._mesh = mesh
        self._specs = (in_specs, out_specs)
        self._shardings = None
        if AxisType.Explicit not in mesh.axis_types:
            self._shardings = jax.tree.map(
                lambda spec: NamedSharding(mesh, spec),
                in_specs,
                is_leaf=lambda spec: isinstance(spec, PartitionSpec),
            )
        self._passes = passes
        self._pipeline = pipeline
        self._donate = donate
        self._programs: dict[Any, _Program] = {}
        self._is_warned = False

    def init(self, *args: Any) -> State:
        """Returns the state before the first step, by name.

        A state that is the same on all devices is one array. A state that differs
        between devices has a leading dimension, split over the mesh's devices.

        Parameters
        ----------
        *args
            Arguments of the step, or ``jax.ShapeDtypeStruct``\\ s of them.
        """
        return {
            name: layout.first() for name, layout in self._program(args).states.items()
        }

    def __call__(self, state: Mapping[str, Any], *args: Any) -> tuple[Any, State]:
        """Runs a step.

        Parameters
        ----------
        state
            The result of `init` or of the step before, or arrays of the same names,
            shapes and types. A donated state cannot be used again.
        *args
            Arguments of the step.

        Returns
        -------
        tuple
            The step's results, and the next state.

        Raises
        ------
        InvalidArgumentError
            The state belongs to another step.
        """
        program = self._program(args)
        for name, layout in program.states.items():
            if name not in state:
                raise InvalidArgumentError(f"expected a state {name!r}")
            layout.check(name, state[name])
        for name in state:
            if name not in program.states:
                raise InvalidArgumentError(f"expected no state {name!r}")
        state = {name: state[name] for name in program.states}
        # If every array already has its sharding, JAX compiles the step only once.
        # With an explicit mesh, shardings are part of the arguments' types.
        if self._shardings and not any(map(_is_traced, jax.tree.leaves((state, args)))):
            state = jax.device_put(state, program.shardings)
            args = jax.device_put(args, self._shardings)
        return program.run(state, args)

    def module(self, *args: Any) -> str:
        """Returns the step for one device as StableHLO, in MLIR's textual form."""
        return self._program(args).text

    def manifest(self, *args: Any) -> dict[str, Any]:
        """Returns the compiler's record of buckets and states (docs/frontends.md)."""
        return self._program(args).manifest

    def _program(self, args: tuple[Any, ...]) -> _Program:
        shapes = jax.tree.map(lambda value: _shape_of(value, self._mesh), args)
        leaves, tree = jax.tree.flatten(shapes)
        key = tree, tuple(leaves)
        if key not in self._programs:
            self._programs[key] = self._compile(shapes)
        return self._programs[key]

    def _compile(self, shapes: tuple[Any, ...]) -> _Program:
        try:
            lowered = export.export(jax.jit(self._sharded, keep_unused=True))(*shapes)
        except ValueError as error:
            if self._is_whole_step(shapes):
                raise InvalidArgumentError(
                    "expected the step of one device, but got one that already uses "
                    "jax.shard_map; compress() adds it"
                ) from error
            raise
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "manifest.json"
            passes = (
                f"{self._passes},ddp-stablehlo-pipeline"
                f"{{{self._pipeline} manifest=\"{file}\"}}"
            )
            try:
                text = compiler.transform_module(lowered.mlir_module_serialized, passes)
            except CompileError as error:
                reason = str(error).replace(
                    "keep-others leaves it unchanged", "keep_others=True leaves it to XLA"
                )
                raise CompileError(
                    f"with {self._pipeline}: {reason}", error.diagnostics
                ) from None
            manifest = json.loads(file.read_text(encoding="utf-8"))
        if not manifest["buckets"] and not manifest["scatters"]:
            raise InvalidArgumentError("expected a step that reduces over the mesh's devices")
        self._warn_of_waste(manifest)
        return _Program(self, lowered, text, manifest)

    def _warn_of_waste(self, manifest: Mapping[str, Any]) -> None:
        """Warns once if the hook applies to no gradient or saves too few bytes."""
        if (reason := _find_waste(self._pipeline, manifest)) and not self._is_warned:
            self._is_warned = True
            warnings.warn(f"ddphook: with {self._pipeline}: {reason}", UserWarning, stacklevel=5)

    def _is_whole_step(self, shapes: tuple[Any, ...]) -> bool:
        """Returns whether the given step already contains ``jax.shard_map``."""
        try:
            program = jax.make_jaxpr(self._step)(*shapes)
        except Exception:  # It needs the mesh's axes, as it should.
            return False
        return "shard_map[" in str(program)


def _draw(seed: int, number: int, draws: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Returns the first value of a state, as the runtime draws it."""
    value = np.empty(sum(draws), dtype)
    sizes = (ctypes.c_int64 * len(draws))(*draws)
    code = ("float16", "bfloat16", "float32", "float64").index(dtype.name)
    draw = _runtime.library().ddphook_draw_normal
    _runtime.check(
        draw(seed, number, sizes, len(draws), value.ctypes.data_as(ctypes.c_void_p), code)
    )
    return value


@dataclasses.dataclass(frozen=True)
class _Layout:
    """A state on a mesh: its record in the manifest, and its position among the results."""

    mesh: Mesh
    record: Mapping[str, Any]
    result: int

    @property
    def is_replicated(self) -> bool:
        return self.record["placement"] == "replicated"

    @property
    def local(self) -> jax.ShapeDtypeStruct:
        """The state on one device, as the compiled function takes it."""
        return jax.ShapeDtypeStruct(
            tuple(self.record["shape"]), jnp.dtype(self.record["dtype"])
        )

    @property
    def shape(self) -> tuple[int, ...]:
        own = self.local.shape
        return own if self.is_replicated else (self.mesh.size, *own)

    @property
    def spec(self) -> PartitionSpec:
        axes = () if self.is_replicated else (tuple(self.mesh.axis_names),)
        return PartitionSpec(*axes)

    def first(self) -> jax.Array:
        init, dtype = self.record["init"], self.local.dtype
        if init["kind"] == "zero":
            value = np.zeros(self.local.shape, dtype)
        else:
            value = _draw(init["seed"], init["number"], init["draws"], dtype)
        value = np.broadcast_to(value.reshape(self.local.shape), self.shape)
        sharding = NamedSharding(self.mesh, self.spec)
        return jax.make_array_from_callback(value.shape, sharding, value.__getitem__)

    def check(self, name: str, value: Any) -> None:
        # XLA does not handle a deleted array well.
        if isinstance(value, jax.Array) and not _is_traced(value) and value.is_deleted():
            raise InvalidArgumentError(f"expected a live state, but {name!r} was donated")
        got = _shape_of(value)
        if (got.shape, got.dtype) != (self.shape, self.local.dtype):
            raise InvalidArgumentError(
                f"expected state {name!r} of {self.local.dtype} with the shape "
                f"{self.shape}, but got one of {got.dtype} with {got.shape}"
            )


class _Program:
    """A step for arguments of certain shapes."""

    def __init__(
        self,
        step: CompressedStep,
        lowered: export.Exported,
        text: str,
        manifest: dict[str, Any],
    ) -> None:
        self.text, self.manifest, mesh = text, manifest, step._mesh
        records = {record["name"]: record for record in manifest["states"]}
        self.states = {
            place["name"]: _Layout(mesh, records[place["name"]], place["result"])
            for function in manifest["functions"]
            if function["name"] == "main"
            for place in function["states"]
        }
        call = self._load(lowered)
        count = len(lowered.out_avals)

        def rank(state: State, args: tuple[Any, ...]) -> tuple[Any, State]:
            kept = [
                state[name] if layout.is_replicated else state[name][0]
                for name, layout in self.states.items()
            ]
            done = call(*jax.tree.leaves(args), *kept)
            result = jax.tree.unflatten(lowered.out_tree, done[:count])
            return result, {
                name: done[layout.result] if layout.is_replicated else done[layout.result][None]
                for name, layout in self.states.items()
            }

        in_specs, out_specs = step._specs
        state_specs = {name: layout.spec for name, layout in self.states.items()}
        self.shardings = {k: NamedSharding(mesh, spec) for k, spec in state_specs.items()}
        self.run = jax.jit(
            jax.shard_map(
                rank,
                mesh=mesh,
                in_specs=(state_specs, in_specs),
                out_specs=(out_specs, state_specs),
                check_vma=False,
            ),
            donate_argnums=(0,) if step._donate else (),
        )

    def _load(self, lowered: export.Exported) -> Callable[..., Any]:
        """Returns the compiled function in a form that JAX can call on each device: an
        exported function with the same signature, whose module is replaced."""
        with mlir.make_ir_context():
            module = ir.Module.parse(self.text)
            # MLIR's bindings do not declare the types of attributes.
            attributes: list[Any] = [op.attributes for op in module.body]
            [kinds] = [
                known["function_type"].value
                for known in attributes
                if "function_type" in known and known["sym_name"].value == "main"
            ]
            shapes = [
                [tuple(ir.RankedTensorType(kind).shape) for kind in side]
                for side in (kinds.inputs, kinds.results)
            ]
        states: list[Any] = [layout.local for layout in self.states.values()]
        avals = [*lowered.in_avals, *states], [*lowered.out_avals, *states]
        inputs, results = (
            [jax.ShapeDtypeStruct(shape, aval.dtype) for shape, aval in zip(*side)]
            for side in zip(shapes, avals)
        )

        def placeholder(*_: Any) -> list[jax.Array]:
            return [jnp.zeros(aval.shape, aval.dtype) for aval in results]

        exported = export.export(
            jax.jit(placeholder, keep_unused=True), platforms=lowered.platforms
        )(*inputs)
        code = stablehlo.serialize_portable_artifact_str(
            self.text, stablehlo.get_current_version()
        )
        exported = dataclasses.replace(exported, mlir_module_serialized=code)
        run = jax.custom_batching.custom_vmap(exported.call)
        run.def_vmap(
            _refusal("expected no jax.vmap around a step with a hook; put it into the step")
        )
        call = jax.custom_jvp(run)
        # The placeholder's derivative would be zero.
        call.defjvp(
            _refusal("expected no derivative of a step with a hook; take gradients in the step")
        )
        return call


def _refusal(message: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any) -> NoReturn:
        raise UnsupportedError(message)

    return refuse


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


def _shape_of(value: Any, mesh: Mesh | None = None) -> jax.ShapeDtypeStruct:
    """Returns a value's type as JAX has it; for an explicit mesh, it includes the sharding."""
    dtype = value.dtype if hasattr(value, "dtype") else jnp.result_type(value)
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        raise UnsupportedError(
            f"expected arrays of numbers, but got one of {dtype}; pass a key as "
            "jax.random.key_data(key)"
        )
    sharding = None
    if mesh is not None and AxisType.Explicit in mesh.axis_types:
        sharding = getattr(value, "sharding", None)
    # Python's numbers adopt the type of their operands.
    weak_type = getattr(value, "weak_type", type(value) in (int, float, complex))
    return jax.ShapeDtypeStruct(
        np.shape(value),
        jax.dtypes.canonicalize_dtype(dtype),
        sharding=sharding,
        weak_type=weak_type,
    )


def _pipeline(
    hook: str,
    wrapper: str | None,
    bucket_cap_mb: float | None,
    options: Mapping[str, Any],
) -> str:
    """Returns the options of ``ddp-stablehlo-pipeline``."""
    parts = {"hook": hook, **options, "wrapper": wrapper, "bucket_cap_mb": bucket_cap_mb}
    texts = []
    for name, value in parts.items():
        if value is None and name in ("wrapper", "bucket_cap_mb"):
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, (type, np.dtype)):
            text = str(jnp.dtype(value))
        if not re.fullmatch(r"[\w.+-]+", text):
            raise InvalidArgumentError(
                f"expected {name} to be a name or a number, but got {value!r}"
            )
        texts.append(f"{name}={text}")
    return " ".join(texts)


def _find_waste(pipeline: str, manifest: Mapping[str, Any]) -> str | None:
    """Returns why the hook does nothing, or too little, for the step."""
    buckets, scatters = manifest["buckets"], manifest["scatters"]
    if not _rate.is_meant_to_compress(pipeline):
        # A bucket of scalars, such as a loss, has no gradients.
        if scatters or any(b["elements"] > len(b["gradients"]) for b in buckets):
            return None
        return (
            "the step reduces no gradient over the axes of the hook; average gradients "
            "with jax.lax.pmean in the step"
        )
    compressed = [b for b in buckets if b["hook"] != "#ddp.allreduce"]
    compressed += [s for s in scatters if s["wire_dtype"] != s["dtype"]]
    if not compressed:
        return (
            "no reduction of the step has the hook: all are exact, exempt, or "
            "collectives that stay as they are"
        )
    before = sum(r["elements"] * jnp.dtype(r["dtype"]).itemsize for r in compressed)
    return _rate.find_waste(before, sum(r["wire_bytes"] for r in compressed))
