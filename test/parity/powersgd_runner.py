# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs compiled PowerSGD from a given state: converts the oracle's snapshots to state
files of ddphook-run and back. docs/plan.md has the names and layouts."""

import numpy as np

import model
import powersgd_random
import runner
import tensors
from powersgd_model import Layout, Snapshot
from tensors import Tensor


def layouts(case):
    return [Layout(shapes, case.config) for shapes in case.bucket_shapes]


def state_names(case):
    """Returns the states' names. A bucket without a matrix has an empty Q: it still takes its
    number from the generator, as in PyTorch."""
    names = {"powersgd.iter", "powersgd.generator"}
    for number in range(len(case.buckets)):
        if case.config.use_error_feedback:
            names.add(f"b{number}.error")
        if case.config.warm_start:
            names.add(f"b{number}.q")
    return names


def first_factors(case, generator):
    """Returns what an initial state draws for the Qs of every bucket; advances `generator`
    past these draws."""
    inner = case.config.inner_dtype(case.dtype)
    return {
        number: powersgd_random.draw(generator, layout.draws, inner)
        for number, layout in enumerate(layouts(case))
    }


def as_ours(case, snapshot):
    """Returns PyTorch's state, completed by what a compiled module allocates when it is
    loaded: zero errors, and with a warm start the first Qs, which PyTorch draws when it
    first needs them."""
    inner = case.config.inner_dtype(case.dtype)
    wide = model.cast(Tensor("f32", np.zeros(1, np.float32)), inner)
    error, q = dict(snapshot.error), dict(snapshot.q)
    words = snapshot.generator
    for number, layout in enumerate(layouts(case)):
        if case.config.use_error_feedback and number not in error:
            error[number] = Tensor(inner, np.repeat(wide.data, layout.total))
    if case.config.warm_start and not q:
        generator = powersgd_random.generator_from_words(words)
        q = first_factors(case, generator)
        words = powersgd_random.generator_words(generator)
    return Snapshot(snapshot.iter, words, error, {}, q)


def _scaled(tensor, factor):
    if factor == 1:
        return tensor
    wide = model.cast(tensor, "f64").data * factor
    return model.cast(Tensor("f64", wide), tensor.dtype)


def to_file(case, snapshot):
    """Returns the tensors of a rank's state file. The Q of a `sum` is not divided."""
    snapshot = as_ours(case, snapshot)
    factor = case.world if case.reduction == "sum" else 1
    named = {
        "powersgd.iter": Tensor("i64", np.array(snapshot.iter, np.int64)),
        "powersgd.generator": Tensor("i32", snapshot.generator),
    }
    for number, error in snapshot.error.items():
        named[f"b{number}.error"] = error
    for number, q in snapshot.q.items():
        named[f"b{number}.q"] = _scaled(q, factor)
    return {name: named[name] for name in sorted(state_names(case))}


def from_file(case, named):
    assert set(named) == state_names(case)
    factor = case.world if case.reduction == "sum" else 1

    def per_bucket(suffix):
        return {
            number: Tensor(t.dtype, t.data.reshape(-1))
            for number in range(len(case.buckets))
            if (t := named.get(f"b{number}.{suffix}")) is not None
        }

    q = {number: _scaled(q, 1 / factor) for number, q in per_bucket("q").items()}
    return Snapshot(
        int(named["powersgd.iter"].data.reshape(())),
        named["powersgd.generator"].data,
        per_bucket("error"),
        {},
        q,
    )


def run(directory, case, inputs, pipeline="", before=None, env=None):
    """Runs ddphook-run once: `inputs` is [rank][step][number], `before` has the snapshots by
    rank. Returns results [rank][step][bucket] and the snapshots after the last step."""
    directory = runner.Directory(directory)
    directory.write_module(case.module.text())
    directory.clear_outputs()
    directory.write_inputs(inputs)
    steps = len(inputs[0])
    arguments = directory.arguments(
        "step", case.world, steps, case.pipeline(pipeline)
    )
    state_in = directory.path / "in.state.{rank}.safetensors"
    state_out = directory.path / "out.state.{rank}.safetensors"
    if before is not None:
        for rank, snapshot in enumerate(before):
            path = str(state_in).format(rank=rank)
            tensors.save(path, to_file(case, snapshot))
        arguments.append(f"--state-in={state_in}")
    arguments.append(f"--state-out={state_out}")
    result = runner.finish(runner.start(arguments, env))
    assert result.code == 0, (
        f"ddphook-run {' '.join(map(str, arguments))} exited with {result.code}; "
        f"stderr:\n{result.stderr}"
    )
    results = case.flat(directory.read_outputs(case.world, steps))
    after = [
        from_file(case, tensors.load(str(state_out).format(rank=rank)))
        for rank in range(case.world)
    ]
    return results, after
