// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the output of `ddphook-cc --shared` on a machine that needs no compiler.
// ddphook-run does the same for MLIR text; runner.h has their common part.

#include "runner.h"
#include "tool_version.h"

#include <algorithm>
#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <string>
#include <vector>

using namespace ddphook;

static const char toolName[] = "ddphook-exec";

/// Takes the only argument that is not a flag.
static Status takeModulePath(const std::vector<std::string> &rest,
                             std::string &path) {
  for (const std::string &argument : rest) {
    if (argument.size() > 1 && argument[0] == '-')
      return unknownFlag(argument);
    if (!path.empty())
      return invalid("expected one module, but got '" + path + "' and '" +
                     argument + "'");
    path = argument;
  }
  return path.empty() ? invalid("expected a module, MODULE.so") : Status::ok();
}

/// Loads the shared object; it stays loaded.
static Status loadModule(std::string path,
                         const ddphook_compiled_module_t *&module) {
  std::string start(4, '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), 4);
  if (start == "ML\xefR")
    return invalid("'" + path +
                   "' is MLIR's bytecode: compile it with ddphook-cc --shared");
  // Without a slash, dlopen() would search the library path.
  if (path.find('/') == std::string::npos)
    path = "./" + path;
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Status(DDPHOOK_IO_ERROR,
                  std::string("cannot load the module: ") + ::dlerror());
  module = static_cast<const ddphook_compiled_module_t *>(
      ::dlsym(library, "ddphook_compiled_module"));
  if (!module)
    return invalid("'" + path +
                   "' has no symbol ddphook_compiled_module: it was not made "
                   "by ddphook-cc --shared");
  if (module->abi_version != DDPHOOK_ABI_VERSION)
    return unsupported(concat("'", path, "': expected a module of ABI version ",
                              DDPHOOK_ABI_VERSION, ", but got ",
                              module->abi_version));
  if (module->struct_size < sizeof(ddphook_compiled_module_t))
    return unsupported(concat("'", path, "': expected a module structure of ",
                              sizeof(ddphook_compiled_module_t),
                              " bytes, but got ", module->struct_size));
  return Status::ok();
}

int main(int argc, char **argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  auto isGiven = [&](const char *flag) {
    return std::find(arguments.begin(), arguments.end(), flag) !=
           arguments.end();
  };
  if (isGiven("--help")) {
    std::printf("usage: %s MODULE.so --entry=NAME [flags]\n\n%s", toolName,
                runOptionsHelp);
    return 0;
  }
  if (isGiven("--version")) {
    std::printf("%s", describeVersion(toolName).c_str());
    return 0;
  }
  RunOptions options;
  std::vector<std::string> rest;
  std::string path;
  Status status = parseRunOptions(arguments, options, rest);
  if (status.isOk())
    status = takeModulePath(rest, path);
  if (!status.isOk())
    return reportError(toolName, status, /*isUsage=*/true);
  const ddphook_compiled_module_t *module = nullptr;
  status = loadModule(path, module);
  if (!status.isOk())
    return reportError(toolName, status);
  return runModule(toolName, *module, options);
}
