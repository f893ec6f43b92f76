# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An encoder in PyTorch's own layers, which fills in masked words; some of each
sentence is padding; all gradients go through one coalesced start."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, LENGTH = 30, 16, 8
MASK, PAD = 1, 0

collectives = torch.ops._c10d_functional


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) / 10)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 32, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.words(tokens) + self.positions
        bias = torch.where(tokens == PAD, float("-inf"), 0.0)
        return self.head(self.encoder(x, src_key_padding_mask=bias))


def program(group):
    torch.manual_seed(3)
    model = Encoder()
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def step(parameters, tokens, labels):
        leaves = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        logits = torch.func.functional_call(model, leaves, tokens)
        loss = F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=0.1
        )
        grads = torch.autograd.grad(loss, list(leaves.values()))
        size = dist.get_world_size()
        sums = collectives.all_reduce_coalesced([*grads], "sum", group.group_name)
        sums = [collectives.wait_tensor(total) / size for total in sums]
        new = {k: v - 0.2 * g for (k, v), g in zip(parameters.items(), sums)}
        mean = collectives.all_reduce(loss.detach(), "avg", group.group_name)
        return new, collectives.wait_tensor(mean)

    def data(generator):
        tokens = torch.randint(2, VOCABULARY, (3, LENGTH), generator=generator)
        labels = torch.full_like(tokens, -100)
        labels[:, 1:5:2] = tokens[:, 1:5:2]
        tokens[:, 1:5:2] = MASK
        tokens[0, 6:] = PAD
        return tokens, labels

    return step, (parameters,), data, list(parameters)
