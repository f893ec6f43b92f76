// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A job that fails while ranks join a process group, through the host backend's
// table: whoever waits for a peer then gives up, whatever it waits for.

#include "backend/backend_store.h"
#include "backend/backend_test_util.h"
#include "host_backend.h"
#include "store/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;
using ddphook::test::groupOnOneMachine;
using ddphook::test::plainSum;

namespace {

/// So long that no test waits for it.
constexpr double timeout = 120;

class Joining : public testing::TestWithParam<const char *> {
protected:
  static const ddphook_backend_t &backend() { return hostBackend(); }

  /// One rank's device.
  class Device {
  public:
    explicit Device(double seconds = timeout) {
      ddphook_device_config_t config = {};
      config.struct_size = sizeof(config);
      config.transport = GetParam();
      config.options = "";
      config.local_address = "127.0.0.1";
      config.timeout_s = seconds;
      config.threads = 1;
      EXPECT_EQ(backend().device_create(&config, &device, &error), DDPHOOK_OK)
          << error.message;
    }
    ~Device() {
      if (communicator)
        backend().communicator_destroy(device, communicator);
      backend().device_destroy(device);
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    /// Joins the other one of two ranks.
    ddphook_status_t join(Store &store, int rank) {
      const ddphook_backend_store_t table = toBackendStore(store);
      const auto config = groupOnOneMachine(2, rank, table, "group");
      return backend().communicator_create(device, &config, &communicator,
                                           &error);
    }

    ddphook_status_t reduce() {
      float value = 1;
      const ddphook_collective_t operation = plainSum(1, DDPHOOK_F32);
      return backend().collective(device, communicator, &operation, &value,
                                  &value, /*ticket=*/nullptr, &error);
    }

    void abort() { backend().abort(device, DDPHOOK_ABORTED, "rank 7 failed"); }

    std::string message() const { return error.message; }

  private:
    ddphook_device_t *device = nullptr;
    ddphook_communicator_t *communicator = nullptr;
    ddphook_backend_error_t error = {};
  };

  /// What rank 0 sets before it waits for its peer.
  static std::string ownKey() {
    return std::string(GetParam()) == "shm" ? "group/rank0" : "group/address/0";
  }
};

/// The store of a job that failed says so. The one here does not: a rank may
/// have got all that it needs from there.
TEST_P(Joining, AnAbortEndsTheWaitForAPeer) {
  MemoryStore store;
  // The peer is there, in shared memory, and comes no further.
  ASSERT_TRUE(
      store.set("group/rank1", "0 " + std::to_string(::getpid())).isOk());
  Device device;
  std::thread other([&] {
    std::string value;
    EXPECT_TRUE(store.get(ownKey(), Deadline::after(timeout), &value).isOk());
    device.abort();
  });
  EXPECT_EQ(device.join(store, 0), DDPHOOK_ABORTED) << device.message();
  other.join();
}

TEST_P(Joining, NobodyJoinsAfterAnAbort) {
  MemoryStore store;
  Device first, second;
  first.abort();
  std::thread other([&] {
    EXPECT_NE(second.join(store, 1) == DDPHOOK_OK ? second.reduce() : 1,
              DDPHOOK_OK);
  });
  EXPECT_EQ(first.join(store, 0), DDPHOOK_ABORTED) << first.message();
  // As the job tells the other rank.
  store.fail(error(DDPHOOK_ABORTED, "rank 7 failed"));
  second.abort();
  other.join();
}

/// Both ranks hear of the failure, before they join, meanwhile or afterwards,
/// and in either order.
TEST_P(Joining, AbortedAtAnyMoment) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    MemoryStore store;
    Device devices[2];
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        ++started;
        ddphook_status_t status = devices[rank].join(store, rank);
        while (status == DDPHOOK_OK)
          status = devices[rank].reduce();
        EXPECT_NE(status, DDPHOOK_DEADLINE_EXCEEDED) << devices[rank].message();
      });
    while (started < 2)
      std::this_thread::yield();
    const int first = static_cast<int>(random() % 2);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    store.fail(error(DDPHOOK_ABORTED, "rank 7 failed"));
    for (int rank : {first, 1 - first}) {
      devices[rank].abort();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
    for (std::thread &thread : threads)
      thread.join();
  }
}

TEST_P(Joining, WhoDoesNotComeIsNamed) {
  MemoryStore store;
  Device device(/*seconds=*/0.2);
  EXPECT_EQ(device.join(store, 1), DDPHOOK_DEADLINE_EXCEEDED);
  EXPECT_NE(device.message().find("rank 0 did not arrive within 0.2 s"),
            std::string::npos)
      << device.message();
}

/// A store whose server is stopped.
class SilentStore : public MemoryStore {
public:
  Status get(const std::string &key, const Deadline &deadline,
             std::string *value) override {
    return deadline.expired() ? error(DDPHOOK_DEADLINE_EXCEEDED, "no answer")
                              : MemoryStore::get(key, deadline, value);
  }
};

TEST_P(Joining, NobodyIsNamedWhenTheStoreIsSilent) {
  SilentStore store;
  Device device(/*seconds=*/0.2);
  EXPECT_EQ(device.join(store, 1), DDPHOOK_DEADLINE_EXCEEDED);
  EXPECT_NE(device.message().find("no answer"), std::string::npos)
      << device.message();
}

INSTANTIATE_TEST_SUITE_P(Transports, Joining, testing::Values("shm", "gloo"),
                         [](const testing::TestParamInfo<const char *> &info) {
                           return std::string(info.param);
                         });

} // namespace
