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

#include "ddphook/Conversion/DDPToRuntime/DDPToRuntime.h"
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
                     "fp16, bf16, noop, powersgd, batched_powersgd or "
                     "post_local_sgd"),
      llvm::cl::init("allreduce")};
  Option<std::string> wrapper{
      *this, "wrapper",
      llvm::cl::desc("Run that hook in a 16-bit type: fp16 or bf16"),
      llvm::cl::init("")};
#define DDP_HOOK_PARAMETER(field, option, description)                         \
  Option<std::string> field{*this, option, llvm::cl::desc(description),        \
                            llvm::cl::init("")};
#include "ddphook/Dialect/DDP/Transforms/HookParameters.def"
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
  Option<double> groupMb{
      *this, "group-mb",
      llvm::cl::desc("PowerSGD: matrices that are taken through all stages "
                     "together, in MiB (default 0: the whole bucket)"),
      llvm::cl::init(0)};
  Option<bool> overlap{
      *this, "overlap",
      llvm::cl::desc("Compute while collectives are in flight"),
      llvm::cl::init(false)};
  Option<unsigned> overlapDepth{
      *this, "overlap-depth",
      llvm::cl::desc("Collectives in flight at most, with overlap"),
      llvm::cl::init(2)};
  Option<ArrayMemory> memory{
      *this, "memory", llvm::cl::desc("Where arrays lie (default host)"),
      llvm::cl::init(ArrayMemory::Host),
      llvm::cl::values(
          clEnumValN(ArrayMemory::Host, "host", "in the host's memory"),
          clEnumValN(ArrayMemory::Device, "device", "in a device's memory"))};
  Option<bool> allFunctions{
      *this, "all-functions",
      llvm::cl::desc("Compile functions without collectives as well"),
      llvm::cl::init(false)};
  Option<bool> requireNoCopy{
      *this, "require-no-copy",
      llvm::cl::desc("Fail if the step allocates or copies"),
      llvm::cl::init(false)};
  Option<bool> verifyOrder{
      *this, "verify-order",
      llvm::cl::desc("Check after every pass that all ranks run the same "
                     "collectives, and that the pass has kept them"),
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
