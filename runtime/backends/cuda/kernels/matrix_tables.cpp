// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles are small enough to give every multiprocessor some, and large enough
// that what blocks load besides M, or write besides their result, stays small.
// The figures are for an H200, with 132 multiprocessors of several blocks each.
// They are the same on every device, because they determine the order of
// additions.
//
// M is read three times. A list of up to about half of the L2 cache (50 MB)
// keeps it there between passes, since all other data is streamed; for larger
// lists the second pass starts with the rows that the first read last. The
// compiler may cut larger buckets into several lists (`group-mb`).

#include "matrix_tables.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace ddphook;
using namespace ddphook::cuda;

/// The minimum number of tiles of a list that is large enough.
static constexpr int64_t kTargetTiles = 512;
/// From this number of tiles of P = M·Q on, tiles get more rows: then each of
/// the 264 block slots of an H200 gets about six, and idles little at the end.
static constexpr int64_t kProjectTiles = 1536;
/// The maximum number of row ranges in Q = Mᵀ·P. A tall matrix of one panel has
/// one block per range, about one per multiprocessor; more would take longer to
/// add up than they save.
static constexpr int64_t kMostSplits = 128;
/// The maximum number of tiles per matrix or piece, to limit the table.
static constexpr int64_t kMostTiles = int64_t(1) << 16;
/// The minimum number of elements of a piece's tile.
static constexpr int64_t kPieceElements = 4096;

static int64_t divideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t roundUp(int64_t a, int64_t b) { return divideUp(a, b) * b; }

int ddphook::cuda::bucketOf(int64_t largestRank) {
  int bucket = 1;
  while (bucket < kMaxBucket && bucket < largestRank)
    bucket *= 2;
  return bucket;
}

std::optional<int64_t> ddphook::cuda::orthogonalizeWork(int64_t rows,
                                                        int64_t rank) {
  int64_t numbers = 0;
  if (__builtin_mul_overflow((rows | 1) + 1, std::min(rows, rank), &numbers) ||
      numbers > int64_t(1) << 59)
    return std::nullopt;
  return numbers;
}

/// Returns the numbers that one block reads and writes for a row of a factor.
static int64_t numbersOfOneBlock(int64_t rank) {
  return rank <= 2 ? 12 * rank - 5 : 3 * rank * rank + 10 * rank - 4;
}

bool ddphook::cuda::isTall(Dtype type, int64_t rows, int64_t rank) {
  // For smaller factors, one block should take no longer than two more
  // launches; calculated, not measured.
  return type == Dtype::F32 && rank > 0 && rank <= kMaxBucket && rows >= 512 &&
         rows >= divideUp(5 << 17, numbersOfOneBlock(rank));
}

/// True if cuBLAS computes the products.
static bool isWide(const ddphook_matrix_t &matrix) {
  return matrix.rank > kMaxBucket;
}

namespace {

class TableMaker {
public:
  TableMaker(const ddphook_matrix_list_t &list, Dtype type,
             int64_t sharedBytes);
  std::optional<MatrixTables> make();

private:
  bool fits(const ddphook_matrix_t &matrix) const;
  void addProducts(MatrixEntry &entry, int32_t number);
  void addMatrix(const ddphook_matrix_t &matrix);
  void addPiece(StageTiles &stage, int64_t number);
  void addGram(MatrixEntry &entry, int32_t number, bool isP);
  int32_t warpsPerRow(const MatrixEntry &matrix) const;

  const ddphook_matrix_list_t &list;
  const Dtype type;
  const int computeBytes;
  const int64_t sharedBytes;
  int64_t elements = 0, rows = 0;
  bool isTooLarge = false;
  MatrixTables tables;
};

} // namespace

TableMaker::TableMaker(const ddphook_matrix_list_t &list, Dtype type,
                       int64_t sharedBytes)
    : list(list), type(type), computeBytes(computeSize(type)),
      sharedBytes(sharedBytes) {
  for (int64_t i = 0; i < list.matrix_count; ++i) {
    const ddphook_matrix_t &matrix = list.matrices[i];
    if (isWide(matrix))
      continue;
    tables.largestRank = std::max(tables.largestRank, matrix.rank);
    elements += matrix.rows * matrix.columns;
    rows += matrix.rows;
  }
  tables.bucket = bucketOf(tables.largestRank);
}

int32_t TableMaker::warpsPerRow(const MatrixEntry &matrix) const {
  // Use as few warps per row as give enough blocks: more warps per row mean
  // blocks of fewer rows, which read Q more often.
  const int64_t steps = std::min<int64_t>(
      divideUp(matrix.columns, 32 * laneColumns(computeBytes)),
      projectSteps(tables.bucket));
  const int64_t rowsOfBlock = kWarps * projectRows(computeBytes, tables.bucket);
  int32_t warps = 1;
  while (2 * warps <= std::min<int64_t>(steps, kWarps) &&
         rows / rowsOfBlock * warps < kTargetTiles / 2)
    warps *= 2;
  return warps;
}

/// True if some device might hold the factors; cuBLAS counts in ints.
bool TableMaker::fits(const ddphook_matrix_t &matrix) const {
  constexpr int64_t limit = int64_t(1) << 40;
  const int64_t longest = std::max({matrix.rows, matrix.columns, matrix.rank});
  if (isWide(matrix) && longest > std::numeric_limits<int32_t>::max())
    return false;
  int64_t numbers = 0;
  return !__builtin_mul_overflow(std::max(matrix.rows, matrix.columns),
                                 matrix.rank, &numbers) &&
         numbers <= limit / computeBytes &&
         orthogonalizeWork(matrix.rows, matrix.rank) &&
         orthogonalizeWork(matrix.columns, matrix.rank);
}

void TableMaker::addMatrix(const ddphook_matrix_t &matrix) {
  const auto number = static_cast<int32_t>(tables.matrices.size());
  MatrixEntry entry = {};
  entry.offset = matrix.offset;
  entry.pOffset = matrix.p_offset;
  entry.qOffset = matrix.q_offset;
  entry.rows = matrix.rows;
  entry.columns = matrix.columns;
  entry.rank = matrix.rank;
  if (isWide(matrix)) {
    tables.wide.push_back(entry);
    tables.pieces.push_back(
        {matrix.offset, kNotInRest, matrix.rows * matrix.columns});
  } else {
    addProducts(entry, number);
  }
  if (matrix.rank > 0) {
    const int64_t factorRows = std::max(matrix.rows, matrix.columns);
    tables.largestFactorRows = std::max(tables.largestFactorRows, factorRows);
    const int64_t work = *orthogonalizeWork(factorRows, matrix.rank);
    if (work * computeBytes > sharedBytes) {
      entry.workOffset = tables.work;
      isTooLarge |= __builtin_add_overflow(tables.work, work, &tables.work);
    }
  }
  for (bool isP : {false, true})
    addGram(entry, number, isP);
  tables.matrices.push_back(entry);
}

/// Adds the tiles of a factor if it is tall.
void TableMaker::addGram(MatrixEntry &entry, int32_t number, bool isP) {
  const int64_t rows = isP ? entry.rows : entry.columns;
  entry.gramOffset[isP] = kNotTall;
  if (!isTall(type, rows, entry.rank))
    return;
  const int64_t tileRows = gramTileRows(rows);
  for (int64_t tile = 0; tile < gramTiles(rows); ++tile)
    tables.gram[isP].tiles.push_back({tile * tileRows,
                                      std::min((tile + 1) * tileRows, rows), 0,
                                      number, static_cast<int32_t>(tile)});
  // A flag for whether it is done, its first rows, and the tiles' sums.
  entry.gramOffset[isP] = tables.grams;
  tables.grams += 1 + entry.rank * entry.rank +
                  gramTiles(rows) * pairsOf(static_cast<int>(entry.rank));
}

/// Returns the columns by which panels start before a matrix's first column, so
/// that each lane's `lane` columns start at a multiple of `lane` in the bucket.
/// Rows that are not whole packs start at varying offsets; for them it is 0.
static int64_t leadOf(const MatrixEntry &matrix, int lane) {
  return matrix.columns % lane == 0 ? matrix.offset % lane : 0;
}

/// Adds the tiles of a matrix's products.
void TableMaker::addProducts(MatrixEntry &matrix, int32_t number) {
  matrix.warpsPerRow = warpsPerRow(matrix);
  const int64_t groups = kWarps / matrix.warpsPerRow;
  const int64_t passRows = groups * projectRows(computeBytes, tables.bucket);
  // Several passes use what a block loads of Q, if there are enough tiles.
  const int64_t projectTile =
      std::max({passRows, rows / kProjectTiles / passRows * passRows,
                roundUp(divideUp(matrix.rows, kMostTiles), passRows)});
  for (int64_t row = 0; row < matrix.rows; row += projectTile)
    tables.project.tiles.push_back(
        {row, std::min(row + projectTile, matrix.rows), 0, number, 0});

  // Panels of Q; a panel of no rows has at least one tile, which writes zeros.
  const int lane = transposedColumns(computeBytes, tables.bucket);
  const int64_t panel = 32 * lane;
  const int64_t mostSplits = std::clamp<int64_t>(
      kMostTiles * panel / std::max<int64_t>(matrix.columns, 1), 1,
      kMostSplits);
  const int64_t splitRows = std::max<int64_t>(
      {kTransposedRows,
       roundUp(divideUp(elements, kTargetTiles * panel), kTransposedRows),
       roundUp(divideUp(matrix.rows, mostSplits), kTransposedRows)});
  if (matrix.rank > 0 && matrix.columns > 0) {
    matrix.splits = static_cast<int32_t>(
        std::max<int64_t>(1, divideUp(matrix.rows, splitRows)));
    for (int32_t split = 0; split < matrix.splits; ++split)
      for (int64_t column = -leadOf(matrix, lane); column < matrix.columns;
           column += panel)
        tables.transposed.tiles.push_back(
            {split * splitRows, std::min((split + 1) * splitRows, matrix.rows),
             column, number, split});
    const int64_t factor = matrix.columns * matrix.rank;
    if (matrix.splits > 1) {
      matrix.partialOffset = tables.partials;
      int64_t numbers = 0;
      isTooLarge |=
          __builtin_mul_overflow(factor, matrix.splits, &numbers) ||
          __builtin_add_overflow(tables.partials, numbers, &tables.partials);
      const int64_t sumTile =
          std::max<int64_t>(kThreads, divideUp(factor, kMostTiles));
      for (int64_t i = 0; i < factor; i += sumTile)
        tables.sum.tiles.push_back(
            {i, std::min(i + sumTile, factor), 0, number, 0});
    }
  }

  const int64_t width = 32 * laneColumns(computeBytes);
  const int64_t passes = kWarps * kReconstructRows;
  const int64_t panels = divideUp(matrix.columns, width);
  const int64_t reconstructTile = std::max(
      roundUp(divideUp(elements, 2 * kTargetTiles * width), passes),
      roundUp(divideUp(matrix.rows * std::max<int64_t>(panels, 1), kMostTiles),
              passes));
  for (int64_t row = 0; row < matrix.rows; row += reconstructTile)
    for (int64_t column = -leadOf(matrix, laneColumns(computeBytes));
         column < matrix.columns; column += width)
      tables.reconstruct.tiles.push_back(
          {row, std::min(row + reconstructTile, matrix.rows), column, number,
           0});
}

void TableMaker::addPiece(StageTiles &stage, int64_t number) {
  const int64_t count = tables.pieces[static_cast<size_t>(number)].count;
  // Whole packs for every type.
  const int64_t tile =
      std::max(kPieceElements, roundUp(divideUp(count, kMostTiles), 8));
  for (int64_t i = 0; i < count; i += tile)
    stage.tiles.push_back({i, std::min(i + tile, count), 0,
                           static_cast<int32_t>(-1 - number), 0});
}

/// Orders the blocks of orthogonalize by their work. A device runs as many at a
/// time as it has multiprocessors, so a large factor that starts last would run
/// alone.
static void setFactorsInTurn(std::vector<MatrixEntry> &matrices) {
  std::vector<int32_t> order(matrices.size());
  for (int isP : {0, 1}) {
    auto work = [&](int32_t number) {
      const MatrixEntry &matrix = matrices[static_cast<size_t>(number)];
      const int64_t rows = isP ? matrix.rows : matrix.columns;
      const auto columns = static_cast<double>(std::min(rows, matrix.rank));
      return static_cast<double>(rows) * columns * columns;
    };
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const double first = work(a), second = work(b);
      return first != second ? first > second : a < b;
    });
    for (size_t i = 0; i < order.size(); ++i)
      matrices[i].factorInTurn[isP] = order[i];
  }
}

std::optional<MatrixTables> TableMaker::make() {
  for (int64_t i = 0; i < list.matrix_count; ++i) {
    if (!fits(list.matrices[i]))
      return std::nullopt;
    addMatrix(list.matrices[i]);
  }
  if (isTooLarge || tables.partials > int64_t(1) << 59 ||
      tables.work > int64_t(1) << 59)
    return std::nullopt;
  setFactorsInTurn(tables.matrices);
  // The previous pass left the last rows in the cache.
  std::reverse(tables.transposed.tiles.begin(), tables.transposed.tiles.end());
  tables.pieces.insert(tables.pieces.begin(), list.pieces,
                       list.pieces + list.piece_count);
  for (StageTiles *stage :
       {&tables.project, &tables.transposed, &tables.sum, &tables.reconstruct})
    stage->matrixTiles = static_cast<int64_t>(stage->tiles.size());
  for (StageTiles *stage : {&tables.project, &tables.reconstruct}) {
    for (int64_t i = 0; i < list.piece_count; ++i)
      addPiece(*stage, i);
    stage->listTiles = static_cast<int64_t>(stage->tiles.size());
    for (size_t i = 0; i < tables.wide.size(); ++i)
      addPiece(*stage, list.piece_count + static_cast<int64_t>(i));
  }
  return std::move(tables);
}

std::optional<MatrixTables>
ddphook::cuda::makeMatrixTables(const ddphook_matrix_list_t &list, Dtype type,
                                int64_t sharedBytes) {
  return TableMaker(list, type, sharedBytes).make();
}
