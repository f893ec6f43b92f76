// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Syntax, verifiers, folders and type inference of groups, all-reduces and
// views.

#include "Verifiers.h"

#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::ddp;

/// Lists the keywords of an enum, quoted: 'a', 'b' or 'c'.
template <typename EnumT>
static std::string listKeywords() {
  SmallVector<StringRef> words;
  for (unsigned i = 0; !stringifyEnum(static_cast<EnumT>(i)).empty(); ++i)
    words.push_back(stringifyEnum(static_cast<EnumT>(i)));
  return "'" + llvm::join(ArrayRef(words).drop_back(), "', '") + "' or '" +
         words.back().str() + "'";
}

/// Parses an enum's keyword. The generated parser of an enum attribute would
/// name the C++ type in its error.
template <typename AttrT>
static OptionalParseResult parseOptionalKeyword(OpAsmParser &parser,
                                                AttrT &attr) {
  using EnumT = decltype(attr.getValue());
  StringRef keyword;
  SMLoc location = parser.getCurrentLocation();
  if (failed(parser.parseOptionalKeyword(&keyword)))
    return std::nullopt;
  std::optional<EnumT> value = symbolizeEnum<EnumT>(keyword);
  if (!value)
    return parser.emitError(location) << "expected " << listKeywords<EnumT>()
                                      << ", but got '" << keyword << "'";
  attr = AttrT::get(parser.getContext(), *value);
  return success();
}

template <typename AttrT>
static ParseResult parseKeyword(OpAsmParser &parser, AttrT &attr) {
  SMLoc location = parser.getCurrentLocation();
  if (OptionalParseResult known = parseOptionalKeyword(parser, attr);
      known.has_value())
    return *known;
  return parser.emitError(location) << "expected valid keyword";
}

template <typename AttrT>
static void printKeyword(OpAsmPrinter &printer, Operation *, AttrT attr) {
  printer << stringifyEnum(attr.getValue());
}

template <typename AttrT>
static void printOptionalKeyword(OpAsmPrinter &printer, Operation *op,
                                 AttrT attr) {
  printKeyword(printer, op, attr);
}

/// Parses the one operand that an all-reduce may have besides its input.
static OptionalParseResult
parseStepOrDestination(OpAsmParser &parser,
                       std::optional<OpAsmParser::UnresolvedOperand> &operand,
                       Type &type) {
  if (succeeded(parser.parseOptionalKeyword("step"))) {
    type = parser.getBuilder().getI64Type();
    return parser.parseOperand(operand.emplace());
  }
  if (failed(parser.parseOptionalKeyword("into")))
    return std::nullopt;
  return failure(parser.parseOperand(operand.emplace()) ||
                 parser.parseColonType(type) || parser.parseComma());
}

static void printStepOrDestination(OpAsmPrinter &printer, Operation *,
                                   Value operand, Type type) {
  if (type.isInteger())
    printer << "step " << operand;
  else
    printer << "into " << operand << " : " << type << ",";
}

/// Parses [[0, 1], [2, 3]].
static ParseResult parseRankLists(OpAsmParser &parser, ArrayAttr &ranks) {
  SmallVector<Attribute> lists;
  auto parseList = [&]() -> ParseResult {
    SmallVector<int64_t> list;
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
          return parser.parseInteger(list.emplace_back());
        }))
      return failure();
    lists.push_back(DenseI64ArrayAttr::get(parser.getContext(), list));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseList))
    return failure();
  ranks = ArrayAttr::get(parser.getContext(), lists);
  return success();
}

static void printRankLists(OpAsmPrinter &printer, ProcessGroupOp,
                           ArrayAttr ranks) {
  printer << "[";
  llvm::interleaveComma(ranks, printer, [&](Attribute list) {
    printer << "[";
    llvm::interleaveComma(cast<DenseI64ArrayAttr>(list).asArrayRef(), printer);
    printer << "]";
  });
  printer << "]";
}

void ProcessGroupOp::build(OpBuilder &builder, OperationState &state,
                           StringRef name, std::optional<int64_t> size) {
  build(builder, state, builder.getStringAttr(name),
        size ? builder.getI64IntegerAttr(*size) : IntegerAttr(),
        /*ranks=*/ArrayAttr(), /*placement=*/PlacementAttr(),
        /*parent=*/FlatSymbolRefAttr(), /*topology=*/TopologyAttr());
}

void ProcessGroupOp::build(OpBuilder &builder, OperationState &state,
                           StringRef name, Placement placement,
                           StringRef parent) {
  MLIRContext *context = builder.getContext();
  build(builder, state, builder.getStringAttr(name), /*size=*/IntegerAttr(),
        /*ranks=*/ArrayAttr(), PlacementAttr::get(context, placement),
        parent.empty() ? FlatSymbolRefAttr()
                       : FlatSymbolRefAttr::get(context, parent),
        /*topology=*/TopologyAttr());
}

LogicalResult ProcessGroupOp::verify() {
  if (getSize() && static_cast<int64_t>(*getSize()) <= 0) // C1
    return emitOpError() << "expected a positive size, but got "
                         << static_cast<int64_t>(*getSize());
  // No plan has more ranks: runtime/src/plan/plan_reader.h.
  constexpr uint64_t maxSize = 1 << 24;
  if (getSize() && *getSize() > maxSize) // C1
    return emitOpError() << "expected a size of at most " << maxSize
                         << ", but got " << *getSize();
  if (ArrayAttr lists = getRanksAttr()) {
    if (getPlacement() || getParent()) // C4
      return emitOpError() << "expected either ranks, or placement and parent";
    size_t listSize = 0, numRanks = 0;
    for (Attribute list : lists) {
      size_t size = cast<DenseI64ArrayAttr>(list).size();
      if (size == 0 || (listSize != 0 && size != listSize)) // C2
        return emitOpError() << "expected lists of ranks of equal size";
      listSize = size;
      numRanks += size;
    }
    llvm::SmallBitVector seen(numRanks);
    for (Attribute list : lists)
      for (int64_t rank : cast<DenseI64ArrayAttr>(list).asArrayRef()) {
        if (rank < 0 || rank >= static_cast<int64_t>(numRanks) || seen[rank])
          return emitOpError() << "expected each rank from 0 to "
                               << static_cast<int64_t>(numRanks) - 1
                               << " once, but got " << rank; // C2
        seen.set(rank);
      }
    if (getSize() && *getSize() != listSize) // C3
      return emitOpError() << "expected lists of " << *getSize()
                           << " ranks, but got " << listSize;
  }
  if (getParent() && !getPlacement()) // C5
    return emitOpError() << "expected a 'placement' with 'parent'";
  if (getTopology() && getPlacement()) // C6
    return emitOpError() << "expected either a topology or a placement";
  return success();
}

LogicalResult ProcessGroupOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getParent())
    return success();
  // The groups in a chain of parents, to refuse a cycle.
  llvm::SmallPtrSet<Operation *, 4> chain = {getOperation()};
  ProcessGroupOp group = *this;
  while (FlatSymbolRefAttr parent = group.getParentAttr()) {
    if (failed(verifyGroup(group, parent, symbols))) // C5
      return failure();
    group =
        symbols.lookupNearestSymbolFrom<ProcessGroupOp>(getOperation(), parent);
    if (!chain.insert(group).second)
      return emitOpError() << "expected a parent that does not depend on "
                           << "this group";
  }
  return success();
}

/// Checks that there is a name for each member of a bucket, or none at all.
static LogicalResult verifyNames(Operation *op, ArrayAttr names, Type type) {
  if (!names)
    return success();
  auto bucket = dyn_cast<BucketType>(type);
  if (!bucket)
    return op->emitOpError()
           << "expected gradient names only on a bucket, but got " << type;
  if (names.size() != bucket.getNumMembers())
    return op->emitOpError() << "expected names of " << bucket.getNumMembers()
                             << " gradients, but got " << names.size();
  return success();
}

LogicalResult BucketInfoOp::verify() {
  return verifyNames(*this, getGradientsAttr(), getType()); // C2
}

void AllReduceOp::build(OpBuilder &builder, OperationState &state, Value input,
                        StringRef group, Reduction reduction) {
  MLIRContext *context = builder.getContext();
  build(builder, state, ReductionAttr::get(context, reduction), input,
        FlatSymbolRefAttr::get(context, group), /*wire=*/TypeAttr(),
        /*bucketName=*/StringAttr());
}

void AllReduceOp::build(OpBuilder &builder, OperationState &state, Value input,
                        ProcessGroupOp group, Reduction reduction) {
  build(builder, state, input, group.getSymName(), reduction);
}

LogicalResult AllReduceOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location>,
                                            ValueRange operands, DictionaryAttr,
                                            OpaqueProperties, RegionRange,
                                            SmallVectorImpl<Type> &types) {
  Type input = operands.front().getType();
  if (!isa<MemRefType>(input))
    types.push_back(input);
  return success();
}

LogicalResult AllReduceOp::verify() {
  if (failed(verifyWire(*this)) || // C3, C5
      failed(verifyNames(*this, getGradientsAttr(),
                         getInput().getType()))) // C4
    return failure();
  Type input = getInput().getType();
  if (isa<MemRefType>(input)) { // C1
    if (!getDestination() || getResult())
      return emitOpError()
             << "expected an 'into' operand and no result on memrefs";
    if (haveSameElements(input, getDestination().getType()))
      return success();
    return emitOpError() << "expected 'into' to have the operand's type, but "
                         << "got " << getDestination().getType();
  }
  if (!getResult() || getResult().getType() != input) // C1
    return emitOpError() << "expected a result of the operand's type";
  if (getDestination()) // C1
    return emitOpError() << "expected 'into' with a memref only, but got "
                         << input;
  return success();
}

void AllReduceOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  effects.emplace_back(MemoryEffects::Write::get(), CollectiveResource::get());
  if (!getDestination())
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &getInputMutable());
  for (OpOperand &destination : getStepOrDestinationMutable())
    effects.emplace_back(MemoryEffects::Write::get(), &destination);
}

LogicalResult AverageOp::verify() {
  auto period = static_cast<int64_t>(getPeriod());
  auto warmup = static_cast<int64_t>(getWarmup());
  if (period < 1) // C2
    return emitOpError() << "expected a period of at least 1, but got "
                         << period;
  if (warmup < 0) // C2
    return emitOpError() << "expected a warmup of at least 0, but got "
                         << warmup;
  return success();
}

LogicalResult ViewOp::verify() {
  MemRefType source = getSource().getType(), result = getType();
  if (!source.getLayout().isIdentity() ||
      !result.getLayout().isIdentity()) // C1
    return emitOpError() << "expected memrefs with identity layout";
  if (source.getElementType() != result.getElementType() ||
      source.getMemorySpace() != result.getMemorySpace()) // C1
    return emitOpError() << "expected a slice of " << source.getElementType()
                         << " in the same memory space, but got " << result;
  if (static_cast<int64_t>(getOffset()) >
      source.getNumElements() - result.getNumElements()) // C2
    return emitOpError() << "expected a slice within "
                         << source.getNumElements() << " elements, but got "
                         << result.getNumElements() << " from " << getOffset();
  return success();
}

OpFoldResult ViewOp::fold(FoldAdaptor) {
  if (getSource().getType() == getType() && getOffset() == 0)
    return getSource();
  if (auto outer = getSource().getDefiningOp<ViewOp>()) {
    setOperand(outer.getSource());
    setOffset(getOffset() + outer.getOffset());
    return getResult();
  }
  return {};
}

Value ViewOp::getViewSource() { return getSource(); }

#define GET_OP_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPOps.cpp.inc"
