# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small GPT that learns to write these docs: 1.9 million parameters.

A decoder-only transformer over bytes, with layer norms in front as in GPT-2.
The text is what lies in docs/*.md, so that losses change a little with the docs.
"""

import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import shared  # noqa: E402

VOCABULARY = 256  # bytes


class Block(nn.Module):
    """Causal self-attention, then a perceptron, each added to its input."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        split = self.attend(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.perceptron(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width, layers, heads, context):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.3)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def load_text():
    return torch.tensor(list(shared.read_text()))


class Task:
    """What train.py needs: a model, an optimizer, and the loss of a step."""

    batch = 8  # sequences of each rank

    def __init__(self, is_tiny):
        self.sizes = (16, 1, 2, 16) if is_tiny else (192, 4, 6, 64)
        self.context = self.sizes[-1]
        self.text = load_text()

    def make_model(self):
        return GPT(*self.sizes)

    def make_optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=1e-3)

    def loss(self, model, generator):
        starts = torch.randint(
            len(self.text) - self.context, (self.batch, 1), generator=generator
        )
        chosen = self.text[starts + torch.arange(self.context + 1)]
        logits = model(chosen[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), chosen[:, 1:].flatten())
