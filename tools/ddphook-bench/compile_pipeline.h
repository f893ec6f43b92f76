//===- compile_pipeline.h - the pipeline for ddphook-bench ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps MLIR out of the benchmark's other files, and the benchmark's report out
// of the only file that uses MLIR.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_COMPILE_PIPELINE_H
#define DDPHOOK_BENCH_COMPILE_PIPELINE_H

#include <cstdint>
#include <string>

namespace ddphook::bench {

/// The result of one run of ddp-pipeline.
struct PipelineRun {
  /// Time of the passes alone, and of parsing the module's text before them.
  double passSeconds = 0, parseSeconds = 0;
  int64_t collectives = 0;
  /// Copies and allocations that are left in the step.
  int64_t copies = 0, allocations = 0;
  /// Empty if the run succeeded.
  std::string error;
};

/// Runs `ddp-pipeline` with these options on the module's text.
PipelineRun runPipeline(const std::string &module, const std::string &options);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_COMPILE_PIPELINE_H
