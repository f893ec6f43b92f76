//===- safetensors_fuzzer.cpp - feeds the header parser -------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For libFuzzer (-DDDPHOOK_BUILD_FUZZERS=ON, clang only). The first eight bytes
// are the number of data bytes, the rest is the header. What is accepted must
// keep the promises of parseSafetensorsHeader().
//
//===----------------------------------------------------------------------===//
#include "safetensors.h"

#include <cstdlib>
#include <cstring>

using namespace ddphook;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t dataBytes = 0;
  if (size < sizeof(dataBytes))
    return 0;
  std::memcpy(&dataBytes, data, sizeof(dataBytes));
  std::string_view text(reinterpret_cast<const char *>(data) + 8, size - 8);
  SafetensorsHeader header;
  if (!parseSafetensorsHeader(text, dataBytes, header).isOk())
    return 0;
  uint64_t sum = 0;
  for (const auto &[name, tensor] : header.tensors) {
    uint64_t bytes;
    if (tensor.begin > tensor.end || tensor.end > dataBytes ||
        !tensorBytes(tensor.shape, tensorTypeSize(tensor.type), bytes) ||
        bytes != tensor.end - tensor.begin)
      std::abort();
    sum += bytes;
  }
  if (sum != dataBytes)
    std::abort();
  return 0;
}
