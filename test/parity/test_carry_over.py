# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A checkpoint continues under another plan of the same program.

A job runs some steps under one set of options, and more steps from a checkpoint under
another set: other buckets, another order, overlap, no fusion, groups of matrices,
arrays on a device. There is no oracle, but there are two references:

- A run that continues under the first options. With one and two ranks, all results and
  all pieces of states have the same bits: matrices are multiplied separately, and a sum
  of two has only one order. With three ranks, an element's position in its message
  determines the order in which ranks are added, so results are only close; a cold start
  draws its Qs bucket by bucket, so they differ.
- Plain files, assembled in numpy from the pieces of the checkpoint for the buckets of
  the other plan. A run that starts from them always has the same bits: every state was
  assigned correctly.
"""

import json
import os
import pathlib
import struct
import subprocess

import numpy as np
import pytest

import runner
import tensors
from tensors import Tensor

BEFORE, AFTER = 4, 3
# Names and shapes, in the order of results. The fifth gradient belongs to a group of
# single ranks; the sixth is summed, in f64.
GRADIENTS = {
    "w": ("f32", (40, 30)),
    "step.arg1": ("f32", (30,)),
    "conv/kernel": ("f32", (8, 3, 3)),
    "w2": ("f32", (40, 30)),
    "alone": ("f32", (20, 24)),
    "step.arg5": ("f64", (16, 18)),
    "step.result6": ("f32", (30, 40)),
}


def module(world):
    ranks = ", ".join(f"[{rank}]" for rank in range(world))
    return f"""module {{
  ddp.process_group @dp
  ddp.process_group @self ranks [{ranks}]
  func.func @step(%g0: tensor<40x30xf32> {{ddp.name = "w"}}, %g1: tensor<30xf32>,
                  %g2: tensor<8x3x3xf32>, %g3: tensor<40x30xf32> loc("w2"),
                  %g4: tensor<20x24xf32>, %g5: tensor<16x18xf64>,
                  %g6: tensor<30x40xf32>)
      -> (tensor<40x30xf32>, tensor<30xf32>, tensor<8x3x3xf32>,
          tensor<40x30xf32>, tensor<20x24xf32>, tensor<16x18xf64>,
          tensor<30x40xf32>) {{
    %t = ddp.scale %g6 by 2.0 : tensor<30x40xf32>
    %r0 = ddp.all_reduce mean %g0 on @dp : tensor<40x30xf32>
    %r1 = ddp.all_reduce mean %g1 on @dp : tensor<30xf32>
    %r2 = ddp.all_reduce mean %g2 on @dp : tensor<8x3x3xf32> loc("conv/kernel")
    %r3 = ddp.all_reduce mean %g3 on @dp : tensor<40x30xf32>
    %r4 = ddp.all_reduce mean %g4 on @self {{ddp.name = "alone"}} : tensor<20x24xf32>
    %r5 = ddp.all_reduce sum %g5 on @dp : tensor<16x18xf64>
    %r6 = ddp.all_reduce mean %t on @dp : tensor<30x40xf32>
    return %r0, %r1, %r2, %r3, %r4, %r5, %r6 : tensor<40x30xf32>, tensor<30xf32>,
        tensor<8x3x3xf32>, tensor<40x30xf32>, tensor<20x24xf32>,
        tensor<16x18xf64>, tensor<30x40xf32>
  }}
}}
"""


START = "start-powersgd-iter=2"
HOOKS = {
    "powersgd": f"hook=powersgd matrix-approximation-rank=2 {START}",
    "rank 4": f"hook=powersgd matrix-approximation-rank=4 {START}",
    "before its start": "hook=powersgd start-powersgd-iter=6",
    "without error feedback": f"hook=powersgd use-error-feedback=false {START}",
    "cold": f"hook=powersgd warm-start=false {START}",
    "fp16": f"hook=powersgd wrapper=fp16 matrix-approximation-rank=2 {START}",
    "bf16": f"hook=powersgd wrapper=bf16 {START}",
    "improved": f"hook=powersgd numerics=improved skip-nonfinite=true {START}",
    "post-local SGD": "hook=post_local_sgd start-localsgd-iter=6",
}
FIRST = "bucket-cap-mb=0.004"
PLANS = {
    "the same": FIRST,
    "one bucket": "",
    "a bucket each": "bucket-cap-mb=0",
    "first bucket": "first-bucket-mb=0.001 bucket-cap-mb=0.01",
    "reverse": "bucket-cap-mb=0.004 order=reverse",
    "forward": "bucket-cap-mb=0.006 order=forward",
    "no overlap": "bucket-cap-mb=0.002 overlap=false",
    "not fused": "fuse=false",
    "not packed": "bucket-cap-mb=0.006 pack-collectives=false",
    "grouped": "group-mb=0.004",
    "on a device": "bucket-cap-mb=0.001 memory=device",
}
CASES = [("powersgd", plan) for plan in PLANS] + [
    (hook, plan)
    for hook in HOOKS
    if hook != "powersgd"
    for plan in ("one bucket", "no overlap", "reverse")
]


def gradients(rank, step):
    random = np.random.default_rng([runner.SEED, rank, step])
    values = [random.standard_normal(shape) for _, shape in GRADIENTS.values()]
    return [
        Tensor(dtype, value.astype(np.float64 if dtype == "f64" else np.float32))
        for (dtype, _), value in zip(GRADIENTS.values(), values, strict=True)
    ]


def compiler(name):
    return str(pathlib.Path(runner.tool()).with_name(name))


class Job:
    """Runs of one program in a directory."""

    def __init__(self, path, world, hook):
        self.directory = runner.Directory(path)
        self.directory.write_module(module(world))
        self.world = world
        self.hook = hook

    def inputs(self, first, count):
        self.directory.write_inputs(
            [
                [gradients(rank, step) for step in range(first, first + count)]
                for rank in range(self.world)
            ]
        )

    def states(self, name):
        return str(self.directory.path / f"{name}.{{rank}}.safetensors")

    def run(self, plan, steps, state_out, state_in=None, expect=0):
        """Returns results by rank and step, or the error."""
        self.directory.clear_outputs()
        pipeline = f"{self.hook} {plan}"
        flags = [f"--state-out={self.states(state_out)}"]
        if state_in is not None:
            flags.append(f"--state-in={state_in}")
        arguments = self.directory.arguments("step", self.world, steps, pipeline)
        if "memory=device" not in plan:
            process = runner.start([*arguments, *flags])
        else:
            shared = self.directory.path / "device.so"
            subprocess.run(
                [compiler("ddphook-cc"), arguments[0], "-o", shared, "--shared",
                 "--device=other", f"--ddp-pipeline={self.hook} "
                 + plan.replace("memory=device", "")],
                check=True,
            )
            arguments = [a for a in arguments[1:] if "--ddp-pipeline" not in a]
            process = runner.start_command(
                [compiler("ddphook-exec"), "--quiet", shared, *arguments, *flags]
            )
        result = runner.finish(process)
        assert result.code == expect, result.stderr
        if expect:
            return result.stderr
        assert result.stderr == ""
        return self.directory.read_outputs(self.world, steps)


def description(path):
    """Returns the states in a checkpoint's file, from its metadata."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["ddphook.states"])


def pieces(path):
    """Returns a file's states by role and gradient; counters and the like appear for every
    gradient that has them."""
    found = {}
    named = tensors.load(path)
    for state in description(path):
        flat = named[state["name"]].data.reshape(-1)
        if state["dtype"].startswith("i"):
            for gradient in state["gradients"][0]:
                found[state["role"], gradient] = flat
            continue
        offset = 0
        for shape, names in zip(state["shapes"], state["gradients"], strict=True):
            (name,) = names
            count = int(np.prod(shape))
            found[state["role"], name] = flat[offset : offset + count]
            offset += count
        assert offset == flat.size
    return found


def cut_together(of, like, path):
    """Writes a plain file with the pieces `of`, in the states of the file `like`."""
    named = {}
    for state in description(like):
        if state["dtype"].startswith("i"):
            values = [of[state["role"], name] for name in state["gradients"][0]]
            assert all(np.array_equal(value, values[0]) for value in values)
            data = values[0].reshape([int(n) for n in state["shapes"][0]])
        else:
            parts = [of[state["role"], names[0]] for names in state["gradients"]]
            kind = tensors.load(like)[state["name"]].data.dtype
            data = np.concatenate(parts) if parts else np.zeros(0, kind)
        named[state["name"]] = Tensor(state["dtype"], data)
    tensors.save(path, named)


def assert_same(got, wanted, what):
    assert got.dtype == wanted.dtype, what
    assert got.tobytes() == wanted.tobytes(), what


def assert_close(got, wanted, what):
    """Compares sums in different orders. Error feedback and a factor propagate a few roundings
    through AFTER steps: test_grouping.py has the same limit."""
    got, wanted = (array.astype(np.float64) for array in (got, wanted))
    scale = np.abs(wanted).max(initial=0)
    assert np.abs(got - wanted).max(initial=0) <= 1e-4 * scale, what


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns, per hook and world, the job after its first steps, and its later results and
    states under the same options."""
    known = {}

    def get(hook, world):
        if (hook, world) not in known:
            path = tmp_path_factory.mktemp("saved")
            job = Job(path, world, HOOKS[hook])
            job.inputs(0, BEFORE)
            job.run(FIRST, BEFORE, "middle")
            job.inputs(BEFORE, AFTER)
            results = job.run(FIRST, AFTER, "end", "strict:" + job.states("middle"))
            ends = [pieces(job.states("end").format(rank=r)) for r in range(world)]
            known[hook, world] = job, results, ends
        return known[hook, world]

    return get


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("hook, plan", CASES)
def test_other_plan(saved, hook, plan, world):
    job, wanted, wanted_states = saved(hook, world)
    middle = job.states("middle")
    got = job.run(PLANS[plan], AFTER, "other", "strict:" + middle)
    states = [pieces(job.states("other").format(rank=r)) for r in range(world)]

    # Every gradient has its states, under its name.
    names = {name for _, name in states[0]}
    assert names == set(GRADIENTS)
    assert set(states[0]) == set(wanted_states[0])

    if hook != "cold":
        for rank in range(world):
            for step in range(AFTER):
                for name, ours, theirs in zip(
                    GRADIENTS, got[rank][step], wanted[rank][step], strict=True
                ):
                    what = f"rank {rank}, step {step}, {name}"
                    if world <= 2 or plan == "the same":
                        assert_same(ours.data, theirs.data, what)
                    # In 16 bits, a rounding grows until nothing agrees
                    # (docs/parity.md): only the plain files are a reference.
                    elif hook not in ("fp16", "bf16"):
                        assert_close(ours.data, theirs.data, what)
            if world <= 2 or plan == "the same":
                for key, value in states[rank].items():
                    assert_same(value, wanted_states[rank][key], f"{rank}, {key}")

    # Plain files give the same results.
    for rank in range(world):
        cut_together(
            pieces(middle.format(rank=rank)),
            job.states("other").format(rank=rank),
            job.states("in.plain").format(rank=rank),
        )
    plain = job.run(
        PLANS[plan], AFTER, "from_plain", "strict:" + job.states("in.plain")
    )
    for rank in range(world):
        for ours, theirs in zip(sum(got[rank], []), sum(plain[rank], []), strict=True):
            assert_same(ours.data, theirs.data, f"plain, rank {rank}")
        ours = tensors.load(job.states("other").format(rank=rank))
        theirs = tensors.load(job.states("from_plain").format(rank=rank))
        assert set(ours) == set(theirs)
        for name in ours:
            assert_same(ours[name].data, theirs[name].data, f"plain, {name}")


def test_names_of_all_states(saved):
    """The first plan has these states, by name."""
    job, _, _ = saved("powersgd", 2)
    found = pieces(job.states("middle").format(rank=0))
    roles = {role for role, _ in found}
    assert roles == {
        "powersgd.iter",
        "powersgd.generator",
        "powersgd.error",
        "powersgd.q",
    }
    compressed = {name for role, name in found if role == "powersgd.q"}
    assert compressed == set(GRADIENTS) - {"step.arg1"}
    for name, (_, shape) in GRADIENTS.items():
        assert found["powersgd.error", name].size == np.prod(shape)
    assert len(description(job.states("middle").format(rank=0))) > 2 + 2 * 3


BATCHED = f"hook=batched_powersgd {START}"
REFUSED = {
    "rank": (
        HOOKS["powersgd"],
        HOOKS["rank 4"],
        "",
        ["'powersgd.error'", "rank = 2", "rank = 4"],
    ),
    "wrapper": (
        HOOKS["powersgd"],
        HOOKS["fp16"],
        "",
        ["'powersgd.error'", "#ddp.wrap<f16"],
    ),
    "start": (
        HOOKS["powersgd"],
        HOOKS["powersgd"].replace(START, "start-powersgd-iter=3"),
        "",
        ["start_powerSGD_iter = 2", "start_powerSGD_iter = 3"],
    ),
    "no error feedback": (
        HOOKS["powersgd"],
        HOOKS["without error feedback"],
        "",
        ["kept for"],
    ),
    "seed of a cold start": (
        f"hook=powersgd warm-start=false use-error-feedback=false {START}",
        f"hook=powersgd warm-start=false use-error-feedback=false {START} random-seed=3",
        "",
        ["'powersgd.generator'", "seeded with 0", "with 3"],
    ),
    "no hook": (HOOKS["powersgd"], "hook=fp16", "", ["no counterpart", "'powersgd.error'"]),
    "a hook from nothing": ("hook=fp16", HOOKS["powersgd"], "", ["has no state"]),
    "batched": (BATCHED, BATCHED, "", ["is indivisible", "'powersgd.error'"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_carried_over(tmp_path, name):
    before, after, plan, words = REFUSED[name]
    job = Job(tmp_path, 2, before)
    job.inputs(0, BEFORE)
    job.run(FIRST, BEFORE, "middle")
    job.hook = after
    given = job.states("middle")
    error = job.run(plan, BEFORE, "other", given, expect=1)
    for word in ["PLAN_MISMATCH", "does not fit this one", *words]:
        assert word in error
    assert len(error.splitlines()) == 1
    assert not os.path.exists(job.states("other").format(rank=0))


def test_other_ranks_in_a_group(tmp_path):
    """A Q of one group is not valid for another group."""
    job = Job(tmp_path, 2, HOOKS["powersgd"])
    job.inputs(0, BEFORE)
    job.run(FIRST, BEFORE, "middle")
    job.directory.write_module(module(2).replace("on @self", "on @dp"))
    error = job.run(FIRST, BEFORE, "other", job.states("middle"), expect=1)
    assert "gradient 'alone' was kept for 'mean in [0], [1] #ddp.powersgd" in error


def test_batched_where_buckets_are_the_same(tmp_path):
    """A state for a whole bucket transfers to plans with the same buckets."""
    job = Job(tmp_path, 2, BATCHED)
    job.inputs(0, BEFORE)
    job.run(FIRST, BEFORE, "middle")
    job.inputs(BEFORE, AFTER)
    middle = "strict:" + job.states("middle")
    wanted = job.run(FIRST, AFTER, "end", middle)
    for plan in ("overlap=false", "fuse=false", "pack-collectives=false"):
        got = job.run(f"{FIRST} {plan}", AFTER, "other", middle)
        for rank in range(2):
            for ours, theirs in zip(
                sum(got[rank], []), sum(wanted[rank], []), strict=True
            ):
                assert_same(ours.data, theirs.data, plan)


def test_a_logging_frequency_changes_nothing(tmp_path):
    job = Job(tmp_path, 1, HOOKS["powersgd"])
    job.inputs(0, BEFORE)
    job.run(FIRST, BEFORE, "middle")
    job.hook += " compression-stats-logging-frequency=7"
    job.run("", BEFORE, "other", "strict:" + job.states("middle"))


def averages(*names):
    functions = {
        "first": """func.func @first(%w: tensor<4xf32>) -> tensor<4xf32> {
    %a = ddp.average %w on @dp every 4 : tensor<4xf32>
    return %a : tensor<4xf32>
  }""",
        "second": """func.func @second(%w: tensor<4xf32>) -> tensor<4xf32> {
    %a = ddp.average %w on @dp every 4 : tensor<4xf32>
    return %a : tensor<4xf32>
  }""",
    }
    text = "\n".join(functions[name] for name in names)
    return f"module {{\nddp.process_group @dp\n{text}\n}}"


def test_counters_of_averages(tmp_path):
    """Counters belong to what is averaged, wherever the program has it."""
    directory = runner.Directory(tmp_path)
    saved, other = (str(tmp_path / f"{n}.safetensors") for n in ("saved", "other"))

    def run(steps, *flags, names=("first", "second"), expect=0):
        directory.write_module(averages(*names))
        command = [directory.module, "--entry=first", f"--steps={steps}"]
        flags = ["--inputs=random:1", *flags]
        result = runner.finish(runner.start([*command, *flags]))
        assert result.code == expect, result.stderr
        return result.stderr

    run(5, f"--state-out={saved}")
    swapped = ("second", "first")
    run(1, f"--state-in=strict:{saved}", f"--state-out={other}", names=swapped)
    counters = {name: int(value[0]) for (_, name), value in pieces(other).items()}
    assert counters == {"first.arg0": 6, "second.arg0": 0}
    error = run(1, f"--state-in={saved}", names=("first",), expect=1)
    assert "no counterpart for its state 'average.iter' of gradient 'second.arg0'" in error
