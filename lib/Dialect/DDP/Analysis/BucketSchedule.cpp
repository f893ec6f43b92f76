// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups reductions as PyTorch's DDP groups parameters, then sorts the block
// topologically, with every bucket as a single node. The sort is stable (a heap
// over the original positions), so code moves only where it must. If buckets
// depend on each other or on themselves, no order exists; the sort then finds a
// bucket of which some gradients are ready and splits it.

#include "BucketSchedule.h"

#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

using namespace mlir;
using namespace mlir::ddp;

/// Returns `op` if it is a reduction that is not in a bucket yet, or null.
static AllReduceOp getUnbucketed(Operation *op) {
  auto allReduce = dyn_cast<AllReduceOp>(op);
  if (allReduce && isa<RankedTensorType>(allReduce.getInput().getType()) &&
      !allReduce.getWire())
    return allReduce;
  return {};
}

// Grouping: append, then close at the limit.

namespace {
/// The properties that all members of a bucket share: process group, element
/// type, reduction, hook.
using BucketKey =
    std::tuple<const void *, const void *, Reduction, const void *>;

struct OpenBucket {
  std::unique_ptr<Bucket> bucket;
  int64_t bytes = 0;
  bool isFirst = true;
};
} // namespace

static BucketKey getKey(AllReduceOp op) {
  return {op.getGroupAttr().getAsOpaquePointer(),
          getElementTypeOf(op.getInput().getType()).getAsOpaquePointer(),
          op.getReduction(), getEffectiveHook(op).getAsOpaquePointer()};
}

static std::vector<std::unique_ptr<Bucket>>
fillBuckets(ArrayRef<AllReduceOp> ordered, const BucketLimits &limits) {
  std::vector<std::unique_ptr<Bucket>> closed;
  // The open buckets, in the order in which their keys first occurred.
  std::map<BucketKey, unsigned> indices;
  std::vector<OpenBucket> open;
  for (unsigned position = 0; position < ordered.size(); ++position) {
    AllReduceOp op = ordered[position];
    auto [it, isNew] = indices.try_emplace(getKey(op), open.size());
    if (isNew)
      open.emplace_back();
    OpenBucket &current = open[it->second];
    if (!current.bucket) {
      current.bucket = std::make_unique<Bucket>();
      current.bucket->firstInOrder = position;
      current.bytes = 0;
    }
    current.bucket->members.push_back(op);
    Type type = op.getInput().getType();
    current.bytes += getNumElementsOf(type) *
                     (getElementTypeOf(type).getIntOrFloatBitWidth() / 8);
    if (current.bytes >=
        (current.isFirst ? limits.firstBytes : limits.otherBytes)) {
      closed.push_back(std::move(current.bucket));
      current.isFirst = false;
    }
  }
  for (OpenBucket &last : open)
    if (last.bucket)
      closed.push_back(std::move(last.bucket));
  return closed;
}

namespace {
class BucketScheduler {
public:
  BucketScheduler(Block &block, const TensorsInMemory &inMemory,
                  const BucketLimits &limits);
  BucketSchedule run();

private:
  struct Node {
    Operation *op = nullptr;
    Bucket *bucket = nullptr; // Set for members.
    unsigned numPending = 0;  // Dependences not scheduled yet.
    bool isDone = false;
    SmallVector<unsigned, 2> successors;
  };
  struct BucketState {
    unsigned numReady = 0, lastPosition = 0;
  };

  void addDependences(const TensorsInMemory &inMemory);
  void makeReady(unsigned node);
  void finish(unsigned node);
  void splitFirstBlockedBucket();

  std::vector<Node> nodes;
  llvm::DenseMap<Operation *, unsigned> positions;
  llvm::DenseMap<Bucket *, BucketState> states;
  BucketSchedule schedule;
  /// Original positions of the nodes that may be scheduled next, earliest
  /// first; a bucket has the position of its last member.
  std::priority_queue<unsigned, std::vector<unsigned>, std::greater<unsigned>>
      ready;
  unsigned firstUndone = 0, numDone = 0;
};
} // namespace

BucketScheduler::BucketScheduler(Block &block, const TensorsInMemory &inMemory,
                                 const BucketLimits &limits) {
  for (Operation &op : block.without_terminator()) {
    positions[&op] = nodes.size();
    nodes.emplace_back().op = &op;
  }

  SmallVector<AllReduceOp> ordered;
  for (Node &node : nodes)
    if (AllReduceOp allReduce = getUnbucketed(node.op))
      ordered.push_back(allReduce);
  if (limits.order == BucketOrder::Reverse)
    std::reverse(ordered.begin(), ordered.end());
  if (limits.order == BucketOrder::Ready) {
    // The position at which a gradient is produced; -1 if that is outside of
    // the block.
    auto getReadyPosition = [&](AllReduceOp op) -> int64_t {
      Operation *producer = op.getInput().getDefiningOp();
      auto it = producer ? positions.find(producer) : positions.end();
      return it == positions.end() ? -1 : static_cast<int64_t>(it->second);
    };
    llvm::stable_sort(ordered, [&](AllReduceOp a, AllReduceOp b) {
      return getReadyPosition(a) < getReadyPosition(b);
    });
  }

  schedule.buckets = fillBuckets(ordered, limits);
  for (auto &bucket : schedule.buckets)
    for (AllReduceOp member : bucket->members) {
      unsigned position = positions.lookup(member);
      nodes[position].bucket = bucket.get();
      unsigned &last = states[bucket.get()].lastPosition;
      last = std::max(last, position);
    }
  addDependences(inMemory);
}

/// Adds dependences on values, and keeps memory accesses in order. Reductions
/// that go into buckets may be reordered: any order is valid that is the same
/// on all ranks, and all run the same program. They, and other operations
/// without effects, may read tensors in memory, which no write may overtake.
void BucketScheduler::addDependences(const TensorsInMemory &inMemory) {
  std::optional<unsigned> lastEffect, lastWrite;
  SmallVector<unsigned> readers; // Since the last write.
  for (unsigned position = 0; position < nodes.size(); ++position) {
    Node &node = nodes[position];
    auto dependOn = [&](unsigned other) {
      nodes[other].successors.push_back(position);
      ++nodes[position].numPending;
    };
    node.op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          if (auto it = positions.find(producer);
              it != positions.end() && it->second != position)
            dependOn(it->second);
    });
    TensorsInMemory::Use use = inMemory.getUse(node.op);
    if (node.bucket || (isMemoryEffectFree(node.op) && !use.writes)) {
      if (use.reads) {
        if (lastWrite)
          dependOn(*lastWrite);
        readers.push_back(position);
      }
      continue;
    }
    if (lastEffect)
      dependOn(*lastEffect);
    lastEffect = position;
    Effects effects = getEffects(node.op);
    if (!use.writes && !effects.isUnknown &&
        llvm::none_of(effects.accesses,
                      [](Access access) { return access.isWrite; }))
      continue;
    for (unsigned reader : readers)
      dependOn(reader);
    readers.clear();
    lastWrite = position;
  }
}

void BucketScheduler::makeReady(unsigned position) {
  Node &node = nodes[position];
  if (!node.bucket) {
    ready.push(position);
    return;
  }
  BucketState &state = states[node.bucket];
  if (++state.numReady == node.bucket->members.size())
    ready.push(state.lastPosition);
}

void BucketScheduler::finish(unsigned position) {
  nodes[position].isDone = true;
  ++numDone;
  for (unsigned successor : nodes[position].successors)
    if (--nodes[successor].numPending == 0)
      makeReady(successor);
}

/// Called if nothing is ready. The first unscheduled operation in the original
/// order has no unscheduled dependences, so it must be a reduction whose bucket
/// waits for other members. Splits that bucket in two.
void BucketScheduler::splitFirstBlockedBucket() {
  while (nodes[firstUndone].isDone)
    ++firstUndone;
  Bucket *bucket = nodes[firstUndone].bucket;
  auto rest = std::make_unique<Bucket>();
  rest->isSplit = bucket->isSplit = true;
  SmallVector<AllReduceOp> readyMembers;
  unsigned firstRest = 0;
  for (auto [index, member] : llvm::enumerate(bucket->members)) {
    if (nodes[positions.lookup(member)].numPending == 0) {
      readyMembers.push_back(member);
      continue;
    }
    if (rest->members.empty())
      firstRest = index;
    rest->members.push_back(member);
  }
  rest->firstInOrder = bucket->firstInOrder + firstRest;
  bucket->members = std::move(readyMembers);
  for (Bucket *part : {bucket, rest.get()}) {
    unsigned &last = states[part].lastPosition;
    last = 0;
    for (AllReduceOp member : part->members) {
      unsigned position = positions.lookup(member);
      nodes[position].bucket = part;
      last = std::max(last, position);
    }
  }
  states[rest.get()].numReady = 0;
  ready.push(states[bucket].lastPosition);
  schedule.buckets.push_back(std::move(rest));
}

BucketSchedule BucketScheduler::run() {
  for (unsigned position = 0; position < nodes.size(); ++position)
    if (nodes[position].numPending == 0)
      makeReady(position);
  while (numDone < nodes.size()) {
    if (ready.empty())
      splitFirstBlockedBucket();
    unsigned position = ready.top();
    ready.pop();
    Bucket *bucket = nodes[position].bucket;
    if (!bucket) {
      schedule.items.push_back(nodes[position].op);
      finish(position);
      continue;
    }
    schedule.items.push_back(bucket);
    for (AllReduceOp member : bucket->members)
      finish(positions.lookup(member));
  }
  llvm::stable_sort(schedule.buckets, [](const auto &a, const auto &b) {
    return a->firstInOrder < b->firstInOrder;
  });
  return std::move(schedule);
}

BucketSchedule mlir::ddp::scheduleBuckets(Block &block,
                                          const TensorsInMemory &inMemory,
                                          const BucketLimits &limits) {
  return BucketScheduler(block, inMemory, limits).run();
}
