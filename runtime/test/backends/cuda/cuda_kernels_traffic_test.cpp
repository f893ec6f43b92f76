//===- cuda_kernels_traffic_test.cpp - bytes of the low-rank kernels ------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
// The kernels load factors once for each block, and store the sums of ranges of
// rows: the test holds these to a share of the ideal. It does not know what
// caches do, nor how long anything takes.
//
// docs/cuda.md has the counts of full sizes: TrafficOfFullSizes, which prints
// them, is run by hand.
//
//===----------------------------------------------------------------------===//
#include "backends/cuda/cuda_kernels_lowrank_test_util.h"

#include "emulated_cuda/traffic.h"

#include <cstdlib>
#include <numeric>

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
    const Status status = MatrixList::create(test.list, Dtype::F32, &list);
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

  /// The least bytes of the table above.
  static Step idealOf(const DenseList &test) {
    Step ideal;
    auto set = [](Accesses &accesses, int64_t elements) {
      accesses.bytes = static_cast<uint64_t>(elements * kBytes);
    };
    const int64_t n = test.elements, p = test.p, q = test.q;
    set(ideal.project.traffic.streamedLoads, n);
    set(ideal.project.traffic.loads, n + q);
    set(ideal.project.traffic.stores, n + p);
    set(ideal.transposed.traffic.loads, n + p);
    set(ideal.transposed.traffic.stores, q);
    set(ideal.reconstruct.traffic.streamedLoads, n);
    set(ideal.reconstruct.traffic.loads, p + q);
    set(ideal.reconstruct.traffic.streamedStores, 2 * n);
    return ideal;
  }
};

void expectEqual(const Accesses &got, const Accesses &want) {
  EXPECT_EQ(got.bytes, want.bytes);
}

/// All that is counted is at least the ideal; what is streamed, and what
/// belongs to the matrices alone, is just that.
void expectNear(const Step &got, const Step &ideal, double bound) {
  {
    SCOPED_TRACE("M = G + E, P = M·Q");
    const Traffic &one = got.project.traffic, &other = ideal.project.traffic;
    EXPECT_EQ(got.project.launches, 1);
    expectEqual(one.streamedLoads, other.streamedLoads);
    expectEqual(one.stores, other.stores);
    expectEqual(one.streamedStores, Accesses());
    EXPECT_GE(one.loads.bytes, other.loads.bytes);
  }
  {
    SCOPED_TRACE("Q = Mᵀ·P");
    const Traffic &one = got.transposed.traffic,
                  &other = ideal.transposed.traffic;
    EXPECT_LE(got.transposed.launches, 2);
    // The sums of ranges are stored, loaded and added.
    const uint64_t sums = one.stores.bytes - other.stores.bytes;
    EXPECT_EQ(one.streamedLoads.bytes, sums);
    EXPECT_EQ(sums > 0, got.transposed.launches == 2);
    expectEqual(one.streamedStores, Accesses());
    EXPECT_GE(one.loads.bytes, other.loads.bytes);
  }
  {
    SCOPED_TRACE("out = P·Qᵀ, err");
    const Traffic &one = got.reconstruct.traffic,
                  &other = ideal.reconstruct.traffic;
    EXPECT_EQ(got.reconstruct.launches, 1);
    expectEqual(one.streamedLoads, other.streamedLoads);
    expectEqual(one.stores, Accesses());
    expectEqual(one.streamedStores, other.streamedStores);
    EXPECT_GE(one.loads.bytes, other.loads.bytes);
  }
  EXPECT_LE(static_cast<double>(got.bytes()),
            bound * static_cast<double>(ideal.bytes()));
}

/// Wide matrices are 4096² and 2560² at a quarter of their width, for the
/// emulation's sake: the share of what blocks load of a factor depends on a
/// block's rows alone.
std::vector<Shape> shapesOf(int number, int64_t rank, bool isFull) {
  switch (number) {
  case 0:
    return {{isFull ? 4096 : 1024, isFull ? 4096 : 1024, rank}};
  case 1:
    return {{isFull ? 2560 : 640, isFull ? 2560 : 640, rank}};
  case 2:
    return std::vector<Shape>(isFull ? 100 : 10, Shape{256, 256, rank});
  default:
    return {{isFull ? 102400 : 10240, 64, rank}};
  }
}

TEST_F(CudaTraffic, IsNearTheIdeal) {
  for (int number = 0; number < 4; ++number)
    for (int64_t rank : {1, 2, 4, 8}) {
      SCOPED_TRACE("shapes " + std::to_string(number) + ", rank " +
                   std::to_string(rank));
      const DenseList test(shapesOf(number, rank, false), 0);
      expectNear(run(test), idealOf(test), 1.5);
    }
}

TEST_F(CudaTraffic, TrafficOfFullSizes) {
  if (!std::getenv("DDPHOOK_FULL_TRAFFIC"))
    GTEST_SKIP() << "takes long: set DDPHOOK_FULL_TRAFFIC";
  for (int number = 0; number < 4; ++number)
    for (int64_t rank : {1, 2, 4, 8}) {
      const DenseList test(shapesOf(number, rank, true), 0);
      const Step got = run(test), ideal = idealOf(test);
      expectNear(got, ideal, 1.25);
      auto print = [](const char *name, const Stage &one, const Stage &other) {
        std::printf("  %-12s %9.3f MB, %5.3f of the ideal, %lld launches\n",
                    name, static_cast<double>(one.bytes()) * 1e-6,
                    static_cast<double>(one.bytes()) /
                        static_cast<double>(other.bytes()),
                    static_cast<long long>(one.launches));
      };
      std::printf("%zu matrices of %lld x %lld, rank %lld\n",
                  test.matrices.size(),
                  static_cast<long long>(test.matrices[0].rows),
                  static_cast<long long>(test.matrices[0].columns),
                  static_cast<long long>(rank));
      print("project", got.project, ideal.project);
      print("transposed", got.transposed, ideal.transposed);
      print("reconstruct", got.reconstruct, ideal.reconstruct);
      std::printf("  %.3f MB in all, %.3f of the ideal\n",
                  static_cast<double>(got.bytes()) * 1e-6,
                  static_cast<double>(got.bytes()) /
                      static_cast<double>(ideal.bytes()));
    }
}

/// Behind a bias of an odd number of elements the same bytes take few more
/// loads and stores.
TEST_F(CudaTraffic, IsAsWideWhereMatricesBeginAtOddPlaces) {
  const std::vector<Shape> shapes = {{320, 512, 4}, {128, 256, 4}};
  const DenseList aligned(shapes, 0);
  const Step want = run(aligned);
  for (int64_t lead : {1, 2, 3}) {
    SCOPED_TRACE("behind " + std::to_string(lead));
    const DenseList test(shapes, lead);
    const Step got = run(test);
    expectNear(got, idealOf(test), 1.5);
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
