// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs before upstream's lowering, whose error about a missing DLTI attribute
// does not help users who forgot to import a program.

#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/MPI/IR/MPI.h"

#define GEN_PASS_DEF_DDPCHECKMPIPASS
#include "ddphook/Compiler/Passes.h"

using namespace mlir;

/// The key that upstream's lowering looks up.
static constexpr StringLiteral kImplementation = "MPI:Implementation";

namespace {
struct CheckMPIPass : public ddp::impl::DDPCheckMPIPassBase<CheckMPIPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    WalkResult found = getOperation().walk([](Operation *op) {
      if (!isa_and_present<mpi::MPIDialect>(op->getDialect()) ||
          succeeded(dlti::query(op, {kImplementation}, /*emitError=*/false)))
        return WalkResult::advance();
      op->emitOpError("expected a program without 'mpi' operations; "
                      "ddp-import-mpi, run before ddp-pipeline, imports them")
              .attachNote()
          << "to call MPI alongside ddphook's runtime, name the MPI "
             "implementation: module attributes "
             "{dlti.map = #dlti.map<\"MPI:Implementation\" = \"MPICH\">}";
      return WalkResult::interrupt();
    });
    if (found.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
