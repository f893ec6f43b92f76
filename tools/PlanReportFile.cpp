// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "PlanReportFile.h"

#include "OutputFile.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace llvm;
using namespace mlir::ddp;

/// Returns true if a report to one file would overwrite the other.
static bool isSameFile(StringRef report, StringRef other) {
  auto getPath = [](StringRef path) {
    SmallString<128> result(path);
    sys::fs::make_absolute(result);
    sys::path::remove_dots(result, /*remove_dot_dot=*/true);
    return result;
  };
  bool isSame = false; // by another name, if both exist
  return report != "-" &&
         (getPath(report) == getPath(other) ||
          (!sys::fs::equivalent(report, other, isSame) && isSame));
}

Error PlanReportFile::prepare(std::optional<StringRef> reportPath,
                              std::optional<StringRef> traceFile,
                              StringRef moduleName, StringRef output) {
  module = moduleName.str();
  if (!reportPath)
    return traceFile ? createStringError("expected --ddp-plan-report with "
                                         "--ddp-plan-report-trace")
                     : Error::success();
  path = reportPath->str();
  if (path != "-" && !reportPath->ends_with(".json") &&
      !reportPath->ends_with(".html"))
    return createStringError("expected FILE.html, FILE.json or - for a report, "
                             "but got '" +
                             path + "'");
  for (StringRef other : {output, traceFile.value_or("")})
    if (isSameFile(path, other))
      return createStringError("expected a file of its own for the report, but "
                               "'" +
                               path + "' is " +
                               (other == output ? "the output" : "the trace"));
  tracePath = traceFile.value_or("").str();
  if (traceFile)
    if (std::error_code code =
            sys::fs::access(tracePath, sys::fs::AccessMode::Exist))
      return createStringError("cannot read '" + tracePath +
                               "': " + code.message());
  return Error::success();
}

/// Runs ddphook-report on `json`, and returns its output, which is a page, text
/// or JSON according to `suffix`.
static Expected<std::string> render(StringRef json, StringRef suffix,
                                    StringRef tracePath) {
  // A function of this program, whose directory also contains the script.
  auto *here = reinterpret_cast<void *>(&render);
  std::string directory =
      sys::path::parent_path(sys::fs::getMainExecutable(nullptr, here)).str();
  ErrorOr<std::string> script =
      sys::findProgramByName("ddphook-report", {directory});
  if (!script)
    return createStringError("expected ddphook-report in '" + directory +
                             "', which makes pages and text from FILE.json");
  // The input, the output, and the error.
  const StringRef suffixes[] = {"json", suffix, "txt"};
  SmallString<128> files[3];
  FileRemover removers[3];
  for (int i = 0; i < 3; ++i) {
    if (std::error_code code = sys::fs::createTemporaryFile(
            "ddphook-report", suffixes[i], files[i]))
      return createStringError(code, "cannot write a temporary file: " +
                                         code.message());
    removers[i].setFile(files[i]);
  }
  if (Error error = writeText(files[0], json))
    return error;
  SmallVector<StringRef> command = {*script, files[0], "-o", files[1]};
  if (!tracePath.empty())
    command.append({"--trace", tracePath});
  std::string message;
  int status = sys::ExecuteAndWait(
      *script, command, /*Env=*/std::nullopt,
      {StringRef(), StringRef(files[2]), StringRef(files[2])},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  auto output = MemoryBuffer::getFile(files[status == 0 ? 1 : 2]);
  if (!output)
    return createStringError("cannot read a temporary file: " +
                             output.getError().message());
  StringRef text = (*output)->getBuffer();
  if (status == 0)
    return text.str();
  text.consume_front("ddphook-report: error: ");
  return createStringError(text.empty() ? "cannot run '" + Twine(*script) +
                                              "': " + message
                                        : text.trim());
}

Error PlanReportFile::write(Expected<json::Object> report) const {
  if (!report)
    return report.takeError();
  (*report)["module"] = json::fixUTF8(module);
  std::string text = formatv("{0}\n", json::Value(std::move(*report)));
  bool isJSON = StringRef(path).ends_with(".json");
  if (!isJSON || !tracePath.empty()) {
    StringRef suffix = isJSON ? "json" : path == "-" ? "txt" : "html";
    Expected<std::string> rendered = render(text, suffix, tracePath);
    if (!rendered)
      return rendered.takeError();
    text = std::move(*rendered);
  }
  return writeText(path, text);
}
