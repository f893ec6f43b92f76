// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Headers good and bad, files that lie about themselves, and files that cannot
// be written. exec/exec_test.py checks that Python's safetensors agrees.

#include "exec/exec_test_util.h"
#include "files/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace ddphook;

/// A file: the header's length, the header, the data.
static std::string makeFile(const std::string &header,
                            const std::string &data) {
  std::string bytes(8, '\0');
  uint64_t size = header.size();
  for (size_t i = 0; i < 8; ++i)
    bytes[i] = static_cast<char>(size >> (8 * i));
  return bytes + header + data;
}

static std::string tensorText(const char *name, const char *type,
                              const char *shape, const char *offsets) {
  return std::string("\"") + name + "\":{\"dtype\":\"" + type +
         "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

TEST(SafetensorsHeader, AcceptsEveryTypeAndShape) {
  SafetensorsHeader header;
  std::string text = "{\"__metadata__\":{\"format\":\"pt\"}," +
                     tensorText("a", "F64", "[2]", "[0,16]") + "," +
                     tensorText("b", "F32", "[1,2]", "[16,24]") + "," +
                     tensorText("c", "F16", "[3]", "[24,30]") + "," +
                     tensorText("d", "BF16", "[]", "[30,32]") + "," +
                     tensorText("e", "I64", "[0,5]", "[32,32]") + "," +
                     tensorText("f", "I32", "[1]", "[32,36]") + "," +
                     tensorText("g", "I16", "[1]", "[36,38]") + "," +
                     tensorText("h", "I8", "[1]", "[38,39]") + "," +
                     tensorText("i", "U8", "[1]", "[39,40]") + "," +
                     tensorText("j \\u00e4", "BOOL", "[2]", "[40,42]") + "}   ";
  Status status = parseSafetensorsHeader(text, 42, header);
  ASSERT_TRUE(status.isOk()) << status.message();
  ASSERT_EQ(header.tensors.size(), 10u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.tensors.at("b").type, TensorType::F32);
  EXPECT_EQ(header.tensors.at("b").shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(header.tensors.at("b").begin, 16u);
  EXPECT_EQ(header.tensors.at("d").shape, std::vector<int64_t>());
  EXPECT_EQ(header.tensors.at("e").end, 32u);
  EXPECT_EQ(header.tensors.count("j ä"), 1u);
}

TEST(SafetensorsHeader, AcceptsNoTensors) {
  SafetensorsHeader header;
  EXPECT_TRUE(parseSafetensorsHeader("{}", 0, header).isOk());
  EXPECT_TRUE(header.tensors.empty());
}

struct BadHeader {
  std::string text;
  uint64_t dataBytes;
  const char *message;
};

TEST(SafetensorsHeader, NamesEveryDefect) {
  const BadHeader table[] = {
      {"", 0, "expected the header to begin with '{'"},
      {" {}", 0, "expected the header to begin with '{'"},
      {"[]", 0, "expected the header to begin with '{'"},
      {"{", 0, "header is not valid JSON (near byte "},
      {"{}}", 0, "header is not valid JSON (near byte "},
      {"{\"\xff\":1}", 0, "header is not valid JSON (near byte "},
      {"{\"a\":1e999}", 0, "header is not valid JSON (near byte "},
      {std::string("{}\0\0\0", 5), 0,
       "header is not valid JSON (a zero byte at byte 2)"},
      {std::string("{\"\0\":1}", 7), 0,
       "header is not valid JSON (a zero byte at byte 2)"},
      {"{\"a\":1}", 0, "expected tensor 'a' to be an object, but got a number"},
      {"{\"a\":null}", 0, "expected tensor 'a' to be an object, but got null"},
      {"{\"a\":[1]}", 0,
       "expected tensor 'a' to be an object, but got an array"},
      {"{\"a\":{}}", 0, "tensor 'a' lacks dtype"},
      {"{\"a\":{\"dtype\":\"F32\"}}", 0, "tensor 'a' lacks shape"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0,
       "tensor 'a' lacks data_offsets"},
      {"{\"a\":{\"dtype\":1}}", 0,
       "tensor 'a': expected dtype to be a string, but got a number"},
      {"{\"a\":{\"dtype\":\"F8\"}}", 0,
       "tensor 'a' has unsupported type 'F8', expected F64, F32, F16, BF16, "
       "I64, I32, I16, I8, U8 or BOOL"},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0,
       "tensor 'a' has dtype twice"},
      {"{\"a\":{\"size\":3}}", 0, "tensor 'a' has unknown key 'size'"},
      {"{\"a\":{\"shape\":3}}", 0,
       "tensor 'a': expected shape to be an array of non-negative integers, "
       "but got a number"},
      {"{\"a\":{\"shape\":[-3]}}", 0,
       "tensor 'a': expected shape to be an array of non-negative integers, "
       "but got a negative number"},
      {"{\"a\":{\"shape\":[[3]]}}", 0,
       "tensor 'a': expected shape to be an array of non-negative integers, "
       "but got an array"},
      {"{\"a\":{\"data_offsets\":[0.5]}}", 0,
       "tensor 'a': expected data_offsets to be an array of non-negative "
       "integers, but got a number that is not an integer"},
      {"{\"a\":{\"data_offsets\":[true]}}", 0,
       "tensor 'a': expected data_offsets to be an array of non-negative "
       "integers, but got a boolean"},
      {"{\"a\":{\"data_offsets\":[0]}}", 0,
       "tensor 'a' has data_offsets of expected length 2, but got 1"},
      {"{\"a\":{\"data_offsets\":[0,1,2]}}", 0,
       "tensor 'a' has data_offsets of expected length 2, but got 3"},
      {"{\"a\":{\"shape\":[9223372036854775808]}}", 0,
       "tensor 'a' has a number above 2^63"},
      {"{\"__metadata__\":1}", 0,
       "expected __metadata__ to map names to strings, but got a number"},
      {"{\"__metadata__\":{\"k\":{}}}", 0,
       "expected __metadata__ to map names to strings, but got an object"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0,
       "header has __metadata__ twice"},
      {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0,
       "metadata has key 'k' twice"},
  };
  for (const BadHeader &row : table) {
    SafetensorsHeader header;
    Status status = parseSafetensorsHeader(row.text, row.dataBytes, header);
    EXPECT_EQ(status.code(), DDPHOOK_DATA_LOSS) << row.text;
    EXPECT_EQ(status.message().substr(0, strlen(row.message)), row.message);
  }
}

TEST(SafetensorsHeader, ChecksWhereTensorsLie) {
  struct {
    std::string text;
    uint64_t dataBytes;
    const char *message;
  } table[] = {
      {tensorText("a", "F32", "[2]", "[0,8]") + "," +
           tensorText("a", "F32", "[2]", "[8,16]"),
       16, "header has tensor 'a' twice"},
      {tensorText("a", "F32", "[2]", "[8,0]"), 8,
       "tensor 'a' has data_offsets [8, 0] outside the 8 bytes of data"},
      {tensorText("a", "F32", "[2]", "[0,8]"), 7,
       "tensor 'a' has data_offsets [0, 8] outside the 7 bytes of data"},
      {tensorText("a", "F32", "[2]", "[0,4]"), 4,
       "tensor 'a': expected 8 bytes for its type and shape, but got 4"},
      {tensorText("a", "F64", "[4611686018427387904,2]", "[0,0]"), 0,
       "tensor 'a' has more than 2^63 bytes"},
      {tensorText("a", "F32", "[1]", "[0,4]") + "," +
           tensorText("b", "F32", "[1]", "[2,6]"),
       6,
       "tensor 'b' begins at byte 2 of the data, but the one before it ends "
       "at 4"},
      {tensorText("a", "F32", "[1]", "[0,4]") + "," +
           tensorText("b", "F32", "[1]", "[5,9]"),
       9,
       "tensor 'b' begins at byte 5 of the data, but the one before it ends "
       "at 4"},
      {tensorText("a", "F32", "[1]", "[0,4]"), 5,
       "expected 4 bytes of data, but got 5"},
  };
  for (const auto &row : table) {
    SafetensorsHeader header;
    Status status =
        parseSafetensorsHeader("{" + row.text + "}", row.dataBytes, header);
    EXPECT_EQ(status.code(), DDPHOOK_DATA_LOSS) << row.text;
    EXPECT_EQ(status.message(), row.message);
  }
}

TEST(SafetensorsHeader, KeepsMessagesToOneLine) {
  SafetensorsHeader header;
  std::string name(500, 'x');
  Status status =
      parseSafetensorsHeader("{\"a\\nb" + name + "\":1}", 0, header);
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_LT(status.message().size(), 200u);
}

/// Deep or wide nonsense must cost time and memory in proportion to its size.
TEST(SafetensorsHeader, StopsAtTheFirstNonsense) {
  SafetensorsHeader header;
  std::string deep = "{\"a\":" + std::string(10000000, '[');
  EXPECT_FALSE(parseSafetensorsHeader(deep, 0, header).isOk());
  deep = "{";
  for (int i = 0; i < 1000000; ++i)
    deep += "\"a\":{";
  EXPECT_FALSE(parseSafetensorsHeader(deep, 0, header).isOk());
}

TEST(SafetensorsFile, RoundTrips) {
  TemporaryDirectory directory;
  std::string path = directory.path("out.safetensors");
  uint8_t bytes[3] = {1, 0, 1};
  float floats[6] = {1, -2, 3.5f, 0, 1e-45f, 7};
  double scalar = 2.5;
  std::vector<TensorView> tensors = {
      {"result0", TensorType::Bool, {3}, bytes},
      {"result1", TensorType::F32, {2, 3}, floats},
      {"result2", TensorType::F64, {}, &scalar},
      {"result3", TensorType::F32, {0, 4}, nullptr},
      {"quote\" \n", TensorType::I8, {3}, bytes},
  };
  // Twice: the second replaces the first.
  for (int i = 0; i < 2; ++i) {
    Status status = writeSafetensors(path, tensors);
    ASSERT_TRUE(status.isOk()) << status.message();
  }
  EXPECT_EQ(directory.list(), std::vector<std::string>{"out.safetensors"});

  SafetensorsReader reader;
  Status status = reader.open(path);
  ASSERT_TRUE(status.isOk()) << status.message();
  ASSERT_EQ(reader.header().tensors.size(), tensors.size());
  for (const TensorView &tensor : tensors) {
    const TensorInfo *info = reader.find(tensor.name);
    ASSERT_TRUE(info) << tensor.name;
    EXPECT_EQ(info->type, tensor.type);
    EXPECT_EQ(info->shape, tensor.shape);
    EXPECT_EQ(info->begin % tensorTypeSize(info->type), 0u) << tensor.name;
    std::string got(info->end - info->begin, '\xff');
    ASSERT_TRUE(reader.read(*info, got.data()).isOk());
    EXPECT_TRUE(got.empty() ||
                memcmp(got.data(), tensor.data, got.size()) == 0);
  }
  EXPECT_EQ(reader.find("result9"), nullptr);
}

TEST(SafetensorsFile, NamesWhatCannotBeOpened) {
  TemporaryDirectory directory;
  auto open = [&](const std::string &path) {
    SafetensorsReader reader;
    return reader.open(path).message();
  };
  std::string path = directory.path("f");
  EXPECT_EQ(open(path),
            "cannot open '" + path + "': No such file or directory");
  EXPECT_EQ(open(directory.path("")),
            "cannot read '" + directory.path("") + "': not a regular file");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(open(path), "cannot read '" + path + "': not a regular file");
  ::unlink(path.c_str());

  directory.write("f", "1234567");
  EXPECT_EQ(open(path), "'" + path +
                            "': expected a safetensors file, but got only 7 "
                            "bytes");
  directory.write("f", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
  EXPECT_EQ(open(path), "'" + path +
                            "': expected a header of 18446744073709551615 "
                            "bytes, but got a file of 10");
  directory.write("f", makeFile("{\"a\":1}", ""));
  EXPECT_EQ(open(path), "'" + path +
                            "': expected tensor 'a' to be an object, but got "
                            "a number");
  // A sparse file: large enough, but the header would be longer than allowed.
  std::string huge(8, '\0');
  huge[4] = 1; // 2^32
  directory.write("f", huge);
  ASSERT_EQ(::truncate(path.c_str(), (int64_t(1) << 32) + 8), 0);
  EXPECT_EQ(open(path), "'" + path +
                            "': header of 4294967296 bytes is longer than the "
                            "format allows");
}

TEST(SafetensorsFile, SeesAFileThatShrinks) {
  TemporaryDirectory directory;
  std::string path = directory.path("f");
  directory.write(
      "f",
      makeFile("{" + tensorText("a", "F32", "[2]", "[0,8]") + "}", "12345678"));
  SafetensorsReader reader;
  ASSERT_TRUE(reader.open(path).isOk());
  ASSERT_EQ(::truncate(path.c_str(), 8), 0);
  char data[8];
  EXPECT_EQ(reader.read(*reader.find("a"), data).code(), DDPHOOK_DATA_LOSS);
}

/// Every byte string is either refused or a file whose tensors can be read.
TEST(SafetensorsFile, SurvivesMutations) {
  constexpr unsigned seed = 20240607;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  TemporaryDirectory directory;
  std::string path = directory.path("f");
  std::string good =
      makeFile("{\"__metadata__\":{\"k\":\"v\"}," +
                   tensorText("arg0", "F32", "[2,3]", "[0,24]") + "," +
                   tensorText("arg1", "BOOL", "[]", "[24,25]") + "," +
                   tensorText("arg2", "F16", "[0]", "[25,25]") + "}",
               std::string(25, 'x'));
  const char alphabet[] = "{}[]\",:0123456789-.eF\\\xff ";
  int refused = 0, accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = good;
    for (unsigned i = 0; i <= random() % 3; ++i) {
      size_t at = random() % bytes.size();
      switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = alphabet[random() % (sizeof(alphabet) - 1)];
        break;
      case 2:
        bytes.erase(at, random() % 9);
        break;
      case 3:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 40));
        break;
      case 4:
        bytes.resize(at);
        break;
      }
      if (bytes.empty())
        break;
      // Half of the time the length is made right again, so that what comes
      // after it is reached.
      if (random() % 2 && bytes.size() > 33)
        bytes = makeFile(bytes.substr(8, bytes.size() - 33),
                         bytes.substr(bytes.size() - 25));
    }
    directory.write("f", bytes);
    SafetensorsReader reader;
    if (!reader.open(path).isOk()) {
      ++refused;
      continue;
    }
    ++accepted;
    for (const auto &[name, tensor] : reader.header().tensors) {
      ASSERT_LE(tensor.end - tensor.begin, bytes.size());
      std::string data(tensor.end - tensor.begin, '\0');
      ASSERT_TRUE(reader.read(tensor, data.data()).isOk());
    }
  }
  // Both must happen, or the mutations are no test.
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 50);
}

TEST(SafetensorsFile, LeavesNothingWhenItCannotWrite) {
  TemporaryDirectory directory;
  std::string path = directory.path("none/out");
  float value = 1;
  std::vector<TensorView> tensors = {{"a", TensorType::F32, {}, &value}};
  EXPECT_EQ(writeSafetensors(path, tensors).message(),
            "cannot create '" + path + "': No such file or directory");

  // A device, say, must not be replaced either.
  std::string taken = directory.path("taken");
  ASSERT_EQ(::mkdir(taken.c_str(), 0700), 0);
  EXPECT_EQ(writeSafetensors(taken, tensors).message(),
            "cannot create '" + taken + "': not a regular file");
  EXPECT_EQ(directory.list(), std::vector<std::string>{"taken"});
}

/// A disk that fills up in the middle, played by a limit on file sizes.
TEST(SafetensorsFile, KeepsTheOldFileWhenTheDiskIsFull) {
  TemporaryDirectory directory;
  std::string path = directory.path("out");
  float value = 1;
  ASSERT_TRUE(
      writeSafetensors(path, {{"a", TensorType::F32, {}, &value}}).isOk());
  std::string old = directory.read("out");
  std::vector<float> large(1 << 16);
  struct rlimit unlimited;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  struct rlimit limit = {4096, unlimited.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  Status status =
      writeSafetensors(path, {{"a", TensorType::F32, {1 << 16}, large.data()}});
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  EXPECT_EQ(status.message(), "cannot write '" + path + "': File too large");
  EXPECT_EQ(directory.list(), std::vector<std::string>{"out"});
  EXPECT_EQ(directory.read("out"), old);
}

TEST(SafetensorsFile, RefusesTensorsThatCannotBeWritten) {
  TemporaryDirectory directory;
  std::string path = directory.path("out");
  float value = 1;
  TensorView tensor = {"a", TensorType::F32, {}, &value};
  EXPECT_EQ(writeSafetensors(path, {tensor, tensor}).message(),
            "tensor 'a' is given twice");
  tensor.shape = {int64_t(1) << 62, 4};
  EXPECT_EQ(writeSafetensors(path, {tensor}).message(),
            "tensor 'a' has more than 2^63 bytes");
  EXPECT_EQ(
      writeSafetensors(path, {{"__metadata__", TensorType::F32, {}, &value}})
          .message(),
      "expected a name of a tensor, but got '__metadata__', which is reserved "
      "for metadata");
  // What is written can be read: no longer header than a reader takes.
  TensorView longName = {
      std::string(maxHeaderBytes - 51, 'x'), TensorType::F32, {}, &value};
  EXPECT_EQ(writeSafetensors(path, {longName}).message(),
            "expected tensor names that fit into a header of at most 100000000 "
            "bytes, but got 100000008");
  EXPECT_TRUE(directory.list().empty());
}
