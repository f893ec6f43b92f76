//===- status.cpp - the status class inside the runtime -------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes statuses and names their codes. The thread-local last error lives in
// c_api.cpp.
//
//===----------------------------------------------------------------------===//
#include "base/status.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

using namespace ddphook;

static std::string formatText(const char *format, va_list arguments) {
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

Status ddphook::error(ddphook_status_t code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = formatText(format, arguments);
  va_end(arguments);
  return Status(code, std::move(text));
}

Status ddphook::systemError(int errorNumber, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = formatText(format, arguments);
  va_end(arguments);
  switch (errorNumber) {
  case ENOMEM:
  case ENOSPC:
  case EMFILE:
  case ENFILE:
  case EAGAIN:
  case ENOBUFS:
    return Status(DDPHOOK_RESOURCE_EXHAUSTED,
                  text + ": " + std::strerror(errorNumber));
  default:
    return Status(DDPHOOK_IO_ERROR, text + ": " + std::strerror(errorNumber));
  }
}

Status ddphook::withContext(Status status, const std::string &context) {
  if (status.isOk())
    return status;
  return Status(status.code(), context + ": " + status.message());
}

extern "C" const char *ddphook_status_name(ddphook_status_t status) {
  switch (status) {
  case DDPHOOK_OK:
    return "OK";
  case DDPHOOK_INVALID_ARGUMENT:
    return "INVALID_ARGUMENT";
  case DDPHOOK_FAILED_PRECONDITION:
    return "FAILED_PRECONDITION";
  case DDPHOOK_UNSUPPORTED:
    return "UNSUPPORTED";
  case DDPHOOK_RESOURCE_EXHAUSTED:
    return "RESOURCE_EXHAUSTED";
  case DDPHOOK_DATA_LOSS:
    return "DATA_LOSS";
  case DDPHOOK_IO_ERROR:
    return "IO_ERROR";
  case DDPHOOK_BAD_ENVIRONMENT:
    return "BAD_ENVIRONMENT";
  case DDPHOOK_PLAN_MISMATCH:
    return "PLAN_MISMATCH";
  case DDPHOOK_PEER_LOST:
    return "PEER_LOST";
  case DDPHOOK_DEADLINE_EXCEEDED:
    return "DEADLINE_EXCEEDED";
  case DDPHOOK_ABORTED:
    return "ABORTED";
  case DDPHOOK_INTERNAL:
    return "INTERNAL";
  }
  return "UNKNOWN";
}
