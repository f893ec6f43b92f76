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

Status ArgumentCheck::checkArray(const void *array, const char *name) const {
  if (array || elements == 0)
    return Status::ok();
  return invalid("expected an array '%s', but got a null pointer", name);
}

Status ArgumentCheck::check(const role::In &array) const {
  return checkArray(array.value, array.name);
}

Status ArgumentCheck::check(const role::Out &array) const {
  return checkArray(array.value, array.name);
}

Status ArgumentCheck::check(const role::OptionalIn &) const {
  if (hasOptional && lacksOptional)
    return invalid(
        "expected both arrays of error feedback or none, but got one");
  return Status::ok();
}

Status ArgumentCheck::checkRest(const void *rest) const {
  const auto &pieces =
      module.plan.matrixLists[static_cast<size_t>(list)].pieces;
  if (rest || std::all_of(pieces.begin(), pieces.end(),
                          [](const ddphook_piece_t &piece) {
                            return piece.count == 0;
                          }))
    return Status::ok();
  return error(
      DDPHOOK_INVALID_ARGUMENT,
      "expected an array for the remaining elements, but got a null pointer");
}

Status ArgumentCheck::check(const role::Rest &array) const {
  return checkRest(array.value);
}

Status ArgumentCheck::check(const role::RestOut &array) const {
  return checkRest(array.value);
}

Status ArgumentCheck::check(const role::Count &count) const {
  if (count.value >= 0)
    return Status::ok();
  return invalid("expected a count of at least 0, but got %lld",
                 static_cast<long long>(count.value));
}

Status ArgumentCheck::check(const role::ElementType &type) const {
  if (dtypeFromAbi(type.value))
    return Status::ok();
  return invalid("expected the number of an element type to compute with, but "
                 "got %d",
                 type.value);
}

Status ArgumentCheck::check(const role::CastType &type) const {
  if (castDtypeFromAbi(type.value))
    return Status::ok();
  return invalid("expected the number of an element type, but got %d",
                 type.value);
}

Status ArgumentCheck::check(const role::EncodingType &type) const {
  if (codeFromAbi(type.value))
    return Status::ok();
  return invalid("expected the number of an encoding, but got %d", type.value);
}

Status ArgumentCheck::check(const role::Block &block) const {
  const std::optional<Code> code = codeFromAbi(encoding);
  if (code && isBlockOf(*code, block.value))
    return Status::ok();
  return invalid("expected a block of encoding %d, but got %lld elements",
                 encoding, static_cast<long long>(block.value));
}

Status ArgumentCheck::check(const role::Group &group) const {
  return checkNumber(group.value, module.groups.size(), "process groups");
}

Status ArgumentCheck::check(const role::OptionalGroup &group) const {
  return group.value == -1 ? Status::ok()
                           : check(role::Group{group.value, group.name});
}

Status ArgumentCheck::check(const role::OptionalRank &group) const {
  const std::optional<Code> code = codeFromAbi(encoding);
  if (group.value != -1 && code && codeKind(*code) != CodeKind::SCALED)
    return invalid(
        "expected no process group, because encoding %d has no scale "
        "for each block, but got %d",
        encoding, group.value);
  return check(role::OptionalGroup{group.value, group.name});
}

Status ArgumentCheck::check(const role::Matrices &number) const {
  return checkNumber(number.value, module.matrices.size(), "matrix lists");
}

Status ArgumentCheck::check(const role::Product &product) const {
  if (product.value >= DDPHOOK_MATMUL_P && product.value <= DDPHOOK_MATMUL_M)
    return Status::ok();
  return invalid("expected a product from %d to %d, but got %d",
                 DDPHOOK_MATMUL_P, DDPHOOK_MATMUL_M, product.value);
}

Status ArgumentCheck::check(const role::Factor &factor) const {
  if (factor.value >= DDPHOOK_FACTOR_P &&
      factor.value <= (DDPHOOK_FACTOR_Q | DDPHOOK_UNIT_COLUMNS |
                       DDPHOOK_INDEPENDENT_COLUMNS))
    return Status::ok();
  return invalid("expected a factor, %d or %d, optionally plus %d for unit "
                 "columns and %d for independent columns, but got %d",
                 DDPHOOK_FACTOR_P, DDPHOOK_FACTOR_Q, DDPHOOK_UNIT_COLUMNS,
                 DDPHOOK_INDEPENDENT_COLUMNS, factor.value);
}
