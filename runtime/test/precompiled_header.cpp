//===- precompiled_header.cpp - makes the tests' precompiled header -------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The source file of the target whose precompiled header the tests share.
//
//===----------------------------------------------------------------------===//
