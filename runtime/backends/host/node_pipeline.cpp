// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See node_pipeline.h. In a trace the first stage lasts until its last piece,
// the second until its own last piece, and the third covers the remainder:
// pieces of later stages lie within the time of earlier ones.

#include "node_pipeline.h"

#include <algorithm>
#include <memory>
#include <optional>

using namespace ddphook;
using namespace ddphook::host;

/// How many pieces the first stage is ahead of the third. The stage between
/// nodes has three of them in flight.
static constexpr int64_t kAhead = 4;

namespace {

/// Measures how long the calling thread waits for others; another thread
/// records the collective's events.
class WaitsOfThread {
public:
  WaitsOfThread() : ring(&memory, slots, /*capacity=*/1) {
    trace::collectiveRing = &ring;
  }
  ~WaitsOfThread() { trace::collectiveRing = nullptr; }
  int64_t total() const { return ring.totalWaited(); }

private:
  trace::RingMemory memory = {};
  trace::EventSlot slots[1] = {};
  trace::Ring ring;
};

/// The trace event of the current stage of a reduction.
class StageEvent {
public:
  void enter(const trace::CollectiveTag &tag) {
    if (scope)
      scope->succeed();
    scope.reset();
    begin = trace::now();
    scope.emplace(tag);
  }
  /// The thread between nodes waited for `time`, partly before the event.
  void waitedBeside(int64_t time) {
    scope->waitedBeside(std::min(time, trace::now() - begin));
  }
  void succeed() { scope->succeed(); }

private:
  std::optional<trace::CollectiveScope> scope;
  int64_t begin = 0;
};

} // namespace

void StagedReduction::setStages(int64_t count, const CollectiveDesc &share) {
  reduce = share;
  scatter = gather = CollectiveDesc(count, share.type());
  scatter.kind = DDPHOOK_REDUCE_SCATTER;
  scatter.divide = share.divide;
  gather.kind = DDPHOOK_ALL_GATHER;
  // The wire type loses nothing: the second stage has rounded to it.
  if (dtypeSize(share.wireType()) < dtypeSize(share.type()))
    gather.wire_dtype = share.wire_dtype;
  scatterTag = trace::CollectiveCall::take(scatter.collectiveKind());
  reduceTag = trace::CollectiveCall::take(reduce.collectiveKind());
  gatherTag = trace::CollectiveCall::take(gather.collectiveKind());
}

Status NodePipeline::run(const StagedReduction &reduction) {
  if (!flow)
    DDPHOOK_TRY(PieceFlow::create(&flow));
  flow->reset();
  int64_t waited = 0, ticket = 0;
  // Ends the flow when the job is destroyed. A job that has not begun when the
  // job of all ranks fails is dropped, and the calling thread waits for its
  // pieces without a deadline.
  std::shared_ptr<PieceFlow> end(flow.get(),
                                 [](PieceFlow *ended) { ended->end(); });
  DDPHOOK_TRY(network.start(
      [&, end = std::move(end)] {
        WaitsOfThread waits;
        Status status = reduction.across->runInPieces(
            reduction.reduce, reduction.share, reduction.error, *flow);
        waited = waits.total();
        return status;
      },
      CommThread::RunsOn::Thread, &ticket));
  Status status =
      withoutExceptions([&] { return runInNode(reduction, ticket, waited); });
  if (status.isOk())
    return status;
  // Do not leave anything running that uses the reduction's memory.
  const bool hasFailedBefore = flow->hasEnded();
  flow->giveUp();
  reduction.across->abort();
  Status between = network.wait(ticket);
  return hasFailedBefore && !between.isOk() ? between : status;
}

Status NodePipeline::runInNode(const StagedReduction &reduction, int64_t ticket,
                               const int64_t &waited) {
  const int64_t step = reduction.across->pieceElements(reduction.reduce);
  const int64_t longest = reduction.scatter.longestPart(reduction.nodeRanks);
  auto piecesOf = [&](int64_t elements) {
    return (elements + step - 1) / step;
  };
  auto windowOf = [&](int64_t piece) {
    return ElementRange{piece * step, std::min(longest, (piece + 1) * step)};
  };
  const int64_t pieces = piecesOf(longest);
  const int64_t own = piecesOf(reduction.reduce.count);
  CollectiveDesc scatter = reduction.scatter, gather = reduction.gather;
  StageEvent event;
  event.enter(reduction.scatterTag);
  for (int64_t i = 0; i < pieces + kAhead; ++i) {
    if (i < pieces) {
      scatter.window = windowOf(i);
      DDPHOOK_TRY(reduction.node->run(scatter, reduction.in, reduction.share));
      flow->makeReady();
    }
    if (i == pieces - 1)
      event.enter(reduction.reduceTag);
    const int64_t back = i - kAhead;
    if (back < 0)
      continue;
    if (!flow->awaitFinished(std::min(back + 1, own)))
      return network.wait(ticket);
    if (back == pieces - 1) {
      DDPHOOK_TRY(network.wait(ticket));
      event.waitedBeside(waited);
      event.enter(reduction.gatherTag);
    }
    gather.window = windowOf(back);
    DDPHOOK_TRY(reduction.node->run(gather, reduction.share, reduction.out));
  }
  event.succeed();
  return Status::ok();
}
