# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The largest finite gradients in encoded hooks, as docs/quantization.md lists them."""

import pytest
import ranks
import torch

LARGEST_BF16 = torch.finfo(torch.bfloat16).max
TEXT = """ddp.process_group @dp
func.func @bucket(%flat: tensor<4x{0}> {{bufferization.writable = true}})
    -> tensor<4x{0}> {{
  %r = ddp.all_reduce mean %flat on @dp : tensor<4x{0}>
  return %r : tensor<4x{0}>
}}
"""


def reduce(rank, hook, dtype, value):
    import ddphook.torch._ops  # noqa: F401 - it registers the operators.

    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    gradient = torch.tensor([value, -value, 0.0, -0.0], dtype=dtype)
    ticket = torch.ops.ddphook.start(
        [gradient], 1, "", TEXT.format(name), f"hook={hook}", "0", 60.0
    )
    (average,) = torch.ops.ddphook.wait(
        ticket, [4], [1], str(dtype).removeprefix("torch."), gradient.device
    )
    signs = torch.signbit(average[2:]).tolist()
    ddphook.torch.close()
    return average[:2].tolist(), signs


@pytest.mark.parametrize(
    ("world", "hook", "dtype", "value", "is_finite"),
    [
        (2, "int8", torch.float16, 65248.0, True),
        (2, "int8", torch.float16, 65280.0, False),
        (2, "int8", torch.float16, 65504.0, False),
        (2, "fp8", torch.float16, 65504.0, True),
        # The sum of two such gradients overflows f32.
        (1, "int8", torch.bfloat16, LARGEST_BF16, False),
    ],
)
def test_the_largest_gradients(world, hook, dtype, value, is_finite):
    for (first, second), signs in ranks.run(world, reduce, hook, dtype, value):
        assert (abs(first) < float("inf")) == is_finite, first
        assert second == -first
        assert first > 0
        assert signs == [False, hook == "fp8"]
