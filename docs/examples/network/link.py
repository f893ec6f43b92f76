# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two network namespaces, joined by a link of limited speed.

    with Link("1gbit") as link:
        process = link.start(0, ["command"])

or, with a rank of one job on each side of the link,

    link.py [--rate=1gbit] -- COMMAND [ARGUMENT…]

which ends with the status of the rank that failed first, or 0.

Needs root. However the program ends, by an error or a signal, namespaces and
what runs in them are removed; after SIGKILL by the next Link.
"""

import argparse
import atexit
import os
import pathlib
import signal
import subprocess
import sys
import time

PREFIX = "ddphook-"


def command(*words):
    subprocess.run(words, check=True)


def namespaces():
    listed = subprocess.run(
        ["ip", "netns", "list"], check=True, capture_output=True, text=True
    )
    names = [line.split()[0] for line in listed.stdout.splitlines() if line.strip()]
    return [name for name in names if name.startswith(PREFIX)]


def remove(name):
    pids = subprocess.run(
        ["ip", "netns", "pids", name], check=False, capture_output=True, text=True
    )
    for pid in pids.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    # The veth pair goes with its namespaces.
    command("ip", "netns", "del", name)


def is_orphan(name):
    owner = name[len(PREFIX) :].split("-")[0]
    return owner.isdigit() and not pathlib.Path("/proc", owner).exists()


class Link:
    addresses = ["10.213.77.1", "10.213.77.2"]
    interface = "veth"

    def __init__(self, rate):
        self.rate = rate
        self.names = [f"{PREFIX}{os.getpid()}-{rank}" for rank in range(2)]

    def __enter__(self):
        for name in filter(is_orphan, namespaces()):
            remove(name)
        atexit.register(self.close)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda got, _: sys.exit(128 + got))
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def _open(self):
        for name in self.names:
            command("ip", "netns", "add", name)
        ends = [["netns", name, "name", self.interface] for name in self.names]
        command(
            *("ip", "link", "add", *ends[0][2:], *ends[0][:2], "type", "veth"),
            *("peer", *ends[1][2:], *ends[1][:2]),
        )
        for name, address in zip(self.names, self.addresses):
            inside = ("ip", "-n", name)
            command(*inside, "addr", "add", f"{address}/24", "dev", self.interface)
            command(*inside, "link", "set", "lo", "up")
            command(*inside, "link", "set", self.interface, "up")
            # Each direction has the rate, as a cable has. The burst is one
            # millisecond of data: with half of it, timers of a busy machine
            # come too late to reach the rate.
            command(
                *("tc", "-n", name, "qdisc", "add", "dev", self.interface),
                *("root", "tbf", "rate", self.rate),
                *("burst", "128kb", "latency", "50ms"),
            )

    def start(self, rank, words, **keywords):
        inside = ["ip", "netns", "exec", self.names[rank]]
        return subprocess.Popen([*inside, *map(str, words)], **keywords)

    def close(self):
        for name in set(self.names) & set(namespaces()):
            remove(name)

    def __exit__(self, *_):
        self.close()


class Loopback:
    """No link at all: both ranks on this machine, as it is."""

    addresses = ("127.0.0.1", "127.0.0.1")
    interface = "lo"

    def __enter__(self):
        return self

    def start(self, rank, words, **keywords):
        return subprocess.Popen([*map(str, words)], **keywords)

    def __exit__(self, *_):
        pass


def run_job(link, words, port=29500):
    """One rank on each side, as on two machines; output is the caller's."""
    processes = []
    for rank in range(2):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": link.addresses[0],
            "MASTER_PORT": str(port),
            "DDPHOOK_NODE": f"machine-{rank}",
            "DDPHOOK_TRANSPORT": "gloo",
            # PyTorch's Gloo looks for the machine's name otherwise.
            "GLOO_SOCKET_IFNAME": link.interface,
        }
        for name, value in os.environ.items():
            if name.startswith(("DDPHOOK_", "PYTHON")):
                environment.setdefault(name, value)
        processes.append(link.start(rank, words, env=environment))
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            break
        time.sleep(0.01)
    return next((p.returncode for p in processes if p.poll()), 0)


def main():
    parser = argparse.ArgumentParser(
        description="Runs a command as two ranks, one on each side of a slow link."
    )
    parser.add_argument("--rate", default="1gbit", help="of the link, for tc")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    with Link(arguments.rate) as link:
        status = run_job(link, arguments.command)
    # A rank that a signal has killed, as shells say it.
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
