// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread computes all results at a position of the kernel's box. It may also
// run a second operation if that needs nothing from other threads: both access
// an array that one of them writes only at the thread's own position.

#include "KernelAccess.h"
#include "KernelBody.h"
#include "ddphook/Dialect/DDP/IR/RuntimeCalls.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::ddp;

/// The most operations of a kernel: their bodies compete for registers.
static constexpr size_t kMaxOps = 8;

namespace {
/// The array that a view is of, and its range of bytes if that is known.
struct Memory {
  Value root;
  std::optional<std::pair<int64_t, int64_t>> bytes;
};
} // namespace

static Memory getMemory(Value array) {
  Memory memory{array, std::nullopt};
  while (auto view = memory.root.getDefiningOp<ViewLikeOpInterface>()) {
    memory.bytes.reset();
    memory.root = view.getViewSource();
    auto bytes = dyn_cast<memref::ViewOp>(view.getOperation());
    std::optional<int64_t> begin =
        bytes ? getConstantIntValue(bytes.getByteShift()) : std::nullopt;
    if (!begin || !bytes.getType().hasStaticShape() ||
        !bytes.getType().getElementType().isIntOrFloat())
      continue;
    int64_t size = bytes.getType().getNumElements() *
                   ((bytes.getType().getElementTypeBitWidth() + 7) / 8);
    memory.bytes = {*begin, *begin + size};
  }
  return memory;
}

/// Returns true if a write to one array cannot change the other. Nothing is
/// known of an array that an operation selects or a loop carries.
static bool areDisjoint(Value a, Value b, bool isEntry) {
  Memory first = getMemory(a), second = getMemory(b);
  if (first.root == second.root)
    return first.bytes && second.bytes &&
           (first.bytes->second <= second.bytes->first ||
            second.bytes->second <= first.bytes->first);
  auto isGlobal = [](Value root) {
    return bool(root.getDefiningOp<memref::GetGlobalOp>());
  };
  // Two globals may be merged.
  if (isGlobal(first.root) && isGlobal(second.root))
    return false;
  auto isApart = [&](Value root) {
    auto argument = dyn_cast<BlockArgument>(root);
    return isGlobal(root) ||
           (isEntry && argument && argument.getOwner()->isEntryBlock() &&
            isa<func::FuncOp>(argument.getOwner()->getParentOp()));
  };
  // convert-ddp-to-runtime creates these for the arena and for states.
  auto isKnown = [&](Value root) {
    return isApart(root) || root.getDefiningOp<UnrealizedConversionCastOp>();
  };
  return (isApart(first.root) && isKnown(second.root)) ||
         (isKnown(first.root) && isApart(second.root));
}

/// Returns the box coordinates that are an operand's indices, or nothing if an
/// index is not a plain coordinate.
static std::optional<SmallVector<unsigned>> getPlace(const KernelOp &op,
                                                     const Access &access) {
  SmallVector<unsigned> place;
  for (AffineExpr expr : access.map.getResults()) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (!loop)
      return std::nullopt;
    place.push_back(op.coordinates[loop.getPosition()]);
  }
  return place;
}

/// Returns true if a thread may run `later` directly after `earlier`. At most
/// one of them reduces, so equal positions are in the box.
static bool areIndependent(const KernelOp &earlier, const KernelOp &later,
                           bool isEntry) {
  for (const Access &a : earlier.accesses)
    for (const Access &b : later.accesses) {
      if (!a.isArray() || !b.isArray() ||
          (!earlier.isWritten(a) && !later.isWritten(b)))
        continue;
      if (a.operand != b.operand) {
        if (!areDisjoint(a.operand, b.operand, isEntry))
          return false;
        continue;
      }
      std::optional<SmallVector<unsigned>> place = getPlace(earlier, a);
      if (!place || place != getPlace(later, b))
        return false;
    }
  return true;
}

/// Returns true if the body itself accesses arrays.
static bool capturesArrays(linalg::LinalgOp op) {
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(op->getRegions(), captured);
  return llvm::any_of(
      captured, [](Value value) { return isa<MemRefType>(value.getType()); });
}

static bool canJoin(ArrayRef<linalg::LinalgOp> group, linalg::LinalgOp op,
                    bool isEntry) {
  if (group.size() == kMaxOps ||
      getKernelBox(group.front()) != getKernelBox(op) || capturesArrays(op) ||
      capturesArrays(group.front()))
    return false;
  // Two reductions in a row would take as long as two kernels at a time.
  auto reduces = [](linalg::LinalgOp op) {
    return op.getNumReductionLoops() != 0;
  };
  if (reduces(op) && llvm::any_of(group, reduces))
    return false;
  KernelOps earlier(group), later(op);
  return llvm::all_of(earlier.ops, [&](const KernelOp &other) {
    return areIndependent(other, later.ops.front(), isEntry);
  });
}

SmallVector<KernelGroup> mlir::ddp::groupForKernels(func::FuncOp function,
                                                    bool isEntry) {
  SmallVector<KernelGroup> groups;
  function.walk([&](Block *block) {
    bool isOpen = false;
    for (Operation &op : *block) {
      auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
      if (!linalgOp || !linalgOp.hasPureBufferSemantics()) {
        isOpen &= op.getNumRegions() == 0 && isMemoryEffectFree(&op);
        continue;
      }
      if (!isOpen || !canJoin(groups.back(), linalgOp, isEntry))
        groups.emplace_back();
      groups.back().push_back(linalgOp);
      isOpen = true;
    }
  });
  return groups;
}

/// Returns the array that a runtime call sets to zero as a whole.
static Value getZeroedArray(LLVM::CallOp call) {
  if (call.getCallee() != rt::zero.name || call.getArgOperands().size() != 3)
    return Value();
  auto pointer = call.getArgOperands()[1].getDefiningOp<LLVM::IntToPtrOp>();
  auto number =
      pointer ? pointer.getArg().getDefiningOp<arith::IndexCastOp>() : nullptr;
  auto address =
      number ? number.getIn()
                   .getDefiningOp<memref::ExtractAlignedPointerAsIndexOp>()
             : nullptr;
  APInt bytes;
  if (!address ||
      !matchPattern(call.getArgOperands()[2], m_ConstantInt(&bytes)))
    return Value();
  auto type = dyn_cast<MemRefType>(address.getSource().getType());
  if (!type || !type.hasStaticShape() || !type.getLayout().isIdentity() ||
      !type.getElementType().isIntOrFloat() ||
      bytes !=
          type.getNumElements() * ((type.getElementTypeBitWidth() + 7) / 8))
    return Value();
  return address.getSource();
}

/// Returns the next operation if it is a reduction into `array`.
static linalg::LinalgOp getReduction(Operation *op, Value array) {
  for (op = op->getNextNode(); op; op = op->getNextNode()) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (linalgOp)
      return linalgOp.hasPureBufferSemantics() &&
                     linalgOp.getNumReductionLoops() != 0 &&
                     llvm::is_contained(linalgOp.getDpsInits(), array)
                 ? linalgOp
                 : linalg::LinalgOp();
    if (op->getNumRegions() != 0 || !isMemoryEffectFree(op))
      return {};
  }
  return {};
}

void mlir::ddp::absorbZeros(func::FuncOp function) {
  SmallVector<LLVM::CallOp> calls;
  function.walk([&](LLVM::CallOp call) { calls.push_back(call); });
  for (LLVM::CallOp call : calls) {
    Value array = getZeroedArray(call);
    if (!array || !getReduction(call, array))
      continue;
    OpBuilder b(call);
    Type type = cast<MemRefType>(array.getType()).getElementType();
    Value zero =
        arith::ConstantOp::create(b, call.getLoc(), b.getZeroAttr(type));
    linalg::FillOp::create(b, call.getLoc(), zero, array);
    call.erase();
  }
}
