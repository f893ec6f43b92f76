// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "torch_process.h"

#include "base/deadline.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::bench;

/// Starting PyTorch from a cold disk takes longest.
static constexpr double kPatienceSeconds = 120;

/// Returns the path of the script in the install tree or in the source tree.
static std::string scriptPath() {
  std::error_code failed;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::filesystem::path installed =
      program.parent_path() / DDPHOOK_BENCH_SCRIPT_DIRECTORY "/torch_hooks.py";
  return !failed && std::filesystem::exists(installed, failed)
             ? installed.string()
             : DDPHOOK_BENCH_SOURCE_DIRECTORY "/torch_hooks.py";
}

Status TorchProcess::start(const std::string &python, const Json &options,
                           std::unique_ptr<TorchProcess> *process) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return systemError(errno, "cannot create a pair of sockets");
  cpu_set_t processors;
  CPU_ZERO(&processors);
  sched_getaffinity(getppid(), sizeof(processors), &processors);
  const std::string path = scriptPath(), text = options.dump();
  std::unique_ptr<TorchProcess> torch(new TorchProcess());
  torch->pid = fork();
  if (torch->pid < 0)
    return systemError(errno, "cannot start PyTorch");
  if (torch->pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)sched_setaffinity(0, sizeof(processors), &processors);
    dup2(ends[1], STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    execl(python.c_str(), python.c_str(), path.c_str(), text.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  torch->channel = ends[0];
  Json reply;
  DDPHOOK_TRY(withContext(torch->ask("", &reply),
                          "cannot run PyTorch with '" + python + "'"));
  torch->torchVersion = reply.value("torch", "");
  *process = std::move(torch);
  return Status::ok();
}

TorchProcess::~TorchProcess() {
  if (pid < 0)
    return;
  // The script ends when its input does, and its ranks end with it.
  close(channel);
  const Deadline deadline = Deadline::after(5);
  while (waitpid(pid, nullptr, WNOHANG) == 0) {
    if (deadline.expired())
      kill(pid, SIGKILL);
    usleep(1000);
  }
}

/// Sends a line, unless it is empty, and receives one.
Status TorchProcess::ask(const std::string &line, Json *reply) {
  const std::string text = line.empty() ? line : line + "\n";
  // Without a signal if the process is dead.
  if (send(channel, text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size()))
    return systemError(errno, "cannot write to PyTorch's process");
  const Deadline deadline = Deadline::after(kPatienceSeconds);
  size_t end;
  while ((end = received.find('\n')) == std::string::npos) {
    pollfd ready{channel, POLLIN, 0};
    if (poll(&ready, 1, deadline.remainingMs()) == 0)
      return deadlineExceeded("PyTorch's process did not answer within %g s",
                              kPatienceSeconds);
    char block[65536];
    const ssize_t size = read(channel, block, sizeof(block));
    if (size <= 0)
      return peerLost("PyTorch's process ended");
    received.append(block, static_cast<size_t>(size));
  }
  *reply = Json::parse(received.substr(0, end), nullptr,
                       /*allow_exceptions=*/false);
  if (!reply->is_object())
    return internalError("PyTorch's process failed: %s",
                         received.substr(0, end).c_str());
  received.erase(0, end + 1);
  return Status::ok();
}

Status TorchProcess::run(const Json &job, Samples *seconds) {
  Json reply;
  DDPHOOK_TRY(ask(job.dump(), &reply));
  for (double value : reply.value("seconds", Samples()))
    seconds->push_back(value);
  return Status::ok();
}
