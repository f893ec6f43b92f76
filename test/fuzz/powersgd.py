# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PowerSGD in the fuzzer's model: the numpy model of test/parity, with noise.

Products have no order that anyone promises, so results are known up to rounding
only. How far that goes depends on the matrices and on everything that the program
does with an average. So the model runs several times, each time with other errors
of the size of a rounding in every product, and other signs of zeros; what the runs
differ by is what a result may differ by (compare.py)."""

import json
import pathlib
import sys

import numpy as np

import numerics
from buckets import size_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity"))

import powersgd_model  # noqa: E402
import powersgd_random  # noqa: E402
from tensors import Tensor  # noqa: E402

EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-22, "f64": 2.0**-51}
# Beyond these iterations no generated program goes.
NEVER = 1000


def config_of(options):
    """The parameters that the options name, as the model takes them."""
    names = {
        name.lower().replace("_", "-"): name for name in vars(powersgd_model.Config())
    }
    given = {"start_powerSGD_iter": NEVER}
    for option, text in options.items():
        if option in names and option != "wrapper":
            given[names[option]] = json.loads(text)
    return powersgd_model.Config(
        **given,
        batched=options.get("hook") == "batched_powersgd",
        wrapper=options.get("wrapper"),
    )


class _NoisyArithmetic(powersgd_model.Arithmetic):
    """`signs`: what the signs of zeros are drawn from."""

    def __init__(self, dtype, random, signs):
        super().__init__(dtype)
        self.random, self.signs = random, signs

    def _disturb(self, values, scale):
        noise = self.random.uniform(-1, 1, values.shape) * EPSILON[self.dtype]
        with np.errstate(all="ignore"):
            return self.round(values + noise * scale)

    def matmul(self, a, b):
        with np.errstate(all="ignore"):
            scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
            product = self._disturb(super().matmul(a, b), scale)
        # A sum that starts with its first product keeps the sign of a zero; one
        # that starts with 0 does not.
        zeros = np.copysign(self.wide(0), self.random.choice(self.signs, product.shape))
        return np.where(product == 0, zeros, product).astype(self.wide)

    def ring_sum(self, values):
        total = super().ring_sum(values)
        if len(values) < 3:
            return total
        return self._disturb(total, sum(np.abs(v).astype(np.float64) for v in values))

    def orthogonalize(self, factor, epsilon, keep_zeros=True):
        super().orthogonalize(factor, epsilon, keep_zeros)
        factor[:] = self._disturb(factor, np.abs(factor))


class LowRank:
    """Evaluates PowerSGD's buckets of one run of the model."""

    def __init__(self, program, buckets, seed):
        self.program, self.buckets = program, buckets
        self.config = config_of(program.options)
        self.random = np.random.RandomState(seed)
        # All zeros of run 0 are 0.0, all of run 1 are -0.0: a single one is seen
        # to have either sign.
        self.signs = {0: [1], 1: [-1]}.get(seed, [1, -1])
        self.models = {}

    def run(self, bucket, parts, iteration):
        """parts[member][rank]; results in the same nesting."""
        groups = self.program.groups[bucket.members[0].attrs["group"]]
        results = [{} for _ in parts]
        for ranks in groups or [tuple(range(self.program.world))]:
            model = self._model(bucket, ranks)
            model.iter = iteration
            dtype = bucket.members[0].result.type.dtype
            flat = [
                _to_tensor(np.concatenate([p[r].reshape(-1) for p in parts]), dtype)
                for r in ranks
            ]
            mean = bucket.members[0].attrs["reduction"] == "mean"
            with np.errstate(all="ignore"):
                outs = model._bucket(0, flat, mean)
            for rank, out in zip(ranks, outs):
                out, begin = _from_tensor(out), 0
                for member, result in zip(bucket.members, results):
                    size = size_of(member.result.type)
                    values = out[begin : begin + size]
                    result[rank] = values.reshape(member.result.type.shape)
                    begin += size
        return results

    def _model(self, bucket, ranks):
        """All buckets share a generator, and draw in their order before the first
        compressed step."""
        if (bucket, ranks) not in self.models:
            generator = np.random.RandomState(self.config.random_seed)
            for other in self.buckets.low_rank():
                dtype = other.members[0].result.type.dtype
                shapes = [m.result.type.shape for m in other.members]
                made = powersgd_model.Model(self.config, len(ranks), [shapes], dtype)
                made.math = _NoisyArithmetic(made.math.dtype, self.random, self.signs)
                made.generator = generator
                if self.config.warm_start and made.layouts[0].is_compressed:
                    drawn = powersgd_random.draw(
                        generator, made.layouts[0].draws, made.math.dtype
                    )
                    made.q[0] = made.math.load(drawn).copy()
                self.models[other, ranks] = made
        return self.models[bucket, ranks]


def _to_tensor(values, dtype):
    if dtype == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16
        return Tensor(dtype, bits.astype(np.uint16))
    return Tensor(dtype, np.ascontiguousarray(values, numerics.STORAGE[dtype]))


def _from_tensor(tensor):
    if tensor.dtype == "bf16":
        return (tensor.data.astype(np.uint32) << 16).view(np.float32)
    return tensor.data
