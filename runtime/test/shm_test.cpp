//===- shm_test.cpp - all-reduce through shared memory --------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results against gloo::allreduce itself, bit by bit (ranks are threads here),
// and failures with ranks as processes that are killed and stopped.
//
//===----------------------------------------------------------------------===//
#include "shm_group.h"

#include "kernels.h"

#include "gloo/allreduce.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/hash_store.h"
#include "gloo/transport/tcp/device.h"
#include "gtest/gtest.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

namespace {

constexpr uint32_t kSeed = 4321;
using Bytes = std::vector<char>;

double secondsNow() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Runs fn(rank) in one thread per rank.
void onRanks(int size, const std::function<void(int)> &fn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back(fn, rank);
  for (std::thread &thread : threads)
    thread.join();
}

/// Random bits every other time, moderate values otherwise, then special ones.
Bytes randomInput(Dtype type, int64_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(static_cast<size_t>(n * dtypeSize(type)));
  constexpr double special[] = {0.0,    -0.0, 65519.9,  65520,
                                -65520, 6e-8, 3e-8,     1e-40,
                                1e-45,  3e38, HUGE_VAL, HUGE_VAL};
  for (int64_t i = 0; i < n; ++i) {
    char *p = bytes.data() + i * dtypeSize(type);
    uint64_t bits = random();
    double value = static_cast<double>(bits % 2000001) * 1e-6 - 1;
    if (bits >> 60 == 0)
      std::memcpy(p, &bits, static_cast<size_t>(dtypeSize(type)));
    else if (bits >> 60 == 1)
      value = special[bits % std::size(special)];
    if (bits >> 60 != 0)
      castArray(&value, Dtype::F64, p, type, 1);
  }
  return bytes;
}

/// No differing bits, but any NaN equals any NaN.
void expectSameBits(Dtype type, const Bytes &want, const Bytes &got) {
  ASSERT_EQ(want.size(), got.size());
  const int64_t size = dtypeSize(type);
  int wrong = 0;
  for (size_t i = 0; i < want.size() && wrong < 3;
       i += static_cast<size_t>(size)) {
    if (std::memcmp(&want[i], &got[i], static_cast<size_t>(size)) == 0)
      continue;
    double a, b;
    castArray(&want[i], type, &a, Dtype::F64, 1);
    castArray(&got[i], type, &b, Dtype::F64, 1);
    if (std::isnan(a) && std::isnan(b))
      continue;
    ++wrong;
    ADD_FAILURE() << dtypeName(type) << " element "
                  << i / static_cast<size_t>(size) << ": expected " << a
                  << ", but got " << b;
  }
}

template <Dtype kType>
void addForGloo(void *out, const void *a, const void *b, size_t n) {
  addArrays(out, a, b, kType, static_cast<int64_t>(n));
}

/// Gloo's all-reduce of 16-bit types, which its own functions round otherwise,
/// and of all others, with our addition.
void glooAllReduce(const std::shared_ptr<gloo::Context> &context, Dtype type,
                   void *data, int64_t n, uint32_t tag) {
  gloo::AllreduceOptions options(context);
  auto run = [&](auto element, auto fn) {
    using T = decltype(element);
    options.setOutput(static_cast<T *>(data), static_cast<size_t>(n));
    options.setReduceFunction(static_cast<gloo::AllreduceOptions::Func>(fn));
    options.setTag(tag);
    gloo::allreduce(options);
  };
  switch (type) {
  case Dtype::F16:
    return run(uint16_t(), &addForGloo<Dtype::F16>);
  case Dtype::BF16:
    return run(uint16_t(), &addForGloo<Dtype::BF16>);
  case Dtype::F32:
    return run(float(), &addForGloo<Dtype::F32>);
  case Dtype::F64:
    return run(double(), &addForGloo<Dtype::F64>);
  }
}

/// The hook's arithmetic in separate whole-array steps around Gloo.
Bytes referenceAllReduce(const std::shared_ptr<gloo::Context> &context,
                         const AllReduceDesc &desc, const Bytes &in, int size,
                         uint32_t tag) {
  Bytes wire(static_cast<size_t>(desc.wireBytes())), out(in.size());
  castArray(in.data(), desc.dtype, wire.data(), desc.wireType(), desc.count);
  if (desc.divide)
    divideArray(wire.data(), wire.data(), desc.wireType(), desc.count, size);
  if (desc.count > 0 && size > 1)
    glooAllReduce(context, desc.wireType(), wire.data(), desc.count, tag);
  castArray(wire.data(), desc.wireType(), out.data(), desc.dtype, desc.count);
  return out;
}

/// All descriptions of `count` elements: four types, with and without a wire.
enum class Variety { All, Hooks, Few };
std::vector<AllReduceDesc> allDescs(int64_t count, Variety variety) {
  if (variety == Variety::Few)
    return {{count, Dtype::F32, {}, true},
            {count, Dtype::F32, Dtype::F16, true},
            {count, Dtype::BF16, {}, false},
            {count, Dtype::F64, {}, false}};
  std::vector<AllReduceDesc> descs;
  for (Dtype dtype : {Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64})
    for (std::optional<Dtype> wire :
         {std::optional<Dtype>(), std::optional<Dtype>(Dtype::F16),
          std::optional<Dtype>(Dtype::BF16),
          std::optional<Dtype>(Dtype::F32)}) {
      if (variety == Variety::Hooks && wire &&
          (dtype != Dtype::F32 || isHalf(*wire) == false))
        continue;
      for (bool divide : {false, true})
        descs.push_back(AllReduceDesc{count, dtype, wire, divide});
    }
  return descs;
}

//===----------------------------------------------------------------------===//
// Bits
//===----------------------------------------------------------------------===//

void compareWithGloo(int size, const std::vector<int64_t> &counts,
                     Variety variety) {
  MemoryStore store;
  gloo::rendezvous::HashStore glooStore;
  std::vector<std::vector<Bytes>> results(static_cast<size_t>(size));
  onRanks(size, [&](int rank) {
    gloo::transport::tcp::attr attr("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(attr);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(glooStore, device);
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", rank, size, 60, &group);
    ASSERT_TRUE(status.isOk()) << status.message();
    uint32_t tag = 0;
    for (int64_t count : counts)
      for (const AllReduceDesc &desc : allDescs(count, variety)) {
        ++tag;
        SCOPED_TRACE(testing::Message()
                     << "rank " << rank << " of " << size << ", " << count
                     << " x " << dtypeName(desc.dtype) << " as "
                     << dtypeName(desc.wireType()) << " divide "
                     << desc.divide);
        Bytes in = randomInput(desc.dtype, count,
                               kSeed + 100 * tag + static_cast<uint32_t>(rank));
        Bytes want = referenceAllReduce(context, desc, in, size, tag);
        Bytes out(in.size(), 0x5a), before = in;
        status = group->allReduce(desc, in.data(), out.data());
        ASSERT_TRUE(status.isOk()) << status.message();
        expectSameBits(desc.dtype, want, out);
        EXPECT_TRUE(in == before) << "the input was written";
        status = group->allReduce(desc, in.data(), in.data());
        ASSERT_TRUE(status.isOk()) << status.message();
        expectSameBits(desc.dtype, want, in);
        results[static_cast<size_t>(rank)].push_back(std::move(in));
      }
  });
  // All ranks have the same bits, NaNs included.
  for (int rank = 1; rank < size; ++rank)
    EXPECT_TRUE(results[0] == results[static_cast<size_t>(rank)]) << rank;
}

class ShmBits : public testing::TestWithParam<int> {};

TEST_P(ShmBits, equalGlooSmall) {
  RecordProperty("seed", kSeed);
  compareWithGloo(GetParam(), {0, 1, 2, 5, 31, 1009}, Variety::All);
}

TEST_P(ShmBits, equalGlooMedium) {
  compareWithGloo(GetParam(), {10007, 65536, 99991, 300007}, Variety::Hooks);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmBits, testing::Values(1, 2, 3, 4, 5, 8),
                         testing::PrintToStringParamName());

class ShmBigBits : public testing::TestWithParam<int> {};

TEST_P(ShmBigBits, equalGloo) {
  compareWithGloo(GetParam(), {(3 << 20) + 17}, Variety::Few);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmBigBits, testing::Values(2, 3, 4),
                         testing::PrintToStringParamName());

TEST(ShmGroup, manyRanks) {
  constexpr int size = 64;
  constexpr int64_t n = 10007;
  MemoryStore store;
  onRanks(size, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", rank, size, 60, &group);
    ASSERT_TRUE(status.isOk()) << status.message();
    std::vector<float> x(n);
    for (int repeat = 0; repeat < 3; ++repeat) {
      // Small integers: exact in f16 in any order.
      for (int64_t i = 0; i < n; ++i)
        x[static_cast<size_t>(i)] = static_cast<float>((rank + i) % 7);
      status = group->allReduce({n, Dtype::F32, Dtype::F16, false}, x.data(),
                                x.data());
      ASSERT_TRUE(status.isOk()) << status.message();
      for (int64_t i = 0; i < n; ++i) {
        float want = 0;
        for (int r = 0; r < size; ++r)
          want += static_cast<float>((r + i) % 7);
        ASSERT_EQ(x[static_cast<size_t>(i)], want) << i;
      }
    }
  });
}

/// Collectives of all sizes back to back, with ranks that dawdle: slots and
/// counters survive being reused in any rhythm.
TEST(ShmGroup, mixedSequence) {
  constexpr int size = 3, rounds = 300;
  MemoryStore store;
  onRanks(size, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", rank, size, 60, &group);
    ASSERT_TRUE(status.isOk()) << status.message();
    std::mt19937 shared(kSeed), own(kSeed + 1 + static_cast<uint32_t>(rank));
    std::vector<double> x;
    for (int round = 0; round < rounds; ++round) {
      size_t n = shared() % (shared() % 4 == 0 ? 200000 : 3000);
      x.assign(n, 0);
      for (size_t i = 0; i < n; ++i)
        x[i] = static_cast<double>(i % 1000) + rank * round;
      if (own() % 20 == 0)
        usleep(own() % 2000);
      status = group->allReduce(
          {static_cast<int64_t>(n), Dtype::F64, std::nullopt, false}, x.data(),
          x.data());
      ASSERT_TRUE(status.isOk()) << status.message();
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(x[i], 3.0 * static_cast<double>(i % 1000) + 3.0 * round)
            << "round " << round << " element " << i;
    }
  });
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

TEST(ShmGroup, rejectsBadRanks) {
  MemoryStore store;
  std::unique_ptr<ShmGroup> group;
  for (auto [rank, size] : {std::pair(0, 0), {-1, 2}, {2, 2}})
    EXPECT_EQ(ShmGroup::create(store, "g", rank, size, 1, &group).code(),
              DDPHOOK_INVALID_ARGUMENT);
  ASSERT_TRUE(ShmGroup::create(store, "g", 0, 1, 1, &group).isOk());
  float x = 1;
  EXPECT_EQ(group->allReduce({-1, Dtype::F32, {}, false}, &x, &x).code(),
            DDPHOOK_INVALID_ARGUMENT);
}

TEST(ShmGroup, rankNeverComes) {
  MemoryStore store;
  std::unique_ptr<ShmGroup> group;
  double start = secondsNow();
  Status status = ShmGroup::create(store, "g", 0, 2, 0.2, &group);
  EXPECT_EQ(status.code(), DDPHOOK_DEADLINE_EXCEEDED) << status.message();
  EXPECT_LT(secondsNow() - start, 5);
  EXPECT_EQ(group, nullptr);
}

TEST(ShmGroup, differentDescriptions) {
  for (int size : {2, 3}) {
    MemoryStore store;
    std::atomic<int> mismatches{0};
    onRanks(size, [&](int rank) {
      std::unique_ptr<ShmGroup> group;
      ASSERT_TRUE(ShmGroup::create(store, "g", rank, size, 20, &group).isOk());
      std::vector<float> x(100 + static_cast<size_t>(rank == 1));
      Status status = group->allReduce(
          {static_cast<int64_t>(x.size()), Dtype::F32, {}, true}, x.data(),
          x.data());
      ASSERT_FALSE(status.isOk());
      if (status.code() == DDPHOOK_PLAN_MISMATCH) {
        ++mismatches;
        EXPECT_NE(status.message().find("101 elements of f32"),
                  std::string::npos)
            << status.message();
      } else {
        EXPECT_EQ(status.code(), DDPHOOK_ABORTED) << status.message();
      }
      // And every later call fails at once.
      EXPECT_EQ(group->allReduce({1, Dtype::F32, {}, false}, x.data(), x.data())
                    .code(),
                status.code());
    });
    EXPECT_GE(mismatches, 1);
  }
}

TEST(ShmGroup, abortReachesAllRanks) {
  MemoryStore store;
  onRanks(3, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    ASSERT_TRUE(ShmGroup::create(store, "g", rank, 3, 60, &group).isOk());
    float x = 0;
    if (rank == 2) {
      usleep(50000);
      group->abort();
      group->abort();
    }
    double start = secondsNow();
    Status status = group->allReduce({1, Dtype::F32, {}, false}, &x, &x);
    EXPECT_EQ(status.code(), DDPHOOK_ABORTED);
    EXPECT_LT(secondsNow() - start, 5);
    if (rank != 2) {
      EXPECT_NE(status.message().find("rank 2"), std::string::npos)
          << status.message();
    }
  });
}

TEST(ShmGroup, abortOfAGroupOfOne) {
  MemoryStore store;
  std::unique_ptr<ShmGroup> group;
  ASSERT_TRUE(ShmGroup::create(store, "g", 0, 1, 1, &group).isOk());
  group->abort();
  float x = 0;
  EXPECT_EQ(group->allReduce({1, Dtype::F32, {}, false}, &x, &x).code(),
            DDPHOOK_ABORTED);
}

TEST(ShmGroup, leavingIsNoticed) {
  MemoryStore store;
  onRanks(2, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    ASSERT_TRUE(ShmGroup::create(store, "g", rank, 2, 60, &group).isOk());
    float x = 1;
    // The last collective before leaving succeeds on both ranks.
    ASSERT_TRUE(group->allReduce({1, Dtype::F32, {}, false}, &x, &x).isOk());
    EXPECT_EQ(x, 2);
    if (rank == 1)
      return;
    Status status = group->allReduce({1, Dtype::F32, {}, false}, &x, &x);
    EXPECT_EQ(status.code(), DDPHOOK_PEER_LOST);
    EXPECT_NE(status.message().find("rank 1"), std::string::npos)
        << status.message();
  });
}

/// A store for processes forked from one test, over one pipe per key would be
/// too much: values live in memory that the processes share.
class ForkStore : public Store {
public:
  ForkStore() {
    table = static_cast<Table *>(mmap(nullptr, sizeof(Table),
                                      PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~ForkStore() override { munmap(table, sizeof(Table)); }

  Status set(const std::string &key, const std::string &value) override {
    Entry &entry = table->entries[table->used.fetch_add(1)];
    std::snprintf(entry.key, sizeof(entry.key), "%s", key.c_str());
    std::snprintf(entry.value, sizeof(entry.value), "%s", value.c_str());
    entry.ready.store(true, std::memory_order_release);
    return Status::ok();
  }
  Status get(const std::string &key, const Deadline &deadline,
             std::string *value) override {
    for (;;) {
      for (Entry &entry : table->entries)
        if (entry.ready.load(std::memory_order_acquire) && key == entry.key) {
          *value = entry.value;
          return Status::ok();
        }
      if (deadline.expired())
        return error(DDPHOOK_DEADLINE_EXCEEDED, "no '%s'", key.c_str());
      usleep(100);
    }
  }
  Status exists(const std::string &, bool *) override {
    return error(DDPHOOK_UNSUPPORTED, "not needed here");
  }
  Status add(const std::string &, int64_t, int64_t *) override {
    return error(DDPHOOK_UNSUPPORTED, "not needed here");
  }
  Status erase(const std::string &) override { return Status::ok(); }

private:
  struct Entry {
    std::atomic<bool> ready;
    char key[64], value[512];
  };
  struct Table {
    std::atomic<int> used;
    Entry entries[64];
  };
  Table *table;
};

/// What a forked rank tells the test: filled in shared memory.
struct Report {
  std::atomic<bool> ready;
  std::atomic<int64_t> done;
  int code;
  double time;
  char message[256];
};

class ShmProcesses : public testing::Test {
protected:
  void SetUp() override {
    reports = static_cast<Report *>(mmap(nullptr, sizeof(Report) * kMaxRanks,
                                         PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  void TearDown() override {
    for (pid_t pid : pids) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    munmap(reports, sizeof(Report) * kMaxRanks);
  }

  /// Starts ranks that reduce until something fails, then report.
  void start(int size, double timeout, int64_t n, int64_t limit = -1) {
    for (int rank = 0; rank < size; ++rank) {
      pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        loop(rank, size, timeout, n, limit);
        _exit(0);
      }
      pids.push_back(pid);
    }
  }

  void loop(int rank, int size, double timeout, int64_t n, int64_t limit) {
    Report &report = reports[rank];
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", rank, size, timeout, &group);
    std::vector<float> x(static_cast<size_t>(n));
    for (int64_t i = 0; status.isOk() && i != limit; ++i) {
      std::fill(x.begin(), x.end(), 1.0f);
      status = group->allReduce({n, Dtype::F32, Dtype::F16, true}, x.data(),
                                x.data());
      // Success means the right sums, whatever happens to other ranks.
      if (status.isOk() &&
          std::any_of(x.begin(), x.end(), [](float v) { return v != 1; }))
        status = Status(DDPHOOK_DATA_LOSS, "wrong sums");
      report.done.store(i + 1);
    }
    report.time = secondsNow();
    report.code = status.code();
    std::snprintf(report.message, sizeof(report.message), "%s",
                  status.message().c_str());
    report.ready.store(true, std::memory_order_release);
    // Alive, but not in the group: death must not be what others notice.
    pause();
  }

  bool waitFor(const std::function<bool()> &condition, double seconds = 20) {
    for (double end = secondsNow() + seconds; secondsNow() < end; usleep(200))
      if (condition())
        return true;
    return false;
  }
  bool running(int size) {
    return waitFor([&] {
      for (int rank = 0; rank < size; ++rank)
        if (reports[rank].done.load() < 5)
          return false;
      return true;
    });
  }
  bool ready(int rank) {
    return waitFor([&] { return reports[rank].ready.load(); });
  }

  static constexpr int kMaxRanks = 8;
  ForkStore store;
  Report *reports;
  std::vector<pid_t> pids;
};

TEST_F(ShmProcesses, killedRankIsNamed) {
  start(2, 60, 1 << 18);
  ASSERT_TRUE(running(2));
  kill(pids[1], SIGKILL);
  double killed = secondsNow();
  ASSERT_TRUE(ready(0));
  EXPECT_EQ(reports[0].code, DDPHOOK_PEER_LOST) << reports[0].message;
  EXPECT_NE(std::strstr(reports[0].message, "rank 1"), nullptr)
      << reports[0].message;
  RecordProperty("ms_until_noticed",
                 std::to_string((reports[0].time - killed) * 1e3));
  EXPECT_LT(reports[0].time - killed, 5); // a bound for any machine; see above
}

TEST_F(ShmProcesses, killedRankOfFourStopsAll) {
  start(4, 60, 1 << 16);
  ASSERT_TRUE(running(4));
  kill(pids[2], SIGKILL);
  bool named = false;
  for (int rank : {0, 1, 3}) {
    ASSERT_TRUE(ready(rank));
    EXPECT_TRUE(reports[rank].code == DDPHOOK_PEER_LOST ||
                reports[rank].code == DDPHOOK_ABORTED)
        << reports[rank].message;
    EXPECT_NE(std::strstr(reports[rank].message, "rank 2"), nullptr)
        << reports[rank].message;
    named |= reports[rank].code == DDPHOOK_PEER_LOST;
  }
  EXPECT_TRUE(named);
}

TEST_F(ShmProcesses, stoppedRankMeetsTheDeadlineAndIsFenced) {
  constexpr double timeout = 0.5;
  start(2, timeout, 1 << 18);
  ASSERT_TRUE(running(2));
  kill(pids[1], SIGSTOP);
  double stopped = secondsNow();
  ASSERT_TRUE(ready(0));
  EXPECT_EQ(reports[0].code, DDPHOOK_DEADLINE_EXCEEDED) << reports[0].message;
  EXPECT_NE(std::strstr(reports[0].message, "rank 1"), nullptr);
  EXPECT_GE(reports[0].time - stopped, timeout * 0.9);
  RecordProperty("ms_after_deadline",
                 std::to_string((reports[0].time - stopped - timeout) * 1e3));
  kill(pids[1], SIGCONT);
  ASSERT_TRUE(ready(1));
  EXPECT_EQ(reports[1].code, DDPHOOK_ABORTED) << reports[1].message;
  EXPECT_NE(std::strstr(reports[1].message, "rank 0 failed first"), nullptr)
      << reports[1].message;
}

TEST_F(ShmProcesses, leavesNothingBehind) {
  auto memory = [] { // kB of shared memory in the system
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    long kb = -1;
    while (file && fgets(line, sizeof(line), file))
      if (std::sscanf(line, "Shmem: %ld", &kb) == 1)
        break;
    if (file)
      fclose(file);
    return kb;
  };
  long before = memory();
  start(4, 60, 1 << 16);
  ASSERT_TRUE(running(4));
  long during = memory();
  EXPECT_GE(during - before, 3000) << "the measurement sees the segment";
  for (pid_t pid : pids)
    kill(pid, SIGKILL);
  for (pid_t pid : pids)
    waitpid(pid, nullptr, 0);
  pids.clear();
  EXPECT_TRUE(waitFor([&] { return memory() < during - 3000; }));
}

/// Each in a process of its own, since limits cannot be raised again.
Status createUnderLimit(int resource, rlim_t limit) {
  int channel[2];
  EXPECT_EQ(pipe(channel), 0);
  pid_t pid = fork();
  if (pid == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit lower{limit, limit};
    setrlimit(static_cast<__rlimit_resource>(resource), &lower);
    MemoryStore store;
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", 0, 2, 0.5, &group);
    std::string text = std::to_string(status.code()) + " " + status.message();
    ssize_t written = write(channel[1], text.data(), text.size());
    _exit(written < 0);
  }
  close(channel[1]);
  char text[512] = {};
  ssize_t size = read(channel[0], text, sizeof(text) - 1);
  close(channel[0]);
  waitpid(pid, nullptr, 0);
  EXPECT_GT(size, 0);
  return Status(static_cast<ddphook_status_t>(std::atoi(text)), text);
}

TEST(ShmLimits, noMemory) {
  Status status = createUnderLimit(RLIMIT_FSIZE, 1 << 20);
  EXPECT_EQ(status.code(), DDPHOOK_RESOURCE_EXHAUSTED) << status.message();
}

TEST(ShmLimits, noFileDescriptors) {
  Status status = createUnderLimit(RLIMIT_NOFILE, 3);
  EXPECT_EQ(status.code(), DDPHOOK_RESOURCE_EXHAUSTED) << status.message();
}

/// A rank that fails while joining is named on all others at once.
TEST(ShmGroup, failureToJoinReachesAllRanks) {
  MemoryStore store;
  ASSERT_TRUE(store
                  .set("g/rank1", std::to_string(DDPHOOK_RESOURCE_EXHAUSTED) +
                                      " no memory")
                  .isOk());
  std::unique_ptr<ShmGroup> group;
  Status status = ShmGroup::create(store, "g", 0, 2, 30, &group);
  EXPECT_EQ(status.code(), DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.message(), "rank 1: no memory");
}

TEST(ShmGroup, otherMachine) {
  MemoryStore store;
  ASSERT_TRUE(store.set("g/segment", "0 1 3 1 2 another-boot/pid:[1]").isOk());
  std::unique_ptr<ShmGroup> group;
  Status status = ShmGroup::create(store, "g", 1, 2, 1, &group);
  EXPECT_EQ(status.code(), DDPHOOK_UNSUPPORTED) << status.message();
}

} // namespace
