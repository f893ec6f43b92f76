# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Executes Spack's package file with a stand-in for Spack, for the whole project and for
# the runtime alone: configures with the arguments that it makes, with Debian's packages,
# and compares what CMake needs with what it depends on: spack.py DIRECTORY

import pathlib
import re
import runpy
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tools/packaging/spack_repo/ddphook/packages/ddphook/package.py"
# The names of CMake's cache, and the packages of Spack that provide them.
PROVIDERS = {
    "Gloo_DIR": "gloo",
    "hwy_DIR": "highway",
    "nlohmann_json_DIR": "nlohmann-json",
    "DDPHOOK_XXHASH_INCLUDE_DIR": "xxhash",
    "MLIR_DIR": "llvm",
    "LLVM_DIR": "llvm",
    "LLD_DIR": "llvm",
    "_Python3_EXECUTABLE": "python",
}


class Spec:
    """ddphook with some variants."""

    def __init__(self, enabled):
        self.enabled = enabled

    def satisfies(self, condition):
        variant = condition[1:]
        return (variant in self.enabled) == (condition[0] == "+")


class CMakePackage:
    def __init__(self, enabled):
        self.spec = Spec(enabled)

    def define(self, name, value):
        return f"-D{name}={value}"

    def define_from_variant(self, name, variant):
        return self.define(name, self.spec.satisfies(f"+{variant}"))


def load():
    """Returns the package's class, and the directives that it calls."""
    calls = []
    directives = {
        name: lambda *values, name=name, **options: calls.append((name, values, options))
        for name in ("depends_on", "generator", "license", "variant", "version")
    }
    generator = directives.pop("generator")
    modules = {
        "spack": {},
        "spack.package": directives,
        "spack_repo": {},
        "spack_repo.builtin": {},
        "spack_repo.builtin.build_systems": {},
        "spack_repo.builtin.build_systems.cmake": {
            "CMakePackage": CMakePackage,
            "generator": generator,
        },
    }
    for name, attributes in modules.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(attributes)
    return runpy.run_path(str(PACKAGE))["Ddphook"], calls


def configure(package, directory):
    """Configures, and returns CMake's cache."""
    command = ["cmake", "-G", "Ninja", "-S", ROOT / package.root_cmakelists_dir]
    # As Spack does, let CMake look for packages where dependencies are installed.
    command += ["-B", directory, "-DCMAKE_PREFIX_PATH=/usr/lib/llvm-22"]
    command += package.cmake_args()
    done = subprocess.run(command, capture_output=True, text=True)
    print(*command, done.stdout, done.stderr)
    assert done.returncode == 0
    # CMake warns of arguments that it does not know.
    assert "not used by the project" not in done.stderr
    cache = (directory / "CMakeCache.txt").read_text()
    return dict(re.findall(r"^(\w+):\w+=(.*)$", cache, re.M))


def dependencies(calls, enabled):
    """Returns the name and the constraint of each dependency of a spec."""
    spec = Spec(enabled)
    return dict(
        re.fullmatch(r"([\w-]+)(.*)", values[0]).groups()
        for name, values, options in calls
        if name == "depends_on" and spec.satisfies(options.get("when", "~none"))
    )


def main():
    work = pathlib.Path(sys.argv[1])
    ddphook, calls = load()
    version = ROOT / "include/ddphook/Dialect/DDP/IR/MLIRVersion.h"
    llvm = "@" + re.search(r"DDPHOOK_MLIR_VERSION (\d+)", version.read_text())[1]
    versions = [values[0] for name, values, _ in calls if name == "version"]
    for enabled in [{"compiler"}, set()]:
        cache = configure(ddphook(enabled), work / "-".join(["spack", *enabled]))
        assert cache["CMAKE_PROJECT_VERSION"] in versions
        # find_package() sets variables named _DIR; other searches set the rest.
        found = {
            name
            for name, value in cache.items()
            if name in PROVIDERS or (
                re.fullmatch(r"[A-Za-z]\w*_DIR", name) and value.startswith("/")
                and not re.search("^CMAKE_|_(SOURCE|BINARY|INCLUDE)_DIR$", name)
            )
        }
        needed = {PROVIDERS.get(name, name) for name in found}
        listed = dependencies(calls, enabled)
        assert listed.get("llvm", llvm).startswith(llvm)
        assert needed == listed.keys() - {"c", "cxx", "cmake"}, (needed, listed)


main()
