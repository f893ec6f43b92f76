# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A GPT in PyTorch in the style of nanoGPT: the head is the table of the tokens; AdamW,
with weight decay for matrices only, behind a clipped norm."""

import torch
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT = 40, 16, 2, 2, 10


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.c_attn(x).split(WIDTH, dim=2)
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def program(group):
    torch.manual_seed(2)
    model = GPT()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    first = {k: torch.zeros_like(v) for k, v in parameters.items()}
    second = {k: torch.full_like(v, 1e-4) for k, v in parameters.items()}
    count = torch.tensor(7.0)

    def step(parameters, first, second, count, tokens):
        leaves = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        logits = torch.func.functional_call(model, leaves, tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        grads = torch.autograd.grad(loss, list(leaves.values()))
        grads = [funcol.all_reduce(grad, "avg", group) for grad in grads]
        norm = torch.stack([grad.square().sum() for grad in grads]).sum().sqrt()
        grads = [grad * torch.clamp(1.0 / (norm + 1e-6), max=1.0) for grad in grads]
        count = count + 1
        new, new_first, new_second = {}, {}, {}
        for (name, value), grad in zip(parameters.items(), grads):
            m = 0.9 * first[name] + 0.1 * grad
            v = 0.95 * second[name] + 0.05 * grad * grad
            m_hat, v_hat = m / (1 - 0.9**count), v / (1 - 0.95**count)
            decay = 0.1 if value.dim() > 1 else 0.0
            new[name] = value - 1e-2 * (m_hat / (v_hat.sqrt() + 1e-8) + decay * value)
            new_first[name], new_second[name] = m, v
        loss = funcol.all_reduce(loss.detach(), "avg", group)
        return new, new_first, new_second, count, loss

    def data(generator):
        return (torch.randint(VOCABULARY, (2, CONTEXT + 1), generator=generator),)

    return step, (parameters, first, second, count), data, list(parameters)
