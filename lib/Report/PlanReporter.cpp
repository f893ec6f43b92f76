// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An instrumentation around `convert-ddp-to-runtime`, a collector of remarks,
// and the report from both and the plan. ProgramFacts.cpp reads the module.

#include "ddphook/Report/PlanReporter.h"

#include "ProgramFacts.h"
#include "ddphook/Target/PlanText.h"

#include "mlir/IR/Remarks.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"

#include <mutex>

using namespace mlir;
using namespace mlir::ddp;
namespace json = llvm::json;

/// The version of a report's keys.
static constexpr int64_t kReportVersion = 2;

/// The pass that turns buckets into the plan.
static constexpr llvm::StringLiteral kConversion = "convert-ddp-to-runtime";

struct PlanReporter::Record {
  struct PassRemark {
    std::string pass, kind, text;
    Location location;
  };
  /// Facts from just before and just after the conversion.
  std::optional<MemoryFacts> memory;
  std::optional<json::Object> converted;
  std::string error;

  std::mutex mutex;
  std::vector<PassRemark> remarks;
  /// The engine in the context, which owns it.
  remark::detail::RemarkEngine *engine = nullptr;
};

/// Returns the plan of `module`, and the schedule of its collectives.
static llvm::Expected<json::Object> readModule(ModuleOp module) {
  llvm::Expected<json::Value> plan =
      json::parse(writePlanText(getPlan(module)));
  if (!plan)
    return plan.takeError();
  json::Object report{{"ddphook_report", kReportVersion},
                      {"plan", std::move(*plan)}};
  readSchedule(module, report);
  return report;
}

class PlanReporter::Instrumentation : public PassInstrumentation {
public:
  explicit Instrumentation(std::shared_ptr<Record> record)
      : record(std::move(record)) {}

  void runBeforePass(Pass *pass, Operation *op) override {
    if (auto module = dyn_cast<ModuleOp>(op);
        module && pass->getArgument() == kConversion)
      record->memory = readMemory(module);
  }

  void runAfterPass(Pass *pass, Operation *op) override {
    auto module = dyn_cast<ModuleOp>(op);
    if (!module || pass->getArgument() != kConversion || !getPlan(module))
      return;
    // Later passes change calls, and may turn the plan into text.
    if (llvm::Expected<json::Object> report = readModule(module))
      record->converted = std::move(*report);
    else
      record->error = toString(report.takeError());
  }

private:
  std::shared_ptr<Record> record;
};

class PlanReporter::RemarkStreamer
    : public remark::detail::MLIRRemarkStreamerBase {
public:
  explicit RemarkStreamer(std::shared_ptr<Record> record)
      : record(std::move(record)) {}

  void streamOptimizationRemark(const remark::detail::Remark &remark) override {
    std::string text, values;
    for (const remark::detail::Remark::Arg &arg : remark.getArgs())
      if (arg.key == "Remark")
        text += arg.val;
      else if (!isAddedToRemarks(arg.key))
        values += (values.empty() ? "" : ", ") + arg.key + "=" + arg.val;
    if (!values.empty())
      text += ": " + values;
    std::lock_guard<std::mutex> lock(record->mutex);
    record->remarks.push_back({remark.getCombinedCategoryName().str(),
                               remark.getRemarkTypeString().lower(),
                               json::fixUTF8(text), remark.getLocation()});
  }

private:
  std::shared_ptr<Record> record;
};

PlanReporter::PlanReporter() : record(std::make_shared<Record>()) {}
PlanReporter::~PlanReporter() = default;

void PlanReporter::attach(PassManager &pm) {
  pm.addInstrumentation(std::make_unique<Instrumentation>(record));
  MLIRContext *context = pm.getContext();
  if (context->getRemarkEngine())
    return;
  std::string ours = "ddp-.*";
  remark::RemarkCategories categories{ours, ours, ours, ours, ours};
  if (succeeded(remark::enableOptimizationRemarks(
          *context, std::make_unique<RemarkStreamer>(record),
          std::make_unique<remark::RemarkEmittingPolicyAll>(), categories)))
    record->engine = context->getRemarkEngine();
}

llvm::Expected<json::Object> PlanReporter::getReport(ModuleOp module) {
  MLIRContext *context = module.getContext();
  if (record->engine && context->getRemarkEngine() == record->engine)
    context->setRemarkEngine(nullptr);
  record->engine = nullptr;
  if (!record->error.empty())
    return llvm::createStringError(record->error);
  if (!record->converted && !getPlan(module))
    return llvm::createStringError(
        "expected a module with a plan, which ddp-pipeline makes, and passes "
        "that end with " +
        kConversion);
  llvm::Expected<json::Object> report =
      record->converted ? llvm::Expected<json::Object>(*record->converted)
                        : readModule(module);
  if (!report)
    return report;
  if (record->memory)
    (*report)["program"] = json::Object(record->memory->program);
  // Passes may run in several threads.
  using Remark = std::array<std::string, 5>;
  std::multiset<Remark> remarks;
  for (const Record::PassRemark &remark : record->remarks)
    remarks.insert({remark.pass, describeLocation(remark.location), remark.text,
                    remark.kind,
                    record->memory
                        ? record->memory->bucketNames.lookup(remark.location)
                        : ""});
  json::Array list;
  for (const auto &[pass, source, text, kind, bucket] : remarks)
    list.push_back(json::Object{{"pass", pass},
                                {"kind", kind},
                                {"text", text},
                                {"bucket", bucket},
                                {"source", source}});
  (*report)["remarks"] = std::move(list);
  return report;
}
