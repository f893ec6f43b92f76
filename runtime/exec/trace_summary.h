// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a trace that ddphook has written, and adds up the events of each name.

#ifndef DDPHOOK_RUNTIME_EXEC_TRACE_SUMMARY_H
#define DDPHOOK_RUNTIME_EXEC_TRACE_SUMMARY_H

#include "base/status.h"

#include <string>

namespace ddphook {

/// Returns a table of the trace at `path`, and a line for each rank that failed
/// or was lost. IO_ERROR, or DATA_LOSS if the file is not a trace of ddphook.
Status summarizeTrace(const std::string &path, std::string *text);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_EXEC_TRACE_SUMMARY_H
