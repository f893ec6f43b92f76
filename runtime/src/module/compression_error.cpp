//===- compression_error.cpp - the loss of compression in a step ----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See compression_error.h. The host's kernels, whose bits are those of every
// device, compute everything on the host; sums are in f64.
//
//===----------------------------------------------------------------------===//
#include "module/compression_error.h"

#include "base/floating_point.h"
#include "kernels/encode.h"
#include "kernels/kernels.h"

#include <algorithm>
#include <cmath>

using namespace ddphook;

/// The number of elements processed together, so that they stay in the caches.
static constexpr int64_t mostElements = 1 << 14;

double LostSquares::relativeError() const {
  if (!std::isfinite(whole))
    return NAN;
  return lost == 0 ? 0 : std::sqrt(lost / whole);
}

void CompressionError::begin() {
  ofCodes.clear();
  ofParts.clear();
  unsent.clear();
}

/// Makes `bytes` bytes of device memory readable at `*host`; copies them to
/// `buffer` if the host cannot read them.
Status CompressionError::read(std::vector<char> *buffer, const void *memory,
                              int64_t bytes, const void **host) const {
  *host = memory;
  if (context.backend().memory_is_host || bytes == 0)
    return Status::ok();
  buffer->resize(static_cast<size_t>(bytes));
  *host = buffer->data();
  return context.call(&ddphook_backend_t::memory_read, buffer->data(), memory,
                      static_cast<uint64_t>(bytes));
}

/// Reads `count` elements of an array from `offset` on, as f64.
Status CompressionError::readWidened(const void *memory, int64_t offset,
                                     int64_t count, Dtype dtype,
                                     std::vector<double> *values) const {
  const int64_t size = dtypeSize(dtype);
  std::vector<char> buffer;
  const void *host = nullptr;
  DDPHOOK_RETURN_IF_ERROR(
      read(&buffer, static_cast<const char *>(memory) + offset * size,
           count * size, &host));
  values->resize(static_cast<size_t>(count));
  host::castArray(host, dtype, values->data(), Dtype::F64, count);
  return Status::ok();
}

/// Returns the type to which elements, or codes without a scale, are rounded.
static std::optional<Dtype> castOf(const PlanCollective &collective) {
  if (!collective.encoding)
    return collective.wire();
  switch (collective.codes()->code) {
  case Code::F16:
    return Dtype::F16;
  case Code::BF16:
    return Dtype::BF16;
  default:
    return std::nullopt;
  }
}

Status CompressionError::measureCodes(const PlanCollective &collective,
                                      int64_t count, const void *in,
                                      const std::optional<Rounding> &rounding,
                                      LostSquares *squares) const {
  const Dtype dtype = collective.type();
  const std::optional<Dtype> cast = castOf(collective);
  // Blocks are encoded whole; a single affine block may be the whole array.
  int64_t step = mostElements;
  if (!cast)
    step = collective.block == 0 ? std::max<int64_t>(count, 1)
                                 : (mostElements + collective.block - 1) /
                                       collective.block * collective.block;
  step = std::min(step, std::max<int64_t>(count, 1));
  // Widen to f32 for scaled codes, so that 16 bits do not round the difference.
  const bool isWidened = !cast && !collective.isAffine() && dtype != Dtype::F64;
  const Dtype lostType = cast ? Dtype::F64 : isWidened ? Dtype::F32 : dtype;
  std::vector<char> buffer, coded(static_cast<size_t>(step * 8));
  std::vector<double> whole(static_cast<size_t>(step)), lost(whole.size());
  for (int64_t at = 0; at < count; at += step) {
    const int64_t n = std::min(step, count - at);
    const void *values = nullptr;
    DDPHOOK_RETURN_IF_ERROR(
        read(&buffer, static_cast<const char *>(in) + at * dtypeSize(dtype),
             n * dtypeSize(dtype), &values));
    host::castArray(values, dtype, whole.data(), Dtype::F64, n);
    if (cast) {
      host::castArray(values, dtype, coded.data(), *cast, n);
      host::castArray(coded.data(), *cast, lost.data(), Dtype::F64, n);
      host::subtractArrays(lost.data(), whole.data(), lost.data(), Dtype::F64,
                           n);
    } else {
      if (isWidened) {
        host::castArray(values, dtype, coded.data(), Dtype::F32, n);
        values = coded.data();
      }
      host::encodingError(values, coded.data(), lostType, n,
                          *collective.codes(), from(rounding, at));
      host::castArray(coded.data(), lostType, lost.data(), Dtype::F64, n);
    }
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      squares->lost += lost[i] * lost[i];
      squares->whole += whole[i] * whole[i];
    }
  }
  return Status::ok();
}

Status CompressionError::measureProducts(const PlanMatrixList &list,
                                         const void *matrix, const void *p,
                                         const void *q,
                                         LostSquares *squares) const {
  std::vector<double> left, right, rows;
  for (const ddphook_matrix_t &one : list.matrices) {
    if (one.rows == 0 || one.columns == 0)
      continue;
    DDPHOOK_RETURN_IF_ERROR(
        readWidened(p, one.p_offset, one.rows * one.rank, list.dtype, &left));
    DDPHOOK_RETURN_IF_ERROR(readWidened(q, one.q_offset, one.columns * one.rank,
                                        list.dtype, &right));
    const int64_t step = std::max<int64_t>(mostElements / one.columns, 1);
    for (int64_t row = 0; row < one.rows; row += step) {
      const int64_t n = std::min(step, one.rows - row);
      DDPHOOK_RETURN_IF_ERROR(readWidened(matrix,
                                          one.offset + row * one.columns,
                                          n * one.columns, list.dtype, &rows));
      for (int64_t i = 0; i < n; ++i) {
        const double *leftRow = left.data() + (row + i) * one.rank;
        const double *values = rows.data() + i * one.columns;
        for (int64_t j = 0; j < one.columns; ++j) {
          const double *rightRow = right.data() + j * one.rank;
          double product = 0;
          for (int64_t k = 0; k < one.rank; ++k)
            product += leftRow[k] * rightRow[k];
          const double lost = values[j] - product;
          squares->lost += lost * lost;
          squares->whole += values[j] * values[j];
        }
      }
    }
  }
  return Status::ok();
}

void CompressionError::seeCollective(int32_t number, const void *in,
                                     int64_t ranks,
                                     const std::optional<Rounding> &rounding) {
  // Errors here must not fail a step; unmeasured values are missing.
  withoutExceptions([&] {
    const PlanCollective &collective =
        plan.collectives[static_cast<size_t>(number)];
    const char *begin = static_cast<const char *>(in);
    const auto sent = unsent.lower_bound(begin);
    const auto end = unsent.lower_bound(begin + collective.memoryBytes(ranks));
    for (auto part = sent; part != end; ++part)
      ofParts[collective.bucket] += part->second;
    unsent.erase(sent, end);
    if (!collective.wire() && !collective.encoding)
      return Status::ok();
    // Codes are those of a part of a node's sum, not of this rank's elements.
    if (plan.processGroups[collective.group].isHierarchical &&
        collective.is(CollectiveKind::AllReduce))
      return Status::ok();
    DefaultFloatingPoint environment;
    LostSquares squares;
    DDPHOOK_RETURN_IF_ERROR(measureCodes(
        collective, collective.contributed(ranks), in, rounding, &squares));
    ofCodes[collective.bucket] += squares;
    return Status::ok();
  }).ignore();
}

void CompressionError::seeProduct(int32_t number, const void *matrix,
                                  const void *p, const void *q) {
  withoutExceptions([&] {
    const PlanMatrixList &list = plan.matrixLists[static_cast<size_t>(number)];
    // The products are those of a node's sum, not of this rank's gradient.
    if (list.deal)
      return Status::ok();
    const auto first =
        std::find_if(list.matrices.begin(), list.matrices.end(),
                     [](const ddphook_matrix_t &one) {
                       return one.rows > 0 && one.columns > 0 && one.rank > 0;
                     });
    if (first == list.matrices.end())
      return Status::ok();
    LostSquares squares;
    DDPHOOK_RETURN_IF_ERROR(measureProducts(list, matrix, p, q, &squares));
    unsent[static_cast<const char *>(q) +
           first->q_offset * dtypeSize(list.dtype)] = squares;
    return Status::ok();
  }).ignore();
}

/// Adds the squares of an f32 array.
Status CompressionError::addSquares(const void *memory, int64_t count,
                                    double *sum) const {
  std::vector<double> values;
  for (int64_t at = 0; at < count; at += mostElements) {
    DDPHOOK_RETURN_IF_ERROR(readWidened(
        memory, at, std::min(mostElements, count - at), Dtype::F32, &values));
    for (double value : values)
      *sum += value * value;
  }
  return Status::ok();
}

void CompressionError::seeEntries(int64_t keep, const void *entries,
                                  const void *rest, int64_t count) {
  withoutExceptions([&] {
    DefaultFloatingPoint environment;
    LostSquares squares;
    DDPHOOK_RETURN_IF_ERROR(addSquares(rest, count, &squares.lost));
    // The array itself may be gone: `rest` may have overwritten it. Elements
    // that are not finite are among the entries, if there are any.
    squares.whole = squares.lost;
    DDPHOOK_RETURN_IF_ERROR(addSquares(entries, keep, &squares.whole));
    unsent[static_cast<const char *>(entries)] = squares;
    return Status::ok();
  }).ignore();
}

std::map<std::string, double> CompressionError::relativeErrors() const {
  std::map<std::string, double> errors;
  for (const auto &[bucket, squares] : ofCodes)
    errors[bucket] = squares.relativeError();
  // The codes of a bucket that is sent in parts are not those of gradients.
  for (const auto &[bucket, squares] : ofParts)
    errors[bucket] = squares.relativeError();
  return errors;
}
