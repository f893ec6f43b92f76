//===- rank_pool.cpp - ranks as processes that measure on command ---------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Commands and answers are plain structs in pipes; the ranks find each other
// through the runtime's store.
//
//===----------------------------------------------------------------------===//
#include "rank_pool.h"

#include "gloo/gloo_group.h"
#include "kernels.h"
#include "powersgd_bucket.h"
#include "shm_group.h"
#include "store/store_server.h"
#include "store/tcp_store.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::bench;
using namespace ddphook::host;

static constexpr double kTimeoutSeconds = 60;
static constexpr int kMostRepetitions = 64;

/// A command of the parent to a rank.
struct RankPool::Command {
  Wire wire;
  CollectiveOperation operation;
  bool cold;
  int repetitions;
  int64_t powerSgdRank; // 0: the all-reduce alone
};

namespace {

using Command = RankPool::Command;

struct Reply {
  ddphook_status_t code;
  char message[512];
  uint64_t checksum;
  int valueCount;
  double values[10];
  double seconds[kMostRepetitions];
};

bool readAll(int file, void *data, size_t size) {
  for (char *p = static_cast<char *>(data); size > 0;) {
    const ssize_t got = read(file, p, size);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    p += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool writeAll(int file, const void *data, size_t size) {
  for (const char *p = static_cast<const char *>(data); size > 0;) {
    const ssize_t put = write(file, p, size);
    if (put < 0 && errno == EINTR)
      continue;
    if (put <= 0)
      return false;
    p += put;
    size -= static_cast<size_t>(put);
  }
  return true;
}

/// The rank in a child process.
class RankProcess {
public:
  RankProcess(int rank, int size, int64_t elements)
      : rank(rank), size(size), elements(elements), input(4 * elements),
        bucket(4 * elements) {
    fillInput(input.as<float>(), elements, rank);
  }

  Status join(int port) {
    TcpStore::Options options;
    options.hosts = {loopbackAddress()};
    options.port = port;
    options.rank = rank;
    options.worldSize = size;
    options.timeoutSeconds = kTimeoutSeconds;
    DDPHOOK_RETURN_IF_ERROR(
        TcpStore::connect(options, Deadline::after(kTimeoutSeconds), &store));
    DDPHOOK_RETURN_IF_ERROR(ShmGroup::create(*store, "bench-shm", {rank, size},
                                             kTimeoutSeconds, &shm));
    DDPHOOK_RETURN_IF_ERROR(GlooDevice::create(loopbackAddress(), &device));
    return GlooGroup::create(*device, *store, "bench-gloo",
                             /*proofKey=*/"", {rank, size}, kTimeoutSeconds,
                             &gloo);
  }

  Status run(const Command &command, Reply *reply) {
    reply->valueCount = 0;
    return command.powerSgdRank > 0 ? runPowerSgd(command, reply)
                                    : runAllReduce(command, reply);
  }

private:
  Status allReduce(Wire wire, const CollectiveDesc &desc, void *data) {
    return wire == Wire::SharedMemory ? shm->run(desc, data, data)
                                      : gloo->run(desc, data, data);
  }

  /// Flushes the caches if requested, and synchronizes all ranks.
  Status prepareMeasurement(const Command &command) {
    if (command.cold)
      flusher.flush();
    float barrier = 0;
    return shm->run({1, Dtype::F32, std::nullopt, false}, &barrier, &barrier);
  }

  Status runPowerSgd(const Command &command, Reply *reply) {
    std::unique_ptr<WorkDevice> host;
    DDPHOOK_RETURN_IF_ERROR(WorkDevice::open("host", /*threads=*/1, &host));
    PowerSgdBucket work(*host, layers(elements), command.powerSgdRank,
                        elements);
    DDPHOOK_RETURN_IF_ERROR(work.prepare(rank));
    auto reduce = [&](void *data, int64_t count) {
      return allReduce(command.wire,
                       {count, Dtype::F32, std::nullopt, /*divide=*/false},
                       data);
    };
    DDPHOOK_RETURN_IF_ERROR(work.step(reduce, size));
    std::vector<float> result;
    DDPHOOK_RETURN_IF_ERROR(work.readResult(&result));
    reply->checksum = checksum(result.data(), elements);
    std::vector<double> values;
    DDPHOOK_RETURN_IF_ERROR(work.describe(&values));
    for (double value : values)
      reply->values[reply->valueCount++] = value;
    for (int i = 0; i < command.repetitions; ++i) {
      DDPHOOK_RETURN_IF_ERROR(prepareMeasurement(command));
      const double begin = now();
      DDPHOOK_RETURN_IF_ERROR(work.step(reduce, size));
      reply->seconds[i] = now() - begin;
    }
    return Status::ok();
  }

  Status runAllReduce(const Command &command, Reply *reply) {
    const CollectiveDesc desc = command.operation;
    auto reduce = [&] {
      return allReduce(command.wire, desc, bucket.as<void>());
    };
    auto refill = [&] {
      castArray(input.as<void>(), Dtype::F32, bucket.as<void>(), desc.type(),
                desc.count);
    };
    refill();
    DDPHOOK_RETURN_IF_ERROR(reduce());
    std::vector<float> result(static_cast<size_t>(desc.count));
    castArray(bucket.as<void>(), desc.type(), result.data(), Dtype::F32,
              desc.count);
    reply->checksum = checksum(result.data(), desc.count);
    refill();
    for (int i = 0; i < command.repetitions; ++i) {
      DDPHOOK_RETURN_IF_ERROR(prepareMeasurement(command));
      const double begin = now();
      DDPHOOK_RETURN_IF_ERROR(reduce());
      reply->seconds[i] = now() - begin;
    }
    return Status::ok();
  }

  const int rank, size;
  const int64_t elements;
  Buffer input, bucket;
  CacheFlusher flusher;
  std::unique_ptr<TcpStore> store;
  std::unique_ptr<GlooDevice> device;
  std::unique_ptr<ShmGroup> shm;
  std::unique_ptr<GlooGroup> gloo;
};

void setStatus(const Status &status, Reply *reply) {
  reply->code = status.code();
  std::snprintf(reply->message, sizeof(reply->message), "%s",
                status.message().c_str());
}

/// Runs in a child: joins, then serves commands until the pipe closes.
void serve(int rank, int size, int64_t elements, int commands, int replies) {
  pinTo(rank);
  int port;
  if (!readAll(commands, &port, sizeof(port)))
    return;
  RankProcess process(rank, size, elements);
  auto reply = std::make_unique<Reply>();
  setStatus(process.join(port), reply.get());
  Command command;
  while (writeAll(replies, reply.get(), sizeof(*reply)) &&
         readAll(commands, &command, sizeof(command)))
    setStatus(process.run(command, reply.get()), reply.get());
}

} // namespace

const char *bench::wireName(Wire wire) {
  return wire == Wire::SharedMemory ? "shared memory" : "Gloo";
}

Status RankPool::start(int size, int64_t elements,
                       std::unique_ptr<RankPool> *out) {
  std::unique_ptr<RankPool> pool(new RankPool());
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    int in[2], back[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0)
      return systemError(errno, "cannot create a pipe");
    const pid_t pid = fork();
    if (pid < 0)
      return systemError(errno, "cannot start a rank");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // Otherwise a rank would keep the others' pipes open.
      for (const Rank &other : pool->ranks) {
        close(other.toChild);
        close(other.fromChild);
      }
      close(in[1]);
      close(back[0]);
      serve(rank, size, elements, in[0], back[1]);
      _exit(0);
    }
    close(in[0]);
    close(back[1]);
    pool->ranks.push_back({pid, in[1], back[0]});
  }
  StoreServer::Options options;
  options.address = loopbackAddress();
  options.worldSize = size;
  std::unique_ptr<StoreServer> server;
  DDPHOOK_RETURN_IF_ERROR(StoreServer::start(options, &server));
  const int port = server->port();
  for (const Rank &rank : pool->ranks)
    if (!writeAll(rank.toChild, &port, sizeof(port)))
      return error(DDPHOOK_PEER_LOST, "a rank ended");
  Reply reply;
  for (const Rank &rank : pool->ranks) {
    if (!readAll(rank.fromChild, &reply, sizeof(reply)))
      return error(DDPHOOK_PEER_LOST, "a rank ended");
    if (reply.code != DDPHOOK_OK)
      return Status(reply.code, reply.message);
  }
  *out = std::move(pool);
  return Status::ok();
}

RankPool::~RankPool() {
  for (const Rank &rank : ranks) {
    close(rank.toChild);
    close(rank.fromChild);
  }
  for (const Rank &rank : ranks) {
    kill(rank.pid, SIGKILL);
    waitpid(rank.pid, nullptr, 0);
  }
}

Status RankPool::run(Wire wire, const CollectiveDesc &desc, Caches caches,
                     int repetitions, Answer *answer) {
  Command command{wire, desc, caches == Caches::Cold,
                  std::min(repetitions, kMostRepetitions),
                  /*powerSgdRank=*/0};
  return ask(command, answer);
}

Status RankPool::runPowerSgd(Wire wire, int64_t rank, Caches caches,
                             int repetitions, Answer *answer) {
  Command command = {};
  command.wire = wire;
  command.cold = caches == Caches::Cold;
  command.repetitions = std::min(repetitions, kMostRepetitions);
  command.powerSgdRank = rank;
  return ask(command, answer);
}

Status RankPool::ask(const Command &command, Answer *answer) {
  for (const Rank &rank : ranks)
    if (!writeAll(rank.toChild, &command, sizeof(command)))
      return error(DDPHOOK_PEER_LOST, "a rank ended");
  *answer = Answer();
  answer->seconds.resize(static_cast<size_t>(command.repetitions));
  Reply reply;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!readAll(ranks[rank].fromChild, &reply, sizeof(reply)))
      return error(DDPHOOK_PEER_LOST, "rank %zu ended", rank);
    if (reply.code != DDPHOOK_OK)
      return Status(reply.code, reply.message);
    if (rank == 0) {
      answer->checksum = reply.checksum;
      answer->values.assign(reply.values, reply.values + reply.valueCount);
    }
    answer->ranksAgree &= answer->checksum == reply.checksum;
    for (size_t i = 0; i < answer->seconds.size(); ++i)
      answer->seconds[i] = std::max(answer->seconds[i], reply.seconds[i]);
  }
  return Status::ok();
}
