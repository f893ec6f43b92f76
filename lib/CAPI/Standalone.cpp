// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLD registers all LLVM targets, and can optimize across modules, with Polly,
// too. We only link object files of two targets. So the functions that it calls
// for everything else do nothing here, and none of it is linked.

#include "llvm/ADT/SmallVector.h"
#include "llvm/Plugins/PassPlugin.h"
#include "llvm/Support/ErrorHandling.h"

#include <memory>

#define UNUSED_TARGET(name)                                                    \
  extern "C" void LLVMInitialize##name##Target() {}                            \
  extern "C" void LLVMInitialize##name##TargetMC() {}                          \
  extern "C" void LLVMInitialize##name##AsmPrinter() {}                        \
  extern "C" void LLVMInitialize##name##AsmParser() {}                         \
  extern "C" void LLVMInitialize##name##Disassembler() {}
// CMakeLists.txt writes a line for each.
#include "UnusedTargets.inc"

// LLVM's archives refer to it, but none in Debian defines it.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", "left out",
          [](llvm::PassBuilder &) {}};
}

// Link-time optimization, of bitcode, which the linker's caller rejects. LLD
// makes one for each link. Its header is not installed; the result has the real
// one's layout.
namespace lld::elf {
struct Ctx;
class BitcodeFile;
class BitcodeCompiler {
public:
  BitcodeCompiler(Ctx &);
  ~BitcodeCompiler();
  void add(BitcodeFile &);
  llvm::SmallVector<std::unique_ptr<int>, 0> compile();
};
BitcodeCompiler::BitcodeCompiler(Ctx &) {}
BitcodeCompiler::~BitcodeCompiler() = default;
void BitcodeCompiler::add(BitcodeFile &) {
  llvm_unreachable("no bitcode is linked");
}
llvm::SmallVector<std::unique_ptr<int>, 0> BitcodeCompiler::compile() {
  return {};
}
} // namespace lld::elf
