# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole steps with models as inputs, however they store and change their tensors."""

import os
import re

import pytest
import torch
from torch import nn

import models
import ranks
import test_whole

SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20264"))


class Averages(nn.Module):
    """Has buffers that are written to, replaced, and counted up."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("written", torch.zeros(size))
        self.register_buffer("new", torch.ones(size), persistent=False)
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("nothing", None)

    def forward(self, x):
        mean = x.detach().mean(0)
        self.count += 1
        self.written[1:].lerp_(mean[1:], 0.25)
        self.new = 0.5 * self.new + mean
        return x * self.new - self.written


class Twins(nn.Module):
    """Has one weight in two layers, and one layer in two attributes."""

    def __init__(self, size):
        super().__init__()
        self.first = nn.Linear(size, size)
        self.second = nn.Linear(size, size, bias=False)
        self.second.weight = self.first.weight
        self.again = self.first

    def forward(self, x):
        return self.again(self.second(self.first(x).tanh()))


def make():
    torch.manual_seed(SEED)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(7, 16))
    body = nn.Sequential(nn.Linear(64, 7), nn.BatchNorm1d(7, affine=False), Averages(7))
    return {"body": body, "heads": [nn.Sequential(Twins(7), normed)]}


def step(given, x, y):
    body, (head,) = given["body"], given["heads"]
    loss = (head.train()(body(x)) - y).square().mean()
    loss.backward()
    parameters = [*body.parameters(), *head.parameters()]
    for parameter in parameters:
        parameter.grad = test_whole.reduced(parameter.grad)
    torch.optim.SGD(parameters, 0.1).step()
    for parameter in parameters:
        parameter.grad = None
    return test_whole.reduced(loss.detach())


def tensors(given):
    """Returns the tensors in the order of the module's arguments, each once."""
    found = {}
    for model in (given["body"], *given["heads"]):
        for value in (*model.parameters(), *model.buffers()):
            found.setdefault(value)
    return list(found)


def _train(rank, directory):
    import ddphook
    import ddphook.torch

    given, y = make(), torch.full((6, 16), 0.25)
    x = test_whole.data(rank)
    test_whole.save((tensors(given), x, y), directory / f"in.{rank}")
    if rank == 0:
        before = [value.clone() for value in tensors(given)]
        file = directory / "step.mlir"
        ddphook.torch.export(step, given, x, y, file=file, whole=True)
        assert all(map(torch.equal, tensors(given), before))
        unused = models.Unused()

        def counting(model, x):
            return test_whole.reduced(model(x))

        def widening(model, x):
            model[2].new = model[2].new.double()
            return test_whole.reduced(x)

        def parting(model, x):
            model.second.weight = nn.Parameter(model.second.weight * 2)
            return test_whole.reduced(x)

        def emptying(model, x):
            model[2].new = None
            return test_whole.reduced(x)

        for text, function, model in (
            (r"changes \[0\]\.calls", counting, unused),
            (r"keeps \[0\]\['2.new'\] torch.float32 of shape", widening, given["body"]),
            (r"leaves \[0\]\['first.weight'\] the same tensor", parting, given["heads"][0][0]),
            ("adds or removes 'new' of a Averages", emptying, given["body"]),
        ):
            with pytest.raises(ddphook.UnsupportedError, match=text):
                no = directory / "no.mlir"
                ddphook.torch.export(function, model, x, file=no, whole=True)
        assert unused.calls == 0 and given["body"][2].new.dtype == torch.float32
        assert given["heads"][0][0].second.weight is given["heads"][0][0].first.weight
    loss = step(given, x, y)
    return [value.tolist() for value in (loss, *tensors(given))]


def test_models_in_containers(tmp_path):
    print(f"seed {SEED}")
    results = ranks.run(2, _train, tmp_path)
    native = test_whole.run_native(tmp_path / "step.mlir", 2, "hook=allreduce", tmp_path)
    text = (tmp_path / "step.mlir").read_text()
    arguments = re.findall(r"^// arg\d+ is (.*)", text, flags=re.M)
    changed = re.findall(r"^// result\d+ is (.*) afterwards", text, flags=re.M)
    # All of them change, in the order of the arguments.
    assert changed == arguments[:-2]
    assert "[0]['heads'][0]['0.second.weight']" not in text
    for mine, expected in zip(native, results, strict=True):
        test_whole.check_close(mine, expected)
