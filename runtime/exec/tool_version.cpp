// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "tool_version.h"

#include "ddphook/runtime/compiled.h"

std::string ddphook::describeVersion(const std::string &toolName) {
  const std::string abi = std::to_string(DDPHOOK_ABI_VERSION);
  return toolName + " (ddphook) " DDPHOOK_VERSION "\nruntime ABI " + abi +
         ", plan " + abi + "\n";
}
