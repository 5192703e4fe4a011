"""An idle daemon uses no processor time, with no clients and with silent ones."""

import os
import socket
import contextlib

from test_limits import cpu_ticks


def test_no_cpu_when_idle(daemon):
    clients = [daemon.connect() for _ in range(10)]
    for client in clients:
        client.call("ping")
    daemon.probe.call("ping")
    before = cpu_ticks(daemon)
    # The interval that is observed: nothing arrives on this socket.
    daemon.probe.sock.settimeout(2)
    with contextlib.suppress(TimeoutError):
        daemon.probe.sock.recv(1, socket.MSG_PEEK)
    assert cpu_ticks(daemon) - before <= os.sysconf("SC_CLK_TCK") // 50
    for client in clients:
        client.close()
