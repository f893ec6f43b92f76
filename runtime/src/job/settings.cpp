// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "job/settings.h"

#include "base/packed_texts.h"

#include <algorithm>
#include <map>

using namespace ddphook;

/// The text alternates names and values. The version comes first: if it
/// differs, the other settings may be different ones.
std::string ddphook::printSettings(const Bootstrap &place,
                                   const ddphook_backend_t &backend) {
  std::vector<std::string> texts = {"the runtime's version", DDPHOOK_VERSION,
                                    "DDPHOOK_BACKEND",       place.backend,
                                    "DDPHOOK_TRANSPORT",     place.transport};
  std::map<std::string, std::string> options;
  for (const std::string &entry : splitAtCommas(place.backendOptions)) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos)
      options[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  if (backend.agreed_options)
    for (const std::string &name : splitAtCommas(backend.agreed_options)) {
      auto found = options.find(name);
      texts.push_back("the backend's option " + name);
      texts.push_back(found == options.end() ? "" : found->second);
    }
  return packTexts(texts);
}

static std::string showSetting(const std::string &value) {
  return value.empty() ? "not set" : "'" + value + "'";
}

Status ddphook::compareSettings(const std::vector<std::string> &ofRanks) {
  const std::vector<std::string> first = unpackTexts(ofRanks[0]);
  for (size_t rank = 1; rank < ofRanks.size(); ++rank) {
    if (ofRanks[rank] == ofRanks[0])
      continue;
    const std::vector<std::string> other = unpackTexts(ofRanks[rank]);
    for (size_t i = 1; i < std::min(first.size(), other.size()); i += 2)
      if (first[i] != other[i])
        return error(DDPHOOK_BAD_ENVIRONMENT,
                     "the ranks' settings differ: %s is %s on rank 0, but %s "
                     "on rank %zu",
                     first[i - 1].c_str(), showSetting(first[i]).c_str(),
                     showSetting(other[i]).c_str(), rank);
    return error(DDPHOOK_DATA_LOSS, "rank %zu sent malformed settings", rank);
  }
  return Status::ok();
}
