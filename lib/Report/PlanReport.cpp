//===- PlanReport.cpp - what a compiled step communicates -----------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads plans and reports. Takes only what a report contains from a plan; the
// runtime validates plans.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Report/PlanReport.h"

#include "ReportFields.h"
#include "ddphook/runtime/compiled.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir::ddp;
using llvm::StringRef;

/// Returns the sum over a range, or INT64_MAX if it overflows.
template <typename Range, typename F>
static int64_t sum(const Range &range, F get) {
  int64_t total = 0;
  for (const auto &element : range)
    if (llvm::AddOverflow<int64_t>(total, get(element), total))
      return INT64_MAX;
  return total;
}

int64_t PlanReport::getGradientBytes() const {
  return sum(buckets, [](const ReportBucket &b) { return b.gradientBytes; });
}
int64_t PlanReport::getWireBytes() const {
  return sum(buckets, [](const ReportBucket &b) { return b.wireBytes; });
}
int64_t PlanReport::getStateBytes() const {
  return sum(states, [](const ReportState &state) { return state.bytes; });
}
int64_t PlanReport::getCopiedBytes() const {
  return sum(copies, [](const ReportCopy &copy) { return copy.bytes; });
}
int64_t PlanReport::getNumGradients() const {
  return sum(buckets, [](const ReportBucket &b) { return b.gradients.size(); });
}

//===----------------------------------------------------------------------===//
// A plan's text
//===----------------------------------------------------------------------===//

// Not in an anonymous namespace: llvm::json finds functions by their namespace.
namespace mlir::ddp {
/// Reports do not show which parts are assigned to whom.
struct PlanDeal {};
template <typename V>
void visitFields(V &, PlanDeal &) {}

// The types of fields in JSON, by their roles in plan_fields.inc.
namespace role {
using Text = std::string;
using Number = int64_t;
using Flag = bool;
using Texts = std::vector<std::string>;
using NumberLists = std::vector<std::vector<int64_t>>;
using Kind = Text;
using Type = Text;
using WireType = Text;
using Code = Text;
using OptionalNumber = std::optional<int64_t>;
using OptionalFlag = std::optional<bool>;
using OptionalParts = std::optional<PlanDeal>;
} // namespace role

#define DDPHOOK_DECLARE_FIELD(Role, key, ...) role::Role key = {};
#define DDPHOOK_VISIT_FIELD(Role, key, ...) visit(#key, object.key);

struct PlanGroup {
#define DDPHOOK_PLAN_GROUP DDPHOOK_DECLARE_FIELD
#include "ddphook/runtime/plan_fields.inc"
};
struct PlanBucket {
#define DDPHOOK_PLAN_BUCKET DDPHOOK_DECLARE_FIELD
#include "ddphook/runtime/plan_fields.inc"
};
struct PlanCollective {
#define DDPHOOK_PLAN_COLLECTIVE DDPHOOK_DECLARE_FIELD
#include "ddphook/runtime/plan_fields.inc"
};
struct PlanArena {
  int64_t bytes = 0;
};
struct PlanEntry {
  std::string name;
};
struct Plan {
  std::string memory;
  std::vector<PlanGroup> groups;
  std::vector<PlanBucket> buckets;
  std::vector<ReportState> states;
  std::vector<PlanCollective> collectives;
  PlanArena arena, stateArena;
  std::vector<PlanEntry> entries;
};

template <typename V>
void visitFields(V &visit, PlanGroup &object) {
#define DDPHOOK_PLAN_GROUP DDPHOOK_VISIT_FIELD
#include "ddphook/runtime/plan_fields.inc"
}
template <typename V>
void visitFields(V &visit, PlanBucket &object) {
#define DDPHOOK_PLAN_BUCKET DDPHOOK_VISIT_FIELD
#include "ddphook/runtime/plan_fields.inc"
}
template <typename V>
void visitFields(V &visit, PlanCollective &object) {
#define DDPHOOK_PLAN_COLLECTIVE DDPHOOK_VISIT_FIELD
#include "ddphook/runtime/plan_fields.inc"
}
template <typename V>
void visitFields(V &visit, PlanArena &arena) {
  visit("bytes", arena.bytes);
}
template <typename V>
void visitFields(V &visit, PlanEntry &entry) {
  visit("name", entry.name);
}
template <typename V>
void visitFields(V &visit, Plan &plan) {
  visit("memory", plan.memory);
  visit("process_groups", plan.groups);
  visit("buckets", plan.buckets);
  visit("states", plan.states);
  visit("collectives", plan.collectives);
  visit("arena", plan.arena);
  visit("state_arena", plan.stateArena);
  visit("entries", plan.entries);
}
} // namespace mlir::ddp

/// Returns the bytes of an element, or 0 for a type that plans cannot contain.
static int64_t getElementBytes(StringRef dtype) {
  return llvm::StringSwitch<int64_t>(dtype)
#define DDPHOOK_ENTRY_TYPE(NAME, name, bytes, c_type, file) .Case(#name, bytes)
#include "ddphook/runtime/element_types.inc"
      .Default(0);
}

static std::string describeWire(StringRef dtype, StringRef wireDtype,
                                StringRef encoding, int64_t block) {
  if (encoding.empty())
    return (wireDtype.empty() ? dtype : wireDtype).str();
  if (block == 0)
    return encoding.str();
  return (encoding + " in blocks of " + llvm::Twine(block)).str();
}

static std::string describeRanks(const std::vector<std::vector<int64_t>> &all) {
  if (all.empty())
    return "";
  auto join = [](const auto &list, auto print) {
    return "[" + llvm::join(llvm::map_range(list, print), ", ") + "]";
  };
  auto printNumber = [](int64_t number) { return std::to_string(number); };
  return join(all, [&](const std::vector<int64_t> &list) {
    return join(list, printNumber);
  });
}

static llvm::Error addBucket(PlanReport &report, PlanBucket &bucket) {
  ReportBucket result;
  int64_t elementBytes = getElementBytes(bucket.dtype);
  if (elementBytes == 0)
    return llvm::createStringError("expected the element type of bucket '" +
                                   bucket.name + "', but got '" + bucket.dtype +
                                   "'");
  if (!bucket.gradients.empty() &&
      bucket.gradients.size() != bucket.shapes.size())
    return llvm::createStringError(
        "expected a shape for each gradient of bucket '" + bucket.name +
        "', but got " + llvm::Twine(bucket.shapes.size()) + " shapes for " +
        llvm::Twine(bucket.gradients.size()) + " gradients");
  for (auto [i, shape] : llvm::enumerate(bucket.shapes)) {
    ReportGradient gradient;
    if (!bucket.gradients.empty())
      gradient.name = bucket.gradients[i];
    gradient.bytes = elementBytes;
    bool isTooLarge = false;
    for (int64_t size : shape)
      isTooLarge |=
          size < 0 || llvm::MulOverflow(gradient.bytes, size, gradient.bytes);
    isTooLarge |= llvm::AddOverflow(result.gradientBytes, gradient.bytes,
                                    result.gradientBytes) != 0;
    if (isTooLarge)
      return llvm::createStringError(
          "expected shapes of bucket '" + bucket.name +
          "' that fit into memory, but got " + formatShape(shape));
    gradient.shape = std::move(shape);
    result.gradients.push_back(std::move(gradient));
  }
  result.wire = describeWire(bucket.dtype, bucket.wire_dtype, bucket.encoding,
                             bucket.block);
  result.name = std::move(bucket.name);
  result.group = std::move(bucket.group);
  result.reduction = std::move(bucket.reduction);
  result.dtype = std::move(bucket.dtype);
  result.hook = std::move(bucket.hook);
  result.wireBytes = bucket.wire_bytes;
  result.stateBytes = bucket.state_bytes;
  report.buckets.push_back(std::move(result));
  return llvm::Error::success();
}

/// Adds ", key 3" to a text for an optional field that is set.
template <typename T>
static void addField(std::optional<std::string> &text, StringRef key,
                     const T &value) {
  if constexpr (std::is_same_v<T, role::OptionalNumber> ||
                std::is_same_v<T, role::OptionalFlag>)
    if (value)
      text =
          text.value_or("") + ", " + key.str() + " " + std::to_string(*value);
}

static llvm::Error addCollective(PlanReport &report, PlanCollective &from) {
  if (from.group < 0 || from.group >= int64_t(report.groups.size()))
    return llvm::createStringError("expected a collective's process group, but "
                                   "got the number " +
                                   llvm::Twine(from.group));
  ReportCollective result;
  result.number = report.collectives.size();
  // Buckets have their own reduction.
  if (from.kind == "reduce_scatter" && from.bucket.empty())
    result.reduction = from.divide ? "mean" : "sum";
  result.kind = std::move(from.kind);
  result.bucket = std::move(from.bucket);
  result.group = report.groups[from.group].name;
  result.count = from.count;
  result.wire =
      describeWire(from.dtype, from.wire_dtype, from.encoding, from.block);
  result.dtype = std::move(from.dtype);
#define DDPHOOK_PLAN_COLLECTIVE(Role, key, Name, text)                         \
  addField(result.others, #key, from.key);
#include "ddphook/runtime/plan_fields.inc"
  report.collectives.push_back(std::move(result));
  return llvm::Error::success();
}

/// Parses JSON, and checks its version under `key`.
static llvm::Expected<llvm::json::Value> parseVersioned(StringRef text,
                                                        StringRef what,
                                                        StringRef key,
                                                        int64_t expected) {
  llvm::Expected<llvm::json::Value> value = parseJSON(text);
  if (!value)
    return llvm::createStringError("cannot read the " + what + ": " +
                                   toString(value.takeError()));
  llvm::json::Object *object = value->getAsObject();
  std::optional<int64_t> version =
      object ? object->getInteger(key) : std::nullopt;
  if (!version)
    return llvm::createStringError("expected a " + what + ", with a number '" +
                                   key + "'");
  if (*version != expected)
    return llvm::createStringError(
        "expected a " + what + " of version " + llvm::Twine(expected) +
        ", but got version " + llvm::Twine(*version));
  return value;
}

llvm::Expected<PlanReport> mlir::ddp::readPlan(StringRef text) {
  llvm::Expected<llvm::json::Value> value =
      parseVersioned(text, "plan", "abi", DDPHOOK_ABI_VERSION);
  if (!value)
    return value.takeError();
  Plan plan;
  llvm::json::Path::Root root("plan");
  if (!fromJSON(*value, plan, root))
    return root.getError();
  PlanReport report;
  report.abi = DDPHOOK_ABI_VERSION;
  report.memory = std::move(plan.memory);
  for (PlanEntry &entry : plan.entries)
    report.entries.push_back(std::move(entry.name));
  for (PlanGroup &group : plan.groups)
    report.groups.push_back(
        {std::move(group.name), group.size, describeRanks(group.ranks),
         std::move(group.placement), std::move(group.parent),
         std::move(group.topology)});
  for (PlanBucket &bucket : plan.buckets)
    if (llvm::Error error = addBucket(report, bucket))
      return error;
  for (PlanCollective &collective : plan.collectives)
    if (llvm::Error error = addCollective(report, collective))
      return error;
  report.states = std::move(plan.states);
  report.arenaBytes = plan.arena.bytes;
  report.stateArenaBytes = plan.stateArena.bytes;
  return report;
}

llvm::Expected<PlanReport> mlir::ddp::readReport(StringRef text) {
  llvm::Expected<llvm::json::Value> value =
      parseVersioned(text, "report", "ddphook_report", kReportVersion);
  if (!value)
    return value.takeError();
  PlanReport report;
  llvm::json::Path::Root root("report");
  if (!fromJSON(*value, report, root))
    return root.getError();
  return report;
}

llvm::Error mlir::ddp::addMeasurements(PlanReport &report,
                                       const StepTrace &trace) {
  for (const TraceEvent &event : trace.events) {
    if (event.kind != TraceEvent::Collective || event.collective < 0)
      continue;
    auto number = static_cast<size_t>(event.collective);
    if (number < report.collectives.size() &&
        report.collectives[number].bucket == event.bucket)
      continue;
    return llvm::createStringError(
        "expected a trace of this module, but collective " +
        llvm::Twine(event.collective) + " reduces bucket '" + event.bucket +
        "' there, and " +
        (number < report.collectives.size()
             ? "'" + report.collectives[number].bucket + "' here"
             : "this plan has no such collective"));
  }
  report.measured = summarize(trace);
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Formatting numbers and names
//===----------------------------------------------------------------------===//

std::string mlir::ddp::formatBytes(int64_t bytes) {
  static constexpr StringRef units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  unsigned unit = 0;
  // A value that would round to 1000 becomes 1.00 of the next unit.
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0)
    return std::to_string(bytes) + " B";
  int digits = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return llvm::formatv("{0} {1}", llvm::format("%.*f", digits, value),
                       units[unit]);
}

std::string mlir::ddp::formatRatio(int64_t before, int64_t after) {
  if (after == 0)
    return "nothing is sent";
  return llvm::formatv("{0:f2}", static_cast<double>(before) /
                                     static_cast<double>(after));
}

std::string mlir::ddp::formatShape(const std::vector<int64_t> &shape) {
  if (shape.empty())
    return "scalar";
  return llvm::join(
      llvm::map_range(shape, [](int64_t size) { return std::to_string(size); }),
      " × ");
}

std::string mlir::ddp::printable(StringRef text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters of two bytes.
    bool isWide = text.size() > i + 1 && byte == 0xc2 &&
                  (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (isWide)
      byte = static_cast<unsigned char>(text[++i]);
    if (isWide || byte < 0x20 || byte == 0x7f)
      result += "\\x" + llvm::utohexstr(byte, /*LowerCase=*/true, /*Width=*/2);
    else
      result += text[i];
  }
  return result;
}
