// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See OpaqueDialects.h. MLIR can also read operations of no dialect, but takes
// each one with a region for a possible symbol table: calls in it are then not
// verified, and the inliner, which asks an operation for its dialect, crashes.

#include "ddphook/Dialect/Opaque/OpaqueDialects.h"

#include "mlir/Bytecode/Encoding.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// All of these dialects' regions are structured code.
struct OpaqueInlinerInterface : public DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;

  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final {
    return true;
  }
  bool isLegalToInline(Operation *op, Region *, bool, IRMapping &) const final {
    // The verifier takes an operation that it does not know for a terminator.
    // The inliner would ask what it returns.
    return !isa<FunctionOpInterface>(op->getParentOp()) || op->getNextNode();
  }
};

class OpaqueDialect : public Dialect {
public:
  OpaqueDialect(StringRef name, MLIRContext *context, TypeID id)
      : Dialect(name, context, id) {
    allowUnknownOperations();
    addInterfaces<OpaqueInlinerInterface>();
  }

  Attribute parseAttribute(DialectAsmParser &parser, Type type) const final {
    Builder &builder = parser.getBuilder();
    return OpaqueAttr::get(builder.getStringAttr(getNamespace()),
                           parser.getFullSymbolSpec(),
                           type ? type : builder.getNoneType());
  }

  Type parseType(DialectAsmParser &parser) const final {
    return OpaqueType::get(parser.getBuilder().getStringAttr(getNamespace()),
                           parser.getFullSymbolSpec());
  }
};

/// The address of an entry is the identifier of its dialect.
struct alignas(8) StandIn {
  TypeID getID() const { return TypeID::getFromOpaquePointer(this); }

  StringLiteral name;
};
} // namespace

static const StandIn standIns[] = {{"sdy"}, {"stablehlo"}, {"mhlo"}, {"chlo"}};

void mlir::ddp::registerOpaqueDialects(DialectRegistry &registry) {
  for (const StandIn &each : standIns)
    if (!registry.getDialectAllocator(each.name))
      registry.insert(each.getID(), each.name, [&each](MLIRContext *context) {
        return context->getOrLoadDialect(each.name, each.getID(), [&] {
          return std::make_unique<OpaqueDialect>(each.name, context,
                                                 each.getID());
        });
      });
}

// Bytecode of the real dialects.

namespace {
/// A part of a file in MLIR's bytecode. Past its end there is nothing: zeros
/// and empty strings.
struct Bytes {
  StringRef take(uint64_t size) {
    StringRef taken = rest.take_front(size);
    rest = rest.drop_front(taken.size());
    return taken;
  }

  uint64_t takeNumber() {
    // The trailing zeros of the first byte count the bytes after it.
    const uint8_t first = rest.empty() ? 1 : rest.front();
    const unsigned size = first ? llvm::countr_zero(first) + 1 : 9;
    uint64_t number = 0;
    for (char byte : llvm::reverse(take(size).drop_front(size == 9)))
      number = number << 8 | uint8_t(byte);
    return size == 9 ? number : number >> size;
  }

  /// Returns the contents of the next section, of a file that ends with it.
  Bytes takeSection(StringRef file, uint8_t &id) {
    id = take(1).empty() ? 0 : rest.data()[-1];
    const uint64_t size = takeNumber();
    if (id & 0x80)
      if (uint64_t alignment = takeNumber())
        take(-uint64_t(rest.data() - file.data()) % alignment);
    id &= 0x7f;
    return {take(size)};
  }

  StringRef rest;
};
} // namespace

/// Returns the strings of a section, which states their sizes last to first.
static SmallVector<StringRef> takeStrings(Bytes section) {
  SmallVector<StringRef> strings;
  const uint64_t count = section.takeNumber();
  SmallVector<uint64_t> sizes;
  while (sizes.size() < count && !section.rest.empty())
    sizes.push_back(section.takeNumber());
  for (uint64_t size : llvm::reverse(sizes))
    strings.push_back(section.take(size).drop_back(size > 0));
  return strings;
}

std::string mlir::ddp::explainUnreadable(StringRef source,
                                         MLIRContext &context) {
  Bytes bytes{source};
  if (!bytes.rest.consume_front("ML\xefR"))
    return "";
  auto explain = [](const Twine &found) {
    return ("expected StableHLO as text in the generic form, but got " + found +
            "; `python -m ddphook text` converts it with jaxlib")
        .str();
  };
  const uint64_t version = bytes.takeNumber();
  const StringRef producer = bytes.rest.split('\0').first;
  bytes.take(producer.size() + 1);
  StringRef release = producer;
  if (release.consume_front("StableHLO_v") && !context.getOrLoadDialect("vhlo"))
    return explain("a portable artifact of StableHLO " + release);
  // Before version 5 there are only attributes, and MLIR reports those that it
  // cannot read. It refuses versions later than its own.
  if (version < bytecode::kNativePropertiesEncoding ||
      version > bytecode::kVersion)
    return "";
  Bytes strings, entries;
  while (!bytes.rest.empty()) {
    uint8_t id;
    Bytes section = bytes.takeSection(source, id);
    if (id == bytecode::Section::kString)
      strings = section;
    if (id == bytecode::Section::kDialect)
      entries = section;
  }
  const SmallVector<StringRef> names = takeStrings(strings);
  SmallVector<StringRef> dialects;
  const uint64_t count = entries.takeNumber();
  while (dialects.size() < count && !entries.rest.empty()) {
    const uint64_t entry = entries.takeNumber();
    uint8_t id;
    if (entry & 1)
      entries.takeSection(source, id);
    dialects.push_back(entry / 2 < names.size() ? names[entry / 2] : "");
  }
  // Names of operations, in groups of one dialect.
  entries.takeNumber();
  while (!entries.rest.empty()) {
    const uint64_t group = entries.takeNumber();
    bool isRegistered = false;
    for (uint64_t left = entries.takeNumber(); left && !entries.rest.empty();
         --left)
      isRegistered |= entries.takeNumber() & 1;
    if (!isRegistered || group >= dialects.size())
      continue;
    Dialect *dialect = context.getOrLoadDialect(dialects[group]);
    if (dialect && llvm::any_of(standIns, [&](const StandIn &each) {
          return each.getID() == dialect->getTypeID();
        }))
      return explain("bytecode of the dialect '" + dialects[group] + "' by " +
                     producer);
  }
  return "";
}
