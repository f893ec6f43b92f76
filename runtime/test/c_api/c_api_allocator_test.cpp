// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddphook_options_t.allocator, from a program's side. The lender is a second
// context on the same emulated device; cuda_allocator_test.cpp has the contract
// in detail.

#include "module/state_test_util.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

using namespace ddphook;
using namespace ddphook::test;

namespace {

std::string createContext(const char *backend,
                          const ddphook_allocator_t *allocator,
                          ddphook_context_t **context) {
  ddphook_options_t place = jobOptions(0, 1, 0, "auto", 10);
  place.backend = backend;
  place.allocator = allocator;
  return show(ddphook_context_create(&place, context));
}

/// Lends memory of another context's, and counts it.
class Lender : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(createContext("cuda_emulated", nullptr, &lender), "OK");
    table.struct_size = sizeof(table);
    table.user = this;
    table.alloc = [](void *self, size_t bytes, int32_t, void *) {
      return static_cast<Lender *>(self)->lend(bytes);
    };
    table.free = [](void *self, void *memory, size_t bytes, int32_t, void *) {
      Lender &lender = *static_cast<Lender *>(self);
      ++lender.calls;
      EXPECT_EQ(lender.out[memory], bytes);
      lender.out.erase(memory);
      ddphook_memory_free(lender.lender, memory, bytes);
    };
  }
  void TearDown() override { ddphook_context_destroy(lender); }

  void *lend(size_t bytes) {
    ++calls;
    if (++allocations == failAt)
      return nullptr;
    void *memory = nullptr;
    EXPECT_EQ(show(ddphook_memory_alloc(lender, bytes, &memory)), "OK");
    std::vector<char> poison(bytes, 0x7f);
    EXPECT_EQ(show(ddphook_memory_write(lender, memory, poison.data(), bytes)),
              "OK");
    out[memory] = bytes;
    return memory;
  }
  size_t bytesOut() const {
    size_t sum = 0;
    for (const auto &[memory, bytes] : out)
      sum += bytes;
    return sum;
  }

  ddphook_context_t *lender = nullptr;
  ddphook_allocator_t table = {};
  std::map<void *, size_t> out;
  int calls = 0;
  int allocations = 0;
  /// The number of the allocation, from 1, that gives nothing; 0: none.
  int failAt = 0;
};

void make(TestModule &module) {
  setStates(module, powersgdStates());
  const std::string memory = R"("memory":"host")";
  std::string plan = module.plan;
  module.setPlan(
      plan.replace(plan.find(memory), memory.size(), R"("memory":"device")"));
}

} // namespace

TEST_F(Lender, StatesAndArenasAreTheAllocators) {
  ddphook_context_t *context = nullptr;
  ASSERT_EQ(createContext("cuda_emulated", &table, &context), "OK");
  const size_t before = bytesOut();
  EXPECT_GT(before, 0u) << "the device's own memory";
  TestModule module;
  make(module);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  // An error feedback of 620 elements.
  EXPECT_GE(bytesOut(), before + 620 * sizeof(float));
  ASSERT_EQ(show(ddphook_rt_enter(module.handle, 0)), "OK");
  const void *error = ddphook_rt_state(module.handle, 2);
  EXPECT_EQ(show(ddphook_rt_leave(module.handle)), "OK");
  bool isLent = false;
  for (const auto &[memory, bytes] : out)
    isLent |= error >= memory && error < static_cast<char *>(memory) + bytes;
  EXPECT_TRUE(isLent);
  // Poison is not what a state begins with.
  std::vector<float> values(620, -1);
  EXPECT_EQ(show(ddphook_memory_read(context, values.data(), error,
                                     values.size() * sizeof(float))),
            "OK");
  EXPECT_EQ(values, std::vector<float>(620, 0));
  void *memory = nullptr;
  const size_t loaded = bytesOut();
  EXPECT_EQ(show(ddphook_memory_alloc(context, 1000, &memory)), "OK");
  EXPECT_GE(bytesOut(), loaded + 1000);
  ddphook_memory_free(context, memory, 1000);
  EXPECT_EQ(bytesOut(), loaded);
  EXPECT_EQ(show(ddphook_module_unload(&module.compiled)), "OK");
  EXPECT_EQ(bytesOut(), before);
  ASSERT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
  ddphook_context_destroy(context);
  EXPECT_EQ(bytesOut(), 0u);
  EXPECT_EQ(calls, 2 * allocations);
}

TEST_F(Lender, WhoseMemoryEndsIsNoEndOfTheJob) {
  const std::string expected =
      "RESOURCE_EXHAUSTED: expected the caller's allocator to return ";
  TestModule module;
  make(module);
  bool hasLoaded = false;
  int failedLoads = 0;
  for (failAt = 1; !hasLoaded && failAt < 50; ++failAt) {
    allocations = 0;
    ddphook_context_t *context = nullptr;
    std::string answer = createContext("cuda_emulated", &table, &context);
    if (answer != "OK") {
      EXPECT_EQ(answer.find(expected), 0u) << answer;
      EXPECT_EQ(context, nullptr);
      EXPECT_EQ(bytesOut(), 0u);
      continue;
    }
    answer = show(ddphook_module_load(context, &module.compiled));
    hasLoaded = answer == "OK";
    if (!hasLoaded) {
      ++failedLoads;
      EXPECT_EQ(answer.find(expected), 0u) << answer;
      EXPECT_EQ(show(ddphook_module_load(context, &module.compiled)), "OK");
    }
    ddphook_context_destroy(context);
    EXPECT_EQ(bytesOut(), 0u);
  }
  EXPECT_TRUE(hasLoaded);
  EXPECT_GE(failedLoads, 1);
}

TEST_F(Lender, IsRefusedWhereMemoryIsTheHosts) {
  for (const char *backend : {"host", "guarded"}) {
    ddphook_context_t *context = nullptr;
    EXPECT_EQ(createContext(backend, &table, &context),
              "UNSUPPORTED: the host backend cannot use options.allocator, "
              "which is for memory of a device; leave it null");
    EXPECT_EQ(context, nullptr);
  }
  EXPECT_EQ(calls, 0);
}
