// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An id does not tell how many ranks there will be; the store wants to know,
// and is told a number that none reaches.

#include "nccl_bootstrap.h"

#include "store/store_server.h"

#include <cstring>
#include <map>
#include <mutex>
#include <random>

using namespace ddphook;
using namespace emulated_cuda;

static constexpr int maxRanks = 1 << 15;
/// How long one attempt waits before it looks whether it was aborted.
static constexpr double sliceSeconds = 0.02;

namespace {
/// What an id's bytes hold.
struct Address {
  char mark[16];
  int32_t port;
  char runId[64];
};
static_assert(sizeof(Address) <= NCCL_UNIQUE_ID_BYTES);
constexpr char mark[16] = "emulated NCCL 1";

/// The ids that this process has made and still listens for.
struct Servers {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<StoreServer>> byRunId;
};
} // namespace

static Servers &servers() {
  static auto *servers = new Servers();
  return *servers;
}

Status emulated_cuda::makeUniqueId(ncclUniqueId *id) {
  std::random_device random;
  std::string runId = "nccl";
  for (int i = 0; i < 4; ++i)
    runId += "-" + std::to_string(random());

  StoreServer::Options options;
  options.worldSize = maxRanks;
  options.runId = runId;
  std::unique_ptr<StoreServer> server;
  DDPHOOK_TRY(StoreServer::start(options, &server));

  Address address = {};
  std::memcpy(address.mark, mark, sizeof(mark));
  address.port = server->port();
  std::strncpy(address.runId, runId.c_str(), sizeof(address.runId) - 1);
  std::memset(id->internal, 0, sizeof(id->internal));
  std::memcpy(id->internal, &address, sizeof(address));
  std::lock_guard<std::mutex> lock(servers().mutex);
  servers().byRunId[runId] = std::move(server);
  return Status::ok();
}

static Status abortedError() {
  return error(DDPHOOK_ABORTED, "the communicator was aborted");
}

Status Bootstrap::connect(const ncclUniqueId &id, int rank,
                          const std::atomic<bool> &isAborted,
                          std::unique_ptr<Bootstrap> *bootstrap) {
  Address address;
  std::memcpy(&address, id.internal, sizeof(address));
  if (std::memcmp(address.mark, mark, sizeof(mark)) != 0)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected a unique id of ncclGetUniqueId()");
  std::unique_ptr<Bootstrap> result(new Bootstrap(isAborted));
  result->runId = address.runId;
  TcpStore::Options options;
  options.port = address.port;
  options.rank = rank;
  options.worldSize = maxRanks;
  options.runId = address.runId;
  // The root listens before the id exists: who is not let in now never is.
  DDPHOOK_TRY(TcpStore::connect(options, Deadline::after(2), &result->store));
  *bootstrap = std::move(result);
  return Status::ok();
}

Bootstrap::~Bootstrap() {
  if (store)
    store->leave();
}

Status Bootstrap::set(const std::string &key, const std::string &value) {
  return store->set(key, value);
}

Status Bootstrap::get(const std::string &key, const Deadline &,
                      std::string *value) {
  while (!isAborted) {
    Status status = store->get(key, Deadline::after(sliceSeconds), value);
    if (status.code() != DDPHOOK_DEADLINE_EXCEEDED)
      return status;
  }
  return abortedError();
}

Status Bootstrap::add(const std::string &key, int64_t delta, int64_t *result) {
  return store->add(key, delta, result);
}

Status Bootstrap::erase(const std::string &key) { return store->erase(key); }

Status Bootstrap::finish(int size) {
  int64_t done = 0;
  DDPHOOK_TRY(store->add("done", 1, &done));
  std::unique_lock<std::mutex> lock(servers().mutex);
  auto mine = servers().byRunId.find(runId);
  if (mine == servers().byRunId.end())
    return Status::ok();
  // Only one rank of a process waits, when several are its threads.
  std::unique_ptr<StoreServer> server = std::move(mine->second);
  servers().byRunId.erase(mine);
  lock.unlock();
  while (done < size && !isAborted) {
    DDPHOOK_TRY(store->failureWithin(sliceSeconds));
    DDPHOOK_TRY(store->add("done", 0, &done));
  }
  store->leave();
  store.reset();
  return done < size ? abortedError() : Status::ok();
}
