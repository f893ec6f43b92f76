//===- ReportJSON.cpp - reports as JSON -----------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the fields of ReportFields.h, and selects the form of a report.
//
//===----------------------------------------------------------------------===//

#include "ReportFields.h"
#include "ddphook/Report/ReportWriter.h"

using namespace mlir::ddp;
using llvm::StringRef;

namespace {
class FieldWriter {
public:
  explicit FieldWriter(llvm::json::OStream &json) : json(json) {}

  template <typename T>
  void operator()(llvm::StringLiteral key, T &value) {
    json.attributeBegin(key);
    write(value);
    json.attributeEnd();
  }
  template <typename T>
  void operator()(llvm::StringLiteral key, std::optional<T> &value) {
    if (value)
      (*this)(key, *value);
  }

private:
  void write(std::string &text) { json.value(text); }
  void write(int64_t number) { json.value(number); }
  void write(double number) { json.value(number); }
  void write(bool flag) { json.value(flag); }
  template <typename T>
  void write(std::vector<T> &list) {
    json.array([&] {
      for (T &element : list)
        write(element);
    });
  }
  template <typename T>
  void write(T &object) {
    json.object([&] { visitFields(*this, object); });
  }

  llvm::json::OStream &json;
};
} // namespace

llvm::Expected<llvm::json::Value> mlir::ddp::parseJSON(StringRef text) {
  constexpr int kMostDepth = 64;
  int depth = 0;
  bool isInString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (isInString && c == '\\')
      ++i;
    else if (c == '"')
      isInString = !isInString;
    else if (!isInString && (c == '[' || c == '{') && ++depth > kMostDepth)
      return llvm::createStringError(
          "expected lists and objects nested at most " +
          llvm::Twine(kMostDepth) + " levels deep, but got more at byte " +
          llvm::Twine(i));
    else if (!isInString && (c == ']' || c == '}'))
      --depth;
  }
  return llvm::json::parse(text);
}

std::string mlir::ddp::writeReportJSON(const PlanReport &report) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os);
  FieldWriter writer(json);
  json.object([&] {
    json.attribute("ddphook_report", kReportVersion);
    // Fields are visited for reading, too; this only looks at them.
    visitFields(writer, const_cast<PlanReport &>(report));
  });
  os << "\n";
  return text;
}

llvm::Expected<ReportForm> mlir::ddp::getReportForm(StringRef path) {
  if (path == "-")
    return ReportForm::Text;
  if (path.ends_with(".json"))
    return ReportForm::JSON;
  if (path.ends_with(".html"))
    return ReportForm::Page;
  return llvm::createStringError("expected FILE.html, FILE.json or - for a "
                                 "report, but got '" +
                                 path + "'");
}

std::string mlir::ddp::writeReport(const PlanReport &report, ReportForm form) {
  switch (form) {
  case ReportForm::JSON:
    return writeReportJSON(report);
  case ReportForm::Text:
    return writeReportText(report);
  case ReportForm::Page:
    return writeReportPage(report);
  }
  llvm_unreachable("all forms are handled");
}
