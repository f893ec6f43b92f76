// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tools with the runtime. For those with LLVM's library see ToolOptions.h.

#ifndef DDPHOOK_RUNTIME_EXEC_TOOL_VERSION_H
#define DDPHOOK_RUNTIME_EXEC_TOOL_VERSION_H

#include <string>

namespace ddphook {

/// Returns "TOOL (ddphook) 0.1.0" and the versions of its interfaces.
std::string describeVersion(const std::string &toolName);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_EXEC_TOOL_VERSION_H
