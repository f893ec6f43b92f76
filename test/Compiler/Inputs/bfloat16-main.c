/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Calls bfloat16-exec.mlir with every upper half of an f32 and random lower
 * halves, ties included, and compares with rounding written out here. In f16
 * a body of several operations is compared with one body for each. */

#include "model.h"

#include "ddphook/runtime/runtime.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { Count = 65536 };

static float a[Count];
static uint16_t b[Count], rounded[Count], sum[Count];
static uint16_t chained[Count], chainedF16[Count], apartF16[Count];

static uint32_t bitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static float fromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static int isNaN(uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }

/* Nearest of the two neighbours; of two equally near ones the even one. */
static uint16_t roundToBF16(float value) {
  uint32_t bits = bitsOf(value);
  if (value != value)
    return 0x7fc0;
  uint32_t below = bits & 0xffff, up = bits >> 16;
  return (uint16_t)(up + (below > 0x8000 || (below == 0x8000 && (up & 1))));
}

static float fromBF16(uint16_t bits) { return fromBits((uint32_t)bits << 16); }

/* What in_one_body computes; every operation rounds. */
static uint16_t chain(uint16_t x, uint16_t y) {
  uint16_t p = roundToBF16(fromBF16(x) * fromBF16(y));
  uint16_t s = roundToBF16(fromBF16(p) + fromBF16(x));
  uint16_t q = roundToBF16(sqrtf(fabsf(fromBF16(s))));
  return roundToBF16(fromBF16(q) - fromBF16(y));
}

static int isNaNF16(uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }

int main(void) {
  uint64_t state = 5;
  for (int i = 0; i < Count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint32_t low =
        (state >> 60) < 4 ? 0x8000 : (uint32_t)(state >> 40) & 0xffff;
    a[i] = fromBits((uint32_t)i << 16 | low);
    b[i] = (uint16_t)(state >> 24);
  }
  memset(rounded, 0x5a, sizeof(rounded));
  memset(sum, 0x5a, sizeof(sum));
  memset(chained, 0x5a, sizeof(chained));
  memset(chainedF16, 0x5a, sizeof(chainedF16));
  memset(apartF16, 0xa5, sizeof(apartF16));
  ddphook_context_t *context;
  if (ddphook_context_create(NULL, &context) != DDPHOOK_OK ||
      ddphook_module_load(context, &model_module) != DDPHOOK_OK ||
      model_round(a, b, rounded, sum) != DDPHOOK_OK ||
      model_in_one_body(rounded, b, chained) != DDPHOOK_OK ||
      model_in_one_body_f16(rounded, b, chainedF16, apartF16) != DDPHOOK_OK) {
    printf("%s\n", ddphook_last_error());
    return 1;
  }
  int differ = 0, chainedDiffer = 0, chainedDifferF16 = 0;
  for (int i = 0; i < Count; ++i) {
    uint16_t r = roundToBF16(a[i]);
    uint16_t s = roundToBF16(fromBits((uint32_t)r << 16) +
                             fromBits((uint32_t)b[i] << 16));
    differ += !(isNaN(r) ? isNaN(rounded[i]) : rounded[i] == r) ||
              !(isNaN(s) ? isNaN(sum[i]) : sum[i] == s);
    uint16_t c = chain(rounded[i], b[i]);
    chainedDiffer += !(isNaN(c) ? isNaN(chained[i]) : chained[i] == c);
    chainedDifferF16 += !(isNaNF16(apartF16[i]) ? isNaNF16(chainedF16[i])
                                                : chainedF16[i] == apartF16[i]);
  }
  printf("%d of %d differ\n", differ, Count);
  printf("in one body: %d of %d differ\n", chainedDiffer, Count);
  printf("in one body, f16: %d of %d differ\n", chainedDifferF16, Count);
  ddphook_context_destroy(context);
  return differ != 0 || chainedDiffer != 0 || chainedDifferF16 != 0;
}
