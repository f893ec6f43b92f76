// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pipeline `ddp-pipeline`, its two halves for compilers that bufferize
// themselves, the pipeline to XLA, and their options.

#pragma once

#include "ddphook/Conversion/Passes.h"
#include "ddphook/Dialect/DDP/Transforms/Passes.h"

namespace mlir::ddp {

/// Records a message about an option's value for the function that parses all
/// options. Returns false.
bool rejectValue(StringRef option, const Twine &expected, StringRef value);

/// Options of all pipelines, and how they are parsed.
struct DDPCommonOptions : public virtual mlir::detail::PassOptions {
  /// An option that checks its value itself. LLVM's parser would print errors
  /// to standard error, where the caller cannot catch them.
  template <typename T>
  struct Value : public Option<T> {
    using Option<T>::Option;
    using Option<T>::operator=;

    /// Accepts an option without a value; its text is then empty.
    llvm::cl::ValueExpected getValueExpectedFlagDefault() const override {
      return llvm::cl::ValueOptional;
    }
    bool handleOccurrence(unsigned, StringRef name, StringRef text) override {
      T value;
      if (!read(name, text, value))
        return true;
      this->setValue(value);
      this->optHasValue = true;
      return false;
    }
    bool read(StringRef name, StringRef text, T &value) {
      if constexpr (std::is_same_v<T, bool>) {
        std::string lower = text.lower();
        value = lower.empty() || lower == "true" || lower == "1";
        return value || lower == "false" || lower == "0" ||
               rejectValue(name, "true or false", text);
      } else if constexpr (std::is_same_v<T, double>) {
        return !text.getAsDouble(value) || rejectValue(name, "a number", text);
      } else if constexpr (std::is_same_v<T, unsigned>) {
        return (!text.getAsInteger(10, value) && value > 0) ||
               rejectValue(name, "a number of at least 1", text);
      } else {
        auto &parser = this->getParser();
        SmallVector<StringRef> words;
        for (unsigned i = 0; i < parser.getNumOptions(); ++i)
          words.push_back(parser.getOption(i));
        if (llvm::is_contained(words, text))
          return !parser.parse(*this, name, text, value);
        return rejectValue(name, listAlternatives(words), text);
      }
    }
  };

  /// A number that is not negative.
  struct AtLeastZero : public Value<double> {
    using Value<double>::Value;
    using Value<double>::operator=;

    bool handleOccurrence(unsigned position, StringRef name,
                          StringRef text) override {
      if (Value<double>::handleOccurrence(position, name, text))
        return true;
      return !(getValue() >= 0) && !rejectValue(name, "at least 0", text);
    }
  };

  /// A hook: an attribute, or text that names one as on command lines
  /// (HookOptions.h). An attribute is stored as text, and the passes parse it.
  struct HookOption : public Option<std::string> {
    using Option<std::string>::Option;

    HookOption &operator=(StringRef text);
    /// Sets the hook; null sets the default.
    HookOption &operator=(HookAttrInterface hook);
  };

  /// Parses options as users write them: names ignore case and treat dashes and
  /// underscores alike, and the hook's parameters are options, too.
  LogicalResult parse(StringRef options,
                      function_ref<LogicalResult(const Twine &)> errorHandler);

  Value<bool> allFunctions{
      *this, "all-functions",
      llvm::cl::desc("Compile functions without collectives as well"),
      llvm::cl::init(false)};
  Value<bool> verifyOrder{
      *this, "verify-order",
      llvm::cl::desc("Check after every pass that all ranks run the same "
                     "collectives, and that the pass has not changed them"),
      llvm::cl::init(false)};

protected:
  /// The pipeline's name in messages.
  StringRef pipeline;
};

/// Options of the first passes in all pipelines: buckets and their hooks.
struct DDPHookOptions : public virtual DDPCommonOptions {
  HookOption hook{*this, "hook", llvm::cl::desc(getHookHelp()),
                  llvm::cl::init(kDefaultHook.str())};
  Option<std::string> wrapper{
      *this, "wrapper",
      llvm::cl::desc("Run that hook in a 16-bit type: fp16 or bf16; or send "
                     "PowerSGD's factors as int8, int4 or fp8"),
      llvm::cl::init("")};
  Option<std::string> exempt{
      *this, "exempt",
      llvm::cl::desc("Regular expression: gradients whose names match it get "
                     "another hook"),
      llvm::cl::init("")};
  HookOption exemptHook{
      *this, "exempt-hook",
      llvm::cl::desc("With exempt: their hook (default allreduce)"),
      llvm::cl::init(kDefaultHook.str())};
  Value<double> bucketCapMb{
      *this, "bucket-cap-mb",
      llvm::cl::desc("Size limit of a bucket in MiB (default 25); if given, it "
                     "also limits the first bucket"),
      llvm::cl::init(kUnsetLimit)};
  Value<double> firstBucketMb{
      *this, "first-bucket-mb",
      llvm::cl::desc("Size limit of the first bucket of a kind in MiB "
                     "(default 1)"),
      llvm::cl::init(kUnsetLimit)};
  Value<BucketOrder> order{
      *this, "order", llvm::cl::desc("Order in which gradients are packed"),
      llvm::cl::init(BucketOrder::Ready),
      llvm::cl::values(clEnumValN(BucketOrder::Ready, "ready",
                                  "order in which they are produced"),
                       clEnumValN(BucketOrder::Forward, "forward",
                                  "program order of the reductions"),
                       clEnumValN(BucketOrder::Reverse, "reverse",
                                  "reverse program order of the reductions"))};
  Value<Topology> topology{
      *this, "topology",
      llvm::cl::desc("How ranks reduce in groups without a topology"),
      llvm::cl::init(Topology::Flat),
      llvm::cl::values(
          clEnumValN(Topology::Flat, "flat", "all ranks are alike"),
          clEnumValN(Topology::Hierarchical, "hierarchical",
                     "uncompressed within nodes, compressed between them"))};
  Value<bool> packCollectives{
      *this, "pack-collectives",
      llvm::cl::desc("Merge independent collectives of one bucket, such as "
                     "those of PowerSGD's P and uncompressed tensors"),
      llvm::cl::init(true)};
};

/// Options of the tensor half.
struct DDPTensorOptions : public virtual DDPHookOptions {
  Value<bool> fuse{
      *this, "fuse",
      llvm::cl::desc("Fuse several operations into one pass over memory"),
      llvm::cl::init(true)};
  AtLeastZero groupMb{
      *this, "group-mb",
      llvm::cl::desc("PowerSGD: MiB of matrices that go through all stages "
                     "together; 0: the whole bucket (default 4; 0 with "
                     "memory=device or pack-collectives=false)"),
      llvm::cl::init(kUnsetLimit)};
  Value<bool> overlap{*this, "overlap",
                      llvm::cl::desc("Compute while collectives are in flight"),
                      llvm::cl::init(true)};
  Value<unsigned> overlapDepth{
      *this, "overlap-depth",
      llvm::cl::desc("With overlap: largest number of collectives in flight"),
      llvm::cl::init(1)};
  Value<bool> interleave{
      *this, "interleave",
      llvm::cl::desc(
          "With overlap: work on one of PowerSGD's buckets or groups "
          "while the factors of another one are in flight"),
      llvm::cl::init(false)};
};

/// Options of the memory half.
struct DDPMemoryOptions : public virtual DDPCommonOptions {
  Value<ArrayMemory> memory{
      *this, "memory",
      llvm::cl::desc("Memory that holds the arrays (default host)"),
      llvm::cl::init(ArrayMemory::Host),
      llvm::cl::values(
          clEnumValN(ArrayMemory::Host, "host", "in the host's memory"),
          clEnumValN(ArrayMemory::Device, "device", "in a device's memory"))};
  Value<bool> requireNoCopy{
      *this, "require-no-copy",
      llvm::cl::desc("Fail if the step allocates or copies"),
      llvm::cl::init(false)};
};

/// Options of `ddp-tensor-pipeline`.
struct DDPTensorPipelineOptions
    : public PassPipelineOptions<DDPTensorPipelineOptions>,
      public DDPTensorOptions {
  DDPTensorPipelineOptions() { pipeline = "ddp-tensor-pipeline"; }
};

/// Options of `ddp-memory-pipeline`.
struct DDPMemoryPipelineOptions
    : public PassPipelineOptions<DDPMemoryPipelineOptions>,
      public DDPMemoryOptions {
  DDPMemoryPipelineOptions() { pipeline = "ddp-memory-pipeline"; }
};

/// Options of `ddp-stablehlo-pipeline`.
struct DDPStableHLOPipelineOptions
    : public PassPipelineOptions<DDPStableHLOPipelineOptions>,
      public DDPHookOptions {
  DDPStableHLOPipelineOptions() { pipeline = "ddp-stablehlo-pipeline"; }

  Value<unsigned> numRanks{
      *this, "num-ranks",
      llvm::cl::desc(
          "Number of ranks in the job, if no process group declares it")};
  Option<std::string> manifest{
      *this, "manifest",
      llvm::cl::desc("File for what a host has to know about the states"),
      llvm::cl::init("")};
};

/// Options of `ddp-pipeline`: those of its halves.
struct DDPPipelineOptions : public PassPipelineOptions<DDPPipelineOptions>,
                            public DDPTensorOptions,
                            public DDPMemoryOptions {
  DDPPipelineOptions() { pipeline = "ddp-pipeline"; }
};

/// Appends all passes from `ddp.all_reduce` to calls of the runtime.
void buildDDPPipeline(OpPassManager &pm, const DDPPipelineOptions &options);

/// Does the same with options as text ("hook=fp16 bucket-cap-mb=1"). Reports
/// invalid options through `errorHandler`, and then fails.
LogicalResult
buildDDPPipeline(OpPassManager &pm, StringRef options,
                 function_ref<LogicalResult(const Twine &)> errorHandler);

/// Appends the passes before bufferization: from `ddp.all_reduce` to flat
/// operations on tensors in destination-passing style, which One-Shot Bufferize
/// computes in place. Public functions take memrefs afterwards.
/// docs/embedding.md specifies the bufferization that must follow.
void buildDDPTensorPipeline(OpPassManager &pm, const DDPTensorOptions &options);

/// Appends the passes after bufferization: from memrefs to calls of the
/// runtime. `allFunctions` must be equal to that of the tensor half.
void buildDDPMemoryPipeline(OpPassManager &pm, const DDPMemoryOptions &options);

/// Appends the passes from `ddp.all_reduce` in a StableHLO program to pure
/// StableHLO.
void buildDDPStableHLOPipeline(OpPassManager &pm,
                               const DDPStableHLOPipelineOptions &options);

/// Checks that a pipeline of module passes is appended to one that runs on
/// modules; LLVM would end the process otherwise. Reports an error through
/// `errorHandler`, and then fails.
LogicalResult
checkRunsOnModules(OpPassManager &pm, StringRef pipeline,
                   function_ref<LogicalResult(const Twine &)> errorHandler);

/// Registers `ddp-pipeline`, `ddp-tensor-pipeline`, `ddp-memory-pipeline` and
/// `ddp-stablehlo-pipeline`.
void registerDDPPipelines();

} // namespace mlir::ddp
