// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where rank 0 listens and others look for it, who is let in, and what becomes
// of ranks of the job's last life and its next one.

#include "ddphook/runtime/compiled.h"
#include "store/roster.h"
#include "store/store_protocol.h"
#include "store/store_test_util.h"

#include <atomic>
#include <filesystem>
#include <iterator>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

TEST(Socket, LoopbackAddresses) {
  for (const char *address : {"127.0.0.1", "127.9.8.7", "::1", "localhost"})
    EXPECT_TRUE(isLoopbackAddress(address)) << address;
  // A machine's own name may resolve to a loopback address, but only there.
  for (const char *address :
       {"", "10.0.0.1", "128.0.0.1", "fe80::1", "node0", "127.0.0.1.example"})
    EXPECT_FALSE(isLoopbackAddress(address)) << address;
}

/// Somebody else has one of the addresses of a name: rank 0 takes none of them.
TEST(Socket, ListensOnAllAddressesOfANameOrOnNone) {
  std::vector<std::string> addresses;
  ASSERT_EQ(show(findAddresses("localhost", &addresses)), "OK");
  for (const std::string &taken : addresses) {
    FileDescriptor foreign, free;
    int port = 0;
    if (!listenOn(taken, 0, &foreign, &port).isOk())
      continue; // An address that this machine lacks.
    std::vector<FileDescriptor> sockets;
    int bound = 0;
    expectContains(show(listenOnAll("localhost", port, Deadline::after(0),
                                    &sockets, &bound)),
                   "IO_ERROR: " + endpointName(taken, port) +
                       ": cannot listen: Address already in use");
    EXPECT_TRUE(sockets.empty());
    for (const std::string &other : addresses)
      if (other != taken)
        EXPECT_EQ(show(listenOn(other, port, &free, &bound)), "OK") << other;
    foreign.reset();
    free.reset();
    ASSERT_EQ(show(listenOnAll("localhost", port, Deadline::after(20), &sockets,
                               &bound)),
              "OK");
    EXPECT_EQ(bound, port);
    for (const std::string &address : addresses) {
      FileDescriptor caller;
      if (listenOn(address, 0, &free, &bound).isOk())
        EXPECT_EQ(
            show(connectOnce(address, port, Deadline::after(20), &caller)),
            "OK")
            << address;
    }
  }
}

TEST(Socket, ListensOnAllInterfaces) {
  std::vector<FileDescriptor> sockets;
  int port = 0;
  ASSERT_EQ(show(listenOnAll("", 0, Deadline::after(0), &sockets, &port)),
            "OK");
  std::vector<std::string> addresses = outwardAddresses();
  addresses.push_back(loopbackAddress());
  for (const std::string &address : addresses) {
    FileDescriptor caller;
    EXPECT_EQ(show(connectOnce(address, port, Deadline::after(20), &caller)),
              "OK")
        << address;
    EXPECT_EQ(peerNameOf(caller.get()), endpointName(address, port));
  }
}

/// One address swallows what is sent to it, as that of a machine that is off
/// does, at another one there is a program that says nothing: rank 0 is found
/// at the third.
TEST(TcpStore, TriesAddressesInTurn) {
  auto server = startServer(1);
  FileDescriptor silent, full;
  int port = 0;
  ASSERT_EQ(show(listenOn("127.0.0.3", server->port(), &silent, &port)), "OK");
  ASSERT_EQ(show(listenOn("127.0.0.2", server->port(), &full, &port)), "OK");
  // The kernel drops what comes to a queue that is full.
  ASSERT_EQ(::listen(full.get(), 0), 0);
  std::vector<FileDescriptor> callers(3);
  for (FileDescriptor &caller : callers)
    connectOnce("127.0.0.2", port, Deadline::after(0.05), &caller).ignore();
  TcpStore::Options options;
  options.hosts = {"127.0.0.2", "127.0.0.3"};
  options.port = port;
  options.rank = 3;
  options.timeoutSeconds = 1;
  std::unique_ptr<TcpStore> store;
  const std::string where =
      "rank 3 could not join rank 0 at port " + std::to_string(port) + " of ";
  EXPECT_EQ(show(TcpStore::connect(options, Deadline::after(0.3), &store)),
            "DEADLINE_EXCEEDED: " + where +
                "127.0.0.2, 127.0.0.3 within 1 s: 127.0.0.2: cannot connect: "
                "no answer in time; 127.0.0.3: it did not answer as a ddphook "
                "store: no answer in time");
  options.rank = 0;
  options.hosts = {"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1"};
  options.timeoutSeconds = 60;
  EXPECT_EQ(show(TcpStore::connect(options, Deadline::after(60), &store)),
            "OK");
}

/// A service that is no store: it accepts, and answers nonsense or not at all.
TEST(TcpStore, ConnectsOnlyToAStore) {
  for (bool answers : {false, true}) {
    FileDescriptor listening;
    int port = 0;
    ASSERT_TRUE(listenOn("127.0.0.1", 0, &listening, &port).isOk());
    std::atomic<bool> isOver{false};
    std::thread service([&] {
      std::vector<FileDescriptor> accepted;
      while (!isOver) {
        FileDescriptor socket(::accept(listening.get(), nullptr, nullptr));
        if (!socket.isValid()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          continue;
        }
        std::string text = "HTTP/1.1 400 Bad Request\r\n\r\n";
        if (answers)
          sendAll(socket.get(), text.data(), text.size(), Deadline::after(1))
              .ignore();
        accepted.push_back(std::move(socket));
      }
    });
    TcpStore::Options options;
    options.port = port;
    options.timeoutSeconds = 1;
    std::unique_ptr<TcpStore> store;
    auto begin = Deadline::Clock::now();
    Status status = TcpStore::connect(options, Deadline::after(1), &store);
    EXPECT_LT(secondsSince(begin), 20);
    expectContains(show(status), "DEADLINE_EXCEEDED: rank 0 could not join");
    expectContains(show(status), answers
                                     ? "it does not speak ddphook's protocol"
                                     : "it did not answer as a ddphook store");
    isOver = true;
    service.join();
  }
}

TEST(StoreServer, NamesTheVariableWhenThePortIsTaken) {
  auto server = startServer(1);
  StoreServer::Options options;
  options.port = server->port();
  std::unique_ptr<StoreServer> second;
  Status status = StoreServer::start(options, &second);
  EXPECT_EQ(show(status),
            "IO_ERROR: the store of rank 0: 127.0.0.1:" +
                std::to_string(options.port) +
                ": cannot listen: Address already in use; another program or "
                "job has this port (DDPHOOK_PORT chooses another one)");
  // Another port would not help.
  options.address = "localhost.invalid";
  options.port = 0;
  EXPECT_EQ(show(StoreServer::start(options, &second)), "OK");
}

TEST(StoreServer, WaitsForItsPort) {
  auto server = startServer(1);
  StoreServer::Options options;
  options.port = server->port();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    server.reset();
  });
  std::unique_ptr<StoreServer> second;
  EXPECT_EQ(show(StoreServer::start(options, &second, Deadline::after(60))),
            "OK");
  later.join();
}

TEST(StoreServer, RejectsWhoDoesNotBelong) {
  auto server = startServer(3, "job");
  std::unique_ptr<TcpStore> store, one, again;
  auto begin = Deadline::Clock::now();
  expectContains(show(tryConnect(*server, 1, 3, &store, "other job", 0.3)),
                 "belongs to another job (its run id is 'job')");
  EXPECT_GE(secondsSince(begin), 0.05); // That may be the job before.
  ASSERT_EQ(show(tryConnect(*server, 0, 3, &store, "job")), "OK");
  ASSERT_EQ(show(tryConnect(*server, 1, 3, &one, "job")), "OK");
  // A second rank 0 cannot be of this job, nor harm it.
  expectContains(show(tryConnect(*server, 0, 3, &again, "job", 0.3)),
                 "rank 0 joined twice");
  ASSERT_EQ(show(store->failureWithin(0.05)), "OK");
  // Another one may be of the job's last life, and try for a moment.
  expectContains(show(tryConnect(*server, 1, 3, &again, "job", 0.2)),
                 "rank 1 joined twice");
  ASSERT_EQ(show(store->failureWithin(0.05)), "OK");
  // If it insists, the job cannot become complete: everybody hears of it.
  expectContains(show(tryConnect(*server, 1, 3, &again, "job", 60)),
                 "BAD_ENVIRONMENT: rank 1 joined twice");
  expectContains(show(store->failureWithin(60)), "rank 1 joined twice");
}

/// Whoever comes then is of another job, or of the next life of this one.
TEST(StoreServer, ACompleteJobIgnoresStrangers) {
  auto server = startServer(2);
  auto a = connect(*server, 0, 2), b = connect(*server, 1, 2);
  std::unique_ptr<TcpStore> stranger;
  for (int worldSize : {2, 7})
    for (int rank : {0, 1, 5})
      if (rank < worldSize)
        expectContains(
            show(tryConnect(*server, rank, worldSize, &stranger, "", 0.1)),
            "rank 0 at this address belongs to another job, whose ranks have "
            "all joined");
  EXPECT_EQ(show(a->failureWithin(0.05)), "OK");
}

/// Whoever proves what everybody can prove where there is no secret, and does
/// not belong, takes no descriptor of rank 0 for longer than it takes to say
/// so.
TEST(StoreServer, KeepsNoneOfThoseThatItRejects) {
  auto server = startServer(2, "job");
  auto countDescriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = countDescriptors();
  std::vector<FileDescriptor> rejected;
  wire::Hello hello;
  hello.abiVersion = DDPHOOK_ABI_VERSION;
  hello.worldSize = 2;
  hello.runId = wire::hashRunId("another job");
  for (int i = 0; i < 200; ++i) {
    rejected.push_back(connectRaw(*server));
    ASSERT_EQ(show(proveOn(rejected.back().get(), wire::storeCredentials(""),
                           hello.encode(), Deadline::after(20))),
              "OK");
    // It hears why, and then the end.
    char byte = 0;
    Status status;
    for (int bytes = 0; status.isOk(); ++bytes) {
      status = receiveAll(rejected.back().get(), &byte, 1, Deadline::after(20));
      EXPECT_TRUE(status.isOk() || bytes > 50);
    }
    EXPECT_EQ(show(status), "DATA_LOSS: the connection was closed");
  }
  EXPECT_LT(countDescriptors(), before + 200 + 20);
}

/// Nobody can come before rank 0, which shares the server's process.
TEST(StoreServer, RankZeroIsThereAtOnce) {
  StoreServer::Options options;
  options.worldSize = 2;
  options.hasRankZero = true;
  std::unique_ptr<StoreServer> server;
  ASSERT_EQ(show(StoreServer::start(options, &server)), "OK");
  std::unique_ptr<TcpStore> impostor, zero;
  expectContains(show(tryConnect(*server, 0, 2, &impostor, "", 0.3)),
                 "rank 0 joined twice");
  TcpStore::Options ofRank;
  ofRank.worldSize = 2;
  ASSERT_EQ(show(TcpStore::attach(ofRank, *server, &zero)), "OK");
  auto one = connect(*server, 1, 2);
  EXPECT_EQ(show(zero->waitForAll(Deadline::after(20))), "OK");
  EXPECT_EQ(zero->sessionKey(), one->sessionKey());
  std::string value;
  EXPECT_EQ(show(one->set("key", "value")), "OK");
  EXPECT_EQ(show(zero->get("key", Deadline::after(20), &value)), "OK");
  EXPECT_EQ(value, "value");
  EXPECT_EQ(server->reachedAddress(), "127.0.0.1");
}

/// A process of the last life joins the next one and ends: its successor takes
/// its place. If none comes, the rank is missing.
TEST(StoreServer, ARankThatIsLostWhileOthersAreAwaitedMayBeReplaced) {
  for (bool isReplaced : {true, false}) {
    auto server = startServer(3);
    auto zero = connect(*server, 0, 3), old = connect(*server, 1, 3);
    old.reset();
    if (isReplaced) {
      auto one = connect(*server, 1, 3), two = connect(*server, 2, 3);
      EXPECT_EQ(show(zero->waitForAll(Deadline::after(20))), "OK");
      EXPECT_EQ(show(one->waitForAll(Deadline::after(20))), "OK");
    } else {
      EXPECT_EQ(show(zero->waitForAll(Deadline::after(60))),
                "PEER_LOST: rank 1 was lost: its connection closed");
    }
  }
}

/// The job that a rank has left does not refuse it: it is the next life's turn
/// as soon as all others have left.
TEST(StoreServer, ARankThatIsBackWaitsForItsOldJob) {
  auto server = startServer(3);
  const int port = server->port();
  auto zero = connect(*server, 0, 3), one = connect(*server, 1, 3),
       two = connect(*server, 2, 3);
  one->leave();
  one.reset();
  expectContains(
      show(tryConnect(*server, 1, 3, &one, "", 0.3)),
      "DEADLINE_EXCEEDED: rank 1 could not join rank 0 at 127.0.0.1:" +
          std::to_string(port) +
          " within 0.3 s: the job that rank 1 has left has not "
          "ended yet");
  // Rank 0 begins to leave. It serves rank 2, but not at the port.
  zero->leave();
  std::thread last([&] { server->finish(Deadline::after(60)); });
  StoreServer::Options options;
  options.port = port;
  options.worldSize = 3;
  std::unique_ptr<StoreServer> next;
  EXPECT_EQ(show(StoreServer::start(options, &next, Deadline::after(20))),
            "OK");
  EXPECT_EQ(show(two->set("key", "")), "OK");
  EXPECT_EQ(show(tryConnect(*next, 1, 3, &one, "", 20)), "OK");
  two->leave();
  last.join();
}

/// A caller for whom the server has given up its last descriptor: rank 0 must
/// not take that one, or else nobody could be told anything any more.
TEST(StoreServer, LeavesItsLastDescriptorToCallers) {
  for (int spare : {3, 4, 5}) {
    int toTest[2], toChild[2];
    ASSERT_EQ(::pipe(toTest), 0);
    ASSERT_EQ(::pipe(toChild), 0);
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // The server's two and its last one, and rank 0's two.
      std::vector<FileDescriptor> free;
      for (int i = 0; i < spare; ++i)
        free.emplace_back(::dup(0));
      const rlim_t limit = static_cast<rlim_t>(free.back().get()) + 1;
      const rlimit limits = {limit, limit};
      ::setrlimit(RLIMIT_NOFILE, &limits);
      free.clear();
      StoreServer::Options options;
      options.worldSize = 2;
      options.hasRankZero = true;
      std::unique_ptr<StoreServer> server;
      StoreServer::start(options, &server).ignore();
      const int port = server ? server->port() : 0;
      char go;
      if (::write(toTest[1], &port, sizeof(port)) != sizeof(port) ||
          ::read(toChild[0], &go, 1) != 1)
        ::_exit(2);
      std::unique_ptr<TcpStore> store;
      TcpStore::Options ofRank;
      ofRank.worldSize = 2;
      Status status = TcpStore::attach(ofRank, *server, &store);
      if (status.isOk())
        status = store->waitForAll(Deadline::after(30));
      const std::string text = show(status);
      ::_exit(::write(toTest[1], text.data(), text.size()) < 0);
    }
    int port = 0;
    ASSERT_EQ(::read(toTest[0], &port, sizeof(port)), ssize_t(sizeof(port)));
    FileDescriptor caller;
    ASSERT_TRUE(
        connectOnce("127.0.0.1", port, Deadline::after(30), &caller).isOk());
    // Greeted with the last descriptor.
    char greeting;
    ASSERT_TRUE(
        receiveAll(caller.get(), &greeting, 1, Deadline::after(30)).isOk());
    caller.reset();
    ASSERT_EQ(::write(toChild[1], "g", 1), 1);
    char text[512] = {};
    EXPECT_GT(::read(toTest[0], text, sizeof(text) - 1), 0);
    expectContains(text, "Too many open files");
    ::waitpid(child, nullptr, 0);
    for (int fd : {toTest[0], toTest[1], toChild[0], toChild[1]})
      ::close(fd);
  }
}
