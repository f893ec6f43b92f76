#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs jobs under a real Slurm, without MASTER_ADDR and MASTER_PORT: one
# slurmctld and two slurmd on this machine, each in a network namespace with a
# host name of its own. Needs root, Debian's packages slurm-wlm, munge and
# iproute2, and a build with ddphook-cc and ddphook-exec. It takes half a minute.
#
#   test/slurm/run.sh [BUILD_DIR]
#
# The last line is "N passed, N failed". Nothing is left behind.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd) || exit 1
for program in slurmctld slurmd srun munged ip nsenter; do
  command -v $program >/dev/null || { echo "error: expected the program $program"; exit 1; }
done
place=$(mktemp -d /tmp/ddphook-slurm.XXXXXX)
chmod 755 "$place"
prefix=$(basename "$place")
export SLURM_CONF=$place/slurm.conf
passed=0 failed=0

# The processes on a node: its daemon, and what Slurm has started there.
processes_on() { ip netns pids "$prefix-$1"; }

clean_up() {
  local node
  for node in 0 1 2; do processes_on $node | xargs -r kill -9; done 2>/dev/null
  kill "$(cat "$place/munged.pid")" 2>/dev/null
  for node in 0 1 2 switch; do ip netns del "$prefix-$node"; done 2>/dev/null
  rm -rf "$place"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

on() { # node command...
  # shellcheck disable=SC2016
  nsenter --net="/run/netns/$prefix-$1" unshare --mount --uts sh -c \
    'mount --bind "$0" /etc/hosts && hostname "$1" && shift && exec "$@"' \
    "$place/hosts" "node$1" "${@:2}"
}

start_cluster() {
  ip netns add "$prefix-switch"
  ip -n "$prefix-switch" link add br0 type bridge
  ip -n "$prefix-switch" link set br0 up
  echo "127.0.0.1 localhost" >"$place/hosts"
  local node
  for node in 0 1 2; do
    echo "10.97.0.$((node + 1)) node$node" >>"$place/hosts"
    ip netns add "$prefix-$node"
    ip -n "$prefix-$node" link set lo up
    ip link add eth netns "$prefix-$node" type veth \
      peer name port$node netns "$prefix-switch"
    ip -n "$prefix-$node" addr add "10.97.0.$((node + 1))/24" dev eth
    ip -n "$prefix-$node" link set eth up
    ip -n "$prefix-switch" link set port$node master br0 up
    mkdir "$place/spool-node$node"
  done
  cat >"$SLURM_CONF" <<EOF
ClusterName=ddphook
SlurmctldHost=node0(10.97.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$place/munge.socket
StateSaveLocation=$place/spool-node0
SlurmdSpoolDir=$place/spool-%n
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd-%n.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=node[1-2] NodeAddr=10.97.0.[2-3] CPUs=8 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES
EOF
  (umask 077 && head -c 1024 /dev/urandom >"$place/munge.key")
  munged --force --key-file="$place/munge.key" --socket="$place/munge.socket" \
    --pid-file="$place/munged.pid" --log-file="$place/munged.log" \
    --seed-file="$place/munged.seed" >/dev/null || return 1
  on 0 slurmctld -D >"$place/slurmctld.out" 2>&1 &
  for node in 1 2; do on $node slurmd -D >"$place/slurmd$node.out" 2>&1 & done
  for ((i = 0; i < 300; ++i)); do
    [[ $(on 0 sinfo -ho %D -t idle 2>/dev/null) == 2 ]] && return 0
    sleep 0.2
  done
  cat "$place"/*.out
  return 1
}

check() { # name function
  # In the background, since a condition ignores `set -e`.
  (set -e; "$2") >"$place/log" 2>&1 &
  if wait $!; then
    echo "PASS: $1" && ((++passed))
  else
    echo "FAIL: $1" && ((++failed))
    cat "$place/log"
  fi
}

batch() { # script options...
  printf '#!/bin/sh\n%s\n' "$1" >"$place/batch.sh"
  on 0 sbatch -W -o "$place/batch.out" "${@:2}" "$place/batch.sh"
}

train="$build/bin/ddphook-exec $place/step.so --entry=step --inputs=random:1 --quiet"
export DDPHOOK_TIMEOUT_S=60

# Each of these is a list of words that are to be split.
# shellcheck disable=SC2086
{
  two_nodes() { on 0 srun -N2 -n4 $train --ranks=4; }
  pmi() { on 0 srun --mpi=pmi2 -N2 -n4 $train --ranks=4; }
  two_jobs() {
    on 0 srun -N2 -n4 $train --ranks=4 --steps=500 &
    on 0 srun -N2 -n4 $train --ranks=4 --steps=500
    wait $!
  }
  two_steps() {
    batch "srun --exact -n2 -c1 $train --ranks=2 --steps=500 & first=\$!
           srun --exact -n2 -c1 $train --ranks=2 --steps=500 && wait \$first" "$@"
  }
  on_one_node() { two_steps -N1 -n4; }
  on_two_nodes() { two_steps -N2 -n4 --ntasks-per-node=2; }
  by_hand() {
    printf 'node2\nnode1\n' >"$place/hostfile"
    export SLURM_HOSTFILE=$place/hostfile
    if on 0 srun -n2 -K -m arbitrary $train >"$place/said" 2>&1; then return 1; fi
    grep "node1, but it runs on another one; set MASTER_ADDR" "$place/said"
    MASTER_ADDR=node2 on 0 srun -n2 -m arbitrary $train --ranks=2
  }
  cancelled() {
    on 0 srun -J endless -N2 -n4 $train --steps=1000000 &
    until [[ $(on 0 squeue -hn endless -t running) ]]; do sleep 0.2; done
    sleep 2
    on 0 scancel -n endless
    if wait $!; then return 1; fi
    for ((i = 0; i < 100; ++i)); do
      # A daemon is all that is left on a node.
      (($(processes_on 1 | wc -l) + $(processes_on 2 | wc -l) == 2)) && break
      sleep 0.2
    done
    ((i < 100))
    two_nodes
  }
}

# What ddphook-reduce writes, word for word.
arrays() {
  cd "$place"
  "$build/bin/ddphook-reduce" --shapes=100x50,50 --ddp-pipeline=hook=fp16
  cc -I"$root/runtime/include" gradients_main.c gradients.o -o gradients \
    -L"$build/lib" -lddphook_rt -Wl,-rpath,"$build/lib" -lm
  on 0 sbatch -W -N2 -o "$place/batch.out" gradients.sbatch
  cat batch.out
  (($(grep -c 'of 2: relative error .*e-04' batch.out) == 2))
}

cat >"$place/step.mlir" <<'EOF'
ddp.process_group @dp
func.func @step(%g: tensor<10000xf32> {ddp.name = "w"}) -> tensor<10000xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<10000xf32>
  return %r : tensor<10000xf32>
}
EOF
"$build/bin/ddphook-cc" "$place/step.mlir" -o "$place/step.so" --shared \
  --name=step --ddp-pipeline= || exit 1
start_cluster || { echo "error: the cluster did not start"; exit 1; }
check "a step on two nodes" two_nodes
check "a step with PMI" pmi
check "two jobs at once" two_jobs
check "two steps of a batch script at once on one node" on_one_node
check "two steps of a batch script at once on two nodes" on_two_nodes
check "rank 0 on another node than the first" by_hand
check "scancel, and a job after it" cancelled
check "the program and the script of ddphook-reduce on two nodes" arrays
echo "$passed passed, $failed failed"
((failed == 0))
