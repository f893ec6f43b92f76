// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program that is linked with this has its own malloc(), pthread_create(),
// open(), send() and so on. They count, and fail when the test wants them to.

#pragma once

namespace ddphook::test {

/// What is counted together.
enum class CallKind { Allocation, Thread, System };

/// From now on calls of `kind` are counted, by all threads of this process, and
/// `length` of them fail, beginning with number `first`, from 0. Of system
/// calls only those of the function fail that failed first. If `function` is
/// not empty, only calls of that one count.
void failCalls(CallKind kind, long first, long length,
               const char *function = "");

/// Ends that.
void allowCalls();

/// How many have been counted.
long countedCalls();

/// Whether this process has sent anything to another one since then.
bool hasSent();

/// The function that failed first, as "malloc", and with which text of errno;
/// "" if none has.
const char *failedCall();
const char *failedReason();

} // namespace ddphook::test
