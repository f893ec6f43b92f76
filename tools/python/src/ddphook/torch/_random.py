# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers of whole steps, in operators that torch-mlir lowers to linalg.

A number is a function of a seed and of its position, by Philox with ten rounds, as in
Inductor's code for CPUs (``normalized_rand_cpu``): a compiled step with these seeds
draws the same bits. Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ddphook._errors import UnsupportedError
from ddphook.torch import _private

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = (1 << 32) - 1
# The largest float32 whose product with 2^31 - 1 is below one.
_SCALE = 4.6566127342e-10
# The key in a node's meta that marks the seed.
_SEED = "ddphook_seed"

# A draw in a trace: the number of the draw, and the shape of its result.
_library = torch.library.Library("ddphook", "FRAGMENT")
_library.define("uniform(int draw, int[] size) -> Tensor")
torch.library.register_fake(
    "ddphook::uniform",
    lambda draw, size: torch.empty(size, dtype=torch.float32),
    lib=_library,
)
_UNIFORM = torch.ops.ddphook.uniform.default


def uniform(seed: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Returns numbers in [0, 1), in float32, each of 31 random bits.

    The halves of the seed, an int64 scalar, are the two words of the key. A number's
    row-major index is its counter.
    """
    places = torch.arange(math.prod(size), dtype=torch.int64, device=seed.device)
    word = _first_word(_low(seed), _high(seed), places)
    return ((word & 0x7FFFFFFF).to(torch.float32) * _SCALE).reshape(list(size))


def _first_word(
    key: torch.Tensor, other_key: torch.Tensor, counter: torch.Tensor
) -> torch.Tensor:
    """Returns the first of the four words of the block of a counter below 2^32."""
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
    """Returns the high word, also of a product of two words, whose top bit is the sign."""
    return (value >> 32) & _WORD


class Draws(_private.TorchDispatchMode):
    """Records the random numbers of a traced step: each draw becomes an operator with
    the number of the draw, which `seeded` replaces by `uniform`.

    PyTorch's generator keeps that number: meanwhile, it has a separate state for each
    draw. If a program restores a saved state and draws again, as
    ``torch.utils.checkpoint`` does, the draw therefore has the same numbers. Operators
    without a rule run unchanged.
    """

    def __init__(self) -> None:
        super().__init__()
        # At the end of the step, the number of the draw that it would make next.
        self.end = 0
        aten = torch.ops.aten
        self._rules: dict[Any, Callable[..., Any]] = {
            aten.native_dropout.default: self._native_dropout,
            aten.bernoulli.default: self._bernoulli,
            aten.bernoulli.p: self._bernoulli,
            aten.bernoulli_.float: self._bernoulli_in_place,
            aten.rand.default: self._rand,
            aten.rand_like.default: self._rand_like,
        }

    def __enter__(self) -> Draws:
        # A random first seed, so that no other code seeds with these numbers.
        self._first = random.SystemRandom().getrandbits(62)
        self._made = 0
        self._before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(self._first)
        super().__enter__()
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        super().__exit__(kind, *rest)
        try:
            if kind is None:
                self.end = self._next()
        finally:
            torch.default_generator.set_state(self._before)

    def __torch_dispatch__(
        self, target: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        rule = self._rules.get(target, target)
        result = rule(*args, **kwargs)
        return target(*args, **kwargs) if result is NotImplemented else result

    def _next(self) -> int:
        """Returns the number of the draw that the generator's state stands for."""
        number = torch.default_generator.initial_seed() - self._first
        if not 0 <= number <= self._made:
            raise UnsupportedError(
                "expected a step that only draws from PyTorch's generator, but it seeds "
                "the generator or sets a state from outside of the step, which would be "
                "lost: the module's seed is an argument; do so before the export"
            )
        return number

    def _uniform(self, size: Sequence[int]) -> torch.Tensor:
        number = self._next()
        self._made = max(self._made, number + 1)
        torch.default_generator.manual_seed(self._first + number + 1)
        return torch.ops.ddphook.uniform(number, list(size))

    # The rules follow PyTorch's decompositions for Inductor. A draw from an explicit
    # generator has no rule.

    def _rand(
        self, size: Sequence[int], dtype: torch.dtype | None = None, **_: Any
    ) -> torch.Tensor:
        """Draws 31 bits even for wider types."""
        return self._uniform(size).to(dtype or torch.get_default_dtype())

    def _rand_like(
        self,
        like: torch.Tensor,
        dtype: torch.dtype | None = None,
        memory_format: torch.memory_format | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Draws in memory order, unless another memory format is requested."""
        dtype = dtype or like.dtype
        if memory_format not in (None, torch.preserve_format):
            return self._rand(like.shape, dtype)
        order = _private.compute_elementwise_output_logical_to_physical_perm(like)[0]
        numbers = self._rand([like.shape[i] for i in order], dtype)
        return numbers.permute([order.index(i) for i in range(like.dim())])

    def _native_dropout(self, x: torch.Tensor, p: float, train: bool | None) -> Any:
        if train is False or p == 0:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        if p == 1:
            return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
        # Inductor rounds p to a narrow type, but not the numbers.
        wide = torch.promote_types(x.dtype, torch.float32)
        mask = self._rand_like(x, wide) > x.new_full((), p).to(wide)
        # If p is close to one, the factor may overflow a narrow type.
        return ((mask * x).to(wide) * (1.0 / (1.0 - p))).to(x.dtype), mask

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


def seeded(module: torch.fx.GraphModule, draws: Draws) -> Callable[..., list[torch.Tensor]]:
    """Returns a graph with the seed as an additional last argument and, if it draws, the
    next step's seed as an additional last result.

    The k-th draw of the graph uses the seed plus k. As in Inductor, unused draws do not
    count.
    """
    used = [node.args for node in module.graph.nodes if node.target is _UNIFORM]
    numbers = {draw: i for i, draw in enumerate(sorted({draw for draw, _ in used}))}
    drawn = sum(draw < draws.end for draw in numbers)
    has_drawn = any(0 not in size for _, size in used)

    def run(*arguments: torch.Tensor) -> list[torch.Tensor]:
        *values, seed = arguments

        class Seeded(torch.fx.Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                if target is _UNIFORM:
                    draw, size = args
                    return uniform(seed + numbers[draw], size)
                return super().call_function(target, args, kwargs)

        results = Seeded(module).run(*values)
        return [*results, seed + drawn] if has_drawn else list(results)

    return run


def keep_seed(module: torch.fx.GraphModule) -> None:
    """Marks the last argument as the seed, or removes it if nothing is drawn."""
    *_, seed = module.graph.find_nodes(op="placeholder")
    if seed.users:
        seed.meta[_SEED] = True
    else:
        module.graph.erase_node(seed)
        module.recompile()


def is_seed(node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and node.meta.get(_SEED, False)
