//===- threads.h - how the runtime starts its threads -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host program's signals belong to the host program's threads: the
// runtime's own threads, and those of libraries that it makes start some, block
// all of them.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_THREADS_H
#define DDPHOOK_RUNTIME_SRC_BASE_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <thread>
#include <utility>

namespace ddphook {

/// Threads that are started while this lives inherit a mask with all signals
/// blocked.
class BlockedSignals {
public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &saved, nullptr); }
  BlockedSignals(const BlockedSignals &) = delete;
  BlockedSignals &operator=(const BlockedSignals &) = delete;

private:
  sigset_t saved;
};

/// A thread of the runtime. `name` has at most 15 characters.
template <typename Function>
std::thread startThread(const char *name, Function &&function) {
  BlockedSignals blocked;
  std::thread thread(std::forward<Function>(function));
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_THREADS_H
