# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of whole steps to objects of libraries, to modules of the program, and to
tensors themselves: refused, or handled as in eager PyTorch.

The steps leave no gradients, so that only these changes distinguish the next step from
the first.
"""

import array
import collections
import copy
import ctypes
import functools
import itertools
import os
import queue
import random
import threading
import types
import weakref

import numpy
import pytest
import torch
import whole_settings
from torch import nn

import ranks
from test_whole import reduced
from test_whole_reached import capture

SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20266"))


class Rated:
    def __init__(self):
        self.rate = 1.0

    def read(self):
        return self.rate


class Twice(Rated):
    def read(self):
        return 2.0


class Number(float):
    """A number with attributes."""


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.other = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x):
        return self.other(self.linear(x)) + self.mean


def train(model, x, rate=1.0):
    model(x).square().sum().backward()
    for parameter in model.parameters():
        parameter.data = parameter.data - 0.1 * rate * reduced(parameter.grad)
    model.zero_grad()


def changed_in(holder, read, write):
    """Returns a step that doubles its rate in an object, and a function that reads the rate."""

    def step(model, x):
        train(model, x, read(holder))
        write(holder, 2 * read(holder))

    return step, lambda: read(holder)


def get(key):
    return lambda holder: holder[key]


def put(key):
    return lambda holder, value: holder.__setitem__(key, value)


def rated(find):
    """Accesses the rate of the object that `find` returns for another one."""
    return (lambda holder: find(holder).rate, lambda holder, v: setattr(find(holder), "rate", v))


KEPT = Rated()  # The object that weak references refer to.


def objects():
    """Yields cases: a step, the value that it changes, and its name in the message."""
    of_weak = weakref.WeakKeyDictionary({KEPT: 1.0})
    yield *changed_in(of_weak, get(KEPT), put(KEPT)), r"changes holder\.data\["
    yield *changed_in(weakref.ref(KEPT), *rated(lambda ref: ref())), r"changes holder\(\)\.rate"
    for kind in (collections.UserDict, lambda d: collections.ChainMap(d, {})):
        yield *changed_in(kind({"r": 1.0}), get("r"), put("r")), r"changes holder\..*\['r'\]"
    yield *changed_in(collections.UserList([1.0]), get(0), put(0)), r"changes holder\.data\[0\]"
    yield *changed_in(array.array("d", [1.0]), get(0), put(0)), "changes holder,"
    view = memoryview(bytearray(b"\1"))
    yield *changed_in(view, get(0), put(0)), "changes holder,"
    yield *changed_in(threading.local(), lambda h: getattr(h, "r", 1.0),
                      lambda h, v: setattr(h, "r", v)), r"changes holder\.r"
    proxy = types.MappingProxyType({"a": Rated()})
    yield *changed_in(proxy, *rated(get("a"))), r"changes holder\['a'\]\.rate"
    number = Number(1.0)
    number.rate = 1.0
    yield *changed_in(number, *rated(lambda number: number)), r"changes holder\.rate"
    yield *changed_in(whole_settings, lambda h: h.RATE, lambda h, v: setattr(h, "RATE", v)), (
        r"changes (holder|whole_settings)\.RATE"
    )

    waiting = queue.Queue()
    waiting.put(1.0)

    def taken(model, x):
        train(model, x, waiting.get())

    yield taken, lambda: list(waiting.queue), r"changes waiting\."

    for generator, draw in (
        (random.Random(3), "random"),
        (numpy.random.default_rng(3), "random"),
        (numpy.random.RandomState(3), "rand"),
        (numpy.random.rand.__self__, "rand"),
    ):
        yield drawn(generator, draw), lambda g=generator: repr_of(g), "draws from "

    values = [1.0]
    last, append = values.__getitem__, values.append

    def bound(model, x):
        train(model, x, last(-1))
        append(2.0)

    yield bound, lambda: len(values), r"changes (append|last)\[1\]"
    following = itertools.count(1).__next__

    def iterated(model, x):
        train(model, x, following())

    yield iterated, lambda: None, "takes from the iterator following"

    class_of = Rated()

    def classes(model, x):
        train(model, x, class_of.read())
        class_of.__class__ = Twice

    yield classes, lambda: type(class_of), r"changes class_of\.__class__"

    def one():
        return 1.0

    def two():
        return 2.0

    def coded(model, x):
        train(model, x, one())
        one.__code__ = two.__code__

    yield coded, lambda: one(), r"changes one\.__code__"
    for order in {"a": 1.0, "b": 2.0}, {torch.ones(2): 1.0, torch.ones(3): 2.0}:
        yield rotated(order), lambda o=order: [*map(id, o)], "changes the order of order"
    calls = []

    @functools.lru_cache
    def cached(value):
        calls.append(value)
        return value

    def once(model, x):
        train(model, x, cached(2.0) * (1 + len(calls)))

    yield once, lambda: list(calls), r"changes calls\[0\]"

    def by_text(model, x):
        train(model, x, globals()["RATE"])
        globals()["RATE"] *= 2

    yield by_text, lambda: RATE, "changes RATE"

    def imported(model, x):
        import whole_settings as own

        train(model, x, own.RATE)
        own.RATE *= 2

    yield imported, lambda: whole_settings.RATE, r"changes whole_settings\.RATE"
    scaler = torch.amp.GradScaler("cpu")

    def scaled(model, x):
        scaler.scale(model(x).square().sum()).backward()
        for parameter in model.parameters():
            parameter.data = parameter.data - 1e-6 * reduced(parameter.grad)
        model.zero_grad()

    yield scaled, lambda: scaler._scale, r"changes scaler\._scale"

    def grad_mode(model, x):
        train(model, x)
        torch.set_grad_enabled(False)

    yield grad_mode, torch.is_grad_enabled, r"changes torch\.is_grad_enabled\(\)"
    large = numpy.zeros(1 << 18)

    def writes(model, x):
        train(model, x, 1.0 + large[0])
        large[0] += 1

    yield writes, lambda: (large[0], large.flags.writeable), "arrays of more than 1 MiB"


RATE = 1.0


def rotated(order):
    def step(model, x):
        first = next(iter(order))
        train(model, x, order[first])
        order[first] = order.pop(first)

    return step


def drawn(generator, name):
    return lambda model, x: train(model, x, float(getattr(generator, name)()))


def repr_of(generator):
    from ddphook.torch import _contents

    return repr(_contents.read(generator))


def _refuse(rank):
    import ddphook

    torch.manual_seed(SEED)
    x = torch.randn(5, 3)
    for step, now, words in objects():
        before = now()
        with pytest.raises(ddphook.UnsupportedError, match=words):
            capture(step, Model(), x)
        assert now() == before, words
    # Such objects are not inspected; the next trace detects the change.
    unknown = ctypes.c_double(1.0)
    step, _ = changed_in(unknown, lambda c: c.value, lambda c, v: setattr(c, "value", v))
    with pytest.raises(ddphook.UnsupportedError, match="or of an object that"):
        capture(step, Model(), x)


def test_objects_of_libraries():
    print(f"seed {SEED}")
    ranks.run(1, _refuse)


def by_attributes(model, x):
    """Uses a separate rate for each parameter."""
    model(x).square().sum().backward()
    for parameter in model.parameters():
        rate = getattr(parameter, "rate", 0.1)
        parameter.data = parameter.data - rate * reduced(parameter.grad)
    model.mean.add_(getattr(model.mean, "more", 0.0))
    model.zero_grad()


def left_attribute(model, x):
    train(model, x, getattr(model.linear.weight, "rate", 1.0))
    model.linear.weight.rate = 2.0


def left_list(model, x):
    """Would double the rate from the second step on."""
    train(model, x, 2.0 if hasattr(model.linear.weight, "seen") else 1.0)
    model.linear.weight.seen = [x.sum()]


def deep_attribute(model, x):
    table = model.linear.weight.table
    train(model, x, table["rate"])
    table["rate"] *= 2


def tied(model, x):
    train(model, x)
    model.other.bias = model.linear.bias


def lies_over(model, x):
    train(model, x)
    model.other.bias.data = model.other.bias.data * 2
    model.linear.bias = nn.Parameter(model.other.bias.detach())


def new_parameter(model, x):
    train(model, x)
    model.linear.weight = nn.Parameter(model.linear.weight.detach() * 0.5)


def frozen_parameter(model, x):
    train(model, x)
    model.other.bias = nn.Parameter(model.other.bias.detach() * 2, requires_grad=False)


def new_buffer(model, x):
    train(model, x, getattr(model.mean, "more", 1.0))
    model.mean = model.mean * 0.5


def transposed(model, x):
    train(model, x)
    model.other.weight.data = model.other.weight.data.t()


def gradient(model, x):
    train(model, x)
    model(x).sum().backward()
    model.linear.bias.data = model.linear.bias.grad


def written_later(model, x):
    train(model, x)
    new = model.linear.bias.detach() * 2
    model.linear.bias.data = new
    new.add_(1)


def written_by_a_view(model, x):
    train(model, x)
    new = torch.ones(2, 2) * x.sum()
    model.linear.bias.data = new[0]
    new.mul_(2)


def read_later(model, x):
    train(model, x)
    new = model.linear.bias.detach() * 2
    model.linear.bias.data = new
    model.linear.bias.data.add_(1)
    model.mean.add_(new)
    model.linear.bias.data = model.linear.bias.data * 0.5
    model.mean.add_(new)


def read_before(model, x):
    train(model, x)
    before = model.linear.bias.data
    model.linear.bias.data = before * 2
    model.mean.copy_(model.linear.bias.data - before)
    model.linear.bias.data = model.linear.bias.data


def shared_for_a_while(model, x):
    train(model, x)
    model.other.bias.data = model.linear.bias.data
    model.linear.bias.data.add_(1)
    model.other.bias.data = model.other.bias.data * 0.5


def compiled_inside(model, x):
    train(model, torch.compile(lambda value: value * 2, backend="eager")(x))


def make():
    model = Model()
    model.linear.weight.rate = 0.3
    model.linear.weight.table = {"rate": 1.0}
    model.mean.more = 0.25
    return model


TENSORS = (
    (left_attribute, r"changes \[0\]\['linear\.weight'\]\.rate,"),
    (left_list, r"changes \[0\]\['linear\.weight'\]\.seen,"),
    (deep_attribute, r"changes \[0\]\['linear\.weight'\]\.table\['rate'\]"),
    (tied, r"\[0\]\['other\.bias'\] shares memory with \[0\]\['linear\.bias'\];"),
    (lies_over, r"shares memory with .*; assign a clone\(\)"),
    (new_parameter, r"\[0\]\['linear\.weight'\] the same tensor, .* not have its hooks or attr"),
    (frozen_parameter, r"\[0\]\['other\.bias'\] with requires_grad=True"),
    (new_buffer, r"leaves \[0\]\['mean'\] the same tensor"),
    (transposed, r"different memory than the tensor's, .* assign a clone\(\)"),
    (gradient, r"\[0\]\['linear\.bias'\]\.grad shares memory with \[0\]\['linear\.bias'\]"),
)

EQUAL = (
    by_attributes,
    compiled_inside,
    written_later,
    written_by_a_view,
    read_later,
    read_before,
    shared_for_a_while,
)


def _tensors(rank):
    import ddphook
    from ddphook.torch import _whole

    torch.manual_seed(SEED)
    x = torch.randn(5, 3)
    for step, words in TENSORS:
        model = make()
        with pytest.raises(ddphook.UnsupportedError, match=words):
            capture(step, model, x)
        assert model.linear.weight.table == {"rate": 1.0}
        assert model.linear.weight.rate == 0.3

    class Own(nn.Parameter):
        pass

    model = Model()
    model.linear.weight = Own(model.linear.weight.detach())
    with pytest.raises(ddphook.UnsupportedError, match=r"linear\.weight'\] is a Own"):
        capture(train, model, x)

    def optimized(model, optimizer, x):
        model.zero_grad()
        model(x).square().sum().backward()
        for parameter in model.parameters():
            parameter.grad = reduced(parameter.grad)
        optimizer.step()
        model.linear.weight = nn.Parameter(model.linear.weight.detach() * 0.5)
        return x.sum()

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ddphook.UnsupportedError, match="would not have an optimizer"):
        _whole.capture(optimized, (model, optimizer, x))

    for step in EQUAL:
        check_equal_to_eager(step, make(), x)


def check_equal_to_eager(step, model, x):
    eager = copy.deepcopy(model)
    for mine, other in zip(model.parameters(), eager.parameters()):
        vars(other).update(vars(mine))
    eager.mean.more = model.mean.more
    captured = capture(step, model, x)
    run = torch.fx.Interpreter(torch.fx.GraphModule({}, captured.graph))
    values = [each.detach().clone() for each in (*model.parameters(), model.mean, x)]
    for number in range(3):
        for path, result in zip(captured.outputs, run.run(*values)):
            if path.endswith(" afterwards"):
                values[captured.inputs.index(path.removesuffix(" afterwards"))] = result
        step(eager, x)
        for mine, expected in zip(values, (*eager.parameters(), eager.mean)):
            torch.testing.assert_close(mine, expected.detach(), msg=f"{step}, {number}")


def test_what_is_at_tensors():
    print(f"seed {SEED}")
    ranks.run(1, _tensors)
