/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * The statuses that every public function of the runtime returns. A status says
 * what the caller can do next; ddphook_last_error() returns the text that names
 * the cause. Nothing in the runtime exits, aborts or throws across the C ABI.
 */

#ifndef DDPHOOK_RUNTIME_STATUS_H
#define DDPHOOK_RUNTIME_STATUS_H

#if defined(_WIN32)
#error "the ddphook runtime supports Linux only"
#endif

#if defined(DDPHOOK_RT_BUILDING)
#define DDPHOOK_API __attribute__((visibility("default")))
#else
#define DDPHOOK_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Values are part of the ABI: new ones may be added, but none changes. Every
 * int is a valid value of the enum, in C++ as in C, so that a program can
 * handle a status that only a newer library knows. */
#ifdef __cplusplus
typedef enum ddphook_status : int {
#else
typedef enum ddphook_status {
#endif
  DDPHOOK_OK = 0,
  /* The call itself is wrong (null pointer, unknown dtype, bad option). Fix the
   * caller; the context is unharmed. */
  DDPHOOK_INVALID_ARGUMENT = 1,
  /* Called in a state that does not allow it (no module loaded, module loaded
   * twice, step not begun). The context is unharmed. */
  DDPHOOK_FAILED_PRECONDITION = 2,
  /* The feature is not built in, or the ABI version is not supported. */
  DDPHOOK_UNSUPPORTED = 3,
  /* Memory, shared memory, file descriptors or disk are used up. */
  DDPHOOK_RESOURCE_EXHAUSTED = 4,
  /* A file or a message is malformed or truncated, or its checksum is wrong. */
  DDPHOOK_DATA_LOSS = 5,
  /* The operating system refused an operation (open, bind, connect …). */
  DDPHOOK_IO_ERROR = 6,
  /* Launch variables contradict each other or are incomplete. */
  DDPHOOK_BAD_ENVIRONMENT = 7,
  /* The ranks were compiled differently; no collective has run. Recompile. */
  DDPHOOK_PLAN_MISMATCH = 8,
  /* A peer died or closed its connection. The context can only be destroyed;
   * restart the job from the last checkpoint. */
  DDPHOOK_PEER_LOST = 9,
  /* A deadline passed: a peer never joined, or stopped. Do the same as for
   * PEER_LOST. */
  DDPHOOK_DEADLINE_EXCEEDED = 10,
  /* Another rank failed first; its message is in ddphook_last_error(). Do the
   * same as for PEER_LOST. */
  DDPHOOK_ABORTED = 11,
  /* A bug in ddphook. */
  DDPHOOK_INTERNAL = 12
} ddphook_status_t;

/* Returns a status's name without prefix ("PEER_LOST"); never null, static. */
DDPHOOK_API const char *ddphook_status_name(ddphook_status_t status);

/* Returns one line with the reason of the last failure on this thread. The
 * runtime owns the text, which is valid until the next failing call on this
 * thread; it is empty if no call has failed yet. */
DDPHOOK_API const char *ddphook_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_RUNTIME_STATUS_H */
