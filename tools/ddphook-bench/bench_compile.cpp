//===- bench_compile.cpp - how long the passes take -----------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles training steps of 1 000 to 100 000 gradients, and verifies that no
// copy or allocation is left. The baseline is the smallest step's time per
// gradient, which stays constant in a linear compiler.
//
//===----------------------------------------------------------------------===//
#include "benches.h"
#include "compile_pipeline.h"

#include <sstream>

using namespace ddphook;
using namespace ddphook::bench;

/// Returns a step of `count` layers: a matmul computes a gradient, which is
/// reduced and applied to a weight in place.
static std::string makeStep(int count) {
  const char *weight = "tensor<4x8xf32>";
  std::ostringstream ir, arguments, results, types;
  for (int i = 0; i < count; ++i) {
    arguments << ", %w" << i << ": " << weight
              << " {bufferization.writable = true}";
    results << (i ? ", " : "") << "%n" << i;
    types << (i ? ", " : "") << weight;
  }
  ir << "ddp.process_group @dp\n"
     << "func.func @step(%x: tensor<4x2xf32>, %y: tensor<2x8xf32>"
     << arguments.str() << ") -> (" << types.str() << ") {\n"
     << "  %zero = arith.constant 0.0 : f32\n";
  for (int i = 0; i < count; ++i)
    ir << "  %e" << i << " = tensor.empty() : " << weight << "\n  %f" << i
       << " = linalg.fill ins(%zero : f32) outs(%e" << i << " : " << weight
       << ") -> " << weight << "\n  %g" << i
       << " = linalg.matmul ins(%x, %y : tensor<4x2xf32>, tensor<2x8xf32>) "
          "outs(%f"
       << i << " : " << weight << ") -> " << weight << "\n";
  for (int i = 0; i < count; ++i)
    ir << "  %r" << i << " = ddp.all_reduce mean %g" << i
       << " on @dp : " << weight << "\n";
  for (int i = 0; i < count; ++i)
    ir << "  %n" << i << " = linalg.sub ins(%w" << i << ", %r" << i << " : "
       << weight << ", " << weight << ") outs(%w" << i << " : " << weight
       << ") -> " << weight << "\n";
  ir << "  return " << results.str() << " : " << types.str() << "\n}\n";
  return ir.str();
}

/// Times the passes with these options of `ddp-pipeline`.
static Status measure(const std::string &pipeline, const Options &options,
                      Report &report) {
  Section &section =
      report.addSection("ddp-pipeline " + pipeline +
                            ", time of the passes (GB/s: of IR text; "
                            "x: gradients a second against 1000)",
                        {"per-grad"});
  double smallest = 0;
  for (int count : {1000, 3000, 10000, 30000, 100000}) {
    std::string module = makeStep(count);
    Result &result = section.add(std::to_string(count) + " gradients",
                                 Caches::Warm, module.size());
    for (int round = 0; round < options.rounds; ++round) {
      PipelineRun run = runPipeline(module, pipeline);
      if (!run.error.empty())
        return Status(DDPHOOK_INTERNAL, run.error);
      result.samples.add({run.passSeconds});
      if (round == 0)
        report.verified(
            std::to_string(count) + " gradients, " +
                std::to_string(run.collectives) +
                " collectives: " + std::to_string(run.copies) + " copies, " +
                std::to_string(run.allocations) + " allocations",
            run.collectives > 0 && run.copies == 0 && run.allocations == 0);
    }
    double perGradient = result.samples.median() / count;
    if (smallest == 0)
      smallest = perGradient;
    result.speedups.push_back({"per-grad", smallest / perGradient});
  }
  report.print(section);
  return Status::ok();
}

Status ddphook::bench::benchCompile(const Options &options, TorchProcess *,
                                    Report &report) {
  // Many buckets, many branches, many groups of matrices in one bucket.
  for (const char *pipeline : {"hook=fp16 bucket-cap-mb=0.25", "hook=powersgd",
                               "hook=powersgd group-mb=0.01"})
    if (Status status = measure(pipeline, options, report); !status.isOk())
      return status;
  return Status::ok();
}
