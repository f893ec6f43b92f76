# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole steps with an optimizer as an input: its state is an argument and a result.
Compares with PyTorch's own training with the same optimizer."""

import os
import re
import subprocess

import pytest
import torch
from torch import nn

import ranks
from conftest import ROOT

TOOL = os.environ.get("DDPHOOK_RUN", str(ROOT / "build" / "bin" / "ddphook-run"))
EXEC, CC = (TOOL.replace("ddphook-run", name) for name in ("ddphook-exec", "ddphook-cc"))
IMPORT = "builtin.module(ddp-import-fx)"
SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20263"))
STEPS = 4
# Relative to the largest number of a tensor: each step sums some ten products in another
# order, and Adam divides the sums. Gradients are large enough for that.
TOLERANCE = 2e-5

_ops = torch.ops._c10d_functional
optim = torch.optim
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.05),
    "momentum": lambda p: optim.SGD(
        p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "adam": lambda p: optim.Adam(p, 0.01, eps=1e-6),
    "adamw": lambda p: optim.AdamW(p, 0.01, amsgrad=True, eps=1e-6),
    # The step itself changes the rate, and some parameters have another one.
    "rates": lambda p: optim.AdamW(
        [{"params": p[1:]}, {"params": p[:1], "lr": 0.003, "maximize": True}],
        torch.tensor(0.01),
        eps=1e-6,
    ),
    "nadam": lambda p: optim.NAdam(p, 0.002, eps=1e-6),
}


def reduced(tensor):
    return _ops.wait_tensor(_ops.all_reduce(tensor, "avg", "0"))


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = (model(x) - y).square().sum()
    loss.backward()
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad = reduced(parameter.grad)
    optimizer.step()
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].mul_(0.5)
    return reduced(loss.detach())


def make(name):
    torch.manual_seed(SEED)
    # A bias before the normalization would have a gradient of zero, except for rounding.
    layers = nn.Linear(64, 12, bias=False), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 16)
    model = nn.Sequential(*layers)
    model[3].bias.requires_grad_(False)
    return model, OPTIMIZERS[name](list(model.parameters()))


def data(rank, number):
    generator = torch.Generator().manual_seed(SEED + 10 * number + rank)
    return torch.randn(6, 64, generator=generator), torch.randn(6, 16, generator=generator)


def kept(model, optimizer):
    """Returns the tensors by their names in a module's comments."""
    found = {f"[0]['{name}']": value for name, value in model.state_dict().items()}
    names = {value: name for name, value in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            found[f"[1]['{names[parameter]}']['{key}']"] = value
    for number, group in enumerate(optimizer.param_groups):
        if isinstance(group["lr"], torch.Tensor):
            found[f"[1].param_groups[{number}]['lr']"] = group["lr"]
    return {path: value.clone() for path, value in found.items()}


def _check_ddp(name, directory, rank):
    """A DDP model and its optimizer give the same arguments and results as without DDP."""
    import ddphook.torch

    torch._dynamo.config.optimize_ddp = "python_reducer"
    model, optimizer = make(name)
    ddp = nn.parallel.DistributedDataParallel(model)
    if rank == 0:
        file = directory / "ddp.mlir"
        ddphook.torch.export(step, ddp, optimizer, *data(0, 0), file=file, whole=True)
        texts = [path.read_text() for path in (file, directory / f"{name}.mlir")]
        comments = [re.findall("^// (?:arg|result).*", text, flags=re.M) for text in texts]
        assert comments[0] == comments[1]


def _train(rank, world, directory, cases):
    """Returns, for each case, the state before and after the steps."""
    import ddphook.torch

    results = {}
    for name, earlier in cases:
        model, optimizer = make(name)
        for number in range(earlier):
            step(model, optimizer, *data(rank, STEPS + number))
        optimizer.zero_grad()
        begin = kept(model, optimizer)
        if rank == 0:
            file = directory / f"{name}.mlir"
            arguments = model, optimizer, *data(rank, 0)
            ddphook.torch.export(step, *arguments, file=file, whole=True)
        if world == 2 and not earlier:
            _check_ddp(name, directory, rank)
        now = kept(model, optimizer)
        assert now.keys() == begin.keys()
        assert all(value.equal(begin[path]) for path, value in now.items())
        assert all(value.grad is None for value in model.parameters())
        losses = [step(model, optimizer, *data(rank, number)) for number in range(STEPS)]
        end = kept(model, optimizer)
        lists = [{k: v.numpy() for k, v in part.items()} for part in (begin, end)]
        results[name] = *lists, [float(loss) for loss in losses]
    return results


def run_native(directory, name, world, begins):
    """Returns a rank's state after the steps, and its losses."""
    from safetensors.torch import load_file, save_file

    source, module = directory / f"{name}.mlir", directory / f"{name}.so"
    command = [CC, source, "-o", module, "--shared", "--ddp-pipeline=hook=allreduce"]
    command.append(f"--preprocessing-pass-pipeline={IMPORT}")
    subprocess.run(command, check=True, timeout=900)
    text = source.read_text()
    arguments = dict(re.findall(r"^// (arg\d+) is ([^,\n]*)", text, flags=re.M))
    results = dict(re.findall(r"^// (result\d+) is (.*)$", text, flags=re.M))
    first = re.findall(r"^// arg\d+ is ([^,\n]*), at first (\S+)$", text, flags=re.M)
    shapes = {f"[0]['{n}']": v.shape for n, v in make(name)[0].state_dict().items()}

    def begin(path):
        value = float(dict(first)[path])
        owner, key = re.match(r"\[1\](\['[^']*'\])\['(.*)'\]", path).groups()
        is_scalar = key in ("step", "mu_product", "eta", "mu")
        return torch.full(() if is_scalar else shapes["[0]" + owner], value)

    now = [
        {
            path: torch.from_numpy(own[path]) if path in own else begin(path)
            for path in arguments.values()
            if path not in ("[2]", "[3]")
        }
        for own in begins
    ]
    losses = [[] for _ in begins]
    for number in range(STEPS):
        for rank, own in enumerate(now):
            given = {**own, **dict(zip(("[2]", "[3]"), data(rank, number)))}
            given = {arg: given[path].contiguous() for arg, path in arguments.items()}
            save_file(given, directory / f"in.{rank}")
        command = [EXEC, module, "--entry=step", f"--ranks={world}", "--quiet"]
        command += [f"--{side}puts={directory}/{side}.{{rank}}" for side in ("in", "out")]
        subprocess.run(command, check=True, timeout=900)
        for rank, own in enumerate(now):
            for key, value in load_file(directory / f"out.{rank}").items():
                path = results[key]
                if path.endswith(" afterwards"):
                    own[path.removesuffix(" afterwards")] = value
                else:
                    losses[rank].append(float(value))
    return now, losses


@pytest.mark.parametrize(
    "world, cases",
    [
        (1, [("adam", 0), ("nadam", 0)]),
        (2, [("momentum", 0), ("adamw", 2), ("rates", 0)]),
    ],
)
def test_training_equals_pytorchs(tmp_path, world, cases):
    print(f"seed {SEED}")
    trained = ranks.run(world, _train, world, tmp_path, cases)
    for name, earlier in cases:
        begins, ends, losses = zip(*(own[name] for own in trained))
        text = (tmp_path / f"{name}.mlir").read_text()
        # Each gradient has its parameter's name, although other states have the same shape.
        names = re.findall(r'names = \["([^"]+)"\]', text)
        moved = [n for n, _ in make(name)[0].named_parameters() if n != "3.bias"]
        assert sorted(names) == sorted(moved)
        assert (", at first 0" in text) == (earlier == 0 and name not in ("sgd",))
        native, native_losses = run_native(tmp_path, name, world, begins)
        for rank, end in enumerate(ends):
            # A parameter that does not change has no state.
            assert native[rank].keys() == end.keys()
            for path, value in end.items():
                expected = torch.from_numpy(value)
                mine = native[rank][path]
                assert (mine.dtype, mine.shape) == (expected.dtype, expected.shape)
                scale = float(expected.abs().max()) if expected.numel() else 0.0
                error = float((mine - expected).abs().max())
                assert error <= TOLERANCE * scale, f"{name}: {path}: {error} of {scale}"
            assert native_losses[rank] == pytest.approx(losses[rank], rel=TOLERANCE)


def _refused(rank, directory):
    import ddphook
    import ddphook.torch

    def export(function, *arguments):
        ddphook.torch.export(
            function, *arguments, *data(0, 0), file=directory / "no.mlir", whole=True
        )

    def refuse(text, function, *arguments):
        with pytest.raises(ddphook.UnsupportedError, match=text):
            export(function, *arguments)

    model, adam = make("adam")
    other = optim.Adam(nn.Linear(2, 3).parameters())
    refuse(r"\[1\] to optimize models .* Adam .* shape \(3, 2\)", step, model, other)

    def not_given(model, x, y):
        return step(model, adam, x, y)

    refuse(r"this Adam, .* '0.weight', to be an input .*step\(model, optim", not_given, model)

    def schedule(model, optimizer, x, y):
        loss = step(model, optimizer, x, y)
        optimizer.param_groups[0]["lr"] *= 0.5
        return loss

    refuse(r"changes \[1\]\.param_groups\[0\]\['lr'\],", schedule, model, adam)
    assert adam.param_groups[0]["lr"] == 0.01 and not adam.state
    dampened = optim.SGD(model.parameters(), 0.1, momentum=0.9, dampening=0.1)
    refuse(r"\[1\], an SGD with dampening, to have taken a step", step, model, dampened)
    adagrad = optim.Adagrad(model.parameters())
    refuse(r"'aten._local_scalar_dense.*test_whole_optimizers.py:\d+", step, model, adagrad)
    lbfgs = optim.LBFGS(model.parameters())
    lbfgs.state[model[0].weight]["d"] = [1]
    refuse(r"keeps tensors, but \[1\]\['0.weight'\]\['d'\] is a list", step, model, lbfgs)

    class Late(optim.Optimizer):
        """An optimizer whose state appears in its first step."""

        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        def step(self):
            for value in self.param_groups[0]["params"]:
                if value.grad is not None:
                    self.state[value].setdefault("sum", torch.zeros(())).add_(1)

    late = Late(model.parameters())
    refuse(r"this Late adds some in a later step; let it take a step", step, model, late)
    assert not late.state and not torch.compiler.is_compiling()
    assert not (directory / "no.mlir").exists()
    step(model, late, *data(0, 0))
    export(step, model, late)


def test_refused(tmp_path):
    ranks.run(1, _refused, tmp_path)


def fewer(group):
    group["params"].pop()


def counted(group):
    group["calls"] = group.get("calls", 0) + 1


def last(group):
    """Would use what the previous step left in the group."""
    for parameter in group["params"]:
        if parameter.grad is not None and "last" in group:
            parameter.grad.add_(group["last"][0])
    group["last"] = [group["params"][0].detach().sum()]


def listed(group):
    group["factors"][0] *= 2


# Changes of a step to an optimizer, with the message about each.
CHANGES = (
    (lambda m, o: fewer(o.param_groups[0]), r"changes \[1\]\.param_groups\[0\]\['params'\]\[3\],"),
    (lambda m, o: counted(o.param_groups[0]), r"changes \[1\]\.param_groups\[0\]\['calls'\],"),
    (lambda m, o: last(o.param_groups[0]), r"previous step left in \[1\]\.param_groups\[0\]\['last'\]"),
    (lambda m, o: listed(o.param_groups[0]), r"\[1\]\.param_groups\[0\]\['factors'\]\[0\]"),
    (
        lambda m, o: o.add_param_group({"params": [m[3].bias]}),
        r"changes \[1\]\.param_groups\[1\],",
    ),
    (
        lambda m, o: o.register_step_post_hook(lambda *_: None),
        r"changes \[1\]\._optimizer_step_post_hooks",
    ),
)


def _change(rank):
    import ddphook
    from ddphook.torch import _whole

    for change, words in CHANGES:
        model, _ = make("sgd")
        *others, _ = model.parameters()
        optimizer = optim.SGD([{"params": others, "factors": [1.0]}], lr=0.1)
        calls = [1.0]
        before = repr(optimizer.param_groups), len(optimizer._optimizer_step_post_hooks)

        def changing(model, optimizer, x, y):
            loss = step(model, optimizer, x, y)
            change(model, optimizer)
            optimizer.zero_grad()
            return loss

        with pytest.raises(ddphook.UnsupportedError, match=words):
            _whole.capture(changing, (model, optimizer, *data(0, 0)))
        after = repr(optimizer.param_groups), len(optimizer._optimizer_step_post_hooks)
        assert after == before

        def hook(*_):
            calls[0] *= 2

        optimizer.register_step_post_hook(hook)
        with pytest.raises(ddphook.UnsupportedError, match=r"changes calls\[0\]"):
            _whole.capture(step, (model, optimizer, *data(0, 0)))
        assert calls == [1.0]


def test_changes_of_groups_and_hooks():
    ranks.run(1, _change)
