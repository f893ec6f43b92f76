//===- piece_flow.h - pieces that two threads hand each other ---*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread makes the pieces of an array ready in their order, another one
// works on them, and the first goes on with what the second has finished.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_PIECE_FLOW_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_PIECE_FLOW_H

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
  static Status create(std::unique_ptr<PieceFlow> *flow);

  /// Begins with the first piece again, while no thread uses it.
  void reset();

  // The first thread.

  void makeReady();
  /// There will be no more pieces.
  void giveUp();
  /// Waits until so many pieces are finished; false if the other thread has
  /// ended before.
  bool awaitFinished(int64_t pieces);
  /// The other thread works on no more pieces.
  bool hasEnded();

  // The second thread.

  bool isReady(int64_t piece) const { return ready.load() > piece; }
  bool isGivenUp() const { return givenUp.load(); }
  /// Readable whenever that may have changed; nobody else reads it.
  int event() const { return changed.get(); }
  void finish();
  /// It works on no more pieces.
  void end();

private:
  explicit PieceFlow(FileDescriptor event) : changed(std::move(event)) {}
  void raise() const;

  const FileDescriptor changed;
  std::atomic<int64_t> ready{0};
  std::atomic<bool> givenUp{false};

  std::mutex mutex;
  std::condition_variable moved;
  int64_t finished = 0;
  bool isOver = false;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_PIECE_FLOW_H
