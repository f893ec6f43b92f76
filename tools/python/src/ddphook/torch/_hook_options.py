# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of each hook, and the kinds of their values.

Written by tools/generate-docs.sh from the definitions of the hooks.
"""

_OPTIONS: dict[str, dict[str, str]] = {
    "allreduce": {},
    "fp16 bf16": {
        "accumulate": "Type",
    },
    "noop": {},
    "powersgd batched_powersgd": {
        "matrix_approximation_rank": "Integer",
        "start_powerSGD_iter": "Integer",
        "stop_powerSGD_iter": "Integer",
        "min_compression_rate": "Number",
        "use_error_feedback": "Flag",
        "warm_start": "Flag",
        "orthogonalization_epsilon": "Number",
        "random_seed": "Integer",
        "compression_stats_logging_frequency": "Integer",
        "batch_tensors_with_same_shape": "Flag",
        "local_error_feedback": "Flag",
        "keep_zero_columns": "Flag",
        "independent_columns": "Flag",
        "skip_nonfinite": "Flag",
        "fp32_error": "WireType",
        "matrix_view": "Choice",
        "numerics": "Choice",
    },
    "post_local_sgd": {
        "start_localSGD_iter": "Integer",
        "subgroup": "Symbol",
        "post_local_gradient_allreduce": "Flag",
    },
    "allreduce_and_upcast": {
        "reduce_dtype": "Type",
    },
    "int8 int4": {
        "block_size": "Integer",
        "error_feedback": "Flag",
        "rounding": "Choice",
        "random_seed": "Integer",
    },
    "fp8": {
        "block_size": "Integer",
        "error_feedback": "Flag",
        "rounding": "Choice",
        "random_seed": "Integer",
        "format": "Type",
    },
    "quantization_pertensor": {},
    "quantization_perchannel": {
        "bucket_size": "Integer",
    },
    "topk": {
        "density": "Number",
        "error_feedback": "Flag",
    },
}
HOOK_OPTIONS: dict[str, dict[str, str]] = {
    hook: options for hooks, options in _OPTIONS.items() for hook in hooks.split()
}
