// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every launcher's variables mean, alone, together and broken.

#include "base/status_test_util.h"
#include "job/bootstrap.h"
#include "job/settings.h"
#include "store/socket.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using ddphook::test::show;

using Variables = std::map<std::string, std::string>;

static Status find(const Variables &variables, Bootstrap *place,
                   const ddphook_options_t *options = nullptr) {
  return findPlace(
      options,
      [&](const char *name) -> const char * {
        auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      place);
}

/// "rank/world local address:port", or the failure.
static std::string placeOf(const Variables &variables,
                           const ddphook_options_t *options = nullptr) {
  Bootstrap place;
  Status status = find(variables, &place, options);
  if (!status.isOk())
    return std::string(ddphook_status_name(status.code())) + ": " +
           status.message();
  std::string text = std::to_string(place.rank) + "/" +
                     std::to_string(place.worldSize) + " " +
                     std::to_string(place.localRank);
  if (place.worldSize > 1)
    text += " " + place.masterAddress + ":" + std::to_string(place.masterPort);
  return text;
}

static Variables with(Variables base, const Variables &more) {
  for (const auto &[name, value] : more)
    base[name] = value;
  return base;
}

static const Variables torchrun = {{"RANK", "3"},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"MASTER_ADDR", "n0"},
                                   {"MASTER_PORT", "1234"},
                                   {"TORCHELASTIC_RUN_ID", "none"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
static const Variables openMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
/// Of `srun -N2 -n4`, as Slurm 22.05 sets them for its last task.
static const Variables slurm = {{"SLURM_CPUS_ON_NODE", "1"},
                                {"SLURM_GTIDS", "3"},
                                {"SLURM_JOBID", "1"},
                                {"SLURM_JOB_ID", "1"},
                                {"SLURM_JOB_NODELIST", "node[1-2]"},
                                {"SLURM_JOB_NUM_NODES", "2"},
                                {"SLURM_LAUNCH_NODE_IPADDR", "10.97.0.1"},
                                {"SLURM_LOCALID", "0"},
                                {"SLURM_NNODES", "2"},
                                {"SLURM_NODEID", "1"},
                                {"SLURM_NODELIST", "node[1-2]"},
                                {"SLURM_NPROCS", "4"},
                                {"SLURM_NTASKS", "4"},
                                {"SLURM_PROCID", "3"},
                                {"SLURM_STEPID", "0"},
                                {"SLURM_STEP_ID", "0"},
                                {"SLURM_STEP_NODELIST", "node[1-2]"},
                                {"SLURM_STEP_NUM_NODES", "2"},
                                {"SLURM_STEP_NUM_TASKS", "4"},
                                {"SLURM_STEP_TASKS_PER_NODE", "3,1"},
                                {"SLURM_TASKS_PER_NODE", "3,1"},
                                {"SLURMD_NODENAME", "node2"}};

static Variables without(Variables base, const std::vector<std::string> &less) {
  for (const std::string &name : less)
    base.erase(name);
  return base;
}

TEST(Bootstrap, NoVariables) {
  EXPECT_EQ(placeOf({}), "0/1 0");
  // These say nothing about ranks.
  EXPECT_EQ(placeOf({{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "99"}}), "0/1 0");
}

TEST(Bootstrap, Torchrun) {
  // The agent's own store has the port itself.
  EXPECT_EQ(placeOf(torchrun), "3/4 1 n0:1235");
  EXPECT_EQ(
      placeOf(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})),
      "3/4 1 n0:1234");
  EXPECT_EQ(placeOf(with(torchrun, {{"DDPHOOK_PORT", "77"}})), "3/4 1 n0:77");
  EXPECT_EQ(placeOf(with(torchrun, {{"MASTER_PORT", "65535"}})),
            "BAD_ENVIRONMENT: expected MASTER_PORT to be below 65535, because "
            "the store takes the next port; set DDPHOOK_PORT");
  EXPECT_EQ(placeOf({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "0/1 0");
}

TEST(Bootstrap, OpenMpi) {
  EXPECT_EQ(placeOf(openMpi), "1/2 1 127.0.0.1:29500");
  EXPECT_EQ(placeOf(with(openMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})),
            "BAD_ENVIRONMENT: expected MASTER_ADDR to name the machine of rank "
            "0 in a job of 2 ranks, but it is not set");
  EXPECT_EQ(
      placeOf(with(openMpi, {{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "5"}})),
      "1/2 1 n0:5");
}

TEST(Bootstrap, Pmi) {
  EXPECT_EQ(placeOf({{"PMI_RANK", "2"},
                     {"PMI_SIZE", "3"},
                     {"MPI_LOCALRANKID", "2"},
                     {"MPI_LOCALNRANKS", "3"}}),
            "2/3 2 127.0.0.1:29500");
}

TEST(Bootstrap, Slurm) {
  EXPECT_EQ(placeOf(slurm), "3/4 0 node1:24898");
  EXPECT_EQ(placeOf(with(slurm, {{"MASTER_ADDR", "n0"}})), "3/4 0 n0:24898");
  EXPECT_EQ(placeOf(with(slurm, {{"MASTER_PORT", "5"}})), "3/4 0 node1:5");
  EXPECT_EQ(placeOf(with(slurm, {{"DDPHOOK_PORT", "6"}})), "3/4 0 node1:6");
  // By hand, without a job's numbers.
  EXPECT_EQ(placeOf({{"SLURM_PROCID", "1"},
                     {"SLURM_NTASKS", "2"},
                     {"SLURM_LOCALID", "1"},
                     {"MASTER_ADDR", "n0"}}),
            "1/2 1 n0:29500");
}

TEST(Bootstrap, SlurmStepsOfAJob) {
  // On one node, one beside the other.
  const Variables first = with(
      slurm, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NODELIST", "node2"}});
  const Variables second = with(first, {{"SLURM_STEP_ID", "1"}});
  EXPECT_EQ(placeOf(first), "3/4 0 127.0.0.1:24898");
  EXPECT_EQ(placeOf(second), "3/4 0 127.0.0.1:24899");
  Bootstrap place;
  ASSERT_TRUE(find(second, &place).isOk());
  EXPECT_EQ(place.runId, "1.1");
  ASSERT_TRUE(find(with(second, {{"DDPHOOK_RUN_ID", "x"}}), &place).isOk());
  EXPECT_EQ(place.runId, "x");
}

TEST(Bootstrap, SlurmPorts) {
  for (unsigned long long job : {1ull, 123456ull, 67108863ull}) {
    std::set<int> ports;
    for (unsigned long long next = job; next <= job + 300; ++next)
      for (unsigned long long step = 0; step < 54; ++step) {
        const int port = portOfStep(next, step);
        EXPECT_GE(port, 12000);
        EXPECT_LT(port, 29000);
        ports.insert(port);
      }
    EXPECT_EQ(ports.size(), 301u * 54);
  }
}

TEST(Bootstrap, SlurmNodes) {
  auto masterOf = [](const std::string &list) {
    return placeOf(with(slurm, {{"SLURM_STEP_NODELIST", list}}));
  };
  for (const auto &[list, first] :
       Variables{{"login1", "login1"},
                 {"gpu[001-003,007],login1", "gpu001"},
                 {"gpu[007,001-003]", "gpu007"},
                 {"gpu[9-10]", "gpu9"},
                 {"login1,gpu[001-003]", "login1"},
                 {"r[00-01]n[08-11]", "r00n08"},
                 {"n[3]-ib.cluster,n7", "n3-ib.cluster"},
                 {"[12-14]", "12"}})
    EXPECT_EQ(masterOf(list), "3/4 0 " + first + ":24898");
  for (const char *list : {",n1", "n[1-2", "n[]", "n[-2]", "n[a-b]", "n1]"})
    EXPECT_EQ(masterOf(list),
              std::string("BAD_ENVIRONMENT: expected SLURM_STEP_NODELIST to be "
                          "a list of nodes, but got '") +
                  list + "'");
  // Older versions of Slurm do not give the list of a step.
  Variables older = without(with(slurm, {{"SLURM_NODELIST", "old[3-4]"}}),
                            {"SLURM_STEP_NODELIST"});
  EXPECT_EQ(placeOf(older), "3/4 0 node1:24898");
  older.erase("SLURM_JOB_NODELIST");
  EXPECT_EQ(placeOf(older), "3/4 0 old3:24898");
  older.erase("SLURM_NODELIST");
  EXPECT_EQ(placeOf(older),
            "BAD_ENVIRONMENT: expected MASTER_ADDR to name the machine of rank "
            "0 in a job of 4 ranks, but it is not set");
}

/// `srun --distribution=arbitrary` with a SLURM_HOSTFILE.
TEST(Bootstrap, SlurmTasksThatAreDistributedByHand) {
  const Variables first = with(slurm, {{"SLURM_PROCID", "0"}});
  EXPECT_EQ(placeOf(first),
            "BAD_ENVIRONMENT: expected rank 0 to run on the first node of "
            "SLURM_STEP_NODELIST, node1, but it runs on another one; set "
            "MASTER_ADDR to the node of rank 0");
  EXPECT_EQ(placeOf(with(first, {{"MASTER_ADDR", "node2"}})),
            "0/4 0 node2:24898");
}

TEST(Bootstrap, SlurmOutsideOfAJobStep) {
  const Variables batch = with(
      without(slurm, {"SLURM_STEPID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST",
                      "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS"}),
      {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}});
  EXPECT_EQ(placeOf(batch), "0/1 0");
  EXPECT_EQ(placeOf(with(batch, {{"SLURM_STEP_ID", "4294967291"}})), "0/1 0");
  // `srun --pty bash` in an allocation of many.
  EXPECT_EQ(placeOf(with(
                slurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})),
            "0/1 0");
  // torchrun and mpirun reach their nodes by tasks of Slurm.
  EXPECT_EQ(placeOf(with(slurm, torchrun)), "3/4 1 n0:1235");
  EXPECT_EQ(placeOf(with(slurm, with(openMpi, {{"MASTER_ADDR", "n0"}}))),
            "1/2 1 n0:29500");
}

TEST(Bootstrap, SlurmWithPmi) {
  // `srun --mpi=pmi2`: the variables are Slurm's own.
  const Variables own =
      with(slurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_JOBID", "1.0"}});
  EXPECT_EQ(placeOf(own), "3/4 0 node1:24898");
  // mpiexec reaches its nodes by tasks of Slurm, and starts more than one rank
  // on each.
  EXPECT_EQ(placeOf(with(own, {{"PMI_SIZE", "8"}, {"MASTER_ADDR", "n0"}})),
            "3/8 0 n0:29500");
}

TEST(Bootstrap, ContradictingLaunchers) {
  Variables both = with(
      openMpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n0"}});
  EXPECT_EQ(placeOf(both),
            "BAD_ENVIRONMENT: launch variables contradict each other: RANK is "
            "0, but OMPI_COMM_WORLD_RANK is 1");
  both["RANK"] = "1";
  EXPECT_EQ(placeOf(both), "1/2 1 n0:29500");
  EXPECT_EQ(placeOf(with(both, {{"WORLD_SIZE", "3"}})),
            "BAD_ENVIRONMENT: launch variables contradict each other: "
            "WORLD_SIZE is 3, but OMPI_COMM_WORLD_SIZE is 2");
  EXPECT_EQ(placeOf(with(both, {{"LOCAL_RANK", "0"}})),
            "BAD_ENVIRONMENT: launch variables contradict each other: "
            "LOCAL_RANK is 0, but OMPI_COMM_WORLD_LOCAL_RANK is 1");
  EXPECT_EQ(placeOf(with(both, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})),
            "BAD_ENVIRONMENT: launch variables contradict each other: RANK is "
            "1, but PMI_RANK is 0");
  EXPECT_EQ(placeOf(with(slurm, {{"RANK", "2"}, {"WORLD_SIZE", "4"}})),
            "BAD_ENVIRONMENT: launch variables contradict each other: RANK is "
            "2, but SLURM_PROCID is 3");
}

TEST(Bootstrap, IncompleteAndMalformed) {
  EXPECT_EQ(placeOf({{"RANK", "0"}}),
            "BAD_ENVIRONMENT: expected RANK and WORLD_SIZE together, but only "
            "RANK is set");
  EXPECT_EQ(placeOf({{"WORLD_SIZE", "2"}}),
            "BAD_ENVIRONMENT: expected RANK and WORLD_SIZE together, but only "
            "WORLD_SIZE is set");
  EXPECT_EQ(placeOf({{"PMI_SIZE", "2"}}),
            "BAD_ENVIRONMENT: expected PMI_RANK and PMI_SIZE together, but "
            "only PMI_SIZE is set");
  for (const char *bad : {"x", "1x", "-1", " 1", "99999999999999", "1.0"})
    EXPECT_EQ(placeOf(with(torchrun, {{"RANK", bad}})),
              std::string("BAD_ENVIRONMENT: expected RANK to be a number of at "
                          "least 0, but got '") +
                  bad + "'");
  EXPECT_EQ(placeOf(with(torchrun, {{"WORLD_SIZE", "0"}})),
            "BAD_ENVIRONMENT: expected WORLD_SIZE to be a number of at least "
            "1, but got '0'");
  EXPECT_EQ(placeOf(with(torchrun, {{"RANK", "4"}})),
            "BAD_ENVIRONMENT: expected RANK to be below WORLD_SIZE, but got 4 "
            "and 4");
  EXPECT_EQ(placeOf(with(torchrun, {{"MASTER_PORT", "70000"}})),
            "BAD_ENVIRONMENT: expected MASTER_PORT to be a number from 1 to "
            "65535, but got '70000'");
  EXPECT_EQ(placeOf(with(torchrun, {{"LOCAL_RANK", "a"}})),
            "BAD_ENVIRONMENT: expected LOCAL_RANK to be a number of at least "
            "0, but got 'a'");
  EXPECT_EQ(
      placeOf(with(torchrun, {{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "2"}})),
      "BAD_ENVIRONMENT: expected LOCAL_RANK to be below "
      "LOCAL_WORLD_SIZE, but got 3 and 2");
  EXPECT_EQ(placeOf(with(torchrun, {{"DDPHOOK_NODE", "a\nb"}})),
            "BAD_ENVIRONMENT: expected DDPHOOK_NODE to be a name without line "
            "feeds and other control characters");
}

TEST(Bootstrap, SettingsOfAllRanks) {
  ddphook_backend_t backend = {};
  backend.agreed_options = "roots,algo";
  auto difference = [&](const std::string &first, const std::string &second) {
    Bootstrap one, other;
    one.backendOptions = first;
    other.backendOptions = second;
    return show(compareSettings({printSettings(one, backend),
                                 printSettings(one, backend),
                                 printSettings(other, backend)}));
  };
  EXPECT_EQ(difference("roots=1,device=0,algo=ring", "algo=ring,,x,roots=1"),
            "OK");
  EXPECT_EQ(difference("device=0,algo=ring", "device=1"),
            "BAD_ENVIRONMENT: the ranks' settings differ: the backend's option "
            "algo is 'ring' on rank 0, but not set on rank 2");
  EXPECT_EQ(difference("roots=1", "roots=2"),
            "BAD_ENVIRONMENT: the ranks' settings differ: the backend's option "
            "roots is '1' on rank 0, but '2' on rank 2");
}

TEST(Bootstrap, Timeout) {
  Bootstrap place;
  ASSERT_TRUE(find({}, &place).isOk());
  EXPECT_EQ(place.timeoutSeconds, 300);
  ASSERT_TRUE(find({{"DDPHOOK_TIMEOUT_S", "1.5"}}, &place).isOk());
  EXPECT_EQ(place.timeoutSeconds, 1.5);
  for (const char *bad : {"0", "-1", "soon", "nan", "inf", "1s", "0x10", " 5"})
    EXPECT_EQ(find({{"DDPHOOK_TIMEOUT_S", bad}}, &place).code(),
              DDPHOOK_BAD_ENVIRONMENT)
        << bad;
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  options.timeout_s = 7;
  ASSERT_TRUE(find({{"DDPHOOK_TIMEOUT_S", "1.5"}}, &place, &options).isOk());
  EXPECT_EQ(place.timeoutSeconds, 7);
}

TEST(Bootstrap, Threads) {
  auto threads = [](const Variables &variables) {
    Bootstrap place;
    EXPECT_TRUE(find(variables, &place).isOk());
    return place.threads;
  };
  EXPECT_EQ(threads({}), 0);
  EXPECT_EQ(threads({{"DDPHOOK_NUM_THREADS", "3"}}), 3);
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", "4"}}), 4);
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", " 4 , 2,1"}}), 4);
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", "99999"}}), 4096);
  EXPECT_EQ(threads({{"DDPHOOK_NUM_THREADS", "3"}, {"OMP_NUM_THREADS", "1"}}),
            3);
  // As OpenMP's own libraries do.
  for (const char *ignored : {"0", "-2", "many", "2x", ","})
    EXPECT_EQ(threads({{"OMP_NUM_THREADS", ignored}}), 0) << ignored;
  Bootstrap place;
  for (const char *bad : {"0", "-1", "all", "2,1", "4097", "1.5"})
    EXPECT_EQ(find({{"DDPHOOK_NUM_THREADS", bad}}, &place).message(),
              std::string("expected DDPHOOK_NUM_THREADS to be a number from 1 "
                          "to 4096, but got '") +
                  bad + "'");
}

TEST(Bootstrap, Options) {
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  options.rank = 1;
  options.world_size = 2;
  options.local_rank = 1;
  options.master_addr = "here";
  options.master_port = 99;
  // Explicit options are not compared with variables.
  EXPECT_EQ(placeOf(with(torchrun, {{"DDPHOOK_PORT", "7"}}), &options),
            "1/2 1 here:99");
  options.master_addr = nullptr;
  options.master_port = 0;
  EXPECT_EQ(placeOf({{"MASTER_ADDR", "n0"}}, &options), "1/2 1 n0:29500");
  EXPECT_EQ(placeOf({}, &options),
            "BAD_ENVIRONMENT: expected MASTER_ADDR to name the machine of rank "
            "0 in a job of 2 ranks, but it is not set");

  options.backend = "cuda";
  options.transport = "gloo";
  Bootstrap place;
  Variables variables = {{"MASTER_ADDR", "n0"},
                         {"DDPHOOK_BACKEND", "other"},
                         {"DDPHOOK_TRANSPORT", "shm"},
                         {"DDPHOOK_NODE", "a"}};
  ASSERT_TRUE(find(variables, &place, &options).isOk());
  EXPECT_EQ(place.backend, "cuda");
  EXPECT_EQ(place.transport, "gloo");
  EXPECT_EQ(place.nodeOverride, "a");
  ASSERT_TRUE(find(variables, &place).isOk());
  EXPECT_EQ(place.backend, "other");
  EXPECT_EQ(place.transport, "shm");
}

TEST(Bootstrap, InvalidOptions) {
  ddphook_options_t good = {};
  good.struct_size = sizeof(good);
  good.world_size = 2;
  good.master_addr = "n0";
  EXPECT_EQ(placeOf({}, &good), "0/2 0 n0:29500");
  auto expectInvalid = [&](auto change, const char *part) {
    ddphook_options_t options = good;
    change(options);
    std::string text = placeOf({}, &options);
    EXPECT_EQ(text.find("INVALID_ARGUMENT: "), 0u) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  using Options = ddphook_options_t;
  expectInvalid([](Options &o) { o.struct_size = 8; }, "struct_size");
  expectInvalid([](Options &o) { o.rank = 2; }, "options.rank");
  expectInvalid([](Options &o) { o.rank = -1; }, "options.rank");
  expectInvalid([](Options &o) { o.world_size = -1; }, "options.world_size");
  expectInvalid([](Options &o) { o.world_size = 0, o.rank = 1; },
                "options.rank");
  expectInvalid([](Options &o) { o.local_rank = -1; }, "options.local_rank");
  expectInvalid([](Options &o) { o.master_port = 65536; },
                "options.master_port");
  expectInvalid([](Options &o) { o.timeout_s = -1; }, "options.timeout_s");
  expectInvalid([](Options &o) { o.timeout_s = NAN; }, "options.timeout_s");
}

TEST(Bootstrap, Allocator) {
  ddphook_allocator_t allocator = {};
  allocator.struct_size = sizeof(allocator);
  allocator.alloc = [](void *, size_t, int32_t, void *) -> void * {
    return nullptr;
  };
  allocator.free = [](void *, void *, size_t, int32_t, void *) {};
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  options.allocator = &allocator;
  Bootstrap place, none, old;
  ASSERT_TRUE(find({}, &place, &options).isOk());
  EXPECT_EQ(place.allocator->alloc, allocator.alloc);
  ASSERT_TRUE(find({}, &none).isOk());
  EXPECT_FALSE(none.allocator);
  // Programs from before it was there do not have it.
  options.struct_size = offsetof(ddphook_options_t, allocator);
  ASSERT_TRUE(find({}, &old, &options).isOk());
  EXPECT_FALSE(old.allocator);
  options.struct_size = sizeof(options);
  ddphook_allocator_t bad = allocator;
  options.allocator = &bad;
  bad.free = nullptr;
  EXPECT_EQ(placeOf({}, &options),
            "INVALID_ARGUMENT: expected options.allocator to have both "
            "functions, but free is null");
  bad.alloc = nullptr;
  EXPECT_EQ(placeOf({}, &options),
            "INVALID_ARGUMENT: expected options.allocator to have both "
            "functions, but alloc is null");
  bad = allocator;
  bad.struct_size = 8;
  EXPECT_EQ(placeOf({}, &options),
            "INVALID_ARGUMENT: expected options.allocator->struct_size to be "
            "at least " +
                std::to_string(sizeof(bad)) + ", but got 8");
}

TEST(Bootstrap, ProcessEnvironment) {
  ::setenv("DDPHOOK_TEST_VARIABLE", "set", 1);
  Environment environment = processEnvironment();
  EXPECT_STREQ(environment("DDPHOOK_TEST_VARIABLE"), "set");
  ::setenv("DDPHOOK_TEST_VARIABLE", "", 1);
  EXPECT_EQ(environment("DDPHOOK_TEST_VARIABLE"), nullptr);
}

/// Whatever the launcher calls this machine, nobody outside may reach the
/// store.
TEST(Bootstrap, RanksOfOneMachineMeetOnTheLoopback) {
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  Variables local = with(torchrun, {{"LOCAL_WORLD_SIZE", "4"}});
  for (const std::string &name :
       {std::string(host), std::string("::ffff:127.0.0.1")}) {
    // A machine may not know its own name.
    if (!isOwnAddress(name))
      continue;
    EXPECT_EQ(placeOf(with(local, {{"MASTER_ADDR", name}})),
              "3/4 1 127.0.0.1:1235")
        << name;
  }
  EXPECT_TRUE(isOwnAddress("localhost"));
  // What is a loopback address already stays as it is.
  for (const char *address : {"localhost", "127.9.8.7", "::1"})
    EXPECT_EQ(placeOf(with(local, {{"MASTER_ADDR", address}})),
              "3/4 1 " + std::string(address) + ":1235");
  // Another machine's address, or one of several machines.
  EXPECT_EQ(placeOf(with(local, {{"MASTER_ADDR", "192.0.2.1"}})),
            "3/4 1 192.0.2.1:1235");
  EXPECT_EQ(placeOf(with(torchrun, {{"MASTER_ADDR", "localhost"}})),
            "3/4 1 localhost:1235");
}

TEST(Bootstrap, WordsThatMeanNothing) {
  EXPECT_EQ(placeOf({{"DDPHOOK_LOG", "INFO"}}),
            "BAD_ENVIRONMENT: expected DDPHOOK_LOG to be error, warn or info, "
            "but got 'INFO'");
  EXPECT_EQ(placeOf({{"DDPHOOK_TRANSPORT", "SHM"}}),
            "BAD_ENVIRONMENT: expected DDPHOOK_TRANSPORT to be auto, shm or "
            "gloo, but got 'SHM'");
  // Other backends have other transports.
  Bootstrap place;
  ASSERT_TRUE(
      find({{"DDPHOOK_TRANSPORT", "nccl"}, {"DDPHOOK_BACKEND", "cuda"}}, &place)
          .isOk());
  EXPECT_EQ(place.transport, "nccl");
}

TEST(Bootstrap, WhatIsToBeRecorded) {
  Bootstrap place;
  ASSERT_TRUE(find({}, &place).isOk());
  EXPECT_EQ(place.observation.trace, "");
  EXPECT_EQ(place.observation.traceEvents, 100000);
  EXPECT_TRUE(place.observation.isRecording);
  EXPECT_EQ(place.observation.metricsInterval, 100);
  EXPECT_FALSE(place.observation.measuresErrors);
  EXPECT_FALSE(place.observation.findsNonFinite);
  const Variables variables = {{"DDPHOOK_TRACE", "t.json"},
                               {"DDPHOOK_TRACE_EVENTS", "7"},
                               {"DDPHOOK_FLIGHT_RECORDER", "f.{rank}"},
                               {"DDPHOOK_METRICS", "m.prom"},
                               {"DDPHOOK_METRICS_INTERVAL", "3"},
                               {"DDPHOOK_METRICS_ERRORS", "1"},
                               {"DDPHOOK_METRICS_NON_FINITE", "1"}};
  ASSERT_TRUE(find(variables, &place).isOk());
  EXPECT_EQ(place.observation.trace, "t.json");
  EXPECT_EQ(place.observation.traceEvents, 7);
  EXPECT_EQ(place.observation.flightRecorder, "f.{rank}");
  EXPECT_TRUE(place.observation.isRecording);
  EXPECT_EQ(place.observation.metrics, "m.prom");
  EXPECT_EQ(place.observation.metricsInterval, 3);
  EXPECT_TRUE(place.observation.measuresErrors);
  EXPECT_TRUE(place.observation.findsNonFinite);
  // The option wins; programs from before it was there do not have it.
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  options.trace = "own.json";
  Bootstrap own, old;
  ASSERT_TRUE(find(variables, &own, &options).isOk());
  EXPECT_EQ(own.observation.trace, "own.json");
  options.struct_size = offsetof(ddphook_options_t, trace);
  ASSERT_TRUE(find({}, &old, &options).isOk());
  EXPECT_EQ(old.observation.trace, "");
  Bootstrap off;
  ASSERT_TRUE(find({{"DDPHOOK_FLIGHT_RECORDER", "0"}}, &off).isOk());
  EXPECT_FALSE(off.observation.isRecording);
  EXPECT_EQ(off.observation.flightRecorder, "");
  EXPECT_EQ(placeOf({{"DDPHOOK_TRACE_EVENTS", "many"}}),
            "BAD_ENVIRONMENT: expected DDPHOOK_TRACE_EVENTS to be a number "
            "from 1 to 67108864, but got 'many'");
  EXPECT_EQ(placeOf({{"DDPHOOK_METRICS_INTERVAL", "0"}}),
            "BAD_ENVIRONMENT: expected DDPHOOK_METRICS_INTERVAL to be a number "
            "of at least 1, but got '0'");
}

TEST(Bootstrap, JobSecret) {
  Bootstrap place;
  ASSERT_TRUE(find({}, &place).isOk());
  EXPECT_EQ(place.secret, "");
  ASSERT_TRUE(
      find({{"DDPHOOK_JOB_SECRET", "sixteen letters!"}}, &place).isOk());
  EXPECT_EQ(place.secret, "sixteen letters!");
  EXPECT_EQ(placeOf({{"DDPHOOK_JOB_SECRET", "fifteen letters"}}),
            "BAD_ENVIRONMENT: expected DDPHOOK_JOB_SECRET to have at least 16 "
            "characters, but got 15");
}
