// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread makes the pieces of an array ready, in order; a second one
// processes them, and the first continues with the finished ones.

#pragma once

#include "base/status.h"
#include "store/socket.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace ddphook::host {

class PieceFlow {
public:
  static Status create(std::unique_ptr<PieceFlow> *flow) {
    auto made = std::make_unique<PieceFlow>();
    DDPHOOK_TRY(Interrupt::create(&made->changed));
    *flow = std::move(made);
    return Status::ok();
  }

  /// Restarts with the first piece; no thread may be using the flow.
  void reset() {
    ready = 0;
    givenUp = false;
    finished = 0;
    isOver = false;
  }

  // For the first thread:

  void makeReady() {
    ++ready;
    changed.raise();
  }
  /// Announces that no more pieces follow.
  void giveUp() {
    givenUp = true;
    changed.raise();
  }
  /// Waits for `pieces` finished ones; false if the second thread ended before.
  bool awaitFinished(int64_t pieces) {
    std::unique_lock<std::mutex> lock(mutex);
    moved.wait(lock, [&] { return finished >= pieces || isOver; });
    return finished >= pieces;
  }
  /// True if the second thread has stopped processing pieces.
  bool hasEnded() {
    std::lock_guard<std::mutex> lock(mutex);
    return isOver;
  }

  // For the second thread:

  bool isReady(int64_t piece) const { return ready.load() > piece; }
  bool isGivenUp() const { return givenUp.load(); }
  /// Readable whenever that may have changed; only this thread reads it.
  int event() const { return changed.fd(); }
  void finish() {
    std::lock_guard<std::mutex> lock(mutex);
    ++finished;
    moved.notify_one();
  }
  /// Says that this thread processes no more pieces.
  void end() {
    std::lock_guard<std::mutex> lock(mutex);
    isOver = true;
    moved.notify_one();
  }

private:
  Interrupt changed;
  std::atomic<int64_t> ready{0};
  std::atomic<bool> givenUp{false};

  std::mutex mutex;
  std::condition_variable moved;
  int64_t finished = 0;
  bool isOver = false;
};

} // namespace ddphook::host
