// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The mutual proof by its messages, and the door where strangers wait: wrong
// keys, replays, changed bytes, floods and connections that say nothing.

#include "base/status_test_util.h"
#include "store/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

Credentials credentialsOf(const std::string &secret,
                          const std::string &purpose = "test") {
  return {jobKey(secret), !secret.empty(), purpose};
}

constexpr const char *secret = "a secret of this job";

/// An admission with its loop, on a thread. Guests stay connected.
class Door {
public:
  explicit Door(const Credentials &credentials) {
    std::vector<FileDescriptor> listening(1);
    EXPECT_EQ(show(listenOn("127.0.0.1", 0, &listening[0], &port)), "OK");
    EXPECT_EQ(show(Interrupt::create(&end)), "OK");
    thread = std::thread([this, credentials,
                          listening = std::move(listening)]() mutable {
      Admission admission({credentials, introduction().size(), /*expected=*/2},
                          std::move(listening));
      for (;;) {
        std::vector<pollfd> entries = {{end.fd(), POLLIN, 0}};
        admission.watch(&entries);
        ::poll(entries.data(), entries.size(), admission.patienceMs());
        if (entries[0].revents)
          return;
        EXPECT_EQ(show(admission.handle(entries.data() + 1, &guests)), "OK");
        count = guests.size();
        refusals = admission.refusals();
      }
    });
  }
  ~Door() {
    end.raise();
    thread.join();
  }

  static std::string introduction() { return "I am rank 1"; }

  FileDescriptor connect() {
    FileDescriptor socket;
    EXPECT_EQ(
        show(connectOnce("127.0.0.1", port, Deadline::after(20), &socket)),
        "OK");
    return socket;
  }

  /// Connects and proves itself; the socket is of no use afterwards.
  std::string enter(const Credentials &credentials) {
    FileDescriptor socket = connect();
    return show(proveOn(socket.get(), credentials, introduction(),
                        Deadline::after(20)));
  }

  int port = 0;
  std::atomic<size_t> count{0}, refusals{0};

private:
  Interrupt end;
  std::vector<Admission::Guest> guests;
  std::thread thread;
};

/// A claim as the connecting end makes it, taken from the wire.
std::string recordClaim(const Credentials &credentials,
                        const AcceptingHandshake &handshake) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  FileDescriptor near(ends[0]), far(ends[1]);
  std::string greeting = handshake.greeting();
  std::string claim(AcceptingHandshake::claimSize(Door::introduction().size()),
                    '\0');
  Deadline deadline = Deadline::after(20);
  std::thread other([&] {
    // The verdict never comes.
    EXPECT_EQ(
        proveOn(far.get(), credentials, Door::introduction(), deadline).code(),
        DDPHOOK_DATA_LOSS);
  });
  EXPECT_EQ(
      show(sendAll(near.get(), greeting.data(), greeting.size(), deadline)),
      "OK");
  EXPECT_EQ(show(receiveAll(near.get(), claim.data(), claim.size(), deadline)),
            "OK");
  near.reset();
  other.join();
  return claim;
}

AcceptingHandshake beginHandshake(const Credentials &credentials) {
  AcceptingHandshake handshake;
  EXPECT_EQ(show(AcceptingHandshake::begin(credentials, &handshake)), "OK");
  return handshake;
}

bool isAccepted(const AcceptingHandshake &handshake, std::string_view claim) {
  std::string introduction, verdict;
  bool isGood = handshake.check(claim, &introduction, &verdict);
  EXPECT_EQ(verdict.size(), AcceptingHandshake::verdictSize);
  EXPECT_EQ(introduction, isGood ? Door::introduction() : "");
  // Nothing that was made with the key goes to somebody without it.
  if (!isGood)
    EXPECT_EQ(verdict, std::string(verdict.size(), '\0'));
  return isGood;
}

} // namespace

TEST(Handshake, LetsInWhoHasTheKey) {
  for (const char *text : {secret, ""}) {
    Door door(credentialsOf(text));
    EXPECT_EQ(door.enter(credentialsOf(text)), "OK");
    EXPECT_EQ(door.enter(credentialsOf(text)), "OK");
    EXPECT_EQ(door.refusals.load(), 0u);
  }
}

TEST(Handshake, NamesWhatDoesNotFit) {
  Door door(credentialsOf(secret)), open(credentialsOf(""));
  EXPECT_EQ(door.enter(credentialsOf("the secret of others")),
            "BAD_ENVIRONMENT: it was started with another DDPHOOK_JOB_SECRET");
  EXPECT_EQ(door.enter(credentialsOf("")),
            "BAD_ENVIRONMENT: it was started with a DDPHOOK_JOB_SECRET, but "
            "this rank without one");
  EXPECT_EQ(open.enter(credentialsOf(secret)),
            "BAD_ENVIRONMENT: it was started without a DDPHOOK_JOB_SECRET, but "
            "this rank with one");
  EXPECT_EQ(door.enter(credentialsOf(secret, "another purpose")),
            "BAD_ENVIRONMENT: it was started with another DDPHOOK_JOB_SECRET");
  EXPECT_EQ(door.count.load() + open.count.load(), 0u);
}

TEST(Handshake, RefusesAClaimOfAnotherConnection) {
  Credentials credentials = credentialsOf(secret);
  AcceptingHandshake first = beginHandshake(credentials);
  AcceptingHandshake second = beginHandshake(credentials);
  std::string claim = recordClaim(credentials, first);
  EXPECT_TRUE(isAccepted(first, claim));
  EXPECT_FALSE(isAccepted(second, claim));
}

TEST(Handshake, RefusesAClaimForAnotherPurpose) {
  AcceptingHandshake store = beginHandshake(credentialsOf(secret, "store"));
  std::string claim = recordClaim(credentialsOf(secret, "group"), store);
  EXPECT_FALSE(isAccepted(store, claim));
}

TEST(Handshake, RefusesEveryChangedByte) {
  Credentials credentials = credentialsOf(secret);
  AcceptingHandshake handshake = beginHandshake(credentials);
  const std::string claim = recordClaim(credentials, handshake);
  ASSERT_TRUE(isAccepted(handshake, claim));
  for (size_t i = 0; i < claim.size(); ++i) {
    std::string changed = claim;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(isAccepted(handshake, changed)) << "byte " << i;
  }
  for (size_t size = 0; size < claim.size(); ++size)
    EXPECT_FALSE(isAccepted(handshake, claim.substr(0, size)));
}

/// Somebody without the key pretends to be rank 0: the rank does not go on.
TEST(Handshake, DemandsAProofOfTheAcceptingEnd) {
  for (char verdict : {'\1', '\0', 'x'}) {
    FileDescriptor listening;
    int port = 0;
    ASSERT_EQ(show(listenOn("127.0.0.1", 0, &listening, &port)), "OK");
    FileDescriptor socket;
    ASSERT_EQ(
        show(connectOnce("127.0.0.1", port, Deadline::after(20), &socket)),
        "OK");
    FileDescriptor impostor(::accept(listening.get(), nullptr, nullptr));
    ASSERT_TRUE(impostor.isValid());
    std::string answer = beginHandshake(credentialsOf(secret)).greeting() +
                         verdict +
                         std::string(AcceptingHandshake::verdictSize - 1, '\7');
    ASSERT_EQ(show(sendAll(impostor.get(), answer.data(), answer.size(),
                           Deadline::after(20))),
              "OK");
    EXPECT_EQ(show(proveOn(socket.get(), credentialsOf(secret), "rank 1",
                           Deadline::after(20))),
              "BAD_ENVIRONMENT: it was started with another "
              "DDPHOOK_JOB_SECRET");
  }
}

TEST(Admission, TurnsGarbageAwayAtOnce) {
  Door door(credentialsOf(secret));
  std::string garbage(4096, 'x');
  for (int i = 0; i < 20; ++i) {
    FileDescriptor socket = door.connect();
    sendAll(socket.get(), garbage.data(), garbage.size(), Deadline::after(20))
        .ignore();
    // What comes back is the greeting and perhaps a refusal, then the end.
    char answer[4096];
    Status status =
        receiveAll(socket.get(), answer, sizeof(answer), Deadline::after(20));
    EXPECT_NE(status.code(), DDPHOOK_OK);
    EXPECT_NE(status.code(), DDPHOOK_DEADLINE_EXCEEDED);
  }
  EXPECT_EQ(door.enter(credentialsOf(secret)), "OK");
  EXPECT_EQ(door.refusals.load(), 20u);
}

/// More silent connections than there are places, and more coming all the time.
TEST(Admission, SilentStrangersDoNotKeepRanksOut) {
  Door door(credentialsOf(secret));
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 400; ++i)
    silent.push_back(door.connect());
  EXPECT_EQ(door.enter(credentialsOf(secret)), "OK");
  // The first were sent away for those that came later.
  char byte;
  Status status = Status::ok();
  while (status.isOk())
    status = receiveAll(silent[0].get(), &byte, 1, Deadline::after(20));
  EXPECT_EQ(show(status), "DATA_LOSS: the connection was closed");
}

TEST(Admission, AFloodDoesNotKeepRanksOut) {
  Door door(credentialsOf(secret));
  std::atomic<bool> isOver{false};
  std::thread flood([&] {
    std::deque<FileDescriptor> open;
    while (!isOver) {
      open.push_back(door.connect());
      ::send(open.back().get(), "noise", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (open.size() > 300)
        open.pop_front();
    }
  });
  for (int entered = 0, tries = 0; entered < 20; ++tries) {
    ASSERT_LT(tries, 200);
    // Who is pushed out comes again, as ranks do.
    entered += door.enter(credentialsOf(secret)) == "OK";
  }
  isOver = true;
  flood.join();
  // The last one knows that it is in before the loop has counted it.
  for (Deadline end = Deadline::after(20); door.count < 20 && !end.expired();)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  EXPECT_EQ(door.count.load(), 20u);
}
