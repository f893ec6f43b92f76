//===- bench_torch.cpp - ddphook-bench torch ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The Python package measures hooks in PyTorch: `python -m ddphook bench`. This
// finds an interpreter that has it, or provides the package of this program's
// source tree, and executes that command.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::bench;

static constexpr char kPythonOption[] = "--python=";
/// A directory of that name is not a package: it has no origin.
static constexpr char kFindsPackage[] =
    "import importlib.util, sys; "
    "found = importlib.util.find_spec('ddphook'); "
    "sys.exit(found is None or found.origin is None)";

static int fail(const Status &status) {
  std::fprintf(stderr, "ddphook-bench: %s\n", status.message().c_str());
  return 1;
}

static Status cannotRun(const std::string &python, int errorNumber) {
  return error(DDPHOOK_INVALID_ARGUMENT, "cannot run '%s': %s", python.c_str(),
               std::strerror(errorNumber));
}

/// For `python -m ddphook bench`, which knows all options but --python. It is
/// here because help is most useful without such a Python.
static constexpr char kHelp[] =
    "usage: ddphook-bench torch [--python=PATH] [OPTIONS]\n"
    "\n"
    "Times whole steps of DistributedDataParallel and hooks alone, and "
    "compares them with\n"
    "PyTorch's, using the Python package ddphook: python -m ddphook bench. A "
    "launcher, such\n"
    "as torchrun, has to start that command itself.\n"
    "\n"
    "  --python=PATH      interpreter with PyTorch; default: the environment "
    "variable\n"
    "                     DDPHOOK_TEST_PYTHON, else python3\n"
    "  --model-mb=N       MiB of parameters (default 25)\n"
    "  --ranks=N          ranks to start (default 2)\n"
    "  --hooks=LIST       allreduce, fp16, bf16, powersgd-RANK, also "
    "powersgd-4+fp16\n"
    "                     (default allreduce,fp16,bf16,powersgd-2,"
    "powersgd-4)\n"
    "  --optimizer=NAME   sgd, adam or adamw (default sgd)\n"
    "  --compile          whole steps under torch.compile instead\n"
    "  --samples=N        samples of a rank in a step (default 16)\n"
    "  --steps=N          steps of each side in a round (default 10)\n"
    "  --rounds=N         rounds (default 6)\n"
    "  --json=FILE        also write the results there\n";

/// Checks that the interpreter runs and has the package.
static Status checkPackage(const std::string &python) {
  const char *words[] = {python.c_str(), "-c", kFindsPackage, nullptr};
  pid_t child;
  if (int failed = posix_spawnp(&child, words[0], nullptr, nullptr,
                                const_cast<char *const *>(words), environ))
    return cannotRun(python, failed);
  int state;
  while (waitpid(child, &state, 0) < 0)
    if (errno != EINTR)
      return systemError(errno, "cannot wait for Python");
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0)
    return Status::ok();
  return error(DDPHOOK_INVALID_ARGUMENT,
               "expected an interpreter with the Python package ddphook "
               "(docs/pytorch.md says how to install it), but got '%s'; name "
               "one with --python or DDPHOOK_TEST_PYTHON",
               python.c_str());
}

/// Makes the source tree's package, and the libraries next to this program,
/// available to the interpreter. Returns false outside a build tree.
static bool usePackageOfTree() {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (failed)
    return false;
  const fs::path package = DDPHOOK_BENCH_PACKAGE_DIRECTORY;
  const fs::path libraries = program.parent_path().parent_path() / "lib";
  if (!fs::exists(package / "ddphook" / "__init__.py", failed) ||
      !fs::exists(libraries / "libDDPHookCAPI.so", failed) ||
      !fs::exists(libraries.parent_path() / "CMakeCache.txt", failed))
    return false;
  std::string path = package.string();
  if (const char *others = std::getenv("PYTHONPATH"); others && *others)
    path.append(":").append(others);
  ::setenv("PYTHONPATH", path.c_str(), /*overwrite=*/1);
  // Other libraries may be selected already.
  ::setenv("DDPHOOK_LIBRARY_DIR", libraries.c_str(), /*overwrite=*/0);
  return true;
}

int bench::benchTorch(const std::vector<std::string> &arguments) {
  const char *named = std::getenv("DDPHOOK_TEST_PYTHON");
  std::string python = named && *named ? named : "python3";
  std::vector<const char *> words = {nullptr, "-m", "ddphook", "bench"};
  const size_t prefix = std::strlen(kPythonOption);
  for (const std::string &argument : arguments)
    if (argument == "--help" || argument == "-h") {
      std::fputs(kHelp, stdout);
      return 0;
    } else if (argument.compare(0, prefix, kPythonOption) == 0) {
      python = argument.substr(prefix);
    } else {
      words.push_back(argument.c_str());
    }
  Status status = checkPackage(python);
  if (!status.isOk() && usePackageOfTree())
    status = checkPackage(python);
  if (!status.isOk())
    return fail(status);
  words.front() = python.c_str();
  words.push_back(nullptr);
  execvp(words.front(), const_cast<char *const *>(words.data()));
  return fail(cannotRun(python, errno));
}
