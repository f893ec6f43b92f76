// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "piece_flow.h"

#include <cerrno>
#include <sys/eventfd.h>

using namespace ddphook;
using namespace ddphook::host;

Status PieceFlow::create(std::unique_ptr<PieceFlow> *flow) {
  FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.isValid())
    return systemError(errno, "cannot create an event");
  flow->reset(new PieceFlow(std::move(event)));
  return Status::ok();
}

void PieceFlow::reset() {
  ready = 0;
  givenUp = false;
  finished = 0;
  isOver = false;
}

void PieceFlow::raise() const { ::eventfd_write(changed.get(), 1); }

void PieceFlow::makeReady() {
  ++ready;
  raise();
}

void PieceFlow::giveUp() {
  givenUp = true;
  raise();
}

bool PieceFlow::awaitFinished(int64_t pieces) {
  std::unique_lock<std::mutex> lock(mutex);
  moved.wait(lock, [&] { return finished >= pieces || isOver; });
  return finished >= pieces;
}

bool PieceFlow::hasEnded() {
  std::lock_guard<std::mutex> lock(mutex);
  return isOver;
}

void PieceFlow::finish() {
  std::lock_guard<std::mutex> lock(mutex);
  ++finished;
  moved.notify_one();
}

void PieceFlow::end() {
  std::lock_guard<std::mutex> lock(mutex);
  isOver = true;
  moved.notify_one();
}
