// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A directory that goes away with the test.

#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace ddphook {

class TemporaryDirectory {
public:
  TemporaryDirectory() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "ddphook-test-XXXXXX")
            .string();
    if (!::mkdtemp(pattern.data()))
      throw std::runtime_error("cannot make " + pattern);
    root = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory &) = delete;
  TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;

  std::string path(const std::string &name) const { return root + "/" + name; }

  void write(const std::string &name, const std::string &bytes) const {
    std::ofstream(path(name), std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string read(const std::string &name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// The names in it, sorted.
  std::vector<std::string> list() const {
    std::vector<std::string> names;
    for (const auto &item : std::filesystem::directory_iterator(root))
      names.push_back(item.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

private:
  std::string root;
};

} // namespace ddphook
