// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bufferizes operations on flat tensors. By then buckets are flat
// (`ddp-flatten`), and pack, unpack, split and concat are gone
// (`ddp-materialize-buckets`, `ddp-assign-destinations`).

#include "Utils/Arrays.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace mlir::ddp;

namespace {

/// Every operand except `into` is read; `into` is written and not read.
template <typename ModelT, typename OpTy>
struct FlatBufferizationBase
    : public DstBufferizableOpInterfaceExternalModel<ModelT, OpTy> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    return !cast<DestinationStyleOpInterface>(op).isDpsInit(&operand) ||
           isConditional(op);
  }

  /// A start that does not run leaves the old contents of `into`.
  static bool isConditional(Operation *op) {
    auto start = dyn_cast<FlatStartOpInterface>(op);
    return start && start.getCondition();
  }

  /// The operation on memrefs has no results except a ticket.
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      if (!isa<TensorType>(operand.getType())) {
        operands.push_back(operand);
        continue;
      }
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      operands.push_back(*buffer);
    }
    if (auto start = dyn_cast<FlatStartOpInterface>(op);
        start && start.getCondition())
      operands[start.getInputMutable().getOperandNumber()] =
          operands[start.getDestinationOperand().getOperandNumber()];
    OperationState onMemory(op->getLoc(), op->getName());
    onMemory.addOperands(operands);
    onMemory.addAttributes(op->getAttrs());
    for (Type type : op->getResultTypes())
      if (!isa<TensorType>(type))
        onMemory.addTypes(type);
    ValueRange others = rewriter.create(onMemory)->getResults();
    SmallVector<Value> results;
    for (OpResult result : op->getResults()) {
      if (!isa<TensorType>(result.getType())) {
        results.push_back(others.front());
        continue;
      }
      OpOperand *init =
          cast<DestinationStyleOpInterface>(op).getTiedOpOperand(result);
      results.push_back(operands[init->getOperandNumber()]);
    }
    replaceOpWithBufferizedValues(rewriter, op, results);
    return success();
  }
};

template <typename OpTy>
struct FlatBufferization
    : public FlatBufferizationBase<FlatBufferization<OpTy>, OpTy> {
  /// Answers for a read and a write of this operation that may access the same
  /// memory: an operand and the destination that it conflicts with.
  bool bufferizesToElementwiseAccess(Operation *op, const AnalysisState &,
                                     ArrayRef<OpOperand *> operands) const {
    auto flat = cast<DestinationStyleOpInterface>(op);
    OpOperand *written = nullptr, *read = nullptr;
    for (OpOperand *operand : operands)
      (flat.isDpsInit(operand) && !written ? written : read) = operand;
    return !written || !read || flat.isDpsInit(read) ||
           cast<FlatOpInterface>(op).mayOverwrite(
               flat.getTiedOpResult(written).getResultNumber(), *read);
  }
};

/// Until the wait the destination is written and the collective's operand is
/// read. Both must keep their memory, and the operand its contents.
struct WaitBufferization
    : public FlatBufferizationBase<WaitBufferization, FlatWaitOp> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }

  /// Data in flight has not arrived before the wait: a copy follows it.
  LogicalResult resolveConflicts(Operation *op, RewriterBase &rewriter,
                                 const AnalysisState &analysis,
                                 const BufferizationState &) const {
    auto wait = cast<FlatWaitOp>(op);
    Value arrived = wait.getResult();
    if (!arrived || analysis.isInPlace(wait.getDestinationMutable()))
      return success();
    rewriter.setInsertionPointAfter(wait);
    Value copy = createCopy(rewriter, wait.getLoc(), arrived);
    rewriter.replaceAllUsesExcept(arrived, copy, copy.getDefiningOp());
    return success();
  }

  /// The collective may overwrite its own operand, and the wait writes nothing
  /// else. Any other write must leave the operand alone, even if the collective
  /// turns out to write elsewhere.
  bool isNotConflicting(Operation *op, OpOperand *read, OpOperand *write,
                        const AnalysisState &) const {
    auto wait = cast<FlatWaitOp>(op);
    OpOperand &written = wait.getStart().getDestinationOperand();
    return read->getOwner() == op && read->get() == written.get() &&
           (write == &written || write == &wait.getDestinationMutable());
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto wait = cast<FlatWaitOp>(op);
    FailureOr<Value> inFlight =
        getBuffer(rewriter, wait.getDestination(), options, state);
    if (failed(inFlight))
      return failure();
    Value source;
    if (wait.getSource()) {
      FailureOr<Value> buffer =
          getBuffer(rewriter, wait.getSource(), options, state);
      if (failed(buffer))
        return failure();
      if (*buffer != *inFlight)
        source = *buffer;
    }
    FlatWaitOp::create(rewriter, op->getLoc(), *inFlight, wait.getTicket(),
                       source);
    replaceOpWithBufferizedValues(rewriter, op, *inFlight);
    return success();
  }
};

/// Reads its operand and returns only a number.
struct IsFiniteBufferization
    : public BufferizableOpInterface::ExternalModel<IsFiniteBufferization,
                                                    IsFiniteOp> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    FailureOr<Value> input =
        getBuffer(rewriter, op->getOperand(0), options, state);
    if (failed(input))
      return failure();
    rewriter.replaceOpWithNewOp<IsFiniteOp>(op, rewriter.getI1Type(), *input);
    return success();
  }
};

} // namespace

template <typename... OpTs>
static void attach(MLIRContext *context) {
  (OpTs::template attachInterface<FlatBufferization<OpTs>>(*context), ...);
}

void mlir::ddp::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, DDPDialect *) {
    attach<FlatAddOp, FlatAllGatherOp, FlatAllReduceOp, FlatAllReduceStartOp,
           FlatAllToAllOp, FlatBroadcastOp, FlatCastOp, FlatDensifyOp,
           FlatEncodingErrorOp, FlatExchangeStartOp, FlatMatmulOp,
           FlatOrthogonalizeOp, FlatProjectOp, FlatRandomNormalOp,
           FlatReconstructOp, FlatReduceScatterOp, FlatScaleOp, FlatSparsifyOp,
           FlatSubOp>(context);
    IsFiniteOp::attachInterface<IsFiniteBufferization>(*context);
    FlatWaitOp::attachInterface<WaitBufferization>(*context);
  });
}
