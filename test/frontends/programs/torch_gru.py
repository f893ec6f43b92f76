# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A recurrent net over letters in PyTorch, cell by cell; Adagrad."""

import torch
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.nn import functional as F

LETTERS, WIDTH, LENGTH = 20, 12, 6


class CharRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, LETTERS)

    def forward(self, letters, hidden):
        scores = []
        for letter in letters.unbind(1):
            hidden = self.cell(self.embed(letter), hidden)
            scores.append(self.out(hidden))
        return torch.stack(scores, 1), hidden


def program(group):
    torch.manual_seed(4)
    model = CharRNN()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    squares = {k: torch.full_like(v, 0.1) for k, v in parameters.items()}

    def step(parameters, squares, hidden, letters):
        leaves = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        inputs = letters[:, :-1], hidden
        scores, hidden = torch.func.functional_call(model, leaves, inputs)
        loss = F.cross_entropy(scores.flatten(0, 1), letters[:, 1:].flatten())
        grads = torch.autograd.grad(loss, list(leaves.values()))
        grads = [funcol.all_reduce(grad, "avg", group) for grad in grads]
        squares = {k: s + g * g for (k, s), g in zip(squares.items(), grads)}
        new = {
            k: v - 0.1 * g / (squares[k].sqrt() + 1e-10)
            for (k, v), g in zip(parameters.items(), grads)
        }
        loss = funcol.all_reduce(loss.detach(), "avg", group)
        return new, squares, hidden.detach(), loss

    def data(generator):
        hidden = torch.randn(3, WIDTH, generator=generator)
        return hidden, torch.randint(LETTERS, (3, LENGTH + 1), generator=generator)

    return step, (parameters, squares), data, list(parameters)
