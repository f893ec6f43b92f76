// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See compression_error.h. The device decodes what it has encoded, in memory of
// its own, and sums the squares of the difference.

#include "module/compression_error.h"

#include "base/floating_point.h"
#include "module/module_memory.h"

#include <cmath>

using namespace ddphook;

namespace {
/// Calls the device until one call fails.
struct Measurement {
  explicit Measurement(Context &context) : context(context) {}

  template <typename Function, typename... Arguments>
  void call(Function function, const Arguments &...arguments) {
    if (status.isOk())
      status = context.call(function, arguments...);
  }
  char *allocate(DeviceMemory &memory, int64_t bytes) {
    if (status.isOk())
      status = memory.allocate(context, {bytes});
    return memory.get();
  }
  void addSquares(const void *in, int64_t count, int32_t type, double *sum) {
    double found = 0;
    if (count > 0)
      call(&ddphook_backend_t::sum_squares, in, count, type, &found);
    *sum += found;
  }

  Context &context;
  Status status;
  LostSquares squares;
};
} // namespace

double LostSquares::relativeError() const {
  if (!std::isfinite(whole))
    return NAN;
  return lost == 0 ? 0 : std::sqrt(lost / whole);
}

void CompressionError::begin() {
  ofCodes.clear();
  ofParts.clear();
}

/// Adds what `function` measures. An error here must not fail a step: the
/// values are then missing.
template <typename Function>
void CompressionError::measure(const std::string &bucket, Sums *sums,
                               Function &&function) {
  ignoreExceptions([&] {
    DefaultFloatingPoint environment;
    Measurement measurement(context);
    function(measurement);
    if (measurement.status.isOk())
      (*sums)[bucket] += measurement.squares;
  });
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

/// Measures what this rank's codes lose of its operand in a collective.
static void measureCodes(Measurement &at, const PlanCollective &collective,
                         int64_t count, const void *in, int32_t rank,
                         int64_t step) {
  const std::optional<Dtype> cast = castOf(collective);
  // Widen to f32, so that 16 bits do not round the difference. Affine codes
  // depend on the type.
  const bool isWide =
      collective.type() == Dtype::F64 || (!cast && collective.isAffine());
  const Dtype dtype = isWide ? collective.type() : Dtype::F32;
  const auto type = static_cast<int32_t>(dtype);
  const int64_t bytes = count * dtypeSize(dtype);
  DeviceMemory elements, coded, decoded;
  char *const lost = at.allocate(elements, bytes);
  if (type == collective.dtype)
    at.call(&ddphook_backend_t::copy, in, lost, bytes);
  else
    at.call(&ddphook_backend_t::cast, in, collective.dtype, lost, type, count);
  at.addSquares(lost, count, type, &at.squares.whole);
  if (cast) {
    const auto wire = static_cast<int32_t>(*cast);
    char *const there = at.allocate(coded, count * dtypeSize(*cast));
    char *const back = at.allocate(decoded, bytes);
    at.call(&ddphook_backend_t::cast, lost, type, there, wire, count);
    at.call(&ddphook_backend_t::cast, there, wire, back, type, count);
    at.call(&ddphook_backend_t::subtract, lost, back, lost, count, type);
  } else {
    at.call(&ddphook_backend_t::encoding_error, lost, lost, count, type,
            collective.encoding, collective.block,
            collective.stream < 0 ? -1 : rank, collective.stream, step);
  }
  at.addSquares(lost, count, type, &at.squares.lost);
}

void CompressionError::seeCollective(int32_t number, const void *in,
                                     int64_t ranks, int32_t rank,
                                     int64_t step) {
  const PlanCollective &collective = plan.collectives[number];
  if (!collective.wire() && !collective.encoding)
    return;
  // Codes are those of a part of a node's sum, not of this rank's elements.
  if (plan.processGroups[collective.group].isHierarchical &&
      collective.is(CollectiveKind::AllReduce))
    return;
  measure(collective.bucket, &ofCodes, [&](Measurement &at) {
    if (const int64_t count = collective.contributed(ranks))
      measureCodes(at, collective, count, in, rank, step);
  });
}

void CompressionError::seeProduct(const PlanBucket &bucket,
                                  const PlanMatrixList &list,
                                  ddphook_matrices_t *prepared,
                                  const void *matrix, const void *p,
                                  const void *q) {
  const int64_t size = dtypeSize(list.dtype), count = list.end - list.begin;
  if (count == 0)
    return;
  measure(bucket.name, &ofParts, [&](Measurement &at) {
    const auto type = static_cast<int32_t>(list.dtype);
    DeviceMemory memory;
    char *const lost = at.allocate(memory, list.end * size);
    if (!lost)
      return;
    char *const begin = lost + list.begin * size;
    const char *const in =
        static_cast<const char *>(matrix) + list.begin * size;
    // Adds the squares of all elements but the pieces, which are sent whole.
    auto addMatrices = [&](double *sum) {
      for (const ddphook_piece_t &piece : list.pieces)
        if (piece.count > 0)
          at.call(&ddphook_backend_t::zero, lost + piece.offset * size,
                  piece.count * size);
      at.addSquares(begin, count, type, sum);
    };
    at.call(&ddphook_backend_t::copy, in, begin, count * size);
    addMatrices(&at.squares.whole);
    at.call(&ddphook_backend_t::matmul, prepared, int32_t{DDPHOOK_MATMUL_M},
            lost, const_cast<void *>(p), const_cast<void *>(q));
    at.call(&ddphook_backend_t::subtract, in, begin, begin, count, type);
    addMatrices(&at.squares.lost);
  });
}

void CompressionError::seeEntries(const PlanBucket &bucket, int64_t keep,
                                  const void *entries, const void *rest,
                                  int64_t count) {
  measure(bucket.name, &ofParts, [&](Measurement &at) {
    at.addSquares(rest, count, DDPHOOK_F32, &at.squares.lost);
    // The array itself may be gone: `rest` may have overwritten it. Elements
    // that are not finite are among the entries, if there are any.
    at.squares.whole = at.squares.lost;
    at.addSquares(entries, keep, DDPHOOK_F32, &at.squares.whole);
  });
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
