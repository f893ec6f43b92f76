// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Only writes text: EntryPoints.cpp determines the parameters, and
// EmitEntryPoints.cpp emits functions that match them.

#include "ddphook/Compiler/EntryPoints.h"
#include "ddphook/Dialect/DDP/IR/ElementTypes.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::ddp;

namespace {
void writeComment(llvm::raw_ostream &os, const EntryPoint &entry) {
  os << "/* Entry point \"" << entry.name << "\".\n";
  for (const EntryBuffer &buffer : entry.buffers) {
    os << " *   " << buffer.getName() << ": "
       << lookupElementType(buffer.getElementType())->name;
    if (isa<MemRefType>(buffer.type))
      os << '['
         << llvm::join(
                llvm::map_range(buffer.getShape(),
                                [](int64_t n) { return std::to_string(n); }),
                ", ")
         << ']';
    if (!buffer.isArgument())
      os << ", written";
    else if (buffer.kind == EntryBuffer::Kind::ScalarArgument)
      os << ", by value";
    else
      os << (buffer.mayBeWritten ? ", updated in place" : ", read");
    os << '\n';
  }
  for (auto [result, argument] : entry.aliases)
    os << " *   result" << result << " is arg" << argument << '\n';
  os << " */\n";
}

void writeFunction(llvm::raw_ostream &os, StringRef name,
                   const EntryPoint &entry) {
  writeComment(os, entry);
  os << "ddphook_status_t " << getEntrySymbol(name, entry.name) << '(';
  llvm::interleave(
      entry.buffers, os,
      [&](const EntryBuffer &buffer) {
        bool isPointer = buffer.kind != EntryBuffer::Kind::ScalarArgument;
        if (isPointer && buffer.isArgument() && !buffer.mayBeWritten)
          os << "const ";
        os << lookupElementType(buffer.getElementType())->cType << ' '
           << (isPointer ? "*" : "") << buffer.getName();
      },
      ",\n    ");
  os << (entry.buffers.empty() ? "void);\n\n" : ");\n\n");
}
} // namespace

void mlir::ddp::writeHeader(llvm::raw_ostream &os, StringRef name,
                            StringRef source, const EntryPointTable &table) {
  std::string guard = "DDPHOOK_COMPILED_" + name.upper() + "_H";
  os << "/* Written by ddphook-cc from " << source << "; do not edit.\n"
     << " *\n"
     << " * Arrays are contiguous and row-major"
     << (table.plan.usesDeviceMemory()
             ? ", in memory of the context's device.\n *"
             : ".")
     << " f16 and bf16 are passed as "
        "their bits\n"
     << " * (uint16_t), i1 as one byte (0 or 1), index as int64_t. No array "
        "that is written\n"
     << " * may overlap another one. Load the module before the first call:\n"
     << " *   ddphook_module_load(context, &" << name << "_module);\n"
     << " */\n"
     << "#ifndef " << guard << "\n#define " << guard << "\n\n"
     << "#include \"ddphook/runtime/compiled.h\"\n\n"
     << "#include <stdint.h>\n\n"
     << "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
     << "extern const ddphook_compiled_module_t " << name << "_module;\n\n";
  for (const EntryPoint &entry : table.entries)
    writeFunction(os, name, entry);
  os << "#ifdef __cplusplus\n}\n#endif\n\n#endif /* " << guard << " */\n";
}
