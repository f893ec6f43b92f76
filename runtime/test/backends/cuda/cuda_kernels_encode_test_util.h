// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of CUDA kernels that encode share: elements of many kinds, and
// bytes on the device.

#pragma once

#include "backends/cuda/cuda_kernels_test_util.h"

#include "../../../backends/host/kernels/kernels.h"

#include <cmath>

namespace ddphook::cuda {

/// What elements look like. The last ones are finite, unlike Mixed ones: of
/// many sizes, and halfway between codes of bytes.
enum class Values { Ordinary, Mixed, Small, AnyBits, Wide, Halfway };

/// Bytes on the device; poisoned.
class DeviceBytes {
public:
  explicit DeviceBytes(int64_t bytes)
      : bytes(bytes), array(Dtype::F64, (bytes + 7) / 8) {}
  char *data() { return static_cast<char *>(array.data()); }
  std::vector<unsigned char> read() {
    const HostArray values = array.read();
    const auto *begin = static_cast<const unsigned char *>(values.data());
    return {begin, begin + bytes};
  }

private:
  int64_t bytes;
  DeviceArray array;
};

class CudaEncodingTest : public CudaKernelTest {
protected:
  HostArray randomArray(Dtype type, int64_t n, Values values) {
    HostArray array(type, n);
    array.fillWithBits(random);
    if (values == Values::AnyBits)
      return array;
    std::normal_distribution<double> normal;
    std::vector<double> numbers(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      double x = normal(random);
      if (values == Values::Mixed || values == Values::Wide)
        x = std::ldexp(x, static_cast<int>(random() % 40) - 30);
      if (values == Values::Small)
        x = random() % 3 == 0 ? std::ldexp(x, -130) : 0.0;
      if (values == Values::Halfway)
        x = i == 0 ? 127.5 : static_cast<double>(random() % 511) / 2 - 127.5;
      // A few that are out of the ordinary, in few blocks.
      if (values == Values::Mixed && i % 1500 == 777)
        x = random() % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
      numbers[static_cast<size_t>(i)] = x;
    }
    host::castArray(numbers.data(), Dtype::F64, array.data(), type, n);
    return array;
  }
};

inline void expectSame(const HostArray &got, const HostArray &want) {
  EXPECT_EQ(got.firstDifference(want), "");
}

} // namespace ddphook::cuda
