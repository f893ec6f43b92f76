//===- Pipelines.h - from gradients to runtime calls ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pipeline `ddp-pipeline` and its options.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_PIPELINES_PIPELINES_H
#define DDPHOOK_PIPELINES_PIPELINES_H

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

namespace mlir::ddp {

/// Options of `ddp-pipeline`. Dashes and underscores are the same in their
/// names, and case does not matter.
struct DDPPipelineOptions : public PassPipelineOptions<DDPPipelineOptions> {
  Option<std::string> hook{
      *this, "hook",
      llvm::cl::desc("Hook of buckets that no attribute gives one: allreduce, "
                     "fp16, bf16, noop, powersgd or batched_powersgd"),
      llvm::cl::init("allreduce")};
  Option<std::string> wrapper{
      *this, "wrapper",
      llvm::cl::desc("Run that hook in a 16-bit type: fp16 or bf16"),
      llvm::cl::init("")};
  Option<std::string> matrixApproximationRank{
      *this, "matrix-approximation-rank",
      llvm::cl::desc("PowerSGD: columns of the factors (default 1)")};
  Option<std::string> startPowerSGDIter{
      *this, "start-powersgd-iter",
      llvm::cl::desc("PowerSGD: first iteration that is compressed (default "
                     "1000)")};
  Option<std::string> minCompressionRate{
      *this, "min-compression-rate",
      llvm::cl::desc("PowerSGD: compress a matrix only if its factors are "
                     "smaller by this (default 2)")};
  Option<std::string> useErrorFeedback{
      *this, "use-error-feedback",
      llvm::cl::desc("PowerSGD: add what was lost to the next gradient "
                     "(default true)")};
  Option<std::string> warmStart{
      *this, "warm-start",
      llvm::cl::desc("PowerSGD: begin with the last iteration's Q (default "
                     "true)")};
  Option<std::string> orthogonalizationEpsilon{
      *this, "orthogonalization-epsilon",
      llvm::cl::desc("PowerSGD: added to norms (default 0)")};
  Option<std::string> randomSeed{
      *this, "random-seed",
      llvm::cl::desc("PowerSGD: seed of the first Q (default 0)")};
  Option<std::string> compressionStatsLoggingFrequency{
      *this, "compression-stats-logging-frequency",
      llvm::cl::desc("PowerSGD: iterations between reports (default 10000)")};
  Option<std::string> batchTensorsWithSameShape{
      *this, "batch-tensors-with-same-shape",
      llvm::cl::desc("PowerSGD: draw the first Q of matrices of one shape "
                     "together (default false)")};
  Option<double> bucketCapMb{
      *this, "bucket-cap-mb",
      llvm::cl::desc("Limit of a bucket in MiB (default 25); given explicitly, "
                     "of the first bucket as well"),
      llvm::cl::init(kUnsetLimit)};
  Option<double> firstBucketMb{
      *this, "first-bucket-mb",
      llvm::cl::desc("Limit of the first bucket of a kind in MiB (default 1)"),
      llvm::cl::init(kUnsetLimit)};
  Option<BucketOrder> order{
      *this, "order", llvm::cl::desc("Order in which gradients are packed"),
      llvm::cl::init(BucketOrder::Ready),
      llvm::cl::values(
          clEnumValN(BucketOrder::Ready, "ready", "in which they are produced"),
          clEnumValN(BucketOrder::Forward, "forward",
                     "program order of the reductions"),
          clEnumValN(BucketOrder::Reverse, "reverse", "that order, reversed"))};
  Option<bool> packCollectives{
      *this, "pack-collectives",
      llvm::cl::desc("Let PowerSGD's uncompressed tensors travel with P"),
      llvm::cl::init(true)};
  Option<bool> fuse{
      *this, "fuse",
      llvm::cl::desc("Let one pass over memory do what several operations say"),
      llvm::cl::init(true)};
  Option<bool> requireNoCopy{
      *this, "require-no-copy",
      llvm::cl::desc("Fail if the step allocates or copies"),
      llvm::cl::init(false)};
};

/// Appends all passes from `ddp.all_reduce` to calls of the runtime.
void buildDDPPipeline(OpPassManager &pm, const DDPPipelineOptions &options);

/// Appends the same, with options as text ("hook=fp16 bucket-cap-mb=1").
LogicalResult
buildDDPPipeline(OpPassManager &pm, StringRef options,
                 function_ref<LogicalResult(const Twine &)> errorHandler);

/// Registers `ddp-pipeline`.
void registerDDPPipelines();

} // namespace mlir::ddp

#endif // DDPHOOK_PIPELINES_PIPELINES_H
