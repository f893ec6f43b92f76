# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A switch layer in PyTorch: each token goes to its best expert, and a loss keeps the
experts even; plain SGD; sums are multiplied by one over the number of ranks."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.nn import functional as F

WIDTH, HIDDEN, EXPERTS, TOKENS = 8, 16, 3, 12


class SwitchLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) / HIDDEN**0.5)

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        gate, chosen = probabilities.max(-1)
        mask = F.one_hot(chosen, EXPERTS).to(x.dtype)
        hidden = F.gelu(torch.einsum("te,tw,ewh->teh", mask, x, self.up))
        output = torch.einsum("te,teh,ehw->tw", mask, hidden, self.down)
        balance = EXPERTS * (mask.mean(0) * probabilities.mean(0)).sum()
        return gate[:, None] * output, balance


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.switch = SwitchLayer()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        output, balance = self.switch(self.norm(x))
        return self.head(x + output), balance


def program(group):
    torch.manual_seed(6)
    model = Model()
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def step(parameters, x, y):
        leaves = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        prediction, balance = torch.func.functional_call(model, leaves, x)
        loss = F.smooth_l1_loss(prediction, y) + 0.01 * balance
        grads = torch.autograd.grad(loss, list(leaves.values()))
        part = 1 / dist.get_world_size()
        grads = [funcol.all_reduce(grad, "sum", group) * part for grad in grads]
        new = {k: v - 0.1 * g for (k, v), g in zip(parameters.items(), grads)}
        return new, funcol.all_reduce(loss.detach(), "sum", group) * part

    def data(generator):
        x = torch.randn(TOKENS, WIDTH, generator=generator)
        return x, torch.randn(TOKENS, 4, generator=generator)

    return step, (parameters,), data, list(parameters)
