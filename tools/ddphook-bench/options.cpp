// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "options.h"

#include "base/suggestion.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <regex>

using namespace ddphook;
using namespace ddphook::bench;

static constexpr int64_t kMostBytes = int64_t(1) << 40;

std::string bench::didYouMean(std::string_view name,
                              const std::vector<std::string_view> &known,
                              const std::string &prefix) {
  const std::string_view meant = suggestName(name, known);
  return meant.empty() ? std::string()
                       : ", did you mean " + prefix + std::string(meant) + "?";
}

int bench::fail(const Status &status, const char *help) {
  const std::string more = help ? " (see " + std::string(help) + ")" : "";
  std::fprintf(stderr, "ddphook-bench: %s%s\n", status.message().c_str(),
               more.c_str());
  return help ? 2 : 1;
}

Status bench::mismatch(const std::string &flag, const char *wanted,
                       const std::string &value) {
  return invalid("expected %s to be %s, but got '%s'", flag.c_str(), wanted,
                 value.c_str());
}

static Status unknownFlag(const std::string &name,
                          const std::vector<Flag> &flags) {
  std::vector<std::string_view> known;
  for (const Flag &flag : flags)
    known.push_back(flag.name);
  const std::string bare = name.substr(name[1] == '-' ? 2 : 1);
  // A single letter resembles any other.
  return invalid("unknown flag '%s'%s", name.c_str(),
                 bare.size() < 2 ? "" : didYouMean(bare, known, "--").c_str());
}

Status
bench::parseFlags(const Arguments &arguments, const std::vector<Flag> &flags,
                  const std::function<Status(const std::string &)> &word) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    if (argument.size() < 2 || argument[0] != '-') {
      DDPHOOK_TRY(word(argument));
      continue;
    }
    const bool isLong = argument[1] == '-';
    const size_t end =
        isLong ? std::min(argument.find('='), argument.size()) : 2;
    const std::string name = argument.substr(0, end);
    std::optional<std::string> value;
    if (end < argument.size())
      value = argument.substr(isLong ? end + 1 : end);
    auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag &each) {
      return isLong ? name == "--" + each.name
                    : each.shortName && name[1] == each.shortName;
    });
    if (flag == flags.end())
      return unknownFlag(name, flags);
    if (flag->value.empty() && value)
      return invalid("expected no value after %s, but got '%s'", name.c_str(),
                     value->c_str());
    if (!flag->value.empty() && !value) {
      if (++i == arguments.size())
        return invalid("expected a value after %s, but got nothing",
                       name.c_str());
      value = arguments[i];
    }
    DDPHOOK_TRY(flag->set(name, value.value_or("")));
  }
  return Status::ok();
}

std::string bench::helpOf(const std::vector<Flag> &flags) {
  const bool hasShort =
      std::any_of(flags.begin(), flags.end(),
                  [](const Flag &flag) { return flag.shortName != 0; });
  std::string text;
  for (const Flag &flag : flags) {
    std::string line = flag.shortName
                           ? std::string("  -") + flag.shortName + ", "
                           : std::string(hasShort ? 6 : 2, ' ');
    line += "--" + flag.name + (flag.value.empty() ? "" : "=" + flag.value);
    line.resize(std::max<size_t>(line.size() + 2, hasShort ? 28 : 20), ' ');
    text += line + flag.help + "\n";
  }
  return text;
}

Setter bench::toNumber(double *number, double least, double most) {
  return [=](const std::string &flag, const std::string &value) {
    char *end = nullptr;
    *number = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !(*number >= least && *number <= most))
      return invalid("expected %s to be a number from %g to %g, but got '%s'",
                     flag.c_str(), least, most, value.c_str());
    return Status::ok();
  };
}

Setter bench::toInt(int *number, int least, int most) {
  return [=](const std::string &flag, const std::string &value) {
    char *end = nullptr;
    errno = 0;
    const long parsed = std::strtol(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0' || errno != 0 || parsed < least ||
        parsed > most)
      return invalid(
          "expected %s to be a whole number from %d to %d, but got '%s'",
          flag.c_str(), least, most, value.c_str());
    *number = static_cast<int>(parsed);
    return Status::ok();
  };
}

Setter bench::toSize(int64_t *bytes) {
  return [=](const std::string &flag, const std::string &value) {
    // As many digits as fit into an int64_t.
    static const std::regex pattern("([0-9]{1,18})([KMGkmg]?)");
    std::smatch parts;
    const bool isSize = std::regex_match(value, parts, pattern);
    const int64_t number = isSize ? std::stoll(parts[1]) : 0;
    const size_t unit = std::string("KMGkmg").find(parts.str(2)) % 3 + 1;
    const size_t shift = isSize && parts[2].length() > 0 ? 10 * unit : 0;
    if (number < 1 || number > (kMostBytes >> shift))
      return mismatch(flag, "a size from 1 to 1024G, such as 8 or 64M", value);
    *bytes = number << shift;
    return Status::ok();
  };
}

Setter bench::toText(std::string *text, const char *wanted) {
  return [=](const std::string &flag, const std::string &value) {
    *text = value;
    return value.empty() ? mismatch(flag, wanted, value) : Status::ok();
  };
}

Setter bench::toTrue(bool *flag) {
  return [=](const std::string &, const std::string &) {
    *flag = true;
    return Status::ok();
  };
}
