// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reports of ddphook-opt, ddphook-cc and ddphook-run. The tools write JSON;
// ddphook-report, a Python script next to them, makes pages and text from it.

#pragma once

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <optional>
#include <string>

namespace mlir::ddp {

/// The file of a report that the command line names.
class PlanReportFile {
public:
  /// Checks `path` and `tracePath` before anything is compiled. Without a path
  /// there is no report. `module` is the input's name, and `output` the
  /// compiler's output file, if any.
  llvm::Error prepare(std::optional<llvm::StringRef> path,
                      std::optional<llvm::StringRef> tracePath,
                      llvm::StringRef module, llvm::StringRef output);

  bool isWanted() const { return !path.empty(); }
  bool isOnStandardOutput() const { return path == "-"; }

  llvm::Error write(llvm::Expected<llvm::json::Object> report) const;

  /// Returns the value of an option, or nothing if it was not given.
  static std::optional<llvm::StringRef>
  getValue(const llvm::cl::opt<std::string> &option) {
    if (option.getNumOccurrences())
      return llvm::StringRef(option.getValue());
    return std::nullopt;
  }

private:
  std::string path, tracePath, module;
};

} // namespace mlir::ddp
