// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the kernels of a step of PowerSGD with error feedback load from global
// memory and store there, and in how many launches, counted by the emulated
// device and compared with the least that they could:
//
//   stage         loads          stores     of it streamed
//   M = G + E, P  8N + 4q        4N + 4p    G: 4N
//   Q = Mᵀ·P      4N + 4p        4q         nothing
//   out, err      4N + 4p + 4q   8N         M, out and err: 12N
//
// for f32: N elements of matrices, p = r·Σ rows and q = r·Σ columns elements of
// factors. Together that is 28N and a little more; where M stays in the L2
// cache between stages, 16N of it reach the memory: what is streamed, and E.
//
// Beyond that, every block loads the parts of factors that it needs, and ranges
// of rows have sums that are stored and added. How much that is follows from a
// list's tables: small lists are run and must count just that, and for the
// large sizes, which take long, it is held to a share of the ideal.
// The test does not know what caches do, nor how long anything takes.

#include "backends/cuda/cuda_kernels_lowrank_test_util.h"

#include "../../../backends/cuda/kernels/matrix_tables.h"
#include "emulated_cuda/traffic.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::cuda;
using emulated_cuda::Accesses;
using emulated_cuda::Traffic;

namespace {

constexpr int64_t kBytes = 4;

/// Matrices of f32 one behind the other, `lead` elements after the bucket's
/// beginning.
struct DenseList {
  DenseList(const std::vector<Shape> &shapes, int64_t lead) : bucket(lead) {
    list.struct_size = sizeof(list);
    list.begin = lead;
    for (const Shape &shape : shapes) {
      ddphook_matrix_t matrix = {};
      matrix.rows = shape.rows;
      matrix.columns = shape.columns;
      matrix.rank = shape.rank;
      matrix.offset = bucket;
      matrix.p_offset = p;
      matrix.q_offset = q;
      bucket += shape.rows * shape.columns;
      p += shape.rows * shape.rank;
      q += shape.columns * shape.rank;
      matrices.push_back(matrix);
    }
    elements = bucket - lead;
    list.end = bucket;
    list.matrices = matrices.data();
    list.matrix_count = static_cast<int64_t>(matrices.size());
  }
  DenseList(const DenseList &) = delete;
  DenseList &operator=(const DenseList &) = delete;

  std::vector<ddphook_matrix_t> matrices;
  ddphook_matrix_list_t list = {};
  int64_t bucket;
  int64_t elements = 0, p = 0, q = 0;
};

/// The launches of a stage, added up.
struct Stage {
  int64_t launches = 0;
  Traffic traffic;

  int64_t loaded() const {
    return static_cast<int64_t>(traffic.loads.bytes +
                                traffic.streamedLoads.bytes);
  }
  int64_t stored() const {
    return static_cast<int64_t>(traffic.stores.bytes +
                                traffic.streamedStores.bytes);
  }
  int64_t bytes() const { return loaded() + stored(); }
  int64_t accesses() const {
    return static_cast<int64_t>(
        traffic.loads.count + traffic.streamedLoads.count +
        traffic.stores.count + traffic.streamedStores.count);
  }
};

void add(Accesses &sum, const Accesses &other) {
  sum.count += other.count;
  sum.bytes += other.bytes;
}

struct Step {
  Stage project, transposed, reconstruct;

  int64_t bytes() const {
    return project.bytes() + transposed.bytes() + reconstruct.bytes();
  }
};

class CudaTraffic : public CudaLowRankTest {
protected:
  /// A step whose error takes the place of E, as in compiled modules.
  Step run(const DenseList &test) {
    std::unique_ptr<MatrixList> list;
    const Status status =
        MatrixList::create(test.list, Dtype::F32, cudaMemory(), &list);
    EXPECT_TRUE(status.isOk()) << status.message();
    // What the numbers are does not matter.
    DeviceArray g(HostArray(Dtype::F32, test.bucket)),
        e(HostArray(Dtype::F32, test.bucket)), q(HostArray(Dtype::F32, test.q)),
        p(Dtype::F32, test.p), out(Dtype::F32, test.bucket);
    Step step;
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    emulated_cuda::recordTraffic(true);
    EXPECT_EQ(list->project(stream, g.data(), e.data(), q.data(), e.data(),
                            p.data(), nullptr),
              cudaSuccess);
    step.project = take();
    EXPECT_EQ(
        list->matmul(stream, DDPHOOK_MATMUL_Q, e.data(), p.data(), q.data()),
        cudaSuccess);
    step.transposed = take();
    EXPECT_EQ(list->reconstruct(stream, p.data(), q.data(), nullptr, e.data(),
                                out.data(), e.data(), 2),
              cudaSuccess);
    step.reconstruct = take();
    emulated_cuda::recordTraffic(false);
    return step;
  }

  Stage take() {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    Stage stage;
    for (const Traffic &launch : emulated_cuda::takeTraffic()) {
      ++stage.launches;
      add(stage.traffic.loads, launch.loads);
      add(stage.traffic.streamedLoads, launch.streamedLoads);
      add(stage.traffic.stores, launch.stores);
      add(stage.traffic.streamedStores, launch.streamedStores);
    }
    return stage;
  }
};

void addBytes(Accesses &accesses, int64_t elements) {
  accesses.bytes += static_cast<uint64_t>(elements * kBytes);
}

/// What the table above says.
Step idealOf(const DenseList &test) {
  Step ideal;
  const int64_t n = test.elements, p = test.p, q = test.q;
  addBytes(ideal.project.traffic.streamedLoads, n);
  addBytes(ideal.project.traffic.loads, n + q);
  addBytes(ideal.project.traffic.stores, n + p);
  addBytes(ideal.transposed.traffic.loads, n + p);
  addBytes(ideal.transposed.traffic.stores, q);
  addBytes(ideal.reconstruct.traffic.streamedLoads, n);
  addBytes(ideal.reconstruct.traffic.loads, p + q);
  addBytes(ideal.reconstruct.traffic.streamedStores, 2 * n);
  ideal.project.launches = ideal.reconstruct.launches = 1;
  ideal.transposed.launches = 1;
  return ideal;
}

/// What follows from the tables.
Step expectedOf(const DenseList &test) {
  const std::optional<MatrixTables> tables =
      makeMatrixTables(test.list, Dtype::F32, 0);
  Step step = idealOf(test);
  Accesses &q = step.project.traffic.loads, &p = step.transposed.traffic.loads,
           &both = step.reconstruct.traffic.loads;
  q.bytes = p.bytes = both.bytes = 0;
  addBytes(q, test.elements);
  addBytes(p, test.elements);
  const int bucket = tables->bucket;
  const int64_t panel = 32 * laneColumns(kBytes);
  const int64_t chunk = projectSteps(bucket) * panel;
  for (const Tile &tile : tables->project.tiles) {
    const MatrixEntry &m = tables->matrices[static_cast<size_t>(tile.matrix)];
    const int64_t rows = kWarps / m.warpsPerRow * projectRows(kBytes, bucket);
    // A Q of one chunk stays where it is.
    const int64_t passes =
        m.columns <= chunk ? 1 : (tile.end - tile.begin + rows - 1) / rows;
    addBytes(q, passes * m.columns * m.rank);
  }
  for (const Tile &tile : tables->transposed.tiles)
    addBytes(p, (tile.end - tile.begin) *
                    tables->matrices[static_cast<size_t>(tile.matrix)].rank);
  for (const MatrixEntry &m : tables->matrices)
    if (m.splits > 1) {
      const int64_t sums = m.splits * m.columns * m.rank;
      addBytes(step.transposed.traffic.stores, sums);
      addBytes(step.transposed.traffic.streamedLoads, sums);
      step.transposed.launches = 2;
    }
  for (const Tile &tile : tables->reconstruct.tiles) {
    const MatrixEntry &m = tables->matrices[static_cast<size_t>(tile.matrix)];
    const int64_t columns = std::min(tile.column + panel, m.columns) -
                            std::max<int64_t>(tile.column, 0);
    addBytes(both, (tile.end - tile.begin + columns) * m.rank);
  }
  return step;
}

void expectEqual(const char *name, const Stage &got, const Stage &want) {
  SCOPED_TRACE(name);
  EXPECT_EQ(got.launches, want.launches);
  EXPECT_EQ(got.traffic.loads.bytes, want.traffic.loads.bytes);
  EXPECT_EQ(got.traffic.streamedLoads.bytes, want.traffic.streamedLoads.bytes);
  EXPECT_EQ(got.traffic.stores.bytes, want.traffic.stores.bytes);
  EXPECT_EQ(got.traffic.streamedStores.bytes,
            want.traffic.streamedStores.bytes);
}

void expectEqual(const Step &got, const Step &want) {
  expectEqual("M = G + E, P = M·Q", got.project, want.project);
  expectEqual("Q = Mᵀ·P", got.transposed, want.transposed);
  expectEqual("out = P·Qᵀ, err", got.reconstruct, want.reconstruct);
}

/// Small lists that are cut in every way: one warp a row and eight, one chunk
/// of Q and several, one range of rows and as many as there may be, ranks below
/// the kernel's width.
TEST_F(CudaTraffic, IsWhatFollowsFromTheTables) {
  for (int64_t rank : {1, 2, 3, 4, 8})
    for (const std::vector<Shape> &shapes : std::vector<std::vector<Shape>>{
             {{300, 1024, rank}},
             {{64, 2560, rank}, {48, 128, rank}},
             std::vector<Shape>(12, Shape{256, 256, rank}),
             {{12000, 64, rank}},
             {{9000, 4, rank}}}) {
      SCOPED_TRACE(std::to_string(shapes.size()) + " matrices of " +
                   std::to_string(shapes[0].rows) + " rows, rank " +
                   std::to_string(rank));
      const DenseList test(shapes, 0);
      expectEqual(run(test), expectedOf(test));
    }
}

/// Large matrices, and many small ones.
TEST_F(CudaTraffic, IsNearTheIdeal) {
  for (int64_t rank : {1, 2, 4, 8})
    for (const std::vector<Shape> &shapes : std::vector<std::vector<Shape>>{
             {{4096, 4096, rank}},
             {{2560, 2560, rank}},
             std::vector<Shape>(100, Shape{256, 256, rank}),
             {{102400, 64, rank}}}) {
      const DenseList test(shapes, 0);
      const Step expected = expectedOf(test), ideal = idealOf(test);
      const std::string name = std::to_string(shapes.size()) + " x " +
                               std::to_string(shapes[0].rows) + " x " +
                               std::to_string(shapes[0].columns) + ", rank " +
                               std::to_string(rank);
      SCOPED_TRACE(name);
      auto ratio = [](auto bytes, auto least) {
        return static_cast<double>(bytes) / static_cast<double>(least);
      };
      const double project =
                       ratio(expected.project.bytes(), ideal.project.bytes()),
                   transposed = ratio(expected.transposed.bytes(),
                                      ideal.transposed.bytes()),
                   reconstruct = ratio(expected.reconstruct.bytes(),
                                       ideal.reconstruct.bytes()),
                   all = ratio(expected.bytes(), ideal.bytes());
      std::printf("%-28s %.1f MB: %.3f of the ideal (%.3f, %.3f, %.3f)\n",
                  name.c_str(), static_cast<double>(expected.bytes()) * 1e-6,
                  all, project, transposed, reconstruct);
      // Q is read for every eight rows of 2560 columns, and so on.
      EXPECT_LE(project, 1.35);
      EXPECT_LE(transposed, 1.2);
      EXPECT_LE(reconstruct, 1.1);
      EXPECT_LE(all, 1.2);
    }
}

/// Behind a bias of an odd number of elements the same bytes take few more
/// loads and stores.
TEST_F(CudaTraffic, IsAsWideWhereMatricesBeginAtOddPlaces) {
  const std::vector<Shape> shapes = {{320, 512, 4}, {128, 256, 4}};
  const Step want = run(DenseList(shapes, 0));
  for (int64_t lead : {1, 2, 3}) {
    SCOPED_TRACE("behind " + std::to_string(lead));
    const DenseList test(shapes, lead);
    const Step got = run(test);
    expectEqual(got, expectedOf(test));
    auto expectWide = [](const char *name, const Stage &one,
                         const Stage &other) {
      SCOPED_TRACE(name);
      EXPECT_LE(static_cast<double>(one.accesses()),
                1.2 * static_cast<double>(other.accesses()));
    };
    expectWide("project", got.project, want.project);
    expectWide("transposed", got.transposed, want.transposed);
    expectWide("reconstruct", got.reconstruct, want.reconstruct);
  }
}

} // namespace
