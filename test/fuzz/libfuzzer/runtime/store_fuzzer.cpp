// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A libFuzzer target. Somebody sends any bytes, over real sockets: what is
// tested is the code that runs in a job. The first byte of the input says to
// whom:
//
//   c  to the server, as rank 1 that was welcomed
//   h  to the server, as a stranger without the job's secret
//   r  to a rank that was welcomed and asks for a key
//   g  to a rank that wants to prove itself
//
// The other end closes its side of the connection after its bytes, so nothing
// here waits for a deadline, except when something hangs.

#include "ddphook/runtime/compiled.h"
#include "store/handshake.h"
#include "store/socket.h"
#include "store/store_protocol.h"
#include "store/store_server.h"
#include "store/tcp_store.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

using namespace ddphook;
using namespace ddphook::wire;

/// Far above what an answer takes: whoever needs it hangs.
static constexpr double patience = 300;

static constexpr char loopback[] = "127.0.0.1";

/// Says what was promised, and stops, unless it is kept.
static void promise(bool isKept, const char *what,
                    const Status &status = Status::ok()) {
  if (isKept)
    return;
  std::fprintf(stderr, "broken promise: %s: %s\n", what,
               status.message().c_str());
  std::abort();
}

static void promiseOk(const Status &status, const char *what) {
  promise(status.isOk(), what, status);
}

/// Sends, closes this direction, and reads until the other end closes too.
static void say(int socket, std::string_view bytes) {
  const Deadline deadline = Deadline::after(patience);
  // The other end may close in the middle.
  sendAll(socket, bytes.data(), bytes.size(), deadline).ignore();
  ::shutdown(socket, SHUT_WR);
  char answer[4096];
  for (;;) {
    pollfd entry = {socket, POLLIN, 0};
    promise(::poll(&entry, 1, deadline.remainingMs()) > 0,
            "a connection that was closed is closed by the other end, too");
    ssize_t got = ::recv(socket, answer, sizeof(answer), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
      return;
  }
}

/// The job's, which strangers do not have.
static constexpr char secret[] = "between the ranks";

static Hello introductionOf(int rank, int worldSize) {
  Hello hello;
  hello.abiVersion = DDPHOOK_ABI_VERSION;
  hello.worldSize = static_cast<uint32_t>(worldSize);
  hello.rank = static_cast<uint32_t>(rank);
  hello.runId = hashRunId("");
  return hello;
}

/// The server also serves a well-behaved rank 0, who must get an answer
/// afterwards; a stranger must not have changed anything.
static void talkToServer(std::string_view bytes, bool asRank) {
  constexpr int worldSize = 2;
  StoreServer::Options serverOptions;
  serverOptions.worldSize = worldSize;
  serverOptions.secret = secret;
  std::unique_ptr<StoreServer> server;
  promiseOk(StoreServer::start(serverOptions, &server),
            "a server can be started");
  TcpStore::Options options;
  options.port = server->port();
  options.worldSize = worldSize;
  options.secret = secret;
  options.timeoutSeconds = patience;
  std::unique_ptr<TcpStore> rank;
  promiseOk(TcpStore::connect(options, Deadline::after(patience), &rank),
            "rank 0 can join");
  promiseOk(rank->set("counter", "1"), "rank 0 can set a key");

  FileDescriptor socket;
  promiseOk(
      connectOnce(loopback, server->port(), Deadline::after(patience), &socket),
      "anybody can connect");
  if (asRank)
    promiseOk(proveOn(socket.get(), storeCredentials(secret),
                      introductionOf(1, worldSize).encode(),
                      Deadline::after(patience)),
              "who has the secret can prove it");
  say(socket.get(), bytes);

  int64_t counter = 0;
  Status status = rank->add("counter", 1, &counter);
  promise(status.code() != DDPHOOK_DEADLINE_EXCEEDED,
          "the server answers rank 0", status);
  promise(asRank || (status.isOk() && counter == 2),
          "a stranger changes nothing", status);
  rank->leave();
}

/// What a server does before it listens to a rank.
static void welcome(int socket) {
  const Deadline deadline = Deadline::after(patience);
  AcceptingHandshake handshake;
  promiseOk(AcceptingHandshake::begin(storeCredentials(secret), &handshake),
            "a handshake can begin");
  const std::string greeting = handshake.greeting();
  sendAll(socket, greeting.data(), greeting.size(), deadline).ignore();
  std::string claim(AcceptingHandshake::claimSize(Hello::size), '\0');
  promiseOk(receiveAll(socket, claim.data(), claim.size(), deadline),
            "a rank answers a greeting");
  std::string introduction, answer;
  promise(handshake.check(claim, &introduction, &answer),
          "a rank proves that it has the secret");
  answer += encodeFrame(Kind::Welcome, 0, {}, std::string(tokenSize, 't'));
  sendAll(socket, answer.data(), answer.size(), deadline).ignore();
}

static void talkToClient(std::string_view bytes) {
  FileDescriptor listening;
  int port = 0;
  promiseOk(listenOn(loopback, 0, &listening, &port), "a socket can listen");
  std::thread server([&] {
    pollfd entry = {listening.get(), POLLIN, 0};
    promise(::poll(&entry, 1, static_cast<int>(patience * 1e3)) > 0,
            "the client connects");
    FileDescriptor socket(::accept(listening.get(), nullptr, nullptr));
    welcome(socket.get());
    say(socket.get(), bytes);
  });
  TcpStore::Options options;
  options.port = port;
  options.rank = 1;
  options.worldSize = 2;
  options.secret = secret;
  std::unique_ptr<TcpStore> rank;
  promiseOk(TcpStore::connect(options, Deadline::after(patience), &rank),
            "a rank that is welcomed has joined");
  std::string value;
  const Deadline deadline = Deadline::after(patience);
  rank->get("key", deadline, &value).ignore();
  promise(!deadline.expired(), "a rank notices that the server has gone");
  rank.reset();
  server.join();
}

/// Nobody without the secret can say what passes for its proof.
static void greetClient(std::string_view bytes) {
  int ends[2];
  promise(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
          "sockets can be made");
  FileDescriptor rank(ends[0]), stranger(ends[1]);
  const Deadline deadline = Deadline::after(patience);
  sendAll(stranger.get(), bytes.data(), bytes.size(), deadline).ignore();
  ::shutdown(stranger.get(), SHUT_WR);
  Status status = proveOn(rank.get(), storeCredentials(secret),
                          introductionOf(1, 2).encode(), deadline);
  promise(!status.isOk() && !deadline.expired(),
          "a stranger is not taken for rank 0", status);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return -1;
  std::string_view bytes(reinterpret_cast<const char *>(data) + 1, size - 1);
  switch (data[0]) {
  case 'c':
    talkToServer(bytes, /*asRank=*/true);
    return 0;
  case 'h':
    talkToServer(bytes, /*asRank=*/false);
    return 0;
  case 'r':
    talkToClient(bytes);
    return 0;
  case 'g':
    greetClient(bytes);
    return 0;
  default:
    return -1;
  }
}
