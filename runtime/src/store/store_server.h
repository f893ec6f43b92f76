// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread that serves the job's key-value store over TCP and watches the
// ranks. A connection that closes without a farewell is a lost rank, and all
// others learn of it at once. The server accepts only connections that have
// proved that they have the job's secret (admission.h), and checks everything
// that it receives. All state belongs to the thread, a poll loop over
// non-blocking sockets; other threads only set what is said to be shared, and
// wake it.

#pragma once

#include "base/status.h"
#include "store/admission.h"
#include "store/roster.h"
#include "store/socket.h"
#include "store/store_values.h"

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ddphook {

/// Values that rank 0's process takes from its server, even when the job has
/// failed and its own connection is gone. Thread-safe.
class Mailbox {
public:
  /// The most bytes that all values together may have.
  static constexpr size_t mostBytes = size_t(256) << 20;

  /// Replaces the value of `rank`. RESOURCE_EXHAUSTED if it does not fit.
  Status put(int rank, std::string value) {
    std::lock_guard<std::mutex> lock(mutex);
    std::string &place = values[rank];
    bytes -= place.size();
    const bool fits = value.size() <= mostBytes - bytes;
    place = fits ? std::move(value) : std::string();
    bytes += place.size();
    return fits ? Status::ok()
                : error(DDPHOOK_RESOURCE_EXHAUSTED,
                        "rank 0 has no space for it");
  }

  /// Returns all values by rank and removes them.
  std::map<int, std::string> take() {
    std::lock_guard<std::mutex> lock(mutex);
    bytes = 0;
    return std::exchange(values, {});
  }

private:
  std::mutex mutex;
  std::map<int, std::string> values;
  size_t bytes = 0;
};

class StoreServer {
public:
  struct Options {
    /// The address by which the other ranks know this machine.
    std::string address = "127.0.0.1";
    /// 0: any free port.
    int port = 0;
    int worldSize = 1;
    /// True if rank 0 is in this process. Only TcpStore::attach() can then join
    /// as rank 0.
    bool hasRankZero = false;
    std::string runId;
    /// Empty: everybody is admitted.
    std::string secret;
  };

  /// The key that exists as soon as `rank` is connected, and the key that
  /// exists as soon as all ranks are.
  static std::string joinedKey(int rank);
  static const char *allJoinedKey();
  /// The key that exists as soon as a connection without the job's secret was
  /// refused. Its value says how many were, and who was the last.
  static const char *refusedKey();

  /// How long a job tries to take over from another one. This applies to a rank
  /// 0 whose port is taken and to ranks that are refused.
  static constexpr double takeoverSeconds = 10;

  /// Listens, waiting for the port until `deadline`, and starts the thread.
  static Status start(const Options &options,
                      std::unique_ptr<StoreServer> *server,
                      const Deadline &deadline = Deadline::after(0));

  int port() const { return boundPort; }

  /// Returns rank 0's own connection and the token that ranks are welcomed
  /// with. RESOURCE_EXHAUSTED if the server started with too few descriptors.
  Status connectRankZero(FileDescriptor *socket, std::string *token);

  /// Returns the address of this machine at which another rank has reached it,
  /// preferably one on another machine; empty if none has.
  std::string reachedAddress() const;

  /// The job's failure, or OK; for a rank 0 whose own connection has broken.
  Status failure() const;

  /// Returns the values that ranks have left by TcpStore::deliver().
  Mailbox &mailbox() { return deliveries; }

  /// Notifies all ranks, including those that have yet to join, that rank 0 has
  /// failed. It is for a rank 0 without a connection of its own.
  void fail(const Status &status);

  /// Waits until every rank has left or was lost, at most until `deadline`, and
  /// ends the thread. Without this call the destructor ends it at once.
  void finish(const Deadline &deadline);

  ~StoreServer();

private:
  StoreServer(const Options &options, std::vector<FileDescriptor> listening,
              Interrupt wake, std::string token);

  /// The poll loop: serves until it is asked to stop, at most until `end`.
  void run(const Deadline &end = Deadline::after(1e18));
  /// Fails the job, because run() could not finish its work. May be repeated.
  void recover(const Status &status);
  void requestStop(std::atomic<bool> &how);
  void welcomeRankZero();
  void takeFailure();
  void admit(const pollfd *entries);
  void readFrom(StoreConnection &connection);
  void writeTo(StoreConnection &connection);
  void parseInput(StoreConnection &connection);
  void handleHello(StoreConnection &connection, const wire::Hello &hello);
  void handleFrame(StoreConnection &connection, const wire::Frame &frame,
                   std::string_view key, std::string_view value);
  void reject(StoreConnection &connection, bool mayRetry, const Status &status);
  void onEnd(StoreConnection &connection, const std::string &reason,
             bool mayComeBack = true);
  void removeClosed();

  void abortJob(int rank, const Status &status);
  void failJob(int culprit, const Status &status);

  int boundPort = 0;
  /// Rank 0's end of its own connection.
  FileDescriptor rankZero;
  /// A token that only welcomed ranks know.
  const std::string token;
  /// The frame that reports the job's failure. Until the job fails it reports
  /// the one failure for which there may be no memory: out of memory.
  StoreConnection::Bytes failureFrame;
  Interrupt wake;
  std::unique_ptr<Admission> admission;
  std::atomic<bool> stopNow{false};
  std::atomic<bool> stopWhenAllLeft{false};
  std::atomic<bool> ended{false};

  /// Guards the next members against other threads.
  mutable std::mutex sharedMutex;
  std::string reached;
  Status failureOfRankZero;
  /// The first failure of the job. Only the loop's thread changes it.
  Status firstFailure;

  std::list<StoreConnection> connections;
  StoreValues values;
  Roster roster;
  /// Not OK once a rank is gone: answers waits for keys that cannot arrive.
  Status leftStatus;
  /// True if a rank has waited until its deadline: missing ranks will not come.
  bool hasExpired = false;
  Mailbox deliveries;
  std::thread thread;
};

} // namespace ddphook
