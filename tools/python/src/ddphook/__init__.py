# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradient compression for data-parallel training, compiled.

``ddphook.torch`` registers compiled communication hooks with PyTorch's
``DistributedDataParallel``; ``ddphook.jax`` compresses gradients in JAX programs;
``ddphook.compiler`` is the compiler itself, for modules in memory. This module has the
exceptions and the version; it imports neither PyTorch nor JAX nor a library of ddphook.
"""

from ddphook import _errors
from ddphook._errors import *  # noqa: F403

__version__ = "0.1.0"

__all__ = ["__version__"]
__all__ += _errors.__all__
