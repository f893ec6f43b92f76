//===- Jit.cpp - a compiled module in this process ------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Jit.h. The runtime's functions are given to the linker by address, so it
// does not matter whether this program contains the runtime or loads it.
//
//===----------------------------------------------------------------------===//

#include "Jit.h"

#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace llvm::orc;
using namespace mlir::ddp;

LoadedModule::LoadedModule() = default;
LoadedModule::~LoadedModule() = default;

/// What compiled.h declares.
static SymbolMap getRuntimeSymbols(LLJIT &jit) {
  SymbolMap symbols;
#define DDPHOOK_FUNCTION(name)                                                 \
  symbols[jit.mangleAndIntern("ddphook_rt_" #name)] = {                        \
      ExecutorAddr::fromPtr(&ddphook_rt_##name),                               \
      JITSymbolFlags::Exported | JITSymbolFlags::Callable};
#include "ddphook/runtime/functions.inc"
  return symbols;
}

Expected<std::unique_ptr<LoadedModule>>
LoadedModule::load(ArrayRef<char> object, StringRef name) {
  std::unique_ptr<LoadedModule> loaded(new LoadedModule());
  Expected<std::unique_ptr<LLJIT>> jit = LLJITBuilder().create();
  if (!jit)
    return jit.takeError();
  loaded->jit = std::move(*jit);
  LLJIT &lljit = *loaded->jit;
  JITDylib &library = lljit.getMainJITDylib();
  if (Error error = library.define(absoluteSymbols(getRuntimeSymbols(lljit))))
    return error;
  // The C and math libraries.
  auto process = DynamicLibrarySearchGenerator::GetForCurrentProcess(
      lljit.getDataLayout().getGlobalPrefix());
  if (!process)
    return process.takeError();
  library.addGenerator(std::move(*process));

  if (Error error = lljit.addObjectFile(MemoryBuffer::getMemBufferCopy(
          StringRef(object.data(), object.size()), name)))
    return error;
  Expected<ExecutorAddr> address = lljit.lookup((name + "_module").str());
  if (!address)
    return address.takeError();
  loaded->module = address->toPtr<const ddphook_compiled_module_t *>();
  return loaded;
}
