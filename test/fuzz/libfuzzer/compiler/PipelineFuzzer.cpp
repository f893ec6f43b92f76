// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A libFuzzer target. Its input is the text of a module; what is done with it
// stands in the first line:
//
//   // fuzz: hook=fp16 overlap=true          ddp-pipeline with these options
//   // fuzz: hook=bf16 lower                 and on to the LLVM dialect
//   // fuzz: ddp-flatten ddp-thread-states   these passes
//   // fuzz: ddp-import-mpi{…} then hook=fp16 these, and ddp-pipeline
//   // fuzz: xla hook=fp16                   ddp-stablehlo-pipeline
//   // fuzz: unregistered …                  operations of unknown dialects too
//
// Whatever the input, the compiler accepts it or says why not. What it accepts
// must keep two promises: every plan that it emits is one that the runtime
// takes, and a module that was printed can be parsed again.

#include "ModuleMutator.h"
#include "UpstreamCrashes.h"

#include "ddphook/Compiler/Passes.h"
#include "ddphook/Dialect/Opaque/OpaqueDialects.h"
#include "ddphook/InitAll.h"
#include "ddphook/Target/PlanText.h"

#include "plan/plan.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/MPI/IR/MPI.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

#include <cstdio>
#include <cstdlib>

using namespace mlir;
using namespace mlir::ddp;

namespace {
/// What the first line asks for.
struct Request {
  std::string options;
  /// Passes, and the options of each.
  SmallVector<std::pair<const PassInfo *, std::string>> passes;
  /// Whether a whole pipeline follows the passes; without passes it does.
  bool isWhole = false;
  bool isForXLA = false;
  bool lower = false;
  bool allowUnregistered = false;
};

/// The dialects of a training step, and those that are imported. Those that the
/// passes make load themselves.
const DialectRegistry &getRegistry() {
  static const DialectRegistry registry = [] {
    DialectRegistry result;
    result.insert<affine::AffineDialect, arith::ArithDialect,
                  bufferization::BufferizationDialect, cf::ControlFlowDialect,
                  func::FuncDialect, linalg::LinalgDialect, math::MathDialect,
                  memref::MemRefDialect, mpi::MPIDialect, scf::SCFDialect,
                  shard::ShardDialect, tensor::TensorDialect,
                  vector::VectorDialect>();
    mlir::registerAllExtensions(result);
    mlir::ddp::registerAllDialects(result);
    registerOpaqueDialects(result);
    return result;
  }();
  return registry;
}
} // namespace

/// Upstream passes are not what is tested here; these two run our folders.
static bool isPassToRun(StringRef name) {
  return name.starts_with("ddp-") || name == "convert-ddp-to-runtime" ||
         name == "canonicalize" || name == "cse";
}

static Request readRequest(StringRef text) {
  Request request;
  StringRef line = text.take_until([](char c) { return c == '\n'; });
  if (!line.consume_front(kRequestPrefix))
    return request;
  SmallVector<StringRef> words;
  line.split(words, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef word : words) {
    auto [name, options] = word.split('{');
    // No input chooses a file to write to.
    if (word.contains("manifest"))
      continue;
    if (const PassInfo *pass = PassInfo::lookup(name);
        pass && isPassToRun(name)) {
      options.consume_back("}");
      request.passes.push_back({pass, options.str()});
    } else if (word.contains('=')) {
      request.options += (request.options.empty() ? "" : " ") + word.str();
    } else if (word == "lower") {
      request.lower = true;
    } else if (word == "then") {
      request.isWhole = true;
    } else if (word == "unregistered") {
      request.allowUnregistered = true;
    } else if (word == "xla") {
      request.isForXLA = true;
    }
  }
  request.isWhole |= request.passes.empty();
  return request;
}

/// Says which promise was broken, and stops.
[[noreturn]] static void reportBroken(const llvm::Twine &promise) {
  std::fprintf(stderr, "broken promise: %s\n", promise.str().c_str());
  std::abort();
}

static void checkPlan(ModuleOp module) {
  PlanAttr attribute = getPlan(module);
  if (!attribute)
    reportBroken("a module that went through ddp-pipeline has a plan");
  ddphook::Plan plan;
  ddphook::Status status = ddphook::parsePlan(writePlanText(attribute), &plan);
  if (!status.isOk())
    reportBroken("the runtime takes the plan: " + status.message());
}

static void checkPrinting(ModuleOp module, const ParserConfig &config) {
  std::string text;
  llvm::raw_string_ostream(text) << module;
  if (!parseSourceString<ModuleOp>(text, config))
    reportBroken("what was printed can be parsed");
}

static LogicalResult addPipeline(PassManager &pm, const Request &request) {
  auto ignore = [](const llvm::Twine &) { return failure(); };
  if (!request.isForXLA)
    return buildDDPPipeline(pm, request.options, ignore);
  const PassPipelineInfo *pipeline =
      PassPipelineInfo::lookup("ddp-stablehlo-pipeline");
  return pipeline->addToPipeline(pm, request.options + " manifest=/dev/null",
                                 ignore);
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::ddp::registerAllPasses();
  mlir::ddp::registerCompilerPasses();
  setMutatorWords(getRegistry());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // The parser wants a null behind the text, and none in it.
  std::string buffer(reinterpret_cast<const char *>(data), size);
  StringRef text = buffer;
  if (text.contains('\0') || crashesUpstream(text))
    return -1;
  Request request = readRequest(text);

  MLIRContext context(getRegistry(), MLIRContext::Threading::DISABLED);
  context.allowUnregisteredDialects(request.allowUnregistered);
  ScopedDiagnosticHandler quiet(&context,
                                [](Diagnostic &) { return success(); });
  ParserConfig config(&context);
  auto module = parseSourceString<ModuleOp>(text, config);
  if (!module)
    return 0;
  checkPrinting(*module, config);

  PassManager pm(&context, ModuleOp::getOperationName(),
                 OpPassManager::Nesting::Implicit);
  auto ignore = [](const llvm::Twine &) { return failure(); };
  for (const auto &[pass, options] : request.passes)
    if (failed(pass->addToPipeline(pm, options, ignore)))
      return 0;
  if (request.isWhole && failed(addPipeline(pm, request)))
    return 0;
  if (failed(pm.run(*module)))
    return 0;
  checkPrinting(*module, config);
  if (request.isWhole && !request.isForXLA)
    checkPlan(*module);
  if (!request.lower || request.isForXLA)
    return 0;
  PassManager lowering(&context);
  buildLowerToLLVMPipeline(lowering, LLVMLoweringOptions());
  (void)lowering.run(*module);
  return 0;
}

/// Our code is instrumented, LLVM is not: what headers do to memory in the one
/// (marking what a container or an allocator has not given out) the other does
/// not undo.
extern "C" const char *__asan_default_options() {
  return "detect_container_overflow=0:allow_user_poisoning=0";
}
