// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes statuses and names their codes. c_api.cpp has the last error.

#include "base/status.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>

using namespace ddphook;

Status::Status(ddphook_status_t code, std::string_view message) noexcept {
  try {
    text = std::make_shared<const std::string>(message);
    statusCode = code;
  } catch (const std::bad_alloc &) {
    *this = outOfMemory();
  }
}

Status Status::outOfMemory() noexcept {
  // Short enough for the string's internal buffer, so it needs no memory.
  static const std::string message = "out of memory";
  Status status;
  status.statusCode = DDPHOOK_RESOURCE_EXHAUSTED;
  status.text = std::shared_ptr<const std::string>(
      std::shared_ptr<const std::string>(), &message);
  return status;
}

const std::string &Status::message() const noexcept {
  static const std::string none;
  return text ? *text : none;
}

static std::string formatList(const char *format, va_list arguments) {
  va_list copy;
  va_copy(copy, arguments);
  int size = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  if (size < 0)
    return format;
  std::string text(static_cast<size_t>(size), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

std::string ddphook::formatText(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = formatList(format, arguments);
  va_end(arguments);
  return text;
}

static Status makeFailure(ddphook_status_t code, const char *format,
                          va_list arguments) {
  return withoutExceptions(
      [&] { return Status(code, formatList(format, arguments)); });
}

Status ddphook::error(ddphook_status_t code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Status status = makeFailure(code, format, arguments);
  va_end(arguments);
  return status;
}

#define DDPHOOK_FAILURE(name, CODE)                                            \
  Status ddphook::name(const char *format, ...) {                              \
    va_list arguments;                                                         \
    va_start(arguments, format);                                               \
    Status status = makeFailure(DDPHOOK_##CODE, format, arguments);            \
    va_end(arguments);                                                         \
    return status;                                                             \
  }
DDPHOOK_FAILURES(DDPHOOK_FAILURE)
#undef DDPHOOK_FAILURE

/// Returns RESOURCE_EXHAUSTED if the process or the machine reached a limit.
static ddphook_status_t codeOf(int errorNumber) {
  switch (errorNumber) {
  case ENOMEM:
  case ENOSPC:
  case EMFILE:
  case ENFILE:
  case EAGAIN:
  case ENOBUFS:
    return DDPHOOK_RESOURCE_EXHAUSTED;
  default:
    return DDPHOOK_IO_ERROR;
  }
}

Status ddphook::systemError(int errorNumber, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Status status = withoutExceptions([&] {
    return Status(codeOf(errorNumber), formatList(format, arguments) + ": " +
                                           std::strerror(errorNumber));
  });
  va_end(arguments);
  return status;
}

Status ddphook::withContext(Status status, std::string_view context) {
  if (status.isOk())
    return status;
  return withoutExceptions([&] {
    return Status(status.code(),
                  std::string(context) + ": " + status.message());
  });
}

Status ddphook::statusOfException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    return Status::outOfMemory();
  } catch (const std::exception &exception) {
    return Status(DDPHOOK_INTERNAL, exception.what());
  } catch (...) {
    return Status(DDPHOOK_INTERNAL, "an exception of an unknown type");
  }
}

static const char *const statusNames[] = {
    "OK",          "INVALID_ARGUMENT",   "FAILED_PRECONDITION",
    "UNSUPPORTED", "RESOURCE_EXHAUSTED", "DATA_LOSS",
    "IO_ERROR",    "BAD_ENVIRONMENT",    "PLAN_MISMATCH",
    "PEER_LOST",   "DEADLINE_EXCEEDED",  "ABORTED",
    "INTERNAL"};
static_assert(std::size(statusNames) == DDPHOOK_INTERNAL + 1);

extern "C" const char *ddphook_status_name(ddphook_status_t status) {
  return status >= 0 && status <= DDPHOOK_INTERNAL ? statusNames[status]
                                                   : "UNKNOWN";
}
