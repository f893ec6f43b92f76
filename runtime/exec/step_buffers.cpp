// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Allocates buffers, checks tensors against the entry point's signature, and
// copies them from and to files.

#include "step_buffers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <random>

using namespace ddphook;

/// In bytes: a cache line, and the widest vector of compiled code.
constexpr size_t bufferAlignment = 64;

StepBuffers::~StepBuffers() {
  for (Buffer &buffer : buffers)
    ddphook_memory_free(device, buffer.onDevice, buffer.bytes);
}

Status ddphook::fromRuntime(ddphook_status_t code, const std::string &what) {
  if (code == DDPHOOK_OK)
    return Status::ok();
  const char *text = ddphook_last_error();
  return Status(code, what + ": " + ddphook_status_name(code) +
                          (*text ? std::string(": ") + text : ""));
}

Status StepBuffers::add(const EntryValue &value, const std::string &what) {
  uint64_t bytes = (std::max<uint64_t>(value.bytes, 1) + bufferAlignment - 1) /
                   bufferAlignment * bufferAlignment;
  Buffer &buffer = buffers.emplace_back();
  buffer.bytes = value.bytes;
  buffer.host.reset(std::aligned_alloc(bufferAlignment, bytes));
  if (!buffer.host)
    return Status(DDPHOOK_RESOURCE_EXHAUSTED,
                  concat("cannot allocate ", value.bytes, " bytes for ", what));
  if (device && !value.isScalar)
    DDPHOOK_TRY(fromRuntime(
        ddphook_memory_alloc(device, buffer.bytes, &buffer.onDevice), what));
  list.push_back(buffer.onDevice ? buffer.onDevice : buffer.host.get());
  return Status::ok();
}

Status StepBuffers::allocate() {
  for (size_t i = 0; i < signature.arguments.size(); ++i)
    DDPHOOK_TRY(add(signature.arguments[i], "argument " + std::to_string(i)));
  for (size_t i = 0; i < signature.results.size(); ++i) {
    const EntryResult &result = signature.results[i];
    if (result.argument >= 0) {
      resultBuffers.push_back(static_cast<size_t>(result.argument));
      continue;
    }
    resultBuffers.push_back(buffers.size());
    DDPHOOK_TRY(add(result, "result " + std::to_string(i)));
  }
  return Status::ok();
}

/// Returns "f32 [300, 200]"; spells types as the IR does, if it has them.
static std::string print(TensorType type, const std::vector<int64_t> &shape) {
  std::string name = tensorTypeName(type);
  for (char &c : name)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name + " " + printShape(shape);
}

/// i8 has no sign in the IR, so it matches both 8-bit integer types.
static bool sameType(TensorType expected, TensorType got) {
  return expected == got ||
         (expected == TensorType::I8 && got == TensorType::U8);
}

static Status checkBooleans(const void *data, uint64_t count,
                            const std::string &where) {
  const uint8_t *bytes = static_cast<const uint8_t *>(data);
  const uint8_t *bad =
      std::find_if(bytes, bytes + count, [](uint8_t b) { return b > 1; });
  if (bad == bytes + count)
    return Status::ok();
  return dataLoss(concat(where, ": expected booleans to be 0 or 1, but got ",
                         *bad, " at element ", bad - bytes));
}

Status StepBuffers::readArguments(const std::string &path) {
  SafetensorsReader reader;
  DDPHOOK_TRY(reader.open(path));
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    const EntryValue &argument = signature.arguments[i];
    std::string name = "arg" + std::to_string(i);
    const TensorInfo *tensor = reader.find(name);
    if (!tensor)
      return invalid("'" + path + "' has no tensor '" + name + "', expected " +
                     print(argument.type, argument.shape));
    std::string where = "'" + path + "', tensor '" + name + "'";
    if (!sameType(argument.type, tensor->type) ||
        argument.shape != tensor->shape)
      return invalid(where + ": expected " +
                     print(argument.type, argument.shape) + ", but got " +
                     print(tensor->type, tensor->shape));
    DDPHOOK_TRY(reader.read(*tensor, buffers[i].host.get()));
    if (argument.type == TensorType::Bool)
      DDPHOOK_TRY(
          checkBooleans(buffers[i].host.get(), argument.elements, where));
  }
  return Status::ok();
}

void StepBuffers::drawArguments(RandomKey key) {
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    key.argument = i;
    fillRandom(key, signature.arguments[i].type,
               signature.arguments[i].elements, buffers[i].host.get());
  }
}

void StepBuffers::poisonResults() {
  for (size_t i = 0; i < signature.results.size(); ++i)
    if (signature.results[i].argument < 0)
      std::memset(resultBuffer(i).host.get(), 0xff, signature.results[i].bytes);
}

Status StepBuffers::upload() {
  for (const Buffer &buffer : buffers)
    if (buffer.onDevice)
      DDPHOOK_TRY(
          fromRuntime(ddphook_memory_write(device, buffer.onDevice,
                                           buffer.host.get(), buffer.bytes),
                      "cannot copy to the device"));
  return Status::ok();
}

Status StepBuffers::download() {
  for (size_t i : resultBuffers)
    if (const Buffer &buffer = buffers[i]; buffer.onDevice)
      DDPHOOK_TRY(
          fromRuntime(ddphook_memory_read(device, buffer.host.get(),
                                          buffer.onDevice, buffer.bytes),
                      "cannot copy from the device"));
  return Status::ok();
}

Status StepBuffers::writeResults(const std::string &path) const {
  std::vector<TensorView> tensors;
  for (size_t i = 0; i < signature.results.size(); ++i)
    tensors.push_back({"result" + std::to_string(i), signature.results[i].type,
                       signature.results[i].shape,
                       buffers[resultBuffers[i]].host.get()});
  return writeSafetensors(path, tensors);
}

/// Returns the bits of `value` in a 16-bit format. It cannot overflow: normal
/// numbers of 53 random bits are below 13 in magnitude.
static uint16_t encodeHalf(double value, int mantissaBits, int minExponent) {
  if (value == 0)
    return 0;
  int exponent = std::max(std::ilogb(value), minExponent);
  // The quotient has the implicit bit, and a carry increments the exponent.
  auto quotient = static_cast<uint32_t>(
      std::nearbyint(std::ldexp(std::fabs(value), mantissaBits - exponent)));
  uint32_t bits =
      (static_cast<uint32_t>(exponent - minExponent) << mantissaBits) +
      quotient;
  return static_cast<uint16_t>(bits | (std::signbit(value) ? 0x8000u : 0u));
}

template <typename T, typename Draw>
static void fill(void *data, uint64_t count, Draw draw) {
  T *out = static_cast<T *>(data);
  std::generate(out, out + count, [&] { return static_cast<T>(draw()); });
}

void ddphook::fillRandom(const RandomKey &key, TensorType type, uint64_t count,
                         void *data) {
  std::vector<uint32_t> words;
  for (uint64_t part : {key.seed, static_cast<uint64_t>(key.rank),
                        static_cast<uint64_t>(key.step), key.argument})
    words.insert(words.end(), {static_cast<uint32_t>(part),
                               static_cast<uint32_t>(part >> 32)});
  std::seed_seq seeds(words.begin(), words.end());
  std::mt19937_64 generator(seeds);
  std::normal_distribution<double> distribution;
  auto normal = [&] { return distribution(generator); };
  auto integer = [&] { return generator() >> 61; };
  switch (type) {
  case TensorType::F64:
    return fill<double>(data, count, normal);
  case TensorType::F32:
    return fill<float>(data, count, normal);
  case TensorType::F16:
    return fill<uint16_t>(data, count,
                          [&] { return encodeHalf(normal(), 10, -14); });
  case TensorType::BF16:
    return fill<uint16_t>(data, count,
                          [&] { return encodeHalf(normal(), 7, -126); });
  case TensorType::I64:
    return fill<uint64_t>(data, count, integer);
  case TensorType::I32:
    return fill<uint32_t>(data, count, integer);
  case TensorType::I16:
    return fill<uint16_t>(data, count, integer);
  case TensorType::I8:
  case TensorType::U8:
    return fill<uint8_t>(data, count, integer);
  case TensorType::Bool:
    return fill<uint8_t>(data, count, [&] { return generator() >> 63; });
  }
}
