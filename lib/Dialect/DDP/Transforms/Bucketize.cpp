// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-bucketize: puts gradients into buckets. BucketSchedule.cpp decides which
// gradients form a bucket; this file rewrites the IR.

#include "../Analysis/BucketSchedule.h"
#include "../Analysis/ProgramWalk.h"
#include "Utils/GradientNames.h"
#include "ddphook/Dialect/DDP/IR/BucketOrigin.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/Transforms/RegionUtils.h"

#define GEN_PASS_DEF_DDPBUCKETIZEPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Replaces the members of `bucket` by pack → all-reduce → unpack before
/// `insertionPoint`.
static AllReduceOp emitBucket(Bucket &bucket, StringRef name,
                              Operation *insertionPoint) {
  OpBuilder builder(insertionPoint);
  SmallVector<Value> tensors;
  SmallVector<Location> locations;
  SmallVector<Attribute> names;
  for (AllReduceOp member : bucket.members) {
    auto name = member->getAttrOfType<StringAttr>(DDPDialect::kNameAttrName);
    tensors.push_back(member.getInput());
    locations.push_back(getGradientLoc(name, member.getLoc()));
    names.push_back(name);
  }
  AllReduceOp first = bucket.members.front();
  Location loc = builder.getFusedLoc(locations);
  TypeRange types = ValueRange(tensors).getTypes();
  auto bucketType = BucketType::getFromTensors(
      builder.getContext(), getElementTypeOf(types.front()), types);
  Value packed = PackOp::create(builder, loc, bucketType, tensors);
  auto reduced = AllReduceOp::create(
      builder, loc, first.getReductionAttr(), packed, first.getGroupAttr(),
      /*wire=*/TypeAttr(), builder.getStringAttr(name));
  reduced.setGradientsAttr(builder.getArrayAttr(names));
  // All members have the same hook, or none has one.
  if (Attribute hook = first->getAttr(DDPDialect::kHookAttrName))
    reduced->setAttr(DDPDialect::kHookAttrName, hook);
  auto unpack = UnpackOp::create(builder, loc, SmallVector<Type>(types),
                                 reduced.getResult());
  for (auto [member, tensor] : llvm::zip(bucket.members, unpack.getTensors()))
    member.getResult().replaceAllUsesWith(tensor);
  for (AllReduceOp member : bucket.members)
    member.erase();
  return reduced;
}

namespace {
struct BucketizePass : public ddp::impl::DDPBucketizePassBase<BucketizePass> {
  using DDPBucketizePassBase::DDPBucketizePassBase;

  LogicalResult initializeOptions(
      StringRef options,
      function_ref<LogicalResult(const Twine &)> errorHandler) override {
    auto isDeclared = [](StringRef) { return true; };
    return initializeOptionsOf(*this, options, isDeclared, errorHandler);
  }

  FailureOr<BucketLimits> getLimits() {
    for (double value : {bucketCapMb.getValue(), firstBucketMb.getValue()})
      if (!(value >= 0 || value == kUnsetLimit))
        return emitError(getOperation().getLoc())
               << "expected a bucket limit that is not negative, but got "
               << value << " MiB";
    auto getBytes = [](double mib) -> int64_t {
      constexpr double unlimited = 0x1p62;
      return std::min(mib * 1024 * 1024, unlimited);
    };
    double cap = bucketCapMb == kUnsetLimit ? 25 : bucketCapMb.getValue();
    double first = firstBucketMb != kUnsetLimit ? firstBucketMb.getValue()
                   : bucketCapMb != kUnsetLimit ? cap
                                                : 1;
    return BucketLimits{getBytes(first), getBytes(cap), order};
  }

  /// Returns the number after the highest bucket number in the module.
  static unsigned getNextNumber(ArrayRef<AllReduceOp> reductions) {
    unsigned next = 0;
    for (AllReduceOp op : reductions) {
      unsigned number;
      if (StringRef name = op.getBucketName().value_or("");
          name.consume_front("b") && !name.getAsInteger(10, number))
        next = std::max(next, number + 1);
    }
    return next;
  }

  /// In unreachable code a value may depend on itself, so no order exists.
  void eraseUnreachable() {
    IRRewriter rewriter(&getContext());
    getOperation().walk([&](FunctionOpInterface function) {
      if (function.walk([](AllReduceOp) { return WalkResult::interrupt(); })
              .wasInterrupted())
        (void)eraseUnreachableBlocks(rewriter, function->getRegions());
    });
  }

  void runOnOperation() override {
    eraseUnreachable();
    FailureOr<BucketLimits> limits = getLimits();
    if (failed(limits) || failed(nameGradients(getOperation())))
      return signalPassFailure();

    SmallVector<AllReduceOp> reductions;
    walkProgram(getOperation(),
                [&](AllReduceOp op) { reductions.push_back(op); });
    llvm::SetVector<Block *> blocks;
    for (AllReduceOp op : reductions) {
      if (!isa<RankedTensorType>(op.getInput().getType()))
        continue;
      if (op.getWire()) {
        op.emitOpError() << "expected no wire type before 'ddp-bucketize'";
        signalPassFailure();
        continue;
      }
      blocks.insert(op->getBlock());
    }

    unsigned next = getNextNumber(reductions);
    TensorsInMemory inMemory(getOperation());
    for (Block *block : blocks)
      if (failed(rewriteBlock(*block, inMemory, *limits, next)))
        return signalPassFailure();
  }

  static LogicalResult checkSize(Bucket &bucket) {
    int64_t numElements = 0;
    for (AllReduceOp member : bucket.members)
      numElements = addElements(numElements,
                                getNumElementsOf(member.getInput().getType()));
    if (numElements <= kMaxElements)
      return success();
    return bucket.members.front().emitOpError()
           << "expected a bucket of at most " << kMaxElements
           << " elements, but its gradients have more; lower 'bucket-cap-mb'";
  }

  LogicalResult rewriteBlock(Block &block, const TensorsInMemory &inMemory,
                             const BucketLimits &limits, unsigned &next) {
    BucketSchedule schedule = scheduleBuckets(block, inMemory, limits);
    for (auto &bucket : schedule.buckets)
      if (failed(checkSize(*bucket)))
        return failure();
    llvm::DenseMap<Bucket *, unsigned> numbers;
    for (auto &bucket : schedule.buckets)
      numbers[bucket.get()] = next++;

    Operation *terminator = block.getTerminator();
    for (ScheduledItem item : schedule.items) {
      if (auto *op = dyn_cast<Operation *>(item)) {
        op->moveBefore(terminator);
        continue;
      }
      auto *bucket = cast<Bucket *>(item);
      unsigned numMembers = bucket->members.size();
      bool isSplit = bucket->isSplit;
      AllReduceOp reduced = emitBucket(
          *bucket, "b" + std::to_string(numbers.lookup(bucket)), terminator);
      remark::passed(reduced.getLoc(), remarkOf("Bucket", "ddp-bucketize"))
          << *reduced.getBucketName() << remark::metric("gradients", numMembers)
          << remark::metric(
                 "bytes",
                 cast<BucketType>(reduced.getInput().getType()).getNumBytes())
          << remark::metric("split-by-a-dependence", isSplit);
    }
    return success();
  }
};
} // namespace
