// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The examples of FIPS 180-4 and all test vectors of RFC 4231.

#include "store/hmac.h"

#include <gtest/gtest.h>

#include <set>

using namespace ddphook;

namespace {

std::string toHex(const std::string &bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text.push_back(digits[byte >> 4]);
    text.push_back(digits[byte & 15]);
  }
  return text;
}

} // namespace

TEST(Sha256, ExamplesOfTheStandard) {
  EXPECT_EQ(toHex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb924"
                               "27ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(toHex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223"
                                  "b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      toHex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
      "248d6a61d20638b8e5c026930c3e6039"
      "a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(toHex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67"
            "f1809a48a497200e046d39ccc7112cd0");
}

/// Every length around the boundaries of a block, all hashed into one: the
/// padding is where implementations go wrong.
TEST(Sha256, EveryLengthOfTheLastBlock) {
  std::string all;
  for (size_t size = 0; size <= 130; ++size)
    all += sha256(std::string(size, static_cast<char>('a' + size % 26)));
  EXPECT_EQ(toHex(sha256(all)), "75e66c8915c35c96bd2e5103cc817e62"
                                "af7a0b8f8efd777cbba4bb79e024d4ff");
}

TEST(Hmac, VectorsOfRfc4231) {
  struct Vector {
    std::string key, data, hmac;
  };
  std::string counting;
  for (char i = 1; i <= 25; ++i)
    counting.push_back(i);
  const Vector vectors[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {counting, std::string(50, '\xcd'),
       "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {std::string(131, '\xaa'),
       "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than "
       "block-size data. The key needs to be hashed before being used by the "
       "HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const Vector &vector : vectors)
    EXPECT_EQ(toHex(hmacSha256(vector.key, vector.data)), vector.hmac);
  // The fifth vector gives a truncated hash.
  EXPECT_EQ(toHex(hmacSha256(std::string(20, '\x0c'), "Test With Truncation"))
                .substr(0, 32),
            "a3b6167473100ee06e0c796c2955552b");
}

TEST(Secrets, AreCompared) {
  EXPECT_TRUE(areEqualSecrets("", ""));
  EXPECT_TRUE(areEqualSecrets("secret", "secret"));
  EXPECT_FALSE(areEqualSecrets("secret", "secreT"));
  EXPECT_FALSE(areEqualSecrets("Secret", "secret"));
  EXPECT_FALSE(areEqualSecrets("secret", "secrets"));
  EXPECT_FALSE(areEqualSecrets(std::string("a\0b", 3), std::string("a\0c", 3)));
}

TEST(Secrets, AreDrawnAnew) {
  std::set<std::string> drawn;
  for (int i = 0; i < 100; ++i) {
    std::string secret;
    ASSERT_TRUE(drawSecret(32, &secret).isOk());
    ASSERT_EQ(secret.size(), 32u);
    drawn.insert(secret);
  }
  EXPECT_EQ(drawn.size(), 100u);
}
