// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// PowerSGD without its collectives, next to PyTorch's hook in a group of one
// and the best copy of 28 bytes per element; and a bucket for other benchmarks.

#include "powersgd.h"

#include "base/random.h"

#include <algorithm>
#include <cmath>
#include <deque>

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

Json BucketShape::torch(int64_t rank) const {
  return {{"hook", "powersgd"}, {"shapes", tensors}, {"rank", rank}};
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

BucketShape bench::matrices(int64_t elements, int64_t count, int64_t columns) {
  const int64_t each = std::max<int64_t>(elements / count, 1);
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(each)));
  const std::vector<int64_t> matrix = {
      columns ? std::max<int64_t>(each / columns, 1) : side,
      columns ? columns : side};
  return {count > 1 ? std::to_string(count) + " matrices"
          : columns ? "a tall matrix"
                    : "one matrix",
          std::vector<std::vector<int64_t>>(count, matrix)};
}

bool bench::isCompressed(const std::vector<int64_t> &tensor, int64_t rank) {
  return tensor.size() == 2 &&
         (tensor[0] + tensor[1]) * std::min({rank, tensor[0], tensor[1]}) * 2 <
             tensor[0] * tensor[1];
}

PowerSgd::PowerSgd(Context &context, const BucketShape &shape, int64_t rank,
                   int64_t groupElements, Group *group)
    : context(context), group(group), n(shape.elements()), g(context),
      e(context), out(context), packed(context), q(context) {
  for (const std::vector<int64_t> &tensor : shape.tensors) {
    const auto [offset, atP, atQ] = total;
    const int64_t count = countElements(tensor);
    if (lists.empty() ||
        offset + count - lists.back().begin.bucket > groupElements)
      lists.emplace_back().begin = total;
    List &list = lists.back();
    if (isCompressed(tensor, rank)) {
      const int64_t r = std::min({rank, tensor[0], tensor[1]});
      list.matrices.push_back({offset, atP, atQ, tensor[0], tensor[1], r});
      draws.push_back(tensor[1] * r);
      total = {offset + count, atP + tensor[0] * r, atQ + tensor[1] * r};
    } else {
      list.pieces.push_back({offset, atP, count});
      total = {offset + count, atP + count, atQ};
    }
    list.end = total;
  }
}

PowerSgd::~PowerSgd() {
  for (List &list : lists)
    if (list.prepared)
      context.backend().matrices_destroy(context.device(), list.prepared);
}

Status PowerSgd::prepare() {
  for (Array *array : {&g, &e, &out})
    DDPHOOK_TRY(array->allocate(4 * n));
  DDPHOOK_TRY(packed.allocate(4 * total.packed));
  DDPHOOK_TRY(q.allocate(4 * total.q));
  DDPHOOK_TRY(g.write(inputOf(n, context.rank()).data(), 4 * n));
  for (List &list : lists) {
    const ddphook_matrix_list_t view = {
        sizeof(view),
        list.begin.bucket,
        list.end.bucket,
        list.matrices.data(),
        static_cast<int64_t>(list.matrices.size()),
        list.pieces.data(),
        static_cast<int64_t>(list.pieces.size())};
    DDPHOOK_TRY(context.call(&ddphook_backend_t::matrices_create, &view,
                             DDPHOOK_F32, &list.prepared));
  }
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(0, generator.data());
  std::vector<float> numbers(static_cast<size_t>(total.q));
  DDPHOOK_TRY(drawNormal(generator.data(), draws.data(), draws.size(),
                         numbers.data(), Dtype::F32));
  return q.write(numbers.data(), 4 * total.q);
}

Status PowerSgd::reduce(float *data, int64_t count) {
  return group->run(
      allReduceOf(count, Dtype::F32, std::nullopt, /*isMean=*/false), data,
      data);
}

Status PowerSgd::divide(float *data, int64_t count) {
  return context.call(&ddphook_backend_t::divide_by_group_size,
                      context.worldSize(), data, data, count, DDPHOOK_F32);
}

Status PowerSgd::step() {
  auto *const factors = packed.as<float>(), *const qs = q.as<float>();
  void *const m = e.as<>();
  for (const List &list : lists) {
    ddphook_matrices_t *const with = list.prepared;
    const Offsets &begin = list.begin, &end = list.end;
    DDPHOOK_TRY(context.call(&ddphook_backend_t::orthogonalize, with,
                             DDPHOOK_FACTOR_Q, qs, qs, 0.0));
    DDPHOOK_TRY(context.call(&ddphook_backend_t::project, with, g.as<>(), m, qs,
                             m, factors, factors));
    // PyTorch divides the rest and Q, and orthogonalizes P undivided.
    if (group) {
      DDPHOOK_TRY(reduce(factors + begin.packed, end.packed - begin.packed));
      for (const ddphook_piece_t &piece : list.pieces)
        DDPHOOK_TRY(divide(factors + piece.rest_offset, piece.count));
    }
    DDPHOOK_TRY(context.call(&ddphook_backend_t::orthogonalize, with,
                             DDPHOOK_FACTOR_P, factors, factors, 0.0));
    DDPHOOK_TRY(context.call(&ddphook_backend_t::matmul, with, DDPHOOK_MATMUL_Q,
                             m, factors, qs));
    if (group) {
      DDPHOOK_TRY(reduce(qs + begin.q, end.q - begin.q));
      DDPHOOK_TRY(divide(qs + begin.q, end.q - begin.q));
    }
    DDPHOOK_TRY(context.call(&ddphook_backend_t::reconstruct, with, factors, qs,
                             factors, m, out.as<>(), m, int64_t(1)));
  }
  return Status::ok();
}

Status PowerSgd::checkFirstStep(bool *right) {
  const std::vector<float> poison(static_cast<size_t>(n), NAN);
  DDPHOOK_TRY(out.write(poison.data(), 4 * n));
  DDPHOOK_TRY(step());
  std::vector<float> result(poison.size()), error(poison.size());
  DDPHOOK_TRY(out.read(result.data(), 4 * n));
  DDPHOOK_TRY(e.read(error.data(), 4 * n));
  if (context.worldSize() > 1) {
    std::vector<std::string> all;
    const std::string_view bytes(reinterpret_cast<const char *>(result.data()),
                                 result.size() * sizeof(float));
    DDPHOOK_TRY(context.allGather(
        "results", std::to_string(std::hash<std::string_view>()(bytes)), &all));
    *right = std::isfinite(result.front()) &&
             std::equal(all.begin() + 1, all.end(), all.begin());
    return Status::ok();
  }
  double wrong = 0, whole = 0, parts = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    const double gradient = inputElement(static_cast<int64_t>(i), 0);
    const double approximation = result[i], residual = error[i];
    // A NaN stays in the sums.
    wrong = std::max(wrong, std::abs(approximation + residual - gradient));
    whole += gradient * gradient;
    parts += approximation * approximation + residual * residual;
  }
  *right = wrong < 1e-5 && std::abs(parts - whole) < 1e-4 * whole;
  return Status::ok();
}

Status bench::benchPowerSgd(Rank &rank) {
  const int64_t bucket = rank.options.elements(), large = 4 * bucket;
  std::vector<BucketShape> shapes = {
      layers(bucket), matrices(bucket, 1), matrices(bucket, 100),
      layers(large),  matrices(large, 1),  matrices(large, 100)};
  std::vector<int64_t> ranks = {1, 2, 4, 8}, groupMbs = {0, 4};
  if (!rank.isOnHost()) {
    // 4096², 2560², 100 x 256², 100 000 x 64, 16 x 1024².
    shapes = {matrices(bucket * 64 / 25, 1), matrices(bucket, 1),
              matrices(bucket, 100), matrices(bucket * 125 / 128, 1, 64),
              matrices(bucket * 64 / 25, 16)};
    ranks.insert(ranks.end(), {16, 32});
    groupMbs = {0, 8, 32};
  }
  for (const BucketShape &shape : shapes) {
    std::deque<PowerSgd> buckets;
    std::vector<Work> works;
    for (int64_t approximation : ranks)
      for (int64_t groupMb : groupMbs) {
        const int64_t n = shape.elements();
        // The elements of a MiB in a bucket of 25 MiB, scaled to this one.
        const int64_t group =
            groupMb == 0 ? n : std::max<int64_t>(groupMb * bucket / 25, 1);
        if (!isCompressed(shape.tensors.front(), approximation) ||
            (groupMb != 0 && (shape.tensors.size() == 1 || n <= group)))
          continue;
        PowerSgd &each =
            buckets.emplace_back(rank.job(), shape, approximation, group);
        DDPHOOK_TRY(each.prepare());
        std::string name = "rank " + std::to_string(approximation);
        if (groupMb != 0)
          name += ", group-mb " + std::to_string(groupMb);
        works.push_back(
            {name, kPowerSgdBytes * n, [&each] { return each.step(); },
             [&each](bool *right) { return each.checkFirstStep(right); }});
        if (groupMb == 0) // PyTorch processes the bucket as a whole.
          works.back().torch = shape.torch(approximation);
      }
    DDPHOOK_TRY(rank.measure(
        "PowerSGD's local work on '" + rank.options.device + "', " +
            shape.name + " of " + sizeName(shape.elements()) +
            "; GB/s of 28 bytes an element",
        rank.withCopies(std::move(works), 4 * shape.elements())));
  }
  return Status::ok();
}
