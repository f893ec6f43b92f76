# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One file has all private names of PyTorch, and the installed PyTorch has them all."""

import ast
import importlib
import pathlib
import pkgutil
import re
import runpy
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms import ddp_comm_hooks
from torch.nn.parallel import DistributedDataParallel

import ranks
from ddphook import TypedHook

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tools" / "python" / "src" / "ddphook"
ADAPTERS = PACKAGE / "torch" / "_private.py"
# Private names of Python, of Accelerate and of Lightning.
OTHERS = {"_abc_impl", "_asdict", "_fields_", "_getframe", "_lru_cache_wrapper", "_replace"}
OTHERS |= {"_models", "_ddp_comm_hook", "_ddp_comm_state", "_ddp_comm_wrapper"}
# The first release whose sharded models ddphook.torch can reduce.
SHARDS = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) >= (2, 15)


def is_private(name):
    return name.startswith("_") and name.strip("_") != "" and not name.endswith("__")


def names_of(tree):
    """Yields each name that could be private to PyTorch, with its line and whether it
    certainly belongs to a module other than ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            is_own = (node.module or "").split(".")[0] == "ddphook"
            names = [*(node.module or "").split("."), *(a.name for a in node.names)]
            yield from ((name, node.lineno, True) for name in names if not is_own)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names = alias.name.split(".")
                is_own = names[0] == "ddphook"
                yield from ((name, node.lineno, True) for name in names if not is_own)
        elif isinstance(node, ast.Attribute):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            root = root.id if isinstance(root, ast.Name) else ""
            yield node.attr, node.lineno, root in ("torch", "dist", "c10d", "nn")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("getattr", "hasattr", "setattr"):
                if isinstance(name := node.args[1], ast.Constant):
                    yield name.value, node.lineno, False


def own_names(trees):
    """Returns the names that the package defines."""
    names = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    names.add(node.attr)
    return names


def uses(files):
    trees = {file: ast.parse(file.read_text(), file.name) for file in files}
    own = own_names(trees.values()) | OTHERS
    # Names that adapters have as texts.
    texts = {
        node.value
        for node in ast.walk(ast.parse(ADAPTERS.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    found = []
    for file, tree in trees.items():
        found += [
            f"{file.name}:{line}: {name}"
            for name, line, is_theirs in names_of(tree)
            if is_private(name) and (is_theirs and name not in OTHERS or name not in own)
        ]
        found += [
            f"{file.name}:{node.lineno}: {node.value!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in texts
            and is_private(str(node.value))
        ]
    return found


def test_no_other_file_uses_a_private_name():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 30
    assert uses(file for file in files if file != ADAPTERS) == []


@pytest.mark.parametrize(
    "text",
    [
        "import torch._dynamo",
        "from torch._subclasses import fake_tensor",
        "from torch.utils import _pytree",
        "torch._foreach_copy_([], [])",
        "print(model._comm_hooks)",
        "hasattr(optimizer, '_init_group')",
        "NAMES = ['_orig_mod']",
    ],
)
def test_a_private_name_is_found(tmp_path, text):
    file = tmp_path / "file.py"
    file.write_text(text)
    assert uses([file])


def places():
    from ddphook.torch import _private

    return _private.PLACES


@pytest.mark.parametrize("name", sorted(places()))
def test_pytorch_has(name):
    from ddphook.torch import _private

    if name in ("DefaultAllGather", "DefaultReduceScatter") and not SHARDS:
        pytest.skip("only sharded models need it")
    vars(_private).pop(name, None)
    assert getattr(_private, name) is not None


@pytest.mark.parametrize(
    "function", [hook.function for hook in TypedHook.__subclasses__() if hook.function]
)
def test_pytorch_has_the_hook(function):
    modules = [
        importlib.import_module(f"{ddp_comm_hooks.__name__}.{module.name}")
        for module in pkgutil.iter_modules(ddp_comm_hooks.__path__)
    ]
    assert any(callable(getattr(module, function, None)) for module in modules)


def test_a_name_that_pytorch_lacks_is_refused(monkeypatch):
    import ddphook
    from ddphook.torch import _private

    monkeypatch.setitem(_private.PLACES, "gone", "torch._guards:gone")
    with pytest.raises(ddphook.UnsupportedError) as error:
        from ddphook.torch._private import gone  # noqa: F401
    text = str(error.value)
    assert "torch._guards.gone" in text and torch.__version__ in text
    assert "pip install 'torch>=2.8,<2.16'" in text and "\n" not in text


def _of_ddp(rank):
    from ddphook.torch import _private

    model = DistributedDataParallel(nn.Linear(3, 2))
    assert not _private.has_rebuilt_buckets(model)
    for _ in range(2):
        model(torch.randn(4, 3)).sum().backward()
    assert _private.has_rebuilt_buckets(model)
    assert not _private.has_python_reducer(model)
    assert _private.comm_hooks(model) == []
    model.register_comm_hook("state", hook := lambda state, bucket: None)
    assert _private.comm_hooks(model) == [(hook, "state")]
    group = dist.new_group([0], use_local_synchronization=True)
    assert ("0", 1, "gloo") in _private.groups()
    assert (group.group_name, 1, "gloo") in _private.groups()
    assert _private.resolve_process_group(group.group_name) is group
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        assert _private.has_python_reducer(DistributedDataParallel(nn.Linear(3, 2)))
    from torch.distributed.optim import _apply_optimizer_in_backward as apply

    linear = nn.Linear(3, 2)
    assert not _private.has_optimizer_in_backward(linear.weight)
    apply(torch.optim.SGD, [linear.weight], {"lr": 0.1})
    assert _private.has_optimizer_in_backward(linear.weight)


def test_adapters_of_ddp():
    ranks.run(1, _of_ddp)


def _without_fsdp(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import ddphook.torch

    net = fully_shard(nn.Linear(3, 2), mesh=init_device_mesh("cpu", (1,)))
    message = r"expected PyTorch 2\.15 for a sharded model, but .* lacks _"
    with pytest.raises(ddphook.UnsupportedError, match=message):
        ddphook.torch.register(net, "fp16")


def _of_fsdp(rank):
    from torch.distributed._composable import replicate
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from ddphook.torch import _private

    net = fully_shard(nn.Linear(3, 2), mesh=init_device_mesh("cpu", (1,)))
    [group] = _private.sharded_groups(nn.Sequential(net))
    assert _private.module_of(group.fsdp_params[0]) == (net, "weight")
    assert not _private.has_partial_reduction(group)
    old = _private.exchange_collectives(group, ())
    assert type(old[0]) is _private.DefaultReduceScatter
    assert type(old[3]) is _private.DefaultAllGather
    assert _private.exchange_collectives(group, ["a", "b", "c"]) == old
    assert _private.exchange_collectives(group, old) == ["a", "b", "c", old[3]]
    assert not _private.is_replicated_by_ddp(net)
    assert _private.is_replicated_by_ddp(nn.Sequential(replicate(nn.Linear(3, 2))))
    wrapped = dict(checkpoint_wrapper(nn.Linear(3, 2)).named_modules())
    assert _private.CHECKPOINTED in wrapped

    seen = []

    def watch(gradient):
        seen.append(_private.is_in_backward())
        _private.after_backward(lambda: seen.append("after"))

    weight = torch.ones(1, requires_grad=True)
    weight.register_hook(watch)
    (weight * 2).sum().backward()
    assert seen == [True, "after"] and not _private.is_in_backward()


def test_adapters_of_sharded_models():
    ranks.run(1, _of_fsdp if SHARDS else _without_fsdp)


def _gloo(rank, level):
    from datetime import timedelta

    from ddphook.torch import _private

    dist.set_debug_level(level)
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    _private.use_gloo(group, dist.HashStore(), timedelta(seconds=60))
    assert group._device_types == [torch.device("cpu")] and group.size() == 1
    tensor = torch.ones(3)
    group.broadcast(tensor, 0).wait()
    kind = type(group._get_backend(torch.device("cpu"))).__name__
    assert kind == {"DETAIL": "_ProcessGroupWrapper"}.get(level.name, "ProcessGroupGloo")


def test_adapters_of_process_groups():
    for level in dist.DebugLevel.OFF, dist.DebugLevel.DETAIL:
        ranks.run(1, _gloo, level)


def test_adapters_of_modules_and_tensors():
    from ddphook.torch import _private

    linear = nn.Linear(3, 2)
    assert all(name in vars(linear) for name in _private.TABLES)
    assert _private.tensor_tables(linear)[0]["weight"] is linear.weight
    assert all(hasattr(nn.LSTM(2, 2), name) for name in _private.DERIVED)
    assert hasattr(nn.Buffer(torch.zeros(1)), "_is_buffer")
    assert _private.OF_BUFFERS >= vars(nn.Buffer(torch.zeros(1))).keys()
    compiled = torch.compile(linear, backend="eager")
    assert _private.unwrapped(compiled) is linear
    function = torch.compile(lambda x: x, backend="eager")
    assert hasattr(function, _private.ORIG_CALLABLE)
    tensor = torch.zeros(3, requires_grad=True)
    assert not any(_private.hooks_of_tensor(tensor).values())
    for register, hooks in _private.hooks_of_tensor(tensor).items():
        getattr(tensor, register)(hook := lambda *_: None)
        hooks = _private.hooks_of_tensor(tensor)[register]
        assert list(hooks.values()) == [hook]
    assert _private.storage_of(tensor) == _private.storage_of(tensor[1:])
    assert _private.storage_of(tensor) != _private.storage_of(tensor.clone())
    assert not _private.is_view_of_complex(tensor[1:])
    assert _private.is_view_of_complex(torch.view_as_real(torch.ones(2, 2) * 1j))
    assert _private.is_expanded(tensor[:1].expand(5)) and not _private.is_expanded(tensor)

    class Assigned(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    seen = []
    with Assigned():
        tensor.data = torch.ones(3)
    assert _private.SET_DATA in seen


def test_adapters_of_optimizers():
    from ddphook.torch import _private

    linear = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(linear.parameters())
    assert all(hasattr(optimizer, name) for name in _private.OPTIMIZER_HOOKS)
    assert callable(_private.init_group(optimizer))
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    step = lambda: None  # noqa: E731
    _private.keep_scheduler_mark(optimizer.step, step)
    assert vars(step)
    plain = torch.optim.SGD(linear.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1)
    _private.note_step(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


def test_adapters_of_graphs_and_profiler():
    from ddphook.torch import _private

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    add = graph.call_function(torch.ops.aten.add.Tensor, (x, x))
    write = graph.call_function(torch.ops.aten.add_.Tensor, (x, x))
    assert [_private.writes_memory(node) for node in (x, add, write)] == [False, False, True]
    assert _private.operator_name(add.target) == "add"
    assert _private.operator_name(len) == ""
    start = _private.collectives.all_reduce.default
    assert _private.argument_names(start) == ["input", "reduce_op", "group_name"]
    assert start.namespace == _private.COLLECTIVES
    assert not _private.is_profiling()
    with torch.profiler.profile() as profile:
        assert _private.is_profiling()
        future = torch.futures.Future()
        with torch.autograd.profiler.record_function("ours") as record:
            ended = _private.end_record(record, future)
        future.set_result(1)
        ended.wait()
    assert "ours" in [event.name for event in profile.events()]


def test_adapters_of_compiled_functions():
    import sys

    from ddphook.torch import _private

    seen = []

    @torch._dynamo.disable
    def look():
        seen.extend(_private.compiled_calls(sys._getframe()))

    def backend(graph, inputs):
        return graph.forward

    def step(x):
        look()
        return x + 1

    torch.compile(step, backend=backend)(torch.zeros(1))
    assert len(seen) == 1 and isinstance(seen[0]["cleanups"], list)
    assert _private.innermost_backend(seen[0]["self"].callback).compiler_fn is backend
    if _private.announces_backends():
        called = []
        _private.on_announcement(backend, lambda: called.append(1))
        torch.compile(step, backend=backend)
        assert called == [1]
    known = _private.region_argument("name")
    assert known in ({}, {"compile_region_name": "name"})


def started_with(monkeypatch, release):
    """Runs the adapters' file as if PyTorch were of this release."""
    monkeypatch.setattr(torch, "__version__", release)
    return runpy.run_path(str(ADAPTERS))


@pytest.mark.parametrize("release", ["2.7.1+cpu", "1.13.0"])
def test_an_old_pytorch_is_an_error(monkeypatch, release):
    with pytest.raises(ImportError) as error:
        started_with(monkeypatch, release)
    assert str(error.value) == (
        f"ddphook.torch needs torch>=2.8,<2.16, but found PyTorch {release}; run pip "
        "install 'torch>=2.8,<2.16'"
    )


@pytest.mark.parametrize("release", ["2.16.0", "2.16.0a0+git1234", "3.0.0"])
def test_a_new_pytorch_is_a_warning(monkeypatch, release):
    with pytest.warns(UserWarning, match=f"found PyTorch {re.escape(release)}") as given:
        started_with(monkeypatch, release)
    assert len(given) == 1


@pytest.mark.parametrize("release", ["2.8.0", "2.9.1+cu128", "2.15.3", "2.10.0rc1"])
def test_other_pytorchs_say_nothing(monkeypatch, release):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        started_with(monkeypatch, release)


def test_metadata_has_the_same_bounds():
    from ddphook.torch import _private

    text = (ROOT / "tools" / "python" / "pyproject.toml").read_text()
    assert f'torch = ["{_private._REQUIREMENT}", "numpy"]' in text
