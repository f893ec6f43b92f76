/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Joins a job of one and broadcasts to itself: proves that the public headers
 * are C, and that the package is enough to link against. */

#include "ddphook/runtime/runtime.h"

#include <stdio.h>

static int fail(const char *what, ddphook_status_t status) {
  fprintf(stderr, "%s: %s: %s\n", what, ddphook_status_name(status),
          ddphook_last_error());
  return 1;
}

int main(void) {
  ddphook_context_t *context = NULL;
  ddphook_status_t status = ddphook_context_create(NULL, &context);
  if (status != DDPHOOK_OK)
    return fail("ddphook_context_create", status);
  double value = 0.5;
  status = ddphook_broadcast(context, &value, sizeof(value), 0);
  if (status != DDPHOOK_OK)
    return fail("ddphook_broadcast", status);
  if (ddphook_context_world_size(context) != 1 || value != 0.5)
    return fail("unexpected result", DDPHOOK_INTERNAL);
  /* An error is a status, never a crash. */
  if (ddphook_rt_enter(NULL, 0) != DDPHOOK_FAILED_PRECONDITION)
    return fail("ddphook_rt_enter(NULL)", DDPHOOK_INTERNAL);
  ddphook_context_destroy(context);
  puts("runtime consumer: ok");
  return 0;
}
