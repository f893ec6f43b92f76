//===- bench_powersgd.cpp - ddphook-bench powersgd ------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What PowerSGD does without its collectives, in one thread: the calls that
// compiled code makes, with error feedback and warm start, against PyTorch's
// hook in a group of one and against the best copy of 28 bytes an element. That
// is what three passes move: G and E are read and M is written, M is read, M is
// read and the result and E are written.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include "host_backend.h"
#include "kernels.h"
#include "random.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <thread>

using namespace ddphook;
using namespace ddphook::bench;
using namespace ddphook::host;

namespace {

constexpr int kRepetitions = 5;
constexpr int64_t kBytesPerElement = 28;
/// Largest part of a bucket that goes through all passes before the next does,
/// where that is measured.
constexpr int64_t kGroupElements = 8 << 18;

/// The tensors of a bucket: matrices, and vectors, which are not compressed.
struct BucketShape {
  std::string name;
  std::vector<std::vector<int64_t>> tensors;

  int64_t elements() const {
    int64_t sum = 0;
    for (const auto &shape : tensors)
      sum += shape.size() == 2 ? shape[0] * shape[1] : shape[0];
    return sum;
  }
};

std::string sizeName(int64_t elements) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g MiB",
                static_cast<double>(elements) / (1 << 18));
  return text;
}

/// Layers of weights and biases; the last one has the rows that remain.
BucketShape layers(int64_t elements) {
  const int64_t side = elements >= 1 << 20 ? 1024 : 64;
  BucketShape shape{"layers", {}};
  for (int64_t rows = elements / side; rows > 0; rows -= side) {
    shape.tensors.push_back({std::min(rows, side), side});
    shape.tensors.push_back({std::min(rows, side)});
  }
  return shape;
}

BucketShape squares(int64_t elements, int64_t count) {
  const auto side = static_cast<int64_t>(
      std::sqrt(static_cast<double>(elements) / static_cast<double>(count)));
  return {count == 1 ? "one matrix" : std::to_string(count) + " matrices",
          std::vector<std::vector<int64_t>>(
              static_cast<size_t>(count),
              {std::max<int64_t>(side, 1), std::max<int64_t>(side, 1)})};
}

/// A matrix list as plans have them, and its prepared form.
struct List {
  std::vector<ddphook_matrix_t> matrices;
  std::vector<ddphook_piece_t> pieces;
  int64_t begin = 0, end = 0;
  ddphook_matrices_t *prepared = nullptr;
};

/// 32 well mixed bits for each number; as in torch_hooks.py.
uint32_t mixedBits(int64_t i) {
  auto bits = static_cast<uint32_t>(i);
  bits = (bits ^ bits >> 16) * 0x7feb352du;
  bits = (bits ^ bits >> 15) * 0x846ca68bu;
  return bits ^ bits >> 16;
}

/// The other benchmarks' input would be matrices of hardly any rank.
float fullRankElement(int64_t i) {
  return static_cast<float>(static_cast<int32_t>(mixedBits(i)) * 0x1p-31);
}

/// The norm, and sums with four sequences of signs; see torch_hooks.py.
std::array<double, 5> fingerprint(const float *x, int64_t n) {
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

/// PyTorch's rule, with its default of a rate of at least 2.
bool isCompressed(const std::vector<int64_t> &tensor, int64_t rank) {
  return tensor.size() == 2 &&
         (tensor[0] + tensor[1]) * std::min({rank, tensor[0], tensor[1]}) * 2 <
             tensor[0] * tensor[1];
}

/// A bucket under PowerSGD of one rank.
class PowerSgd {
public:
  /// `groupElements`: how much of the bucket a list has at most; a matrix is
  /// never cut.
  PowerSgd(const BucketShape &shape, int64_t rank, int64_t groupElements);
  ~PowerSgd();
  Status prepare();

  /// One compressed step but for its collectives.
  Status step();

  /// PyTorch's state before its first compressed step.
  Status reset();

  const float *result() { return out.as<float>(); }
  const float *error() { return e.as<float>(); }
  int64_t elements() const { return n; }

private:
  const int64_t n;
  std::vector<List> lists;
  std::vector<int64_t> draws;
  int64_t pSize = 0, qSize = 0, restSize = 0;
  Buffer g, e, out;
  std::unique_ptr<Buffer> p, q, rest;
};

PowerSgd::PowerSgd(const BucketShape &shape, int64_t rank,
                   int64_t groupElements)
    : n(shape.elements()), g(4 * n), e(4 * n), out(4 * n) {
  int64_t offset = 0;
  for (const auto &tensor : shape.tensors) {
    const int64_t count =
        tensor.size() == 2 ? tensor[0] * tensor[1] : tensor[0];
    if (lists.empty() || offset + count - lists.back().begin > groupElements) {
      lists.emplace_back();
      lists.back().begin = offset;
    }
    List &list = lists.back();
    if (isCompressed(tensor, rank)) {
      const int64_t r = std::min({rank, tensor[0], tensor[1]});
      list.matrices.push_back({offset, pSize, qSize, tensor[0], tensor[1], r});
      pSize += tensor[0] * r;
      qSize += tensor[1] * r;
      draws.push_back(tensor[1] * r);
    } else {
      list.pieces.push_back({offset, restSize, count});
      restSize += count;
    }
    offset += count;
    list.end = offset;
  }
  p = std::make_unique<Buffer>(4 * pSize);
  q = std::make_unique<Buffer>(4 * qSize);
  rest = std::make_unique<Buffer>(4 * restSize);
}

PowerSgd::~PowerSgd() {
  for (List &list : lists)
    if (list.prepared)
      hostBackend().matrices_destroy(nullptr, list.prepared);
}

Status PowerSgd::prepare() {
  for (int64_t i = 0; i < n; ++i)
    g.as<float>()[i] = fullRankElement(i);
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
    if (hostBackend().matrices_create(nullptr, &view, DDPHOOK_F32,
                                      &list.prepared, &message) != DDPHOOK_OK)
      return ::ddphook::error(DDPHOOK_INTERNAL, "%s", message.message);
  }
  return reset();
}

Status PowerSgd::reset() {
  std::memset(e.as<void>(), 0, static_cast<size_t>(4 * n));
  std::memset(out.as<void>(), 0x5a, static_cast<size_t>(4 * n));
  std::vector<int32_t> generator(generatorElements);
  seedGenerator(0, generator.data());
  return drawNormal(generator.data(), draws.data(),
                    static_cast<int64_t>(draws.size()), q->as<void>(),
                    Dtype::F32);
}

Status PowerSgd::step() {
  const ddphook_backend_t &backend = hostBackend();
  ddphook_backend_error_t message = {};
  void *m = e.as<void>();
  for (const List &list : lists) {
    ddphook_status_t code =
        backend.orthogonalize(nullptr, list.prepared, DDPHOOK_FACTOR_Q,
                              q->as<void>(), q->as<void>(), 0, &message);
    if (code == DDPHOOK_OK)
      code = backend.project(nullptr, list.prepared, g.as<void>(), m,
                             q->as<void>(), m, p->as<void>(), rest->as<void>(),
                             &message);
    if (code == DDPHOOK_OK)
      code = backend.orthogonalize(nullptr, list.prepared, DDPHOOK_FACTOR_P,
                                   p->as<void>(), p->as<void>(), 0, &message);
    if (code == DDPHOOK_OK)
      code = backend.matmul(nullptr, list.prepared, DDPHOOK_MATMUL_Q, m,
                            p->as<void>(), q->as<void>(), &message);
    if (code == DDPHOOK_OK)
      code = backend.reconstruct(nullptr, list.prepared, p->as<void>(),
                                 q->as<void>(), rest->as<void>(), m,
                                 out.as<void>(), m, 1, &message);
    if (code != DDPHOOK_OK)
      return ::ddphook::error(code, "%s", message.message);
  }
  return Status::ok();
}

/// Something to time.
struct Work {
  std::string name;
  std::unique_ptr<PowerSgd> bucket;
  std::string torchKind;
  /// Another order of the work above: PyTorch is not asked again.
  bool isVariant = false;
};

/// What must hold whatever the arithmetic: M = out + E, and E is orthogonal to
/// the approximation, so the squares of their norms add up to M's, which is G
/// in the first step. A norm is off by far less than 1e-4 of it.
void verifyAlone(const Work &work, Report &report) {
  PowerSgd &bucket = *work.bucket;
  const int64_t n = bucket.elements();
  double wrong = 0, whole = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double g = fullRankElement(i);
    const double sum = static_cast<double>(bucket.result()[i]) +
                       static_cast<double>(bucket.error()[i]);
    wrong = std::max(wrong, std::abs(sum - g));
    whole += g * g;
  }
  const double out = fingerprint(bucket.result(), n)[0];
  const double err = fingerprint(bucket.error(), n)[0];
  report.verified(work.name + ": result and error",
                  wrong < 1e-5 &&
                      std::abs(out * out + err * err - whole) < 1e-4 * whole);
}

/// Sums with signs differ as random walks do: by about the norm of the
/// difference, which docs/parity.md bounds by 1.5e-5 of the largest element.
void verifyWithTorch(const Work &work, const TorchAnswer &answer,
                     Report &report) {
  PowerSgd &bucket = *work.bucket;
  bool right = answer.values.size() == 10;
  for (size_t half = 0; half < 2 && right; ++half) {
    const auto ours = fingerprint(half == 0 ? bucket.result() : bucket.error(),
                                  bucket.elements());
    for (size_t k = 0; k < ours.size(); ++k)
      right &=
          std::abs(ours[k] - answer.values[half * 5 + k]) <= 1e-4 * ours[0];
  }
  report.verified(work.name + " against PyTorch", right);
}

Status measure(std::vector<Work> &works, const Options &options,
               TorchProcess *torch, Report &report, const std::string &title) {
  for (Work &work : works) {
    DDPHOOK_RETURN_IF_ERROR(work.bucket->prepare());
    DDPHOOK_RETURN_IF_ERROR(work.bucket->step());
    verifyAlone(work, report);
    if (!torch)
      continue;
    TorchAnswer answer;
    DDPHOOK_RETURN_IF_ERROR(
        torch->run("powersgd", work.torchKind, Caches::Warm, 0, &answer));
    verifyWithTorch(work, answer, report);
  }
  const int64_t n = works.front().bucket->elements();
  Buffer from(4 * n), to(4 * n);
  auto copy = [&] {
    for (int i = 0; i < 3; ++i)
      copyBytes(to.as<void>(), from.as<void>(), 4 * n, Stores::Streaming);
    copyBytes(to.as<void>(), from.as<void>(), 2 * n, Stores::Streaming);
  };
  Section &section = report.addSection(title, {"PyTorch"});
  CacheFlusher flusher;
  for (Caches caches : {Caches::Cold, Caches::Warm}) {
    Samples copied;
    std::vector<Samples> ours(works.size()), theirs(works.size());
    for (int round = 0; round < options.rounds; ++round) {
      auto time = [&](Samples &samples, const auto &body) {
        for (int i = 0; i < kRepetitions; ++i) {
          if (caches == Caches::Cold)
            flusher.flush();
          const double begin = now();
          body();
          samples.add({now() - begin});
        }
      };
      time(copied, copy);
      for (size_t w = 0; w < works.size(); ++w) {
        Status status;
        time(ours[w], [&] {
          if (status.isOk())
            status = works[w].bucket->step();
        });
        DDPHOOK_RETURN_IF_ERROR(status);
        if (!torch || works[w].isVariant)
          continue;
        TorchAnswer answer;
        DDPHOOK_RETURN_IF_ERROR(torch->run("powersgd", works[w].torchKind,
                                           caches, kRepetitions, &answer));
        theirs[w].add(answer.seconds);
      }
    }
    const int64_t bytes = kBytesPerElement * n;
    section.add("best copy of 28 bytes/element", caches, bytes).samples =
        copied;
    for (size_t w = 0, asked = 0; w < works.size(); ++w) {
      asked = works[w].isVariant ? asked : w;
      Result &result = section.add(works[w].name, caches, bytes);
      result.samples = ours[w];
      result.ofBestCopy = ours[w].median() / copied.median();
      if (!torch)
        continue;
      result.speedups.emplace_back("PyTorch",
                                   theirs[asked].median() / ours[w].median());
      if (!works[w].isVariant)
        section.add("  PyTorch", caches, bytes).samples = theirs[w];
    }
  }
  report.print(section);
  return Status::ok();
}

Status runCase(const BucketShape &shape, const Options &options,
               TorchProcess *torch, Report &report) {
  std::vector<Work> works;
  for (int64_t rank : {1, 2, 4, 8}) {
    const nlohmann::json kind = {{"shapes", shape.tensors}, {"rank", rank}};
    const std::string name = shape.name + ", rank " + std::to_string(rank);
    works.push_back({name,
                     std::make_unique<PowerSgd>(shape, rank, shape.elements()),
                     kind.dump(), false});
    if (shape.tensors.size() > 1 && shape.elements() > kGroupElements)
      works.push_back({name + ", in groups",
                       std::make_unique<PowerSgd>(shape, rank, kGroupElements),
                       kind.dump(), true});
  }
  return measure(works, options, torch, report,
                 "PowerSGD's local work, one thread, " + shape.name + " of " +
                     sizeName(shape.elements()) +
                     "; GB/s of 28 bytes an element");
}

Status run(const Options &options, TorchProcess *torch, Report &report) {
  pinTo(0);
  const int64_t elements = options.elements();
  for (const BucketShape &shape :
       {layers(elements), squares(elements, 1), squares(elements, 100),
        layers(4 * elements), squares(4 * elements, 1),
        squares(4 * elements, 100)})
    DDPHOOK_RETURN_IF_ERROR(runCase(shape, options, torch, report));
  return Status::ok();
}

} // namespace

Status bench::benchPowerSgd(const Options &options, TorchProcess *torch,
                            Report &report) {
  // In a thread of its own: binding it must not bind what comes after.
  Status status;
  std::thread([&] { status = run(options, torch, report); }).join();
  return status;
}
