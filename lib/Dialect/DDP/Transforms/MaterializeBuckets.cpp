// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp-materialize-buckets: replaces pack, unpack and split by views of one
// buffer, and loads and stores by accesses to the state's memory, at the border
// between tensors and memory. One-Shot Bufferize then sees every gradient and
// every part as a separate value that is created in the right buffer.

#include "../Analysis/MemoryUses.h"
#include "../Analysis/ProgramWalk.h"
#include "Utils/Arrays.h"
#include "Utils/InPlaceChain.h"
#include "ddphook/Dialect/DDP/IR/Remarks.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/IR/Dominance.h"

#define GEN_PASS_DEF_DDPMATERIALIZEBUCKETSPASS
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the slice of `buffer` that holds a tensor of this type.
static Value createView(OpBuilder &builder, Location loc, Value buffer,
                        int64_t offset, RankedTensorType type) {
  return ViewOp::create(builder, loc, getStateMemory(type), buffer,
                        builder.getI64IntegerAttr(offset));
}

/// Returns the first operation that may overwrite the bucket: the first user of
/// the packed value.
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
  Value buffer = memref::AllocOp::create(
      top, loc, getStateMemory(pack.getBucket().getType()), ValueRange(),
      top.getI64IntegerAttr(64));
  Operation *firstUser = findFirstUser(pack);
  llvm::SmallDenseSet<Value> seen;
  int64_t offset = 0;
  unsigned numCopied = 0;
  for (Value gradient : pack.getTensors()) {
    auto type = cast<RankedTensorType>(gradient.getType());
    int64_t begin = offset;
    offset += type.getNumElements();
    // An empty tensor has no contents to write.
    if (gradient.getDefiningOp<tensor::EmptyOp>())
      continue;
    Value view = createView(top, loc, buffer, begin, type);
    OpOperand *start = nullptr;
    // A gradient that is packed twice is created in one buffer and copied to
    // the other. One that is read after the bucket was reduced needs separate
    // memory.
    if (seen.insert(gradient).second &&
        isOnlyReadBefore(gradient, pack, firstUser))
      start = findChainStart(gradient, pack);
    if (start) {
      Value memory = createRead(top, loc, type, view, /*isWritable=*/true);
      setChainStart(*start, memory);
      // The old start, now erased, may have been the insertion point of `top`.
      top.setInsertionPointAfterValue(memory);
    } else {
      ++numCopied;
    }
    // Folds away if the gradient was created here; otherwise this is the copy.
    createWrite(builder, loc, gradient, view);
  }
  if (numCopied != 0)
    remark::missed(loc, remarkOf("BucketView", "ddp-materialize-buckets"))
        << "gradients are copied into their bucket"
        << remark::metric("copied", numCopied)
        << remark::metric("gradients", pack.getTensors().size());
  pack.replaceAllUsesWith(createRead(builder, loc, pack.getBucket().getType(),
                                     buffer, /*isWritable=*/true));
  pack.erase();
}

/// True if the state gets a new value after this load, so that its memory may
/// be overwritten.
static bool isStoredLater(LoadOp load) {
  for (Operation *op = load->getNextNode(); op; op = op->getNextNode())
    if (auto store = dyn_cast<StoreOp>(op))
      if (store.getState() == load.getState())
        return true;
  return false;
}

/// Adds to `makers` the values that create the memory in which `bucket` may be.
/// Returns true if all of them are known and may be overwritten. The memory of
/// a state may be overwritten only for hooks, not for the program.
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
    // State memory that is not stored later is needed in the next step.
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

/// True if the parts that `op` takes out of a bucket are dead when `writer`
/// runs. A concat may still write them in place.
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

/// True if the results of an unpack or a split may be overwritten in place,
/// because nothing else needs the bucket's memory afterwards. One-Shot
/// Bufferize cannot know: it sees the tensors as separate alias sets.
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
                     // A reassembled bucket consists of these parts.
                     if (isa<ConcatOp>(user) && use.get() == bucket)
                       return areOverBy(op, user) ? WalkResult::skip()
                                                  : WalkResult::interrupt();
                     return requireBefore(user, op);
                   }).wasInterrupted();
         });
}

/// True if a use may overwrite the memory of its operand.
static bool mayWrite(OpOperand &use) {
  Operation *user = use.getOwner();
  if (isa<PackOp, UnpackOp, SplitOp, StoreOp>(user) || isReturn(user))
    return false;
  if (auto concat = dyn_cast<ConcatOp>(user))
    return use.get() == concat.getDestination();
  static const bufferization::BufferizationOptions options;
  return bufferization::AnalysisState(options).bufferizesToMemoryWrite(use);
}

/// True if the bucket may be overwritten after an unpack or a split while a
/// part is needed, by a slice of an argument or a value that a loop carries.
/// One-Shot Bufferize does not see that the parts are in that memory.
static bool mayBeOverwritten(Operation *op) {
  Value bucket = op->getOperand(0);
  llvm::SetVector<Value> makers;
  (void)findMakers(bucket, /*isHooks=*/true, makers);
  makers.insert(bucket);
  return llvm::any_of(makers, [&](Value maker) {
    // Another iteration's writes come after this iteration's unpack too.
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

/// Copies parts of an argument to separate memory where the function returns
/// them. One-Shot Bufferize does not see that they are in the caller's bucket,
/// and would let the caller write there. Returns true if all such uses are
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
    use->set(createCopy(builder, op->getLoc(), use->get()));
  }
  return true;
}

/// Makes an unpack or a split read a copy of the bucket.
static void copyBucket(Operation *op) {
  OpBuilder builder(op);
  op->setOperand(0, createCopy(builder, op->getLoc(), op->getOperand(0)));
  remark::missed(op->getLoc(),
                 remarkOf("BucketView", "ddp-materialize-buckets"))
      << "a bucket is copied, since other values may overwrite it while parts "
         "of it are still needed";
}

/// Replaces the results of an unpack or a split. Returns the bucket's memory.
static Value rewriteParts(Operation *op, bool isLast) {
  Location loc = op->getLoc();
  OpBuilder builder(op);
  Value bucket = op->getOperand(0);
  Value buffer = bufferization::ToBufferOp::create(
      builder, loc, getStateMemory(bucket.getType()), bucket,
      /*read_only=*/!isLast);
  int64_t offset = 0;
  for (Value tensor : op->getResults()) {
    auto type = cast<RankedTensorType>(tensor.getType());
    Value view = createView(builder, loc, buffer, offset, type);
    offset += type.getNumElements();
    tensor.replaceAllUsesWith(createRead(builder, loc, type, view, isLast));
  }
  op->erase();
  return buffer;
}

/// Writes the parts to their offsets in the buffer. They are there already
/// unless One-Shot Bufferize finds that it must copy.
static void rewriteConcat(ConcatOp concat, Value buffer) {
  Location loc = concat.getLoc();
  OpBuilder builder(concat);
  if (!buffer)
    buffer = bufferization::ToBufferOp::create(builder, loc,
                                               getStateMemory(concat.getType()),
                                               concat.getDestination());
  int64_t offset = 0;
  for (Value part : concat.getParts()) {
    auto type = cast<RankedTensorType>(part.getType());
    Value view = createView(builder, loc, buffer, offset, type);
    offset += type.getNumElements();
    createWrite(builder, loc, part, view);
  }
  concat.getResult().replaceAllUsesWith(
      createRead(builder, loc, concat.getType(), buffer, /*isWritable=*/true));
  concat.erase();
}

/// Returns the memory of the state that `op` accesses. Its type follows from
/// the value, so that nothing has to search the module for the state.
template <typename OpTy>
static Value createStateBuffer(OpBuilder &builder, OpTy op) {
  return StateBufferOp::create(builder, op.getLoc(),
                               getStateMemory(op.getValue().getType()),
                               op.getStateAttr());
}

static void rewriteLoad(LoadOp load) {
  OpBuilder builder(load);
  Value buffer = createStateBuffer(builder, load);
  Type type = load.getValue().getType();
  Value value;
  if (isa<TensorType>(type))
    value =
        createRead(builder, load.getLoc(), type, buffer, isStoredLater(load));
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
    // Decide while all memory can still be traced.
    llvm::DenseSet<Operation *> lastUses;
    for (Operation *op : unpacksAndSplits)
      if (isLastUse(op)) {
        lastUses.insert(op);
      } else if (mayBeOverwritten(op) || !copyReturned(op)) {
        copyBucket(op);
        lastUses.insert(op);
      }
    llvm::for_each(packs, rewritePack);
    // Reuse a bucket's buffer: One-Shot Bufferize assumes that each conversion
    // of a bucket to memory may overwrite it.
    llvm::DenseMap<Value, SmallVector<Value, 1>> buffers;
    for (Operation *op : unpacksAndSplits) {
      Value bucket = op->getOperand(0);
      Value buffer = rewriteParts(op, lastUses.contains(op));
      buffers[bucket].push_back(buffer);
    }
    // Skip buffers from other branches.
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
