# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A U-net in PyTorch that takes noise out of images; its gradients are added up over
micro-batches and reduced at the end; an average of the weights runs beside them."""

import torch
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.nn import functional as F

MICRO_BATCHES = 2


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.GroupNorm(2, outputs),
            nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.LeakyReLU(0.1),
        )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = DoubleConv(1, 4)
        self.middle = DoubleConv(4, 8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.merge = DoubleConv(8, 4)
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        x = self.up(self.middle(F.max_pool2d(skip, 2)))
        return self.out(self.merge(torch.cat([x, skip], dim=1)))


def program(group):
    torch.manual_seed(7)
    model = UNet()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    averages = {k: v.clone() for k, v in parameters.items()}

    def step(parameters, averages, images, noise):
        leaves = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        total, grads = 0.0, None
        for image, part in zip(images.chunk(MICRO_BATCHES), noise.chunk(MICRO_BATCHES)):
            found = torch.func.functional_call(model, leaves, image + part)
            loss = F.mse_loss(found, part) / MICRO_BATCHES
            more = torch.autograd.grad(loss, list(leaves.values()))
            grads = more if grads is None else [a + b for a, b in zip(grads, more)]
            total = total + loss.detach()
        grads = [funcol.all_reduce(grad, "avg", group) for grad in grads]
        grads = [grad.clamp(-1, 1) for grad in grads]
        new = {k: v - 0.1 * g for (k, v), g in zip(parameters.items(), grads)}
        averages = {k: 0.99 * v + 0.01 * new[k] for k, v in averages.items()}
        return new, averages, funcol.all_reduce(total, "avg", group)

    def data(generator):
        images = torch.rand(4, 1, 8, 8, generator=generator)
        return images, torch.randn(4, 1, 8, 8, generator=generator)

    return step, (parameters, averages), data, list(parameters)
