// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conformance suite's way to a backend: tests are given its name, load its
// table as the runtime does, and run ranks as threads. A backend that needs a
// GPU is skipped where there is none, unless DDPHOOK_REQUIRE_GPU is 1.

#pragma once

#include "base/collective.h"
#include "base/dtype.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ddphook::test {

/// A rank of a group, on a thread of its own.
struct Rank {
  const ddphook_backend_t *backend = nullptr;
  ddphook_device_t *device = nullptr;
  ddphook_communicator_t *communicator = nullptr;
  ddphook_backend_error_t error = {};
  int index = 0;

  /// "OK", or the status' name, ": " and the message.
  std::string show(ddphook_status_t status) const;
};

/// What a group needs to be made.
struct GroupOptions {
  const char *transport = "auto";
  const char *options = "";
  double timeout = 60;
  uint64_t maxWireBytes = uint64_t(64) << 20;
  uint64_t maxEncodedBytes = 0;
  uint64_t maxGatheredBytes = 0;
  /// Of all ranks; null: none.
  const ddphook_allocator_t *allocator = nullptr;
  /// Takes what a rank was told that could not join; else that is a failure.
  std::function<void(int, const std::string &)> onRefusal = {};
};

/// Returns the configuration of the group of the ranks 0 to `size` - 1, at most
/// 8, for one of them; all are on one machine, and meet in `store` under `key`.
inline ddphook_communicator_config_t
groupOnOneMachine(int size, int rank, const ddphook_backend_store_t &store,
                  const char *key) {
  static const int32_t ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
  ddphook_communicator_config_t config = {};
  config.struct_size = sizeof(config);
  config.size = size;
  config.rank = rank;
  config.world_ranks = ranks;
  config.one_machine = 1;
  config.store = &store;
  config.key = key;
  return config;
}

/// Memory of a rank's device.
class DeviceArray {
public:
  DeviceArray(Rank &rank, uint64_t bytes, uint64_t alignment = 256);
  DeviceArray(Rank &rank, const std::vector<char> &values);
  ~DeviceArray();
  DeviceArray(const DeviceArray &) = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;

  char *get() const { return static_cast<char *>(memory); }
  void write(const std::vector<char> &values);
  std::vector<char> read() const;

private:
  Rank &rank;
  const uint64_t bytes;
  void *memory = nullptr;
};

/// Of the backend whose name is the test's parameter.
class BackendTest : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override;
  /// Finds the table.
  virtual Status load();

  /// Opens a device as rank `index`: of the rank's own backend if it has one.
  std::string open(Rank &rank, const GroupOptions &options);
  /// Runs `body` as the only rank.
  void runAlone(const std::function<void(Rank &)> &body,
                const GroupOptions &options = {});
  /// Runs `body` as every rank of a group of `size`. False where the machine
  /// has too few GPUs.
  bool runGroup(int size, const std::function<void(Rank &)> &body,
                const GroupOptions &options = {});

  /// Options with which quotients have the host's bits.
  const char *exactDivision() const {
    return isHost() ? "" : "exact_division=1";
  }
  bool isHost() const { return std::string(GetParam()) == "host"; }
  /// Real GPUs with NCCL, whose order of additions is its own.
  bool isReal() const { return std::string(GetParam()) == "cuda"; }

  const ddphook_backend_t *backend = nullptr;
};

/// Random values of a type, down to the halves' subnormals; now and then
/// infinite or NaN when `withSpecial`.
std::vector<char> randomValues(Dtype dtype, int64_t count, unsigned seed,
                               bool withSpecial = false);

std::vector<double> toDoubles(const std::vector<char> &bytes, Dtype type);

/// Where two arrays of a type differ, as a text; empty when nowhere. Any NaN is
/// equal to any NaN.
std::string difference(const std::vector<char> &got,
                       const std::vector<char> &expected, Dtype dtype);

/// The same of sums over ranks in the type `wire` whose order of additions is
/// NCCL's own: says where they are further apart than roundings of up to four
/// inputs below 2^14 allow.
std::string roughDifference(const std::vector<char> &got,
                            const std::vector<char> &expected, Dtype dtype,
                            std::optional<Dtype> wire);

/// An all-reduce that only adds, in the type of the elements.
inline ddphook_collective_t plainSum(int64_t count, int32_t dtype) {
  return CollectiveOperation(count, static_cast<Dtype>(dtype));
}

} // namespace ddphook::test
