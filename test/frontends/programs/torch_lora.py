# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LoRA in PyTorch: a vision transformer of bfloat16, whose frozen linear layers get
small matrices beside them, which alone are trained, as float32; Adam."""

import torch
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, PATCH, RANK = 16, 2, 4, 2


class LoRALinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.to(torch.bfloat16).requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(RANK, base.in_features) / WIDTH**0.5)
        self.lora_b = nn.Parameter(torch.randn(base.out_features, RANK) / 10)

    def forward(self, x):
        frozen = self.base(x.to(torch.bfloat16)).float()
        return frozen + 2.0 * F.linear(F.linear(x, self.lora_a), self.lora_b)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = LoRALinear(nn.Linear(WIDTH, 3 * WIDTH))
        self.proj = LoRALinear(nn.Linear(WIDTH, WIDTH))
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = LoRALinear(nn.Linear(WIDTH, 2 * WIDTH))
        self.fc2 = LoRALinear(nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, length, 3, HEADS, -1)
        y = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.block = Block()
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.head(self.block(x)[:, 0])


def program(group):
    torch.manual_seed(5)
    model = ViT()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    trained = {k: v.detach() for k, v in model.named_parameters() if v.requires_grad}
    frozen = {k: v.detach() for k, v in model.named_parameters() if not v.requires_grad}
    first = {k: torch.zeros_like(v) for k, v in trained.items()}
    second = {k: torch.full_like(v, 1e-4) for k, v in trained.items()}

    def step(trained, first, second, frozen, images, labels):
        leaves = {k: v.detach().requires_grad_() for k, v in trained.items()}
        logits = torch.func.functional_call(model, {**leaves, **frozen}, images)
        loss = F.cross_entropy(logits, labels)
        grads = torch.autograd.grad(loss, list(leaves.values()))
        grads = [funcol.all_reduce(grad, "avg", group) for grad in grads]
        new, new_first, new_second = {}, {}, {}
        for (name, value), grad in zip(trained.items(), grads):
            new_first[name] = torch.lerp(first[name], grad, 0.1)
            new_second[name] = torch.lerp(second[name], grad * grad, 0.001)
            new[name] = value - 1e-3 * new_first[name] / (new_second[name].sqrt() + 1e-8)
        return new, new_first, new_second, funcol.all_reduce(loss.detach(), "avg", group)

    def data(generator):
        images = torch.randn(2, 3, 8, 8, generator=generator)
        return images, torch.randint(5, (2,), generator=generator)

    return step, (trained, first, second, frozen), data, list(trained)
