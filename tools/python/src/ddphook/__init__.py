# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradient compression for data-parallel training, compiled.

``ddphook.torch`` registers compiled communication hooks with PyTorch's
``DistributedDataParallel``; ``ddphook.jax`` compresses gradients in JAX programs;
``ddphook.compiler`` is the compiler itself, for modules in memory. This module has the
hooks, the exceptions and the version; it imports neither PyTorch nor JAX nor a library of
ddphook.
"""

import sys

try:
    import ctypes as _ctypes  # noqa: F401 - the libraries are loaded with it.
except ImportError as error:
    raise ImportError(
        f"ddphook needs ctypes, but {sys.executable} was built without it ({error}); use "
        "another Python, or build this one with libffi"
    ) from None

from ddphook import _errors, _generated_hooks
from ddphook._errors import *  # noqa: F403
from ddphook._generated_hooks import *  # noqa: F403
from ddphook._typed_hook import TypedHook, Wrap, WrapperName

__version__ = "0.1.0"

__all__ = ["TypedHook", "Wrap", "WrapperName", "__version__"]
__all__ += _errors.__all__
__all__ += _generated_hooks.__all__
