// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "trace/ranges.h"

#include "base/log.h"
#include "trace/ring.h"

#include <cstdlib>
#include <vector>

#ifdef DDPHOOK_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

using namespace ddphook;
using namespace ddphook::trace;

static bool isProfiled() {
  const char *profiler = std::getenv("NVTX_INJECTION64_PATH");
  return profiler && *profiler;
}

#ifdef DDPHOOK_HAS_NVTX

namespace {

class NvtxRanges : public Ranges {
public:
  void add(const std::string &name) override {
    names.push_back(nvtxDomainRegisterStringA(domain, name.c_str()));
  }

  void push(uint32_t name) const override {
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered =
        names[name < names.size() ? name : otherName];
    nvtxDomainRangePushEx(domain, &attributes);
  }

  void pop() const override { nvtxDomainRangePop(domain); }

private:
  static nvtxDomainHandle_t domainOfProcess() {
    // Profilers distinguish domains, but not who creates them.
    static nvtxDomainHandle_t domain = nvtxDomainCreateA("ddphook");
    return domain;
  }

  const nvtxDomainHandle_t domain = domainOfProcess();
  std::vector<nvtxStringHandle_t> names;
};

} // namespace

std::unique_ptr<Ranges> Ranges::create() {
  return isProfiled() ? std::make_unique<NvtxRanges>() : nullptr;
}

#else

std::unique_ptr<Ranges> Ranges::create() {
  if (isProfiled())
    log(LogLevel::Info,
        "a profiler requests NVTX ranges (NVTX_INJECTION64_PATH), but this "
        "runtime was built without NVTX");
  return nullptr;
}

#endif // DDPHOOK_HAS_NVTX
