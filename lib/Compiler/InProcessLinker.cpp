//===- InProcessLinker.cpp - LLD in this process --------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLD is made to be a program: it keeps its state in global variables, resets
// LLVM's options, adds some, changes how many threads LLVM uses, handles all
// signals to remove its output, and ends the process when it meets a file that
// it cannot read. This file makes a function of it that leaves the process as
// it was.
//
//===----------------------------------------------------------------------===//

#include "InProcessLinker.h"

#include "NativeTarget.h"

#include "lld/Common/Driver.h"
#include "llvm/BinaryFormat/Magic.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/FileOutputBuffer.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Parallel.h"
#include "llvm/Support/SaveAndRestore.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetOptions.h"

#include <csignal>
#include <dlfcn.h>
#include <link.h>
#include <mutex>
#include <pthread.h>

using namespace llvm;

LLD_HAS_DRIVER(elf)

//===----------------------------------------------------------------------===//
// What the object may use
//===----------------------------------------------------------------------===//

/// Adds the path of the library of this name, which this process has or can
/// load; what is not there is not used.
static void addSystemLibrary(const char *name,
                             SmallVectorImpl<std::string> &paths) {
  void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!library)
    return;
  link_map *map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && *map->l_name)
    paths.push_back(map->l_name);
  dlclose(library);
}

/// Checks what kind of file this is. Most of what LLD cannot read would end its
/// work for good, and other kinds it would not refuse.
static Error checkKind(const std::string &path, file_magic::Impl expected,
                       StringRef what) {
  file_magic kind;
  if (std::error_code code = identify_magic(path, kind))
    return createStringError(code,
                             "cannot read '" + path + "': " + code.message());
  if (kind != expected)
    return createStringError("expected '" + path + "' to be " + what +
                             ", but got a file of another kind");
  return Error::success();
}

/// Of other paths LLD takes some for options, by what they begin with.
static std::string makeAbsolute(StringRef path) {
  SmallString<128> absolute(path);
  (void)sys::fs::make_absolute(absolute);
  return absolute.str().str();
}

//===----------------------------------------------------------------------===//
// What LLD asks of LLVM
//===----------------------------------------------------------------------===//

/// What LLD has written for this thread; null unless it works for it.
static thread_local SmallVectorImpl<char> *written = nullptr;

namespace {
/// LLD's output, in memory. For a file LLVM would handle all signals from then
/// on, among them some that the program may wait for, and a full disk would end
/// LLD's work for good.
class MemoryOutput : public FileOutputBuffer {
public:
  MemoryOutput(StringRef path, size_t size)
      : FileOutputBuffer(path), bytes(size) {}

  uint8_t *getBufferStart() const override {
    return reinterpret_cast<uint8_t *>(const_cast<char *>(bytes.data()));
  }
  uint8_t *getBufferEnd() const override {
    return getBufferStart() + bytes.size();
  }
  size_t getBufferSize() const override { return bytes.size(); }
  Error commit() override {
    *written = std::move(bytes);
    return Error::success();
  }

private:
  SmallVector<char, 0> bytes;
};
} // namespace

using ExpectedOutput = Expected<std::unique_ptr<FileOutputBuffer>>;

// LLD sets all options of LLVM in this process to their defaults, also those of
// the program, and while other threads compile. It adds those of LLVM's code
// generator, which a program may have under the same names, and reads them, in
// case it has to compile. It never has to: what it links is an object file.
//
// What contains LLD is linked with --wrap for each of these functions
// (CMakeLists.txt), which leads its calls here and leaves those of others
// alone.
#define DDPHOOK_WHILE_LINKING(type, name, symbol, parameters, arguments,       \
                              result)                                          \
  type real##name parameters __asm__("__real_" symbol);                        \
  type wrap##name parameters __asm__("__wrap_" symbol);                        \
  type wrap##name parameters { return written ? result : real##name arguments; }

DDPHOOK_WHILE_LINKING(ExpectedOutput, CreateOutput,
                      "_ZN4llvm16FileOutputBuffer6createENS_9StringRefEmj",
                      (StringRef path, size_t size, unsigned flags),
                      (path, size, flags),
                      ExpectedOutput(std::make_unique<MemoryOutput>(path,
                                                                    size)))
DDPHOOK_WHILE_LINKING(void, ResetOptions,
                      "_ZN4llvm2cl25ResetAllOptionOccurrencesEv", (), (),
                      void())
DDPHOOK_WHILE_LINKING(void, AddOptions,
                      "_ZN4llvm7codegen20RegisterCodeGenFlagsC1Ev",
                      (void *object), (object), void())
DDPHOOK_WHILE_LINKING(TargetOptions, GetTargetOptions,
                      "_ZN3lld33initTargetOptionsFromCodeGenFlagsEv", (), (),
                      TargetOptions())
DDPHOOK_WHILE_LINKING(std::optional<Reloc::Model>, GetRelocModel,
                      "_ZN3lld24getRelocModelFromCMModelEv", (), (),
                      std::nullopt)
DDPHOOK_WHILE_LINKING(std::optional<CodeModel::Model>, GetCodeModel,
                      "_ZN3lld23getCodeModelFromCMModelEv", (), (),
                      std::nullopt)
DDPHOOK_WHILE_LINKING(std::string, GetCPU, "_ZN3lld9getCPUStrB5cxx11Ev", (), (),
                      std::string())
DDPHOOK_WHILE_LINKING(std::vector<std::string>, GetFeatures,
                      "_ZN3lld9getMAttrsB5cxx11Ev", (), (),
                      std::vector<std::string>())

#undef DDPHOOK_WHILE_LINKING

//===----------------------------------------------------------------------===//
// LLD
//===----------------------------------------------------------------------===//

namespace {
/// Lets LLD come back where it would end the process, by LLVM's handlers of
/// signals. They are gone afterwards, unless the program has enabled them.
class ExitCatcher {
public:
  ExitCatcher() {
    auto before = getHandler();
    CrashRecoveryContext::Enable();
    isOurs = getHandler() != before;
  }
  ~ExitCatcher() {
    if (isOurs)
      CrashRecoveryContext::Disable();
  }

private:
  static void (*getHandler())(int) {
    struct sigaction action;
    sigaction(SIGSEGV, nullptr, &action);
    return action.sa_handler;
  }

  bool isOurs;
};
} // namespace

/// LLD works for one thread at a time. A fork waits for it as well: in the
/// child nobody would end what another thread has begun.
static std::mutex &getMutex() {
  static std::mutex mutex;
  static int registered = pthread_atfork(
      [] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  (void)registered;
  return mutex;
}

static Expected<SmallVector<char, 0>> runLLD(ArrayRef<const char *> arguments) {
  static bool isBroken = false;
  std::lock_guard<std::mutex> lock(getMutex());
  if (isBroken)
    return createStringError("LLD has failed in this process and cannot run "
                             "again; name another linker");
  SmallVector<char, 0> output;
  std::string messages;
  raw_string_ostream os(messages);
  lld::Result result;
  {
    ExitCatcher catcher;
    SaveAndRestore keepThreads(parallel::strategy);
    SaveAndRestore<SmallVectorImpl<char> *> work(written, &output);
    result = lld::lldMain(arguments, os, os, {{lld::Gnu, &lld::elf::link}});
  }
  isBroken = !result.canRunAgain;
  if (result.retCode == 0 && result.canRunAgain)
    return output;
  return createStringError("LLD failed to link the shared object: " +
                           StringRef(messages).trim());
}

Expected<SmallVector<char, 0>> mlir::ddp::linkInProcess(StringRef input,
                                                        StringRef runtime) {
  initializeTargets();
  std::string object = makeAbsolute(input);
  if (Error error =
          checkKind(object, file_magic::elf_relocatable, "an object file"))
    return error;
  SmallVector<std::string> libraries;
  if (!runtime.empty()) {
    libraries.push_back(makeAbsolute(runtime));
    if (Error error = checkKind(libraries.back(), file_magic::elf_shared_object,
                                "the runtime's shared library"))
      return error;
  }
  libraries.push_back("--as-needed");
  for (const char *name : {"libm.so.6", "libgcc_s.so.1", "libc.so.6"})
    addSystemLibrary(name, libraries);

  // One thread, this one: a process that has linked may fork. The output goes
  // to `written`; LLD must not look for a file of its name.
  SmallVector<const char *> arguments = {
      "ld.lld",      "-shared", "-Bsymbolic", "--eh-frame-hdr",
      "--threads=1", "-o",      "/dev/null",  object.c_str()};
  for (const std::string &library : libraries)
    arguments.push_back(library.c_str());
  return runLLD(arguments);
}
