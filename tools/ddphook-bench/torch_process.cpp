//===- torch_process.cpp - PyTorch as the baseline ------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One JSON object per line, each way.
//
//===----------------------------------------------------------------------===//
#include "torch_process.h"

#include "base/deadline.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::bench;

/// Starting PyTorch from a cold disk takes longest.
static constexpr double kPatienceSeconds = 120;

/// Returns the path of a script in the install tree or in the source tree.
static std::string scriptPath(const std::string &name) {
  std::error_code failed;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::filesystem::path installed =
      program.parent_path() / DDPHOOK_BENCH_SCRIPT_DIRECTORY / name;
  return !failed && std::filesystem::exists(installed, failed)
             ? installed.string()
             : std::string(DDPHOOK_BENCH_SOURCE_DIRECTORY "/") + name;
}

Status TorchProcess::start(const Options &options,
                           std::unique_ptr<TorchProcess> *process) {
  return start(options, "torch_hooks.py",
               {"--elements=" + std::to_string(options.elements()),
                "--flush-bytes=" + std::to_string(flushBytes())},
               process);
}

Status TorchProcess::start(const Options &options, const std::string &script,
                           const std::vector<std::string> &arguments,
                           std::unique_ptr<TorchProcess> *process) {
  process->reset();
  if (options.python.empty())
    return Status::ok();
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
    return systemError(errno, "cannot create a pipe");
  // Writing to a dead child should return an error.
  signal(SIGPIPE, SIG_IGN);
  const std::string path = scriptPath(script);
  std::vector<const char *> words = {options.python.c_str(), path.c_str()};
  for (const std::string &argument : arguments)
    words.push_back(argument.c_str());
  words.push_back(nullptr);
  std::unique_ptr<TorchProcess> torch(new TorchProcess());
  torch->pid = fork();
  if (torch->pid < 0)
    return systemError(errno, "cannot start PyTorch");
  if (torch->pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execv(words.front(), const_cast<char *const *>(words.data()));
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  torch->toChild = in[1];
  torch->fromChild = out[0];
  std::string reply;
  DDPHOOK_RETURN_IF_ERROR(
      withContext(torch->ask("", &reply),
                  "cannot run PyTorch with '" + options.python + "'"));
  torch->torchVersion = nlohmann::json::parse(reply).at("torch");
  *process = std::move(torch);
  return Status::ok();
}

TorchProcess::~TorchProcess() {
  if (pid < 0)
    return;
  // The script ends when its input does, and its ranks end with it.
  close(toChild);
  close(fromChild);
  const Deadline deadline = Deadline::after(5);
  while (waitpid(pid, nullptr, WNOHANG) == 0) {
    if (deadline.expired())
      kill(pid, SIGKILL);
    usleep(1000);
  }
}

/// Sends a line, unless it is empty, and receives one.
Status TorchProcess::ask(const std::string &line, std::string *reply) {
  if (!line.empty()) {
    const std::string text = line + "\n";
    if (write(toChild, text.data(), text.size()) !=
        static_cast<ssize_t>(text.size()))
      return systemError(errno, "cannot write to PyTorch's process");
  }
  const Deadline deadline = Deadline::after(kPatienceSeconds);
  for (;;) {
    const size_t end = received.find('\n');
    if (end != std::string::npos) {
      *reply = received.substr(0, end);
      received.erase(0, end + 1);
      return Status::ok();
    }
    pollfd ready{fromChild, POLLIN, 0};
    if (poll(&ready, 1, deadline.remainingMs()) == 0)
      return error(DDPHOOK_DEADLINE_EXCEEDED,
                   "PyTorch's process did not answer within %g s",
                   kPatienceSeconds);
    char block[65536];
    const ssize_t size = read(fromChild, block, sizeof(block));
    if (size <= 0)
      return error(DDPHOOK_PEER_LOST, "PyTorch's process ended");
    received.append(block, static_cast<size_t>(size));
  }
}

Status TorchProcess::run(const std::string &job, const std::string &kind,
                         Caches caches, int repetitions, TorchAnswer *answer) {
  nlohmann::json request = {{"job", job},
                            {"kind", kind},
                            {"cold", caches == Caches::Cold},
                            {"repetitions", repetitions}};
  std::string text;
  DDPHOOK_RETURN_IF_ERROR(ask(request.dump(), &text));
  const nlohmann::json reply = nlohmann::json::parse(text, nullptr, false);
  if (reply.is_discarded() || !reply.contains("seconds"))
    return error(DDPHOOK_INTERNAL, "PyTorch's process failed: %s",
                 text.c_str());
  answer->seconds = reply.at("seconds").get<std::vector<double>>();
  answer->checksum = reply.at("checksum").get<uint64_t>();
  answer->values = reply.value("values", std::vector<double>());
  return Status::ok();
}
