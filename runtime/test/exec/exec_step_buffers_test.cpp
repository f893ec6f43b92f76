// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An entry point's signature, its buffers, files for them, and random inputs.

#include "exec/abi_text.h"
#include "exec/exec_test_util.h"
#include "step_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ddphook;

/// AddressSanitizer ends the process when memory is short, unless told so.
extern "C" const char *__asan_default_options() {
  return "allocator_may_return_null=1";
}

static ddphook_status_t invokeNothing(void *const *) { return DDPHOOK_OK; }

static const ddphook_compiled_entry_t testEntries[] = {{"step", invokeNothing},
                                                       {"eval", invokeNothing}};

static Status findIn(const std::string &plan, const std::string &name,
                     EntrySignature &signature) {
  ddphook_compiled_module_t module = {};
  module.plan = plan.data();
  module.plan_size = plan.size();
  module.entry_count = 2;
  module.entries = testEntries;
  return findEntry(module, name, signature);
}

static std::string makePlan(const std::string &arguments,
                            const std::string &results) {
  return "{\"abi\":" ABI_TEXT
         ",\"memory\":\"host\",\"kernels\":[],\"process_groups\":[],"
         "\"buckets\":[],\"states\":[],"
         "\"matrix_lists\":[],"
         "\"collectives\":[],\"arena\":{\"bytes\":0,\"alignment\":64},"
         "\"state_arena\":{\"bytes\":0,\"alignment\":64},"
         "\"entries\":[{\"name\":\"step\",\"arguments\":[" +
         arguments + "],\"results\":[" + results + "]}]}";
}

TEST(EntrySignature, IsReadFromThePlan) {
  // Every element type of the plan, the last one updated in place.
  const struct {
    const char *name;
    TensorType type;
    uint64_t bytes;
  } table[] = {{"f16", TensorType::F16, 12}, {"bf16", TensorType::BF16, 12},
               {"f32", TensorType::F32, 24}, {"f64", TensorType::F64, 48},
               {"i1", TensorType::Bool, 6},  {"i8", TensorType::I8, 6},
               {"i16", TensorType::I16, 12}, {"i32", TensorType::I32, 24},
               {"i64", TensorType::I64, 48}, {"index", TensorType::I64, 48}};
  std::string arguments;
  for (const auto &row : table)
    arguments += std::string("{\"dtype\":\"") + row.name +
                 "\",\"shape\":[2,3],\"scalar\":false,\"inout\":false},";
  arguments +=
      "{\"dtype\":\"i1\",\"shape\":[],\"scalar\":false,\"inout\":true}";
  EntrySignature signature;
  Status status = findIn(
      makePlan(arguments, "{\"dtype\":\"index\",\"shape\":[0],\"argument\":-1},"
                          "{\"dtype\":\"i1\",\"shape\":[],\"argument\":10}"),
      "step", signature);
  ASSERT_TRUE(status.isOk()) << status.message();
  EXPECT_EQ(signature.invoke, invokeNothing);
  ASSERT_EQ(signature.arguments.size(), 11u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(signature.arguments[i].type, table[i].type) << table[i].name;
    EXPECT_EQ(signature.arguments[i].shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(signature.arguments[i].elements, 6u);
    EXPECT_EQ(signature.arguments[i].bytes, table[i].bytes) << table[i].name;
  }
  EXPECT_EQ(signature.arguments[10].bytes, 1u);
  ASSERT_EQ(signature.results.size(), 2u);
  EXPECT_EQ(signature.results[0].bytes, 0u);
  EXPECT_EQ(signature.results[0].argument, -1);
  EXPECT_EQ(signature.results[1].argument, 10);
}

TEST(EntrySignature, NamesEveryDefect) {
  const struct {
    std::string plan;
    const char *entry;
    const char *message;
  } table[] = {
      {"{}", "train", "unknown entry 'train', expected 'step', 'eval'"},
      {"{", "step", "malformed plan: "},
      {makePlan("", ""), "eval", "malformed plan: entry 'eval' is missing"},
      {makePlan(
           "{\"dtype\":\"f8\",\"shape\":[],\"scalar\":false,\"inout\":false}",
           ""),
       "step", "malformed plan: entries[0].arguments[0].dtype: "},
  };
  for (const auto &row : table) {
    EntrySignature signature;
    Status status = findIn(row.plan, row.entry, signature);
    EXPECT_FALSE(status.isOk());
    EXPECT_EQ(status.message().substr(0, strlen(row.message)), row.message);
  }
}

static EntryValue makeValue(TensorType type, std::vector<int64_t> shape) {
  EntryValue value;
  value.type = type;
  value.shape = std::move(shape);
  EXPECT_TRUE(tensorBytes(value.shape, tensorTypeSize(type), value.bytes));
  value.elements = value.bytes / tensorTypeSize(type);
  return value;
}

static EntryResult makeResult(TensorType type, std::vector<int64_t> shape,
                              int64_t argument) {
  EntryResult result;
  static_cast<EntryValue &>(result) = makeValue(type, std::move(shape));
  result.argument = argument;
  return result;
}

namespace {

/// An entry point with two arguments and three results, the middle one being
/// argument 0.
class StepBuffersTest : public testing::Test {
protected:
  void SetUp() override {
    signature.arguments = {makeValue(TensorType::F32, {3}),
                           makeValue(TensorType::Bool, {2})};
    signature.results = {makeResult(TensorType::F16, {2}, -1),
                         makeResult(TensorType::F32, {3}, 0),
                         makeResult(TensorType::I8, {0}, -1)};
  }

  TemporaryDirectory directory;
  EntrySignature signature;
};

} // namespace

TEST_F(StepBuffersTest, AreAlignedAndDistinct) {
  StepBuffers buffers(signature);
  ASSERT_TRUE(buffers.allocate().isOk());
  void *const *list = buffers.pointers();
  for (int i = 0; i < 4; ++i) {
    ASSERT_NE(list[i], nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(list[i]) % 64, 0u);
    for (int j = 0; j < i; ++j)
      EXPECT_NE(list[i], list[j]);
  }
}

TEST_F(StepBuffersTest, GoThroughFiles) {
  float values[3] = {1, 2, 3};
  uint8_t flags[2] = {1, 0};
  std::string in = directory.path("in");
  ASSERT_TRUE(writeSafetensors(in, {{"arg1", TensorType::Bool, {2}, flags},
                                    {"ignored", TensorType::F32, {3}, values},
                                    {"arg0", TensorType::F32, {3}, values}})
                  .isOk());
  StepBuffers buffers(signature);
  ASSERT_TRUE(buffers.allocate().isOk());
  Status status = buffers.readArguments(in);
  ASSERT_TRUE(status.isOk()) << status.message();
  buffers.poisonResults();
  void *const *list = buffers.pointers();
  EXPECT_EQ(memcmp(list[0], values, sizeof(values)), 0);
  EXPECT_EQ(memcmp(list[1], flags, sizeof(flags)), 0);
  EXPECT_EQ(memcmp(list[2], "\xff\xff\xff\xff", 4), 0);

  static_cast<float *>(list[0])[1] = 20;
  memcpy(list[2], "\x00\x3c\x00\x40", 4);
  std::string out = directory.path("out");
  ASSERT_TRUE(buffers.writeResults(out).isOk());
  SafetensorsReader reader;
  ASSERT_TRUE(reader.open(out).isOk());
  EXPECT_EQ(reader.header().tensors.size(), 3u);
  float updated[3];
  ASSERT_TRUE(reader.read(*reader.find("result1"), updated).isOk());
  EXPECT_EQ(updated[1], 20);
  uint16_t halves[2];
  ASSERT_TRUE(reader.read(*reader.find("result0"), halves).isOk());
  EXPECT_EQ(halves[0], 0x3c00);
  EXPECT_EQ(halves[1], 0x4000);
  EXPECT_EQ(reader.find("result2")->type, TensorType::I8);
}

TEST_F(StepBuffersTest, RefuseTensorsThatDoNotFit) {
  float values[4] = {};
  uint8_t flags[2] = {1, 7};
  std::string in = directory.path("in");
  StepBuffers buffers(signature);
  ASSERT_TRUE(buffers.allocate().isOk());
  auto read = [&](const std::vector<TensorView> &tensors) {
    EXPECT_TRUE(writeSafetensors(in, tensors).isOk());
    return buffers.readArguments(in).message();
  };
  TensorView good = {"arg0", TensorType::F32, {3}, values};
  EXPECT_EQ(read({good}),
            "'" + in + "' has no tensor 'arg1', expected bool [2]");
  EXPECT_EQ(read({{"arg0", TensorType::F32, {4}, values}}),
            "'" + in + "', tensor 'arg0': expected f32 [3], but got f32 [4]");
  EXPECT_EQ(read({{"arg0", TensorType::I32, {3}, values}}),
            "'" + in + "', tensor 'arg0': expected f32 [3], but got i32 [3]");
  EXPECT_EQ(read({{"arg0", TensorType::F32, {3, 1}, values}}),
            "'" + in +
                "', tensor 'arg0': expected f32 [3], but got f32 [3, 1]");
  EXPECT_EQ(read({good, {"arg1", TensorType::U8, {2}, flags}}),
            "'" + in + "', tensor 'arg1': expected bool [2], but got u8 [2]");
  EXPECT_EQ(read({good, {"arg1", TensorType::Bool, {2}, flags}}),
            "'" + in +
                "', tensor 'arg1': expected booleans to be 0 or 1, but got 7 "
                "at element 1");
}

TEST_F(StepBuffersTest, TakeBothKindsOfBytes) {
  signature.arguments = {makeValue(TensorType::I8, {2})};
  signature.results.clear();
  uint8_t bytes[2] = {250, 3};
  std::string in = directory.path("in");
  for (TensorType type : {TensorType::I8, TensorType::U8}) {
    ASSERT_TRUE(writeSafetensors(in, {{"arg0", type, {2}, bytes}}).isOk());
    StepBuffers buffers(signature);
    ASSERT_TRUE(buffers.allocate().isOk());
    ASSERT_TRUE(buffers.readArguments(in).isOk());
    EXPECT_EQ(memcmp(buffers.pointers()[0], bytes, 2), 0);
  }
}

TEST_F(StepBuffersTest, SayWhenMemoryIsShort) {
  signature.arguments = {makeValue(TensorType::I8, {int64_t(1) << 60})};
  StepBuffers buffers(signature);
  Status status = buffers.allocate();
  EXPECT_EQ(status.code(), DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.message(),
            "cannot allocate 1152921504606846976 bytes for argument 0");
}

static std::vector<double> drawDoubles(const RandomKey &key, size_t count) {
  std::vector<double> values(count);
  fillRandom(key, TensorType::F64, count, values.data());
  return values;
}

TEST(RandomTensor, DependsOnEveryPartOfItsKey) {
  const RandomKey base = {1, 2, 3, 4};
  std::vector<double> values = drawDoubles(base, 9);
  EXPECT_EQ(values, drawDoubles(base, 9));
  for (const RandomKey &other : {RandomKey{2, 2, 3, 4}, RandomKey{1, 3, 3, 4},
                                 RandomKey{1, 2, 4, 4}, RandomKey{1, 2, 3, 5}})
    for (size_t i = 0; i < 9; ++i)
      EXPECT_NE(values[i], drawDoubles(other, 9)[i]);
  // A longer tensor begins with the same elements.
  std::vector<double> longer = drawDoubles(base, 100);
  longer.resize(9);
  EXPECT_EQ(values, longer);
}

TEST(RandomTensor, IsStandardNormal) {
  constexpr size_t count = 100000;
  std::vector<double> values = drawDoubles({7, 0, 0, 0}, count);
  double moments[4] = {};
  for (double value : values)
    for (int i = 0; i < 4; ++i)
      moments[i] += std::pow(value, i + 1) / count;
  // Five standard errors of each moment; the seed is fixed.
  EXPECT_NEAR(moments[0], 0, 5 * std::sqrt(1.0 / count));
  EXPECT_NEAR(moments[1], 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(moments[2], 0, 5 * std::sqrt(15.0 / count));
  EXPECT_NEAR(moments[3], 3, 5 * std::sqrt(96.0 / count));
}

static double decodeHalf(uint16_t bits, int mantissaBits, int minExponent) {
  int exponent = (bits & 0x7fff) >> mantissaBits;
  double mantissa = bits & ((1 << mantissaBits) - 1);
  if (exponent > 0)
    mantissa += 1 << mantissaBits;
  double value = std::ldexp(mantissa, std::max(exponent, 1) - 1 + minExponent -
                                          mantissaBits);
  return bits & 0x8000 ? -value : value;
}

/// The 16-bit types hold the numbers of the wide one, rounded to nearest:
/// neither neighbour is closer.
TEST(RandomTensor, RoundsToNearest) {
  constexpr size_t count = 200000;
  RandomKey key = {11, 0, 0, 0};
  std::vector<double> wide = drawDoubles(key, count);
  std::vector<uint16_t> halves(count);
  const struct {
    TensorType type;
    int mantissaBits, minExponent;
  } formats[] = {{TensorType::F16, 10, -14}, {TensorType::BF16, 7, -126}};
  for (const auto &format : formats) {
    fillRandom(key, format.type, count, halves.data());
    auto distance = [&](size_t i, uint16_t bits) {
      return std::fabs(
          decodeHalf(bits, format.mantissaBits, format.minExponent) - wide[i]);
    };
    for (size_t i = 0; i < count; ++i) {
      uint16_t bits = halves[i];
      ASSERT_EQ(bits >> 15, std::signbit(wide[i]) ? 1 : 0);
      double own = distance(i, bits);
      ASSERT_LE(own, distance(i, static_cast<uint16_t>(bits + 1)));
      if (bits & 0x7fff) {
        ASSERT_LE(own, distance(i, static_cast<uint16_t>(bits - 1)));
      }
    }
  }
}

TEST(RandomTensor, KeepsIntegersSmall) {
  constexpr size_t count = 1000;
  std::vector<int64_t> wide(count);
  fillRandom({3, 0, 0, 0}, TensorType::I64, count, wide.data());
  for (int64_t value : wide)
    EXPECT_TRUE(value >= 0 && value <= 7) << value;
  EXPECT_EQ(*std::max_element(wide.begin(), wide.end()), 7);
  EXPECT_EQ(*std::min_element(wide.begin(), wide.end()), 0);

  std::vector<int32_t> words(count);
  std::vector<int16_t> shorts(count);
  std::vector<int8_t> bytes(count);
  std::vector<uint8_t> flags(count);
  fillRandom({3, 0, 0, 0}, TensorType::I32, count, words.data());
  fillRandom({3, 0, 0, 0}, TensorType::I16, count, shorts.data());
  fillRandom({3, 0, 0, 0}, TensorType::I8, count, bytes.data());
  fillRandom({3, 0, 0, 0}, TensorType::Bool, count, flags.data());
  size_t ones = 0;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(words[i], wide[i]);
    EXPECT_EQ(shorts[i], wide[i]);
    EXPECT_EQ(bytes[i], wide[i]);
    EXPECT_LE(flags[i], 1);
    ones += flags[i];
  }
  EXPECT_GT(ones, count / 3);
  EXPECT_LT(ones, 2 * count / 3);
}
