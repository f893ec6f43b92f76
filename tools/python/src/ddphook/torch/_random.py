# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers of whole steps, in operators that torch-mlir lowers to linalg.

A number is a function of a seed and of its place, Philox with ten rounds, as it is
in Inductor's code for CPUs (``normalized_rand_cpu``): a compiled step with these
seeds draws the same bits. Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = (1 << 32) - 1
# The largest float32 whose product with 2^31 - 1 is below one.
_SCALE = 4.6566127342e-10
# The key of a node's meta.
_SEED = "ddphook_seed"


def uniform(seed: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Numbers of [0, 1), in float32, each of 31 random bits.

    Parameters
    ----------
    seed
        An int64 without dimensions. Its halves are the two words of the key.
    size
        The sizes of the result. A number's place in it, row by row, is its counter.
    """
    places = torch.arange(math.prod(size), dtype=torch.int64, device=seed.device)
    word = _first_word(_low(seed), _high(seed), places)
    return ((word & 0x7FFFFFFF).to(torch.float32) * _SCALE).reshape(list(size))


def _first_word(
    key: torch.Tensor, other_key: torch.Tensor, counter: torch.Tensor
) -> torch.Tensor:
    """The first of the four words of the block of a counter below 2^32."""
    zero = torch.zeros_like(key)
    words = (counter, zero, zero, zero)
    for number in range(_ROUNDS):
        first, second = (words[2 * i] * _MULTIPLIERS[i] for i in range(2))
        words = (
            _high(second) ^ words[1] ^ _low(key + number * _WEYL[0]),
            _low(second),
            _high(first) ^ words[3] ^ _low(other_key + number * _WEYL[1]),
            _low(first),
        )
    return words[0]


def _low(value: torch.Tensor) -> torch.Tensor:
    return value & _WORD


def _high(value: torch.Tensor) -> torch.Tensor:
    """Of a product of two words as well, whose highest bit is the sign."""
    return (value >> 32) & _WORD


class Draws(torch.fx.Interpreter):
    """Runs a graph whose random numbers come from a seed.

    The numbers of the graph's k-th draw are those of the seed plus k. What draws in
    another way than these operators runs as it is.

    Attributes
    ----------
    drawn
        How many draws there were.
    """

    def __init__(self, module: torch.fx.GraphModule, seed: torch.Tensor) -> None:
        super().__init__(module)
        self._seed = seed
        self.drawn = 0
        aten = torch.ops.aten
        self._rules: dict[Any, Callable[..., Any]] = {
            aten.native_dropout.default: self._native_dropout,
            aten.bernoulli.default: self._bernoulli,
            aten.bernoulli.p: self._bernoulli,
            aten.bernoulli_.float: self._bernoulli_in_place,
            aten.rand.default: self._rand,
            aten.rand_like.default: self._rand_like,
        }

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        rule = self._rules.get(target)
        result = NotImplemented if rule is None else rule(*args, **kwargs)
        if result is NotImplemented:
            return super().call_function(target, args, kwargs)
        return result

    # They are as PyTorch decomposes them for Inductor. Where one has a generator of
    # its own, it is none of these rules.

    def _rand(
        self, size: Sequence[int], dtype: torch.dtype | None = None, **_: Any
    ) -> torch.Tensor:
        """In a wide type, too, of 31 bits."""
        numbers = uniform(self._seed + self.drawn, size)
        self.drawn += 1
        return numbers.to(dtype or torch.get_default_dtype())

    def _rand_like(
        self, like: torch.Tensor, dtype: torch.dtype | None = None, **_: Any
    ) -> torch.Tensor:
        return self._rand(like.shape, dtype or like.dtype)

    def _native_dropout(self, x: torch.Tensor, p: float, train: bool | None) -> Any:
        if train is False or not 0 < p < 1:
            return NotImplemented
        # Inductor rounds p to a narrow type, and not the numbers.
        wide = torch.promote_types(x.dtype, torch.float32)
        mask = self._rand(x.shape, wide) > x.new_full((), p).to(wide)
        return mask * x * (1.0 / (1.0 - p)), mask

    def _bernoulli(
        self, x: torch.Tensor, p: float | None = None, generator: Any = None
    ) -> Any:
        if generator is not None:
            return NotImplemented
        return (self._rand(x.shape, torch.float32) < (x if p is None else p)).to(x.dtype)

    def _bernoulli_in_place(
        self, x: torch.Tensor, p: float = 0.5, generator: Any = None
    ) -> Any:
        drawn = self._bernoulli(x, p, generator)
        return drawn if drawn is NotImplemented else x.copy_(drawn)


def seeded(module: torch.fx.GraphModule) -> Callable[..., list[torch.Tensor]]:
    """A graph whose last argument is a seed, and whose last result is the next step's
    if it draws."""

    def run(*arguments: torch.Tensor) -> list[torch.Tensor]:
        seed = arguments[-1]
        draws = Draws(module, seed)
        results = list(draws.run(*arguments[:-1]))
        return [*results, seed + draws.drawn] if draws.drawn else results

    return run


def keep_seed(module: torch.fx.GraphModule) -> None:
    """Removes the last argument where nothing is drawn, else marks it as the seed."""
    *_, seed = (node for node in module.graph.nodes if node.op == "placeholder")
    if seed.users:
        seed.meta[_SEED] = True
    else:
        module.graph.erase_node(seed)
        module.recompile()


def is_seed(node: torch.fx.Node) -> bool:
    """Whether an argument of a graph is the seed."""
    return node.op == "placeholder" and node.meta.get(_SEED, False)
