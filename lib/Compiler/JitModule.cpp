// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ddphook/Compiler/JitModule.h"

#include "NativeTarget.h"
#include "ddphook/Compiler/Compiler.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace llvm::orc;
using namespace mlir::ddp;

JitModule::JitModule() = default;
JitModule::~JitModule() = default;

Expected<std::unique_ptr<JitModule>>
JitModule::load(const CompiledModule &compiled,
                ArrayRef<RuntimeSymbol> runtime) {
  initializeTargets();
  std::unique_ptr<JitModule> loaded(new JitModule());
  Expected<std::unique_ptr<LLJIT>> jit = LLJITBuilder().create();
  if (!jit)
    return jit.takeError();
  loaded->jit = std::move(*jit);
  LLJIT &lljit = *loaded->jit;
  JITDylib &library = lljit.getMainJITDylib();
  // Collect details that a failed lookup omits, such as missing symbols.
  std::string reports;
  ExecutionSession &session = lljit.getExecutionSession();
  session.setErrorReporter([&](Error error) {
    reports += (reports.empty() ? "" : "; ") + toString(std::move(error));
  });
  auto stopListening = make_scope_exit([&] {
    session.setErrorReporter([](Error e) { consumeError(std::move(e)); });
  });
  SymbolMap symbols;
  for (const RuntimeSymbol &symbol : runtime)
    symbols[lljit.mangleAndIntern(symbol.name)] = {
        ExecutorAddr::fromPtr(symbol.address),
        JITSymbolFlags::Exported | JITSymbolFlags::Callable};
  if (Error error = library.define(absoluteSymbols(std::move(symbols))))
    return error;
  // The C and math libraries.
  auto process = DynamicLibrarySearchGenerator::GetForCurrentProcess(
      lljit.getDataLayout().getGlobalPrefix());
  if (!process)
    return process.takeError();
  library.addGenerator(std::move(*process));

  if (Error error = lljit.addObjectFile(MemoryBuffer::getMemBufferCopy(
          StringRef(compiled.object.data(), compiled.object.size()),
          compiled.name)))
    return error;
  Expected<ExecutorAddr> address = lljit.lookup(compiled.name + "_module");
  if (!address) {
    std::string message = toString(address.takeError());
    return createStringError("cannot link the module: " +
                             (reports.empty() ? message : reports));
  }
  loaded->module = address->toPtr<const ddphook_compiled_module_t *>();
  return loaded;
}

const ddphook_compiled_entry_t *JitModule::findEntry(StringRef name) const {
  ArrayRef<ddphook_compiled_entry_t> entries(module->entries,
                                             module->entry_count);
  auto *entry = find_if(entries, [&](const ddphook_compiled_entry_t &entry) {
    return name == entry.name;
  });
  return entry == entries.end() ? nullptr : entry;
}
