//===- bench_host_time.cpp - what a collective costs the host -------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Seconds until a small all-reduce is started, on two ranks that share a GPU as
// if on two machines, with blocking and non-blocking communicators. The time of
// the GPU itself does not count: the ranks use it alternately.
//
//===----------------------------------------------------------------------===//
#include "all_ranks.h"
#include "benches.h"

#include "base/collective.h"
#include "job/context.h"
#include "local_job.h"
#include "rank_group.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

using namespace ddphook;
using namespace ddphook::bench;

namespace {

constexpr int kRanks = 2;
constexpr int64_t kCount = 4096;
constexpr int64_t kBytes = kCount * int64_t(sizeof(float));
constexpr int kSamples = 15;
/// Fewer than a backend may have in flight, so that none waits for another.
constexpr int kCalls = 64;
constexpr double kStallSeconds = 90;

/// The measurements of rank 0, in memory that processes share.
struct Measured {
  double seconds[kSamples];
  bool right;
};

class SharedMeasured {
public:
  SharedMeasured() {
    void *page = ::mmap(nullptr, sizeof(Measured), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
      throw std::bad_alloc();
    measured = new (page) Measured();
  }
  ~SharedMeasured() { ::munmap(measured, sizeof(Measured)); }
  SharedMeasured(const SharedMeasured &) = delete;
  SharedMeasured &operator=(const SharedMeasured &) = delete;
  Measured *get() const { return measured; }

private:
  Measured *measured;
};

/// A group of all ranks and an array, in a job.
class HostTimeRank {
public:
  explicit HostTimeRank(Context &context) : context(context) {}
  ~HostTimeRank() {
    const ddphook_backend_t &backend = context.backend();
    if (group)
      backend.communicator_destroy(context.device(), group);
    for (void *memory : {in, out})
      if (memory)
        backend.memory_free(context.device(), memory, kBytes);
  }
  HostTimeRank(const HostTimeRank &) = delete;
  HostTimeRank &operator=(const HostTimeRank &) = delete;

  Status prepare();
  Status measure(Measured *measured, RankReport &progress);

private:
  Status start(int64_t *ticket);
  Status wait(int64_t ticket) {
    return context.call(&ddphook_backend_t::wait, ticket);
  }

  Context &context;
  ddphook_communicator_t *group = nullptr;
  void *in = nullptr, *out = nullptr;
};

} // namespace

Status HostTimeRank::prepare() {
  constexpr uint64_t alignment = 256;
  for (void **memory : {&in, &out})
    DDPHOOK_RETURN_IF_ERROR(context.call(&ddphook_backend_t::memory_alloc,
                                         static_cast<uint64_t>(kBytes),
                                         alignment, memory));
  std::vector<float> input(static_cast<size_t>(kCount),
                           static_cast<float>(context.rank() + 1));
  DDPHOOK_RETURN_IF_ERROR(context.call(&ddphook_backend_t::memory_write, in,
                                       static_cast<const void *>(input.data()),
                                       static_cast<uint64_t>(kBytes)));
  return joinAllRanks(context, "host-time", /*isOneMachine=*/true, kBytes,
                      &group);
}

Status HostTimeRank::start(int64_t *ticket) {
  const CollectiveOperation sum(kCount, Dtype::F32);
  return context.call(&ddphook_backend_t::collective, group, &sum,
                      static_cast<const void *>(in), out, ticket);
}

Status HostTimeRank::measure(Measured *measured, RankReport &progress) {
  int64_t ticket = 0;
  DDPHOOK_RETURN_IF_ERROR(start(&ticket));
  DDPHOOK_RETURN_IF_ERROR(wait(ticket));
  std::vector<float> sums(static_cast<size_t>(kCount), -1.0f);
  DDPHOOK_RETURN_IF_ERROR(context.call(
      &ddphook_backend_t::memory_read, static_cast<void *>(sums.data()),
      static_cast<const void *>(out), static_cast<uint64_t>(kBytes)));
  measured->right = std::all_of(sums.begin(), sums.end(),
                                [](float sum) { return sum == 3.0f; });
  for (double &seconds : measured->seconds) {
    progress.progress(&seconds - measured->seconds);
    DDPHOOK_RETURN_IF_ERROR(context.barrier());
    const double begin = now();
    for (int i = 0; i < kCalls; ++i)
      DDPHOOK_RETURN_IF_ERROR(start(&ticket));
    seconds = (now() - begin) / kCalls;
    DDPHOOK_RETURN_IF_ERROR(wait(ticket));
    DDPHOOK_RETURN_IF_ERROR(context.synchronize());
  }
  return context.barrier();
}

/// Runs one rank. Different host names make NCCL treat the ranks as two
/// machines, so that they may use one GPU.
static Status runRank(const std::string &device, int rank, bool isBlocking,
                      Measured *measured, RankReport &progress) {
  ::setenv("NCCL_HOSTID", ("host " + std::to_string(rank)).c_str(), 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
  ::unsetenv("NCCL_COMM_BLOCKING");
  Bootstrap place;
  DDPHOOK_RETURN_IF_ERROR(findPlace(nullptr, processEnvironment(), &place));
  place.backend = device;
  place.backendOptions =
      std::string("device=0,blocking=") + (isBlocking ? "1" : "0");
  std::unique_ptr<Context> context;
  DDPHOOK_RETURN_IF_ERROR(Context::create(place, &context));
  HostTimeRank self(*context);
  Status status = self.prepare();
  Measured own;
  if (status.isOk())
    status = self.measure(rank == 0 ? measured : &own, progress);
  return status.isOk() ? status : context->fail(std::move(status));
}

static Status runRanks(const std::string &device, bool isBlocking,
                       Measured *measured) {
  LocalJob job;
  DDPHOOK_RETURN_IF_ERROR(LocalJob::prepare(kRanks, &job));
  RankGroupOptions group;
  group.ranks = kRanks;
  group.stallSeconds = kStallSeconds;
  group.body = [&](int32_t rank, RankReport &progress) {
    job.enter(rank);
    return runRank(device, rank, isBlocking, measured, progress);
  };
  return runRankGroup(group).status;
}

Status bench::benchHostTime(const Options &options, Report &report) {
  if (options.device == "host")
    return Status::ok(); // It has no such communicators.
  const std::string other = "not blocking";
  Section *section = nullptr;
  double otherSeconds = 0;
  for (bool isBlocking : {false, true}) {
    const std::string name = isBlocking ? "blocking" : other;
    SharedMeasured measured;
    const Status status = runRanks(options.device, isBlocking, measured.get());
    if (status.code() == DDPHOOK_UNSUPPORTED) {
      std::printf("\nhost time of collectives: NOT measured: %s\n",
                  status.message().c_str());
      return Status::ok();
    }
    DDPHOOK_RETURN_IF_ERROR(status);
    report.verified("sums of two ranks, communicators that are " + name,
                    measured.get()->right);
    if (!section)
      section = &report.addSection(
          "host time of starting an all-reduce of 16 KiB on '" +
              options.device + "', two ranks on one GPU",
          {other});
    Result &result = section->add(name, Caches::Warm, kBytes);
    const double *seconds = measured.get()->seconds;
    result.samples.add({seconds, seconds + kSamples});
    result.hostSeconds = result.samples.median();
    if (isBlocking)
      result.speedups.emplace_back(other, otherSeconds / result.hostSeconds);
    otherSeconds = result.hostSeconds;
  }
  report.print(*section);
  return report.writeJson();
}
