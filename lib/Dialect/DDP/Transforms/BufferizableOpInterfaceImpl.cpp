//===- BufferizableOpInterfaceImpl.cpp -------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the algebra's operations become operations on memrefs. By then buckets
// are flat tensors (`ddp-flatten`) and pack, unpack, extract and concat are
// gone (`ddp-materialize-buckets`, `ddp-assign-destinations`), so that One-Shot
// Bufferize sees nothing but operations with an `into` operand.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/BufferizableOpInterfaceImpl.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace mlir::ddp;

namespace {

/// One model for all: every operand but `into` is read; `into` is written and
/// *is* the result of the same position. Without `into` results are new
/// buffers.
template <typename OpTy>
struct AlgebraBufferization
    : public BufferizableOpInterface::ExternalModel<AlgebraBufferization<OpTy>,
                                                    OpTy> {
  static MutableOperandRange getDestinations(Operation *op) {
    return cast<AlgebraOpInterface>(op).getDestinationMutable();
  }

  /// Which result `operand` is the destination of, if any.
  static std::optional<unsigned> getResultNumber(Operation *op,
                                                 OpOperand &operand) {
    for (auto [number, destination] : llvm::enumerate(getDestinations(op)))
      if (&destination == &operand)
        return number;
    return std::nullopt;
  }

  static OpOperand *getDestination(Operation *op, unsigned resultNumber) {
    MutableOperandRange range = getDestinations(op);
    return range.empty() ? nullptr : &range[resultNumber];
  }

  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    return !getResultNumber(op, operand);
  }

  bool bufferizesToMemoryWrite(Operation *op, OpOperand &operand,
                               const AnalysisState &) const {
    return getResultNumber(op, operand).has_value();
  }

  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand,
                                      const AnalysisState &) const {
    if (std::optional<unsigned> number = getResultNumber(op, operand))
      return {{op->getResult(*number), BufferRelation::Equivalent}};
    return {};
  }

  AliasingOpOperandList getAliasingOpOperands(Operation *op, Value value,
                                              const AnalysisState &) const {
    unsigned number = cast<OpResult>(value).getResultNumber();
    if (OpOperand *destination = getDestination(op, number))
      return {{destination, BufferRelation::Equivalent}};
    return {};
  }

  bool bufferizesToAllocation(Operation *op, Value) const {
    return getDestinations(op).empty();
  }

  /// Asked about a read and a write of this operation that may concern the same
  /// memory: one operand, and the destination that it conflicts with.
  bool bufferizesToElementwiseAccess(Operation *op, const AnalysisState &,
                                     ArrayRef<OpOperand *> operands) const {
    std::optional<unsigned> written;
    OpOperand *read = nullptr;
    for (OpOperand *operand : operands)
      if (std::optional<unsigned> number = getResultNumber(op, *operand);
          number && !written)
        written = number;
      else
        read = operand;
    return !written || !read || getResultNumber(op, *read) ||
           cast<AlgebraOpInterface>(op).mayOverwrite(*written, *read);
  }

  FailureOr<BufferLikeType>
  getBufferType(Operation *op, Value value, const BufferizationOptions &options,
                const BufferizationState &state,
                SmallVector<Value> &invocationStack) const {
    unsigned number = cast<OpResult>(value).getResultNumber();
    if (OpOperand *destination = getDestination(op, number))
      return bufferization::getBufferType(destination->get(), options, state,
                                          invocationStack);
    auto type = cast<RankedTensorType>(value.getType());
    return cast<BufferLikeType>(
        Type(MemRefType::get(type.getShape(), type.getElementType())));
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    if (llvm::any_of(op->getResultTypes(), llvm::IsaPred<FutureType>))
      return op->emitOpError() << "expected 'ddp-flatten' before bufferization";
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      operands.push_back(*buffer);
    }
    MutableOperandRange destinations = getDestinations(op);
    SmallVector<Value> results;
    Operation *onMemory;
    if (!destinations.empty()) {
      for (OpOperand &destination : destinations)
        results.push_back(operands[destination.getOperandNumber()]);
      onMemory = createOnMemory(op, rewriter, operands);
    } else {
      for (Value result : op->getResults()) {
        auto type = dyn_cast<RankedTensorType>(result.getType());
        if (!type)
          continue;
        FailureOr<Value> buffer = options.createAlloc(
            rewriter, op->getLoc(),
            MemRefType::get(type.getShape(), type.getElementType()), {});
        if (failed(buffer))
          return failure();
        results.push_back(*buffer);
      }
      onMemory = createOnMemory(op, rewriter, operands);
      cast<AlgebraOpInterface>(onMemory).getDestinationMutable().assign(
          results);
    }
    llvm::append_range(results, onMemory->getResults());
    replaceOpWithBufferizedValues(rewriter, op, results);
    return success();
  }

  /// The same operation, without results but for tickets, which come last.
  static Operation *createOnMemory(Operation *op, RewriterBase &rewriter,
                                   ArrayRef<Value> operands) {
    OperationState onMemory(op->getLoc(), op->getName());
    onMemory.addOperands(operands);
    onMemory.addAttributes(op->getAttrs());
    for (Type type : op->getResultTypes())
      if (!isa<TensorType>(type))
        onMemory.addTypes(type);
    return rewriter.create(onMemory);
  }
};

/// Until it, the destination in flight is written and the operand of the
/// all-reduce read: both have to stay where they are.
struct WaitBufferization
    : public BufferizableOpInterface::ExternalModel<WaitBufferization, WaitOp> {
  /// An operand that is overwritten where it lies is no other memory than what
  /// is in flight.
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    auto wait = cast<WaitOp>(op);
    return operand.get() == wait.getInFlight() ||
           operand.get() != wait.getStart().getDestination();
  }
  bool bufferizesToMemoryWrite(Operation *op, OpOperand &operand,
                               const AnalysisState &) const {
    return operand.get() == cast<WaitOp>(op).getInFlight();
  }
  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand,
                                      const AnalysisState &) const {
    if (operand.get() == cast<WaitOp>(op).getInFlight())
      return {{op->getResult(0), BufferRelation::Equivalent}};
    return {};
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto wait = cast<WaitOp>(op);
    if (isa<FutureType>(wait.getInFlight().getType()))
      return op->emitOpError() << "expected 'ddp-flatten' before bufferization";
    FailureOr<Value> inFlight =
        getBuffer(rewriter, wait.getInFlight(), options, state);
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
    WaitOp::create(rewriter, op->getLoc(), TypeRange(), *inFlight,
                   wait.getTicket(), source);
    replaceOpWithBufferizedValues(rewriter, op, *inFlight);
    return success();
  }
};

/// Reads its operand, and makes nothing of it but a number.
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
  (OpTs::template attachInterface<AlgebraBufferization<OpTs>>(*context), ...);
}

void mlir::ddp::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, DDPDialect *) {
    attach<AddOp, AllReduceOp, AllReduceStartOp, CastOp, MatmulOp,
           OrthogonalizeOp, ProjectOp, RandomNormalOp, ReconstructOp, ScaleOp,
           SubOp>(context);
    IsFiniteOp::attachInterface<IsFiniteBufferization>(*context);
    WaitOp::attachInterface<WaitBufferization>(*context);
  });
}
