# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inverted residuals with depthwise convolutions in PyTorch, as one tunes them for
other images: the first layers are frozen and normalize by what they have learnt;
RMSProp; gradients are divided before they are added up."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.nn import functional as F


class SqueezeExcitation(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // 4, 1)
        self.fc2 = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x):
        scale = F.relu(self.fc1(x.mean((2, 3), keepdim=True)))
        return x * F.hardsigmoid(self.fc2(scale))


class InvertedResidual(nn.Module):
    def __init__(self, channels, expanded):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(channels, expanded, 1, bias=False),
            nn.BatchNorm2d(expanded),
            nn.Hardswish(),
            nn.Conv2d(expanded, expanded, 3, padding=1, groups=expanded, bias=False),
            nn.BatchNorm2d(expanded),
            nn.Hardswish(),
            SqueezeExcitation(expanded),
            nn.Conv2d(expanded, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return x + self.block(x)


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
        )
        self.features = InvertedResidual(8, 16)
        self.classifier = nn.Linear(8, 6)

    def forward(self, x):
        return self.classifier(self.features(self.stem(x)).mean((2, 3)))


def program(group):
    torch.manual_seed(1)
    model = MobileNet()
    model.stem.requires_grad_(False).eval()
    trained = {k: v.detach() for k, v in model.named_parameters() if v.requires_grad}
    frozen = {k: v.detach() for k, v in model.named_parameters() if not v.requires_grad}
    buffers = {k: v.detach() for k, v in model.named_buffers()}
    squares = {k: torch.full_like(v, 1e-4) for k, v in trained.items()}

    def step(trained, frozen, buffers, squares, images, labels):
        leaves = {k: v.detach().requires_grad_() for k, v in trained.items()}
        buffers = {k: v.clone() for k, v in buffers.items()}
        tensors = {**leaves, **frozen, **buffers}
        loss = F.cross_entropy(torch.func.functional_call(model, tensors, images), labels)
        grads = torch.autograd.grad(loss, list(leaves.values()))
        size = dist.get_world_size()
        grads = [funcol.all_reduce(grad / size, "sum", group) for grad in grads]
        new, new_squares = {}, {}
        for (name, value), grad in zip(trained.items(), grads):
            new_squares[name] = 0.9 * squares[name] + 0.1 * grad * grad
            new[name] = value - 1e-2 * grad / (new_squares[name].sqrt() + 1e-3)
        loss = funcol.all_reduce(loss.detach() / size, "sum", group)
        return new, frozen, buffers, new_squares, loss

    def data(generator):
        images = torch.randn(4, 3, 8, 8, generator=generator)
        return images, torch.randint(6, (4,), generator=generator)

    return step, (trained, frozen, buffers, squares), data, list(trained)
