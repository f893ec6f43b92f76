//===- entry_signature.cpp - what an entry point takes and gives ----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the entry points out of a module's plan (docs/plan.md) and matches
// them with the module's table. The rest of the plan is the runtime's.
//
//===----------------------------------------------------------------------===//
#include "entry_signature.h"

#include <nlohmann/json.hpp>

#include <cstring>
#include <optional>

using namespace ddphook;
using nlohmann::json;

static Status badPlan(const std::string &what) {
  return Status(DDPHOOK_DATA_LOSS, "malformed plan: " + what);
}

/// The type of a file's tensor for an element type of the plan.
static std::optional<TensorType> fileType(const std::string &type) {
  static const struct {
    const char *plan;
    TensorType file;
  } table[] = {
      {"f16", TensorType::F16}, {"bf16", TensorType::BF16},
      {"f32", TensorType::F32}, {"f64", TensorType::F64},
      {"i1", TensorType::Bool}, {"i8", TensorType::I8},
      {"i16", TensorType::I16}, {"i32", TensorType::I32},
      {"i64", TensorType::I64}, {"index", TensorType::I64},
  };
  for (const auto &row : table)
    if (type == row.plan)
      return row.file;
  return std::nullopt;
}

static Status parseValue(const json &text, EntryValue &value) {
  const std::string &type = text.at("dtype").get_ref<const std::string &>();
  std::optional<TensorType> parsed = fileType(type);
  if (!parsed)
    return badPlan("unknown element type '" + type + "'");
  value.type = *parsed;
  value.shape = text.at("shape").get<std::vector<int64_t>>();
  if (!tensorBytes(value.shape, tensorTypeSize(value.type), value.bytes))
    return badPlan("shape " + printShape(value.shape) + " is out of range");
  value.elements = value.bytes / tensorTypeSize(value.type);
  return Status::ok();
}

static Status parseEntry(const json &entry, EntrySignature &signature) {
  for (const json &argument : entry.at("arguments")) {
    DDPHOOK_RETURN_IF_ERROR(
        parseValue(argument, signature.arguments.emplace_back()));
  }
  int64_t argumentCount = static_cast<int64_t>(signature.arguments.size());
  for (const json &text : entry.at("results")) {
    EntryResult &result = signature.results.emplace_back();
    DDPHOOK_RETURN_IF_ERROR(parseValue(text, result));
    result.argument = text.at("argument").get<int64_t>();
    if (result.argument < -1 || result.argument >= argumentCount)
      return badPlan("result is argument " + std::to_string(result.argument) +
                     " of " + std::to_string(argumentCount));
    if (result.argument >= 0 &&
        signature.arguments[static_cast<size_t>(result.argument)].bytes !=
            result.bytes)
      return badPlan("result differs in size from argument " +
                     std::to_string(result.argument) + ", which it is");
  }
  return Status::ok();
}

static Status findInPlan(const json &plan, EntrySignature &signature) {
  for (const json &entry : plan.at("entries"))
    if (entry.at("name").get_ref<const std::string &>() == signature.name)
      return parseEntry(entry, signature);
  return badPlan("entry '" + signature.name + "' is missing");
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
    return Status(DDPHOOK_INVALID_ARGUMENT,
                  "unknown entry '" + name + "', expected " +
                      (known.empty() ? "a module with entries" : known));

  json plan = json::parse(module.plan, module.plan + module.plan_size, nullptr,
                          /*allow_exceptions=*/false);
  if (plan.is_discarded())
    return badPlan("not JSON");
  try {
    return findInPlan(plan, signature);
  } catch (const json::exception &exception) {
    return badPlan(exception.what());
  }
}
