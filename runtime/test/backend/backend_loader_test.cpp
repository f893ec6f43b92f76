// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tables that are not whole. The pointers of a table are taken as what they are
// in memory, so that a function which nobody checks is noticed. Whole libraries
// are loaded by c_api_test.

#include "backend/backend_loader.h"

#include "../../backends/host/host_backend.h"

#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <set>

using namespace ddphook;

namespace {
constexpr size_t kFirst = offsetof(ddphook_backend_t, device_create);
constexpr size_t kCount =
    (sizeof(ddphook_backend_t) - kFirst) / sizeof(void (*)());

/// A table of the host's functions with pointer `number` changed.
std::string checkWith(size_t number, const void *pointer) {
  ddphook_backend_t table = host::hostBackend();
  std::memcpy(reinterpret_cast<char *>(&table) + kFirst +
                  number * sizeof(pointer),
              &pointer, sizeof(pointer));
  const Status status = checkBackend("it", &table);
  return status.isOk() ? "" : status.message();
}

const void *pointerOf(size_t number) {
  const void *pointer;
  std::memcpy(&pointer,
              reinterpret_cast<const char *>(&host::hostBackend()) + kFirst +
                  number * sizeof(pointer),
              sizeof(pointer));
  return pointer;
}
} // namespace

TEST(BackendLoader, NamesWhatATableLacks) {
  static const char something = 0;
  std::set<std::string> messages;
  size_t optional = 0;
  for (size_t number = 0; number < kCount; ++number) {
    EXPECT_EQ(checkWith(number, pointerOf(number)), "");
    const size_t offset = kFirst + number * sizeof(void (*)());
    if (offset == offsetof(ddphook_backend_t, sum_squares) ||
        offset == offsetof(ddphook_backend_t, collective_staged)) {
      EXPECT_EQ(checkWith(number, nullptr), "");
      continue;
    }
    if (pointerOf(number)) {
      const std::string message = checkWith(number, nullptr);
      EXPECT_EQ(message.find("it lacks the function "), 0u) << message;
      EXPECT_TRUE(messages.insert(message).second) << message;
    } else {
      // The host has no kernels; one function of theirs is too few.
      ++optional;
      const std::string message = checkWith(number, &something);
      EXPECT_EQ(message.find("it has kernels, but lacks the function "), 0u)
          << message;
    }
  }
  EXPECT_EQ(optional, 3u);
}

TEST(BackendLoader, WrongTables) {
  EXPECT_EQ(checkBackend("it", nullptr).message(), "it provides no backend");
  ddphook_backend_t table = host::hostBackend();
  table.name = nullptr;
  EXPECT_EQ(checkBackend("it", &table).message(), "it has no name");
  table = host::hostBackend();
  for (size_t size : {sizeof(table) - 1, sizeof(table) + 8}) {
    table.struct_size = size;
    EXPECT_NE(checkBackend("it", &table).message().find("of the backend ABI"),
              std::string::npos);
  }
  table = host::hostBackend();
  --table.collective_size;
  EXPECT_NE(checkBackend("it", &table).message().find("with collectives of"),
            std::string::npos);
  table = host::hostBackend();
  ++table.abi_version;
  EXPECT_EQ(checkBackend("it", &table).code(), DDPHOOK_UNSUPPORTED);
}
