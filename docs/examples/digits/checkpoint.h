// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A checkpoint has two halves: what the compiled step keeps, which the runtime
// saves (docs/checkpoints.md), and what the program keeps, which is saved here.
// They must be of the same moment, so they replace the checkpoint before as
// one:
//
//   DIR/latest                          names the good one of two slots
//   DIR/0/, DIR/1/                      the slots, written in turn
//     states.<rank>.safetensors, states.manifest.json    the runtime's half
//     program.<rank>                                     the program's half
//
// Both halves are written to the other slot, and on disk on every rank, before
// rank 0 changes `latest`: whatever dies at whatever moment, `latest` names a
// whole checkpoint. The program's file holds a digest of the runtime's, which
// is different for every save: halves of two saves are never mixed.

#ifndef DDPHOOK_EXAMPLES_DIGITS_CHECKPOINT_H
#define DDPHOOK_EXAMPLES_DIGITS_CHECKPOINT_H

#include "ddphook/runtime/runtime.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

inline void check(ddphook_status_t status, const std::string &what) {
  if (status != DDPHOOK_OK)
    throw std::runtime_error(what + ": " + ddphook_status_name(status) + ": " +
                             ddphook_last_error());
}

// FNV-1a.
inline uint64_t digest(const void *data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325;
  auto *bytes = static_cast<const unsigned char *>(data);
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

// What the program knows after an epoch, on one rank.
struct Progress {
  int epoch = 0;          // finished
  int epochs;             // of the whole run; the learning rate depends on it
  std::mt19937 generator; // of the order of images
  std::vector<float> *values; // parameters and velocities
};

class Checkpoints {
public:
  Checkpoints(ddphook_context_t *context,
              const ddphook_compiled_module_t *module, std::string directory)
      : context(context), module(module), directory(std::move(directory)),
        rank(ddphook_context_rank(context)) {}

  // Also before training: a wrong name should not wait for the first save.
  static void makeDirectory(const std::string &path) {
    if (::mkdir(path.c_str(), 0777) && errno != EEXIST)
      fail("cannot make", path);
  }

  // Collective.
  void save(const Progress &progress) {
    makeDirectory(directory);
    int32_t slot = latestSlot() == 0 ? 1 : 0;
    makeDirectory(slotPath(slot));
    sync(directory, O_RDONLY | O_DIRECTORY);
    check(ddphook_state_save(module, statesPattern(slot).c_str(), 0),
          "saving the step's states");
    write(programFile(slot), print(progress, digestOfStates(slot)));
    sync(slotPath(slot), O_RDONLY | O_DIRECTORY);
    check(ddphook_barrier(context), "saving a checkpoint");
    if (rank != 0)
      return;
    write(latestFile() + ".new", std::to_string(slot) + "\n");
    if (::rename((latestFile() + ".new").c_str(), latestFile().c_str()))
      fail("cannot write", latestFile());
    sync(directory, O_RDONLY | O_DIRECTORY);
  }

  // Collective. `progress` says which run this is, and gets its state. Nobody
  // goes on when a rank cannot: it leaves before the runtime's half is loaded,
  // which all ranks do together.
  void load(Progress &progress) {
    int32_t slot = latestSlot();
    if (slot < 0)
      throw std::runtime_error("there is no checkpoint in '" + directory + "'");
    Progress saved = progress;
    std::vector<float> values(progress.values->size());
    saved.values = &values;
    parse(programFile(slot), digestOfStates(slot), saved);
    check(ddphook_state_load(module, statesPattern(slot).c_str(),
                             DDPHOOK_STATE_STRICT, nullptr),
          "loading the step's states");
    *progress.values = values;
    progress.epoch = saved.epoch;
    progress.generator = saved.generator;
  }

private:
  std::string latestFile() const { return directory + "/latest"; }
  std::string slotPath(int32_t slot) const {
    return directory + "/" + std::to_string(slot);
  }
  std::string programFile(int32_t slot) const {
    return slotPath(slot) + "/program." + std::to_string(rank);
  }
  std::string statesPattern(int32_t slot) const {
    return slotPath(slot) + "/states.{rank}.safetensors";
  }
  uint64_t digestOfStates(int32_t slot) const {
    std::string text = read(slotPath(slot) + "/states." + std::to_string(rank) +
                            ".safetensors");
    return digest(text.data(), text.size());
  }

  // The slot that rank 0 finds in `latest`, or -1; the same on all ranks, which
  // need no common file system.
  int32_t latestSlot() const {
    int32_t slot = -1;
    if (rank == 0 && ::access(latestFile().c_str(), F_OK) == 0) {
      std::string text = read(latestFile());
      if (text != "0\n" && text != "1\n")
        throw std::runtime_error("'" + latestFile() + "' is damaged");
      slot = text[0] - '0';
    }
    check(ddphook_broadcast(context, &slot, sizeof(slot), 0),
          "looking for a checkpoint");
    return slot;
  }

  // What must be equal in the job that goes on: everything that decides which
  // images a rank sees, and the number of parameters.
  std::string identity(const Progress &progress) const {
    return "rank " + std::to_string(rank) + " of " +
           std::to_string(ddphook_context_world_size(context)) + ", " +
           std::to_string(progress.epochs) + " epochs, " +
           std::to_string(progress.values->size()) + " values";
  }

  // Four lines, the values, and a digest of all that.
  std::string print(const Progress &progress, uint64_t states) const {
    std::ostringstream out;
    out << "digits checkpoint 1: " << identity(progress) << '\n'
        << states << '\n'
        << progress.epoch << '\n'
        << progress.generator << '\n';
    out.write(reinterpret_cast<const char *>(progress.values->data()),
              progress.values->size() * sizeof(float));
    uint64_t hash = digest(out.str().data(), out.str().size());
    out.write(reinterpret_cast<const char *>(&hash), sizeof(hash));
    return out.str();
  }

  void parse(const std::string &path, uint64_t states,
             Progress &progress) const {
    auto refuse = [&](const std::string &why) {
      throw std::runtime_error("'" + path + "' " + why);
    };
    std::string text = read(path);
    uint64_t hash, statesThen = 0;
    if (text.size() < sizeof(hash))
      refuse("is damaged");
    const size_t size = text.size() - sizeof(hash);
    std::memcpy(&hash, &text[size], sizeof(hash));
    if (hash != digest(text.data(), size))
      refuse("is damaged");
    std::istringstream in(text.substr(0, size));
    std::string who;
    std::getline(in, who);
    if (who != "digits checkpoint 1: " + identity(progress))
      refuse("is of another run: expected " + identity(progress) +
             ", but got '" + who + "'");
    in >> statesThen >> progress.epoch >> progress.generator;
    in.get();
    in.read(reinterpret_cast<char *>(progress.values->data()),
            progress.values->size() * sizeof(float));
    if (!in || in.peek() != EOF)
      refuse("is damaged");
    if (statesThen != states)
      refuse("does not belong to the states beside it");
  }

  [[noreturn]] static void fail(const char *what, const std::string &path) {
    throw std::runtime_error(std::string(what) + " '" + path +
                             "': " + std::strerror(errno));
  }

  static std::string read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file)
      fail("cannot read", path);
    return text;
  }

  static void write(const std::string &path, const std::string &text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text << std::flush;
    if (!file)
      fail("cannot write", path);
    sync(path, O_WRONLY);
  }

  static void sync(const std::string &path, int flags) {
    int file = ::open(path.c_str(), flags | O_CLOEXEC);
    if (file < 0)
      fail("cannot open", path);
    int failed = ::fsync(file);
    ::close(file);
    if (failed)
      fail("cannot write", path);
  }

  ddphook_context_t *context;
  const ddphook_compiled_module_t *module;
  std::string directory;
  int32_t rank;
};

#endif // DDPHOOK_EXAMPLES_DIGITS_CHECKPOINT_H
