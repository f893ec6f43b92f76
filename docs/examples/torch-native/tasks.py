# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is trained: a small conv net on digits, and one block of a GPT on text."""

import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(EXAMPLES / "pytorch"))
import gpt  # noqa: E402
import resnet  # noqa: E402

BATCH = 16  # images, or sequences, of each rank


class Conv:
    """Two convolutions, a BatchNorm, whose buffers change, and max-pooling."""

    learning_rate = 0.1

    def __init__(self):
        digits = resnet.Task(is_tiny=True)
        self.labels = digits.labels
        # In their own size: the ResNet's are enlarged.
        self.images = functional.avg_pool2d(digits.images, 4)

    def make_model(self):
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 10),
        )

    def batch(self, generator):
        chosen = torch.randint(len(self.labels), (BATCH,), generator=generator)
        return self.images[chosen], self.labels[chosen]


class GPT:
    """Attention, layer norms, an embedding; learns to write these docs."""

    learning_rate = 0.2

    def __init__(self):
        self.context = 16
        self.text = gpt.load_text()

    def make_model(self):
        return gpt.GPT(width=32, layers=1, heads=2, context=self.context)

    def batch(self, generator):
        last = len(self.text) - self.context
        starts = torch.randint(last, (BATCH, 1), generator=generator)
        chosen = self.text[starts + torch.arange(self.context + 1)]
        return chosen[:, :-1], chosen[:, 1:]


TASKS = {"conv": Conv, "gpt": GPT}


def loss_of(logits, labels):
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
