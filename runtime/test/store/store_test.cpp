// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as threads over both stores; then everything that can happen to a
// connection.

#include "ddphook/runtime/compiled.h"
#include "job/store_collectives.h"
#include "store/store_connection.h"
#include "store/store_protocol.h"
#include "store/store_test_util.h"

#include <atomic>
#include <cerrno>
#include <future>
#include <random>
#include <sys/socket.h>
#include <thread>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// What both stores must do.
void checkStore(Store &a, Store &b) {
  std::string value;
  auto begin = Deadline::Clock::now();
  Status status = a.get("absent", Deadline::after(0.05), &value);
  EXPECT_EQ(show(status), "DEADLINE_EXCEEDED: no rank set 'absent' in time");
  EXPECT_GE(secondsSince(begin), 0.05);

  ASSERT_TRUE(a.set("key", std::string("a\0b", 3)).isOk());
  ASSERT_TRUE(b.get("key", Deadline::after(5), &value).isOk());
  EXPECT_EQ(value, std::string("a\0b", 3));
  // An expired deadline still looks, once.
  value.clear();
  ASSERT_TRUE(a.get("key", Deadline::after(0), &value).isOk());
  EXPECT_EQ(value.size(), 3u);
  EXPECT_EQ(b.get("absent", Deadline::after(0), &value).code(),
            DDPHOOK_DEADLINE_EXCEEDED);
  bool isThere = false;
  ASSERT_TRUE(b.exists("key", &isThere).isOk());
  EXPECT_TRUE(isThere);
  ASSERT_TRUE(b.exists("absent", &isThere).isOk());
  EXPECT_FALSE(isThere);
  ASSERT_TRUE(a.erase("key").isOk());
  ASSERT_TRUE(a.erase("key").isOk());
  EXPECT_EQ(a.get("key", Deadline::after(0), &value).code(),
            DDPHOOK_DEADLINE_EXCEEDED);

  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(a.set("later", "").isOk());
  });
  value = "poison";
  EXPECT_EQ(show(b.get("later", Deadline::after(5), &value)), "OK");
  EXPECT_EQ(value, "");
  later.join();

  int64_t count = -1;
  ASSERT_TRUE(a.add("count", 5, &count).isOk());
  EXPECT_EQ(count, 5);
  ASSERT_TRUE(b.add("count", -7, &count).isOk());
  EXPECT_EQ(count, -2);
  ASSERT_TRUE(b.get("count", Deadline::after(1), &value).isOk());
  EXPECT_EQ(value, "-2");
  ASSERT_TRUE(a.set("text", "four").isOk());
  EXPECT_EQ(show(a.add("text", 1, &count)),
            "INVALID_ARGUMENT: expected a counter in 'text', but got other "
            "bytes");
}

/// Every rank's exchanges, on threads.
void checkExchange(const std::vector<Store *> &stores) {
  int size = static_cast<int>(stores.size());
  std::vector<std::thread> threads;
  std::atomic<int> arrived{0};
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      StoreCollectives exchange(*stores[rank], "x/", rank, size);
      for (int round = 0; round < 20; ++round) {
        std::string mine(static_cast<size_t>(rank * 3), char('a' + round));
        std::vector<std::string> all;
        Status status =
            exchange.allGather("round", mine, Deadline::after(20), &all);
        ASSERT_EQ(show(status), "OK");
        ASSERT_EQ(all.size(), stores.size());
        for (int other = 0; other < size; ++other)
          ASSERT_EQ(all[other], std::string(static_cast<size_t>(other * 3),
                                            char('a' + round)));
        arrived.fetch_add(1);
        ASSERT_EQ(show(exchange.barrier("barrier", Deadline::after(20))), "OK");
        ASSERT_GE(arrived.load(), (round + 1) * size);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace

TEST(MemoryStore, Works) {
  MemoryStore store;
  checkStore(store, store);
}

TEST(MemoryStore, FailureEndsWaits) {
  MemoryStore store;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    store.fail(error(DDPHOOK_PEER_LOST, "rank 1 was lost"));
  });
  std::string value;
  EXPECT_EQ(show(store.get("absent", Deadline::after(20), &value)),
            "PEER_LOST: rank 1 was lost");
  later.join();
}

TEST(TcpStore, Works) {
  auto server = startServer(2);
  auto a = connect(*server, 0, 2), b = connect(*server, 1, 2);
  checkStore(*a, *b);
}

TEST(TcpStore, LargeValues) {
  auto server = startServer(2);
  auto a = connect(*server, 0, 2), b = connect(*server, 1, 2);
  std::string large(20 << 20, 'x'), value;
  large[12345678] = 'y';
  ASSERT_TRUE(a->set("large", large).isOk());
  ASSERT_EQ(show(b->get("large", Deadline::after(20), &value)), "OK");
  EXPECT_TRUE(value == large);
  EXPECT_EQ(a->set("x", std::string((64 << 20) + 1, ' ')).code(),
            DDPHOOK_INVALID_ARGUMENT);
  EXPECT_EQ(a->set(std::string(5000, 'k'), "").code(),
            DDPHOOK_INVALID_ARGUMENT);
}

TEST(TcpStore, ManyThreads) {
  auto server = startServer(1);
  auto store = connect(*server, 0, 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        int64_t value = 0;
        ASSERT_TRUE(store->add("sum", 1, &value).isOk());
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  int64_t sum = 0;
  ASSERT_TRUE(store->add("sum", 0, &sum).isOk());
  EXPECT_EQ(sum, 1600);
}

TEST(StoreCollectives, MemoryStore) {
  for (int size : {1, 2, 5}) {
    MemoryStore store;
    checkExchange(std::vector<Store *>(size, &store));
  }
}

TEST(StoreCollectives, TcpStore) {
  for (int size : {2, 5}) {
    auto server = startServer(size);
    std::vector<std::unique_ptr<TcpStore>> clients;
    std::vector<Store *> stores;
    for (int rank = 0; rank < size; ++rank) {
      clients.push_back(connect(*server, rank, size));
      stores.push_back(clients.back().get());
    }
    checkExchange(stores);
  }
}

TEST(StoreCollectives, NamesAbsentRanks) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank : {0, 2})
    threads.emplace_back([&, rank] {
      StoreCollectives collectives(store, "x/", rank, 4);
      std::string answer =
          show(collectives.barrier("meeting", Deadline::after(0.2)));
      expectContains(answer, "DEADLINE_EXCEEDED: meeting: 2 of 4 ranks did not "
                             "arrive within ");
      expectContains(answer, " s: rank 1, 3");
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(TcpStore, NamesRanksThatDidNotJoin) {
  auto server = startServer(4);
  auto a = connect(*server, 0, 4), b = connect(*server, 2, 4);
  for (TcpStore *store : {a.get(), b.get()})
    expectContains(show(store->waitForAll(Deadline::after(0.1))),
                   "DEADLINE_EXCEEDED: 2 of 4 ranks did not join");
  auto c = connect(*server, 1, 4), d = connect(*server, 3, 4);
  EXPECT_EQ(show(a->waitForAll(Deadline::after(5))), "OK");
}

TEST(TcpStore, ALostRankEndsAllWaits) {
  auto server = startServer(3);
  auto a = connect(*server, 0, 3), b = connect(*server, 1, 3);
  auto lost = connect(*server, 2, 3);
  std::atomic<int> calls{0};
  b->onFailure([&](const Status &status) {
    EXPECT_EQ(status.code(), DDPHOOK_PEER_LOST);
    ++calls;
  });
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lost.reset();
  });
  auto begin = Deadline::Clock::now();
  std::string value;
  const char *expected = "PEER_LOST: rank 2 was lost: its connection closed";
  EXPECT_EQ(show(a->get("absent", Deadline::after(20), &value)), expected);
  EXPECT_LT(secondsSince(begin), 20);
  killer.join();
  EXPECT_EQ(show(b->failureWithin(5)), expected);
  EXPECT_EQ(show(b->set("key", "")), expected);
  // It is known before it has been told.
  for (auto end = Deadline::after(20); calls.load() == 0 && !end.expired();)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(calls.load(), 1);
  // Who asks later is told at once.
  a->onFailure([&](const Status &) { ++calls; });
  EXPECT_EQ(calls.load(), 2);
}

TEST(TcpStore, AFailingRankTellsTheOthers) {
  auto server = startServer(2);
  auto a = connect(*server, 0, 2), b = connect(*server, 1, 2);
  b->reportFailure(error(DDPHOOK_RESOURCE_EXHAUSTED, "out of memory"));
  std::string value;
  EXPECT_EQ(show(a->get("absent", Deadline::after(20), &value)),
            "ABORTED: rank 1 failed: out of memory (RESOURCE_EXHAUSTED)");
  // It keeps its own.
  EXPECT_EQ(show(b->failureWithin(0.05)), "OK");
}

namespace {

/// Keeps the receiving thread of a rank's store busy, so that a send may find
/// the connection broken before what came on it has been read.
class BusyReceiver {
public:
  BusyReceiver(TcpStore &other, TcpStore &store) {
    store.onInquiry([this] {
      entered.set_value();
      end.get_future().wait();
      return std::string();
    });
    TcpStore::Answers answers;
    EXPECT_EQ(show(other.inquire(Deadline::after(0.1), &answers)), "OK");
    entered.get_future().wait();
  }
  void release() { end.set_value(); }

private:
  std::promise<void> entered, end;
};

Status setUntilItFails(TcpStore &store) {
  Status status;
  while (status.isOk())
    status = store.set("key", "value");
  return status;
}

} // namespace

TEST(TcpStore, ARankThatCannotSendReadsWhatCameBefore) {
  auto server = startServer(2);
  auto a = connect(*server, 0, 2), b = connect(*server, 1, 2);
  BusyReceiver receiver(*a, *b);
  a->reportFailure(error(DDPHOOK_IO_ERROR, "disk full"));
  while (server->failure().isOk())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server.reset();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    receiver.release();
  });
  EXPECT_EQ(show(setUntilItFails(*b)),
            "ABORTED: rank 0 failed: disk full (IO_ERROR)");
  later.join();
  b.reset();
}

TEST(TcpStore, ARankThatCannotSendNamesRankZero) {
  auto server = startServer(2);
  auto a = connect(*server, 0, 2), b = connect(*server, 1, 2);
  BusyReceiver receiver(*a, *b);
  server.reset();
  EXPECT_EQ(show(setUntilItFails(*b)),
            "PEER_LOST: rank 0 was lost: cannot send: Broken pipe");
  receiver.release();
  b.reset();
}

TEST(TcpStore, RanksTellWhereTheyAre) {
  auto server = startServer(3);
  auto a = connect(*server, 0, 3), b = connect(*server, 1, 3);
  // This one never answers.
  auto silent = connect(*server, 2, 3);
  a->onInquiry([] { return std::string("here"); });
  b->onInquiry([] { return std::string("there, \0 bytes", 14); });
  TcpStore::Answers answers;
  EXPECT_EQ(show(b->inquire(Deadline::after(1), &answers)), "OK");
  ASSERT_EQ(answers.ofRanks.size(), 3u);
  EXPECT_EQ(answers.ofRanks[0], "here");
  EXPECT_EQ(answers.ofRanks[1], std::string("there, \0 bytes", 14));
  EXPECT_EQ(answers.ofRanks[2], std::nullopt);
  EXPECT_FALSE(answers.isServerSilent);
  a->reportFailure(error(DDPHOOK_IO_ERROR, "faster"));
  EXPECT_FALSE(b->failureWithin(10).isOk());
  EXPECT_EQ(show(b->inquire(Deadline::after(1), &answers)),
            "ABORTED: rank 0 failed: faster (IO_ERROR)");
}

TEST(TcpStore, ARankThatLeftIsNotLost) {
  auto server = startServer(2);
  auto a = connect(*server, 0, 2), b = connect(*server, 1, 2);
  ASSERT_TRUE(b->set("last", "word").isOk());
  b->leave();
  b.reset();
  std::string value;
  EXPECT_EQ(show(a->get("absent", Deadline::after(20), &value)),
            "PEER_LOST: rank 1 has left the job");
  EXPECT_EQ(show(a->get("last", Deadline::after(20), &value)), "OK");
  EXPECT_EQ(value, "word");
  EXPECT_EQ(show(a->failureWithin(0.05)), "OK");
}

TEST(TcpStore, TheServersEndIsTheLossOfRankZero) {
  auto server = startServer(1);
  auto store = connect(*server, 0, 1);
  server.reset();
  std::string value;
  expectContains(show(store->get("absent", Deadline::after(20), &value)),
                 "PEER_LOST: rank 0 was lost");
}

TEST(StoreServer, FinishWaitsForTheLastRank) {
  auto server = startServer(2);
  auto a = connect(*server, 0, 2), b = connect(*server, 1, 2);
  a->leave();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    b->leave();
  });
  auto begin = Deadline::Clock::now();
  server->finish(Deadline::after(20));
  EXPECT_GE(secondsSince(begin), 0.09);
  EXPECT_LT(secondsSince(begin), 20);
  later.join();

  server = startServer(2);
  a = connect(*server, 0, 2);
  begin = Deadline::Clock::now();
  server->finish(Deadline::after(0.1));
  EXPECT_GE(secondsSince(begin), 0.1);
}

TEST(StoreServer, SurvivesGarbage) {
  const unsigned seed = 20240607;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  auto server = startServer(1);
  auto store = connect(*server, 0, 1);
  Deadline deadline = Deadline::after(20);
  for (int round = 0; round < 200; ++round) {
    FileDescriptor socket = connectRaw(*server);
    std::string bytes(random() % 300, '\0');
    for (char &byte : bytes)
      byte = static_cast<char>(random());
    // Sometimes with a good beginning.
    if (round % 3 == 1)
      bytes.replace(0, std::min<size_t>(bytes.size(), 8), "ddphook\2");
    sendAll(socket.get(), bytes.data(), bytes.size(), deadline).ignore();
  }
  // A connection that never speaks stays open meanwhile.
  FileDescriptor silent = connectRaw(*server);
  ASSERT_EQ(show(store->set("key", "value")), "OK");
  std::string value;
  ASSERT_EQ(show(store->get("key", deadline, &value)), "OK");
  EXPECT_EQ(show(store->failureWithin(0)), "OK");
}

TEST(StoreServer, SurvivesGarbageFromARank) {
  const unsigned seed = 1234567;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    auto server = startServer(2);
    auto store = connect(*server, 0, 2);
    FileDescriptor socket = connectRaw(*server);
    wire::Hello hello;
    hello.abiVersion = DDPHOOK_ABI_VERSION;
    hello.worldSize = 2;
    hello.rank = 1;
    hello.runId = wire::hashRunId("");
    ASSERT_EQ(show(proveOn(socket.get(), wire::storeCredentials(""),
                           hello.encode(), Deadline::after(20))),
              "OK");
    std::string bytes;
    // Frames with one byte changed, then noise of an impossible kind.
    for (int i = 0; i < 5; ++i) {
      std::string frame = wire::encodeFrame(
          static_cast<wire::Kind>(1 + random() % 6), random(), "key", "5");
      frame[random() % frame.size()] = static_cast<char>(random());
      bytes += frame;
    }
    bytes += std::string(64, '\xff');
    Deadline deadline = Deadline::after(20);
    sendAll(socket.get(), bytes.data(), bytes.size(), deadline).ignore();
    ::shutdown(socket.get(), SHUT_WR);
    // The rank counts as lost, or as failed when it seemed to say so.
    Status status = store->failureWithin(10);
    bool isNoticed =
        status.code() == DDPHOOK_PEER_LOST || status.code() == DDPHOOK_ABORTED;
    EXPECT_TRUE(isNoticed) << "round " << round << ": " << show(status);
  }
}

TEST(Protocol, RoundTrips) {
  wire::Hello hello;
  hello.abiVersion = 0x01020304;
  hello.worldSize = 0xfffefdfc;
  hello.rank = 77;
  hello.runId = 0x1122334455667788;
  std::string bytes = hello.encode();
  ASSERT_EQ(bytes.size(), wire::Hello::size);
  auto decoded = wire::Hello::decode(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->abiVersion, hello.abiVersion);
  EXPECT_EQ(decoded->worldSize, hello.worldSize);
  EXPECT_EQ(decoded->rank, hello.rank);
  EXPECT_EQ(decoded->runId, hello.runId);
  EXPECT_FALSE(wire::Hello::decode(bytes + "x"));
  EXPECT_FALSE(wire::Hello::decode(""));

  std::string frame =
      wire::encodeFrame(wire::Kind::Set, 0x81828384, "key", "value");
  auto header = wire::Frame::decodeHeader(frame);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->kind, wire::Kind::Set);
  EXPECT_EQ(header->id, 0x81828384u);
  EXPECT_EQ(frame.substr(wire::Frame::headerSize), "keyvalue");
  frame[0] = 20;
  EXPECT_FALSE(wire::Frame::decodeHeader(frame));
  EXPECT_FALSE(wire::Frame::decodeHeader("short"));

  Status status = error(DDPHOOK_PEER_LOST, "gone");
  EXPECT_EQ(show(wire::decodeStatus(wire::encodeStatus(status))),
            "PEER_LOST: gone");
  for (const char *bad : {"", "abc", "\xff\xff\xff\xff"})
    EXPECT_EQ(wire::decodeStatus(bad).code(), DDPHOOK_INTERNAL);
}

TEST(StoreConnection, TellsTheEndFromAnEmptySocket) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  StoreConnection connection;
  connection.socket = FileDescriptor(ends[0]);
  FileDescriptor other(ends[1]);
  EXPECT_TRUE(connection.receive());
  ASSERT_EQ(::send(ends[1], "last", 4, 0), 4);
  EXPECT_TRUE(connection.receive());
  EXPECT_EQ(connection.input, "last");
  other.reset();
  errno = EAGAIN;
  EXPECT_FALSE(connection.receive());
  EXPECT_EQ(errno, 0);
}
