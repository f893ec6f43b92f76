// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The work of hooks without their collectives: the functions of a backend, as
// compiled code calls them, next to the limit, a copy of as many bytes.

#include "bench.h"

#include "base/encoding.h"

#include <cmath>

using namespace ddphook;
using namespace ddphook::bench;

const std::vector<HookKind> &bench::hookKinds() {
  static const std::vector<HookKind> kinds = {
      {"allreduce", std::nullopt},
      {"fp16", Dtype::F16},
      {"bf16", Dtype::BF16},
      {"int8", std::nullopt, DDPHOOK_ENCODING_I8, 256},
      {"int4", std::nullopt, DDPHOOK_ENCODING_I4, 64},
      {"fp8", std::nullopt, DDPHOOK_ENCODING_F8E4M3FN, 256}};
  return kinds;
}

ddphook_collective_t HookKind::collective(int64_t count, void *error) const {
  ddphook_collective_t operation =
      allReduceOf(count, Dtype::F32, wire, /*isMean=*/true);
  operation.encoding = encoding;
  operation.block = block;
  operation.error = error;
  return operation;
}

int64_t HookKind::bytes(int64_t count) const {
  if (encoding != DDPHOOK_ENCODING_NONE)
    return 8 * count + 2 * encodingFromAbi(encoding, block)->bytes(count);
  // Without a wire type, a rank's elements move once.
  return 8 * count + (wire ? 2 * dtypeSize(*wire) * count : 4 * count);
}

std::string bench::sizeName(int64_t elements) {
  const double kib = static_cast<double>(elements) / 256;
  return kib < 1024 ? formatText("%.3g KiB", kib)
                    : formatText("%.4g MiB", kib / 1024);
}

namespace {

using IsRight = std::function<bool(float x, float error, float out)>;

Body inOrder(Body first, Body second) {
  return [first = std::move(first), second = std::move(second)] {
    DDPHOOK_TRY(first());
    return second();
  };
}

/// Arrays of `n` f32 with their first contents, and works on them.
struct Arrays {
  Arrays(Context &context, Group &group, int64_t n)
      : context(context), group(group), n(n), values(inputOf(n, 0)),
        in(context), error(context), out(context) {}

  Status prepare() {
    for (Array *array : {&in, &error, &out})
      DDPHOOK_TRY(array->allocate(4 * n));
    return in.write(values.data(), 4 * n);
  }

  /// Adds work that is checked by running `checked`, or itself.
  void add(std::string name, int64_t bytes, const Body &body,
           const IsRight &isRight, const Body &checked = nullptr) {
    works.push_back({std::move(name), bytes, body,
                     [=, run = checked ? checked : body](bool *right) {
                       return check(run, isRight, right);
                     }});
  }

  /// Runs `body` on poisoned results, and asks `isRight` about each element.
  Status check(const Body &body, const IsRight &isRight, bool *right) const {
    std::vector<float> out(values.size(), NAN), error(values.size(), 0);
    DDPHOOK_TRY(this->out.write(out.data(), 4 * n));
    DDPHOOK_TRY(this->error.write(error.data(), 4 * n));
    DDPHOOK_TRY(body());
    DDPHOOK_TRY(this->out.read(out.data(), 4 * n));
    DDPHOOK_TRY(this->error.read(error.data(), 4 * n));
    *right = true;
    for (size_t i = 0; i < values.size(); ++i)
      *right &= isRight(values[i], error[i], out[i]);
    return Status::ok();
  }

  /// The average of a hook in a group of one.
  Body hook(const HookKind &kind, bool feedsBack = false) {
    void *const lost = feedsBack ? error.as<>() : nullptr;
    return [this, operation = kind.collective(n, lost)] {
      return group.run(operation, in.as<>(), out.as<>());
    };
  }

  Context &context;
  Group &group;
  const int64_t n;
  const std::vector<float> values;
  Array in, error, out;
  std::vector<Work> works;
};

/// Measures in arrays of the bucket's size, or on a device in larger and in
/// small ones too: 1 GiB, 64 MiB and 64 KiB for a bucket of 25 MiB.
Status forEachSize(Rank &rank, const std::string &title,
                   const std::function<Status(Arrays &)> &addWorks) {
  const int64_t bucket = rank.options.elements();
  std::vector<int64_t> sizes = {bucket};
  if (!rank.isOnHost())
    sizes = {bucket * 1024 / 25, bucket * 64 / 25,
             std::max<int64_t>(bucket / 400, 1)};
  Group group(rank.job());
  DDPHOOK_TRY(group.join("local", /*isOneMachine=*/true, 4 * sizes[0]));
  for (int64_t n : sizes) {
    Arrays arrays(rank.job(), group, n);
    DDPHOOK_TRY(arrays.prepare());
    DDPHOOK_TRY(addWorks(arrays));
    DDPHOOK_TRY(rank.measure(title + " on '" + rank.options.device + "', " +
                                 sizeName(n) + "; GB/s of what has to move",
                             rank.withCopies(arrays.works, 4 * n)));
  }
  return Status::ok();
}

} // namespace

Status bench::benchCast(Rank &rank) {
  return forEachSize(rank, "casts", [](Arrays &arrays) {
    const int64_t n = arrays.n;
    Context &job = arrays.context;
    void *const in = arrays.in.as<>(), *const half = arrays.error.as<>(),
                *const out = arrays.out.as<>();
    for (const HookKind &kind : hookKinds()) {
      if (!kind.wire)
        continue;
      const Dtype type = *kind.wire;
      const auto number = static_cast<int32_t>(type);
      const Body narrow = [=, &job] {
        return job.call(&ddphook_backend_t::cast, in, DDPHOOK_F32, half, number,
                        n);
      };
      const Body widen = [=, &job] {
        return job.call(&ddphook_backend_t::cast, half, number, out,
                        DDPHOOK_F32, n);
      };
      const IsRight isRounded = [=](float x, float, float result) {
        return result == roundScalar(x, type);
      };
      const std::string name = dtypeName(type);
      arrays.add("cast f32 to " + name, 6 * n, narrow,
                 [](float, float, float) { return true; });
      // A cast to 16 bits is right if the cast back has the result.
      arrays.add("cast " + name + " to f32", 6 * n, widen, isRounded,
                 inOrder(narrow, widen));
      arrays.add(kind.name + " hook", kind.bytes(n), arrays.hook(kind),
                 isRounded);
      arrays.works.back().torch = {{"hook", kind.name}, {"shapes", {{n}}}};
    }
    arrays.add(
        "divide by 2", 8 * n,
        [=, &job] {
          return job.call(&ddphook_backend_t::divide_by_group_size, int64_t(2),
                          in, out, n, DDPHOOK_F32);
        },
        [](float x, float, float result) { return result == x / 2; });
    return Status::ok();
  });
}

Status bench::benchEncode(Rank &rank) {
  return forEachSize(rank, "codes", [](Arrays &arrays) {
    const int64_t n = arrays.n;
    Context &job = arrays.context;
    for (const HookKind &kind : hookKinds()) {
      if (kind.encoding == DDPHOOK_ENCODING_NONE)
        continue;
      // The result and the loss add up to the input.
      const IsRight addsUp = [](float x, float lost, float result) {
        return std::fabs(result + lost - x) < 1e-6f;
      };
      const Body loss = [=, &job, in = arrays.in.as<>(),
                         error = arrays.error.as<>()] {
        return job.call(&ddphook_backend_t::encoding_error, in, error, n,
                        DDPHOOK_F32, kind.encoding, kind.block,
                        /*rank=*/-1, /*stream=*/-1, /*step=*/0);
      };
      const Body plain = arrays.hook(kind);
      arrays.add(kind.name + " hook", kind.bytes(n), plain, addsUp,
                 inOrder(plain, loss));
      arrays.add(kind.name + " hook, error feedback", kind.bytes(n) + 8 * n,
                 arrays.hook(kind, /*feedsBack=*/true), addsUp);
      arrays.works.push_back({kind.name + " loss", 8 * n, loss});
    }
    return Status::ok();
  });
}

Status bench::benchTopK(Rank &rank) {
  return forEachSize(rank, "topk", [](Arrays &arrays) {
    const int64_t n = arrays.n, keep = std::max<int64_t>(n / 100, 1);
    Context &job = arrays.context;
    auto entries = std::make_shared<Array>(job);
    DDPHOOK_TRY(entries->allocate(8 * keep));
    void *const in = arrays.in.as<>(), *const out = arrays.out.as<>(),
                *const error = arrays.error.as<>();
    // The expansion of the hook without its all-gather and its division.
    const Body step = [=, &job] {
      DDPHOOK_TRY(
          job.call(&ddphook_backend_t::add, in, error, error, n, DDPHOOK_F32));
      DDPHOOK_TRY(job.call(&ddphook_backend_t::sparsify, keep, error, n,
                           entries->as<>(), error));
      return job.call(&ddphook_backend_t::densify, entries->as<>(), int64_t(1),
                      keep, out, n);
    };
    arrays.add("topk hook, density 1 %", 12 * n, step,
               [](float x, float rest, float result) {
                 return result + rest == x && (result == 0 || rest == 0);
               });
    return Status::ok();
  });
}
