// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses and prints the lists of DDPPlanAttrs.td: in brackets, and without the
// part of each element's text that its type implies.

#pragma once

#include "mlir/IR/DialectImplementation.h"

namespace mlir::ddp {

template <typename AttrTy>
FailureOr<SmallVector<AttrTy>> parsePlanList(AsmParser &parser) {
  SmallVector<AttrTy> list;
  auto parseElement = [&] {
    FailureOr<AttrTy> element = FieldParser<AttrTy>::parse(parser);
    if (succeeded(element))
      list.push_back(*element);
    return LogicalResult(element);
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                     parseElement))
    return failure();
  return list;
}

template <typename AttrTy>
void printPlanList(AsmPrinter &printer, ArrayRef<AttrTy> list) {
  printer << '[';
  llvm::interleaveComma(list, printer, [&](AttrTy element) {
    printer.printStrippedAttrOrType(element);
  });
  printer << ']';
}

} // namespace mlir::ddp
