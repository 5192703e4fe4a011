"""draftd under a service manager: what it tells its NOTIFY_SOCKET and when, when it feeds the watchdog, what the journal gets."""

import os
import select
import signal
import socket
import subprocess
import time

import pytest

from conftest import PATIENCE_S, SANITIZED, WRAPPER, Daemon, Tracer
from test_lifecycle import CASE, reloadable  # noqa: F401 (a fixture)
from wire_codec import ErrorReply

# what an engine that launches nothing may take until it counts as hung: a launch (limits.h), and event_timeout
HANG_S = 30 + 1


def parse(datagram):
    return dict(line.split("=", 1) for line in datagram.decode().split("\n"))


def hear(daemon, wanted):
    """Reads what the manager is told up to the datagram that has the assignment `wanted`; returns them all, as maps."""
    heard = []
    daemon.manager.settimeout(PATIENCE_S)
    while not heard or heard[-1].get(wanted) is None:
        heard.append(parse(daemon.manager.recv(4096)))
    return heard


def monotonic_us():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


# ---- what the manager is told ----


def test_a_start_says_how_far_it_is(slow_model):
    """Each word of progress asks for more time, and READY=1 comes with what is served."""
    daemon = slow_model.start(wait=False)
    *progress, ready = hear(daemon, "READY")
    words = [said["STATUS"] for said in progress]
    assert any("reading the model, 100%" in word for word in words) and any("loading the tables" in word for word in words)
    assert "Starting: testing the model, 0%" in words
    assert {said["EXTEND_TIMEOUT_USEC"] for said in progress} == {"30000000"}
    assert ready == {"READY": "1", "STATUS": "Serving slow on cpu, generation 1"}
    assert len(words) < 350  # a percent of each phase at most, or the manager's queue would overflow


def test_a_reload_says_when_it_began_and_what_came_of_it(reloadable):
    daemon, write, model = reloadable
    before = monotonic_us()
    daemon.process.send_signal(signal.SIGHUP)
    reloading, *progress, ready = hear(daemon, "READY")
    assert reloading["RELOADING"] == "1" and before <= int(reloading["MONOTONIC_USEC"]) <= monotonic_us()
    assert progress and all(said["STATUS"].startswith("Reloading: ") for said in progress)
    assert {said["EXTEND_TIMEOUT_USEC"] for said in progress} == {"30000000"}
    assert ready["STATUS"] == "Serving model on cpu, generation 2"
    write("[limits]\nmax_row = 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    reloading, ready = hear(daemon, "READY")
    assert "RELOADING" in reloading
    assert ready["STATUS"] == "Serving model on cpu, generation 2; the last reload was refused"


def test_a_signal_during_a_reload_is_another_reload(slow_model):
    """Whoever sends it waits for a RELOADING=1 that is younger: there is one for each signal."""
    daemon = slow_model.start()
    begun = []
    for _ in range(2):
        before = monotonic_us()
        daemon.process.send_signal(signal.SIGHUP)
        if begun:
            ready = hear(daemon, "READY")[-1]  # of the first one, which was under way
            assert ready["STATUS"].endswith("generation 2")
        begun.append(int(hear(daemon, "MONOTONIC_USEC")[-1]["MONOTONIC_USEC"]))
        assert begun[-1] >= before
    assert hear(daemon, "READY")[-1]["STATUS"].endswith("generation 3")
    assert daemon.probe.call("stats")[0]["reloads"] == 2


def test_the_end_asks_for_the_time_it_may_take(slow_model):
    daemon = slow_model.start("--drain-timeout", "200s")
    with daemon.connect() as client:
        slow_model.draft(client)
        daemon.process.send_signal(signal.SIGTERM)
        (stopping,) = hear(daemon, "STOPPING")
    assert 200_000_000 < int(stopping["EXTEND_TIMEOUT_USEC"]) < 240_000_000
    assert stopping["STATUS"] == "Draining: the daemon got SIGTERM"
    assert daemon.wait() == 0


def test_a_reload_that_ends_during_a_drain_makes_nothing_ready(slow_model):
    daemon = slow_model.start("--drain-timeout", "60s")
    with daemon.connect() as client:
        slow_model.draft(client)
        daemon.process.send_signal(signal.SIGHUP)
        hear(daemon, "RELOADING")
        ids = [client.submit("draft", slow_model.params(client)) for _ in range(30)]  # more than a load takes
        client.call("ping")
        daemon.process.send_signal(signal.SIGTERM)
        hear(daemon, "STOPPING")
        daemon.process.send_signal(signal.SIGHUP)
        with pytest.raises(ErrorReply) as refused:  # no other one follows it
            client.call("reload")
        assert refused.value.name == "DRAINING"
        generations = [client.wait(id)[0]["generation"] for id in ids]
    assert daemon.wait() == 0
    assert generations[-1] == 2, "the reload took longer than the drafts"
    assert "another one follows it" not in daemon.log
    daemon.manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            assert "READY" not in parse(daemon.manager.recv(4096))


def fill(path):
    """Until the socket takes nothing more; returns how many datagrams that were."""
    count = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            while True:
                sender.sendto(b"X=1", str(path))
                count += 1
        except BlockingIOError:
            return count


def test_nothing_that_the_manager_must_learn_is_lost(reloadable):
    """Its socket is full through a whole reload, and again at the end: the clients notice nothing, and it learns all, in order."""
    daemon, _, _ = reloadable
    fill(daemon.folder / "notify")
    daemon.probe.call("reload")
    assert daemon.probe.call("draft", CASE.params())[0]["generation"] == 2
    assert "READY" not in parse(daemon.manager.recv(4096))  # now there is room
    heard = [said for said in hear(daemon, "READY") if "X" not in said]
    assert [key for said in heard for key in ("RELOADING", "READY", "STOPPING") if key in said] == ["RELOADING", "READY"]
    assert heard[-1]["STATUS"] == "Serving model on cpu, generation 2"
    client = daemon.connect()  # one that does not close keeps it for a while
    fill(daemon.folder / "notify")
    daemon.process.send_signal(signal.SIGTERM)
    assert client.receive()[0][1] == "goaway"
    heard = hear(daemon, "STOPPING")
    assert "STOPPING" not in heard[0]
    client.close()
    assert daemon.wait() == 0


def test_ready_is_not_lost_to_a_full_socket(start, folder):
    class Deaf(Daemon):
        def notify_socket(self):
            manager = super().notify_socket()
            self.filled = fill(self.folder / "notify")
            return manager

    place = folder / "deaf"
    place.mkdir()
    daemon = Deaf(place)
    try:
        with daemon.raw_when_possible():
            pass
        heard = hear(daemon, "READY")
        assert "X" in heard[0] and heard[-1]["STATUS"].startswith("Serving ")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0
    finally:
        daemon.dismiss()


# ---- the watchdog ----


def watchdog_within(daemon, seconds):
    """Whether the watchdog is fed within that time."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([daemon.manager], [], [], left)[0] and "WATCHDOG" in parse(daemon.manager.recv(4096)):
            return True
    return False


def forget(daemon):
    while select.select([daemon.manager], [], [], 0)[0]:
        daemon.manager.recv(4096)


def test_the_watchdog_is_fed_at_half_its_interval(start):
    daemon = start(env={"WATCHDOG_USEC": "1000000"})
    times = []
    for _ in range(4):
        hear(daemon, "WATCHDOG")
        times.append(time.monotonic())
    assert 0.9 < times[3] - times[1] < 20  # two intervals of half a second, on a machine that may be slow


def test_a_watchdog_of_another_process_is_not_fed(start):
    daemon = start(env={"WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"})
    for _ in range(100):
        daemon.probe.call("ping")
    assert not watchdog_within(daemon, 0.1)


def test_a_hung_loop_loses_the_watchdog(start):
    daemon = start(env={"WATCHDOG_USEC": "20000"})
    assert watchdog_within(daemon, PATIENCE_S)
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitpid(daemon.pid, os.WUNTRACED)  # all its threads stand still
    forget(daemon)
    assert not watchdog_within(daemon, 0.5)
    daemon.process.send_signal(signal.SIGCONT)
    assert watchdog_within(daemon, PATIENCE_S)


@pytest.mark.skipif(SANITIZED or bool(WRAPPER), reason="half a minute of waiting; valgrind runs one thread at a time")
def test_a_hung_engine_loses_the_watchdog(start):
    """Every thread but the loop's is stopped while a draft waits: the loop answers, and for all that the watchdog is not fed any
    more. When the engine goes on, so does everything."""
    daemon = start(env={"WATCHDOG_USEC": "200000"})
    tracer = Tracer()
    others = [int(name) for name in os.listdir(daemon.proc("task")) if int(name) != daemon.pid]
    stopped = []
    try:
        try:
            for thread in others:
                tracer.stop(thread)
                stopped.append(thread)
        except PermissionError:
            pytest.skip("this kernel lets nobody be traced")
        begin = time.monotonic()
        id = daemon.probe.submit("draft", CASE.params())
        daemon.probe.call("ping")
        while watchdog_within(daemon, 2):
            assert time.monotonic() - begin < HANG_S + PATIENCE_S
        assert time.monotonic() - begin > HANG_S
        daemon.probe.call("ping")
        assert "the engine has been stuck for 31 s; the watchdog is not fed" in daemon.log
    finally:
        for thread in stopped:
            tracer.go_on(thread)
    assert daemon.probe.wait(id)[0]["tokens"] == CASE.tokens
    assert watchdog_within(daemon, PATIENCE_S)


# ---- the journal ----


def can_mount():
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="only root may put a journal of the test's own in the place of the real one")
def test_the_journal_gets_fields(start, folder):
    """A socket of ours at the journal's path, in a mount namespace of the daemon's own, and stderr that JOURNAL_STREAM names."""
    place = folder / "journal"
    place.mkdir()
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.bind(str(place / "socket"))
    journal.settimeout(PATIENCE_S)
    stream = socket.socketpair()
    info = os.fstat(stream[1].fileno())
    script = f'mkdir -p /run/systemd/journal && mount --bind {place} /run/systemd/journal && exec "$@"'
    inside = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none /run && {script}", "sh"]
    socket_path = folder / "s"
    daemon = start(
        "--socket", socket_path, "--log-level", "debug", command=inside, socket=socket_path,
        env={"JOURNAL_STREAM": f"{info.st_dev}:{info.st_ino}"}, preexec=lambda: os.dup2(stream[1].fileno(), 2),
    )

    def entry(key, text):
        while True:
            lines = journal.recv(65536).decode().splitlines()
            fields = dict(line.split("=", 1) for line in lines)
            if text in fields.get(key, ""):
                return fields

    ready = entry("MESSAGE", "ready on ")
    assert ready["PRIORITY"] == "5" and ready["SYSLOG_IDENTIFIER"] == "draftd" and "DRAFTD_CONNECTION" not in ready
    with daemon.raw() as sock:
        sock.sendall(b"XX")
        while sock.recv(4096):
            pass
    refused = entry("DRAFTD_ERROR", "BAD_FRAME")
    assert refused["PRIORITY"] == "4" and int(refused["DRAFTD_CONNECTION"]) > 1
    assert (refused["DRAFTD_PEER_PID"], refused["DRAFTD_PEER_UID"]) == (str(os.getpid()), str(os.getuid()))
    with pytest.raises(ErrorReply):
        daemon.probe.wait(id := daemon.probe.submit("region_close", {"region": 77}))
    refused = entry("DRAFTD_ERROR", "NOT_FOUND")
    assert refused["DRAFTD_REQUEST"] == str(id) and refused["DRAFTD_CONNECTION"] == "1" and refused["PRIORITY"] == "7"
    journal.close()
    for end in stream:
        end.close()
    # the journal is gone: lines go to what is left of stderr, or nowhere, and nobody waits for it
    daemon.probe.call("ping")
