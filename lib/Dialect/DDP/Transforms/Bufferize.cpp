// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-bufferize: bufferizes chains that are obviously in place, and runs
// One-Shot Bufferize for the rest. One-Shot refuses programs whose control flow
// forces two conflicting values into the same memory. In such functions this
// pass first copies the values that loops and branches pass on to separate
// memory.

#include "Utils/Arrays.h"
#include "Utils/BufferizeChains.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotModuleBufferize.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/ControlFlow/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Linalg/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"

#define GEN_PASS_DEF_DDPBUFFERIZEPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

void mlir::ddp::registerBufferizationModels(DialectRegistry &registry) {
  ddp::registerBufferizableOpInterfaceExternalModels(registry);
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(
      registry);
  cf::registerBufferizableOpInterfaceExternalModels(registry);
  linalg::registerBufferizableOpInterfaceExternalModels(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
}

static bufferization::OneShotBufferizationOptions getOptions() {
  bufferization::OneShotBufferizationOptions options;
  // Private functions: ddp-prepare-entries has simplified the public ones.
  options.bufferizeFunctionBoundaries = true;
  options.setFunctionBoundaryTypeConversion(
      bufferization::LayoutMapOption::IdentityLayoutMap);
  return options;
}

/// Copies `operand` to separate memory, unless it is such a copy already.
/// Returns true if it made a copy.
static bool copyOperand(OpOperand &operand) {
  Value value = operand.get();
  if (!isa<RankedTensorType>(value.getType()) ||
      (value.hasOneUse() &&
       value.getDefiningOp<bufferization::AllocTensorOp>()))
    return false;
  OpBuilder builder(operand.getOwner());
  operand.set(createCopy(builder, operand.getOwner()->getLoc(), value));
  return true;
}

/// Returns the move that `ddp-yield-in-place` or `ddp-assign-destinations` made
/// to put a tensor into the memory that a loop or a branch has for it, or null.
static bufferization::MaterializeInDestinationOp getMove(OpOperand &operand) {
  return operand.get()
      .getDefiningOp<bufferization::MaterializeInDestinationOp>();
}

/// Copies the initial values of loops, the values passed to the next iteration
/// (before they move into the loop's memory), and the values that branches
/// yield. Returns the number of copies.
static unsigned separateMemory(FunctionOpInterface function) {
  unsigned numCopies = 0;
  function.walk([&](Operation *op) {
    if (isa<scf::ForOp, scf::WhileOp, scf::ForallOp>(op))
      for (OpOperand &operand : op->getOpOperands())
        numCopies += copyOperand(operand);
    if (!op->hasTrait<OpTrait::IsTerminator>())
      return;
    if (isa<scf::ForOp, scf::WhileOp>(op->getParentOp())) {
      for (OpOperand &operand : op->getOpOperands())
        if (auto move = getMove(operand))
          numCopies += copyOperand(move.getSourceMutable());
    } else if (isa<scf::IfOp, scf::ExecuteRegionOp>(op->getParentOp())) {
      for (OpOperand &operand : op->getOpOperands()) {
        if (auto move = getMove(operand)) {
          operand.set(move.getSource());
          // It would overwrite what the copies of other operands still read.
          if (move->use_empty())
            move->erase();
        }
        numCopies += copyOperand(operand);
      }
    }
  });
  return numCopies;
}

/// Reports an operation on buckets. One-Shot Bufferize would only say that it
/// was not bufferized.
static WalkResult checkIsFlat(Operation *op) {
  auto isValue = llvm::IsaPred<BucketType, FutureType, TensorType>;
  if (!isa_and_nonnull<DDPDialect>(op->getDialect()) ||
      isa<bufferization::BufferizableOpInterface>(op) ||
      (llvm::none_of(op->getOperandTypes(), isValue) &&
       llvm::none_of(op->getResultTypes(), isValue)))
    return WalkResult::advance();
  op->emitOpError() << "expected 'ddp-flatten', 'ddp-assign-destinations' and "
                    << "'ddp-materialize-buckets' before bufferization";
  return WalkResult::interrupt();
}

namespace {
struct BufferizePass : public ddp::impl::DDPBufferizePassBase<BufferizePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (module.walk(checkIsFlat).wasInterrupted())
      return signalPassFailure();
    bufferization::OneShotBufferizationOptions options = getOptions();
    bufferization::BufferizationState memory;
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(bufferizeChains(function, options, memory)))
        return signalPassFailure();
    llvm::DenseSet<Operation *> separated;
    while (true) {
      bufferization::OneShotAnalysisState state(module, options);
      SmallVector<Diagnostic> diagnostics;
      if (succeeded(analyze(state, diagnostics)))
        return bufferize(state, options, memory);
      if (!separateRefused(diagnostics, separated)) {
        for (Diagnostic &diagnostic : diagnostics)
          getContext().getDiagEngine().emit(std::move(diagnostic));
        return signalPassFailure();
      }
    }
  }

  LogicalResult analyze(bufferization::OneShotAnalysisState &state,
                        SmallVectorImpl<Diagnostic> &diagnostics) {
    ScopedDiagnosticHandler handler(&getContext(), [&](Diagnostic &diagnostic) {
      diagnostics.push_back(std::move(diagnostic));
    });
    return bufferization::analyzeModuleOp(getOperation(), state);
  }

  void bufferize(bufferization::OneShotAnalysisState &state,
                 const bufferization::OneShotBufferizationOptions &options,
                 bufferization::BufferizationState &memory) {
    if (failed(
            bufferization::insertTensorCopies(getOperation(), state, memory)) ||
        failed(
            bufferization::bufferizeModuleOp(getOperation(), options, memory)))
      signalPassFailure();
  }

  /// Separates memory in the functions that contain the operations of the
  /// diagnostics, or in all functions if that is unknown. Returns true if that
  /// changed anything.
  bool separateRefused(ArrayRef<Diagnostic> diagnostics,
                       llvm::DenseSet<Operation *> &separated) {
    llvm::SetVector<Operation *> refused, all;
    for (auto function : getOperation().getOps<FunctionOpInterface>()) {
      if (function.isExternal() || separated.contains(function))
        continue;
      all.insert(function);
      function.walk([&](Operation *op) {
        for (const Diagnostic &diagnostic : diagnostics)
          if (diagnostic.getSeverity() == DiagnosticSeverity::Error &&
              diagnostic.getLocation() == op->getLoc())
            refused.insert(function);
      });
    }
    bool hasChanged = false;
    for (Operation *function : refused.empty() ? all : refused) {
      separated.insert(function);
      unsigned numCopies = separateMemory(cast<FunctionOpInterface>(function));
      if (numCopies == 0)
        continue;
      hasChanged = true;
      remark::missed(function->getLoc(), remarkOf("Copies", "ddp-bufferize"))
          << "loops and branches copy the tensors that they carry or yield, "
             "which would otherwise share memory"
          << remark::metric("copies", numCopies);
    }
    return hasChanged;
  }
};
} // namespace
