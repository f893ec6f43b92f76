//===- powersgd_bucket.cpp - PowerSGD on a bucket, to be timed ------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See powersgd_bucket.h.
//
//===----------------------------------------------------------------------===//
#include "powersgd_bucket.h"

#include "backend/backend_store.h"
#include "base/dtype.h"
#include "base/random.h"

#include <algorithm>
#include <cmath>

using namespace ddphook;
using namespace ddphook::bench;

static int64_t countElements(const std::vector<int64_t> &tensor) {
  return tensor.size() == 2 ? tensor[0] * tensor[1] : tensor[0];
}

int64_t BucketShape::elements() const {
  int64_t sum = 0;
  for (const std::vector<int64_t> &tensor : tensors)
    sum += countElements(tensor);
  return sum;
}

BucketShape bench::layers(int64_t elements) {
  const int64_t side = elements >= 1 << 20 ? 1024 : 64;
  BucketShape shape{"layers", {}};
  for (int64_t rows = elements / side; rows > 0; rows -= side) {
    shape.tensors.push_back({std::min(rows, side), side});
    shape.tensors.push_back({std::min(rows, side)});
  }
  return shape;
}

BucketShape bench::tall(int64_t elements) {
  return {"a tall matrix", {{std::max<int64_t>(elements / 64, 1), 64}}};
}

BucketShape bench::squares(int64_t elements, int64_t count) {
  const auto side = static_cast<int64_t>(
      std::sqrt(static_cast<double>(elements) / static_cast<double>(count)));
  return {count == 1 ? "one matrix" : std::to_string(count) + " matrices",
          std::vector<std::vector<int64_t>>(
              static_cast<size_t>(count),
              {std::max<int64_t>(side, 1), std::max<int64_t>(side, 1)})};
}

/// Returns 32 well mixed bits for each number, as torch_hooks.py does.
static uint32_t mixedBits(int64_t i) {
  auto bits = static_cast<uint32_t>(i);
  bits = (bits ^ bits >> 16) * 0x7feb352du;
  bits = (bits ^ bits >> 15) * 0x846ca68bu;
  return bits ^ bits >> 16;
}

float bench::fullRankElement(int64_t i) {
  return static_cast<float>(static_cast<int32_t>(mixedBits(i)) * 0x1p-31);
}

std::array<double, 5> bench::fingerprint(const float *x, int64_t n) {
  std::array<double, 5> values = {};
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i];
    const uint32_t bits = mixedBits(i);
    values[0] += value * value;
    for (unsigned k = 0; k < 4; ++k)
      values[k + 1] += bits >> k & 1 ? -value : value;
  }
  values[0] = std::sqrt(values[0]);
  return values;
}

/// PyTorch's rule, with its default rate of at least 2.
static bool isCompressed(const std::vector<int64_t> &tensor, int64_t rank) {
  return tensor.size() == 2 &&
         (tensor[0] + tensor[1]) * std::min({rank, tensor[0], tensor[1]}) * 2 <
             tensor[0] * tensor[1];
}

PowerSgdBucket::PowerSgdBucket(WorkDevice &device, const BucketShape &shape,
                               int64_t rank, int64_t groupElements)
    : device(device), n(shape.elements()) {
  int64_t offset = 0;
  for (const std::vector<int64_t> &tensor : shape.tensors) {
    const int64_t count = countElements(tensor);
    if (lists.empty() || offset + count - lists.back().begin > groupElements) {
      lists.emplace_back();
      lists.back().begin = offset;
      lists.back().packedBegin = packedSize;
      lists.back().qBegin = qSize;
    }
    addTensor(tensor, rank, offset);
    offset += count;
    lists.back().end = offset;
    lists.back().packedEnd = packedSize;
    lists.back().qEnd = qSize;
  }
}

void PowerSgdBucket::addTensor(const std::vector<int64_t> &tensor, int64_t rank,
                               int64_t offset) {
  List &list = lists.back();
  if (!isCompressed(tensor, rank)) {
    const int64_t count = countElements(tensor);
    list.pieces.push_back({offset, packedSize, count});
    packedSize += count;
    return;
  }
  const int64_t r = std::min({rank, tensor[0], tensor[1]});
  list.matrices.push_back({offset, packedSize, qSize, tensor[0], tensor[1], r});
  packedSize += tensor[0] * r;
  qSize += tensor[1] * r;
  draws.push_back(tensor[1] * r);
}

PowerSgdBucket::~PowerSgdBucket() {
  for (List &list : lists)
    if (list.prepared)
      device.table().matrices_destroy(device.get(), list.prepared);
}

Status PowerSgdBucket::prepare(int jobRank) {
  for (std::unique_ptr<DeviceArray> *array : {&g, &e, &out})
    DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 4 * n, array));
  DDPHOOK_RETURN_IF_ERROR(
      DeviceArray::allocate(device, 4 * packedSize, &packed));
  DDPHOOK_RETURN_IF_ERROR(DeviceArray::allocate(device, 4 * qSize, &q));
  std::vector<float> gradient(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    gradient[static_cast<size_t>(i)] = fullRankElement(jobRank * n + i);
  DDPHOOK_RETURN_IF_ERROR(g->write(gradient.data(), 4 * n));
  for (List &list : lists) {
    const ddphook_matrix_list_t view = {
        sizeof(view),
        list.begin,
        list.end,
        list.matrices.data(),
        static_cast<int64_t>(list.matrices.size()),
        list.pieces.data(),
        static_cast<int64_t>(list.pieces.size())};
    ddphook_backend_error_t message = {};
    DDPHOOK_RETURN_IF_ERROR(fromBackendError(
        device.table().matrices_create(device.get(), &view, DDPHOOK_F32,
                                       &list.prepared, &message),
        message));
  }
  return reset();
}

Status PowerSgdBucket::reset() {
  DDPHOOK_RETURN_IF_ERROR(e->fill(0));
  DDPHOOK_RETURN_IF_ERROR(out->fill(0xff));
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(0, generator.data());
  std::vector<float> numbers(static_cast<size_t>(qSize));
  DDPHOOK_RETURN_IF_ERROR(drawNormal(generator.data(), draws.data(),
                                     static_cast<int64_t>(draws.size()),
                                     numbers.data(), Dtype::F32));
  return q->write(numbers.data(), 4 * qSize);
}

/// Sums P and the rest, or Q, over the ranks. PyTorch divides the rest and Q,
/// and orthogonalizes P undivided.
Status PowerSgdBucket::finishReduction(const List &list, const Reduce &reduce,
                                       int64_t worldSize, bool isQ) {
  float *const factors = packed->as<float>();
  auto divide = [&](float *data, int64_t count) {
    ddphook_backend_error_t message = {};
    return fromBackendError(
        device.table().divide_by_group_size(device.get(), worldSize, data, data,
                                            count, DDPHOOK_F32, &message),
        message);
  };
  if (isQ) {
    float *const begin = q->as<float>() + list.qBegin;
    DDPHOOK_RETURN_IF_ERROR(reduce(begin, list.qEnd - list.qBegin));
    return divide(begin, list.qEnd - list.qBegin);
  }
  DDPHOOK_RETURN_IF_ERROR(
      reduce(factors + list.packedBegin, list.packedEnd - list.packedBegin));
  for (const ddphook_piece_t &piece : list.pieces)
    DDPHOOK_RETURN_IF_ERROR(divide(factors + piece.rest_offset, piece.count));
  return Status::ok();
}

Status PowerSgdBucket::step(const Reduce &reduce, int64_t worldSize) {
  const ddphook_backend_t &backend = device.table();
  ddphook_device_t *const on = device.get();
  ddphook_backend_error_t message = {};
  void *const factors = packed->as<void>();
  void *const qs = q->as<void>();
  void *const m = e->as<void>();
  auto check = [&](ddphook_status_t code) {
    return fromBackendError(code, message);
  };
  for (const List &list : lists) {
    DDPHOOK_RETURN_IF_ERROR(check(backend.orthogonalize(
        on, list.prepared, DDPHOOK_FACTOR_Q, qs, qs, 0, &message)));
    DDPHOOK_RETURN_IF_ERROR(
        check(backend.project(on, list.prepared, g->as<void>(), m, qs, m,
                              factors, factors, &message)));
    if (reduce)
      DDPHOOK_RETURN_IF_ERROR(
          finishReduction(list, reduce, worldSize, /*isQ=*/false));
    DDPHOOK_RETURN_IF_ERROR(check(backend.orthogonalize(
        on, list.prepared, DDPHOOK_FACTOR_P, factors, factors, 0, &message)));
    DDPHOOK_RETURN_IF_ERROR(check(backend.matmul(
        on, list.prepared, DDPHOOK_MATMUL_Q, m, factors, qs, &message)));
    if (reduce)
      DDPHOOK_RETURN_IF_ERROR(
          finishReduction(list, reduce, worldSize, /*isQ=*/true));
    DDPHOOK_RETURN_IF_ERROR(
        check(backend.reconstruct(on, list.prepared, factors, qs, factors, m,
                                  out->as<void>(), m, 1, &message)));
  }
  return Status::ok();
}

Status PowerSgdBucket::read(const DeviceArray &array,
                            std::vector<float> *values) const {
  values->resize(static_cast<size_t>(n));
  return array.read(values->data(), 4 * n);
}

Status PowerSgdBucket::readResult(std::vector<float> *values) const {
  return read(*out, values);
}

Status PowerSgdBucket::readError(std::vector<float> *values) const {
  return read(*e, values);
}

Status PowerSgdBucket::describe(std::vector<double> *values) const {
  values->clear();
  for (const DeviceArray *array : {out.get(), e.get()}) {
    std::vector<float> numbers;
    DDPHOOK_RETURN_IF_ERROR(read(*array, &numbers));
    for (double value : fingerprint(numbers.data(), n))
      values->push_back(value);
  }
  return Status::ok();
}

bool bench::areNear(const std::vector<double> &ours,
                    const std::vector<double> &theirs) {
  bool right = ours.size() == 10 && theirs.size() == 10;
  for (size_t i = 0; i < 10 && right; ++i)
    right = std::abs(ours[i] - theirs[i]) <= 1e-4 * ours[i < 5 ? 0 : 5];
  return right;
}

Status bench::checkFirstStep(const PowerSgdBucket &bucket, bool *right) {
  std::vector<float> out, err;
  DDPHOOK_RETURN_IF_ERROR(bucket.readResult(&out));
  DDPHOOK_RETURN_IF_ERROR(bucket.readError(&err));
  double wrong = 0, whole = 0, parts = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double g = fullRankElement(static_cast<int64_t>(i));
    const double approximation = out[i], residual = err[i];
    // A NaN stays in the sums.
    wrong = std::max(wrong, std::abs(approximation + residual - g));
    whole += g * g;
    parts += approximation * approximation + residual * residual;
  }
  *right = wrong < 1e-5 && std::abs(parts - whole) < 1e-4 * whole;
  return Status::ok();
}
