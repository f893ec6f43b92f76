# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models, and a training loop that every test uses."""

import contextlib

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        hidden = x.view(-1, 4, 16)
        mixed = self.attention(hidden, hidden, hidden, need_weights=False)[0]
        return self.norm(mixed).flatten(1)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.head = nn.Linear(96, 16)

    def forward(self, x):
        tokens = (x[:, :8].abs() * 49).long().clamp(0, 49)
        return self.head(self.embedding(tokens).flatten(1))


class Tied(nn.Module):
    """An embedding, attention, and a head with the embedding's weights."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        tokens = (x[:, :8].abs() * 49).long().clamp(0, 49)
        hidden = self.embedding(tokens)
        return self.head(self.attention(hidden, hidden, hidden)[0]).flatten(1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 24, batch_first=True)
        self.head = nn.Linear(24, 16)

    def forward(self, x):
        return self.head(self.lstm(x.view(-1, 8, 8))[0][:, -1])


class Unused(nn.Module):
    """Uses its two branches alternately; the other one has no gradients."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(64, 48)
        self.branches = nn.ModuleList([nn.Linear(48, 16), nn.Linear(48, 16)])
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.branches[self.calls % 2](self.trunk(x).relu())


class MixedTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow = nn.Linear(64, 48)
        self.wide = nn.Linear(48, 16).double()

    def forward(self, x):
        return self.wide(self.narrow(x).relu().double()).float()


class SixteenBits(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow = nn.Linear(64, 37).half()
        self.brain = nn.Linear(37, 16).bfloat16()

    def forward(self, x):
        return self.brain(self.narrow(x.half()).relu().bfloat16()).float()


class Odd(nn.Module):
    """Has empty parameters, one of them alone in its bucket, and parameters that are views."""

    def __init__(self):
        super().__init__()
        self.empty = nn.Parameter(torch.zeros(3, 0))
        self.alone = nn.Parameter(torch.zeros(0, dtype=torch.float64))
        memory = torch.rand(16, 128)
        self.view = nn.Parameter(memory[:, ::2])
        self.shared = nn.Parameter(memory[0])

    def forward(self, x):
        nothing = self.empty.sum() + self.alone.sum()
        return (x @ self.view.t()) * self.shared[:16] + nothing.float()


def mlp():
    return nn.Sequential(
        nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 80), nn.ReLU(), nn.Linear(80, 16)
    )


def normalized():
    return nn.Sequential(
        nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16)
    )


class Tiny(nn.Module):
    """One large parameter and many tiny ones."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 500)
        self.factors = nn.ParameterList(
            [nn.Parameter(torch.full((1 + i % 3,), 1 + i / 1000)) for i in range(40)]
        )

    def forward(self, x):
        return self.head(x) * sum(factor.sum() for factor in self.factors)


class Two(nn.Module):
    """Two independent models."""

    def __init__(self):
        super().__init__()
        self.first, self.second = mlp(), normalized()

    def forward(self, x):
        return self.first(x) * self.second(x)


def conv():
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Flatten(),
        nn.Linear(512, 16),
    )


def strided():
    """Weights whose memory is not row-major."""
    model = conv().to(memory_format=torch.channels_last)
    model[6].weight = nn.Parameter(model[6].weight.detach().t().contiguous().t())
    return model


def frozen():
    model = mlp()
    for parameter in model[2].parameters():
        parameter.requires_grad = False
    return model


def scalars():
    """Many tiny parameters, and one large one."""

    class Scalars(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = nn.ParameterList(
                [nn.Parameter(torch.tensor(1.0 + i / 1000)) for i in range(40)]
            )
            self.head = nn.Linear(64, 256)

        def forward(self, x):
            for factor in self.factors:
                x = x * factor
            return self.head(x)

    return Scalars()


MODELS = {
    "mlp": mlp,
    "conv": conv,
    "attention": Attention,
    "tokens": Tokens,
    "normalized": normalized,
    "tiny": Tiny,
    "two": Two,
    "tied": Tied,
    "recurrent": Recurrent,
    "strided": strided,
    "frozen": frozen,
    "mixed-types": MixedTypes,
    "sixteen-bits": SixteenBits,
    "scalars": scalars,
    "unused": Unused,
    "odd": Odd,
}


def make(name, rank, **ddp_options):
    """Returns a model in DDP, with the same parameters on all ranks."""
    torch.manual_seed(7)
    return DistributedDataParallel(MODELS[name](), **ddp_options)


def train(ddp, rank, steps, *, first=0, seed=1, accumulate=1, context=None, lr=0.05):
    """Trains, and returns the parameters after each step, flattened, in f64."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=lr)
    history = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step * 101 + rank)
        optimizer.zero_grad()
        for micro in range(accumulate):
            x = torch.rand(6, 64, generator=generator) * 2 - 1
            last = micro == accumulate - 1
            with contextlib.nullcontext() if last else ddp.no_sync():
                with context() if context else contextlib.nullcontext():
                    y = ddp(x)
                    loss = (y.float() - 0.3).square().mean()
                loss.backward()
        optimizer.step()
        history.append(parameters(ddp))
    return history


def parameters(ddp):
    return torch.cat([p.detach().double().flatten() for p in ddp.parameters()])


def difference(ours, theirs):
    """Returns the largest difference over all steps, relative to the largest parameter."""
    return max(
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs)
    )


def check_equal(ours, theirs, what=""):
    """Checks that bits are equal after every step."""
    assert len(ours) == len(theirs)
    for step, (a, b) in enumerate(zip(ours, theirs)):
        assert b.isfinite().all(), f"{what}: training diverges"
        wrong = int((a != b).sum())
        assert wrong == 0, f"{what}: {wrong} of {a.numel()} differ after step {step}"
