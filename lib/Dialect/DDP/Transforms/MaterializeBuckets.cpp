//===- MaterializeBuckets.cpp ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-materialize-buckets: replaces pack, unpack and split by views of one
// buffer, and loads and stores by the state's memory, at the border between
// tensors and memory, so that One-Shot Bufferize sees every gradient and every
// part as a value of its own that is born in the right place.
//
//===----------------------------------------------------------------------===//

#include "../Analysis/MemoryUses.h"
#include "../Analysis/UpdatedArgument.h"
#include "Utils/InPlaceChain.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace mlir::ddp {
#define GEN_PASS_DEF_DDPMATERIALIZEBUCKETSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h.inc"
} // namespace mlir::ddp

using namespace mlir;
using namespace mlir::ddp;

/// The slice of `buffer` that holds a tensor of this type.
static Value createView(OpBuilder &builder, Location loc, Value buffer,
                        int64_t offset, RankedTensorType type) {
  return ViewOp::create(builder, loc,
                        MemRefType::get(type.getShape(), type.getElementType()),
                        buffer, builder.getI64IntegerAttr(offset));
}

static MemRefType getBufferType(Value flatBucket) {
  auto type = cast<RankedTensorType>(flatBucket.getType());
  return MemRefType::get(type.getShape(), type.getElementType());
}

/// Writes `value` to `memory`. The write is not `restrict`, since the memory
/// has another alias.
static void createWrite(OpBuilder &builder, Location loc, Value value,
                        Value memory) {
  bufferization::MaterializeInDestinationOp::create(
      builder, loc, TypeRange(), value, memory, /*restrict=*/false,
      /*writable=*/true);
}

/// The first operation that may overwrite the bucket: the first user of the
/// packed value.
static Operation *findFirstUser(PackOp pack) {
  Block *block = pack->getBlock();
  Operation *first = block->getTerminator();
  for (Operation *user : pack->getUsers()) {
    Operation *ancestor = block->findAncestorOpInBlock(*user);
    if (ancestor && ancestor->isBeforeInBlock(first))
      first = ancestor;
  }
  return first;
}

static void rewritePack(PackOp pack) {
  Location loc = pack.getLoc();
  Block *block = pack->getBlock();
  OpBuilder top(block, block->begin()), builder(pack);
  Value buffer =
      memref::AllocOp::create(top, loc, getBufferType(pack.getBucket()),
                              ValueRange(), top.getI64IntegerAttr(64));
  Operation *firstUser = findFirstUser(pack);
  llvm::SmallDenseSet<Value> seen;
  int64_t offset = 0;
  unsigned numCopied = 0;
  for (Value gradient : pack.getTensors()) {
    auto type = cast<RankedTensorType>(gradient.getType());
    int64_t begin = offset;
    offset += type.getNumElements();
    // Nothing was computed that would have to be there.
    if (gradient.getDefiningOp<tensor::EmptyOp>())
      continue;
    Value view = createView(top, loc, buffer, begin, type);
    OpOperand *start = nullptr;
    // A gradient that is packed twice is born in one place and copied to the
    // other; one that is read after the bucket was reduced needs memory of its
    // own.
    if (seen.insert(gradient).second &&
        isOnlyReadBefore(gradient, pack, firstUser))
      start = findChainStart(gradient, pack);
    if (start) {
      auto memory = bufferization::ToTensorOp::create(
          top, loc, type, view, /*restrict=*/true, /*writable=*/true);
      setChainStart(*start, memory);
      // The old start, now erased, may have been where `top` stood.
      top.setInsertionPointAfter(memory);
    } else {
      ++numCopied;
    }
    // Folds away where the gradient was born here, and is the copy where not.
    createWrite(builder, loc, gradient, view);
  }
  if (numCopied != 0)
    remark::missed(loc, remark::RemarkOpts::name("BucketView")
                            .category("ddp-materialize-buckets"))
        << "gradients are copied into their bucket"
        << remark::metric("copied", numCopied)
        << remark::metric("gradients", pack.getTensors().size());
  Value packed = bufferization::ToTensorOp::create(
      builder, loc, pack.getBucket().getType(), buffer, /*restrict=*/true,
      /*writable=*/true);
  pack.replaceAllUsesWith(packed);
  pack.erase();
}

/// Whether the state gets a new value behind this load: then its memory may be
/// overwritten.
static bool isStoredLater(LoadOp load) {
  for (Operation *op = load->getNextNode(); op; op = op->getNextNode())
    if (auto store = dyn_cast<StoreOp>(op))
      if (store.getState() == load.getState())
        return true;
  return false;
}

/// Adds to `makers` the values that make the memory in which `bucket` may lie.
/// Returns whether all of them are known, and ours to overwrite; a state's
/// memory is a hook's, not the program's.
static bool findMakers(Value bucket, bool isHooks,
                       llvm::SetVector<Value> &makers) {
  static const bufferization::BufferizationOptions options;
  bufferization::AnalysisState state(options);
  llvm::SetVector<Value> pending;
  pending.insert(bucket);
  for (unsigned i = 0; i < pending.size(); ++i) {
    Value value = pending[i];
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (isa<PackOp, tensor::EmptyOp, bufferization::AllocTensorOp>(op)) {
      makers.insert(value);
      continue;
    }
    auto load = dyn_cast<LoadOp>(op);
    if (load && isHooks && isStoredLater(load)) {
      makers.insert(value);
      continue;
    }
    if (findArgumentUpdate(value)) {
      makers.insert(value);
      continue;
    }
    if (auto concat = dyn_cast<ConcatOp>(op)) {
      pending.insert(concat.getDestination());
      continue;
    }
    // What is in a state's memory is needed in the next step.
    if (!isa<bufferization::BufferizableOpInterface>(op))
      return false;
    bufferization::AliasingOpOperandList operands =
        state.getAliasingOpOperands(value);
    if (operands.getNumAliases() == 0)
      return false;
    for (const bufferization::AliasingOpOperand &alias : operands)
      pending.insert(alias.opOperand->get());
  }
  return true;
}

/// Whether the parts that `op` takes out of a bucket are not needed any more
/// when `writer` runs. A concat writes them where they lie.
static bool areOverBy(Operation *op, Operation *writer) {
  return llvm::all_of(op->getResults(), [&](Value part) {
    return !visitMemoryUses(part, [&](OpOperand &use) {
              Operation *user = use.getOwner();
              if (user == writer && isa<ConcatOp>(writer))
                return WalkResult::advance();
              // A collective reads its operand until it is awaited.
              if (auto collective = dyn_cast<CollectiveOpInterface>(user))
                user = collective.getEnd();
              return requireBefore(user, writer);
            }).wasInterrupted();
  });
}

/// Whether what an unpack or a split gives may be overwritten where it lies,
/// since nothing else needs the bucket's memory behind it. One-Shot Bufferize
/// cannot know: the tensors enter as alias sets of their own.
static bool isLastUse(Operation *op) {
  Value bucket = op->getOperand(0);
  llvm::SetVector<Value> makers;
  return findMakers(bucket, /*isHooks=*/isa<SplitOp>(op), makers) &&
         llvm::all_of(makers, [&](Value maker) {
           // Nor may a result be written there while a part is needed.
           auto update = findArgumentUpdate(maker);
           if (update && !llvm::all_of(op->getResults(), [&](Value part) {
                 return isOverBy(part, update);
               }))
             return false;
           return runsAtMostOncePer(maker, op) &&
                  !visitMemoryUses(maker, [&](OpOperand &use) {
                     Operation *user = use.getOwner();
                     if (user == op)
                       return WalkResult::skip();
                     // What is put together again is made of these parts.
                     if (isa<ConcatOp>(user) && use.get() == bucket)
                       return areOverBy(op, user) ? WalkResult::skip()
                                                  : WalkResult::interrupt();
                     return requireBefore(user, op);
                   }).wasInterrupted();
         });
}

/// Whether the operation leaves the function.
static bool isReturn(Operation *op) {
  return op->hasTrait<OpTrait::ReturnLike>() &&
         isa<FunctionOpInterface>(op->getParentOp());
}

/// Whether a use may write over the memory of its operand.
static bool mayWrite(OpOperand &use) {
  Operation *user = use.getOwner();
  if (isa<PackOp, UnpackOp, SplitOp, StoreOp>(user) || isReturn(user))
    return false;
  if (auto concat = dyn_cast<ConcatOp>(user))
    return use.get() == concat.getDestination();
  static const bufferization::BufferizationOptions options;
  return bufferization::AnalysisState(options).bufferizesToMemoryWrite(use);
}

/// Whether something may be written over the bucket behind an unpack or a split
/// while a part is needed: a slice of an argument, or what a loop that begins
/// with the bucket hands on. One-Shot Bufferize does not see that the parts lie
/// there as well.
static bool mayBeOverwritten(Operation *op) {
  Value bucket = op->getOperand(0);
  llvm::SetVector<Value> makers;
  (void)findMakers(bucket, /*isHooks=*/true, makers);
  makers.insert(bucket);
  return llvm::any_of(makers, [&](Value maker) {
    // What another iteration writes comes behind this one's unpack as well.
    Operation *repeated =
        runsAtMostOncePer(maker, op)
            ? nullptr
            : maker.getParentBlock()->findAncestorOpInBlock(*op);
    return visitMemoryUses(
               maker,
               [&](OpOperand &use) {
                 Operation *user = use.getOwner();
                 if (user == op)
                   return WalkResult::skip();
                 bool isBefore = !requireBefore(user, op).wasInterrupted() &&
                                 !(repeated && repeated->isAncestor(user));
                 return !mayWrite(use) || isBefore || areOverBy(op, user)
                            ? WalkResult::advance()
                            : WalkResult::interrupt();
               })
        .wasInterrupted();
  });
}

/// Gives parts of an argument memory of their own where the function returns
/// them. One-Shot Bufferize does not see that they lie in the caller's bucket,
/// and would let the caller write there. Returns whether all such places are
/// known.
static bool copyReturned(Operation *op) {
  llvm::SetVector<Value> makers;
  auto function = op->getParentOfType<FunctionOpInterface>();
  if (llvm::none_of(function.getResultTypes(), llvm::IsaPred<TensorType>) ||
      findMakers(op->getOperand(0), /*isHooks=*/true, makers))
    return true;
  llvm::SetVector<OpOperand *> returned;
  for (Value part : op->getResults())
    if (visitMemoryUses(part, [&](OpOperand &use) {
          if (isReturn(use.getOwner()))
            returned.insert(&use);
          return WalkResult::advance();
        }).wasInterrupted())
      return false;
  for (OpOperand *use : returned) {
    OpBuilder builder(use->getOwner());
    use->set(bufferization::AllocTensorOp::create(
        builder, op->getLoc(), cast<RankedTensorType>(use->get().getType()),
        ValueRange(), use->get()));
  }
  return true;
}

/// Lets an unpack or a split take a copy apart.
static void copyBucket(Operation *op) {
  Value bucket = op->getOperand(0);
  OpBuilder builder(op);
  op->setOperand(0, bufferization::AllocTensorOp::create(
                        builder, op->getLoc(),
                        cast<RankedTensorType>(bucket.getType()), ValueRange(),
                        bucket));
  remark::missed(op->getLoc(), remark::RemarkOpts::name("BucketView")
                                   .category("ddp-materialize-buckets"))
      << "a bucket is copied, since other values may be computed in its place "
         "while parts of it are needed";
}

/// Replaces what an unpack or a split gives. Returns the bucket's memory.
static Value rewriteParts(Operation *op, bool isLast) {
  Location loc = op->getLoc();
  OpBuilder builder(op);
  Value bucket = op->getOperand(0);
  Value buffer = bufferization::ToBufferOp::create(
      builder, loc, getBufferType(bucket), bucket, /*read_only=*/!isLast);
  int64_t offset = 0;
  for (Value tensor : op->getResults()) {
    auto type = cast<RankedTensorType>(tensor.getType());
    Value view = createView(builder, loc, buffer, offset, type);
    offset += type.getNumElements();
    tensor.replaceAllUsesWith(bufferization::ToTensorOp::create(
        builder, loc, type, view, /*restrict=*/true, /*writable=*/isLast));
  }
  op->erase();
  return buffer;
}

/// Leaves the parts where they belong: they are there unless One-Shot Bufferize
/// finds that it must copy.
static void rewriteConcat(ConcatOp concat, Value buffer) {
  Location loc = concat.getLoc();
  OpBuilder builder(concat);
  if (!buffer)
    buffer = bufferization::ToBufferOp::create(
        builder, loc, getBufferType(concat.getDestination()),
        concat.getDestination());
  int64_t offset = 0;
  for (Value part : concat.getParts()) {
    auto type = cast<RankedTensorType>(part.getType());
    Value view = createView(builder, loc, buffer, offset, type);
    offset += type.getNumElements();
    createWrite(builder, loc, part, view);
  }
  concat.getResult().replaceAllUsesWith(bufferization::ToTensorOp::create(
      builder, loc, concat.getType(), buffer, /*restrict=*/true,
      /*writable=*/true));
  concat.erase();
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

/// The memory of the state that `op` accesses.
template <typename OpTy>
static Value createStateBuffer(OpBuilder &builder, OpTy op) {
  auto state =
      SymbolTable::lookupNearestSymbolFrom<StateOp>(op, op.getStateAttr());
  return StateBufferOp::create(builder, op.getLoc(), state.getBufferType(),
                               op.getStateAttr());
}

static void rewriteLoad(LoadOp load) {
  OpBuilder builder(load);
  Value buffer = createStateBuffer(builder, load);
  Type type = load.getValue().getType();
  Value value;
  if (isa<TensorType>(type))
    value = bufferization::ToTensorOp::create(builder, load.getLoc(), type,
                                              buffer, /*restrict=*/true,
                                              /*writable=*/isStoredLater(load));
  else
    value = memref::LoadOp::create(builder, load.getLoc(), buffer);
  load.replaceAllUsesWith(value);
  load.erase();
}

static void rewriteStore(StoreOp store) {
  OpBuilder builder(store);
  Value buffer = createStateBuffer(builder, store);
  if (isa<TensorType>(store.getValue().getType()))
    createWrite(builder, store.getLoc(), store.getValue(), buffer);
  else
    memref::StoreOp::create(builder, store.getLoc(), store.getValue(), buffer);
  store.erase();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Replaces an empty tensor by an allocation. This pass creates aliases whose
/// lifetimes only it knows. Upstream's empty-tensor elimination could otherwise
/// compute a value in memory that is overwritten while the value is still live.
static void rewriteEmpty(tensor::EmptyOp empty) {
  OpBuilder builder(empty);
  if (!empty->use_empty())
    empty.replaceAllUsesWith(
        bufferization::AllocTensorOp::create(
            builder, empty.getLoc(), empty.getType(), empty.getDynamicSizes())
            .getResult());
  empty.erase();
}

namespace {
struct MaterializeBucketsPass
    : public ddp::impl::DDPMaterializeBucketsPassBase<MaterializeBucketsPass> {
  using DDPMaterializeBucketsPassBase::DDPMaterializeBucketsPassBase;

  void runOnOperation() override {
    SmallVector<PackOp> packs;
    SmallVector<Operation *> unpacksAndSplits;
    SmallVector<ConcatOp> concats;
    SmallVector<LoadOp> loads;
    SmallVector<StoreOp> stores;
    getOperation()->walk([&](Operation *op) {
      if (auto pack = dyn_cast<PackOp>(op))
        packs.push_back(pack);
      else if (isa<UnpackOp, SplitOp>(op))
        unpacksAndSplits.push_back(op);
      else if (auto concat = dyn_cast<ConcatOp>(op))
        concats.push_back(concat);
      else if (auto load = dyn_cast<LoadOp>(op))
        loads.push_back(load);
      else if (auto store = dyn_cast<StoreOp>(op))
        stores.push_back(store);
    });
    // While all memory can still be followed.
    llvm::DenseSet<Operation *> lastUses;
    for (Operation *op : unpacksAndSplits)
      if (isLastUse(op)) {
        lastUses.insert(op);
      } else if (mayBeOverwritten(op) || !copyReturned(op)) {
        copyBucket(op);
        lastUses.insert(op);
      }
    llvm::for_each(packs, rewritePack);
    // One for all: each use of a bucket as memory may overwrite it, as far as
    // One-Shot Bufferize knows.
    llvm::DenseMap<Value, SmallVector<Value, 1>> buffers;
    for (Operation *op : unpacksAndSplits) {
      Value bucket = op->getOperand(0);
      Value buffer = rewriteParts(op, lastUses.contains(op));
      buffers[bucket].push_back(buffer);
    }
    // Not one of another branch.
    DominanceInfo dominance(getOperation());
    for (ConcatOp concat : concats) {
      SmallVector<Value, 1> all = buffers.lookup(concat.getDestination());
      auto *found = llvm::find_if(all, [&](Value buffer) {
        return dominance.properlyDominates(buffer, concat);
      });
      rewriteConcat(concat, found == all.end() ? Value() : *found);
    }
    llvm::for_each(loads, rewriteLoad);
    llvm::for_each(stores, rewriteStore);
    getOperation()->walk(rewriteEmpty);
  }
};
} // namespace
