//===- HookOptions.cpp -----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the options `hook` and `wrapper` mean, and how options may be spelt.
//
//===----------------------------------------------------------------------===//

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

std::string mlir::ddp::normalizeOptionSpelling(StringRef options) {
  std::string normalized;
  bool inName = true;
  int depth = 0; // of braces, quotes count as one
  char quote = 0;
  for (char c : options) {
    if (quote) {
      quote = c == quote ? 0 : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (depth == 0 && llvm::isSpace(c)) {
      inName = true;
    } else if (depth == 0 && c == '=') {
      inName = false;
    } else if (depth == 0 && inName) {
      c = c == '_' ? '-' : llvm::toLower(c);
    }
    normalized += c;
  }
  return normalized;
}

FailureOr<HookAttrInterface> mlir::ddp::parseHookOptions(
    MLIRContext *context, StringRef hook, StringRef wrapper,
    function_ref<LogicalResult(const Twine &)> emitError) {
  Attribute attr = llvm::StringSwitch<Attribute>(hook)
                       .Case("allreduce", AllReduceHookAttr::get(context))
                       .Case("fp16", FP16HookAttr::get(context))
                       .Case("bf16", BF16HookAttr::get(context))
                       .Case("noop", NoopHookAttr::get(context))
                       .Default({});
  if (!attr)
    return emitError("expected hook=allreduce, fp16, bf16 or noop, but got '" +
                     hook + "'");
  if (!wrapper.empty()) {
    Type type = llvm::StringSwitch<Type>(wrapper)
                    .Case("fp16", Float16Type::get(context))
                    .Case("bf16", BFloat16Type::get(context))
                    .Default({});
    if (!type)
      return emitError("expected wrapper=fp16 or bf16, but got '" + wrapper +
                       "'");
    attr = WrapHookAttr::get(context, type, attr);
  }
  return cast<HookAttrInterface>(attr);
}
