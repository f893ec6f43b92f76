//===- bench_torch.cpp - ddphook-bench torch ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hooks in PyTorch are measured by the Python package, `python -m ddphook
// bench`: this finds an interpreter that has it, and becomes that program.
//
//===----------------------------------------------------------------------===//
#include "benches.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::bench;

static constexpr char kPythonOption[] = "--python=";
/// A directory that happens to be called so is no package: it has no origin.
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

/// Whether the interpreter runs, and has the package.
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

int bench::benchTorch(const std::vector<std::string> &arguments) {
  const char *named = std::getenv("DDPHOOK_TEST_PYTHON");
  std::string python = named && *named ? named : "python3";
  std::vector<const char *> words = {nullptr, "-m", "ddphook", "bench"};
  const size_t prefix = std::strlen(kPythonOption);
  for (const std::string &argument : arguments)
    if (argument.compare(0, prefix, kPythonOption) == 0)
      python = argument.substr(prefix);
    else
      words.push_back(argument.c_str());
  if (Status status = checkPackage(python); !status.isOk())
    return fail(status);
  words.front() = python.c_str();
  words.push_back(nullptr);
  execvp(words.front(), const_cast<char *const *>(words.data()));
  return fail(cannotRun(python, errno));
}
