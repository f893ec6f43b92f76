// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The result of functions inside the runtime: a code of the public ABI and one
// line of text. It never crosses the C ABI; c_api.cpp converts it to a
// ddphook_status_t and the text of ddphook_last_error().

#pragma once

#include "ddphook/runtime/status.h"

#include <cxxabi.h>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ddphook {

/// Returns the parts as one text: numbers in decimal, all others as they are.
template <typename... Parts>
std::string concat(const Parts &...parts) {
  std::string text;
  auto add = [&text](const auto &part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_same_v<Part, char> ||
                  std::is_convertible_v<Part, std::string_view>)
      text += part;
    else
      text += std::to_string(part);
  };
  (add(parts), ...);
  return text;
}

/// Returns a text formatted as by printf.
std::string formatText(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/// Success, or a code with one line that says why. Messages start lower case
/// and end without a period. Nothing here throws.
class [[nodiscard]] Status {
public:
  Status() = default;
  /// Becomes outOfMemory() if there is no memory for the message.
  Status(ddphook_status_t code, std::string_view message) noexcept;

  static Status ok() { return Status(); }
  /// RESOURCE_EXHAUSTED: "out of memory".
  static Status outOfMemory() noexcept;

  bool isOk() const { return statusCode == DDPHOOK_OK; }
  ddphook_status_t code() const { return statusCode; }
  const std::string &message() const noexcept;

  /// Discards a failure found while another one is being handled.
  void ignore() const {}

private:
  ddphook_status_t statusCode = DDPHOOK_OK;
  /// Shared, so that a copy needs no memory. Null: no text.
  std::shared_ptr<const std::string> text;
};

/// Returns a failure with a message formatted as by printf. Like the functions
/// below, it never throws.
Status error(ddphook_status_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/// The same for one code each, and for a message that needs no formatting.
#define DDPHOOK_FAILURES(FAILURE)                                              \
  FAILURE(invalid, INVALID_ARGUMENT)                                           \
  FAILURE(failedPrecondition, FAILED_PRECONDITION)                             \
  FAILURE(unsupported, UNSUPPORTED)                                            \
  FAILURE(dataLoss, DATA_LOSS)                                                 \
  FAILURE(badEnvironment, BAD_ENVIRONMENT)                                     \
  FAILURE(peerLost, PEER_LOST)                                                 \
  FAILURE(deadlineExceeded, DEADLINE_EXCEEDED)                                 \
  FAILURE(internalError, INTERNAL)
#define DDPHOOK_FAILURE(name, CODE)                                            \
  Status name(const char *format, ...) __attribute__((format(printf, 1, 2)));  \
  inline Status name(const std::string &message) {                             \
    return Status(DDPHOOK_##CODE, message);                                    \
  }
DDPHOOK_FAILURES(DDPHOOK_FAILURE)
#undef DDPHOOK_FAILURE

/// Returns a failure of the operating system: the message, ": " and the text of
/// `errorNumber`. ENOMEM, EMFILE and their like are RESOURCE_EXHAUSTED, all
/// others IO_ERROR.
Status systemError(int errorNumber, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/// Returns the same failure with "`context`: " before its message.
Status withContext(Status status, std::string_view context);

/// Returns the exception being handled as a failure: RESOURCE_EXHAUSTED if
/// memory ran out, otherwise INTERNAL.
Status statusOfException() noexcept;

/// Runs `function`, which returns a Status; an exception becomes a failure.
template <typename Function>
Status withoutExceptions(Function &&function) {
  try {
    return function();
  } catch (const abi::__forced_unwind &) {
    throw; // The thread is being cancelled, which cannot be stopped here.
  } catch (...) {
    return statusOfException();
  }
}

/// Runs `function` and drops its exceptions: for work whose failure does no
/// harm or cannot be reported, as in a destructor.
template <typename Function>
void ignoreExceptions(Function &&function) {
  withoutExceptions([&] {
    function();
    return Status::ok();
  }).ignore();
}

} // namespace ddphook

/// Returns from the enclosing function if `expr` is a failure.
#define DDPHOOK_TRY(expr)                                                      \
  do {                                                                         \
    ::ddphook::Status ddphookStatus = (expr);                                  \
    if (!ddphookStatus.isOk())                                                 \
      return ddphookStatus;                                                    \
  } while (false)
