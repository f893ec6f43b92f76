/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The program of docs/getting-started.md: joins the job, finds four weights
 * from samples that differ from rank to rank, and prints them. */

#include "linear.h" /* written by ddphook-cc */

#include "ddphook/runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>

static void check(ddphook_status_t status) {
  if (status == DDPHOOK_OK)
    return;
  fprintf(stderr, "%s: %s\n", ddphook_status_name(status),
          ddphook_last_error());
  exit(1);
}

int main(void) {
  const float wanted[4] = {1.0f, -2.0f, 3.0f, 0.5f};
  float x[8][4], y[8], w[4] = {0};

  ddphook_context_t *context;
  check(ddphook_context_create(NULL, &context));
  check(ddphook_module_load(context, &linear_module));
  srand(1 + ddphook_context_rank(context));

  for (int step = 0; step < 500; ++step) {
    for (int i = 0; i < 8; ++i) {
      y[i] = 0;
      for (int j = 0; j < 4; ++j) {
        x[i][j] = 2.0f * rand() / (float)RAND_MAX - 1;
        y[i] += x[i][j] * wanted[j];
      }
    }
    check(linear_step(&x[0][0], y, w));
  }
  printf("rank %d of %d: %.3f %.3f %.3f %.3f\n", ddphook_context_rank(context),
         ddphook_context_world_size(context), w[0], w[1], w[2], w[3]);

  check(ddphook_module_unload(&linear_module));
  ddphook_context_destroy(context);
  return 0;
}
