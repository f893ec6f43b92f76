//===- admission.h - who may connect ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A listening socket and the strangers who connected to it. Whoever proves to
// have the key (handshake.h) is handed over as a guest. All others cost a
// bounded amount of memory, descriptors and time, so that neither floods nor
// connections that never say anything keep the job's ranks out.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_STORE_ADMISSION_H
#define DDPHOOK_RUNTIME_SRC_STORE_ADMISSION_H

#include "store/handshake.h"

#include <deque>
#include <poll.h>
#include <vector>

namespace ddphook {

/// Used by one thread, in a loop around poll(2).
class Admission {
public:
  struct Options {
    Credentials credentials;
    size_t introductionSize = 0;
    /// How many connections of the job's own may come at the same moment.
    size_t expected = 0;
  };

  /// Somebody who has the key.
  struct Guest {
    FileDescriptor socket;
    std::string introduction;
  };

  Admission(Options options, FileDescriptor listening);

  /// Appends what to poll for.
  void watch(std::vector<pollfd> *entries) const;

  /// After how many milliseconds handle() has something to do, even when
  /// nothing happens; -1: never.
  int patienceMs() const;

  /// Does what has become possible. `entries` are those that watch() appended.
  /// RESOURCE_EXHAUSTED when this process has no descriptor left for somebody
  /// who waits to be let in. From then on there is one for a caller at a time,
  /// who can be told why.
  Status handle(const pollfd *entries, std::vector<Guest> *guests);

  /// How many proved not to have the key, and the address of the last one.
  size_t refusals() const { return refused; }
  const std::string &lastRefused() const { return lastRefusedPeer; }

private:
  /// A connection whose other end has not proved anything yet.
  struct Stranger {
    FileDescriptor socket;
    AcceptingHandshake handshake;
    Deadline::Clock::time_point arrival = Deadline::Clock::now();
    std::string claim;
  };

  Status acceptSome();
  bool makeRoom();
  bool hear(Stranger &stranger, std::vector<Guest> *guests);

  const Options options;
  FileDescriptor listening;
  /// Given up when there is no other descriptor left.
  FileDescriptor reserve;
  /// In the order of their arrival.
  std::deque<Stranger> strangers;
  /// Until then nobody is accepted, because there are no descriptors.
  Deadline pause = Deadline::after(0);
  size_t refused = 0;
  std::string lastRefusedPeer;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_ADMISSION_H
