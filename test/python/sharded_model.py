# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small sharded model, and what its training computes, modelled in one process.

Written from docs/sharded.md: every rank's gradients are computed one after another, laid
out as FSDP lays them out, and reduced by the models of hooks in test/parity.
"""

import math
import os
import pathlib
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "parity"))
import model  # noqa: E402
import powersgd_model  # noqa: E402
import quantization_model  # noqa: E402
from tensors import Tensor  # noqa: E402

SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "4343"))
# With a power of two, updates have the same bits with and without fused multiply-adds.
RATE = 2**-6


class Net(nn.Module):
    """Three parameter groups. 33 and 5 rows are uneven in any number of shards."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(SEED)
        self.first = nn.Linear(16, 33)
        self.second = nn.Linear(33, 8)
        self.scale = nn.Parameter(torch.rand(5, 3))

    def forward(self, x):
        return self.second(self.first(x).relu())[:, :5] @ self.scale


# In the order in which FSDP reduces them.
GROUPS = [["second.weight", "second.bias"], ["scale"], ["first.weight", "first.bias"]]


def mesh_of(shape):
    return init_device_mesh("cpu", shape, mesh_dim_names=("replica", "shard")[-len(shape) :])


def sharded(shape, made=None, shard=None, **options):
    """Returns a model with `shard`, by default ``fully_shard``, applied to each group."""
    from torch.distributed.fsdp import fully_shard

    made, shard = made or Net(), shard or fully_shard
    mesh = mesh_of(shape)
    for part in [made.first, made.second] if isinstance(made, Net) else made.children():
        shard(part, mesh=mesh, **options)
    return shard(made, mesh=mesh, **options)


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * SEED + 10 * step + rank)
    return torch.randn(4, 16, generator=generator)


def loss(net, step, rank):
    return net(batch(step, rank)).square().sum()


def train(net, steps, first=0, lr=RATE):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss(net, step, dist.get_rank()).backward()
        optimizer.step()


def values(net):
    """Returns the whole parameters by name; collective."""
    found = {}
    for name, parameter in net.named_parameters():
        whole = getattr(parameter, "full_tensor", lambda: parameter)()
        found[name] = whole.detach().float().numpy().copy()
    return found


def difference(got, want):
    """Returns the names of parameters that differ."""
    return [name for name, value in want.items() if not np.array_equal(got[name], value)]


def flat(arrays, shards):
    """Lays gradients out as FSDP does: rank r's rows of each gradient are in chunk r, with
    zeros below the last row."""
    chunks = [[] for _ in range(shards)]
    for array in arrays:
        rows = array.reshape(len(array), -1)
        height = math.ceil(len(rows) / shards)
        rows = np.pad(rows, ((0, height * shards - len(rows)), (0, 0)))
        for rank in range(shards):
            chunks[rank].append(rows[rank * height : (rank + 1) * height].reshape(-1))
    return np.concatenate([part for chunk in chunks for part in chunk])


def unflat(data, arrays, shards):
    """Returns arrays like `arrays` from their layout."""
    chunks, results, offset = data.reshape(shards, -1), [], 0
    for array in arrays:
        size = math.ceil(len(array) / shards) * (array.size // len(array))
        rows = chunks[:, offset : offset + size].reshape(-1)
        results.append(rows[: array.size].reshape(array.shape))
        offset += size
    return results


class Codes:
    """A hook that `model.run_hook` knows, with error feedback if `feeds_back`."""

    def __init__(self, *hook, feeds_back=False):
        self.hook, self.feeds_back = hook, feeds_back
        self.errors = {}

    def reduce(self, key, arrays, shapes=None):
        """Returns the mean of one array from each rank; `key` says which reduction it is."""
        if self.feeds_back:
            errors = self.errors.get(key, [np.float32(0)] * len(arrays))
            arrays = [array + error for array, error in zip(arrays, errors)]
            code, block = model.SCALED[self.hook[0]]
            block = self.hook[1] if len(self.hook) > 1 else block
            self.errors[key] = [
                quantization_model.encoding_error(array, code, block) for array in arrays
            ]
        tensors = [Tensor("f32", array) for array in arrays]
        return model.run_hook(self.hook, tensors, True)[0].data


class Gathers:
    """What a `gather_hook` makes of parameters: each rank's rows, encoded and decoded."""

    def __init__(self, code, block=0):
        self.encoding = (code, block)

    def gather(self, arrays, shards):
        parts = flat(arrays, shards).reshape(shards, -1)
        sent = [quantization_model.encode(part, *self.encoding) for part in parts]
        return unflat(np.concatenate(list(map(quantization_model.decode, sent))), arrays, shards)


class PowerSGD:
    """PowerSGD between replicas; each shard has a model, in which groups are buckets."""

    def __init__(self, **options):
        self.config = powersgd_model.Config(**options)
        self.models = {}

    def reduce(self, key, arrays, shapes):
        group, shard = key
        if key not in self.models:
            made = powersgd_model.Model(self.config, len(arrays), [shapes], "f32")
            # The groups of a shard share a generator.
            made.generator = self.models.get((0, shard), made).generator
            self.models[key] = made
        return self.models[key].step([[Tensor("f32", a)] for a in arrays])[0][0].data


class Exempt:
    """Reduces parameters whose names contain a word by another hook, on their own."""

    def __init__(self, word, hook, exempt_hook):
        self.word, self.hooks = word, (hook, exempt_hook)


def modelled(shape, steps, hook, shard_hook=None, lr=RATE, gathers=None):
    """Returns the parameters after training; hooks are as for register. With `gathers`,
    gradients are those of the gathered parameters."""
    replicas, shards = (1, *shape)[-2:]
    scatter, between = (shard_hook, hook) if len(shape) > 1 else (hook, None)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    parameters = dict(net.named_parameters())
    for step in range(steps):
        exact = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        for names in GROUPS if gathers else []:
            found = gathers.gather([exact[name].numpy() for name in names], shards)
            for name, value in zip(names, found):
                parameters[name].data = torch.from_numpy(value.copy())
        gradients = []
        for rank in range(replicas * shards):
            optimizer.zero_grad()
            loss(net, step, rank).backward()
            gradients.append({n: p.grad.numpy().copy() for n, p in parameters.items()})
        for number, names in enumerate(GROUPS):
            arrays = [[rank[name] for name in names] for rank in gradients]
            means = _group(number, names, arrays, replicas, shards, scatter, between)
            for name, mean in zip(names, means):
                parameters[name].data = exact[name]
                parameters[name].grad = torch.from_numpy(mean)
        optimizer.step()
    return values(net)


def _group(number, names, arrays, replicas, shards, scatter, between):
    if isinstance(scatter, Exempt):
        results = {}
        for of, hook in enumerate(scatter.hooks):
            own = [i for i, name in enumerate(names) if (scatter.word in name) == bool(of)]
            if own:
                part = [[rank[i] for i in own] for rank in arrays]
                means = _group((number, of), names, part, replicas, shards, hook, None)
                results.update(zip(own, means))
        return [results[i] for i in range(len(names))]
    by_replica = []
    for replica in range(replicas):
        mine = [flat(a, shards) for a in arrays[replica * shards : (replica + 1) * shards]]
        if shards > 1:
            mine = [scatter.reduce((number, replica), mine)]
        by_replica.append(mine[0].reshape(shards, -1))
    if between is not None:
        shapes = [(math.ceil(len(a) / shards), *a.shape[1:]) for a in arrays[0]]
        parts = [
            between.reduce((number, shard), [each[shard] for each in by_replica], shapes)
            for shard in range(shards)
        ]
        by_replica = [np.concatenate(parts)]
    return unflat(by_replica[0].reshape(-1), arrays[0], shards)
