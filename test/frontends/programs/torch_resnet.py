# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A residual net with batch normalization in PyTorch; SGD with Nesterov's momentum and
weight decay, by PyTorch's own function."""

import torch
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.nn import functional as F
from torch.optim.sgd import sgd


def conv3x3(inputs, outputs, stride=1):
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + identity)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = conv3x3(3, 8)
        self.bn1 = nn.BatchNorm2d(8)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def program(group):
    torch.manual_seed(0)
    model = ResNet()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    buffers = {k: v.detach() for k, v in model.named_buffers()}
    momenta = [torch.zeros_like(v) for v in parameters.values()]

    def step(parameters, buffers, momenta, images, labels):
        leaves = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        buffers = {k: v.clone() for k, v in buffers.items()}
        logits = torch.func.functional_call(model, (leaves, buffers), (images,))
        loss = F.cross_entropy(logits, labels)
        grads = torch.autograd.grad(loss, list(leaves.values()))
        grads = [funcol.all_reduce(grad, "avg", group) for grad in grads]
        new = [v.clone() for v in parameters.values()]
        momenta = [v.clone() for v in momenta]
        sgd(
            new,
            grads,
            momenta,
            foreach=False,
            weight_decay=1e-4,
            momentum=0.9,
            lr=0.1,
            dampening=0.0,
            nesterov=True,
            maximize=False,
        )
        loss = funcol.all_reduce(loss.detach(), "avg", group)
        return dict(zip(parameters, new)), buffers, momenta, loss

    def data(generator):
        images = torch.randn(4, 3, 12, 12, generator=generator)
        return images, torch.randint(10, (4,), generator=generator)

    return step, (parameters, buffers, momenta), data, list(parameters)
