// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Extends upstream's MlirOptMain(): adds --ddp-plan-report, verifies by default
// only after the last pass, and fails if a plugin cannot be loaded.

#pragma once

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/Error.h"

namespace mlir::ddp {

/// Adds the options of reports. Must be called before parsing the command line.
void registerReportOptions();

/// Returns true if all plugins on the command line can be loaded; otherwise
/// prints an error for one that cannot. Upstream's parser would continue
/// without it.
bool checkPlugins(ArrayRef<const char *> arguments);

/// Runs the passes of `config` on the file `input`, and writes the result to
/// `output`, and a report if the command line asks for one. The error's text is
/// empty if it was reported already. With a report on standard output, the
/// module is written there only if the options name that output.
llvm::Error runPasses(MlirOptMainConfig config, StringRef input,
                      StringRef output, DialectRegistry &registry);

} // namespace mlir::ddp
