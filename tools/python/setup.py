# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A wheel with libraries is specific to a platform; everything else is in
pyproject.toml. The wheel has no extension module, so it works with any Python 3."""

from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

HAS_LIBRARIES = (Path(__file__).parent / "src" / "ddphook" / "lib").is_dir()


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return HAS_LIBRARIES


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        python, abi, platform = super().get_tag()
        return ("py3", "none", platform) if HAS_LIBRARIES else (python, abi, platform)


setup(distclass=PlatformDistribution, cmdclass={"bdist_wheel": PlatformWheel})
