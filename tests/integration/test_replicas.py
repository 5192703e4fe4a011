"""Several replicas behind one socket: here on the CPU, each with its own head and threads, and all on one queue."""

import json
import os
import re
import signal
import subprocess
import threading

import pytest

import golden
from conftest import BUILD, PATIENCE_S, SANITIZED, WRAPPER, Daemon, Tracer, draftctl
from golden import Case
from test_draftctl import good
from test_metrics import metrics
from wire_codec import ErrorReply

CASE = golden.case("sampled")
TWO = ("--devices", "CPU,CPU")


def replicas(client):
    return client.call("stats")[0]["replicas"]


@pytest.mark.parametrize("path", golden.PATHS, ids=lambda path: path.stem)
def test_golden_cases_on_each(start, path):
    """Drafts that come all at once, until both replicas have launched: whoever launches, the bits are the recorded ones."""
    case = Case(path)
    base = case.params()["base"]
    daemon = start(*TWO, "--max-rows", str(case.rows), model=path)  # so that no launch has both drafts
    with daemon.connect() as client:
        result, (fd,) = client.call("region_open", {"bytes": len(base), "memory": "host"})
        os.pwrite(fd, base, 0)
        os.close(fd)
        place = {"region": result["region"], "offset": 0, "row_stride": case.block, "step_stride": case.cell}
        for _ in range(1000):
            os.kill(daemon.pid, signal.SIGSTOP)
            ids = [client.submit("draft", case.params(base=place, logits=True)) for _ in range(2)]
            os.kill(daemon.pid, signal.SIGCONT)
            for id in ids:
                case.check(client.wait(id)[0])
            if all(replica["launches"] > 0 for replica in replicas(daemon.probe)):
                break
        else:
            pytest.fail("one replica has it all")


def test_hello_stats_and_metrics(start):
    """The processor is one device, however many replicas run on it; what they launched adds up."""
    daemon = start(*TWO, model=CASE.path)
    backend = daemon.probe.server["backend"]
    assert backend["tensor_parallel"] == 1
    assert [device["uuid"] for device in backend["devices"]] == ["CPU"]
    with daemon.connect() as client:
        for id in [client.submit("draft", CASE.params()) for _ in range(50)]:
            client.wait(id)
    stats = daemon.probe.call("stats")[0]
    assert [replica["devices"] for replica in stats["replicas"]] == [["CPU"], ["CPU"]]
    assert sum(replica["launches"] for replica in stats["replicas"]) == sum(count for _, _, count in stats["launches"])
    assert sum(replica["rows"] for replica in stats["replicas"]) == stats["rows"] == 50 * CASE.rows
    assert sum(replica["busy_us"] for replica in stats["replicas"]) == stats["device_busy_us"]
    families = metrics(daemon.probe)
    for key, name in ("launches", "launches"), ("rows", "launched_rows"):
        samples = families[f"draftd_replica_{name}_total"].samples
        assert [value for (_, labels), value in sorted(samples.items())] == [replica[key] for replica in stats["replicas"]]
    infos = families["draftd_replica_info"].samples
    assert [dict(labels) for _, labels in sorted(infos)] == [{"replica": str(i), "rank": "0", "uuid": "CPU"} for i in range(2)]
    shown = draftctl("stats", socket=daemon.socket).stdout
    assert "replicas            0  devices CPU, launches " in shown and "\n                    1  devices CPU, launches " in shown
    for number in range(2):
        assert f"replica {number}: device CPU, {backend['devices'][0]['name']}" in daemon.log


def test_replicas_are_seen_without_a_terminal(start):
    daemon = start(*TWO, model=CASE.path)
    for _ in range(20):
        daemon.probe.call("draft", CASE.params())
    info = good(draftctl("info", socket=daemon.socket))
    assert "\nreplica 0       device 0\nreplica 1       device 0\n" in info
    assert json.loads(good(draftctl("info", "--json", socket=daemon.socket)))["backend"]["replicas"] == [["CPU"], ["CPU"]]
    device, *replicas, head, line = good(draftctl("top", "--count", "1", socket=daemon.socket)).splitlines()
    assert device.startswith("device 0   ") and replicas == ["replica 0  device 0", "replica 1  device 0"]
    assert head.endswith("  errors/s   busy 0   busy 1")
    busy = [float(share) for share in re.findall(r"([0-9.]+) %", line)]  # occupancy, all, and each
    assert busy[1] == pytest.approx((busy[2] + busy[3]) / 2, abs=0.1)


def test_loading_says_which_replica(slow_model):
    daemon = slow_model.start(*TWO, wait=False)
    words = []
    daemon.manager.settimeout(PATIENCE_S)
    while not words or "READY=1" not in words[-1]:
        words.append(daemon.manager.recv(4096).decode())
    for number in range(2):
        assert any(f"STATUS=Starting: replica {number}, loading the tables, " in word for word in words)


@pytest.mark.alone
@pytest.mark.skipif(bool(WRAPPER), reason="valgrind runs one thread at a time")
def test_drafts_run_side_by_side(slow_model):
    """Of three launches two begin at once; the third waits for the first that ends."""
    daemon = slow_model.start(*TWO)
    with daemon.connect() as client:
        ids = [client.submit("draft", slow_model.params(client)) for _ in range(3)]
        times = [client.wait(id)[0]["times_us"] for id in ids]
    assert times[1]["queue"] < times[0]["device"] / 2
    assert times[2]["queue"] > min(times[0]["device"], times[1]["device"]) / 2
    assert sorted(replica["launches"] for replica in replicas(daemon.probe)) == [1, 2]


def test_cancel(slow_model):
    daemon = slow_model.start(*TWO)
    with daemon.connect() as client:
        running = [client.submit("draft", slow_model.params(client)) for _ in range(2)]
        waiting = client.submit("draft", slow_model.params(client))
        client.notify("cancel", {"id": waiting})
        with pytest.raises(ErrorReply) as refused:
            client.wait(waiting)
        assert refused.value.name == "CANCELLED"
        for id in running:
            assert len(client.wait(id)[0]["tokens"]) == slow_model.ROWS * slow_model.STEPS
    assert sum(replica["launches"] for replica in replicas(daemon.probe)) == 2


def test_a_flood_does_not_delay_a_newcomer(slow_model):
    """Whoever floods both replicas is not served again before one who has just come."""
    daemon = slow_model.start(*TWO)
    with daemon.connect() as flood, daemon.connect() as client:
        slow_model.region(client)
        ids = [flood.submit("draft", slow_model.params(flood)) for _ in range(6)]
        queue_us = slow_model.draft(client)["times_us"]["queue"]
        waited_us = [flood.wait(id)[0]["times_us"]["queue"] for id in ids]
    assert queue_us < waited_us[3]


def test_drain_finishes_what_both_have(slow_model):
    daemon = slow_model.start(*TWO)
    with daemon.connect() as client:
        ids = [client.submit("draft", slow_model.params(client)) for _ in range(4)]
        client.call("ping")  # all have arrived
        daemon.process.send_signal(signal.SIGTERM)
        for id in ids:
            assert len(client.wait(id)[0]["tokens"]) == slow_model.ROWS * slow_model.STEPS
    daemon.probe.close()
    assert daemon.wait() == 0, daemon.log


def thread_of(daemon, name):
    while daemon.alive():  # it names itself, soon after READY=1 at the latest
        for task in os.listdir(daemon.proc("task")):
            if daemon.proc(f"task/{task}/comm").read_text() == f"{name}\n":
                return int(task)
    raise AssertionError(daemon.log)


@pytest.mark.skipif(SANITIZED or bool(WRAPPER), reason="a thread that is stopped stops what watches it")
def test_signals_at_the_very_end(start):
    """The loop is over and a replica not yet: a signal that nobody handles any more does not turn the end into a kill."""
    daemon = start(*TWO)
    tracer, thread = Tracer(), thread_of(daemon, "replica-0")
    daemon.probe.close()
    tracer.stop(thread)
    try:
        daemon.process.send_signal(signal.SIGTERM)
        while caught(daemon) & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
            assert daemon.alive(), daemon.log
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            daemon.process.send_signal(number)
    finally:
        tracer.go_on(thread)
    assert daemon.wait() == 0, daemon.log


def caught(daemon):
    """The signals that the daemon has handlers for."""
    (mask,) = (line.split()[1] for line in daemon.proc("status").read_text().splitlines() if line.startswith("SigCgt:"))
    return {number for number in signal.Signals if int(mask, 16) >> number - 1 & 1}


@pytest.mark.skipif(SANITIZED or bool(WRAPPER), reason="a thread that is stopped stops what watches it")
def test_the_clock_is_set_at_the_very_end(start):
    """A wall clock that jumps while the last replica ends is not taken for one that hangs."""
    daemon = start(*TWO, env={"LD_PRELOAD": str(BUILD / "tests/clock_jump.so")})
    tracer, thread = Tracer(), thread_of(daemon, "replica-0")
    daemon.probe.close()
    tracer.stop(thread)
    try:
        daemon.process.send_signal(signal.SIGTERM)
        while caught(daemon) & {signal.SIGTERM}:
            assert daemon.alive(), daemon.log
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.process.wait(0.2)
    finally:
        tracer.go_on(thread)
    assert daemon.wait() == 0, daemon.log


@pytest.mark.skipif(SANITIZED or bool(WRAPPER), reason="a thread that is stopped stops what watches it")
def test_one_hangs(slow_model):
    """A replica stands still in the middle of a launch: the other one serves all the same; and the daemon ends in bounded time, with
    exit status 1, without it."""
    daemon = slow_model.start(*TWO, "--drain-timeout", "100ms")
    tracer, thread = Tracer(), thread_of(daemon, "replica-0")
    client = daemon.connect()
    right = slow_model.draft(client, rows=1)["tokens"]
    client.submit("draft", slow_model.params(client))
    while (stats := daemon.probe.call("stats")[0])["queue_depth"]:
        pass
    assert stats["inflight"] == 1  # the launch is under way
    try:
        tracer.stop(thread)
    except PermissionError:
        pytest.skip("this kernel lets nobody be traced")
    with daemon.connect() as other:
        for _ in range(5):
            assert slow_model.draft(other, rows=1)["tokens"] == right
    assert daemon.probe.call("stats")[0]["inflight"] == 1
    launches = [replica["launches"] for replica in replicas(daemon.probe)]
    assert sum(launches) == 6 and launches[1] >= 5
    daemon.process.send_signal(signal.SIGTERM)
    os.waitpid(thread, Tracer.WALL)  # its end comes with the process's, which waits for ours to have seen it
    assert daemon.wait() == 1, daemon.log
    assert "drain_timeout is over" in daemon.log
    assert "the last launch does not end; leaving without it" in daemon.log


# ---- reload ----


@pytest.fixture
def reloadable(start, folder):
    """A daemon with two replicas, whose configuration file the test can change."""
    path = folder / "draftd.conf"

    def write(devices="CPU,CPU", model=CASE.path):
        path.write_text(f"[model]\npath = {model}\n[backend]\ndevices = {devices}\n")

    write()
    return start("--config", path, model=None), write


@pytest.mark.parametrize("devices", ["CPU", "CPU,CPU,CPU"])
def test_another_number_of_replicas_needs_a_restart(reloadable, devices):
    daemon, write = reloadable
    write(devices)
    with pytest.raises(ErrorReply):
        daemon.probe.call("reload")
    wanted = f"there would be {devices.count('CPU')} replica{'s' if ',' in devices else ''} of 1 device, now 2 of 1; that needs a restart"
    assert wanted in daemon.log
    assert daemon.probe.call("draft", CASE.params())[0]["tokens"] == CASE.tokens


def test_a_refused_reload_keeps_both(reloadable, folder):
    daemon, write = reloadable
    bad = folder / "bad.safetensors"
    bad.write_bytes(b"no model")
    write(model=bad)
    with pytest.raises(ErrorReply):
        daemon.probe.call("reload")
    with daemon.connect() as client:
        for _ in range(20):
            for id in [client.submit("draft", CASE.params()) for _ in range(4)]:
                result = client.wait(id)[0]
                assert result["tokens"] == CASE.tokens and result["generation"] == 1


# ---- threads and the end ----


def test_replicas_share_the_cores(start):
    """Each gets its part of them, and at least one; `threads` is for each."""
    cores = len(os.sched_getaffinity(0))

    def helpers(devices, threads):
        return start("--devices", devices, "--threads", str(threads)).counts()[1]

    alone = helpers("CPU", 1)
    for count in 1, 2, 3:
        devices = ",".join(["CPU"] * count)
        assert helpers(devices, 1) == alone + count - 1
        assert helpers(devices, 0) == alone + count - 1 + count * (max(1, cores // count) - 1)
        assert helpers(devices, 2) == alone + count - 1 + count


def test_start_and_stop_again_and_again(folder):
    """Without a client, and with a draft: nothing hangs, nothing is left."""
    for turn in range(10 if SANITIZED or WRAPPER else 50):
        place = folder / str(turn)
        place.mkdir()
        daemon = Daemon(place, "--devices", ",".join(["CPU"] * (1 + turn % 4)), model=CASE.path)
        try:
            daemon.ready()
            if turn % 2:
                with daemon.connect() as client:
                    for id in [client.submit("draft", CASE.params()) for _ in range(4)]:
                        assert client.wait(id)[0]["tokens"] == CASE.tokens
            daemon.stop()
        finally:
            daemon.dismiss()


def test_many_clients(start):
    """Four connections of a thread each, two replicas: nothing is lost or mixed up."""
    daemon = start(*TWO, model=CASE.path)
    faults = []

    def work():
        try:
            with daemon.connect() as client:
                for turn in range(20 if SANITIZED or WRAPPER else 200):
                    rows = [turn % CASE.rows]
                    ids = [client.submit("draft", CASE.params(rows, logits=True)) for _ in range(1 + turn % 3)]
                    for id in ids:
                        CASE.check(client.wait(id)[0], rows)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
