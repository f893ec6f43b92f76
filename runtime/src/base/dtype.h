//===- dtype.h - element types inside the runtime ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The element types that collectives and kernels work on, and those of casts,
// which may be more. Entry points may have integer arguments too; those only
// exist in the plan's entry list.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_DTYPE_H
#define DDPHOOK_RUNTIME_SRC_BASE_DTYPE_H

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

/// The types that casts convert between. Numbers and names are as above.
enum class CastDtype : int32_t {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value) NAME = value,
#include "ddphook/runtime/element_types.inc"
};

constexpr CastDtype castDtype(Dtype dtype) {
  return static_cast<CastDtype>(dtype);
}

/// The type of that number in the ABI, or nothing.
constexpr std::optional<CastDtype> castDtypeFromAbi(int32_t value) {
  switch (value) {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  case value:                                                                  \
    return CastDtype::NAME;
#include "ddphook/runtime/element_types.inc"
  }
  return std::nullopt;
}

constexpr int64_t castDtypeSize(CastDtype dtype) {
  switch (dtype) {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  case CastDtype::NAME:                                                        \
    return bytes;
#include "ddphook/runtime/element_types.inc"
  }
  return 0;
}

constexpr const char *castDtypeName(CastDtype dtype) {
  switch (dtype) {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  case CastDtype::NAME:                                                        \
    return #name;
#include "ddphook/runtime/element_types.inc"
  }
  return "unknown";
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_DTYPE_H
