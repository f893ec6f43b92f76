//===- PassRun.h - passes on a file -----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ddphook-opt adds to upstream's MlirOptMain(): --ddp-plan-report, and a
// verifier that by default runs behind the last pass and not behind each one. A
// plugin that cannot be loaded ends it.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_TOOLS_OPT_PASSRUN_H
#define DDPHOOK_TOOLS_OPT_PASSRUN_H

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/Error.h"

namespace mlir::ddp {

/// Adds the options of reports. To be called before the command line is parsed.
void registerReportOptions();

/// Whether the libraries that the command line names as plugins can be loaded;
/// a message says which one cannot. Upstream's parser of the command line goes
/// on without it.
bool checkPlugins(ArrayRef<const char *> arguments);

/// Runs the passes that `config` names on the file `input`, and writes what
/// they leave to `output`, with a report if the command line asks for one. The
/// error's text is empty if messages have said it. With a report on standard
/// output, the module goes there only if the options name that output.
llvm::Error runPasses(MlirOptMainConfig config, StringRef input,
                      StringRef output, DialectRegistry &registry);

} // namespace mlir::ddp

#endif // DDPHOOK_TOOLS_OPT_PASSRUN_H
