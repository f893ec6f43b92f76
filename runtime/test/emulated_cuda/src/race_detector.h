// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Under TSan every thread of a block counts as a thread, although they take
// turns: only barriers and warp operations order them, so that one that is
// missing shows up as a race, in shared memory as in the device's. The blocks
// of a launch are ordered. What the emulation itself does between two threads
// is kept from TSan. Without TSan all of this is nothing.

#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMULATED_CUDA_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(EMULATED_CUDA_TSAN)
#define EMULATED_CUDA_TSAN 1
#endif

#ifdef EMULATED_CUDA_TSAN
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
}
#endif

namespace emulated_cuda::race_detector {

#ifdef EMULATED_CUDA_TSAN

constexpr bool isOn = true;

/// All that came before some thread's release(point) comes before what follows
/// a later acquire(point).
inline void acquire(void *point) { __tsan_acquire(point); }
inline void release(void *point) { __tsan_release(point); }

/// From here on the running thread's accesses do not count; nests.
inline void ignoreBegin() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void ignoreEnd() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

/// The same for locks and atomic variables: they order nothing.
inline void ignoreSyncBegin() { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
inline void ignoreSyncEnd() { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }

#else

constexpr bool isOn = false;
inline void acquire(void *) {}
inline void release(void *) {}
inline void ignoreBegin() {}
inline void ignoreEnd() {}
inline void ignoreSyncBegin() {}
inline void ignoreSyncEnd() {}

#endif

/// Ignores what its scope does.
class Ignore {
public:
  Ignore() { ignoreBegin(); }
  ~Ignore() { ignoreEnd(); }
  Ignore(const Ignore &) = delete;
  Ignore &operator=(const Ignore &) = delete;
};

/// Ignores what its scope does, and that its locks order anything: for what is
/// no part of the program under test, such as a queue's lock.
class Hide {
public:
  Hide() {
    ignoreBegin();
    ignoreSyncBegin();
  }
  ~Hide() {
    ignoreSyncEnd();
    ignoreEnd();
  }
  Hide(const Hide &) = delete;
  Hide &operator=(const Hide &) = delete;
};

/// Within a Hide's scope: ends it for a while.
class Show {
public:
  Show() {
    ignoreSyncEnd();
    ignoreEnd();
  }
  ~Show() {
    ignoreBegin();
    ignoreSyncBegin();
  }
  Show(const Show &) = delete;
  Show &operator=(const Show &) = delete;
};

} // namespace emulated_cuda::race_detector
