# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator


class Ddphook(CMakePackage):
    """Gradient compression for data-parallel training: an MLIR dialect with its passes,
    and the runtime that compiled steps call. `spack dev-build` builds it from a clone."""

    license("Apache-2.0 WITH LLVM-exception")

    version("0.1.0")

    variant("compiler", default=True, description="Build the compiler, too, which needs MLIR")
    variant("cuda", default=False, description="Build the CUDA backend")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("gloo@2022-05-18:")
    depends_on("highway@1.0.3:")
    depends_on("nlohmann-json@3.11.2:")
    depends_on("xxhash")
    depends_on("llvm@22+clang+lld+mlir+llvm_dylib+link_llvm_dylib", when="+compiler")
    depends_on("python@3.10:", type=("build", "run"), when="+compiler")
    depends_on("cuda@12.8:", when="+cuda")
    depends_on("nccl@2.28:", when="+cuda")

    @property
    def root_cmakelists_dir(self):
        return "." if self.spec.satisfies("+compiler") else "runtime"

    def cmake_args(self):
        return [
            self.define("DDPHOOK_BUILD_TESTS", False),
            self.define_from_variant("DDPHOOK_CUDA", "cuda"),
        ]
