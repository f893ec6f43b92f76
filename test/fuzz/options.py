# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random process groups, hooks and options of ddp-pipeline."""

import random


# What add_powersgd() sets.
POWERSGD = (
    "start-powersgd-iter",
    "use-error-feedback",
    "warm-start",
    "matrix-approximation-rank",
    "min-compression-rate",
    "orthogonalization-epsilon",
    "random-seed",
    "batch-tensors-with-same-shape",
    "numerics",
    "group-mb",
)


def add_groups(random_, program):
    world = program.world
    if random_.random() < 0.25:
        program.groups["twin"] = None
    if random_.random() < 0.25:
        ranks = list(range(world))
        size = random_.choice([n for n in (1, 2, 3) if world % n == 0])
        random_.shuffle(ranks)
        parts = [tuple(sorted(ranks[i : i + size])) for i in range(0, world, size)]
        program.groups["parts"] = sorted(parts)


def add_nodes(program):
    """Ranks of several machines, as they believe, and groups that know of that. With
    a generator of its own, so that other seeds are the programs they were."""
    own = random.Random(f"machines of {program.seed}")
    if own.random() >= 0.2:
        return
    options = program.options
    # What PowerSGD assignments to the ranks of a node has a model in test/parity only.
    if "powersgd" in options.get("hook", ""):
        for name in POWERSGD:
            options.pop(name, None)
        options["hook"] = own.choice(["fp16", "bf16"])
    nodes = [["a"], ["aa", "ab"], ["aaa", "abc"], ["aaaa", "aabb", "abab", "abcd"]]
    program.nodes = own.choice(nodes[program.world - 1])
    kind = own.random()
    if kind < 0.6:
        options["topology"] = "hierarchical"
    elif kind < 0.9:
        names = list(program.groups)
        program.hierarchical = tuple(own.sample(names, own.randint(1, len(names))))


def random_hook(random_, program):
    """Of an operation or a function."""
    kind = random_.random()
    if kind < 0.05:
        # Reduced as by allreduce: its first compressed iteration is far away.
        rank = ("matrix_approximation_rank", random_.choice([1, 2]))
        return ("powersgd", (rank,))
    if kind < 0.2:
        wire = random_.choice(["f16", "bf16"])
        return ("wrap", wire, random_hook(random_, program))
    if kind < 0.3:
        start = random_.choice([-1, 0, 1, 2])
        subgroup = random_.choice([None, *program.groups])
        return ("post_local_sgd", start, subgroup, random_.random() < 0.6)
    return (random_.choice(["allreduce", "fp16", "bf16", "noop"]),)


def add_codes(random_, options):
    """A hook whose collectives are encoded, in place of the one that was chosen."""
    for name in [*options]:
        if name not in ("wrapper", "bucket-cap-mb", "order", "fuse"):
            del options[name]
    hook = random_.choice(
        ["int8", "int4", "fp8", "quantization_pertensor", "quantization_perchannel"]
    )
    options["hook"] = hook
    if hook in ("int8", "int4", "fp8"):
        options["error-feedback"] = "false"
        options["block-size"] = str(random_.choice([32, 64, 256]))
    if hook == "fp8" and random_.random() < 0.4:
        options["format"] = "f8E5M2"
    if hook == "quantization_perchannel":
        options["bucket-size"] = str(random_.choice([1, 5, 512]))


def add_options(random_, program):
    """Sets options; where hooks may leave ranks with different values, nothing
    counts as the same on all of them."""
    chance, options = random_.random, program.options
    hook = random_.choice(
        ["allreduce", "allreduce", "fp16", "fp16", "bf16", "noop", "post_local_sgd"]
        + ["powersgd", "powersgd", "batched_powersgd"]
    )
    if hook != "allreduce" or chance() < 0.3:
        options["hook"] = hook
    if hook == "post_local_sgd":
        options["start-localsgd-iter"] = str(random_.choice([0, 1, 2]))
        if chance() < 0.3:
            options["post-local-gradient-allreduce"] = "false"
        if "parts" in program.groups and chance() < 0.5:
            options["subgroup"] = "parts"
    if "powersgd" in hook and chance() < 0.8:
        add_powersgd(random_, program)
    if chance() < 0.3:
        options["wrapper"] = random_.choice(["fp16", "bf16"])
    if chance() < 0.6:
        caps = ["0", "0", "0", "0.0001", "0.0005", "1"]
        options["bucket-cap-mb"] = random_.choice(caps)
    if chance() < 0.15:
        options["first-bucket-mb"] = random_.choice(["0", "0.0002", "1"])
    if chance() < 0.3:
        options["order"] = random_.choice(["ready", "forward", "reverse"])
    if chance() < 0.35:
        options["fuse"] = "false"
    if chance() < 0.15:
        options["pack-collectives"] = "false"
    if chance() < 0.5:
        options["overlap"] = "false"
    else:
        if chance() < 0.4:
            options["overlap-depth"] = str(random_.choice([1, 2, 3, 8]))
        if chance() < 0.4:
            options["interleave"] = "true"
    if chance() < (0.4 if hook == "powersgd" else 0.05):
        options["group-mb"] = random_.choice(["0.0001", "0.001"])
    # With a generator of its own, so that earlier seeds are the programs they were.
    codes = random.Random(f"codes of {program.seed}")
    if hook in ("fp16", "bf16") and codes.random() < 0.3:
        options["accumulate"] = "f32"
    # Blocks begin with a bucket: the model knows those of buckets of one gradient.
    if options.get("bucket-cap-mb") == "0" and codes.random() < 0.3:
        add_codes(codes, options)
        hook = options["hook"]
    program.own_hooks = random_.choice([0, 0, 0, 0.3])
    program.keeps_ranks_apart = (
        hook in ("noop", "post_local_sgd") or program.own_hooks > 0
    )


def add_powersgd(random_, program):
    """Parameters that compress small matrices within a few steps."""
    chance, options = random_.random, program.options
    remembers = chance() < 0.7
    start = random_.choice([2, 2, 2, 3] if remembers else [0, 0, 1, 2])
    options["start-powersgd-iter"] = str(start)
    program.steps = random_.choice([start + 1, start + 1, start + 2])
    if not remembers:
        options["use-error-feedback"] = "false"
        options["warm-start"] = "false"
    elif chance() < 0.4:
        name = random_.choice(["use-error-feedback", "warm-start"])
        options[name] = "false"
    # The batched hook's square may have a side of one.
    if chance() < 0.6 and options["hook"] == "powersgd":
        options["matrix-approximation-rank"] = str(random_.choice([1, 2, 3, 4]))
    if chance() < 0.6:
        options["min-compression-rate"] = random_.choice(["0.1", "0.5", "1", "1.5"])
    if chance() < 0.3:
        options["orthogonalization-epsilon"] = random_.choice(["1e-8", "0.001"])
    if chance() < 0.2:
        options["random-seed"] = str(random_.randint(0, 100))
    if chance() < 0.1:
        options["batch-tensors-with-same-shape"] = "true"
    if chance() < 0.15:
        options["numerics"] = "improved"
