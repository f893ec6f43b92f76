# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes that a whole step leaves in its model: kept, or refused by name."""

import pytest
import torch
from torch import nn

import ranks
from test_whole import reduced


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.counts = {"steps": 1, "rates": [0.5, 0.25]}
        self.seen = []
        self.config = type("Config", (), {})()
        self.config.factor = 2.0

    def forward(self, x):
        return self.linear(x) * self.counts["rates"][0] * self.config.factor


def sgd(model):
    """Updates the parameters by averaged gradients."""
    for parameter in model.parameters():
        parameter.data = parameter.data - 0.1 * reduced(parameter.grad)


def backward(model, x):
    model(x).square().sum().backward()


def zeros_first(model, x):
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()
    backward(model, x)
    sgd(model)


def none_first(model, x):
    model.zero_grad()
    backward(model, x)
    backward(model, x)
    sgd(model)


def none_at_the_end(model, x):
    backward(model, x)
    sgd(model)
    model.zero_grad()


def never(model, x):
    backward(model, x)
    sgd(model)


def new_list(model, x):
    model.seen = [model(x)]
    none_first(model, x)


def rate(model, x):
    model.counts["rates"][0] *= 0.5
    none_first(model, x)


def new_table(model, x):
    model.counts = {**model.counts, "steps": model.counts["steps"] + 1}
    none_first(model, x)


def factor(model, x):
    model.config.factor += 1
    none_first(model, x)


def appended(model, x):
    model.seen.append(model(x))
    none_first(model, x)


def capture(step, model, x):
    from ddphook.torch import _whole

    def whole(model, x):
        step(model, x)
        return x.sum()

    return _whole.capture(whole, (model, x)).graph


def _run(rank):
    import ddphook

    torch.manual_seed(5)
    x = torch.randn(4, 3)
    for step in (none_first, none_at_the_end, zeros_first, new_list):
        model = Model()
        if step is zeros_first:
            # A later step finds the model in this state.
            backward(model, x)
        graph = capture(step, model, x)
        run = torch.fx.Interpreter(torch.fx.GraphModule({}, graph))
        for _ in range(2):
            _, weight, bias = run.run(*model.parameters(), x)
            step(model, x)
            torch.testing.assert_close(weight, model.linear.weight.data)
            torch.testing.assert_close(bias, model.linear.bias.data)
            assert not weight.isnan().any()

    def refuse(step, words, model=None):
        model = model or Model()
        with pytest.raises(ddphook.UnsupportedError, match=words):
            capture(step, model, x)
        assert model.counts == {"steps": 1, "rates": [0.5, 0.25]}
        assert model.config.factor == 2.0 and model.seen == []

    refuse(never, r"earlier \.grad of \[0\]\['linear.weight'\], .* zero_grad\(\)")
    started = Model()
    backward(started, x)
    refuse(none_at_the_end, r"earlier \.grad of \[0\]\['linear.weight'\]", started)
    refuse(rate, r"it changes \[0\]\.counts\['rates'\]\[0\]")
    refuse(new_table, r"it changes \[0\]\.counts")
    refuse(factor, r"it changes \[0\]\.config\.factor")
    refuse(appended, r"it changes \[0\]\.seen\[0\]")
    shared = Model()
    shared.register_buffer("first_row", shared.linear.weight.detach()[:1])
    refuse(none_first, r"\['first_row'\] shares memory with \[0\]\['linear.weight'\]", shared)
    apart = Model()
    whole = torch.randn(10)
    apart.register_buffer("left", whole[:5])
    apart.register_buffer("right", whole[5:])
    capture(none_first, apart, x)

    def frozen(model, x):
        none_first(model, x)
        model.linear.bias.requires_grad_(False)

    refuse(frozen, r"leaves \[0\]\['linear.bias'\] with requires_grad=True")

    def wider(model, x):
        model.linear.weight.data = torch.zeros(7, 3)
        none_first(model, x)

    refuse(wider, r"expected \.data to keep .* shape \(2, 3\)")
    return True


def test_what_a_step_leaves_in_its_model():
    assert ranks.run(1, _run) == [True]
