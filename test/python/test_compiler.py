# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``ddphook.compiler``: modules in memory, compared with the tool ddphook-opt."""

import gc
import io
import pathlib
import re
import subprocess
import sys
import threading
import weakref

import pytest

import ddphook
import ddphook.compiler
from conftest import ROOT

BIN = ROOT / "build" / "bin"
STEP = """ddp.process_group @dp size 2
func.func @step(%g: tensor<300x200xf32>) -> tensor<300x200xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<300x200xf32>
  return %r : tensor<300x200xf32>
}
"""
BRANCH = """ddp.process_group @dp size 2
func.func @step(%g: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %r = scf.if %c -> tensor<4xf32> {
    %s = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  } else {
    scf.yield %g : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
"""
JAX = ROOT / "docs" / "examples" / "xla" / "step.mlir"


def opt(file, *flags):
    done = subprocess.run(
        [BIN / "ddphook-opt", file, *flags], capture_output=True, check=True, timeout=120
    )
    return done.stdout


def test_the_same_as_the_tool(tmp_path):
    file = tmp_path / "step.mlir"
    file.write_text(STEP)
    module = ddphook.compiler.parse(STEP)
    assert str(module) + "\n" == opt(file).decode()
    generic = module.text(generic=True)
    assert generic + "\n" == opt(file, "--mlir-print-op-generic").decode()
    assert '"ddp.all_reduce"(%arg0)' in generic
    assert re.search(r'loc\("[^"]*":3:8\)', module.text(locations=True))
    module.verify()
    # Pipelines with options, with and without the surrounding module.
    expected = opt(file, "--ddp-pipeline=hook=fp16").decode()
    assert str(module.run("ddp-pipeline{hook=fp16}")) + "\n" == expected
    other = ddphook.compiler.parse_file(file)
    other.run("builtin.module(ddp-bucketize,ddp-expand-hooks{hook=fp16})")
    assert "!ddp.bucket<f16, [300x200]>" in str(other)
    assert module.diagnostics == other.diagnostics == ()


def test_passes_of_mlir():
    dead = "\n  %dead = arith.constant 1 : i32\n  %r ="
    module = ddphook.compiler.parse(STEP.replace("%r =", dead, 1))
    assert "arith.constant 1 " in str(module)
    module.run("canonicalize,cse,func.func(linalg-generalize-named-ops)")
    assert "arith.constant 1 " not in str(module)


def test_bytecode(tmp_path):
    module = ddphook.compiler.parse(STEP)
    file = tmp_path / "step.mlirbc"
    file.write_bytes(module.bytecode())
    assert file.read_bytes()[:4] == b"ML\xefR"
    for again in (ddphook.compiler.parse_file(file), ddphook.compiler.parse(STEP)):
        assert str(again) == str(module)
    assert opt(file).decode() == str(module) + "\n"
    # A truncated module is refused, wherever it ends.
    data = file.read_bytes()
    for end in range(1, len(data), 7):
        with pytest.raises(ddphook.CompileError):
            ddphook.compiler.parse(data[:end])


def test_programs_of_jax():
    with ddphook.compiler.parse_file(JAX) as module:
        module.run("ddp-stablehlo-pipeline{hook=fp16 num-ranks=4}")
        assert '"stablehlo.all_reduce"' in module.text(generic=True)
        assert "ddp." not in str(module)
    module.close()
    with pytest.raises(ddphook.FailedPreconditionError, match="not closed"):
        str(module)


@pytest.fixture(scope="module")
def exported():
    """A program of JAX in the generic form and, by name, in three that ddphook lacks."""
    jax = pytest.importorskip("jax")
    from jax import export

    def step(x):
        return jax.numpy.sin(x) @ x

    shape = jax.ShapeDtypeStruct((4, 4), jax.numpy.float32)
    module = jax.jit(step).lower(shape).compiler_ir("stablehlo")
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    return module.operation.get_asm(print_generic_op_form=True), {
        "artifact": export.export(jax.jit(step))(shape).mlir_module_serialized,
        "bytecode": bytecode.getvalue(),
        "text": str(module).encode(),
    }


REFUSALS = {
    "artifact": r"a portable artifact of StableHLO \d+\.\d+\.\d+",
    "bytecode": r"bytecode of the dialect 'stablehlo' by MLIR\S+",
}


@pytest.mark.parametrize("form", ["artifact", "bytecode", "text"])
def test_forms_of_stablehlo(exported, form, tmp_path, capfd):
    generic, forms = exported
    expected = ddphook.compiler.parse(generic)
    with ddphook.compiler.parse(forms[form]) as module:
        # Exports also say which program they are.
        for name in re.findall(r"(?<=stablehlo\.)\w+ = .*?>", str(expected)):
            assert name in str(module)
        assert "lhs_contracting_dimensions = [1]" in str(module)
        assert "stablehlo.sine" in str(module)
        again = ddphook.compiler.parse(module.bytecode())
        assert str(again) == str(module)
        text = module.text(generic=True, locations=True)
    file = tmp_path / form
    file.write_bytes(forms[form])
    command = [sys.executable, "-m", "ddphook", "text"]
    done = subprocess.run(
        [*command, file], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout == text + "\n"
    (tmp_path / "text.mlir").write_text(done.stdout)
    assert b"lhs_contracting_dimensions" in opt(tmp_path / "text.mlir")
    done = subprocess.run(
        [*command, tmp_path / "none"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and "No such file" in done.stderr
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("form", REFUSALS)
def test_stablehlo_without_jaxlib(exported, form, tmp_path, monkeypatch):
    refusal = (
        "expected StableHLO as text in the generic form, but got "
        f"{REFUSALS[form]}; `python -m ddphook text` converts it with jaxlib"
    )
    data = exported[1][form]
    file = tmp_path / form
    file.write_bytes(data)
    for tool, *flags in (
        ("ddphook-opt",),
        ("ddphook-opt", "--ddp-import-stablehlo"),
        ("ddphook-cc", "-o", tmp_path / "out.o"),
        ("ddphook-run", "--entry=main"),
    ):
        done = subprocess.run(
            [BIN / tool, file, *flags], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 1 and done.stdout == ""
        line = rf"{tool}: error: '{re.escape(str(file))}': {refusal}\n"
        assert re.fullmatch(line, done.stderr), done.stderr
    monkeypatch.setitem(sys.modules, "jaxlib.mlir.dialects", None)
    with pytest.raises(ddphook.CompileError, match=f"^{refusal}$"):
        ddphook.compiler.parse(data)
    # A truncated file is refused, wherever it ends.
    for end in range(1, len(data), 5):
        with pytest.raises(ddphook.CompileError):
            ddphook.compiler.parse(data[:end])


def test_compile(tmp_path):
    module = ddphook.compiler.parse(STEP)
    before = str(module)
    image = module.compile("hook=fp16")
    assert image[:4] == b"\x7fELF" and b"ddphook_compiled_module" in image
    assert str(module) == before
    with pytest.raises(ddphook.CompileError, match="no such option|nothing"):
        module.compile("nothing=1")


def test_errors_have_places_and_notes():
    wrong = STEP.replace("on @dp", "on @no").replace("%r =", "\n  %r =")
    with pytest.raises(ddphook.CompileError, match="'no'|@no") as raised:
        ddphook.compiler.parse(wrong)
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.severity, diagnostic.line, diagnostic.column) == ("error", 4, 8)
    assert diagnostic.message in str(raised.value)
    with pytest.raises(ddphook.CompileError) as raised:
        ddphook.compiler.parse(STEP[:70])
    assert raised.value.diagnostics[0].line == 2
    module = ddphook.compiler.parse(BRANCH)
    with pytest.raises(ddphook.CompileError, match="execute this operation equally often") as raised:
        module.run("ddp-verify-order")
    (error,) = raised.value.diagnostics
    assert (error.severity, error.line) == ("error", 4)
    assert ("this determines how often it runs", 3) in [(n.message, n.line) for n in error.notes]
    # The next exception does not repeat this error.
    with pytest.raises(ddphook.CompileError, match="ddp-nothing") as raised:
        module.run("ddp-nothing")
    assert "all ranks" not in str(raised.value)
    with pytest.raises(ddphook.CompileError, match="nothing"):
        module.run("ddp-pipeline{nothing=1}")
    # Passes over modules, for which LLVM would end the process.
    with pytest.raises(ddphook.CompileError, match="'builtin.module', but got 'func.func'"):
        module.run("func.func(ddp-pipeline)")
    assert str(module) == str(ddphook.compiler.parse(BRANCH))


def test_documented_program(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.mlir").write_text(STEP)
    page = (ROOT / "docs" / "embedding.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    exec(program, {"pathlib": pathlib})
    assert "hook = \"#ddp.fp16\"" in capfd.readouterr().out
    done = subprocess.run(
        [BIN / "ddphook-exec", "step.so", "--entry=step", "--ranks=2", "--inputs=random:1"],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "wire: 120 kB a rank" in done.stderr


def test_operations_of_another_mlir():
    """Operations built by jaxlib's bindings, in which the dialect is not registered."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    with ir.Context() as context, ir.Location.file("model.py", 7, 3, context):
        context.allow_unregistered_dialects = True
        module = ir.Module.create()
        type_ = ir.RankedTensorType.get([3], ir.F32Type.get())
        with ir.InsertionPoint(module.body):
            ir.Operation.create(
                "ddp.process_group", attributes={"sym_name": ir.StringAttr.get("dp")}
            )
            function = func.FuncOp("step", ([type_], [type_]))
        with ir.InsertionPoint(function.add_entry_block()):
            reduction = ir.Operation.create(
                "ddp.all_reduce",
                results=[type_],
                operands=list(function.arguments),
                attributes={
                    "group": ir.FlatSymbolRefAttr.get("dp"),
                    "reduction": ir.Attribute.parse("#ddp<reduction mean>"),
                },
            )
            func.ReturnOp(reduction.results)
        text = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
    mine = ddphook.compiler.parse(text)
    assert "ddp.all_reduce mean %arg0 on @dp : tensor<3xf32>" in str(mine)
    assert 'loc("model.py":7:3)' in mine.text(locations=True)


def test_memory_and_threads():
    modules = [weakref.ref(ddphook.compiler.parse(STEP)) for _ in range(3)]
    gc.collect()
    assert [reference() for reference in modules] == [None] * 3
    texts = []

    def work(hook):
        texts.append(str(ddphook.compiler.parse(STEP).run(f"ddp-pipeline{{hook={hook}}}")))

    threads = [threading.Thread(target=work, args=("bf16",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4 and len(set(texts)) == 1 and "bf16" in texts[0]
