# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ports for the jobs of tests, of the runtime and of what stands on it."""

import pathlib
import random
import socket


def free_port():
    """A port that nobody has, nor the next one: beside a launcher's store on its
    port, ddphook's own takes that. Below those that the system gives to outgoing
    connections, which could be faster and keep other ranks waiting."""
    system = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    lowest = int(system.split()[0])
    while True:
        port = random.SystemRandom().randrange(lowest // 2, lowest - 1)
        with socket.socket() as probe, socket.socket() as beside:
            try:
                probe.bind(("127.0.0.1", port))
                beside.bind(("0.0.0.0", port + 1))
            except OSError:
                continue
            return port
