"""What one client, or a reader of the log, may cost the others: fairness, and nothing that blocks the loop."""

import os
import socket
import time


def launches(client):
    return sum(count for _, _, count in client.call("stats")[0]["launches"])


def test_a_flood_delays_a_neighbour_by_one_launch(slow_model):
    daemon = slow_model.start()
    with daemon.connect() as hog, daemon.connect() as other:
        slow_model.draft(hog), slow_model.draft(other)
        ids = [hog.submit("draft", slow_model.params(hog)) for _ in range(40)]
        hog.call("ping")  # they have arrived
        for _ in range(3):
            before = launches(other)
            slow_model.draft(other, rows=1)
            # the one under way, perhaps one that began before the draft arrived, its own
            assert launches(other) - before <= 3
        assert hog.call("stats")[0]["queue_depth"] > len(ids) // 2  # or nothing was shown


def full_pipe():
    """The writing end of a pipe that is full, and the reading end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(writer, True)
    return reader, writer


def test_a_log_that_nobody_reads_blocks_nobody(start):
    reader, writer = full_pipe()
    try:
        daemon = start(preexec=lambda: os.dup2(writer, 2))
        for _ in range(20):
            sock = daemon.raw()
            sock.sendall(b"XX")  # logged
            while sock.recv(4096):
                pass
            sock.close()
            daemon.probe.call("ping")
        daemon.settle()
        daemon.stop()
    finally:
        os.close(reader)
        os.close(writer)


def test_a_client_cannot_flood_the_log(daemon):
    begin = time.monotonic()
    for _ in range(1000):
        with daemon.raw() as sock:
            sock.sendall(b"XX")
            while sock.recv(4096):
                pass
    seconds = time.monotonic() - begin
    # limits.h: 200 at once, 50 a second; each is refused and closed, with a line each
    assert 100 < len(daemon.log.splitlines()) <= 250 + 60 * seconds
    assert seconds > 30 or "lines about clients were left out" in daemon.log


def test_a_manager_that_does_not_read_blocks_nobody(start):
    daemon = start(env={"WATCHDOG_USEC": "2000"})
    full = False
    while not full:  # until even a new sender's datagram is not taken
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(b"x", str(daemon.folder / "notify"))
            except BlockingIOError:
                full = True
    for _ in range(100):
        daemon.probe.call("ping")
    daemon.settle()
    daemon.stop()
