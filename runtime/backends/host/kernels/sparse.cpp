// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Extracts the largest elements of f32 arrays and adds them up again.
// Magnitudes of floats are ordered like their bits. A sample estimates a bit
// less than the smallest selected magnitude; one pass collects the elements
// that reach it, and only these are compared exactly.

#include "kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "elements-inl.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace ddphook::host::HWY_NAMESPACE {

/// Writes the indices, from `first` on, of the elements whose magnitude bits
/// exceed `below` to an array with room for `n` and one vector; returns their
/// number.
size_t findKernel(const float *in, size_t n, int32_t first, int32_t below,
                  int32_t *places) {
  const hn::ScalableTag<float> d;
  const Like<int32_t, decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  size_t found = 0;
  for (size_t i = 0; i < n; i += lanes) {
    const size_t count = std::min(lanes, n - i);
    prefetchAhead(in + i);
    const auto bits = hn::BitCast(di, loadSome(F32(), d, in + i, count));
    auto isLarge =
        hn::Gt(hn::And(bits, hn::Set(di, 0x7fffffff)), hn::Set(di, below));
    if (HWY_UNLIKELY(count < lanes))
      isLarge = hn::And(isLarge, hn::FirstN(di, count));
    const auto place = hn::Iota(di, first + static_cast<int32_t>(i));
    // CompressStore() is slow on some processors.
    hn::StoreU(hn::Compress(place, isLarge), di, places + found);
    found += hn::CountTrue(di, isLarge);
  }
  return found;
}

} // namespace ddphook::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ddphook::host {

HWY_EXPORT(findKernel);

/// Elements that are searched, or added to, at a time. A vector has fewer.
static constexpr int64_t kStretch = 8192;

static uint32_t magnitude(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & 0x7fffffffU;
}

/// Returns a magnitude that some more than `keep` elements reach, unless a
/// sample misleads by more than four standard deviations.
static uint32_t estimateLeast(const float *in, int64_t n, int64_t keep) {
  const int64_t samples = std::min<int64_t>(n / 64, 16384);
  const double share =
      static_cast<double>(keep * samples) / static_cast<double>(n);
  const auto rank = static_cast<int64_t>(share + 4 * std::sqrt(share) + 8);
  if (rank >= samples)
    return 0;
  // Take one element of each stride, at irregular places: data have periods.
  const int64_t stride = n / samples;
  std::vector<uint32_t> sample(static_cast<size_t>(samples));
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t fraction = static_cast<uint32_t>(i) * 0x9e3779b9U;
    sample[i] = magnitude(in[i * stride + (fraction * stride >> 32)]);
  }
  const auto last = sample.begin() + rank;
  std::nth_element(sample.begin(), last, sample.end(), std::greater<>());
  return *last;
}

/// Moves the `keep` largest candidates to arrays, which may be their own, and
/// the others back to `rest`; returns the smallest magnitude among the largest.
static uint32_t takeFrom(const Candidates &from, int64_t keep, float *values,
                         int32_t *places, float *rest) {
  // The smallest is likely little above `least`: compare only its bucket.
  constexpr uint32_t buckets = 4096, width = 1 << 11;
  std::vector<int64_t> counts(buckets);
  auto bucketOf = [&](int64_t i) {
    return std::min((magnitude(from.values[i]) - from.least) / width,
                    buckets - 1);
  };
  for (int64_t i = 0; i < from.count; ++i)
    ++counts[bucketOf(i)];
  uint32_t bucket = buckets - 1;
  int64_t ofBucket = keep;
  while (counts[bucket] < ofBucket)
    ofBucket -= counts[bucket--];
  std::vector<uint32_t> within;
  for (int64_t i = 0; i < from.count; ++i)
    if (bucketOf(i) == bucket)
      within.push_back(magnitude(from.values[i]));
  const auto last = within.begin() + ofBucket - 1;
  std::nth_element(within.begin(), last, within.end(), std::greater<>());
  const uint32_t least = *last;
  // The first ones of equal magnitude are taken.
  auto ofLeast = std::count(within.begin(), last + 1, least);
  int64_t taken = 0;
  for (int64_t i = 0; i < from.count; ++i) {
    const float value = from.values[i];
    const uint32_t bits = magnitude(value);
    if (bits > least || (bits == least && ofLeast-- > 0)) {
      values[taken] = value;
      places[taken++] = from.places[i];
    } else {
      rest[from.places[i]] = value;
    }
  }
  return least;
}

/// Moves elements of `rest` that include the `keep` largest from `least` on.
static void collect(float *rest, int64_t n, int64_t keep, uint32_t least,
                    Candidates &all) {
  const int64_t room = std::min(n, 2 * keep + (1 << 16));
  const auto size = static_cast<size_t>(room + 2 * kStretch);
  all.values.resize(std::max(all.values.size(), size));
  all.places.resize(all.values.size());
  all.count = 0;
  all.least = least;
  for (int64_t begin = 0; begin < n; begin += kStretch) {
    const int64_t before = all.count;
    all.count += static_cast<int64_t>(HWY_DYNAMIC_DISPATCH(findKernel)(
        rest + begin, static_cast<size_t>(std::min(kStretch, n - begin)),
        static_cast<int32_t>(begin), static_cast<int32_t>(least - 1),
        &all.places[before]));
    for (int64_t i = before; i < all.count; ++i)
      all.values[i] = std::exchange(rest[all.places[i]], 0.0F);
    if (all.count > room) {
      all.least =
          takeFrom(all, keep, all.values.data(), all.places.data(), rest);
      all.count = keep;
      // Later elements of this magnitude are not selected.
      least = all.least + 1;
    }
  }
}

void takeLargest(const float *in, int64_t n, int64_t keep, void *entries,
                 float *rest, Candidates &candidates) {
  if (rest != in)
    copyBytes(rest, in, n * int64_t{sizeof(*in)});
  if (keep == 0)
    return;
  collect(rest, n, keep, estimateLeast(rest, n, keep), candidates);
  if (candidates.count < keep) {
    for (int64_t i = 0; i < candidates.count; ++i)
      rest[candidates.places[i]] = candidates.values[i];
    collect(rest, n, keep, 0, candidates);
  }
  auto *values = static_cast<float *>(entries);
  auto *places = static_cast<int32_t *>(entries) + keep;
  // Elements that are not finite are the largest, but some may be left.
  if (takeFrom(candidates, keep, values, places, rest) >= 0x7f800000)
    for (int64_t i = 0; i < n; ++i)
      rest[i] = std::isfinite(rest[i]) ? rest[i] : 0;
}

bool addEntries(const void *entries, int64_t parts, int64_t keep, float *out,
                int64_t n) {
  // Nobody reads a large destination before it would leave the caches.
  const Stores stores = n >= 1 << 20 ? Stores::Streaming : Stores::Cached;
  std::vector<int64_t> next(static_cast<size_t>(parts));
  alignas(64) float sums[kStretch];
  for (int64_t begin = 0; begin < n; begin += kStretch) {
    const int64_t end = std::min(n, begin + kStretch);
    std::fill_n(sums, end - begin, 0.0F);
    for (int64_t part = 0; part < parts; ++part) {
      const auto *values =
          static_cast<const float *>(entries) + 2 * part * keep;
      const auto *places = reinterpret_cast<const int32_t *>(values + keep);
      int64_t least = begin, &i = next[part];
      // Does not pass an index out of order.
      for (; i < keep && places[i] >= least && places[i] < end; ++i) {
        sums[places[i] - begin] += values[i];
        least = places[i] + 1;
      }
    }
    copyBytes(out + begin, sums, (end - begin) * int64_t{sizeof(*out)}, stores);
  }
  return std::all_of(next.begin(), next.end(),
                     [&](int64_t i) { return i == keep; });
}

} // namespace ddphook::host
#endif // HWY_ONCE
