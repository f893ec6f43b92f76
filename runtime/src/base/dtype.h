//===- dtype.h - element types inside the runtime ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The element types that collectives and kernels work on. Entry points may
// have integer arguments too; those only exist in the plan's entry list.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_DTYPE_H
#define DDPHOOK_RUNTIME_SRC_BASE_DTYPE_H

#include "ddphook/runtime/compiled.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddphook {

enum class Dtype : int32_t {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value) NAME = value,
#include "ddphook/runtime/element_types.inc"
};

constexpr int64_t dtypeSize(Dtype dtype) {
  switch (dtype) {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value)                  \
  case Dtype::NAME:                                                            \
    return bytes;
#include "ddphook/runtime/element_types.inc"
  }
  return 0;
}

constexpr const char *dtypeName(Dtype dtype) {
  switch (dtype) {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value)                  \
  case Dtype::NAME:                                                            \
    return #name;
#include "ddphook/runtime/element_types.inc"
  }
  return "unknown";
}

constexpr bool isHalf(Dtype dtype) { return dtypeSize(dtype) == 2; }

constexpr Dtype allDtypes[] = {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value) Dtype::NAME,
#include "ddphook/runtime/element_types.inc"
};

/// The type of that name in a plan, or nothing.
inline std::optional<Dtype> parseDtype(std::string_view name) {
  for (Dtype dtype : allDtypes)
    if (name == dtypeName(dtype))
      return dtype;
  return std::nullopt;
}

/// The type of that number in the ABI, or nothing.
inline std::optional<Dtype> dtypeFromAbi(int32_t value) {
  for (Dtype dtype : allDtypes)
    if (value == static_cast<int32_t>(dtype))
      return dtype;
  return std::nullopt;
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_DTYPE_H
