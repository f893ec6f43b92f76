//===- dtype.h - element types inside the runtime ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The element types that collectives and kernels work on. Entry points may
// have integer arguments too; those only exist in the plan's entry list.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_DTYPE_H
#define DDPHOOK_RUNTIME_SRC_DTYPE_H

#include "ddphook/runtime/compiled.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddphook {

enum class Dtype : int32_t {
  F16 = DDPHOOK_F16,
  BF16 = DDPHOOK_BF16,
  F32 = DDPHOOK_F32,
  F64 = DDPHOOK_F64
};

constexpr int64_t dtypeSize(Dtype dtype) {
  switch (dtype) {
  case Dtype::F16:
  case Dtype::BF16:
    return 2;
  case Dtype::F32:
    return 4;
  case Dtype::F64:
    return 8;
  }
  return 0;
}

constexpr const char *dtypeName(Dtype dtype) {
  switch (dtype) {
  case Dtype::F16:
    return "f16";
  case Dtype::BF16:
    return "bf16";
  case Dtype::F32:
    return "f32";
  case Dtype::F64:
    return "f64";
  }
  return "unknown";
}

constexpr bool isHalf(Dtype dtype) { return dtypeSize(dtype) == 2; }

/// The type of that name in a plan, or nothing.
inline std::optional<Dtype> parseDtype(std::string_view name) {
  for (Dtype dtype : {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64})
    if (name == dtypeName(dtype))
      return dtype;
  return std::nullopt;
}

/// The type of that number in the ABI, or nothing.
inline std::optional<Dtype> dtypeFromAbi(int32_t value) {
  if (value < DDPHOOK_F16 || value > DDPHOOK_F64)
    return std::nullopt;
  return static_cast<Dtype>(value);
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_DTYPE_H
