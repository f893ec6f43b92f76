// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matches an entry point of a module's plan with the module's table and maps
// its types to those of files. The runtime's parser parses the plan itself.

#include "entry_signature.h"

#include "plan/plan.h"

#include <algorithm>

using namespace ddphook;

/// Returns the type of a file's tensor for an element type of a valid plan.
static TensorType fileType(const std::string &type) {
#define DDPHOOK_ENTRY_TYPE(NAME, name, bytes, c_type, file)                    \
  if (type == #name)                                                           \
    return TensorType::file;
#include "ddphook/runtime/element_types.inc"
  return TensorType::U8;
}

static Status convert(const PlanValue &planned, EntryValue &value) {
  value.type = fileType(planned.dtype);
  value.shape = planned.shape;
  value.isScalar = planned.isScalar;
  if (!tensorBytes(value.shape, tensorTypeSize(value.type), value.bytes))
    return unsupported("shape " + printShape(value.shape) + " is too large");
  value.elements = value.bytes / tensorTypeSize(value.type);
  return Status::ok();
}

Status ddphook::findEntry(const ddphook_compiled_module_t &module,
                          const std::string &name, EntrySignature &signature) {
  signature = EntrySignature();
  signature.name = name;
  std::string known;
  for (uint64_t i = 0; i < module.entry_count; ++i) {
    const ddphook_compiled_entry_t &entry = module.entries[i];
    if (name == entry.name)
      signature.invoke = entry.invoke;
    known += std::string(known.empty() ? "'" : ", '") + entry.name + "'";
  }
  if (!signature.invoke)
    return invalid("unknown entry '" + name + "', expected " +
                   (known.empty() ? "a module with entries" : known));

  Plan plan;
  DDPHOOK_TRY(
      parsePlan(std::string_view(module.plan, module.plan_size), &plan));
  auto entry = std::find_if(
      plan.entries.begin(), plan.entries.end(),
      [&](const PlanEntry &candidate) { return candidate.name == name; });
  if (entry == plan.entries.end())
    return dataLoss("malformed plan: entry '" + name + "' is missing");
  signature.stateCount = plan.states.size();
  for (const PlanState &state : plan.states)
    signature.stateBytes += static_cast<uint64_t>(state.bytes);
  for (const PlanValue &argument : entry->arguments)
    DDPHOOK_TRY(convert(argument, signature.arguments.emplace_back()));
  for (const PlanValue &planned : entry->results) {
    EntryResult &result = signature.results.emplace_back();
    DDPHOOK_TRY(convert(planned, result));
    result.argument = planned.argument;
  }
  return Status::ok();
}
