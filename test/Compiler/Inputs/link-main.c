/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Calls the entry point of cc-link.mlir in a world of one, before and after the
 * module is loaded, and checks every element against the same arithmetic. */

#include "model.h"

#include "ddphook/runtime/runtime.h"

#include <stdio.h>
#include <string.h>

enum { Rows = 5, Depth = 7, Columns = 3 };

static float a[Rows * Depth], b[Depth * Columns], bias[Columns];
static float result[Rows * Columns], momentum[Columns];
static double total;

static int check(const char *what, int holds) {
  if (!holds)
    printf("FAILED: %s: %s\n", what, ddphook_last_error());
  return !holds;
}

int main(void) {
  for (int i = 0; i < Rows * Depth; ++i)
    a[i] = 0.25f * (float)(i % 11) - 1.0f;
  for (int i = 0; i < Depth * Columns; ++i)
    b[i] = 0.5f * (float)(i % 5) - 0.75f;
  for (int i = 0; i < Columns; ++i) {
    bias[i] = (float)i;
    momentum[i] = 10.0f * (float)i;
  }
  memset(result, 0xff, sizeof(result));
  memset(&total, 0xff, sizeof(total));

  if (check("a step before the module is loaded",
            model_step(a, b, bias, momentum, 0.5f, result, &total) ==
                    DDPHOOK_FAILED_PRECONDITION &&
                result[0] != result[0]))
    return 1;
  ddphook_context_t *context;
  if (check("context", ddphook_context_create(NULL, &context) == DDPHOOK_OK) ||
      check("load",
            ddphook_module_load(context, &model_module) == DDPHOOK_OK) ||
      check("step", model_step(a, b, bias, momentum, 0.5f, result, &total) ==
                        DDPHOOK_OK))
    return 1;
  int failures = 0;
  for (int row = 0; row < Rows; ++row)
    for (int column = 0; column < Columns; ++column) {
      float sum = 0;
      for (int k = 0; k < Depth; ++k)
        sum += a[row * Depth + k] * b[k * Columns + column];
      sum += bias[column];
      failures += check("result", result[row * Columns + column] == sum);
    }
  for (int column = 0; column < Columns; ++column)
    failures +=
        check("momentum",
              momentum[column] == 10.0f * (float)column * 0.5f + bias[column]);
  failures += check("total", total == 0.5);
  failures +=
      check("unload", ddphook_module_unload(&model_module) == DDPHOOK_OK);
  ddphook_context_destroy(context);
  printf("%d failures\n", failures);
  return failures != 0;
}
