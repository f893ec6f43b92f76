// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses the options with two tables: numbers and words.

#include "cuda_options.h"

#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <set>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

struct NumberOption {
  const char *name;
  std::optional<int> CudaOptions::*member; ///< Null: it is a field of NCCL's.
  int least;
  int most;
  bool isAgreed; ///< All ranks must give the same value.
  int ncclConfig_t::*field = nullptr;
};

struct WordOption {
  const char *name;
  std::string CudaOptions::*member;
};

} // namespace

static const NumberOption numberOptions[] = {
    {"device", &CudaOptions::device, 0, INT_MAX, false},
    {"compute_priority", &CudaOptions::computePriority, -100, 100, false},
    {"comm_priority", &CudaOptions::commPriority, -100, 100, false},
    {"register", &CudaOptions::registerMemory, 0, 1, true},
    {"blocking", &CudaOptions::blocking, 0, 1, false},
    {"exact_division", &CudaOptions::exactDivision, 0, 1, true},
    {"roots", &CudaOptions::roots, 1, INT_MAX, true},
    {"watchdog_ms", &CudaOptions::watchdogMs, 1, 60000, false},
    {"min_ctas", nullptr, 1, 1024, true, &ncclConfig_t::minCTAs},
    {"max_ctas", nullptr, 1, 1024, true, &ncclConfig_t::maxCTAs},
    {"cga_cluster_size", nullptr, 0, 8, true, &ncclConfig_t::cgaClusterSize},
    {"traffic_class", nullptr, 0, INT_MAX, false, &ncclConfig_t::trafficClass},
    {"collnet", nullptr, 0, 1, true, &ncclConfig_t::collnetEnable},
    {"cta_policy", nullptr, 0, 2, true, &ncclConfig_t::CTAPolicy},
    {"nvls_ctas", nullptr, 1, 1024, true, &ncclConfig_t::nvlsCTAs},
    {"channels_per_net_peer", nullptr, 1, 1024, true,
     &ncclConfig_t::nChannelsPerNetPeer},
    {"nvlink_centric_sched", nullptr, 0, 1, true,
     &ncclConfig_t::nvlinkCentricSched},
    {"nthreads", &CudaOptions::nthreads, 1, 1024, true},
};

static const WordOption wordOptions[] = {
    {"net_name", &CudaOptions::netName},
    {"algo", &CudaOptions::algo},
    {"proto", &CudaOptions::proto},
};

static std::string knownNames() {
  std::string names;
  for (const NumberOption &option : numberOptions)
    names += std::string(option.name) + ", ";
  for (const WordOption &option : wordOptions)
    names += std::string(option.name) + ", ";
  return names.substr(0, names.size() - 2);
}

const char *CudaOptions::agreedNames() {
  static const std::string names = [] {
    std::string list;
    for (const NumberOption &option : numberOptions)
      if (option.isAgreed)
        list += (list.empty() ? "" : ",") + std::string(option.name);
    for (const WordOption &option : wordOptions)
      list += std::string(",") + option.name;
    return list;
  }();
  return names.c_str();
}

static Status parseNumber(const NumberOption &option, const std::string &value,
                          CudaOptions *options) {
  char *end = nullptr;
  errno = 0;
  long number = std::strtol(value.c_str(), &end, 10);
  if (value.empty() || std::isspace(static_cast<unsigned char>(value[0])) ||
      *end != '\0' || errno != 0 || number < option.least ||
      number > option.most)
    return invalid("option %s: expected a number from %d to %d, but got '%s'",
                   option.name, option.least, option.most, value.c_str());
  if (option.field)
    options->config.*option.field = static_cast<int>(number);
  else
    options->*option.member = static_cast<int>(number);
  return Status::ok();
}

static Status parseEntry(const std::string &entry, CudaOptions *options,
                         std::set<std::string> &seen) {
  size_t equals = entry.find('=');
  if (equals == std::string::npos)
    return invalid("expected an option name=value, but got '%s'",
                   entry.c_str());
  std::string name = entry.substr(0, equals);
  std::string value = entry.substr(equals + 1);
  if (!seen.insert(name).second)
    return invalid("option %s is given twice", name.c_str());
  for (const NumberOption &option : numberOptions)
    if (name == option.name)
      return parseNumber(option, value, options);
  for (const WordOption &option : wordOptions)
    if (name == option.name) {
      if (value.empty())
        return invalid("option %s: expected a word, but got nothing",
                       option.name);
      options->*option.member = value;
      return Status::ok();
    }
  return invalid("expected one of the options %s, but got '%s'",
                 knownNames().c_str(), name.c_str());
}

Status CudaOptions::parse(const std::string &text, CudaOptions *options) {
  std::set<std::string> seen;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    DDPHOOK_TRY(parseEntry(text.substr(begin, end - begin), options, seen));
    begin = end + 1;
  }
  return Status::ok();
}

bool CudaOptions::isBlocking() const {
  const char *environment = std::getenv("NCCL_COMM_BLOCKING");
  const std::string value = environment ? environment : "";
  if (value == "0" || value == "1")
    return value == "1";
  return blocking.value_or(0) != 0;
}

ncclConfig_t CudaOptions::ncclConfig(const std::string &name) const {
  ncclConfig_t result = config;
  result.blocking = isBlocking();
  result.commName = name.c_str();
  if (!netName.empty())
    result.netName = netName.c_str();
  return result;
}

void CudaOptions::exportEnvironment() const {
  if (!algo.empty())
    ::setenv("NCCL_ALGO", algo.c_str(), /*overwrite=*/0);
  if (!proto.empty())
    ::setenv("NCCL_PROTO", proto.c_str(), /*overwrite=*/0);
  if (nthreads)
    ::setenv("NCCL_NTHREADS", std::to_string(*nthreads).c_str(),
             /*overwrite=*/0);
}
