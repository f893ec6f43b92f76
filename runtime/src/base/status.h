//===- status.h - the status class inside the runtime -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The result of functions inside the runtime: a code of the public ABI and one
// line of text. It never crosses the C ABI; c_api.cpp turns it into a
// ddphook_status_t and the text of ddphook_last_error().
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_STATUS_H
#define DDPHOOK_RUNTIME_SRC_BASE_STATUS_H

#include "ddphook/runtime/status.h"

#include <string>
#include <utility>

namespace ddphook {

/// Success, or a code with one line that says why. Messages start lower case
/// and end without a period.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(ddphook_status_t code, std::string message)
      : statusCode(code), text(std::move(message)) {}

  static Status ok() { return Status(); }

  bool isOk() const { return statusCode == DDPHOOK_OK; }
  ddphook_status_t code() const { return statusCode; }
  const std::string &message() const { return text; }

  /// For failures that are found while another one is being handled.
  void ignore() const {}

private:
  ddphook_status_t statusCode = DDPHOOK_OK;
  std::string text;
};

/// A failure whose message is made as by printf.
Status error(ddphook_status_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// A failure of the operating system: the message, then ": " and the text of
/// `errorNumber`. ENOMEM, EMFILE and their like are RESOURCE_EXHAUSTED, all
/// others IO_ERROR.
Status systemError(int errorNumber, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// The same failure with "`context`: " before its message.
Status withContext(Status status, const std::string &context);

} // namespace ddphook

/// Returns from the enclosing function when `expr` is a failure.
#define DDPHOOK_RETURN_IF_ERROR(expr)                                          \
  do {                                                                         \
    ::ddphook::Status ddphookStatus = (expr);                                  \
    if (!ddphookStatus.isOk())                                                 \
      return ddphookStatus;                                                    \
  } while (false)

#endif // DDPHOOK_RUNTIME_SRC_BASE_STATUS_H
