# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PowerSGD over hierarchical groups: a node's mean is compressed, and the members of a
bucket are assigned to the ranks of a node (docs/hierarchy.md). The model is that of
PowerSGD (powersgd_model.py) with nodes in place of ranks.

Each module is compiled once, and runs with several assignments of ranks to nodes.
"""

import math
import pathlib
import subprocess

import numpy as np
import pytest

import cases
import model
import powersgd_model
import runner
import tensors
from cases import Grad
from tensors import Tensor
from test_hierarchy import reduce
from test_resume import same

START, STEPS = 2, 4
# In units of the largest element: products are added in another order, and 16-bit types
# round each of them, and the errors that are fed back.
TOLERANCES = {"f32": 2e-5, "f64": 1e-11, "f16": 2e-2, "bf16": 1.5e-1}
SHAPES = {
    "mixed": [(40, 30), (17,), (64, 8), (), (30, 40), (9, 9, 9), (0, 3), (40, 30)],
    "one": [(48, 37)],
    "vectors": [(5,), (3,), (101,)],
}


def groups_of(shapes, dtype, config, group_mb):
    """Returns the members that go through PowerSGD's stages together: (first, last + 1)."""
    begins, held, matrices = [0], 0, 0
    most = 2 * int(group_mb * 2**20)
    for number, shape in enumerate(shapes):
        size = math.prod(shape)
        is_matrix = powersgd_model._matrix(0, shape, size, config) is not None
        size *= {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[dtype]
        if most and is_matrix and matrices and held + size > most:
            begins.append(number)
            held = matrices = 0
        matrices += is_matrix
        held += size
    return list(zip(begins, [*begins[1:], len(shapes)]))


def assignment(shapes, ranks, groups):
    """Returns the rank of each member in its node, by the middle of its elements in its group."""
    positions = []
    for first, last in groups:
        ends = np.cumsum([0] + [math.prod(shape) for shape in shapes[first:last]])
        whole = 2 * int(ends[-1])
        for a, b in zip(ends, ends[1:]):
            place = (int(a) + int(b)) * ranks // whole if whole else 0
            positions.append(min(place, ranks - 1))
    return positions


def flatten(values):
    return Tensor(
        values[0].dtype, np.concatenate([value.data.reshape(-1) for value in values])
    )


class Nodes:
    """The model of one bucket; `names` has the node of each rank."""

    def __init__(self, names, shapes, dtype, mean, config):
        self.names, self.mean = names, mean
        self.nodes = list(dict.fromkeys(names))
        self.step_number, self.dtype = 0, dtype
        self.model = powersgd_model.Model(config, len(self.nodes), [shapes], dtype)

    def step(self, flats):
        of_nodes = [
            [flat for flat, name in zip(flats, self.names) if name == node]
            for node in self.nodes
        ]
        totals = [model.run_hook(("allreduce",), n, self.mean)[0] for n in of_nodes]
        result = self.model.step([[total] for total in totals], self.mean)[0][0]
        if self.step_number < START:
            result = reduce(("allreduce",), of_nodes, self.mean)
        self.step_number += 1
        return result

    def error(self, rank, shapes, groups):
        """Returns the rank's state: the errors of its members, and zeros elsewhere."""
        name = self.names[rank]
        snapshot = self.model.snapshot(self.nodes.index(name))
        kept = snapshot.error[0].data.copy()
        position, begin = self.names[:rank].count(name), 0
        owners = assignment(shapes, self.names.count(name), groups)
        for shape, owner in zip(shapes, owners, strict=True):
            end = begin + math.prod(shape)
            if owner != position:
                kept[begin:end] = 0
            begin = end
        return Tensor(self.dtype, kept)


def text_of(shapes, dtype, reduction):
    types = ["x".join([*map(str, shape), dtype]) for shape in shapes]
    arguments = ", ".join(
        f'%g{i}: tensor<{t}> {{ddp.name = "g{i}"}}' for i, t in enumerate(types)
    )
    results = ", ".join(f"tensor<{t}>" for t in types)
    body = "".join(
        f"  %r{i} = ddp.all_reduce {reduction} %g{i} on @dp : tensor<{t}>\n"
        for i, t in enumerate(types)
    )
    values = ", ".join(f"%r{i}" for i in range(len(types)))
    return (
        f"ddp.process_group @dp\nfunc.func @step({arguments}) -> ({results}) {{\n"
        f"{body}  return {values} : {results}\n}}\n"
    )


def tool(name):
    return pathlib.Path(runner.tool()).with_name(name)


class Job:
    """A compiled module, and runs of it."""

    def __init__(self, path, port, shapes, options, dtype="f32", reduction="mean"):
        path.mkdir(exist_ok=True)
        self.directory, self.port = runner.Directory(path), port
        self.directory.write_module(text_of(shapes, dtype, reduction))
        self.states = str(path / "s.{rank}.safetensors")
        pipeline = f"hook=powersgd start-powersgd-iter={START} {options}"
        words = [tool("ddphook-cc"), self.directory.module, "--shared", "-o"]
        self.shared = path / "step.so"
        words += [self.shared, f"--ddp-pipeline={pipeline}"]
        subprocess.run([*map(str, words)], check=True, timeout=runner.HANG_S)

    def run(self, nodes, inputs, *flags, transport="auto", fails=False):
        """Returns results, states by name, and the standard error output."""
        world, steps = len(nodes), len(inputs[0])
        self.directory.clear_outputs()
        self.directory.write_inputs(inputs)
        words = self.directory.arguments("step", None, steps)[1:]
        words += [f"--state-out={self.states}", *flags]
        processes = []
        for rank in range(world):
            env = runner.launch(rank, world, self.port)
            env.update(DDPHOOK_NODE=nodes[rank], DDPHOOK_LOG="warn")
            env.update(DDPHOOK_TRANSPORT=transport)
            command = [tool("ddphook-exec"), "--quiet", self.shared, *words]
            processes.append(runner.start_command(command, env))
        results = [runner.finish(process) for process in processes]
        assert all((result.code != 0) == fails for result in results), results
        errors = "".join(result.stderr for result in results)
        if fails:
            return None, None, errors
        states = [tensors.load(self.states.format(rank=rank)) for rank in range(world)]
        return self.directory.read_outputs(world, steps), states, errors


def inputs_of(shapes, dtype, world, steps):
    random = np.random.default_rng([runner.SEED, 5000, world])
    grads = [Grad(shape, dtype, values="gaussian") for shape in shapes]
    return [
        [[cases.make_values(grad, rank, random) for grad in grads] for _ in range(steps)]
        for rank in range(world)
    ]


def assert_close(got, want, dtype, what):
    a, b = (model.cast(t, "f64").data for t in (got, want))
    scale = max(np.abs(b).max(initial=0), 1)
    worst = np.abs(a - b).max(initial=0) / scale
    assert worst <= TOLERANCES[dtype], (what, worst)


@pytest.mark.parametrize(
    "shapes, dtype, reduction, more, arrangements",
    [
        ("mixed", "f32", "mean", "", "abcabc aaaa"),
        ("mixed", "f32", "sum", "group-mb=0.002", "abab gloo:aaabbb"),
        ("mixed", "f64", "mean", "pack-collectives=false warm-start=false", "aabb"),
        ("mixed", "bf16", "mean", "fuse=false", "aabb"),
        ("one", "f16", "sum", "memory=device overlap=false", "aabb"),
        ("vectors", "f32", "mean", "use-error-feedback=false", "aabb"),
    ],
)
def test_steps(tmp_path, free_port, shapes, dtype, reduction, more, arrangements):
    """Compares compressed steps after two uncompressed ones, and the errors that every rank
    keeps."""
    shapes, words = SHAPES[shapes], more.split()
    options = f"matrix-approximation-rank=2 topology=hierarchical {more}"
    job = Job(tmp_path, free_port, shapes, options, dtype, reduction)
    config = powersgd_model.Config(
        matrix_approximation_rank=2,
        warm_start="warm-start=false" not in words,
        use_error_feedback="use-error-feedback=false" not in words,
    )
    groups = groups_of(shapes, dtype, config, 0.002 if "group-mb=0.002" in words else 0)
    for arrangement in arrangements.split():
        transport, nodes = f"auto:{arrangement}".split(":")[-2:]
        inputs = inputs_of(shapes, dtype, len(nodes), STEPS)
        got, states, _ = job.run(nodes, inputs, transport=transport)
        reference = Nodes(nodes, shapes, dtype, reduction == "mean", config)
        for step in range(STEPS):
            want = reference.step([flatten(rank[step]) for rank in inputs])
            for rank in range(len(nodes)):
                result = flatten(got[rank][step])
                assert same(result, flatten(got[0][step])), (nodes, step, rank)
                assert_close(result, want, dtype, (nodes, step, rank))
        for rank, state in enumerate(states):
            assert "b0.error" not in state
            assert ("b0.share_error" in state) == config.use_error_feedback
            # Without fusion, operations leave arbitrary values at other ranks' elements.
            if not config.use_error_feedback or "fuse=false" in words:
                continue
            kept = state["b0.share_error"].data.reshape(-1)
            want = reference.error(rank, shapes, groups)
            assert_close(Tensor(dtype, kept), want, dtype, (nodes, rank))
            assert not kept[want.data == 0].any(), (nodes, rank)


def test_one_rank_a_node(tmp_path, free_port):
    """Results and states have the bits of a flat group."""
    shapes, nodes = SHAPES["mixed"], "abc"
    inputs, got = inputs_of(shapes, "f32", len(nodes), STEPS), {}
    for topology in ("flat", "hierarchical"):
        options = f"matrix-approximation-rank=4 topology={topology}"
        job = Job(tmp_path / topology, free_port, shapes, options)
        results, states, _ = job.run(nodes, inputs)
        for state in states:
            for name in [n for n in state if n.endswith("share_error")]:
                state[name.replace("share_error", "error")] = state.pop(name)
        got[topology] = results, states
    (flat, flat_states), (other, other_states) = got.values()
    assert not cases.difference_of(other, flat)
    for ours, theirs in zip(other_states, flat_states):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert same(ours[name], theirs[name]), name


def test_checkpoints(tmp_path, free_port):
    """Six steps equal four, a checkpoint and two more. On other nodes, or in a world of
    another size, errors begin at zero, with a warning that names them. Nodes of unequal
    sizes are refused."""
    shapes = SHAPES["mixed"]
    inputs = inputs_of(shapes, "f32", 4, 6)
    job = Job(tmp_path, free_port, shapes, "topology=hierarchical")
    expected, states, _ = job.run("aabb", inputs)
    job.run("aabb", [rank[:4] for rank in inputs])
    saved, job.states = job.states, str(tmp_path / "t.{rank}.safetensors")
    rest = [rank[4:] for rank in inputs]
    got, resumed, errors = job.run("aabb", rest, f"--state-in=strict:{saved}")
    assert "begins at zero" not in errors
    for rank in range(4):
        for step in range(2):
            for a, b in zip(got[rank][step], expected[rank][4 + step], strict=True):
                assert same(a, b), (rank, step)
        for name in states[rank]:
            assert same(resumed[rank][name], states[rank][name]), (rank, name)
    for nodes, why in [
        ("abab", "was saved by ranks on other nodes"),
        ("ab", "was saved by 4 ranks, but this job has 2"),
    ]:
        some = [rank[:1] for rank in rest[: len(nodes)]]
        _, _, errors = job.run(nodes, some, f"--state-in={saved}")
        assert why in errors
        assert "state 'b0.share_error' of 'g0', 'g1'" in errors
        assert "begins at zero" in errors
        _, _, errors = job.run(nodes, some, f"--state-in=strict:{saved}", fails=True)
        assert "nodes" in errors or "world size" in errors
    _, _, errors = job.run("aab", [rank[:1] for rank in rest[:3]], fails=True)
    assert (
        "process group 'dp': expected equally many ranks on every node, but got "
        "2 (with rank 0) and 1 (with rank 2)" in errors
    )


@pytest.mark.parametrize(
    ("name", "saved", "loaded"),
    [
        ("vectors", "", ""),
        ("mixed", "min-compression-rate=1000", "min-compression-rate=1000"),
        ("mixed", "fuse=false", "fuse=false"),
        ("mixed", "", "fuse=false"),
    ],
)
def test_errors_on_other_nodes(tmp_path, free_port, name, saved, loaded):
    """Errors begin at zero, even if no low-rank operation determines the assignment: nothing
    is compressed, or products are separate."""
    shapes = SHAPES[name]
    inputs = inputs_of(shapes, "f32", 4, STEPS)
    job = Job(tmp_path / "saved", free_port, shapes, f"topology=hierarchical {saved}")
    job.run("aabb", inputs)
    other = Job(tmp_path / "other", free_port, shapes, f"topology=hierarchical {loaded}")
    some = [rank[:1] for rank in inputs]
    _, _, errors = other.run("abab", some, f"--state-in={job.states}")
    assert "state 'b0.share_error'" in errors and "begins at zero" in errors
    _, _, errors = other.run(
        "abab", some, f"--state-in=strict:{job.states}", fails=True
    )
    assert "nodes" in errors
