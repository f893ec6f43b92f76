# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# lit's configuration of the compiler's tests. Every tool that a test may call
# is listed here. With the parameter `all_tools`, which scripts set, a tool that
# has not been built is an error; otherwise the tests that call it are
# unsupported. The Python suites (parity, errors) are pytest's.

import os
import sys

from lit.llvm import llvm_config
from lit.llvm.subst import ToolSubst

sys.path.append(os.path.dirname(__file__))
from built_tools import BuiltToolsTest

config.name = "DDPHook"
config.suffixes = [".mlir", ".test"]
config.excludes = [
    "CMakeLists.txt",
    "Inputs",
    "consumer",
    "errors",
    "fuzz",
    "lib",
    "parity",
    "unittests",
]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.ddphook_build_dir, "test")

# lit passes on a fixed list of environment variables only. Whatever describes a
# job that the caller happens to run in stays outside.
llvm_config.with_environment("LC_ALL", "C")
# What the scripts of several tests share.
llvm_config.with_environment(
    "PYTHONPATH", os.path.join(config.test_source_root, "Inputs")
)

config.substitutions.append(("%plugin", config.ddphook_plugin))
config.substitutions.append(("%testhook-plugin", config.ddphook_testhook_plugin))
config.substitutions.append(("%stock-plugin", config.ddphook_stock_plugin))
config.substitutions.append(("%python", config.python_executable))
config.substitutions.append(("%digits", config.ddphook_digits))
config.substitutions.append(("%runtime-include", config.ddphook_runtime_include))
config.substitutions.append(("%runtime-lib", config.ddphook_lib_dir))

ours = [
    "ddphook-bench",
    "ddphook-cc",
    "ddphook-exec",
    "ddphook-lsp-server",
    "ddphook-opt",
    "ddphook-report",
    "ddphook-run",
    "ddphook-test-opt",
    "ddphook-trace",
]
upstream = [
    "FileCheck",
    "clang",
    "count",
    "llc",
    "llvm-nm",
    "mlir-opt",
    "mlir-translate",
    "not",
    "split-file",
]
# Tests see what each pass leaves, not only the last one.
arguments = {"ddphook-opt": ["--verify-each"]}
tools = {
    name: ToolSubst(name, extra_args=arguments.get(name, []), unresolved="fatal")
    for name in ours + upstream
}
missing = {
    name: tools[name].regex
    for name in ours
    if not os.path.exists(os.path.join(config.ddphook_tools_dir, name))
}
missing |= {
    os.path.basename(path): substitution
    for substitution, path in (
        ("%plugin", config.ddphook_plugin),
        ("%testhook-plugin", config.ddphook_testhook_plugin),
        ("%stock-plugin", config.ddphook_stock_plugin),
        ("%runtime-lib", config.ddphook_lib_dir + "/libddphook_rt.so"),
    )
    if not os.path.exists(path)
}
if missing and "all_tools" in lit_config.params:
    lit_config.fatal("Not built: " + ", ".join(missing))
config.test_format = BuiltToolsTest(not llvm_config.use_lit_shell, missing)
llvm_config.add_tool_substitutions(
    [tool for name, tool in tools.items() if name not in missing],
    [config.ddphook_tools_dir, config.llvm_tools_dir],
)
config.substitutions.append(("%default-opt", config.ddphook_tools_dir + "/ddphook-opt"))

# A build with DDPHOOK_CODEGEN=OFF does not have what these tests are about.
if config.ddphook_codegen:
    config.available_features.add("codegen")

# NVIDIA's assembler checks the code for GPUs. Where a CUDA toolkit was asked for
# it has to be there; elsewhere lit counts the test as unsupported.
if config.ddphook_ptxas or config.ddphook_cuda:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", config.ddphook_ptxas or "ptxas"))
