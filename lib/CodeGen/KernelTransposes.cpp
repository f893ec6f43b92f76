// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread computes a square of elements: it reads the columns as vectors and
// writes the rows as vectors. A warp is eight threads wide and four high, so it
// accesses whole sectors of 32 bytes without shared memory.

#include "KernelTiles.h"

using namespace mlir;
using namespace mlir::ddp;

/// Threads of a block, along the results' rows and across them.
static constexpr int64_t kAlong = 8, kAcross = 32;
/// The largest side of a square; a thread keeps all of it in registers.
static constexpr int64_t kMaxSide = 4;
namespace {
class TransposeEmitter {
public:
  explicit TransposeEmitter(const KernelOps &kernel)
      : kernel(kernel), b(kernel), box(kernel.box), last(box.size() - 1),
        coordinates(box.size()) {}

  /// Returns true if operands are contiguous along a coordinate.
  bool match();
  LaunchShape emit();

private:
  bool matchSide(unsigned coordinate, int64_t size);
  bool isCrossed(const Access &access) const {
    return access.isRead && hasVectors(access, cross, side);
  }
  void emitVectors();
  void emitElements();

  const KernelOps &kernel;
  KernelBuilder b;
  ArrayRef<int64_t> box;
  unsigned last, cross = 0;
  int64_t side = 0;
  /// The coordinates of the square's first element.
  SmallVector<Value> coordinates;
};
} // namespace

bool TransposeEmitter::match() {
  for (int64_t size = kMaxSide; size > 1; size /= 2)
    for (unsigned coordinate = 0; coordinate < last; ++coordinate)
      if (matchSide(coordinate, size))
        return true;
  return false;
}

bool TransposeEmitter::matchSide(unsigned coordinate, int64_t size) {
  cross = coordinate;
  side = size;
  int64_t others = kernel.countElements() / box[last] / box[cross];
  if (box[last] % size != 0 || box[cross] % size != 0 || others > kMaxGrid ||
      llvm::divideCeilSigned(box[cross], kAcross * size) > kMaxGrid ||
      kernel.countElements() < kAlong * kAcross * size * size)
    return false;
  bool hasCrossed = false;
  auto fits = [&](const Access &access) {
    return access.getVectorBytes() * size <= kVectorBytes;
  };
  for (const KernelOp &op : kernel.ops) {
    if (!op.reductions.empty())
      return false;
    for (const Access &access : op.accesses) {
      if (!access.isArray() || (!access.isRead && !op.isWritten(access)))
        continue;
      bool isAlong = hasVectors(access, last, size) && fits(access);
      bool isUniform = access.isLinear && access.strides[last] == 0;
      bool isAcross = isCrossed(access) && fits(access);
      if (op.isWritten(access) ? !isAlong : !isAlong && !isUniform && !isAcross)
        return false;
      hasCrossed |= !isAlong && !isUniform;
    }
  }
  return hasCrossed;
}

LaunchShape TransposeEmitter::emit() {
  SmallVector<int64_t> extents;
  SmallVector<unsigned> others;
  for (unsigned i = 0; i < last; ++i)
    if (i != cross) {
      others.push_back(i);
      extents.push_back(box[i]);
    }
  Value rest = b.getPosition(gpu::Dimension::z, /*isThread=*/false);
  for (auto [coordinate, value] :
       llvm::zip_equal(others, b.delinearize(rest, extents)))
    coordinates[coordinate] = value;
  Value along = b.getThread(gpu::Dimension::x, kAlong);
  Value across = b.getThread(gpu::Dimension::y, kAcross);
  if (box[last] % (kAlong * side) != 0)
    b.enterIf(b.isBelow(along, box[last] / side));
  if (box[cross] % (kAcross * side) != 0)
    b.enterIf(b.isBelow(across, box[cross] / side));
  coordinates[last] = b.mul(along, side);
  coordinates[cross] = b.mul(across, side);

  SmallVector<const Access *> vectors;
  for (const KernelOp &op : kernel.ops)
    for (const Access &access : op.accesses)
      if (isCrossed(access) || ((access.isRead || op.isWritten(access)) &&
                                hasVectors(access, last, side)))
        vectors.push_back(&access);
  auto choice = scf::IfOp::create(b, b.areAligned(vectors, side),
                                  /*withElseRegion=*/true);
  b.setInsertionPointToStart(choice.thenBlock());
  emitVectors();
  b.setInsertionPointToStart(choice.elseBlock());
  emitElements();
  return {{llvm::divideCeilSigned(box[last], kAlong * side),
           llvm::divideCeilSigned(box[cross], kAcross * side),
           llvm::product_of(extents)},
          {kAlong, kAcross, 1}};
}

void TransposeEmitter::emitVectors() {
  SmallVector<PlaceEmitter> rows;
  SmallVector<Value> place(coordinates);
  for (int64_t i = 0; i < side; ++i) {
    place[cross] = b.add(coordinates[cross], i);
    rows.emplace_back(b, place, side);
  }
  for (const KernelOp &op : kernel.ops)
    for (const Access &access : op.accesses) {
      if (!isCrossed(access) || hasVectors(access, last, side))
        continue;
      SmallVector<SmallVector<Value>> columns;
      place = coordinates;
      for (int64_t i = 0; i < side; ++i) {
        place[last] = b.add(coordinates[last], i);
        columns.push_back(b.load(access, place, cross, side));
      }
      for (auto [i, row] : llvm::enumerate(rows)) {
        SmallVector<Value> values;
        for (ArrayRef<Value> column : columns)
          values.push_back(column[i]);
        row.give(access, std::move(values));
      }
    }
  for (PlaceEmitter &row : rows)
    for (const KernelOp &op : kernel.ops)
      row.run(op);
  for (PlaceEmitter &row : rows)
    row.store();
}

void TransposeEmitter::emitElements() {
  SmallVector<PlaceEmitter> places;
  SmallVector<Value> place(coordinates);
  for (int64_t i = 0; i < side; ++i)
    for (int64_t j = 0; j < side; ++j) {
      place[cross] = b.add(coordinates[cross], i);
      place[last] = b.add(coordinates[last], j);
      places.emplace_back(b, place);
      for (const KernelOp &op : kernel.ops)
        places.back().run(op);
    }
  for (PlaceEmitter &element : places)
    element.store();
}

std::optional<LaunchShape> mlir::ddp::emitTransposes(const KernelOps &kernel) {
  if (kernel.box.size() < 2)
    return std::nullopt;
  TransposeEmitter emitter(kernel);
  if (!emitter.match())
    return std::nullopt;
  return emitter.emit();
}
