// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a module in memory to code that runs, and what goes wrong on the way.

#include "ddphook/Compiler/Compiler.h"
#include "ddphook/Compiler/JitModule.h"
#include "ddphook/Compiler/SharedObject.h"
#include "ddphook/runtime/runtime.h"

#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Parallel.h"
#include "gtest/gtest.h"

#include <array>
#include <atomic>
#include <csignal>
#include <dlfcn.h>
#include <elf.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace mlir::ddp;

static const char reduceText[] = R"mlir(
  ddp.process_group @dp
  func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    %0 = tensor.empty() : tensor<4xf32>
    %s = linalg.add ins(%r, %r : tensor<4xf32>, tensor<4xf32>)
                    outs(%0 : tensor<4xf32>) -> tensor<4xf32>
    return %s : tensor<4xf32>
  }
)mlir";

namespace {
class CompilerTest : public ::testing::Test {
protected:
  CompilerTest()
      : handler(&context, [&](Diagnostic &diagnostic) {
          errors += (errors.empty() ? "" : "|") + diagnostic.str();
        }) {
    // What a compiler has before it knows of ddphook's compiler.
    DialectRegistry registry;
    registerCompilerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  OwningOpRef<ModuleOp> parse(StringRef text) {
    auto module = parseSourceString<ModuleOp>(text, &context);
    if (!module)
      llvm::report_fatal_error("expected a valid module, but got " + text);
    return module;
  }
  std::unique_ptr<Compiler> create(CompilerOptions options = {}) {
    auto compiler = Compiler::create(options);
    if (!compiler)
      llvm::report_fatal_error(compiler.takeError());
    return std::move(*compiler);
  }

  MLIRContext context;
  std::string errors;
  ScopedDiagnosticHandler handler;
};
} // namespace

/// Loads a module in a job of one, runs its entry `step`, and unloads it.
static void runStep(const ddphook_compiled_module_t &module,
                    ArrayRef<void *> buffers) {
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  options.world_size = 1;
  ddphook_context_t *job = nullptr;
  ASSERT_EQ(ddphook_context_create(&options, &job), DDPHOOK_OK)
      << ddphook_last_error();
  ASSERT_EQ(ddphook_module_load(job, &module), DDPHOOK_OK)
      << ddphook_last_error();
  ASSERT_EQ(module.entry_count, 1u);
  EXPECT_EQ(module.entries[0].invoke(buffers.data()), DDPHOOK_OK)
      << ddphook_last_error();
  EXPECT_EQ(ddphook_module_unload(&module), DDPHOOK_OK);
  ddphook_context_destroy(job);
}

TEST_F(CompilerTest, RunsInThisProcess) {
  auto compiler = create();
  auto module = parse(reduceText);
  auto compiled = compiler->compile(*module);
  ASSERT_TRUE(static_cast<bool>(compiled)) << toString(compiled.takeError());
  EXPECT_EQ(compiled->name, "ddphook");
  EXPECT_NE(compiled->header.find("ddphook_step("), std::string::npos);
  auto loaded = JitModule::load(*compiled);
  ASSERT_TRUE(static_cast<bool>(loaded)) << toString(loaded.takeError());
  // Nothing of what it was made of is needed any more.
  compiled->object.clear();
  compiler.reset();
  module = nullptr;
  float in[] = {1, 2, 3, 4}, out[] = {-1, -1, -1, -1};
  runStep((*loaded)->get(), {in, out});
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(out[i], 2 * in[i]);
  ASSERT_NE((*loaded)->findEntry("step"), nullptr);
  EXPECT_EQ((*loaded)->findEntry("steps"), nullptr);
  EXPECT_EQ(errors, "");
}

TEST_F(CompilerTest, OneCompilerManyModules) {
  auto compiler = create();
  // The second has the error of the first again, at the same place.
  for (int i = 0; i < 2; ++i) {
    errors.clear();
    auto wrong = parse("func.func @step(%x: tensor<?xf32>) -> tensor<?xf32> {"
                       "  return %x : tensor<?xf32>"
                       "}");
    auto compiled = compiler->compile(*wrong);
    ASSERT_FALSE(static_cast<bool>(compiled));
    EXPECT_TRUE(compiled.errorIsA<DiagnosedError>());
    consumeError(compiled.takeError());
    EXPECT_NE(errors, "");
    EXPECT_EQ(errors.find('|'), std::string::npos) << errors;
  }
  errors.clear();
  for (int i = 0; i < 2; ++i) {
    auto module = parse(reduceText);
    auto compiled = compiler->compile(*module);
    ASSERT_TRUE(static_cast<bool>(compiled)) << toString(compiled.takeError());
  }
  EXPECT_EQ(errors, "");
}

namespace {
class SharedObjectTest : public CompilerTest {
protected:
  /// Object code of `reduceText`, as a module that can be shared.
  SmallVector<char, 0> compileObject() {
    CompilerOptions options;
    options.shared = true;
    auto module = parse(reduceText);
    auto compiled = create(options)->compile(*module);
    if (!compiled)
      llvm::report_fatal_error(compiled.takeError());
    return std::move(compiled->object);
  }

  /// Loads a shared object and runs its step.
  static void run(ArrayRef<char> shared) {
    SmallString<128> path;
    int file;
    ASSERT_FALSE(
        llvm::sys::fs::createTemporaryFile("ddphook", "so", file, path));
    llvm::raw_fd_ostream(file, /*shouldClose=*/true)
        << StringRef(shared.data(), shared.size());
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    llvm::sys::fs::remove(path);
    ASSERT_NE(library, nullptr) << dlerror();
    void *symbol = dlsym(library, "ddphook_compiled_module");
    ASSERT_NE(symbol, nullptr) << dlerror();
    float in[] = {1, 2, 3, 4}, out[4] = {};
    runStep(*static_cast<const ddphook_compiled_module_t *>(symbol), {in, out});
    EXPECT_EQ(out[3], 8);
    dlclose(library);
  }

  /// The path of the runtime that this test is linked with.
  static std::string getRuntimePath() {
    Dl_info info;
    auto *function = reinterpret_cast<void *>(&ddphook_context_create);
    return dladdr(function, &info) ? info.dli_fname : "";
  }
};
} // namespace

static StringRef asText(ArrayRef<char> bytes) {
  return StringRef(bytes.data(), bytes.size());
}

TEST_F(SharedObjectTest, ByLLDAndByAProgram) {
  auto object = compileObject();
  for (StringRef linker : {"", "clang-22"})
    for (const std::string &runtime : {std::string(), getRuntimePath()}) {
      SharedObjectOptions options;
      options.linker = linker;
      options.runtime = runtime;
      auto shared = linkSharedObject(asText(object), options);
      ASSERT_TRUE(static_cast<bool>(shared)) << toString(shared.takeError());
      EXPECT_EQ(asText(*shared).contains("libddphook_rt.so."),
                !runtime.empty());
      run(*shared);
    }
}

TEST_F(SharedObjectTest, ManyThreads) {
  auto object = compileObject();
  SmallVector<std::string> linked(4);
  SmallVector<std::thread> threads;
  for (std::string &result : linked)
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) {
        auto shared = linkSharedObject(asText(object));
        result = shared ? asText(*shared).str() : toString(shared.takeError());
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &result : linked)
    EXPECT_EQ(result, linked.front());
  run(ArrayRef<char>(linked.front().data(), linked.front().size()));
}

/// Whether a child of this process can link.
static bool linksInChild(StringRef object) {
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    auto shared = linkSharedObject(object);
    _exit(shared ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

/// A child does not wait for what a thread of its parent had begun.
TEST_F(SharedObjectTest, ForkWhileLinking) {
  auto object = compileObject();
  std::atomic<bool> isOver = false;
  std::atomic<unsigned> numLinked = 0;
  std::thread other([&] {
    while (!isOver) {
      llvm::cantFail(linkSharedObject(asText(object)));
      ++numLinked;
    }
  });
  while (numLinked == 0)
    std::this_thread::yield();
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(linksInChild(asText(object)));
  isOver = true;
  other.join();
}

// Called like an option of LLVM's code generator.
static llvm::cl::opt<int> ofTheProgram("mcpu", llvm::cl::init(1));

/// LLD works as if it were the only one in its process.
TEST_F(SharedObjectTest, LeavesTheProcessAsItWas) {
  auto object = compileObject();
  ofTheProgram = 2;
  auto threads = llvm::parallel::strategy.ThreadsRequested;
  std::array<struct sigaction, NSIG> before = {}, after = {};
  for (int signal = 1; signal < NSIG; ++signal)
    sigaction(signal, nullptr, &before[signal]);
  auto shared = linkSharedObject(asText(object));
  ASSERT_TRUE(static_cast<bool>(shared)) << toString(shared.takeError());
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, nullptr, &after[signal]);
    EXPECT_EQ(before[signal].sa_handler, after[signal].sa_handler) << signal;
  }
  EXPECT_EQ(ofTheProgram, 2);
  EXPECT_EQ(llvm::parallel::strategy.ThreadsRequested, threads);
  llvm::cl::ResetAllOptionOccurrences();
  EXPECT_EQ(ofTheProgram, 1);
}

TEST_F(SharedObjectTest, WhatIsWrong) {
  auto object = compileObject();
  auto expectError = [](StringRef bytes, const SharedObjectOptions &options,
                        StringRef text) {
    auto shared = linkSharedObject(bytes, options);
    ASSERT_FALSE(static_cast<bool>(shared));
    std::string message = toString(shared.takeError());
    EXPECT_TRUE(StringRef(message).contains(text)) << message;
  };
  SharedObjectOptions options;
  options.linker = "no-such-linker";
  expectError(asText(object), options,
              "cannot find the linker 'no-such-linker'");
  options.linker = "";
  expectError("", options, "to be an object file, but got");
  options.runtime = "no-such-runtime.so";
  expectError(asText(object), options, "no-such-runtime.so");
  options.runtime = "/etc/passwd";
  expectError(asText(object), options, "to be the runtime's shared library");
  options.runtime = "";
}

/// LLD would end the process here; it cannot run again in it, but another
/// linker can.
TEST_F(SharedObjectTest, DamagedObject) {
  auto object = compileObject();
  // Section headers that begin behind the file's end.
  std::string damaged = asText(object).str();
  damaged.replace(offsetof(Elf64_Ehdr, e_shoff), 8, 8, '\x7f');
  auto useLLD = [&] {
    std::string message = toString(linkSharedObject(damaged).takeError());
    std::string again = toString(linkSharedObject(asText(object)).takeError());
    SharedObjectOptions options;
    options.linker = "clang-22";
    auto shared = linkSharedObject(asText(object), options);
    llvm::errs() << message << '|' << again << '|'
                 << (shared ? "linked" : toString(shared.takeError()));
    // Without a look for leaks: LLD has left what it had in hand.
    _exit(0);
  };
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(useLLD(), testing::ExitedWithCode(0),
              "LLD failed to link.*past the end of the file.*cannot run again.*"
              "linked");
}

TEST_F(CompilerTest, OptionsThatAreWrong) {
  auto expectError = [](CompilerOptions options, StringRef text) {
    auto compiler = Compiler::create(std::move(options));
    ASSERT_FALSE(static_cast<bool>(compiler));
    EXPECT_TRUE(StringRef(toString(compiler.takeError())).contains(text));
  };
  CompilerOptions options;
  options.name = "a-b";
  expectError(options, "expected a C identifier as the module's name");
  options.name = "";
  expectError(options, "expected a C identifier as the module's name");
  options = {};
  options.optLevel = 4;
  expectError(options, "expected an optimization level from 0 to 3, but got 4");
  options = {};
  options.march = "z80";
  expectError(options, "but got 'z80'");
  options = {};
  options.deviceArchitecture = "sm_90";
  expectError(options, "expected an architecture only for the device 'cuda', "
                       "but got 'sm_90' for 'host'");
}

TEST_F(CompilerTest, StagesInTheWrongOrder) {
  auto compiler = create();
  auto module = parse(reduceText);
  llvm::Error error = compiler->lower(*module);
  EXPECT_EQ(toString(std::move(error)),
            "expected a module with a plan; run ddp-pipeline first");
  DDPPipelineOptions pipeline;
  ASSERT_FALSE(static_cast<bool>(compiler->runPipeline(*module, pipeline)));
  auto compiled = compiler->compile(*module, &pipeline);
  ASSERT_FALSE(static_cast<bool>(compiled));
  EXPECT_EQ(toString(compiled.takeError()),
            "expected a module without a plan, but ddp-pipeline has already "
            "run on it");
  compiled = compiler->compile(*module);
  EXPECT_TRUE(static_cast<bool>(compiled)) << toString(compiled.takeError());

  CompilerOptions options;
  options.device = "other";
  auto forHost = parse(reduceText);
  DDPPipelineOptions hostMemory;
  hostMemory.memory = ArrayMemory::Host;
  error = create(options)->runPipeline(*forHost, hostMemory);
  EXPECT_EQ(toString(std::move(error)),
            "memory=host in the options of ddp-pipeline contradicts the device "
            "'other'");
  EXPECT_EQ(errors, "");
}

TEST_F(CompilerTest, ContextsThatLackDialects) {
  DialectRegistry registry;
  registry.insert<DDPDialect, func::FuncDialect>();
  MLIRContext small(registry);
  auto module = parseSourceString<ModuleOp>(R"mlir(
    ddp.process_group @dp
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      return %r : tensor<4xf32>
    }
  )mlir",
                                            &small);
  ASSERT_TRUE(module);
  auto compiled = create()->compile(*module);
  EXPECT_TRUE(static_cast<bool>(compiled)) << toString(compiled.takeError());
}

TEST_F(CompilerTest, MissingFunctionsAreNamed) {
  auto module = parse(R"mlir(
    ddp.process_group @dp
    func.func private @nobody_defines_this()
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      func.call @nobody_defines_this() : () -> ()
      %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      return %r : tensor<4xf32>
    }
  )mlir");
  auto compiled = create()->compile(*module);
  ASSERT_TRUE(static_cast<bool>(compiled)) << toString(compiled.takeError());
  auto loaded = JitModule::load(*compiled);
  ASSERT_FALSE(static_cast<bool>(loaded));
  std::string text = toString(loaded.takeError());
  EXPECT_TRUE(StringRef(text).starts_with("cannot link the module: "));
  EXPECT_TRUE(StringRef(text).contains("nobody_defines_this")) << text;
}

TEST_F(CompilerTest, ThreadsWithContextsOfTheirOwn) {
  std::vector<std::thread> threads;
  std::array<std::string, 4> results;
  for (std::string &result : results)
    threads.emplace_back([&result] {
      DialectRegistry registry;
      registerCompilerDialects(registry);
      MLIRContext own(registry);
      auto module = parseSourceString<ModuleOp>(reduceText, &own);
      auto compiler = Compiler::create({});
      if (!compiler)
        return consumeError(compiler.takeError());
      auto compiled = (*compiler)->compile(*module);
      if (!compiled)
        return consumeError(compiled.takeError());
      auto loaded = JitModule::load(*compiled);
      if (!loaded)
        return consumeError(loaded.takeError());
      result.assign(compiled->object.data(), compiled->object.size());
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_FALSE(results[0].empty());
  for (const std::string &result : results)
    EXPECT_EQ(result, results[0]);
}
