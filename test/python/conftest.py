# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package from the source tree, with the libraries of the build tree.

Ranks inherit both through the environment. PyTorch is required: without it the suite
fails.
"""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = str(ROOT / "tools" / "python" / "src")

os.environ.setdefault("DDPHOOK_LIBRARY_DIR", str(ROOT / "build" / "lib"))
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [SOURCES, os.environ.get("PYTHONPATH")])
)
# Ranks share the processors of one machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, SOURCES)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Creates empty caches of compiled modules and of Inductor for the whole suite."""
    place = tmp_path_factory.mktemp("cache")
    place.chmod(0o700)
    os.environ["DDPHOOK_CACHE_DIR"] = str(place)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path_factory.mktemp("inductor"))
    return place
