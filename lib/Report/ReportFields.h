//===- ReportFields.h - the fields of reports in JSON -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names each field once, for writing and for reading.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_REPORT_REPORTFIELDS_H
#define DDPHOOK_LIB_REPORT_REPORTFIELDS_H

#include "ddphook/Report/PlanReport.h"

#include "llvm/Support/JSON.h"

namespace mlir::ddp {

/// The version of a report's JSON, its key `ddphook_report`.
inline constexpr int64_t kReportVersion = 1;

/// llvm::json::parse() is recursive, so this first rejects texts that are
/// nested deeper than reports, plans and traces.
llvm::Expected<llvm::json::Value> parseJSON(llvm::StringRef text);

template <typename V>
void visitFields(V &visit, ReportGradient &gradient) {
  visit("name", gradient.name);
  visit("shape", gradient.shape);
  visit("bytes", gradient.bytes);
  visit("source", gradient.source);
}

template <typename V>
void visitFields(V &visit, ReportBucket &bucket) {
  visit("name", bucket.name);
  visit("group", bucket.group);
  visit("reduction", bucket.reduction);
  visit("dtype", bucket.dtype);
  visit("wire", bucket.wire);
  visit("hook", bucket.hook);
  visit("hook_from", bucket.hookFrom);
  visit("gradient_bytes", bucket.gradientBytes);
  visit("wire_bytes", bucket.wireBytes);
  visit("state_bytes", bucket.stateBytes);
  visit("source", bucket.source);
  visit("gradients", bucket.gradients);
}

template <typename V>
void visitFields(V &visit, ReportWork &work) {
  visit("what", work.what);
  visit("count", work.count);
}

template <typename V>
void visitFields(V &visit, ReportCollective &collective) {
  visit("number", collective.number);
  visit("kind", collective.kind);
  visit("reduction", collective.reduction);
  visit("bucket", collective.bucket);
  visit("group", collective.group);
  visit("count", collective.count);
  visit("dtype", collective.dtype);
  visit("wire", collective.wire);
  visit("others", collective.others);
  visit("function", collective.function);
  visit("source", collective.source);
  visit("within", collective.within);
  visit("start", collective.start);
  visit("wait", collective.wait);
  visit("beside", collective.beside);
}

template <typename V>
void visitFields(V &visit, ReportFunction &function) {
  visit("name", function.name);
  visit("operations", function.numOperations);
}

template <typename V>
void visitFields(V &visit, ReportState &state) {
  visit("name", state.name);
  visit("dtype", state.dtype);
  visit("role", state.role);
  visit("placement", state.placement);
  visit("offset", state.offset);
  visit("bytes", state.bytes);
}

template <typename V>
void visitFields(V &visit, ReportBuffer &buffer) {
  visit("function", buffer.function);
  visit("offset", buffer.offset);
  visit("bytes", buffer.bytes);
  visit("type", buffer.type);
  visit("bucket", buffer.bucket);
  visit("source", buffer.source);
}

template <typename V>
void visitFields(V &visit, ReportCopy &copy) {
  visit("function", copy.function);
  visit("bytes", copy.bytes);
  visit("type", copy.type);
  visit("source", copy.source);
}

template <typename V>
void visitFields(V &visit, ReportRemark &remark) {
  visit("pass", remark.pass);
  visit("kind", remark.kind);
  visit("text", remark.text);
  visit("bucket", remark.bucket);
  visit("source", remark.source);
}

template <typename V>
void visitFields(V &visit, ReportGroup &group) {
  visit("name", group.name);
  visit("size", group.size);
  visit("ranks", group.ranks);
  visit("placement", group.placement);
  visit("parent", group.parent);
  visit("topology", group.topology);
}

template <typename V>
void visitFields(V &visit, MeasuredCollective &collective) {
  visit("number", collective.number);
  visit("name", collective.name);
  visit("bucket", collective.bucket);
  visit("runs", collective.runs);
  visit("total_us", collective.total);
  visit("waiting_us", collective.waiting);
  visit("moving_us", collective.moving);
  visit("exposed_us", collective.exposed);
}

template <typename V>
void visitFields(V &visit, MeasuredStep &step) {
  visit("name", step.name);
  visit("runs", step.runs);
  visit("total_us", step.total);
  visit("communicating_us", step.communicating);
  visit("exposed_us", step.exposed);
}

template <typename V>
void visitFields(V &visit, TraceSummary &summary) {
  visit("run", summary.run);
  visit("world_size", summary.worldSize);
  visit("events_lost", summary.numLost);
  visit("failures", summary.failures);
  visit("steps", summary.steps);
  visit("collectives", summary.collectives);
}

template <typename V>
void visitFields(V &visit, PlanReport &report) {
  visit("module", report.module);
  visit("abi", report.abi);
  visit("memory", report.memory);
  visit("entries", report.entries);
  visit("process_groups", report.groups);
  visit("buckets", report.buckets);
  visit("collectives", report.collectives);
  visit("states", report.states);
  visit("arena_bytes", report.arenaBytes);
  visit("state_arena_bytes", report.stateArenaBytes);
  visit("has_program", report.hasProgram);
  visit("functions", report.functions);
  visit("buffers", report.buffers);
  visit("copies", report.copies);
  visit("remarks", report.remarks);
  visit("measured", report.measured);
}

namespace detail {
/// Reads an object's fields, which must all be present unless they are
/// std::optional. Sizes, counts and times must not be negative, so that
/// computing with them is safe.
struct FieldReader {
  llvm::json::Path path;
  llvm::json::ObjectMapper object;
  bool isOk = static_cast<bool>(object);

  template <typename T>
  void operator()(llvm::StringLiteral key, T &value) {
    isOk = isOk && object.map(key, value) && check(key, value);
  }

private:
  template <typename T>
  bool check(llvm::StringLiteral, const T &) {
    return true;
  }
  bool check(llvm::StringLiteral key, int64_t number) {
    // -1: a collective without a plan, or without random numbers.
    return number >= (key == "number" || key == "stream" ? -1 : 0) ||
           refuse(key, "expected a number that is not negative");
  }
  bool check(llvm::StringLiteral key, double time) {
    return (time >= 0 && time <= kMostTime) ||
           refuse(key, "expected a plausible time");
  }
  bool refuse(llvm::StringLiteral key, llvm::StringLiteral message) {
    path.field(key).report(message);
    return false;
  }
};
} // namespace detail

/// llvm::json finds this for every type with fields.
template <typename T,
          typename = decltype(visitFields(std::declval<detail::FieldReader &>(),
                                          std::declval<T &>()))>
bool fromJSON(const llvm::json::Value &value, T &out, llvm::json::Path path) {
  detail::FieldReader reader{path, {value, path}};
  visitFields(reader, out);
  return reader.isOk;
}

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_REPORT_REPORTFIELDS_H
