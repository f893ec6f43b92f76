// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLD is designed as a program: it keeps state in global variables, resets
// LLVM's options, adds some, changes LLVM's number of threads, handles all
// signals to remove its output, and exits on files that it cannot read. This
// file wraps it in a function that leaves the process unchanged.

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

/// Adds the path of a library that this process has or can load. Skips others.
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

/// Checks the kind of a file. LLD would fail permanently on most files that it
/// cannot read, and accept some that it should not.
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

/// Makes a path absolute. LLD would take some relative paths for options.
static std::string makeAbsolute(StringRef path) {
  SmallString<128> absolute(path);
  (void)sys::fs::make_absolute(absolute);
  return absolute.str().str();
}

/// The output of LLD on this thread; null unless it runs.
static thread_local SmallVectorImpl<char> *written = nullptr;

namespace {
/// LLD's output, in memory. For a file, LLVM would handle all signals from then
/// on, including those that the program waits for, and a full disk would make
/// LLD fail permanently.
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

// LLD resets all LLVM options in this process, including the program's, even
// while other threads compile. It also adds the options of LLVM's code
// generator, which a program may define itself, and reads them in case it has
// to compile. It never does: its input is an object file.
//
// --wrap for each of these functions (CMakeLists.txt) redirects the calls in a
// program or library that contains LLD; calls elsewhere are not affected.
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

namespace {
/// Makes LLD return where it would exit, using LLVM's signal handlers. Removes
/// them afterwards unless the program had enabled them.
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

/// Serializes LLD. A fork waits, too: in the child, nobody would finish a link
/// that another thread has begun.
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

  // LLD uses only this thread, so that the process may fork afterwards. The
  // output goes to `written`; LLD must not open a file of that name.
  SmallVector<const char *> arguments = {
      "ld.lld",      "-shared", "-Bsymbolic", "--eh-frame-hdr",
      "--threads=1", "-o",      "/dev/null",  object.c_str()};
  for (const std::string &library : libraries)
    arguments.push_back(library.c_str());
  return runLLD(arguments);
}
