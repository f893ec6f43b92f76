// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Both passes work on a few blocks at a time, which stay in the caches.

#include "error_feedback.h"

#include "encode.h"
#include "kernels.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::host;

void host::feedBackError(const CollectiveDesc &desc, int rank, const void *in,
                         void *error, void *out) {
  constexpr int64_t most = int64_t{1} << 14;
  const int64_t block = std::max<int64_t>(desc.codes()->block, 1);
  const int64_t elements = most / block * block;
  for (int64_t begin = 0; begin < desc.count; begin += elements) {
    const int64_t n = std::min(elements, desc.count - begin);
    const int64_t offset = begin * dtypeSize(desc.type());
    char *sum = static_cast<char *>(out) + offset;
    char *kept = static_cast<char *>(error) + offset;
    addArrays(sum, static_cast<const char *>(in) + offset, kept, desc.type(),
              n);
    encodingError(sum, kept, desc.type(), n, *desc.codes(),
                  from(desc.roundingOf(rank), begin));
  }
}
