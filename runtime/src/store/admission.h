// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Listening sockets and the strangers that have connected to them. A connection
// that proves that it has the key (handshake.h) becomes a guest. All others get
// a bounded amount of memory, descriptors and time, so that neither floods nor
// silent connections keep the job's ranks out.

#pragma once

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
    /// The number of the job's connections that may arrive at once.
    size_t expected = 0;
  };

  /// A connection whose other end has proved to have the key.
  struct Guest {
    FileDescriptor socket;
    std::string introduction;
  };

  Admission(Options options, std::vector<FileDescriptor> listening);

  /// Stops listening and drops all strangers.
  void close();

  /// Appends the descriptors to poll, with their events.
  void watch(std::vector<pollfd> *entries) const;

  /// Returns the milliseconds until handle() must run without an event, or -1.
  int patienceMs() const;

  /// Handles the events in `entries`, which watch() appended, and appends new
  /// guests. RESOURCE_EXHAUSTED if this process has no descriptor left for a
  /// waiting connection, or no memory to answer one. Without a descriptor it
  /// then accepts one caller at a time, which can still be sent the reason.
  Status handle(const pollfd *entries, std::vector<Guest> *guests);

  /// The number of connections without the key, and the last one's address.
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
  /// A spare descriptor, closed when no other one is left.
  FileDescriptor reserve;
  /// In order of arrival.
  std::deque<Stranger> strangers;
  /// No connection is accepted until then, because descriptors ran out.
  Deadline pause = Deadline::after(0);
  size_t refused = 0;
  std::string lastRefusedPeer;
};

} // namespace ddphook
