// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Locations with names and metadata; see BucketOrigin.h.

#include "ddphook/Dialect/DDP/IR/BucketOrigin.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::ddp;

/// The prefix of our text in a location's metadata.
static constexpr llvm::StringLiteral kPrefix = "ddp.hook from ";

static Location addHookOrigin(Location loc, const Twine &from) {
  auto text = StringAttr::get(loc.getContext(), kPrefix + from);
  return FusedLoc::get(loc.getContext(), ArrayRef<Location>(loc), text);
}

/// Returns the text that addHookOrigin() left in `loc`, or an empty string.
static StringRef findHookOrigin(Location loc) {
  StringRef found;
  loc->walk([&](Location nested) {
    auto fused = dyn_cast<FusedLocWith<StringAttr>>(nested);
    if (!fused || !fused.getMetadata().getValue().starts_with(kPrefix))
      return WalkResult::advance();
    found = fused.getMetadata().getValue().drop_front(kPrefix.size());
    return WalkResult::interrupt();
  });
  return found;
}

Location mlir::ddp::getGradientLoc(StringAttr name, Location loc) {
  return NameLoc::get(name, loc);
}

void mlir::ddp::markExempt(Operation *op, StringRef exempt) {
  op->setLoc(addHookOrigin(op->getLoc(), "option exempt='" + exempt + "'"));
}

/// Describes the owner of the hook that getEffectiveHook() finds for `op`.
static std::string describeHookOwner(AllReduceOp op) {
  for (Operation *owner = op; owner; owner = owner->getParentOp()) {
    if (!owner->hasAttr(DDPDialect::kHookAttrName))
      continue;
    if (owner == op) {
      StringRef exempt = findHookOrigin(op.getLoc());
      return exempt.empty() ? "the operation" : exempt.str();
    }
    if (auto function = dyn_cast<FunctionOpInterface>(owner))
      return "function '" + function.getName().str() + "'";
    if (isa<ModuleOp>(owner))
      return "the module";
    return "the enclosing operation '" + owner->getName().getStringRef().str() +
           "'";
  }
  return "option hook";
}

Location mlir::ddp::getRecordLoc(AllReduceOp op) {
  return addHookOrigin(op.getLoc(), describeHookOwner(op));
}

BucketOrigin mlir::ddp::getOrigin(BucketInfoOp record) {
  Location loc = record.getLoc();
  BucketOrigin origin{"", loc, llvm::DenseMap<StringAttr, Location>()};
  auto fused = dyn_cast<FusedLocWith<StringAttr>>(loc);
  if (fused && fused.getMetadata().getValue().starts_with(kPrefix)) {
    origin.hookFrom = fused.getMetadata().getValue().drop_front(kPrefix.size());
    origin.bucket = fused.getLocations().front();
  }
  auto add = [&](Location member) {
    if (auto named = dyn_cast<NameLoc>(member))
      origin.gradients.try_emplace(named.getName(), named.getChildLoc());
  };
  if (auto members = dyn_cast<FusedLoc>(origin.bucket))
    llvm::for_each(members.getLocations(), add);
  else
    add(origin.bucket);
  return origin;
}
