//===- tool_version.h - what --version prints -------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tools that have the runtime. Those on LLVM's library: ToolOptions.h.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_EXEC_TOOL_VERSION_H
#define DDPHOOK_RUNTIME_EXEC_TOOL_VERSION_H

#include <string>

namespace ddphook {

/// "TOOL (ddphook) 0.1.0", and the versions of what it shares with others.
std::string describeVersion(const std::string &toolName);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_EXEC_TOOL_VERSION_H
