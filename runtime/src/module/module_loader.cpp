// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank first does its local work, then all ranks exchange the outcome. So
// a rank with a broken file does not keep the others waiting, and no collective
// runs before all plans are known to be the same.

#include "module/module.h"

#include "base/collective.h"
#include "plan/plan.h"

#include <cinttypes>

using namespace ddphook;

static Status checkCompiled(const ddphook_compiled_module_t *compiled) {
  if (!compiled)
    return invalid("expected a module, but got a null pointer");
  if (compiled->struct_size < sizeof(ddphook_compiled_module_t) ||
      compiled->abi_version != DDPHOOK_ABI_VERSION)
    return unsupported("expected a module compiled for ABI version %d, but got "
                       "version %u of %u bytes",
                       DDPHOOK_ABI_VERSION, compiled->abi_version,
                       compiled->struct_size);
  if (!compiled->plan || !compiled->handle ||
      (compiled->entry_count > 0 && !compiled->entries) ||
      (compiled->device_code_size > 0 && !compiled->device_code))
    return dataLoss(
        "the module lacks its plan, its handle or its entry points");
  if (*compiled->handle)
    return failedPrecondition("the module is loaded already");
  uint64_t hash = hashPlan({compiled->plan, compiled->plan_size});
  if (hash != compiled->plan_hash)
    return dataLoss("expected a plan with the hash %016" PRIx64
                    ", but got %016" PRIx64,
                    compiled->plan_hash, hash);
  return Status::ok();
}

static Status checkEntries(const Plan &plan,
                           const ddphook_compiled_module_t &compiled) {
  if (plan.entries.size() != compiled.entry_count)
    return dataLoss("expected the plan's %zu entry points, but got %" PRIu64,
                    plan.entries.size(), compiled.entry_count);
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const ddphook_compiled_entry_t &entry = compiled.entries[i];
    if (!entry.name || !entry.invoke || plan.entries[i].name != entry.name)
      return dataLoss("expected entry point %zu to be '%s', but got '%s'", i,
                      plan.entries[i].name.c_str(),
                      entry.name ? entry.name : "nothing");
  }
  return Status::ok();
}

/// Checks that the backend supports the encodings of the plan's collectives.
static Status checkEncodings(const Plan &plan,
                             const ddphook_backend_t &backend) {
  for (const PlanCollective &collective : plan.collectives)
    if (collective.encoding && !(backend.encodings >> collective.encoding & 1))
      return unsupported(
          "the module has collectives encoded as %s, which the backend "
          "'%s' does not know",
          collective.codes()->describe().c_str(), backend.name);
  return Status::ok();
}

/// Does everything that needs no other rank.
static Status prepare(ddphook_module &module, Context &context) {
  const ddphook_compiled_module_t *compiled = module.compiled;
  DDPHOOK_TRY(checkCompiled(compiled));
  DDPHOOK_TRY(parsePlan({compiled->plan, compiled->plan_size}, &module.plan));
  DDPHOOK_TRY(checkEntries(module.plan, *compiled));
  if (module.plan.needsHostMemory && !context.backend().memory_is_host)
    return failedPrecondition(
        "the module reads and writes memory of the host itself, which "
        "the backend '%s' does not have: expected one compiled for a "
        "device",
        context.backend().name);
  DDPHOOK_TRY(checkEncodings(module.plan, context.backend()));
  DDPHOOK_TRY(module.loadKernels());
  DDPHOOK_TRY(module.createMatrices());
  DDPHOOK_TRY(module.arena.allocate(context, module.plan.arena));
  DDPHOOK_TRY(module.states.allocate(context, module.plan));
  return initialiseStates(module);
}

/// Returns the first rank whose plan differs from rank 0's, or 0.
static size_t findOdd(const std::vector<std::string> &reports) {
  for (size_t rank = 1; rank < reports.size(); ++rank)
    if (reports[rank] != reports[0])
      return rank;
  return 0;
}

/// Exchanges whether preparing the module succeeded, and compares the plans.
static Status comparePlans(const ddphook_module &module, Context &context,
                           const Status &prepared) {
  const ddphook_compiled_module_t *compiled = module.compiled;
  std::string report;
  if (prepared.isOk())
    report = concat(compiled->plan_hash, "/", compiled->plan_size);
  std::vector<std::string> reports;
  DDPHOOK_TRY(context.agree("ddphook_module_load", "load its module", prepared,
                            report, &reports));
  size_t odd = findOdd(reports);
  if (odd == 0)
    return Status::ok();
  bool isAsked = context.rank() == 0 || context.rank() == static_cast<int>(odd);
  std::vector<std::string> texts;
  DDPHOOK_TRY(context.allGather(
      "ddphook_module_load (plans)",
      isAsked ? std::string(compiled->plan, compiled->plan_size) : "", &texts));
  return Status(DDPHOOK_PLAN_MISMATCH,
                describeDifference(texts[0], "rank 0", texts[odd],
                                   "rank " + std::to_string(odd)));
}

/// Creates the communicators for collectives; collective.
static Status connectGroups(ddphook_module &module, Context &context) {
  module.moduleNumber = context.nextModuleNumber();
  const std::string prefix = concat("module/", module.moduleNumber, "/group/");
  for (size_t number = 0; number < module.groups.size(); ++number)
    DDPHOOK_TRY(
        module.groups[number].connect(context, module.plan, number, prefix));
  return Status::ok();
}

/// Checks that the groups of this job can run the plan's collectives.
static Status checkCollectives(const ddphook_module &module) {
  for (const PlanCollective &collective : module.plan.collectives)
    DDPHOOK_TRY(withContext(
        checkCollective(collective, module.groups[collective.group].size()),
        "process group '" + module.plan.processGroups[collective.group].name +
            "'"));
  return Status::ok();
}

static Status connect(ddphook_module &module, Context &context) {
  std::vector<GroupMembers> members;
  DDPHOOK_TRY(
      resolveGroups(module.plan, context.rank(), context.allNodes(), &members));
  for (GroupMembers &group : members)
    module.groups.emplace_back(std::move(group));
  // From here on ranks wait for each other, so the failure of one fails all:
  // rank sets of one group may differ in size.
  Status status = checkCollectives(module);
  if (status.isOk())
    status = module.assignMatrices();
  if (status.isOk())
    status = connectGroups(module, context);
  if (!status.isOk())
    return context.fail(std::move(status));
  std::vector<std::string> all;
  return context.allGather("ddphook_module_load (end)", {}, &all);
}

Status ddphook::loadModule(Context &context,
                           const ddphook_compiled_module_t *compiled) {
  DDPHOOK_TRY(context.failure());
  auto module = std::make_unique<ddphook_module>(context, compiled);
  Status prepared =
      withoutExceptions([&] { return prepare(*module, context); });
  DDPHOOK_TRY(comparePlans(*module, context, prepared));
  DDPHOOK_TRY(connect(*module, context));
  module->prepareCounts();
  module->nameEvents();
  *compiled->handle = module.get();
  module->isPublished = true;
  context.modules.push_back(std::move(module));
  return Status::ok();
}
