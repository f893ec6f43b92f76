// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a module's arenas are allocated from, through the backend's table.

#include "host_backend.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

using namespace ddphook::host;

TEST(HostMemory, IsAlignedAndZero) {
  for (uint64_t bytes :
       {0ull, 1ull, 4095ull, 100000ull, 4ull << 20, (9ull << 20) + 5})
    for (uint64_t alignment : {1ull, 64ull, 4096ull, 2ull << 20}) {
      void *memory = nullptr;
      ddphook_backend_error_t error = {};
      ASSERT_EQ(hostBackend().memory_alloc(nullptr, bytes, alignment, &memory,
                                           &error),
                DDPHOOK_OK)
          << error.message;
      ASSERT_NE(memory, nullptr);
      auto address = reinterpret_cast<uintptr_t>(memory);
      EXPECT_EQ(address % alignment, 0u);
      EXPECT_TRUE(bytes < 4u << 20 || address % (2u << 20) == 0);
      auto *data = static_cast<unsigned char *>(memory);
      for (uint64_t i = 0; i < bytes; ++i)
        ASSERT_EQ(data[i], 0);
      if (bytes > 0)
        std::memset(memory, 0xff, bytes);
      hostBackend().memory_free(nullptr, memory, bytes);
    }
}

TEST(HostMemory, RefusesWhatTheMachineLacks) {
  void *memory = nullptr;
  ddphook_backend_error_t error = {};
  EXPECT_EQ(hostBackend().memory_alloc(nullptr, uint64_t(1) << 47, 64, &memory,
                                       &error),
            DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_NE(std::string(error.message).find("140737488355328"),
            std::string::npos);
}
