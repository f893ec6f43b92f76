// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tools with the runtime. For those with LLVM's library see ToolOptions.h.

#pragma once

#include <string>

namespace ddphook {

/// Returns "TOOL (ddphook) 0.1.0" and the versions of its interfaces.
std::string describeVersion(const std::string &toolName);

} // namespace ddphook
