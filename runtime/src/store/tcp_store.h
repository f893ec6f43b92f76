// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The client of StoreServer. One thread receives: answers wake the calls that
// wait for them, and a failure of the job reaches the onFailure() callback even
// while all other threads are busy in a collective.

#pragma once

#include "store/socket.h"
#include "store/store.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ddphook {

class StoreServer;

class TcpStore : public Store {
public:
  struct Options {
    /// Names and addresses of rank 0's machine, tried in this order.
    std::vector<std::string> hosts = {"127.0.0.1"};
    int port = 0;
    int rank = 0;
    int worldSize = 1;
    std::string runId;
    /// The job's secret; may be empty.
    std::string secret;
    /// Bounds connecting, and every send to a server that does not read.
    double timeoutSeconds = 300;
    /// True if this rank logs for whom it waits until all have joined.
    bool tellsWaits = true;
    /// On rank 0 the server itself, which must outlive this.
    const StoreServer *ownServer = nullptr;
  };

  /// Connects and introduces itself, repeatedly until the deadline: rank 0 may
  /// start later. Each address has a bounded time to answer.
  static Status connect(const Options &options, const Deadline &deadline,
                        std::unique_ptr<TcpStore> *store);

  /// Joins as rank 0 in the server's process. Nobody else can come first.
  static Status attach(const Options &options, StoreServer &server,
                       std::unique_ptr<TcpStore> *store);

  /// Closes the connection. Without leave() the others take it for a lost rank.
  ~TcpStore() override;

  Status set(const std::string &key, const std::string &value) override;
  Status get(const std::string &key, const Deadline &deadline,
             std::string *value) override;
  Status exists(const std::string &key, bool *result) override;
  Status add(const std::string &key, int64_t delta, int64_t *result) override;
  Status erase(const std::string &key) override;

  /// Waits until all ranks are connected. Its failure names those that are not.
  Status waitForAll(const Deadline &deadline);

  /// Notifies all other ranks that this one gives up, and why.
  void reportFailure(const Status &status);

  /// Calls `callback` once, from the receiving thread, when the job fails
  /// elsewhere. If that has already happened, calls it from here.
  void onFailure(std::function<void(const Status &)> callback);

  /// Reads rank 0's monotonic clock, in nanoseconds.
  Status serverTime(const Deadline &deadline, int64_t *time);

  /// Sets the function that computes this rank's answer to an inquiry of
  /// another rank. The receiving thread calls it.
  void onInquiry(std::function<std::string()> answer);

  /// The answers of ranks; nullopt for a rank that has not answered.
  struct Answers {
    std::vector<std::optional<std::string>> ofRanks;
    /// True if rank 0 does not even serve its store. This rank's answer is then
    /// the only one, because no other rank could be asked.
    bool isServerSilent = false;
  };

  /// Asks all ranks, including this one, where they are, and waits for the
  /// answers until the deadline. Fails if the job fails meanwhile.
  Status inquire(const Deadline &deadline, Answers *answers);

  /// Leaves `value` to rank 0's process (StoreServer::mailbox()) and waits
  /// until it has arrived. Works even after a failure of the job.
  Status deliver(const std::string &value, const Deadline &deadline);

  /// Waits at most `seconds` for a failure of the job and returns it, or OK.
  Status failureWithin(double seconds);

  /// Describes a failure whose consequences this rank has seen.
  struct Verdict {
    Status failure; ///< As returned by failureWithin().
    /// True if rank 0 has not answered anything meanwhile.
    bool isServerSilent = false;
    /// "rank 3 has left the job", if one has; else empty.
    std::string departure;
  };
  Verdict verdictWithin(double seconds);

  /// Says farewell: this rank ends well. Nothing may be called after it.
  void leave();

  /// Returns 32 bytes that only ranks of this run of the job know, for proofs
  /// between them outside the store.
  const std::string &sessionKey() const { return session; }

  /// Finds the address by which other machines reach this one.
  Status findOwnAddress(std::string *address) const {
    return findLocalAddress(socket.get(), address);
  }

private:
  struct Request;

  TcpStore(const Options &options, FileDescriptor socket, std::string session);
  Status start();
  void giveUp(const Status &status);
  void end();
  Status send(const std::string &frame) {
    return send(frame, Deadline::after(options.timeoutSeconds));
  }
  Status send(const std::string &frame, const Deadline &deadline);
  Status sendFrame(const std::string &frame, const Deadline &deadline);
  Status request(const std::string &frame, const Deadline &deadline,
                 Request *request);
  void receive();
  Status receiveFrame(std::string *key, std::string *value);
  void fail(const Status &status);

  const Options options;
  const std::string session;
  /// Frames that need no memory to be sent: "out of memory", and leave().
  const std::string distress, farewell;
  FileDescriptor socket;
  std::thread receiver;

  std::mutex sendMutex;

  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint32_t, Request *> requests;
  uint32_t lastId = 0;
  Status failure;
  /// The error with which sending failed for good.
  Status breakage;
  bool isLeaving = false;
  /// True if nothing is received any more.
  bool hasEnded = false;
  std::function<void(const Status &)> callback;
  std::function<std::string()> answerInquiry;
};

} // namespace ddphook
