//===- admission.h - who may connect ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Listening sockets and the strangers who have connected to them. A connection
// that proves to have the key (handshake.h) is handed over as a guest. All
// others take a bounded amount of memory, descriptors and time, so that neither
// floods nor silent connections keep the job's ranks out.
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
    /// Number of the job's own connections that may arrive at the same moment.
    size_t expected = 0;
  };

  /// A connection whose other end has proved to have the key.
  struct Guest {
    FileDescriptor socket;
    std::string introduction;
  };

  Admission(Options options, std::vector<FileDescriptor> listening);

  /// Listens no more, and sends all strangers away.
  void close();

  /// Appends the descriptors to poll, with their events.
  void watch(std::vector<pollfd> *entries) const;

  /// Milliseconds after which handle() has something to do even without an
  /// event; -1: never.
  int patienceMs() const;

  /// Handles the events in `entries`, which watch() has appended, and appends
  /// new guests. RESOURCE_EXHAUSTED if this process has no descriptor left for
  /// a connection that waits, from then on it accepts one caller at a time,
  /// which can be told why; or if it has no memory to answer one.
  Status handle(const pollfd *entries, std::vector<Guest> *guests);

  /// Number of connections without the key, and the address of the last one.
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

  Status acceptSome(const FileDescriptor &listener);
  bool makeRoom();
  bool hear(Stranger &stranger, std::vector<Guest> *guests, Status *trouble);

  const Options options;
  std::vector<FileDescriptor> listening;
  /// A spare descriptor, closed when there is no other one left.
  FileDescriptor reserve;
  /// In the order of their arrival.
  std::deque<Stranger> strangers;
  /// Until then no connection is accepted, because there are no descriptors.
  Deadline pause = Deadline::after(0);
  size_t refused = 0;
  std::string lastRefusedPeer;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STORE_ADMISSION_H
