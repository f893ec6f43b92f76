# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python objects that a whole step reaches and changes: refused by their paths, and
restored after the capture, however it ends."""

import collections
import copy
import itertools
import os
import random

import numpy
import pytest
import torch
from torch import nn

import ranks
from test_whole import reduced

SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20265"))
COUNTS = {"steps": 1.0}
TOTAL = 1.0
NUMBERS = itertools.count(1)


class Slotted:
    __slots__ = ("rate",)

    def __init__(self):
        self.rate = 1.0


class Counter:
    """A callable object with its own state and a state in its class."""

    calls = 1.0

    def __init__(self):
        self.rate = 1.0
        self.itself = self

    def __call__(self):
        self.rate *= 2
        return self.rate


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.other = nn.Linear(3, 2)
        self.table = nn.ModuleDict({"a": nn.Linear(2, 2)})
        self.register_buffer("mean", torch.zeros(2))
        self.counter = Counter()
        self.last = collections.deque([1.0], 3)
        self.slotted = Slotted()
        self.array = numpy.ones(2)
        self.numbers = itertools.count(1)
        self.squares = (n * n for n in itertools.count(1))
        self.function = lambda value: value * 2
        self.deep = {"a": {"b": [{"c": {"d": {"e": 1.0}}}]}}
        self.size = 2
        self.cache = {"a": torch.ones(1)}

    def forward(self, x):
        return self.table["a"](self.linear(x) + self.other(x)) + self.mean


def train(model, x, rate=1.0):
    model.zero_grad()
    model(x).square().sum().backward()
    for parameter in model.parameters():
        parameter.data = parameter.data - 0.1 * rate * reduced(parameter.grad)


def called(model, x):
    train(model, x, model.counter())


def appended(model, x):
    train(model, x, model.last[-1])
    model.last.append(model.last[-1] * 2)


def slot(model, x):
    train(model, x, model.slotted.rate)
    model.slotted.rate *= 2


def array(model, x):
    train(model, x, float(model.array[1]))
    model.array[1] *= 2


def iterator(model, x):
    train(model, x, next(model.numbers))


def generator(model, x):
    train(model, x, next(model.squares))


def function(model, x):
    train(model, x, model.function(1.0))
    model.function = lambda value: value * 3


def deep(model, x):
    inner = model.deep["a"]["b"][0]["c"]["d"]
    train(model, x, inner["e"])
    inner["e"] *= 2


def of_class(model, x):
    train(model, x, Counter.calls)
    Counter.calls *= 2


def table_of_globals(model, x):
    train(model, x, COUNTS["steps"])
    COUNTS["steps"] *= 2


def global_number(model, x):
    global TOTAL
    train(model, x, TOTAL)
    TOTAL *= 2


def of_function(model, x):
    train(model, x, of_function.rate)
    of_function.rate *= 2


of_function.rate = 1.0


def toggled(model, x):
    train(model, x, 1.0 if model.training else 2.0)
    model.train(not model.training)


def mode_once(model, x):
    train(model, x, 1.0 if model.training else 2.0)
    model.eval()


def forward_hook(model, x):
    train(model, x)
    model.linear.register_forward_hook(lambda module, inputs, output: output * 2)


def gradient_hook(model, x):
    train(model, x)
    model.linear.weight.register_hook(lambda gradient: gradient * 2)


def first_only(model, x):
    rate = 2.0 if model.linear.weight.grad is None else 1.0
    train(model, x, rate)


def swapped(model, x):
    train(model, x)
    one, two = model.linear.bias, model.other.bias
    one.data, two.data = two.data, one.data


def swapped_and_written(model, x):
    swapped(model, x)
    model.linear.bias.data.add_(1)


def shared(model, x):
    train(model, x)
    model.other.bias.data = model.linear.bias.data
    model.linear.bias.data.add_(1)


def shared_new(model, x):
    train(model, x)
    new = model.linear.bias.detach() * 2
    model.linear.bias.data = new
    model.other.bias.data = new
    model.linear.bias.data.add_(1)


def new_module(model, x):
    train(model, x)
    model.more = nn.Linear(1, 1)


def replaced_module(model, x):
    train(model, x)
    model.table["a"] = nn.Identity()


def random_rate(model, x):
    train(model, x, random.random())


def last_gradients(model, x):
    last = getattr(model, "gradients", None)
    train(model, x, 1.0 if last is None else last[0].sum())
    model.gradients = [parameter.grad for parameter in model.parameters()]


def last_noticed(model, x):
    train(model, x, 2.0 if hasattr(model, "gradients") else 1.0)
    model.gradients = [parameter.grad for parameter in model.parameters()]


def empty_noticed(model, x):
    train(model, x, 2.0 if hasattr(model, "started") else 1.0)
    model.started = []


def emptied(model, x):
    train(model, x, 2.0 if model.cache else 1.0)
    model.cache = {}


def removed(model, x):
    train(model, x, 2.0 if hasattr(model, "cache") else 1.0)
    vars(model).pop("cache", None)


REFUSED = (
    (empty_noticed, r"differs because of the \.grad or the tensors"),
    (emptied, r"uses what the previous step left in \[0\]\.cache"),
    (removed, r"changes \[0\]\.cache,"),
    (last_gradients, r"uses what the previous step left in \[0\]\.gradients"),
    (last_noticed, r"differs because of the \.grad or the tensors"),
    (random_rate, "draws from Python's random numbers"),
    (called, r"changes \[0\]\.counter\.rate"),
    (appended, r"changes \[0\]\.last\[1\]"),
    (slot, r"changes \[0\]\.slotted\.rate"),
    (array, r"changes \[0\]\.array,"),
    (iterator, r"takes from the iterator \[0\]\.numbers"),
    (generator, r"takes from the iterator \[0\]\.squares"),
    (function, r"changes \[0\]\.function"),
    (deep, r"changes \[0\]\.deep\['a'\]\['b'\]\[0\]\['c'\]\['d'\]\['e'\]"),
    (of_class, r"changes Counter\.calls"),
    (table_of_globals, r"changes COUNTS\['steps'\]"),
    (global_number, "changes TOTAL"),
    (of_function, r"changes of_function\.rate|changes step\.rate"),
    (toggled, r"changes \.training of .*Linear, Model"),
    (mode_once, "differs because of the modes"),
    (forward_hook, r"changes \[0\]\.linear\._forward_hooks\[\d+\]"),
    (gradient_hook, r"the gradient hooks of \[0\]\['linear\.weight'\]"),
    (first_only, r"differs because of the \.grad"),
    (shared, r"\[0\]\['other\.bias'\] shares memory with \[0\]\['linear\.bias'\]; assign"),
    (shared_new, r"shares memory with .*; assign a clone\(\)"),
    (swapped_and_written, r"the former \.data of a tensor \(.*\.py:\d+\); assign a clone\(\)"),
    (new_module, r"changes \[0\]\.more"),
    (replaced_module, r"changes \[0\]\.table\.a"),
)


# Two functions that name the same iterator, but not the same globals.
def number_later():
    return next(NUMBERS) if COUNTS["steps"] > 1 else 1.0


def number_above_one():
    return next(NUMBERS) if TOTAL > 1 else 1.0


def changes_in_place(model, x):
    # A step may create and change its own objects, and may restore what it changes.
    own = Counter()
    own()
    model.size += 1
    handle = model.linear.register_forward_hook(lambda module, inputs, output: output * 2)
    train(model.train(), x, own.rate * number_later() * number_above_one())
    handle.remove()
    model.size -= 1
    model.mean = model.mean + 0.5 * x.mean(0)[:2]


def zeros(model, x):
    model.zero_grad(set_to_none=False)
    model(x).square().sum().backward()
    for parameter in model.parameters():
        parameter.data = parameter.data - 0.1 * reduced(parameter.grad)


def leaves(model, x):
    train(model, x)
    model.gradients = [parameter.grad for parameter in model.parameters()]
    train(model, x, model.gradients[-1].tanh().mean())


def evaluates(model, x):
    train(model.train(), x)
    model.eval()


def clone(model, x):
    train(model, x)
    bias = model.linear.bias.data.clone()
    model.linear.bias.data = model.other.bias.data.clone()
    model.other.bias.data = bias


def state(model):
    """Returns the objects that the steps above change."""
    return (
        {name: value.tolist() for name, value in model.state_dict().items()},
        [*map(id, model.modules())],
        [module.training for module in model.modules()],
        (model.counter.rate, Counter.calls, list(model.last), model.slotted.rate),
        (model.array.tolist(), model.function, repr(model.deep), repr(model.numbers)),
        (dict(COUNTS), TOTAL, repr(NUMBERS), of_function.rate, model.size, sorted(vars(model))),
        [len(module._forward_hooks) for module in model.modules()],
        [parameter._backward_hooks for parameter in model.parameters()],
        model.squares,
    )


def capture(step, model, x):
    from ddphook.torch import _whole

    def whole(model, x):
        step(model, x)
        return x.sum()

    return _whole.capture(whole, (model, x))


def _refuse(rank):
    import ddphook

    torch.manual_seed(SEED)
    x = torch.randn(5, 3)
    for step, words in REFUSED:
        model = Model()
        before = state(model)
        with pytest.raises(ddphook.UnsupportedError, match=words):
            capture(step, model, x)
        assert state(model) == before, step.__name__
        assert next(model.numbers) == 1 and next(model.squares) == 1

    def raises(model, x):
        for step in (called, appended, slot, array, deep, table_of_globals):
            step(model, x)
        new_module(model, x)
        model.mean.add_(1)
        raise KeyError("of the program")

    model = Model()
    before = state(model)
    with pytest.raises(KeyError, match="of the program"):
        capture(raises, model, x)
    assert state(model) == before
    return True


class Growing(torch.optim.SGD):
    """An optimizer that counts in a Python number."""

    def __init__(self, parameters):
        super().__init__(parameters, 0.1)
        self.rate = 1.0

    def step(self):
        self.rate *= 2
        for group in self.param_groups:
            group["params"][0].grad.mul_(self.rate)
        super().step()


def _refuse_optimizers(rank):
    import ddphook
    from ddphook.torch import _whole

    torch.manual_seed(SEED)
    x = torch.randn(5, 3)

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad = reduced(parameter.grad)
        optimizer.step()
        return loss.detach()

    model = Model()
    growing = Growing(model.parameters())
    with pytest.raises(ddphook.UnsupportedError, match=r"changes \[1\]\.rate"):
        _whole.capture(step, (model, growing, x))
    assert growing.rate == 1.0
    rate = torch.tensor(0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    _whole.capture(step, (model, optimizer, x))

    def scheduled(model, optimizer, x):
        loss = step(model, optimizer, x)
        schedule.step()
        return loss

    before = schedule.state_dict()
    with pytest.raises(ddphook.UnsupportedError, match=r"changes schedule\."):
        _whole.capture(scheduled, (model, optimizer, x))
    assert schedule.state_dict() == before and rate == torch.tensor(0.1)
    return True


def _equal_to_eager(rank):
    torch.manual_seed(SEED)
    x = torch.randn(5, 3)
    for step in (changes_in_place, zeros, leaves, evaluates, clone, swapped):
        model = Model()
        eager = Model()
        eager.load_state_dict(copy.deepcopy(model.state_dict()))
        before = state(model)
        captured = capture(step, model, x)
        assert state(model) == before, step.__name__
        run = torch.fx.Interpreter(torch.fx.GraphModule({}, captured.graph))
        values = [each.detach().clone() for each in (*model.parameters(), model.mean, x)]
        for _ in range(3):
            results = run.run(*values)
            for path, result in zip(captured.outputs, results):
                if path.endswith(" afterwards"):
                    number = captured.inputs.index(path.removesuffix(" afterwards"))
                    values[number] = result
            step(eager, x)
            for mine, expected in zip(values, (*eager.parameters(), eager.mean)):
                torch.testing.assert_close(mine, expected.detach())
                assert not mine.isnan().any()
    return True


def test_objects_that_a_step_changes_are_refused():
    print(f"seed {SEED}")
    assert ranks.run(1, _refuse) == [True]


def test_objects_of_optimizers_are_refused():
    print(f"seed {SEED}")
    assert ranks.run(1, _refuse_optimizers) == [True]


def test_steps_that_change_nothing_else_are_captured():
    print(f"seed {SEED}")
    assert ranks.run(1, _equal_to_eager) == [True]
