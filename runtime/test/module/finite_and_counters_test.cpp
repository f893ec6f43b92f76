// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddphook_rt_is_finite and ddphook_rt_count_compression, as compiled code calls
// them.

#include "job/job_test_ranks.h"
#include "job/job_test_util.h"

#include "ddphook/runtime/compiled.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr int kSeed = 20250712;

/// A job with a module of two buckets, loaded.
class Job {
public:
  explicit Job(int rank = 0, int worldSize = 1, int port = 0) {
    std::string plan = module.plan;
    const std::string last = R"("state_bytes":0}])";
    plan.replace(
        plan.find(last), last.size(),
        R"("state_bytes":0},{"name":"b1","group":"dp",)"
        R"("reduction":"mean","dtype":"f32","shapes":[[4,5]],"gradients":[],)"
        R"("hook":"#ddp.powersgd","wire_dtype":"",)"
        R"("encoding":"","block":0,"wire_bytes":36,)"
        R"("state_bytes":0}])");
    module.setPlan(plan);
    ddphook_options_t options = jobOptions(rank, worldSize, port, "auto", 10);
    status = show(ddphook_context_create(&options, &context));
    if (status == "OK")
      status = show(ddphook_module_load(context, &module.compiled));
  }
  ~Job() {
    (void)ddphook_module_unload(&module.compiled);
    ddphook_context_destroy(context);
  }

  /// One step; gives its status.
  template <class Body>
  std::string step(const Body &body) {
    if (status == "OK")
      status = show(ddphook_rt_enter(module.handle, 0));
    if (status == "OK") {
      body(module.handle);
      status = show(ddphook_rt_leave(module.handle));
    }
    return status;
  }

  /// Elements before and after compression.
  std::string counts() {
    ddphook_stats_t stats = {};
    stats.struct_size = sizeof(stats);
    std::string text = show(ddphook_module_stats(&module.compiled, &stats));
    return text + " " + std::to_string(stats.elements_before_compression) +
           " " + std::to_string(stats.elements_after_compression);
  }

private:
  TestModule module;
  ddphook_context_t *context = nullptr;
  std::string status;
};

/// Runs `body` in a process of its own: the runtime reads DDPHOOK_LOG once.
/// Gives its text, and what it wrote to stderr.
std::string runAlone(const std::function<std::string()> &body) {
  return runRanks(1,
                  [&](int) {
                    testing::internal::CaptureStderr();
                    std::string text = body();
                    return text + "\n" + testing::internal::GetCapturedStderr();
                  })[0]
      .text;
}

/// An element type as its bits: what makes a number infinite or NaN.
struct Type {
  const char *name;
  int32_t dtype;
  int bytes;
  uint64_t exponent; // all ones
  uint64_t sign;
};
constexpr Type kTypes[] = {
    {"f16", DDPHOOK_F16, 2, 0x7c00, 0x8000},
    {"bf16", DDPHOOK_BF16, 2, 0x7f80, 0x8000},
    {"f32", DDPHOOK_F32, 4, 0x7f800000, 0x80000000},
    {"f64", DDPHOOK_F64, 8, 0x7ff0000000000000, 0x8000000000000000},
};

/// An array of a type's bit patterns, in memory that ends where the array does,
/// so that sanitizers see reads behind it.
struct Array {
  Array(const Type &type, int64_t count)
      : type(type), bytes(static_cast<size_t>(count * type.bytes)) {}
  void set(int64_t i, uint64_t bits) {
    std::memcpy(bytes.data() + i * type.bytes, &bits,
                static_cast<size_t>(type.bytes)); // little-endian
  }
  const Type &type;
  std::vector<unsigned char> bytes;
};

} // namespace

TEST(IsFinite, EveryPatternOfSixteenBits) {
  Job job;
  for (const Type &type : {kTypes[0], kTypes[1]}) {
    EXPECT_EQ(job.step([&](ddphook_module_t *handle) {
      for (uint64_t bits = 0; bits < 65536; ++bits) {
        Array array(type, 1);
        array.set(0, bits);
        bool isNumber = (bits & type.exponent) != type.exponent;
        ASSERT_EQ(
            ddphook_rt_is_finite(handle, array.bytes.data(), 1, type.dtype),
            int32_t(isNumber))
            << type.name << " " << bits;
      }
    }),
              "OK");
  }
}

TEST(IsFinite, EveryPositionOfOddLengths) {
  RecordProperty("seed", kSeed);
  std::mt19937_64 random(kSeed);
  Job job;
  for (const Type &type : kTypes) {
    const uint64_t fraction = (type.sign - 1) & ~type.exponent;
    // Both infinities, NaN of one bit, of all.
    const uint64_t wrong[] = {type.exponent, type.exponent | type.sign,
                              type.exponent | 1,
                              type.exponent | fraction | type.sign};
    for (int64_t count : {1, 3, 7, 17, 33, 65, 129}) {
      // Any finite numbers.
      Array array(type, count);
      const uint64_t lowest = type.exponent & (~type.exponent + 1);
      auto drawFinite = [&] {
        uint64_t bits = random();
        return (bits & type.exponent) == type.exponent ? bits & ~lowest : bits;
      };
      for (int64_t i = 0; i < count; ++i)
        array.set(i, drawFinite());
      array.set(0, type.exponent - 1); // the largest
      array.set(count / 2, 1);         // the smallest
      EXPECT_EQ(job.step([&](ddphook_module_t *handle) {
        auto isFinite = [&] {
          return ddphook_rt_is_finite(handle, array.bytes.data(), count,
                                      type.dtype);
        };
        ASSERT_EQ(isFinite(), 1) << type.name << " " << count;
        for (int64_t i = 0; i < count; ++i) {
          for (uint64_t bits : wrong) {
            array.set(i, bits);
            ASSERT_EQ(isFinite(), 0)
                << type.name << " " << i << " of " << count;
          }
          array.set(i, drawFinite());
        }
        ASSERT_EQ(isFinite(), 1) << type.name << " " << count;
      }),
                "OK");
    }
  }
}

TEST(IsFinite, LongArrays) {
  Job job;
  // Beside the ends of the chunks that the kernel takes at a time, and with all
  // that is wrong behind the array.
  constexpr int64_t count = 3 * 4096 + 5;
  for (const Type &type : kTypes) {
    Array array(type, count + 1);
    array.set(count, type.exponent);
    EXPECT_EQ(job.step([&](ddphook_module_t *handle) {
      for (int64_t i : {int64_t(0), int64_t(4095), int64_t(4096), int64_t(8191),
                        count - 6, count - 5, count - 1}) {
        auto isFinite = [&] {
          return ddphook_rt_is_finite(handle, array.bytes.data(), count,
                                      type.dtype);
        };
        ASSERT_EQ(isFinite(), 1) << type.name << " " << i;
        array.set(i, type.exponent);
        ASSERT_EQ(isFinite(), 0) << type.name << " " << i;
        array.set(i, 0);
      }
    }),
              "OK");
  }
}

TEST(IsFinite, NothingIsFinite) {
  Job job;
  EXPECT_EQ(job.step([&](ddphook_module_t *handle) {
    for (const Type &type : kTypes)
      EXPECT_EQ(ddphook_rt_is_finite(handle, &type, 0, type.dtype), 1);
  }),
            "OK");
}

TEST(IsFinite, WrongQuestions) {
  const float numbers[2] = {1, 2};
  struct {
    const void *in;
    int64_t count;
    int32_t dtype;
  } calls[] = {{numbers, -1, DDPHOOK_F32},
               {nullptr, 2, DDPHOOK_F32},
               {numbers, 2, 99},
               {numbers, 2, -1}};
  for (const auto &call : calls) {
    Job job;
    int32_t answer = 1, next = 1;
    std::string status = job.step([&](ddphook_module_t *handle) {
      answer = ddphook_rt_is_finite(handle, call.in, call.count, call.dtype);
      // The step has failed: nothing is looked at any more.
      next = ddphook_rt_is_finite(handle, numbers, 2, DDPHOOK_F32);
    });
    EXPECT_EQ(status.substr(0, 38), "INVALID_ARGUMENT: ddphook_rt_is_finite");
    EXPECT_EQ(answer, 0);
    EXPECT_EQ(next, 0);
  }
}

//===----------------------------------------------------------------------===//
// Counts
//===----------------------------------------------------------------------===//

TEST(CountCompression, AddsUp) {
  EXPECT_EQ(runAlone([] {
              Job job;
              std::string text = job.counts();
              for (int64_t i = 0; i < 3; ++i)
                job.step([&](ddphook_module_t *handle) {
                  ddphook_rt_count_compression(handle, 0, 3, 2, i, 1);
                  ddphook_rt_count_compression(handle, 1, 20, 9, i, 10000);
                  ddphook_rt_count_compression(handle, 1, 0, 0, i, 1);
                });
              text += ", " + job.counts();
              // More than 32 bits hold.
              text += ", " + job.step([&](ddphook_module_t *handle) {
                ddphook_rt_count_compression(handle, 1, int64_t(3) << 40,
                                             int64_t(1) << 40, 3, 1);
              });
              return text + ", " + job.counts();
            }),
            "OK 0 0, OK 69 33, OK, OK 3298534883397 1099511627809\n");
}

TEST(CountCompression, WrongCounts) {
  const char *buckets = "expected one of 2 buckets, but got ";
  const char *counts =
      "expected counts of at least 0 and a frequency of at least 1";
  struct {
    int32_t bucket;
    int64_t before, after, frequency;
    std::string message;
  } calls[] = {{2, 1, 1, 1, std::string(buckets) + "2"},
               {-1, 1, 1, 1, std::string(buckets) + "-1"},
               {0, -1, 1, 1, counts},
               {0, 1, -1, 1, counts},
               {0, 1, 1, 0, counts},
               {0, 1, 1, -7, counts}};
  for (const auto &call : calls)
    EXPECT_EQ(runAlone([&] {
                Job job;
                std::string text = job.step([&](ddphook_module_t *handle) {
                  ddphook_rt_count_compression(handle, call.bucket, call.before,
                                               call.after, 0, call.frequency);
                  // After a failure nothing counts.
                  ddphook_rt_count_compression(handle, 0, 5, 5, 0, 1);
                });
                return text + ", " + job.counts();
              }),
              "INVALID_ARGUMENT: ddphook_rt_count_compression: " +
                  call.message + ", OK 0 0\n");
}

TEST(Measure, WrongBuckets) {
  for (int32_t bucket : {-1, 2})
    EXPECT_EQ(runAlone([&] {
                Job job;
                float x[2] = {};
                return job.step([&](ddphook_module_t *handle) {
                  ddphook_rt_measure_entries(handle, bucket, 1, x, x, 1);
                });
              }),
              "INVALID_ARGUMENT: ddphook_rt_measure_entries: expected one of 2 "
              "buckets, but got " +
                  std::to_string(bucket) + "\n");
}

/// What a job of `ranks` prints with DDPHOOK_LOG=`value` (null: not set), in
/// iterations 5 … 12 of b0, each third one, and 7 … 14 of b1, each fourth one;
/// all ranks' text.
static std::string getReports(const char *value, int ranks) {
  int port = freePort();
  std::string text;
  for (const RankResult &result : runRanks(ranks, [&](int rank) {
         if (value)
           ::setenv("DDPHOOK_LOG", value, 1);
         else
           ::unsetenv("DDPHOOK_LOG");
         testing::internal::CaptureStderr();
         std::string status;
         {
           Job job(rank, ranks, port);
           for (int64_t i = 5; i <= 12; ++i)
             status = job.step([&](ddphook_module_t *handle) {
               ddphook_rt_count_compression(handle, 0, 9, i == 8 ? 0 : 4, i, 3);
               ddphook_rt_count_compression(handle, 1, 20, 9, i + 2, 4);
             });
         }
         return status + "\n" + testing::internal::GetCapturedStderr();
       }))
    text += result.text;
  return text;
}

TEST(CountCompression, RankZeroPrintsEverySoOften) {
  const std::string lines =
      "OK\n"
      "ddphook: bucket b0, iteration 5: 9 elements sent as 4 (rate 2.25)\n"
      "ddphook: bucket b1, iteration 7: 20 elements sent as 9 (rate 2.22)\n"
      "ddphook: bucket b0, iteration 8: 9 elements sent as 0 (rate 0.00)\n"
      "ddphook: bucket b1, iteration 11: 20 elements sent as 9 (rate 2.22)\n"
      "ddphook: bucket b0, iteration 11: 9 elements sent as 4 (rate 2.25)\n";
  EXPECT_EQ(getReports("info", 1), lines);
  EXPECT_EQ(getReports("info", 2), lines + "OK\n");
}

TEST(CountCompression, PrintsNothingUnasked) {
  for (const char *value :
       {static_cast<const char *>(nullptr), "", "warn", "error"})
    EXPECT_EQ(getReports(value, 1), "OK\n");
  EXPECT_EQ(getReports("INFO", 1),
            "BAD_ENVIRONMENT: expected DDPHOOK_LOG to be error, warn or info, "
            "but got 'INFO'\n");
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

/// Bytes on the wire and without compression, after `steps` of a module of one
/// bucket of f32 that has collectives of 6 elements on a wire of f16, of 3 and
/// of 20 elements.
static std::string
getBytes(std::initializer_list<std::function<void(ddphook_module_t *)>> steps) {
  TestModule module({{6, "f32", "f16", true, 0},
                     {3, "f32", "", true, 0},
                     {20, "f32", "", true, 0}});
  ddphook_options_t options = jobOptions(0, 1, 0, "auto", 10);
  return withModule(options, module, [&](ddphook_context_t *) {
    for (const auto &step : steps) {
      (void)ddphook_rt_enter(module.handle, 0);
      step(module.handle);
      std::string status = show(ddphook_rt_leave(module.handle));
      if (status != "OK")
        return status;
    }
    ddphook_stats_t stats = {};
    stats.struct_size = sizeof(stats);
    std::string status = show(ddphook_module_stats(&module.compiled, &stats));
    return status + " " + std::to_string(stats.wire_bytes) + " for " +
           std::to_string(stats.uncompressed_bytes);
  });
}

TEST(Bytes, UncompressedOnesAreThoseOfTheGradients) {
  float numbers[20] = {};
  auto reduce = [&](ddphook_module_t *handle, int32_t collective) {
    ddphook_rt_collective(handle, collective, numbers, numbers, /*step=*/0);
  };
  auto cast = [&](ddphook_module_t *handle) { reduce(handle, 0); };
  auto plain = [&](ddphook_module_t *handle) { reduce(handle, 2); };
  auto nothing = [](ddphook_module_t *) {};
  // A bucket of 20 elements, sent as 6 of half the size and 3.
  auto compressed = [&](ddphook_module_t *handle) {
    reduce(handle, 0);
    ddphook_rt_count_compression(handle, 0, 20, 9, 1, 100);
    reduce(handle, 1);
  };
  EXPECT_EQ(getBytes({nothing}), "OK 0 for 0");
  EXPECT_EQ(getBytes({cast}), "OK 12 for 24");
  EXPECT_EQ(getBytes({plain, plain}), "OK 160 for 160");
  EXPECT_EQ(getBytes({compressed}), "OK 24 for 80");
  EXPECT_EQ(getBytes({plain, nothing, compressed, compressed}),
            "OK 128 for 240");
  // A loop that begins to compress in the middle of a step.
  EXPECT_EQ(getBytes({[&](ddphook_module_t *handle) {
              plain(handle);
              compressed(handle);
              compressed(handle);
            }}),
            "OK 128 for 240");
}
