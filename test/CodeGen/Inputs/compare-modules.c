/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Runs every entry point of two modules that were compiled from one source in
 * different ways, on equal random inputs, and compares all buffers bit for bit.
 * It does not know the entry points' signatures: every one gets the same number
 * of buffers, each larger than any array of the test. The runtime is replaced
 * by functions that let every step begin and end, and an arena. */

#include "ddphook/runtime/compiled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const ddphook_compiled_module_t tiled_module, plain_module;

enum { BufferCount = 4, BufferBytes = 1 << 18 };

ddphook_status_t ddphook_rt_enter(ddphook_module_t *module, int32_t entry) {
  (void)module;
  (void)entry;
  return DDPHOOK_OK;
}

ddphook_status_t ddphook_rt_leave(ddphook_module_t *module) {
  (void)module;
  return DDPHOOK_OK;
}

void *ddphook_rt_arena(ddphook_module_t *module) {
  static _Alignas(64) char arena[1 << 18];
  (void)module;
  return arena;
}

/* Any pattern that is a normal number as f16, bf16, f32 and f64: the exponents
 * of all of them lie in the upper bits of every 16-bit word. */
static uint16_t randomWord(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  uint16_t bits = (uint16_t)(*state >> 48);
  return (uint16_t)((bits & 0x80ff) | 0x3800 | (bits & 0x0700) >> 1);
}

static void fill(void **buffers, uint64_t state) {
  for (int b = 0; b < BufferCount; ++b)
    for (size_t i = 0; i < BufferBytes / sizeof(uint16_t); ++i)
      ((uint16_t *)buffers[b])[i] = randomWord(&state);
}

int main(void) {
  void *buffers[2][BufferCount];
  for (int m = 0; m < 2; ++m)
    for (int b = 0; b < BufferCount; ++b)
      if (!(buffers[m][b] = malloc(BufferBytes)))
        return 2;
  int failed = 0;
  for (uint64_t e = 0; e < plain_module.entry_count; ++e) {
    /* Random bits also poison the results: what is not written differs from
     * nothing, so the written part is checked to have changed. */
    const uint64_t seed = 1000 + e;
    fill(buffers[0], seed);
    fill(buffers[1], seed);
    if (plain_module.entries[e].invoke(buffers[0]) != DDPHOOK_OK ||
        tiled_module.entries[e].invoke(buffers[1]) != DDPHOOK_OK)
      return 2;
    int differs = 0;
    for (int b = 0; b < BufferCount; ++b)
      differs |= memcmp(buffers[0][b], buffers[1][b], BufferBytes) != 0;
    fill(buffers[1], seed);
    int written = 0;
    for (int b = 0; b < BufferCount; ++b)
      written |= memcmp(buffers[0][b], buffers[1][b], BufferBytes) != 0;
    printf("%s: %s (seed %llu)\n", plain_module.entries[e].name,
           differs    ? "differs"
           : !written ? "nothing written"
                      : "equal",
           (unsigned long long)seed);
    failed |= differs | !written;
  }
  return failed;
}
