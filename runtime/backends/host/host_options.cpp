// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses the options; so far there is only one.

#include "host_options.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::host;

static Status parseAsyncProgress(const std::string &value,
                                 AsyncProgress *progress) {
  if (value == "auto")
    *progress = AsyncProgress::Auto;
  else if (value == "always")
    *progress = AsyncProgress::Always;
  else if (value == "never")
    *progress = AsyncProgress::Never;
  else
    return invalid(
        "option async_progress: expected 'auto', 'always' or 'never', "
        "but got '%s'",
        value.c_str());
  return Status::ok();
}

Status HostOptions::parse(const std::string &text, HostOptions *options) {
  bool isGiven = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = entry.find('=');
    if (equals == std::string::npos)
      return invalid("expected an option name=value, but got '%s'",
                     entry.c_str());
    const std::string name = entry.substr(0, equals);
    if (name != "async_progress")
      return invalid(
          "expected the host backend's option async_progress, but got "
          "'%s'",
          name.c_str());
    if (isGiven)
      return invalid("option %s is given twice", name.c_str());
    isGiven = true;
    DDPHOOK_TRY(
        parseAsyncProgress(entry.substr(equals + 1), &options->asyncProgress));
  }
  return Status::ok();
}
