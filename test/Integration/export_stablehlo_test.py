# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks in XLA: what ddp-stablehlo-pipeline writes, run by JAX on several CPU devices,
against ddphook-run on as many ranks, and against NumPy.

XLA adds in rank order, the runtime in that of a ring (docs/parity.md). At two ranks
both are the same. For more, step 0 is random, and compared with a model that adds in
rank order; in step 1 only one rank has something for each element, so that the order
does not matter and everything else does.

Environment: DDPHOOK_RUN names the tool (default: build/bin/ddphook-run of this
checkout), DDPHOOK_TEST_SEED the seed of all random inputs.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("DDPHOOK_RUN", ROOT / "build" / "bin" / "ddphook-run"))
OPT = TOOL.with_name("ddphook-opt")
XLA = pathlib.Path(__file__).parent / "Inputs" / "run_on_xla.py"
SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20261"))
HANG_S = 300

sys.path.append(str(ROOT / "test" / "parity"))
import powersgd_random  # noqa: E402

SHAPES = [(24, 16), (16,), (8, 3, 5), (), (24, 16)]
NARROW = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


def module(world, kinds=("mean",), groups=None, shapes=SHAPES):
    """Reductions of one argument each, of these kinds over these groups in turn."""
    groups = groups or {"dp": f"size {world}"}
    types = ["tensor<" + "".join(f"{n}x" for n in shape) + "f32>" for shape in shapes]
    names = list(groups)
    lines = [f"ddp.process_group @{name} {clause}" for name, clause in groups.items()]
    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(types))
    lines.append(f"func.func @main({arguments}) -> ({', '.join(types)}) {{")
    for i, kind in enumerate(types):
        lines.append(
            f"  %r{i} = ddp.all_reduce {kinds[i % len(kinds)]} %a{i} "
            f'on @{names[i % len(names)]} {{ddp.name = "g{i}"}} : {kind}'
        )
    results = ", ".join(f"%r{i}" for i in range(len(types)))
    lines += [f"  return {results} : {', '.join(types)}", "}"]
    return "\n".join(lines) + "\n"


def call(*command):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr[-4000:]


def random_inputs(world, steps, shapes=SHAPES):
    """[rank][step][argument]; step 1 has one rank's share of each element alone."""
    print(f"seed {SEED}")
    generator = np.random.default_rng(SEED)

    def draw(shape):
        return np.asarray(generator.standard_normal(shape), np.float32)

    inputs = [[[draw(s) for s in shapes] for _ in range(steps)] for _ in range(world)]
    for number, shape in enumerate(shapes):
        owner = generator.integers(0, world, shape)
        for rank in range(world):
            array = inputs[rank][1][number]
            inputs[rank][1][number] = np.where(owner == rank, array, np.float32(0))
    return inputs


def first_value(state):
    """The value that the manifest describes, drawn by the model of PyTorch's."""
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, state["dtype"], state["dtype"]))
    init = state["init"]
    if init["kind"] == "zero":
        return np.zeros(state["shape"], kind)
    generator = np.random.RandomState(init["seed"])
    for _ in range(init["number"]):
        generator.randint(10**9)
    drawn = powersgd_random.draw(generator, init["draws"], NARROW[state["dtype"]])
    # The model keeps bfloat16s as their bits.
    return np.asarray(drawn.data).view(kind).reshape(state["shape"])


def run_both(folder, program, hook, inputs, executor="xla"):
    """The results of ddphook-run and of XLA, [rank][step] of named arrays; XLA's with
    states, and ddphook-run's states after the last step."""
    world, steps = len(inputs), len(inputs[0])
    (folder / "step.mlir").write_text(program, encoding="utf-8")
    for rank, ofRank in enumerate(inputs):
        for step, arrays in enumerate(ofRank):
            named = {f"arg{i}": array for i, array in enumerate(arrays)}
            save_file(named, folder / f"in.{rank}.{step}.safetensors")
    call(
        *(TOOL, folder / "step.mlir", "--entry=main", f"--ranks={world}", "--quiet"),
        *(f"--steps={steps}", f"--ddp-pipeline={hook}"),
        f"--inputs={folder}/in.{{rank}}.{{step}}.safetensors",
        f"--outputs={folder}/ours.{{rank}}.{{step}}.safetensors",
        f"--state-out={folder}/after.{{rank}}.safetensors",
    )
    manifest = folder / "manifest.json"
    call(
        *(OPT, folder / "step.mlir", "-o", folder / "module.mlir"),
        f"--ddp-stablehlo-pipeline={hook} manifest={manifest}",
    )
    described = json.loads(manifest.read_text(encoding="utf-8"))
    for rank in range(world):
        states = {state["name"]: first_value(state) for state in described["states"]}
        save_file(states, folder / f"before.{rank}.safetensors")
    call(sys.executable, XLA, executor, world, steps, folder)

    def load(stem):
        return [
            [load_file(folder / f"{stem}.{rank}.{step}.safetensors") for step in range(steps)]
            for rank in range(world)
        ]

    after = [load_file(folder / f"after.{rank}.safetensors") for rank in range(world)]
    return load("ours"), load("out"), after


def results(named):
    return [named[f"result{i}"] for i in range(sum(n.startswith("result") for n in named))]


def assert_same_bits(got, want):
    for mine, other in zip(results(got), results(want), strict=True):
        np.testing.assert_array_equal(mine.view(np.int32), other.view(np.int32))


def rank_order_mean(arrays, wire, summed):
    """The mean in `wire`: rounded, divided and rounded, added in rank order in `summed`
    and rounded to `wire` at the end."""
    share = [
        (a.astype(wire).astype(np.float32) / np.float32(len(arrays))).astype(wire)
        for a in arrays
    ]
    total = share[0].astype(summed)
    for other in share[1:]:
        total = (total.astype(np.float32) + other.astype(np.float32)).astype(summed)
    return total.astype(wire).astype(np.float32)


@pytest.mark.parametrize("hook", ["allreduce", "fp16", "bf16"])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_bits_of_the_default_hooks(tmp_path, world, hook):
    import ml_dtypes

    inputs = random_inputs(world, 2)
    # Two buckets at least.
    ours, xla, _ = run_both(
        tmp_path, module(world), f"hook={hook} bucket-cap-mb=0.001", inputs
    )
    wire = {"allreduce": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}[hook]
    # XLA's CPU adds bfloat16s in f32.
    summed = np.float32 if hook == "bf16" else wire
    for rank in range(world):
        assert_same_bits(xla[rank][1], ours[rank][1])
        if world == 2:
            assert_same_bits(xla[rank][0], ours[rank][0])
        for number, got in enumerate(results(xla[rank][0])):
            arrays = [inputs[other][0][number] for other in range(world)]
            want = rank_order_mean(arrays, wire, summed)
            np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))
    # 16 bits do round something.
    exact = np.mean([inputs[r][0][0].astype(np.float64) for r in range(world)], axis=0)
    error = np.abs(xla[0][0]["result0"] - exact).max()
    assert (error > 2**-14) == (hook != "allreduce")


def test_sums_types_of_sums_and_wrappers(tmp_path):
    inputs = random_inputs(2, 2)
    for number, hook in enumerate(
        [
            "hook=fp16 wrapper=bf16",
            "hook=allreduce wrapper=fp16",
            "hook=noop",
            "hook='#ddp.allreduce_and_upcast<reduce_dtype = f16>'",
            "hook=post_local_sgd start-localsgd-iter=1 post-local-gradient-allreduce=false",
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        ours, xla, _ = run_both(folder, module(2, kinds=("sum", "mean")), hook, inputs)
        for rank in range(2):
            for step in range(2):
                assert_same_bits(xla[rank][step], ours[rank][step])


def test_periodic_averages(tmp_path):
    """Parameters that are averaged every second step after the first."""
    program = """
    ddp.process_group @dp size 2
    func.func @main(%a: tensor<24xf32>, %b: tensor<2x3xf32>)
        -> (tensor<24xf32>, tensor<2x3xf32>) {
      %0 = ddp.average %a on @dp every 2 warmup 1 : tensor<24xf32>
      %1 = ddp.average %b on @dp every 2 warmup 1 : tensor<2x3xf32>
      return %0, %1 : tensor<24xf32>, tensor<2x3xf32>
    }
    """
    inputs = random_inputs(2, 5, [(24,), (2, 3)])
    ours, xla, after = run_both(tmp_path, program, "hook=fp16", inputs)
    for step in range(5):
        for rank in range(2):
            assert_same_bits(xla[rank][step], ours[rank][step])
        is_mean = (xla[0][step]["result0"] == xla[1][step]["result0"]).all()
        assert is_mean == (step in (1, 3))
    assert xla[0][-1]["average0.iter"] == after[0]["average0.iter"] == 5


def test_groups_of_ranks(tmp_path):
    """Each reduction over pairs of ranks, over other pairs, or over all."""
    groups = {"all": "size 4", "near": "ranks [[0, 1], [2, 3]]", "far": "ranks [[0, 2], [3, 1]]"}
    inputs = random_inputs(4, 2)
    ours, xla, _ = run_both(tmp_path, module(4, groups=groups), "hook=fp16", inputs)
    for rank in range(4):
        assert_same_bits(xla[rank][1], ours[rank][1])
        # Of two ranks there is one order.
        for number in (1, 2, 4):
            name = f"result{number}"
            np.testing.assert_array_equal(xla[rank][0][name], ours[rank][0][name])
    assert (xla[0][0]["result1"] != xla[2][0]["result1"]).any()
    assert (xla[0][0]["result1"] == xla[1][0]["result1"]).all()


# Start at the second step. docs/parity.md has the tolerances, relative to the largest
# element: 1.5e-5 in f32, 6e-3 and 1.5e-2 in 16 bits.
POWERSGD = {
    "rank 4": ("powersgd matrix-approximation-rank=4 min-compression-rate=1", 1.5e-5),
    "without error feedback": ("powersgd use-error-feedback=false", 1.5e-5),
    "batched": ("batched-powersgd matrix-approximation-rank=3", 1.5e-5),
    "improved": ("powersgd numerics=improved matrix-approximation-rank=2", 1.5e-5),
    "fp16": ("powersgd wrapper=fp16 matrix-approximation-rank=3", 6e-3),
}
MORE_POWERSGD = {
    "rank 1": ("powersgd", 1.5e-5),
    "rank 2": ("powersgd matrix-approximation-rank=2 orthogonalization-epsilon=1e-8", 1.5e-5),
    "bf16": ("powersgd wrapper=bf16", 1.5e-2),
    "until step 3": ("powersgd stop-powersgd-iter=3", 1.5e-5),
}
LIKE_OTHERS = pytest.mark.full("XLA compiles for seconds; as the other cases")


def assert_powersgd(ours, xla, after, tolerance):
    world, steps = len(xla), len(xla[0])
    for rank in range(world):
        for step in range(steps):
            pairs = zip(results(xla[rank][step]), results(ours[rank][step]), strict=True)
            for got, want in pairs:
                limit = tolerance * np.abs(want).max()
                np.testing.assert_allclose(got, want, rtol=0, atol=limit)
            # Ranks that differ would drift apart.
            assert_same_bits(xla[rank][step], xla[0][step])
        names = [name for name in xla[rank][-1] if not name.startswith("result")]
        assert "powersgd.iter" in names and len(names) >= 2
        for name in names:
            got = xla[rank][-1][name].astype(np.float64).reshape(-1)
            want = after[rank][name].astype(np.float64).reshape(-1)
            # Q may be as ill-conditioned as the gradients; errors are differences.
            np.testing.assert_allclose(got, want, rtol=0, atol=4 * tolerance * np.abs(want).max())


@pytest.mark.parametrize(
    "options, tolerance",
    [pytest.param(*case, id=name) for name, case in POWERSGD.items()]
    + [pytest.param(*case, id=name, marks=LIKE_OTHERS) for name, case in MORE_POWERSGD.items()],
)
def test_powersgd(tmp_path, options, tolerance):
    inputs = random_inputs(2, 5)
    hook = f"hook={options} start-powersgd-iter=2 bucket-cap-mb=0.001"
    ours, xla, after = run_both(tmp_path, module(2), hook, inputs)
    for step in range(2):
        assert_same_bits(xla[0][step], ours[0][step])
    assert_powersgd(ours, xla, after, tolerance)
    # It did compress.
    mean = np.mean([inputs[rank][2][0] for rank in range(2)], axis=0)
    assert np.abs(xla[0][2]["result0"] - mean).max() > 0.1


@pytest.mark.parametrize(
    "options, first",
    [
        ("matrix-approximation-rank=4 min-compression-rate=1", 0.0),
        pytest.param(
            "matrix-approximation-rank=4 min-compression-rate=1", 1e-25, marks=LIKE_OTHERS
        ),
        ("matrix-approximation-rank=2", 1e25),
        pytest.param("matrix-approximation-rank=2", 0.0, marks=LIKE_OTHERS),
        ("matrix-approximation-rank=2 independent-columns=true", 0.0),
        ("matrix-approximation-rank=2 orthogonalization-epsilon=1e-3", 0.0),
        ("matrix-approximation-rank=2 keep-zero-columns=false", 0.0),
    ],
)
def test_extreme_gradients(tmp_path, options, first):
    """One matrix is zero, or nearly, or nearly infinite: unit vectors or NaN, as in the
    runtime."""
    inputs = random_inputs(2, 4)
    for rank in inputs:
        for step in rank:
            step[0] = step[0] * np.float32(first)
    hook = f"hook=powersgd start-powersgd-iter=2 {options}"
    ours, xla, _ = run_both(tmp_path, module(2), hook, inputs)
    for rank in range(2):
        for step in range(4):
            pairs = zip(results(xla[rank][step]), results(ours[rank][step]), strict=True)
            for number, (got, want) in enumerate(pairs):
                is_lost = "columns=false" in options and step >= 2 and number == 0
                assert np.isnan(want).all() == is_lost
                limit = 0 if is_lost else 1.5e-5 * np.abs(want).max()
                np.testing.assert_allclose(got, want, rtol=0, atol=limit)


@pytest.mark.parametrize("world", [3, 4])
def test_powersgd_on_more_ranks(tmp_path, world):
    inputs = random_inputs(world, 4)
    hook = "hook=powersgd start-powersgd-iter=2 matrix-approximation-rank=2"
    ours, xla, after = run_both(tmp_path, module(world, kinds=("mean", "sum")), hook, inputs)
    assert_same_bits(xla[0][1], ours[0][1])
    assert_powersgd(ours, xla, after, 1.5e-5)


# A job of three ranks may deadlock there: its threads are as many as processors.
@pytest.mark.parametrize("hook", ["fp16", "bf16", "powersgd"])
def test_interpreter(tmp_path, hook):
    """StableHLO's own interpreter, which is no compiler and rounds what it says."""
    if hook == "powersgd":
        hook += " start-powersgd-iter=2 matrix-approximation-rank=3 min-compression-rate=1"
    inputs = random_inputs(2, 4)
    ours, xla, after = run_both(tmp_path, module(2), f"hook={hook}", inputs, "interpreter")
    if "powersgd" in hook:
        return assert_powersgd(ours, xla, after, 1.5e-5)
    for rank in range(2):
        for step in range(4):
            assert_same_bits(xla[rank][step], ours[rank][step])


def test_documented_step(tmp_path):
    """The command of docs/frontends.md, and the step that it makes, in XLA: at first what
    NumPy computes, and from the first compressed step on another one, alike on all
    ranks."""
    page = (ROOT / "docs" / "frontends.md").read_text(encoding="utf-8")
    [command] = re.findall(r"```sh\n(ddphook-opt docs/examples/xla/[^`]*)```", page)
    command = command.replace("states.json", f"{tmp_path}/manifest.json")
    command = command.replace("compressed.mlir", f"{tmp_path}/module.mlir")
    path = f"{OPT.parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-ec", command], cwd=ROOT, env={**os.environ, "PATH": path}, check=True
    )
    described = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    generator = np.random.default_rng(SEED)
    w, target = generator.standard_normal((2, 16, 8), dtype=np.float32)
    first = {state["name"]: first_value(state) for state in described["states"]}
    states = [first] * 4
    for step in range(3):
        gradients = []
        for rank in range(4):
            x = generator.standard_normal((8, 16), dtype=np.float32)
            gradients.append(x.T @ (x @ w - x @ target))
            named = {"arg0": w, "arg1": x, "arg2": x @ target}
            save_file(named, tmp_path / f"in.{rank}.0.safetensors")
            save_file(states[rank], tmp_path / f"before.{rank}.safetensors")
        call(sys.executable, XLA, "xla", 4, 1, tmp_path)
        out = [load_file(tmp_path / f"out.{rank}.0.safetensors") for rank in range(4)]
        move = 0.02 * np.mean(gradients, axis=0)
        off = np.abs(w - move - out[0]["result0"]).max() / np.abs(move).max()
        # The third step is the first compressed one.
        assert (off < 1e-5) == (step < 2), (step, off)
        for rank in out:
            assert_same_bits({"result0": rank["result0"]}, {"result0": out[0]["result0"]})
        states = [{name: rank[name] for name in first} for rank in out]
        w = out[0]["result0"]
    assert int(states[0]["powersgd.iter"]) == 3
