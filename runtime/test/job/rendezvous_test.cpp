// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Jobs whose ranks share nothing but a store, here files in a directory: they
// meet, several times in one process as well, and hear of what goes wrong.

#include "job/job_test_ranks.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// A key is a file, which appears whole.
class FileStore {
public:
  explicit FileStore(std::string directory) : directory(std::move(directory)) {
    table.struct_size = sizeof(table);
    table.user = this;
    table.set = [](void *user, const char *key, const char *value) {
      return static_cast<FileStore *>(user)->set(key, value);
    };
    table.get = [](void *user, const char *key, double timeout, char *value,
                   size_t capacity) {
      return static_cast<FileStore *>(user)->get(key, timeout, value, capacity);
    };
  }

  ddphook_store_t table = {};
  /// What get() gives for "ddphook/address" in place of what is there.
  std::string forged;
  /// What set() returns.
  ddphook_status_t failure = DDPHOOK_OK;

private:
  std::string fileOf(const std::string &key) const {
    std::string name = key;
    for (char &c : name)
      c = c == '/' ? '.' : c;
    return directory + "/" + name;
  }

  ddphook_status_t set(const std::string &key, const std::string &value) const {
    if (failure != DDPHOOK_OK)
      return failure;
    const std::string file = fileOf(key);
    const std::string draft = file + "~" + std::to_string(::getpid());
    std::ofstream(draft) << value;
    std::filesystem::rename(draft, file);
    return DDPHOOK_OK;
  }

  ddphook_status_t get(const std::string &key, double timeout, char *value,
                       size_t capacity) const {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(timeout);
    while (!std::filesystem::exists(fileOf(key))) {
      if (Clock::now() >= end)
        return DDPHOOK_DEADLINE_EXCEEDED;
      sleepMs(2);
    }
    std::ostringstream text;
    text << std::ifstream(fileOf(key)).rdbuf();
    const std::string found =
        key == "ddphook/address" && !forged.empty() ? forged : text.str();
    if (found.size() >= capacity)
      return DDPHOOK_INVALID_ARGUMENT;
    found.copy(value, found.size());
    value[found.size()] = '\0';
    return DDPHOOK_OK;
  }

  const std::string directory;
};

class RendezvousTest : public testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/ddphook-rendezvous.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory); }

  /// Creates the directory of a job's store, and returns its path.
  std::string part(const std::string &name) const {
    std::filesystem::create_directories(directory + "/" + name);
    return directory + "/" + name;
  }

  static ddphook_options_t options(int rank, int ranks, const FileStore &store,
                                   double timeout = farDeadline) {
    ddphook_options_t result =
        jobOptions(rank, ranks, /*port=*/0, "auto", timeout);
    result.master_addr = nullptr;
    result.store = &store.table;
    return result;
  }

  std::string directory;
};

/// One step of `module` in a context of `options`.
std::string stepOnce(const ddphook_options_t &options, TestModule &module) {
  return withModule(options, module, [&](ddphook_context_t *) {
    std::vector<float> data(5, static_cast<float>(options.rank + 1));
    std::string result = step(module, data);
    const auto ranks = static_cast<float>(options.world_size);
    const std::vector<float> sum(5, ranks * (ranks + 1) / 2);
    return data == sum ? result : result + " with a wrong sum";
  });
}

} // namespace

TEST_F(RendezvousTest, needsNoPort) {
  for (int ranks : {1, 2, 3, 4}) {
    const std::string name = part("world" + std::to_string(ranks));
    expectAll(runRanks(ranks,
                       [&](int rank) {
                         FileStore store(name);
                         TestModule module(Collectives{{5}});
                         return stepOnce(options(rank, ranks, store), module);
                       }),
              "OK");
  }
}

/// Each job has a free port and a secret of its own, so that ranks of one do
/// not join the other.
TEST_F(RendezvousTest, severalContextsOfAProcess) {
  const std::string first = part("first"), second = part("second");
  auto results = runRanks(3, [&](int rank) {
    FileStore storeOfFirst(first), storeOfSecond(second);
    TestModule outer(Collectives{{5}}), inner(Collectives{{5}});
    return withModule(
        options(rank, 3, storeOfFirst), outer, [&](ddphook_context_t *) {
          std::string result = stepOnce(options(rank, 3, storeOfSecond), inner);
          std::vector<float> data(5, 1);
          return result + ", " + step(outer, data);
        });
  });
  expectAll(results, "OK, OK");
}

TEST_F(RendezvousTest, rankNeverComes) {
  const std::string name = part("job");
  auto results = runRanks(3, [&](int rank) {
    FileStore store(name);
    ddphook_context_t *context = nullptr;
    const ddphook_options_t given = options(rank, 3, store, /*timeout=*/1);
    return rank == 2 ? "absent"
                     : show(ddphook_context_create(&given, &context));
  });
  expectContains(results[0].text,
                 "DEADLINE_EXCEEDED: rank 2 did not set 'ddphook/network/2' in "
                 "the host program's store within 1 s");
  expectContains(results[1].text, "DEADLINE_EXCEEDED: rank 0 did not set "
                                  "'ddphook/address'");
}

TEST_F(RendezvousTest, storeFails) {
  const std::string name = part("job");
  auto results = runRanks(2, [&](int rank) {
    FileStore store(name);
    store.failure = rank == 0 ? DDPHOOK_IO_ERROR : DDPHOOK_OK;
    ddphook_context_t *context = nullptr;
    const ddphook_options_t given = options(rank, 2, store, /*timeout=*/2);
    return show(ddphook_context_create(&given, &context));
  });
  expectContains(results[0].text, "IO_ERROR: the host program's store failed "
                                  "to set 'ddphook/address' (IO_ERROR)");
  expectContains(results[1].text, "DEADLINE_EXCEEDED");
}

TEST_F(RendezvousTest, foreignAddress) {
  const std::string name = part("job");
  // What a rank finds, and what comes of it.
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "DEADLINE_EXCEEDED"}, // rank 0, to which nobody comes
      {"nonsense", "DATA_LOSS: expected rank 0's address"},
      {"secret,0,network,10.0.0.1", "DATA_LOSS: expected rank 0's address"},
      // In rank 0's network the address is another machine's, here it is
      // this machine's own.
      {"secret,1234,network,127.0.0.1",
       "BAD_ENVIRONMENT: rank 3 cannot reach rank 0: all of its addresses, "
       "127.0.0.1, are this machine's"},
      {"secret,1234,network,no.such.host.invalid,::1,also.not.there.invalid",
       "DEADLINE_EXCEEDED: rank 4 could not join rank 0 at port 1234 of "
       "no.such.host.invalid, also.not.there.invalid within 2 s: cannot "
       "resolve 'no.such.host.invalid'"},
  };
  const int ranks = static_cast<int>(cases.size());
  auto results = runRanks(ranks, [&](int rank) {
    FileStore store(name);
    store.forged = cases[static_cast<size_t>(rank)].first;
    ddphook_context_t *context = nullptr;
    const ddphook_options_t given = options(rank, ranks, store, /*timeout=*/2);
    return show(ddphook_context_create(&given, &context));
  });
  for (size_t rank = 0; rank < cases.size(); ++rank)
    expectContains(results[rank].text, cases[rank].second);
}

TEST_F(RendezvousTest, options) {
  FileStore store(part("job"));
  auto create = [](const ddphook_options_t &options) {
    ddphook_context_t *context = nullptr;
    std::string result = show(ddphook_context_create(&options, &context));
    ddphook_context_destroy(context);
    return result;
  };
  ddphook_options_t given = options(0, 1, store);
  given.world_size = 0;
  expectContains(create(given), "INVALID_ARGUMENT: expected options.world_size "
                                "to be set together with options.store");
  ddphook_store_t half = store.table;
  half.get = nullptr;
  given = options(0, 1, store);
  given.store = &half;
  expectContains(create(given), "expected options.store to have both "
                                "functions, but get is null");
  half.struct_size = 8;
  expectContains(create(given), "expected options.store->struct_size");
  // A caller from before there were stores has a shorter struct.
  given.struct_size = offsetof(ddphook_options_t, store);
  EXPECT_EQ(create(given), "OK");
}
