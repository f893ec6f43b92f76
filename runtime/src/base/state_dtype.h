// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// States hold elements for collectives, and also counters and the words of
// random generators, which no collective or kernel sees.

#pragma once

#include "base/dtype.h"

namespace ddphook {

enum class StateDtype {
#define DDPHOOK_STATE_TYPE(NAME, name, bytes, c_type, file) NAME,
#include "ddphook/runtime/element_types.inc"
};

constexpr StateDtype allStateDtypes[] = {
#define DDPHOOK_STATE_TYPE(NAME, name, bytes, c_type, file) StateDtype::NAME,
#include "ddphook/runtime/element_types.inc"
};

/// Returns the corresponding floating-point type, or nullopt.
constexpr std::optional<Dtype> floatDtype(StateDtype dtype) {
  switch (dtype) {
#define DDPHOOK_DTYPE(NAME, name, bytes, c_type, file, value)                  \
  case StateDtype::NAME:                                                       \
    return Dtype::NAME;
#define DDPHOOK_STATE_TYPE(NAME, name, bytes, c_type, file)                    \
  case StateDtype::NAME:                                                       \
    break;
#include "ddphook/runtime/element_types.inc"
  }
  return std::nullopt;
}

constexpr int64_t stateDtypeSize(StateDtype dtype) {
  switch (dtype) {
#define DDPHOOK_STATE_TYPE(NAME, name, bytes, c_type, file)                    \
  case StateDtype::NAME:                                                       \
    return bytes;
#include "ddphook/runtime/element_types.inc"
  }
  return 0;
}

/// Returns its name in a plan.
constexpr const char *stateDtypeName(StateDtype dtype) {
  switch (dtype) {
#define DDPHOOK_STATE_TYPE(NAME, name, bytes, c_type, file)                    \
  case StateDtype::NAME:                                                       \
    return #name;
#include "ddphook/runtime/element_types.inc"
  }
  return "unknown";
}

} // namespace ddphook
