# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole steps of many models under torch.compile, without a graph break.

A step returns its gradients with their averages, so that PyTorch's hook can average the
same numbers. Eager DDP trains these models in test_hooks.py.
"""

import logging
import os

import models
import pytest
import ranks
import torch
import torch._inductor.config
from test_compile import expected, reduced
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

STEPS = 3
POWERSGD = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2}


class Step:
    """A step of a model, as a function of its parameters and a batch."""

    def __init__(self, name):
        torch.manual_seed(7)
        self.model = models.MODELS[name]()
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters = [parameter.detach().clone() for _, parameter in named]

    def __call__(self, parameters, x):
        given = dict(zip(self.names, parameters, strict=True))
        y = torch.func.functional_call(self.model, given, (x,))
        loss = (y.float() - 0.3).square().mean()
        gradients = torch.autograd.grad(
            loss, parameters, allow_unused=True, materialize_grads=True
        )
        return [reduced(gradient) for gradient in gradients], gradients

    def train(self, rank, compiled):
        """Yields the averages and the gradients of each step, and trains with them."""
        for number in range(STEPS):
            generator = torch.Generator().manual_seed(100 * number + rank)
            x = torch.rand(6, 64, generator=generator) * 2 - 1
            arguments = [p.requires_grad_() for p in self.parameters]
            averages, gradients = compiled(arguments, x)
            yield [a.clone() for a in averages], [g.clone() for g in gradients]
            self.parameters = [
                (p - 0.05 * a).detach()
                for p, a in zip(arguments, averages, strict=True)
            ]


class Lines(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


class Buckets:
    """Records which averages are in the buckets of a step, in the buckets' order."""

    def __init__(self):
        from ddphook.torch import _graph

        self.orders = []
        self.replace = _graph._replace
        _graph._replace = self.replace_bucket

    def replace_bucket(self, graph, bucket, *arguments):
        outputs = list(graph.output_node().args[0])
        self.orders.append(tuple(outputs.index(member.result) for member in bucket))
        return self.replace(graph, bucket, *arguments)

    def of(self, gradients):
        """Yields the gradients of the only bucket of each type with their numbers."""
        # A recompiled step has the same buckets.
        orders = set(self.orders)
        dtypes = {gradients[number].dtype for order in orders for number in order}
        assert len(orders) == len(dtypes)
        for order in orders:
            yield order, [gradients[number] for number in order]


def averages(rank, names, directory):
    """Checks that the averages of fp16 have the bits of PyTorch's hook."""
    import ddphook.torch

    prepare(rank, directory)
    buckets, lines = Buckets(), Lines()
    logging.getLogger("ddphook").addHandler(lines)
    logging.getLogger("ddphook").setLevel(logging.INFO)
    for name in names:
        torch._dynamo.reset()
        buckets.orders.clear()
        lines.texts.clear()
        step = Step(name)
        compiled = ddphook.torch.compile(step, hook="fp16", fullgraph=True)
        changed = 0
        for got, gradients in step.train(rank, compiled):
            wanted = [reduced(gradient) for gradient in gradients]
            for numbers, bucket in buckets.of(gradients):
                hook = default_hooks.fp16_compress_hook
                for number, average in zip(numbers, expected(hook, None, bucket)):
                    changed += int((average != wanted[number]).sum())
                    wanted[number] = average
            for number, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
                assert mine.dtype == theirs.dtype
                assert torch.equal(mine, theirs), (name, number)
        assert changed > 0, name
        # fp16 warns that it saves nothing if the gradients have 16 bits already.
        texts = [line for line in lines.texts if "more than half" not in line]
        assert all("it is a scalar" in line for line in texts), texts
        scalars = sum(gradient.dim() == 0 for gradient in gradients)
        assert len(texts) == scalars, name
    ddphook.torch.close()


def prepare(rank, directory):
    # A graph that another rank has compiled would lack its buckets.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(directory, str(rank))
    ranks.use_pytorchs_kernels()
    torch._dynamo.config.trace_autograd_ops = True
    torch._dynamo.config.allow_rnn = True
    # The gradient of oneDNN's LSTM cannot be traced.
    torch.backends.mkldnn.set_flags(False)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("inductor"))


SOME = {"attention", "conv", "mixed-types", "odd", "sixteen-bits", "unused"}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(SOME, id="some"),
        pytest.param(
            models.MODELS.keys() - SOME, id="others", marks=pytest.mark.full("a minute")
        ),
    ],
)
def test_averages_of_models(directory, names):
    ranks.run(2, averages, sorted(names), directory)


@pytest.mark.full("as two ranks")
def test_averages_of_three_ranks(directory):
    ranks.run(3, averages, ["mlp", "tied"], directory)


def low_rank(rank, names, directory):
    """Returns the largest difference to PyTorch's PowerSGD on the same buckets."""
    import ddphook.torch

    prepare(rank, directory)
    buckets = Buckets()
    largest = 0.0
    for name in names:
        torch._dynamo.reset()
        buckets.orders.clear()
        step, state = Step(name), powersgd.PowerSGDState(None, **POWERSGD)
        options = {"hook": "powersgd", **POWERSGD}
        compiled = ddphook.torch.compile(step, fullgraph=True, **options)
        for got, gradients in step.train(rank, compiled):
            ((numbers, bucket),) = buckets.of(gradients)
            assert len(numbers) == len(got)
            wanted = expected(powersgd.powerSGD_hook, state, bucket)
            for number, average in zip(numbers, wanted, strict=True):
                distance = (got[number] - average).norm() / average.norm()
                largest = max(largest, float(distance))
        assert state.iter == STEPS
    ddphook.torch.close()
    return largest


def test_low_rank_averages(directory):
    names = ["conv", "two"]
    for distance in ranks.run(2, low_rank, names, directory):
        assert distance < 1e-3
