# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hooks as classes, and their names.

Written by tools/generate-docs.sh from the definitions of the hooks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Literal

from ddphook._typed_hook import DType, ProcessGroup, TypedHook

HookName = Literal[
    "allreduce",
    "fp16",
    "bf16",
    "noop",
    "powersgd",
    "batched_powersgd",
    "post_local_sgd",
    "allreduce_and_upcast",
    "int8",
    "int4",
    "fp8",
    "quantization_pertensor",
    "quantization_perchannel",
    "topk",
]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AllReduce(TypedHook):
    """No compression: all-reduce in the bucket's own type.

    As a string, ``"allreduce"``; in PyTorch, ``allreduce_hook``.
    """

    name: ClassVar[str] = "allreduce"
    function: ClassVar[str] = "allreduce_hook"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class FP16(TypedHook):
    """Cast to f16, all-reduce, cast back.

    As a string, ``"fp16"``; in PyTorch, ``fp16_compress_hook``.

    Parameters
    ----------
    accumulate
        Type in which ranks add: f32, or by default the wire type.
    """

    name: ClassVar[str] = "fp16"
    function: ClassVar[str] = "fp16_compress_hook"
    accumulate: DType | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class BF16(TypedHook):
    """Cast to bf16, all-reduce, cast back.

    As a string, ``"bf16"``; in PyTorch, ``bf16_compress_hook``.

    Parameters
    ----------
    accumulate
        Type in which ranks add: f32, or by default the wire type.
    """

    name: ClassVar[str] = "bf16"
    function: ClassVar[str] = "bf16_compress_hook"
    accumulate: DType | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Noop(TypedHook):
    """No communication: every rank keeps its own gradient.

    As a string, ``"noop"``; in PyTorch, ``noop_hook``.
    """

    name: ClassVar[str] = "noop"
    function: ClassVar[str] = "noop_hook"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class PowerSGD(TypedHook):
    """Low-rank approximation of every matrix, with error feedback.

    As a string, ``"powersgd"``; in PyTorch, ``powerSGD_hook``, all its options.

    Parameters
    ----------
    rank
        Columns of the factors. ``matrix_approximation_rank`` in strings and in PyTorch.
    start_powerSGD_iter
        First iteration that is compressed.
    stop_powerSGD_iter
        First iteration that is no longer compressed; below 0: compression never stops.
    min_compression_rate
        Compress a matrix only if its factors are smaller by more than this ratio.
    use_error_feedback
        Add what compression lost to the next gradient.
    warm_start
        Start each step with the previous step's Q.
    orthogonalization_epsilon
        Number added to norms before the division.
    random_seed
        Seed of the first Q, or of stochastic rounding.
    compression_stats_logging_frequency
        Iterations between reports of the compression rate.
    batch_tensors_with_same_shape
        Draw the first Q of all matrices of one shape together.
    local_error_feedback
        Feed back what compression lost on this rank, not the difference from the mean;
        by default, ``numerics`` decides.
    keep_zero_columns
        Matrices of zeros give zeros instead of NaN.
    independent_columns
        Columns that depend on others become orthonormal instead of rounding errors; by
        default, ``numerics`` decides.
    skip_nonfinite
        A step with a non-finite result does not change error and Q; by default,
        ``numerics`` decides.
    fp32_error
        Under a wrapper: use 16 bits only on the wire; by default, ``numerics`` decides.
    alternate
        Reduce P and Q alternately, one of them in each step.
    matrix_view
        How a gradient becomes a matrix: first dimension by all others, or the split
        that compresses best; by default first, but fitted in JAX.
    numerics
        ``eager``: as PyTorch computes; ``improved``: better than that.
    """

    name: ClassVar[str] = "powersgd"
    function: ClassVar[str] = "powerSGD_hook"
    _option_names: ClassVar[Mapping[str, str]] = {"rank": "matrix_approximation_rank"}
    rank: int = 1
    start_powerSGD_iter: int = 1000
    stop_powerSGD_iter: int = -1
    min_compression_rate: float = 2
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0
    random_seed: int = 0
    compression_stats_logging_frequency: int = 10000
    batch_tensors_with_same_shape: bool = False
    local_error_feedback: bool | None = None
    keep_zero_columns: bool = True
    independent_columns: bool | None = None
    skip_nonfinite: bool | None = None
    fp32_error: bool | None = None
    alternate: bool = False
    matrix_view: Literal["first", "fitted"] | None = None
    numerics: Literal["eager", "improved"] = "eager"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class BatchedPowerSGD(TypedHook):
    """Low-rank approximation of a bucket as one square matrix.

    As a string, ``"batched_powersgd"``; in PyTorch, ``batched_powerSGD_hook``.

    Parameters
    ----------
    rank
        Columns of the factors. ``matrix_approximation_rank`` in strings and in PyTorch.
    start_powerSGD_iter
        First iteration that is compressed.
    stop_powerSGD_iter
        First iteration that is no longer compressed; below 0: compression never stops.
    min_compression_rate
        Compress a matrix only if its factors are smaller by more than this ratio.
    use_error_feedback
        Add what compression lost to the next gradient.
    warm_start
        Start each step with the previous step's Q.
    orthogonalization_epsilon
        Number added to norms before the division.
    random_seed
        Seed of the first Q, or of stochastic rounding.
    compression_stats_logging_frequency
        Iterations between reports of the compression rate.
    batch_tensors_with_same_shape
        Draw the first Q of all matrices of one shape together.
    local_error_feedback
        Feed back what compression lost on this rank, not the difference from the mean;
        by default, ``numerics`` decides.
    keep_zero_columns
        Matrices of zeros give zeros instead of NaN.
    independent_columns
        Columns that depend on others become orthonormal instead of rounding errors; by
        default, ``numerics`` decides.
    skip_nonfinite
        A step with a non-finite result does not change error and Q; by default,
        ``numerics`` decides.
    fp32_error
        Under a wrapper: use 16 bits only on the wire; by default, ``numerics`` decides.
    alternate
        Reduce P and Q alternately, one of them in each step.
    matrix_view
        How a gradient becomes a matrix: first dimension by all others, or the split
        that compresses best; by default first, but fitted in JAX.
    numerics
        ``eager``: as PyTorch computes; ``improved``: better than that.
    """

    name: ClassVar[str] = "batched_powersgd"
    function: ClassVar[str] = "batched_powerSGD_hook"
    _option_names: ClassVar[Mapping[str, str]] = {"rank": "matrix_approximation_rank"}
    rank: int = 1
    start_powerSGD_iter: int = 1000
    stop_powerSGD_iter: int = -1
    min_compression_rate: float = 2
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0
    random_seed: int = 0
    compression_stats_logging_frequency: int = 10000
    batch_tensors_with_same_shape: bool = False
    local_error_feedback: bool | None = None
    keep_zero_columns: bool = True
    independent_columns: bool | None = None
    skip_nonfinite: bool | None = None
    fp32_error: bool | None = None
    alternate: bool = False
    matrix_view: Literal["first", "fitted"] | None = None
    numerics: Literal["eager", "improved"] = "eager"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class PostLocalSGD(TypedHook):
    """All-reduce over the whole group at first, later over a subgroup.

    As a string, ``"post_local_sgd"``; in PyTorch, ``post_localSGD_hook``.

    Parameters
    ----------
    start_localSGD_iter
        First iteration that is local.
    subgroup
        Process group of nearby ranks (default: the ranks of a node).
    post_local_gradient_allreduce
        All-reduce among nearby ranks.
    """

    name: ClassVar[str] = "post_local_sgd"
    function: ClassVar[str] = "post_localSGD_hook"
    start_localSGD_iter: int = 100
    subgroup: ProcessGroup | None = None
    post_local_gradient_allreduce: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AllReduceAndUpcast(TypedHook):
    """Sum in another type, then divide in it, then cast back.

    As a string, ``"allreduce_and_upcast"``; in PyTorch,
    ``_reducer_allreduce_and_upcast_hook`` (``mixed_precision``).

    Parameters
    ----------
    reduce_dtype
        Type of the sum (default: the bucket's own).
    """

    name: ClassVar[str] = "allreduce_and_upcast"
    function: ClassVar[str] = "_reducer_allreduce_and_upcast_hook"
    reduce_dtype: DType | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Int8(TypedHook):
    """8-bit integers with a scale per block, summed in f32.

    As a string, ``"int8"``.

    Parameters
    ----------
    block_size
        Elements that share a scale.
    error_feedback
        Add what compression lost to the next gradient.
    rounding
        Nearest or stochastic: how an element is rounded to a code.
    random_seed
        Seed of the first Q, or of stochastic rounding.
    """

    name: ClassVar[str] = "int8"
    function: ClassVar[str] = ""
    block_size: int = 256
    error_feedback: bool = False
    rounding: Literal["nearest", "stochastic"] = "nearest"
    random_seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Int4(TypedHook):
    """4-bit integers with a scale per block, summed in f32.

    As a string, ``"int4"``.

    Parameters
    ----------
    block_size
        Elements that share a scale.
    error_feedback
        Add what compression lost to the next gradient.
    rounding
        Nearest or stochastic: how an element is rounded to a code.
    random_seed
        Seed of the first Q, or of stochastic rounding.
    """

    name: ClassVar[str] = "int4"
    function: ClassVar[str] = ""
    block_size: int = 64
    error_feedback: bool = True
    rounding: Literal["nearest", "stochastic"] = "nearest"
    random_seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class FP8(TypedHook):
    """8-bit floats with a scale per block, summed in f32.

    As a string, ``"fp8"``.

    Parameters
    ----------
    block_size
        Elements that share a scale.
    error_feedback
        Add what compression lost to the next gradient.
    rounding
        Nearest or stochastic: how an element is rounded to a code.
    random_seed
        Seed of the first Q, or of stochastic rounding.
    format
        f8E4M3FN (default) or f8E5M2.
    """

    name: ClassVar[str] = "fp8"
    function: ClassVar[str] = ""
    block_size: int = 256
    error_feedback: bool = False
    rounding: Literal["nearest", "stochastic"] = "nearest"
    random_seed: int = 0
    format: DType | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class QuantizationPerTensor(TypedHook):
    """8-bit codes with one scale and zero point for the bucket.

    As a string, ``"quantization_pertensor"``; in PyTorch,
    ``quantization_pertensor_hook``.
    """

    name: ClassVar[str] = "quantization_pertensor"
    function: ClassVar[str] = "quantization_pertensor_hook"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class QuantizationPerChannel(TypedHook):
    """8-bit codes with a scale and a zero point per row.

    As a string, ``"quantization_perchannel"``; in PyTorch,
    ``quantization_perchannel_hook``.

    Parameters
    ----------
    bucket_size
        Elements that share a scale and a zero point.
    """

    name: ClassVar[str] = "quantization_perchannel"
    function: ClassVar[str] = "quantization_perchannel_hook"
    bucket_size: int = 512


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TopK(TypedHook):
    """The largest elements with their indices, summed in f32.

    As a string, ``"topk"``.

    Parameters
    ----------
    density
        Fraction of a bucket's elements that a rank sends, at least one.
    error_feedback
        Add what compression lost to the next gradient.
    """

    name: ClassVar[str] = "topk"
    function: ClassVar[str] = ""
    density: float = 0.01
    error_feedback: bool = True


__all__ = [
    "AllReduce",
    "AllReduceAndUpcast",
    "BF16",
    "BatchedPowerSGD",
    "FP16",
    "FP8",
    "HookName",
    "Int4",
    "Int8",
    "Noop",
    "PostLocalSGD",
    "PowerSGD",
    "QuantizationPerChannel",
    "QuantizationPerTensor",
    "TopK",
]
