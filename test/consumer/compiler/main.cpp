// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links the dialect and the passes through find_package(DDPHook), adds a hook
// of its own, and runs the whole pipeline on a module that uses it.

#include "MyHook.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

static constexpr StringLiteral kModule = R"(
  ddp.process_group @dp
  func.func @step(%g: tensor<6xf32>) -> tensor<6xf32>
      attributes {ddp.hook = #my.prescaled} {
    %r = ddp.all_reduce mean %g on @dp : tensor<6xf32>
    return %r : tensor<6xf32>
  }
)";

int main() {
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  ddp::registerAllDialects(registry);
  registry.insert<my::MyDialect>();
  MLIRContext context(registry);

  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(kModule, &context);
  if (!module)
    return 1;
  PassManager pm(&context);
  ddp::buildDDPPipeline(pm, ddp::DDPPipelineOptions());
  if (failed(pm.run(*module)))
    return 1;
  // Our hook's scaling, and the reduction behind it.
  bool scales = module->lookupSymbol("ddphook_rt_scale");
  bool reduces = module->lookupSymbol("ddphook_rt_collective");
  if (!scales || !reduces) {
    llvm::errs() << "expected calls to scale and to all-reduce in\n" << *module;
    return 1;
  }
  llvm::outs() << "compiler consumer: ok\n";
  return 0;
}
