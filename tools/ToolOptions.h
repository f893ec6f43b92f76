// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tools that parse their command line with LLVM's library, which by default
// only prints LLVM's version and accepts any misspelled --h… for --help.
// ddphook-exec does not use LLVM.

#pragma once

#include "ddphook/runtime/compiled.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::ddp {

/// Must be called before the command line is parsed.
inline void setVersionPrinter(const char *tool) {
  llvm::cl::SetVersionPrinter([tool](llvm::raw_ostream &os) {
    os << tool << " (ddphook) " DDPHOOK_VERSION "\nruntime ABI "
       << DDPHOOK_ABI_VERSION << ", plan " << DDPHOOK_ABI_VERSION
       << "\nLLVM " LLVM_VERSION_STRING "\n";
  });
}

/// Returns true if LLVM's library may parse the command line. Prints an error
/// and returns false if it has an unknown option that begins with an h.
inline bool checkHelpIsMeant(const char *tool,
                             llvm::ArrayRef<const char *> arguments) {
  auto &known = llvm::cl::getRegisteredOptions();
  for (size_t i = 1; i < arguments.size(); ++i) {
    llvm::StringRef argument = arguments[i], name = argument.ltrim('-');
    if (name.size() == argument.size() || name.empty())
      continue;
    name = name.split('=').first;
    if (llvm::cl::Option *option = known.lookup(name)) {
      // Its value is the next argument.
      if (!argument.contains('=') &&
          option->getValueExpectedFlag() == llvm::cl::ValueRequired)
        ++i;
      continue;
    }
    if (!name.starts_with("h") || name == "h")
      continue;
    llvm::StringRef nearest;
    unsigned least = 3;
    for (const auto &entry : known)
      if (unsigned distance = entry.first.edit_distance(name);
          distance < least) {
        least = distance;
        nearest = entry.first;
      }
    llvm::errs() << tool << ": error: unknown option '" << argument << "'";
    if (!nearest.empty())
      llvm::errs() << ", did you mean --" << nearest << "?";
    llvm::errs() << "\n";
    return false;
  }
  return true;
}

} // namespace mlir::ddp
