"""An idle daemon uses no processor time, with no clients and with silent ones."""

import contextlib
import os
import socket

import pytest

import golden
from test_limits import cpu_ticks


@pytest.mark.alone
@pytest.mark.parametrize("options", [(), ("--engine-spin", "20ms", "--loop-spin", "20ms")])
def test_no_cpu_when_idle(start, options):
    daemon = start(*options)
    clients = [daemon.connect() for _ in range(10)]
    for client in clients:
        client.call("ping")
    daemon.probe.call("draft", golden.case("greedy_small").params())
    # What spins after a draft ends when its time is over, while nothing arrives on this socket.
    daemon.probe.sock.settimeout(0.1)
    with contextlib.suppress(TimeoutError):
        daemon.probe.sock.recv(1, socket.MSG_PEEK)
    before = cpu_ticks(daemon)
    # The interval that is observed: nothing arrives on this socket.
    daemon.probe.sock.settimeout(2)
    with contextlib.suppress(TimeoutError):
        daemon.probe.sock.recv(1, socket.MSG_PEEK)
    assert cpu_ticks(daemon) - before <= os.sysconf("SC_CLK_TCK") // 50
    for client in clients:
        client.close()
