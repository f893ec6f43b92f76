// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "module/device_call.h"

#include "base/encoding.h"

#include <algorithm>

using namespace ddphook;

/// Checks that `number` is from 0 to `count` - 1; `things` names the numbered.
static Status checkNumber(int32_t number, size_t count, const char *things) {
  if (number >= 0 && static_cast<size_t>(number) < count)
    return Status::ok();
  return invalid("expected one of %zu %s, but got %d", count, things, number);
}

Status ArgumentCheck::check(Role role, const char *name, const void *array,
                            int64_t number) const {
  const auto value = static_cast<int32_t>(number);
  const std::optional<Code> code = codeFromAbi(encoding);
  switch (role) {
  case Role::In:
  case Role::Out:
    if (!array && elements != 0)
      return invalid("expected an array '%s', but got a null pointer", name);
    break;
  case Role::OptionalIn:
    if (hasOptional && lacksOptional)
      return invalid(
          "expected both arrays of error feedback or none, but got one");
    break;
  case Role::Rest:
  case Role::RestOut: {
    const auto &pieces = module.plan.matrixLists[list].pieces;
    if (!array && std::any_of(pieces.begin(), pieces.end(),
                              [](const ddphook_piece_t &piece) {
                                return piece.count != 0;
                              }))
      return invalid("expected an array for the remaining elements, but got a "
                     "null pointer");
    break;
  }
  case Role::Count:
    if (number < 0)
      return invalid(
          concat("expected a count of at least 0, but got ", number));
    break;
  case Role::ElementType:
    if (!dtypeFromAbi(value))
      return invalid("expected the number of an element type to compute with, "
                     "but got %d",
                     value);
    break;
  case Role::CastType:
    if (!castDtypeFromAbi(value))
      return invalid("expected the number of an element type, but got %d",
                     value);
    break;
  case Role::EncodingType:
    if (!code)
      return invalid("expected the number of an encoding, but got %d", value);
    break;
  case Role::Block:
    if (!code || !isBlockOf(*code, number))
      return invalid(concat("expected a block of encoding ", encoding,
                            ", but got ", number, " elements"));
    break;
  case Role::OptionalRank:
    if (value != -1 && code && codeKind(*code) != CodeKind::SCALED)
      return invalid(
          "expected no process group, because encoding %d has no scale "
          "for each block, but got %d",
          encoding, value);
    [[fallthrough]];
  case Role::OptionalGroup:
    if (value == -1)
      break;
    [[fallthrough]];
  case Role::Group:
    return checkNumber(value, module.groups.size(), "process groups");
  case Role::Matrices:
    return checkNumber(value, module.matrices.size(), "matrix lists");
  case Role::Product:
    if (value < DDPHOOK_MATMUL_P || value > DDPHOOK_MATMUL_M)
      return invalid("expected a product from %d to %d, but got %d",
                     DDPHOOK_MATMUL_P, DDPHOOK_MATMUL_M, value);
    break;
  case Role::Factor:
    if (value < DDPHOOK_FACTOR_P ||
        value > (DDPHOOK_FACTOR_Q | DDPHOOK_UNIT_COLUMNS |
                 DDPHOOK_INDEPENDENT_COLUMNS))
      return invalid("expected a factor, %d or %d, optionally plus %d for unit "
                     "columns and %d for independent columns, but got %d",
                     DDPHOOK_FACTOR_P, DDPHOOK_FACTOR_Q, DDPHOOK_UNIT_COLUMNS,
                     DDPHOOK_INDEPENDENT_COLUMNS, value);
    break;
  case Role::OptionalOut:
  case Role::Integer:
  case Role::Number:
    break;
  }
  return Status::ok();
}
