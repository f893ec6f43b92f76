// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lists of processors as texts, shares of ranks, and quotas from files that
// look like a kernel's.

#include "job/processors.h"

#include "gtest/gtest.h"

#include <map>
#include <sched.h>
#include <thread>

using namespace ddphook;

namespace {

ProcessorSet set(const std::string &text) {
  std::optional<ProcessorSet> parsed = ProcessorSet::parse(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.value_or(ProcessorSet());
}

TEST(Processors, texts) {
  for (const char *text : {"", "0", "7", "0-1", "0-3,8", "1,3,5-127,65535"})
    EXPECT_EQ(set(text).toText(), text);
  EXPECT_EQ(set("2-4,9").processors, (std::vector<int>{2, 3, 4, 9}));
  EXPECT_EQ(set("0,1,2").toText(), "0-2");
  for (const char *text : {"x", "-1", "3-", "3-2", "2,1", "1,1", "0-65536",
                           "99999999999", "1;2", ",", "1,,2", "1 ", "0-3x"})
    EXPECT_FALSE(ProcessorSet::parse(text).has_value()) << text;
}

TEST(Processors, ownAreTheCallingThreads) {
  std::thread([] {
    const ProcessorSet all = ownProcessors();
    ASSERT_FALSE(all.processors.empty());
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(all.processors.back()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(ownProcessors().processors,
              std::vector<int>{all.processors.back()});
  }).join();
}

TEST(Processors, shares) {
  auto share = [](const std::vector<std::string> &texts, size_t mine,
                  std::optional<double> quota = std::nullopt) {
    std::vector<ProcessorSet> sets;
    for (const std::string &text : texts)
      sets.push_back(set(text));
    return threadShare(sets, mine, quota);
  };
  EXPECT_EQ(share({"0-7"}, 0), 8);
  EXPECT_EQ(share({"0-7", "0-7"}, 1), 4);
  EXPECT_EQ(share({"0-7", "0-7", "0-7"}, 0), 2);
  EXPECT_EQ(share({"0-2", "0-2", "0-2"}, 2), 1);
  // Fewer processors than ranks.
  EXPECT_EQ(share({"0-1", "0-1", "0-1"}, 0), 1);
  // Bound by the launcher: nothing is shared.
  EXPECT_EQ(share({"0-3", "4-7"}, 0), 4);
  EXPECT_EQ(share({"0", "1"}, 1), 1);
  // One is bound to a part of what the other may use.
  EXPECT_EQ(share({"0-7", "0-3"}, 0), 6);
  EXPECT_EQ(share({"0-7", "0-3"}, 1), 2);
  // The system did not tell.
  EXPECT_EQ(share({""}, 0), 1);
  // Quotas hold for all ranks together.
  EXPECT_EQ(share({"0-63"}, 0, 2.5), 2);
  EXPECT_EQ(share({"0-63", "0-63"}, 0, 8.0), 4);
  EXPECT_EQ(share({"0-1"}, 0, 0.5), 1);
  EXPECT_EQ(share({"0-1"}, 0, 100.0), 2);
}

TEST(Processors, quotas) {
  std::map<std::string, std::string> files;
  const FileReader read =
      [&](const std::string &path) -> std::optional<std::string> {
    auto found = files.find(path);
    if (found == files.end())
      return std::nullopt;
    return found->second;
  };
  EXPECT_FALSE(processorQuota(read).has_value());
  files["/proc/self/cgroup"] = "12:cpu:/old\n0::/pods/one\n";
  EXPECT_FALSE(processorQuota(read).has_value());
  files["/sys/fs/cgroup/pods/one/cpu.max"] = "max 100000\n";
  EXPECT_FALSE(processorQuota(read).has_value());
  files["/sys/fs/cgroup/pods/cpu.max"] = "250000 100000\n";
  EXPECT_EQ(processorQuota(read), 2.5);
  files["/sys/fs/cgroup/pods/one/cpu.max"] = "400000 100000\n";
  EXPECT_EQ(processorQuota(read), 2.5);
  files["/sys/fs/cgroup/pods/one/cpu.max"] = "50000 100000\n";
  EXPECT_EQ(processorQuota(read), 0.5);
  // A container sees its own group as the root.
  files.clear();
  files["/proc/self/cgroup"] = "0::/\n";
  files["/sys/fs/cgroup/cpu.max"] = "300000 100000\n";
  EXPECT_EQ(processorQuota(read), 3.0);
  for (const char *text : {"", "max", "0 100000", "1 0", "-1 5", "x y"}) {
    files["/sys/fs/cgroup/cpu.max"] = text;
    EXPECT_FALSE(processorQuota(read).has_value()) << text;
  }
}

} // namespace
