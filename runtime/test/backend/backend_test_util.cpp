// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loading, devices, groups of threads, and comparing.

#include "backend/backend_test_util.h"

#include "../../backends/host/kernels/kernels.h"
#include "backend/backend_loader.h"
#include "backend/backend_store.h"
#include "base/floating_point.h"
#include "store/store.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

/// Ranks as threads need a device each; read when the first one is asked for.
static const int emulatedDevices = ::setenv("EMULATED_CUDA_DEVICES", "4", 0);

std::string Rank::show(ddphook_status_t status) const {
  if (status == DDPHOOK_OK)
    return "OK";
  return std::string(ddphook_status_name(status)) + ": " + error.message;
}

DeviceArray::DeviceArray(Rank &rank, uint64_t bytes, uint64_t alignment)
    : rank(rank), bytes(bytes) {
  EXPECT_EQ(rank.show(rank.backend->memory_alloc(rank.device, bytes, alignment,
                                                 &memory, &rank.error)),
            "OK");
}

DeviceArray::DeviceArray(Rank &rank, const std::vector<char> &values)
    : DeviceArray(rank, values.size()) {
  write(values);
}

DeviceArray::~DeviceArray() {
  rank.backend->memory_free(rank.device, memory, bytes);
}

void DeviceArray::write(const std::vector<char> &values) {
  EXPECT_EQ(
      rank.show(rank.backend->memory_write(rank.device, memory, values.data(),
                                           values.size(), &rank.error)),
      "OK");
}

std::vector<char> DeviceArray::read() const {
  std::vector<char> values(bytes, '\x5a');
  EXPECT_EQ(rank.show(rank.backend->memory_read(rank.device, values.data(),
                                                memory, bytes, &rank.error)),
            "OK");
  return values;
}

static bool isGpuRequired() {
  const char *required = std::getenv("DDPHOOK_REQUIRE_GPU");
  return required && std::strcmp(required, "1") == 0;
}

Status BackendTest::load() { return loadBackend(GetParam(), &backend); }

void BackendTest::SetUp() {
  ASSERT_EQ(emulatedDevices, 0);
  Status loaded = load();
  std::string reason = loaded.message();
  if (loaded.isOk() && isReal()) {
    Rank rank;
    std::string opened = open(rank, {});
    reason = opened == "OK" ? "" : opened;
    if (rank.device)
      backend->device_destroy(rank.device);
  }
  if (reason.empty())
    return;
  ASSERT_TRUE(isReal() && !isGpuRequired()) << reason;
  // ctest knows the words.
  GTEST_SKIP() << "no GPU to run on: " << reason;
}

std::string BackendTest::open(Rank &rank, const GroupOptions &options) {
  if (!rank.backend)
    rank.backend = backend;
  ddphook_device_config_t config = {};
  config.struct_size = sizeof(config);
  config.local_rank = rank.index;
  config.transport = options.transport;
  config.local_address = "127.0.0.1";
  config.timeout_s = options.timeout;
  config.threads = 3;
  config.options = options.options;
  config.allocator = options.allocator;
  return rank.show(
      rank.backend->device_create(&config, &rank.device, &rank.error));
}

void BackendTest::runAlone(const std::function<void(Rank &)> &body,
                           const GroupOptions &options) {
  Rank rank;
  ASSERT_EQ(open(rank, options), "OK");
  body(rank);
  backend->device_destroy(rank.device);
}

bool BackendTest::runGroup(int size, const std::function<void(Rank &)> &body,
                           const GroupOptions &options) {
  MemoryStore store;
  ddphook_backend_store_t table = toBackendStore(store);
  std::vector<std::thread> threads;
  std::atomic<bool> hasAll{true};
  for (int index = 0; index < size; ++index)
    threads.emplace_back([&, index] {
      DefaultFloatingPoint environment;
      Rank rank;
      rank.index = index;
      std::string opened = open(rank, options);
      if (isReal() && opened.find("INVALID_ARGUMENT: expected a GPU") == 0) {
        hasAll = false;
        store.fail(Status(DDPHOOK_ABORTED, "too few GPUs"));
        return;
      }
      ASSERT_EQ(opened, "OK");
      auto config = groupOnOneMachine(size, index, table, "group");
      config.max_wire_bytes = options.maxWireBytes;
      config.max_encoded_bytes = options.maxEncodedBytes;
      config.max_gathered_bytes = options.maxGatheredBytes;
      std::string joined = rank.show(backend->communicator_create(
          rank.device, &config, &rank.communicator, &rank.error));
      if (isReal() && joined.find("a GPU of its own") != std::string::npos)
        hasAll = false;
      if (options.onRefusal && joined != "OK") {
        options.onRefusal(index, joined);
      } else if (hasAll) {
        EXPECT_EQ(joined, "OK");
        if (joined == "OK")
          body(rank);
      }
      if (rank.communicator)
        backend->communicator_destroy(rank.device, rank.communicator);
      if (rank.device)
        backend->device_destroy(rank.device);
    });
  for (std::thread &thread : threads)
    thread.join();
  return hasAll;
}

std::vector<char> test::randomValues(Dtype dtype, int64_t count, unsigned seed,
                                     bool withSpecial) {
  std::mt19937_64 random(seed);
  std::vector<double> wide(static_cast<size_t>(count));
  for (double &value : wide) {
    value = std::ldexp(static_cast<double>(static_cast<int64_t>(random())) *
                           0x1p-63,
                       static_cast<int>(random() % 34) - 20);
    if (withSpecial && random() % 16 == 0)
      value = random() % 2 == 0 ? NAN : INFINITY;
  }
  std::vector<char> bytes(static_cast<size_t>(count * dtypeSize(dtype)));
  host::castArray(wide.data(), Dtype::F64, bytes.data(), dtype, count);
  return bytes;
}

std::vector<double> test::toDoubles(const std::vector<char> &bytes,
                                    Dtype type) {
  int64_t count = static_cast<int64_t>(bytes.size()) / dtypeSize(type);
  std::vector<double> values(static_cast<size_t>(count));
  host::castArray(bytes.data(), type, values.data(), Dtype::F64, count);
  return values;
}

std::string test::difference(const std::vector<char> &got,
                             const std::vector<char> &expected, Dtype dtype) {
  if (got.size() != expected.size())
    return "the sizes differ";
  std::vector<double> left = toDoubles(got, dtype);
  std::vector<double> right = toDoubles(expected, dtype);
  for (size_t i = 0; i < left.size(); ++i)
    if (std::memcmp(&left[i], &right[i], sizeof(double)) != 0 &&
        !(std::isnan(left[i]) && std::isnan(right[i])))
      return "element " + std::to_string(i) + " of " +
             std::to_string(left.size()) + " is " + std::to_string(left[i]) +
             ", expected " + std::to_string(right[i]);
  return "";
}

std::string test::roughDifference(const std::vector<char> &got,
                                  const std::vector<char> &expected,
                                  Dtype dtype, std::optional<Dtype> wire) {
  if (got.size() != expected.size())
    return "the sizes differ";
  double limit = 0;
  for (Dtype type : {dtype, wire.value_or(dtype)}) {
    const double epsilon = type == Dtype::BF16  ? 0x1p-7
                           : type == Dtype::F16 ? 0x1p-10
                           : type == Dtype::F32 ? 0x1p-23
                                                : 0x1p-52;
    limit = std::max(limit, 0x1p16 * epsilon);
  }
  std::vector<double> left = toDoubles(got, dtype);
  std::vector<double> right = toDoubles(expected, dtype);
  for (size_t i = 0; i < left.size(); ++i)
    if (left[i] != right[i] && !(std::fabs(left[i] - right[i]) <= limit) &&
        !(std::isnan(left[i]) && std::isnan(right[i])))
      return "element " + std::to_string(i) + " of " +
             std::to_string(left.size()) + " is " + std::to_string(left[i]) +
             ", expected " + std::to_string(right[i]);
  return "";
}
