// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A module's PTX is translated by ptx/compile_ptx.py, which keeps the result in
// a directory for the next process.

#include "device_code.h"

#include "access_checks.h"
#include "block_runner.h"
#include "stream.h"
#include "traffic.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace emulated_cuda;

/// The error of a driver for PTX that it cannot compile.
static constexpr auto invalidPtx = static_cast<cudaError_t>(218);

namespace {

/// A kernel with its module, whose file messages name.
struct Code {
  const ptx::Module *module = nullptr;
  const ptx::Kernel *kernel = nullptr;
};

/// The work of all launches of a kernel. A byte that two threads load counts
/// twice.
struct Counts {
  uint64_t launches = 0, instructions = 0;
  uint64_t loadedBytes = 0, storedBytes = 0, sharedBytes = 0;

  void operator+=(const Counts &other) {
    launches += other.launches;
    instructions += other.instructions;
    loadedBytes += other.loadedBytes;
    storedBytes += other.storedBytes;
    sharedBytes += other.sharedBytes;
  }
};

/// The counts of this process, which go to the file EMULATED_CUDA_COUNTS when
/// it ends: a line per kernel, with its fields in the order of Counts.
class AllCounts {
public:
  /// Never destroyed, because threads of streams may still run when the process
  /// ends.
  static AllCounts &get() {
    static auto *counts = new AllCounts();
    return *counts;
  }
  void add(const char *kernel, const Counts &more) {
    if (!path)
      return;
    std::lock_guard<std::mutex> lock(mutex);
    byKernel[kernel] += more;
  }

private:
  AllCounts() {
    if (path)
      std::atexit([] { get().write(); });
  }

  void write() {
    std::lock_guard<std::mutex> lock(mutex);
    if (FILE *file = std::fopen(path, "a")) {
      for (const auto &[name, counts] : byKernel)
        std::fprintf(file, "%s %llu %llu %llu %llu %llu\n", name.c_str(),
                     static_cast<unsigned long long>(counts.launches),
                     static_cast<unsigned long long>(counts.instructions),
                     static_cast<unsigned long long>(counts.loadedBytes),
                     static_cast<unsigned long long>(counts.storedBytes),
                     static_cast<unsigned long long>(counts.sharedBytes));
      std::fclose(file);
    }
  }

  const char *path = std::getenv("EMULATED_CUDA_COUNTS");
  std::mutex mutex;
  std::map<std::string, Counts> byKernel;
};

/// The block that runs on an operating system's thread; its threads come from
/// BlockRunner.
class RunningBlock final : public ptx::Block {
public:
  RunningBlock(Code code, const BlockRunner &runner)
      : code(code), launch(runner.launchNumber()),
        checks(*code.module, *code.kernel) {}

  /// Runs the thread that BlockRunner has begun.
  static void runThread(Code code, const void *const *arguments) {
    static thread_local std::unique_ptr<RunningBlock> running;
    BlockRunner &runner = BlockRunner::ofThisThread();
    if (!running || running->launch != runner.launchNumber()) {
      running = std::make_unique<RunningBlock>(code, runner);
      running->counts.launches = 1;
    }
    if (running->number != runner.blockNumber()) {
      running->number = runner.blockNumber();
      running->checks.beginBlock(runner.dynamicShared(), runner.dynamicBytes());
    }
    ptx::Thread thread{*running,
                       static_cast<char *>(runner.dynamicShared()),
                       {threadIdx.x, threadIdx.y, threadIdx.z},
                       {blockDim.x, blockDim.y, blockDim.z},
                       {blockIdx.x, blockIdx.y, blockIdx.z},
                       {gridDim.x, gridDim.y, gridDim.z},
                       runner.laneId(),
                       &running->counts.instructions};
    code.kernel->run(thread, arguments);
    AllCounts::get().add(code.kernel->name, std::exchange(running->counts, {}));
  }

  void barrier(int line) override {
    if (isSkipped(line))
      return;
    waitForBlock(BarrierKind::Plain, 0, {"bar.sync", code.module->file, line});
    checks.passBarrier();
  }
  void warpBarrier(unsigned mask, int line) override {
    if (isSkipped(line))
      return;
    waitForWarp(mask, 0, {"bar.warp.sync", code.module->file, line});
    checks.passWarpBarrier();
  }
  Lanes exchange(unsigned mask, uint64_t value, const char *instruction,
                 int line) override {
    const WarpValues &warp =
        waitForWarp(mask, value, {instruction, code.module->file, line});
    return {warp.lanes, warp.values};
  }
  void copyAsync(char *shared, const char *global, unsigned bytes,
                 unsigned zeros, int line) override {
    if (zeros < bytes)
      access(reinterpret_cast<uint64_t>(global), bytes, Access::Load, line);
    access(reinterpret_cast<uint64_t>(shared), bytes, Access::Store, line);
    emulated_cuda::copyAsync(shared, global, bytes, zeros);
  }
  void commitCopies() override { emulated_cuda::commitCopies(); }
  void waitForCopies(unsigned prior) override {
    emulated_cuda::waitForCopies(prior);
  }
  void access(uint64_t address, unsigned bytes, Access kind,
              int line) override {
    checks.check(address, bytes, kind, line);
    (checks.isShared(address) ? counts.sharedBytes
     : kind == Access::Load   ? counts.loadedBytes
                              : counts.storedBytes) += bytes;
  }

private:
  /// EMULATED_CUDA_SKIP=FILE:LINE leaves out a barrier, and says so once.
  bool isSkipped(int line) const {
    static const char *const skipped = std::getenv("EMULATED_CUDA_SKIP");
    if (!skipped)
      return false;
    const std::string place =
        std::string(code.module->file) + ":" + std::to_string(line);
    if (place.size() < std::strlen(skipped) ||
        place.compare(place.size() - std::strlen(skipped), std::string::npos,
                      skipped) != 0)
      return false;
    static const int written =
        std::fprintf(stderr, "emulated CUDA: left out %s\n", skipped);
    return written > 0;
  }

  const Code code;
  const uint64_t launch;
  uint64_t number = 0;
  AccessChecks checks;
  Counts counts;
};

} // namespace

/// A kernel of a loaded module.
struct CUkern_st {
  Code code;
  cudaError_t error = cudaSuccess;
};

/// A loaded module. Whether it can run shows when one of its kernels is first
/// used.
struct CUlib_st {
  std::string text;
  cudaError_t error = cudaSuccess;
  const ptx::Module *module = nullptr;
  std::vector<std::unique_ptr<CUkern_st>> kernels;
};

namespace {
/// The functions of this process that are kernels in PTX.
struct Functions {
  std::mutex mutex;
  /// The GPU library's own, by their names.
  std::map<std::string, Code> byName;
  /// The kernels' names by the host functions that a program has registered.
  std::map<const void *, std::string> registered;
  /// Kernels of loaded modules.
  std::map<const void *, const CUkern_st *> loaded;

  /// Returns null if `function` is no kernel in PTX. Ends the process if it is
  /// registered but the GPU library lacks it.
  const CUkern_st *find(const void *function) {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = loaded.find(function); found != loaded.end())
      return found->second;
    auto name = registered.find(function);
    if (name == registered.end())
      return nullptr;
    auto code = byName.find(name->second);
    if (code == byName.end()) {
      std::fprintf(stderr,
                   "emulated CUDA: the GPU library was built without kernel "
                   "%s\n",
                   name->second.c_str());
      std::abort();
    }
    return loaded[function] = new CUkern_st{code->second, cudaSuccess};
  }
};
} // namespace

static Functions &functions() {
  static auto *functions = new Functions();
  return *functions;
}

void emulated_cuda::addDeviceCode(const ptx::Module &module) {
  std::lock_guard<std::mutex> lock(functions().mutex);
  for (unsigned i = 0; i < module.count; ++i)
    functions().byName[module.kernels[i].name] = {&module, &module.kernels[i]};
}

void emulated_cuda::registerFunction(const void *function, const char *name) {
  std::lock_guard<std::mutex> lock(functions().mutex);
  functions().registered[function] = name;
}

cudaError_t emulated_cuda::useFunction(const void *function) {
  const CUkern_st *kernel = functions().find(function);
  return kernel ? kernel->error : cudaSuccess;
}

unsigned emulated_cuda::mostThreadsOf(const void *function) {
  const CUkern_st *kernel = functions().find(function);
  const unsigned most =
      kernel && kernel->code.kernel ? kernel->code.kernel->mostThreads : 0;
  return most ? most : 1024;
}

/// Returns what a command prints, without the end of the line.
static std::string outputOf(const std::string &command) {
  std::string output;
  if (FILE *pipe = popen(command.c_str(), "r")) {
    char buffer[256];
    while (std::fgets(buffer, sizeof(buffer), pipe))
      output += buffer;
    if (pclose(pipe) != 0)
      output.clear();
  }
  while (!output.empty() && output.back() == '\n')
    output.pop_back();
  return output;
}

/// Translates a module's PTX, or says on stderr why that is not possible.
static cudaError_t compile(const std::string &text,
                           const ptx::Module **module) {
  char path[] = "/tmp/emulated-cuda-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0)
    return cudaErrorUnknown;
  const bool isWritten =
      write(file, text.data(), text.size()) == ssize_t(text.size());
  close(file);
  const std::string library =
      isWritten ? outputOf(EMULATED_CUDA_COMPILE_PTX " " + std::string(path))
                : "";
  std::remove(path);
  if (library.empty())
    return invalidPtx;
  void *image = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!image) {
    std::fprintf(stderr, "emulated CUDA: %s\n", dlerror());
    return invalidPtx;
  }
  *module = static_cast<const ptx::Module *>(dlsym(image, "ptx_module"));
  return *module ? cudaSuccess : invalidPtx;
}

extern "C" {

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                cudaJitOption *, void **, unsigned int,
                                cudaLibraryOption *, void **, unsigned int) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (!library || !code)
    return record(cudaErrorInvalidValue);
  if (cudaError_t error = refuseDuringCapture())
    return record(error);
  *library = new CUlib_st;
  CUlib_st &loaded = **library;
  loaded.text = static_cast<const char *>(code);
  loaded.error = loaded.text.find(".version") == std::string::npos
                     ? cudaErrorInvalidKernelImage
                     : compile(loaded.text, &loaded.module);
  return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  if (!library)
    return record(cudaErrorInvalidResourceHandle);
  std::lock_guard<std::mutex> lock(functions().mutex);
  for (const auto &kernel : library->kernels)
    functions().loaded.erase(kernel.get());
  delete library;
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
                                 const char *name) {
  if (!kernel || !library || !name)
    return record(cudaErrorInvalidValue);
  CUkern_st found{{}, library->error};
  if (const ptx::Module *module = library->module) {
    const ptx::Kernel *end = module->kernels + module->count;
    const ptx::Kernel *code =
        std::find_if(module->kernels, end, [&](const ptx::Kernel &candidate) {
          return std::strcmp(candidate.name, name) == 0;
        });
    if (code == end)
      return record(cudaErrorSymbolNotFound);
    found.code = {module, code};
  }
  std::lock_guard<std::mutex> lock(functions().mutex);
  library->kernels.push_back(std::make_unique<CUkern_st>(found));
  *kernel = library->kernels.back().get();
  functions().loaded[*kernel] = *kernel;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config,
                                const void *function, void **arguments) {
  const CUkern_st *kernel = functions().find(function);
  if (!kernel || kernel->error)
    return record(kernel ? kernel->error : cudaErrorInvalidDeviceFunction);
  const ptx::Kernel &code = *kernel->code.kernel;
  const dim3 &block = config->blockDim;
  const unsigned *required = code.requiredThreads;
  if (required[0] && (block.x != required[0] || block.y != required[1] ||
                      block.z != required[2]))
    return record(cudaErrorInvalidValue);
  // The arguments are copied when the launch is made.
  struct Arguments {
    std::vector<std::vector<char>> values;
    std::vector<const void *> pointers;
  };
  auto copies = std::make_shared<Arguments>();
  for (unsigned i = 0; i < code.parameterCount; ++i) {
    auto *begin = static_cast<const char *>(arguments[i]);
    copies->values.emplace_back(begin, begin + code.parameterBytes[i]);
    copies->pointers.push_back(copies->values.back().data());
  }
  return emulated_cuda::launch(*config, {function,
                                         [code = kernel->code, copies] {
                                           RunningBlock::runThread(
                                               code, copies->pointers.data());
                                         },
                                         nullptr, nullptr});
}

} // extern "C"
