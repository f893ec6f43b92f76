//===- DDPBufferization.cpp ------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the algebra's operations become operations on memrefs. By then buckets
// are flat tensors (`ddp-flatten`) and pack, unpack, extract and concat are
// gone (`ddp-bucket-views`, `ddp-assign-destinations`), so that One-Shot
// Bufferize sees nothing but operations with an `into` operand.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace mlir::ddp;

namespace {

/// One model for all: every operand but `into` is read, `into` is written and
/// *is* the result. Without `into` the result is a new buffer.
template <typename OpTy>
struct AlgebraBufferization
    : public BufferizableOpInterface::ExternalModel<AlgebraBufferization<OpTy>,
                                                    OpTy> {
  static OpOperand *getDestination(Operation *op) {
    MutableOperandRange range = cast<OpTy>(op).getDestinationMutable();
    return range.empty() ? nullptr : &*range.begin();
  }

  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    return &operand != getDestination(op);
  }

  bool bufferizesToMemoryWrite(Operation *op, OpOperand &operand,
                               const AnalysisState &) const {
    return &operand == getDestination(op);
  }

  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand,
                                      const AnalysisState &) const {
    if (&operand == getDestination(op))
      return {{op->getResult(0), BufferRelation::Equivalent}};
    return {};
  }

  AliasingOpOperandList getAliasingOpOperands(Operation *op, Value,
                                              const AnalysisState &) const {
    if (OpOperand *destination = getDestination(op))
      return {{destination, BufferRelation::Equivalent}};
    return {};
  }

  bool bufferizesToAllocation(Operation *op, Value) const {
    return !getDestination(op);
  }

  bool bufferizesToElementwiseAccess(Operation *op, const AnalysisState &,
                                     ArrayRef<OpOperand *>) const {
    return cast<AlgebraOpInterface>(op).isElementwise();
  }

  FailureOr<BufferLikeType>
  getBufferType(Operation *op, Value value, const BufferizationOptions &options,
                const BufferizationState &state,
                SmallVector<Value> &invocationStack) const {
    if (OpOperand *destination = getDestination(op))
      return bufferization::getBufferType(destination->get(), options, state,
                                          invocationStack);
    auto type = cast<RankedTensorType>(value.getType());
    return cast<BufferLikeType>(
        Type(MemRefType::get(type.getShape(), type.getElementType())));
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto algebraOp = cast<OpTy>(op);
    FailureOr<Value> input =
        getBuffer(rewriter, algebraOp.getInput(), options, state);
    if (failed(input))
      return failure();
    FailureOr<Value> destination;
    if (OpOperand *operand = getDestination(op)) {
      destination = getBuffer(rewriter, operand->get(), options, state);
    } else {
      auto type = cast<RankedTensorType>(op->getResult(0).getType());
      destination = options.createAlloc(
          rewriter, op->getLoc(),
          MemRefType::get(type.getShape(), type.getElementType()), {});
    }
    if (failed(destination))
      return failure();
    // The same operation, on memory.
    OperationState onMemory(op->getLoc(), op->getName());
    onMemory.addOperands({*input, *destination});
    onMemory.addAttributes(op->getAttrs());
    rewriter.create(onMemory);
    replaceOpWithBufferizedValues(rewriter, op, *destination);
    return success();
  }
};

} // namespace

void DDPDialect::registerBufferization() {
  MLIRContext *context = getContext();
  AllReduceOp::attachInterface<AlgebraBufferization<AllReduceOp>>(*context);
  CastOp::attachInterface<AlgebraBufferization<CastOp>>(*context);
  ScaleOp::attachInterface<AlgebraBufferization<ScaleOp>>(*context);
}
