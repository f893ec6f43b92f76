// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements the attributes that TableGen generates. Plan.cpp checks those of
// the plan, and Hooks implements the hooks.

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ddp;

static void assign(MatrixPlace &place, ArrayRef<int64_t> n) {
  place = {n[0], n[1], n[2], n[3], n[4], n[5]};
}

static void assign(PiecePlace &place, ArrayRef<int64_t> n) {
  place = {n[0], n[1], n[2]};
}

/// Parses the numbers of all places as one list: [0, 0, 0, 64, 32, 2]
template <typename PlaceT>
static ParseResult parsePlaces(AsmParser &parser, SmallVector<PlaceT> &places) {
  constexpr size_t size = std::tuple_size_v<decltype(PlaceT().getNumbers())>;
  SmallVector<int64_t> numbers;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
        return parser.parseInteger(numbers.emplace_back());
      }))
    return failure();
  if (numbers.size() % size != 0)
    return parser.emitError(location)
           << "expected " << size << " numbers each, but got " << numbers.size()
           << " numbers";
  for (size_t i = 0; i < numbers.size(); i += size)
    assign(places.emplace_back(), ArrayRef(numbers).slice(i, size));
  return success();
}

template <typename PlaceT>
static void printPlaces(AsmPrinter &printer, ArrayRef<PlaceT> places) {
  SmallVector<int64_t> numbers;
  for (const PlaceT &place : places)
    llvm::append_range(numbers, place.getNumbers());
  printer << "[";
  llvm::interleaveComma(numbers, printer);
  printer << "]";
}

/// Parses a list of the plan: in brackets, and without the part of each
/// element's text that its type implies.
template <typename AttrTy>
static FailureOr<SmallVector<AttrTy>> parsePlanList(AsmParser &parser) {
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
static void printPlanList(AsmPrinter &printer, ArrayRef<AttrTy> list) {
  printer << '[';
  llvm::interleaveComma(list, printer, [&](AttrTy element) {
    printer.printStrippedAttrOrType(element);
  });
  printer << ']';
}

#define GET_ATTRDEF_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPAttrs.cpp.inc"

void DDPDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ddphook/Dialect/DDP/IR/DDPAttrs.cpp.inc"
      >();
}
