// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KernelAccess.h"

#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <limits>

using namespace mlir;
using namespace mlir::ddp;

/// An upper bound of a grid's idle threads along any coordinate.
static constexpr int64_t kGridSlack = 4096;

int64_t Access::getVectorBytes() const {
  Type element = cast<MemRefType>(operand.getType()).getElementType();
  if (!element.isIntOrFloat())
    return 0;
  unsigned bits = element.getIntOrFloatBitWidth();
  return llvm::is_contained({8u, 16u, 32u, 64u}, bits) ? bits / 8 : 0;
}

SmallVector<int64_t> mlir::ddp::getKernelBox(linalg::LinalgOp op) {
  AffineMap out = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  SmallVector<int64_t> extents = op.getStaticLoopRanges(), box;
  for (unsigned i = 0; i < out.getNumResults(); ++i)
    box.push_back(extents[out.getDimPosition(i)]);
  return box;
}

bool mlir::ddp::hasVectors(const Access &access, unsigned coordinate,
                           int64_t lanes) {
  if (!access.isArray() || !access.isLinear ||
      access.strides[coordinate] != 1 || access.start % lanes != 0 ||
      access.getVectorBytes() == 0)
    return false;
  for (auto [other, stride] : llvm::enumerate(access.strides))
    if (other != coordinate && stride % lanes != 0)
      return false;
  return true;
}

/// Fills in the strides if the map is linear in the loops' indices.
static void setStrides(Access &access) {
  access.strides.assign(access.coordinates.size(), 0);
  if (!access.isArray())
    return;
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(cast<MemRefType>(access.operand.getType())
                 .getStridesAndOffset(strides, offset)))
    return;
  for (auto [expr, stride] :
       llvm::zip_equal(access.map.getResults(), strides)) {
    SmallVector<int64_t> factors;
    if (failed(getFlattenedAffineExpr(expr, access.map.getNumDims(),
                                      access.map.getNumSymbols(), &factors)) ||
        factors.size() != access.strides.size() + 1 ||
        llvm::any_of(factors, [](int64_t factor) { return factor < 0; }) ||
        stride < 0)
      return;
    access.start += factors.pop_back_val() * stride;
    for (auto [factor, coordinate] :
         llvm::zip_equal(factors, access.coordinates))
      access.strides[coordinate] += factor * stride;
  }
  access.isLinear = true;
}

static KernelOp describe(linalg::LinalgOp op) {
  KernelOp result;
  result.op = op;
  result.numInits = op.getNumDpsInits();
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  AffineMap out = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  result.coordinates.resize(extents.size());
  for (unsigned i = 0; i < out.getNumResults(); ++i)
    result.coordinates[out.getDimPosition(i)] = i;
  for (auto [loop, iterator] : llvm::enumerate(op.getIteratorTypesArray()))
    if (iterator != utils::IteratorType::parallel) {
      result.coordinates[loop] = out.getNumResults() + result.reductions.size();
      result.reductions.push_back(extents[loop]);
    }
  for (OpOperand &operand : op->getOpOperands()) {
    Access access;
    access.operand = operand.get();
    access.map = op.getMatchingIndexingMap(&operand);
    access.coordinates = result.coordinates;
    access.isRead = op.payloadUsesValueFromOperand(&operand) ||
                    (op.isDpsInit(&operand) && !result.reductions.empty());
    setStrides(access);
    result.accesses.push_back(std::move(access));
  }
  return result;
}

KernelOps::KernelOps(ArrayRef<linalg::LinalgOp> group)
    : box(getKernelBox(group.front())) {
  for (linalg::LinalgOp op : group)
    ops.push_back(describe(op));
}

int64_t KernelOps::countElements() const { return llvm::product_of(box); }

void KernelOps::collapse() {
  SmallVector<Access *> accesses;
  for (KernelOp &op : ops) {
    if (op.op.hasIndexSemantics())
      return;
    for (Access &access : op.accesses) {
      if (access.isArray() && !access.isLinear)
        return;
      accesses.push_back(&access);
    }
  }
  for (unsigned i = 0; i + 1 < box.size();) {
    bool isOne = llvm::all_of(accesses, [&](const Access *access) {
      return access->strides[i] == access->strides[i + 1] * box[i + 1];
    });
    // The stride along an extent of one is never used.
    unsigned gone = box[i + 1] == 1 ? i + 1 : i;
    if (!isOne && box[i] != 1 && box[i + 1] != 1) {
      ++i;
      continue;
    }
    box[gone == i ? i + 1 : i] = box[i] * box[i + 1];
    box.erase(box.begin() + gone);
    for (Access *access : accesses)
      access->strides.erase(access->strides.begin() + gone);
  }
}

bool KernelOps::fits32Bits() const {
  constexpr int64_t limit = std::numeric_limits<int32_t>::max();
  if (countElements() > limit - kGridSlack)
    return false;
  for (const KernelOp &op : ops)
    for (const Access &access : op.accesses) {
      int64_t last = access.start;
      for (auto [stride, extent] : llvm::zip(access.strides, box))
        last += stride * (extent - 1);
      if (access.isLinear && last > limit)
        return false;
    }
  return true;
}

/// Returns true if the body reads memory. It must not run for another thread's
/// element: that may be overwritten already, and as an index lead anywhere.
static bool readsMemory(linalg::LinalgOp op) {
  return llvm::any_of(
      op.getBlock()->without_terminator(),
      [](Operation &inner) { return !isMemoryEffectFree(&inner); });
}

int64_t KernelOps::countLanes() const {
  if (box.empty())
    return 1;
  unsigned last = box.size() - 1;
  int64_t bytes = 0;
  for (const KernelOp &op : ops) {
    if (!op.reductions.empty() || readsMemory(op.op))
      return 1;
    for (const Access &access : op.accesses)
      if (access.isArray() && access.isLinear && access.strides[last] == 1)
        bytes = std::max(bytes, access.getVectorBytes());
  }
  int64_t lanes = bytes ? std::min(kVectorBytes / bytes, kMaxLanes) : 1;
  for (; lanes > 1; lanes /= 2) {
    auto isPossible = [&](const KernelOp &op) {
      auto isVector = [&](const Access &access) {
        return hasVectors(access, last, lanes);
      };
      return llvm::all_of(op.getInits(), isVector) &&
             llvm::all_of(op.accesses, [&](const Access &access) {
               return isVector(access) || !access.isRead || !access.isArray() ||
                      (access.isLinear && access.strides[last] == 0);
             });
    };
    bool isWhole = box.size() == 1 || box[last] % lanes == 0;
    if (isWhole && llvm::all_of(ops, isPossible))
      break;
  }
  return lanes;
}
