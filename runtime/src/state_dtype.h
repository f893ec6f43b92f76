//===- state_dtype.h - element types of states ------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// States hold what collectives work on, and also counters and the words of
// random generators, which no collective and no kernel sees.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_STATE_DTYPE_H
#define DDPHOOK_RUNTIME_SRC_STATE_DTYPE_H

#include "dtype.h"

namespace ddphook {

enum class StateDtype { F16, BF16, F32, F64, I32, I64 };

constexpr StateDtype allStateDtypes[] = {StateDtype::F16, StateDtype::BF16,
                                         StateDtype::F32, StateDtype::F64,
                                         StateDtype::I32, StateDtype::I64};

/// The floating-point type that it is, or nothing.
constexpr std::optional<Dtype> floatDtype(StateDtype dtype) {
  switch (dtype) {
  case StateDtype::F16:
    return Dtype::F16;
  case StateDtype::BF16:
    return Dtype::BF16;
  case StateDtype::F32:
    return Dtype::F32;
  case StateDtype::F64:
    return Dtype::F64;
  case StateDtype::I32:
  case StateDtype::I64:
    break;
  }
  return std::nullopt;
}

constexpr int64_t stateDtypeSize(StateDtype dtype) {
  if (std::optional<Dtype> type = floatDtype(dtype))
    return dtypeSize(*type);
  return dtype == StateDtype::I32 ? 4 : 8;
}

/// Its name in a plan.
constexpr const char *stateDtypeName(StateDtype dtype) {
  if (std::optional<Dtype> type = floatDtype(dtype))
    return dtypeName(*type);
  return dtype == StateDtype::I32 ? "i32" : "i64";
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_STATE_DTYPE_H
