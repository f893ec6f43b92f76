// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The element types of collectives and kernels, and those of casts and of
// states, which may be more. Entry points may also have other integer
// arguments, whose types exist only in the plan's entry list.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ddphook {

/// The types that casts convert between.
enum class CastDtype : int32_t {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value) NAME = value,
#include "ddphook/runtime/element_types.inc"
};

constexpr CastDtype allCastDtypes[] = {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  CastDtype::NAME,
#include "ddphook/runtime/element_types.inc"
};

/// The types for everything else, with the same numbers, sizes and names.
enum class Dtype : int32_t {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value) NAME = value,
#include "ddphook/runtime/element_types.inc"
};

constexpr Dtype allDtypes[] = {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value) Dtype::NAME,
#include "ddphook/runtime/element_types.inc"
};

constexpr CastDtype castDtype(Dtype dtype) {
  return static_cast<CastDtype>(dtype);
}

constexpr int64_t dtypeSize(CastDtype dtype) {
  switch (dtype) {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  case CastDtype::NAME:                                                        \
    return bytes;
#include "ddphook/runtime/element_types.inc"
  }
  return 0;
}
constexpr int64_t dtypeSize(Dtype dtype) { return dtypeSize(castDtype(dtype)); }

constexpr const char *dtypeName(CastDtype dtype) {
  switch (dtype) {
#define DDPHOOK_CAST_TYPE(NAME, name, bytes, c_type, file, value)              \
  case CastDtype::NAME:                                                        \
    return #name;
#include "ddphook/runtime/element_types.inc"
  }
  return "unknown";
}
constexpr const char *dtypeName(Dtype dtype) {
  return dtypeName(castDtype(dtype));
}

constexpr bool isHalf(Dtype dtype) { return dtypeSize(dtype) == 2; }

/// Returns the type with that name in a plan, or nullopt.
inline std::optional<Dtype> parseDtype(std::string_view name) {
  for (Dtype dtype : allDtypes)
    if (name == dtypeName(dtype))
      return dtype;
  return std::nullopt;
}

constexpr std::optional<Dtype> dtypeFromAbi(int32_t value) {
  for (Dtype dtype : allDtypes)
    if (value == static_cast<int32_t>(dtype))
      return dtype;
  return std::nullopt;
}
constexpr std::optional<CastDtype> castDtypeFromAbi(int32_t value) {
  for (CastDtype dtype : allCastDtypes)
    if (value == static_cast<int32_t>(dtype))
      return dtype;
  return std::nullopt;
}

/// The types of states, which also hold counters and the words of random
/// generators, which no collective or kernel sees.
enum class StateDtype {
#define DDPHOOK_STATE_TYPE(NAME, name, bytes, c_type, file) NAME,
#include "ddphook/runtime/element_types.inc"
};

struct StateType {
  StateDtype dtype;
  const char *name; ///< In a plan.
  int64_t bytes;
  std::optional<Dtype> floatDtype; ///< The same type, if it is a Dtype.
};
constexpr StateType stateTypes[] = {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value)                  \
  {StateDtype::NAME, #name, bytes, Dtype::NAME},
#define DDPHOOK_STATE_TYPE(NAME, name, bytes, c_type, file)                    \
  {StateDtype::NAME, #name, bytes, std::nullopt},
#include "ddphook/runtime/element_types.inc"
};

constexpr const StateType &typeOf(StateDtype dtype) {
  return stateTypes[static_cast<size_t>(dtype)];
}
constexpr std::optional<Dtype> floatDtype(StateDtype dtype) {
  return typeOf(dtype).floatDtype;
}
constexpr int64_t stateDtypeSize(StateDtype dtype) {
  return typeOf(dtype).bytes;
}
constexpr const char *stateDtypeName(StateDtype dtype) {
  return typeOf(dtype).name;
}

} // namespace ddphook
