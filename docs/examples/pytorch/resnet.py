# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ResNet-18 on handwritten digits: 11.2 million parameters.

The network of He et al., "Deep Residual Learning for Image Recognition"
(https://arxiv.org/abs/1512.03385), with one channel in and ten classes out. The
digits of docs/examples/digits are scaled from 8 x 8 to 32 x 32 pixels, so that
a step takes a fraction of a second on one core.
"""

import pathlib

import torch
from torch import nn
from torch.nn import functional

DIGITS = pathlib.Path(__file__).resolve().parents[1] / "digits" / "digits.txt"
PIXELS = 32
BATCH = 16  # images of each rank


def convolution(inputs, outputs, size, stride=1):
    """Without a bias, which the normalization behind it would take out."""
    padding = size // 2
    return nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)


class Block(nn.Module):
    """Two 3 x 3 convolutions, and a shortcut around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, outputs, 3, stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            convolution(outputs, outputs, 3),
            nn.BatchNorm2d(outputs),
        )
        # At first a block is its shortcut alone, which trains more steadily.
        nn.init.zeros_(self.body[-1].weight)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet18(width):
    """Four stages of two blocks; `width` channels in the first one."""
    layers = [
        convolution(1, width, 7, stride=2),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    channels = width
    for stage in range(4):
        outputs = width << stage
        layers.append(Block(channels, outputs, stride=1 if stage == 0 else 2))
        layers.append(Block(outputs, outputs, stride=1))
        channels = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*layers)


def load_digits():
    """All images as N x 1 x 32 x 32, from 0 to 1, and their labels."""
    lines = DIGITS.read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    pixels = [[int(pixel, 17) for pixel in row[0]] for row in rows]
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    images = functional.interpolate(images, size=(PIXELS, PIXELS), mode="bilinear")
    return images, torch.tensor([int(row[1]) for row in rows])


class Task:
    """What train.py needs: a model, an optimizer, and the loss of a step."""

    def __init__(self, is_tiny):
        self.width = 4 if is_tiny else 64
        self.images, self.labels = load_digits()

    def make_model(self):
        return resnet18(self.width)

    def make_optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def loss(self, model, generator):
        chosen = torch.randint(len(self.labels), (BATCH,), generator=generator)
        logits = model(self.images[chosen])
        return functional.cross_entropy(logits, self.labels[chosen])
