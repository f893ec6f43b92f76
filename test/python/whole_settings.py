# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module of a program whose globals steps change: see test_whole_objects.py."""

RATE = 1.0
