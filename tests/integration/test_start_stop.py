"""Starts under odd circumstances, and ends at odd moments: nothing is left behind, nobody is cut short."""

import os
import resource
import shutil
import signal
import subprocess
import time

import pytest
from conftest import BUILD, MODEL, SANITIZED, WRAPPER


def leftovers(daemon):
    return sorted(set(os.listdir(daemon.folder)) - {"log", "notify"})


def test_closed_standard_descriptors(start):
    """No socket or file may become descriptor 2, to which the log goes."""
    daemon = start("--log-level", "debug", preexec=lambda: os.closerange(0, 3))
    for fd in range(3):
        assert os.readlink(daemon.proc(f"fd/{fd}")) == "/dev/null"
    for _ in range(5):
        with daemon.connect() as client:
            client.call("ping")


def test_sigterm_right_after_the_socket_is_there(start):
    for _ in range(20):
        daemon = start(wait=False)
        while not daemon.socket.exists():
            assert daemon.alive(), daemon.log
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0, daemon.log
        assert leftovers(daemon) == []


def test_sigterm_while_starting(start):
    for delay in range(20):
        daemon = start(wait=False)
        lock = daemon.folder / "draftd.sock.lock"
        while not lock.exists():
            assert daemon.alive(), daemon.log
        time.sleep(delay / 2000)  # somewhere in the start; any moment must do
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0, daemon.log
        assert leftovers(daemon) == []


def held_in_its_start(start, *options, **keywords):
    """A daemon that was stopped with SIGSTOP while it loads."""
    daemon = start(*options, wait=False, **keywords)
    while not (daemon.folder / "draftd.sock.lock").exists():
        assert daemon.alive(), daemon.log
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
    assert "ready on" not in daemon.log
    return daemon


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_of_a_start_has_a_line(slow_model, number):
    daemon = held_in_its_start(slow_model.start)
    daemon.process.send_signal(number)
    daemon.process.send_signal(signal.SIGCONT)
    assert daemon.wait() == 0
    begin, end = daemon.log.splitlines()
    assert begin == f"draftd: info: starting: model {slow_model.path}, backend cpu"
    assert end == f"draftd: notice: stopped by {number.name} before it was ready"
    assert leftovers(daemon) == []


def test_a_signal_does_not_make_a_failed_start_a_good_one(folder):
    """It has said why it failed; what comes then, up to its end, changes nothing."""
    begin = [*WRAPPER, BUILD / "draftd", "--backend", "cpu", "--socket", folder / "s", "--model", folder / "none"]
    for _ in range(20):
        with subprocess.Popen(begin, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as daemon:
            while "error: " not in (line := daemon.stderr.readline()):
                assert line
            daemon.send_signal(signal.SIGTERM)
            assert (daemon.stderr.read(), daemon.wait()) == ("", 1)
        assert os.listdir(folder) == []


def test_sighup_while_starting_is_a_reload_once_ready(slow_file, start, folder):
    """What it is about was written after it had been read."""
    conf, renamed = folder / "conf", folder / "renamed.safetensors"
    conf.write_text(f"[model]\npath = {slow_file}\n")
    daemon = held_in_its_start(start, "--config", conf, model=None)
    renamed.symlink_to(slow_file)
    conf.write_text(f"[model]\npath = {renamed}\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.process.send_signal(signal.SIGCONT)
    for word in "READY=1", "RELOADING=1", "READY=1":
        assert daemon.told(word), daemon.log
    daemon.watch()
    stats, _ = daemon.probe.call("stats")
    assert (stats["model"], stats["generation"], stats["reloads"]) == ("renamed", 2, 1)


def test_lock_file_of_another_program(start, folder):
    lock = folder / "s.lock"
    lock.write_text("precious")
    daemon = start(socket=folder / "s", wait=False)
    assert not daemon.told("READY=1")
    assert daemon.wait() == 1 and str(lock) in daemon.log
    assert lock.read_text() == "precious" and not (folder / "s").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user, whose limit does not count root's threads")
@pytest.mark.skipif(SANITIZED or bool(WRAPPER), reason="these programs need threads of their own")
def test_too_few_threads(start, folder):
    """Whatever number of threads the user may have, draftd serves, or exits 1 with a sentence; it never aborts."""
    os.chmod(folder, 0o777)
    # copies: the other user may not see where this checkout lies
    program, model = shutil.copy(BUILD / "draftd", folder), shutil.copyfile(MODEL, folder / "model.safetensors")
    served = 0
    for threads in range(1, 9):
        place = folder / f"limit{threads}"
        place.mkdir()
        os.chmod(place, 0o777)

        def become_limited():
            resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))
            os.setgroups([])
            os.setgid(54321)
            os.setuid(54321)

        daemon = start(
            "--threads", "2", program=program, model=model, socket=place / "s", preexec=become_limited, wait=False
        )
        os.chmod(daemon.folder, 0o777)
        os.chmod(daemon.folder / "notify", 0o777)
        if daemon.told("READY=1"):
            served += 1
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.wait() == 0
        else:
            assert daemon.wait() == 1, daemon.log
            assert "thread" in daemon.log and "Resource temporarily unavailable" in daemon.log
        assert os.listdir(place) == []
    assert 0 < served < 8


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_what_the_user_may_not_open(start, folder):
    """A folder for the socket, a model: draftd says where to look."""
    os.chmod(folder, 0o755)
    # copies: the other user may not see where this checkout lies
    program, model = shutil.copy(BUILD / "draftd", folder), shutil.copyfile(MODEL, folder / "model.safetensors")
    own = folder / "own"
    own.mkdir()
    os.chown(own, 54321, 54321)

    def become_another():
        os.setgroups([])
        os.setgid(54321)
        os.setuid(54321)

    for place, mode, what in (folder, 0o644, "lock file can't be made"), (own, 0o600, "model.safetensors: can't be opened"):
        os.chmod(model, mode)
        daemon = start(program=program, model=model, socket=place / "s", preexec=become_another, wait=False)
        assert daemon.wait() == 1
        assert what in daemon.log and "Permission denied; " in daemon.log and "(namei -l)" in daemon.log


@pytest.mark.skipif(SANITIZED or bool(WRAPPER), reason="these programs need descriptors of their own")
def test_too_few_descriptors(start, folder):
    """Whatever number of descriptors draftd may have, it serves, or exits 1 with a sentence; it never aborts."""
    served = 0
    for count in range(4, 33):  # with fewer the loader finds no libraries
        place = folder / f"limit{count}"
        place.mkdir()
        daemon = start(
            socket=place / "s", preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)), wait=False
        )
        if daemon.told("READY=1"):
            served += 1
            with daemon.connect() as client:
                client.call("reload")
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.wait() == 0
        else:
            assert daemon.wait() == 1, (count, daemon.log)
            assert "RLIMIT_NOFILE" in daemon.log, daemon.log
        assert os.listdir(place) == []
    assert 0 < served < 29


def launch_and_die(daemon, slow_model):
    """A client whose draft is with the device, and which is gone."""

    def wait_for(field, value):
        while daemon.probe.call("stats")[0][field] != value:
            pass

    client = daemon.connect()
    client.submit("draft", slow_model.params(client, rows=slow_model.ROWS))
    client.call("ping")
    wait_for("queue_depth", 0)
    client.close()
    wait_for("connections", 1)


def test_end_waits_for_the_launch_of_a_dead_client(slow_model):
    """In the loop and not in a join: the service manager's watchdog is fed meanwhile."""
    slow_model.ROWS *= 8
    daemon = slow_model.start("--drain-timeout", "60s", env={"WATCHDOG_USEC": "20000"})
    launch_and_die(daemon, slow_model)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.told("STOPPING=1")
    for _ in range(3):
        assert daemon.told("WATCHDOG=1")
    assert daemon.wait() == 0, daemon.log
    assert leftovers(daemon) == []


def test_second_sigterm_during_the_launch_of_a_dead_client(slow_model):
    slow_model.ROWS *= 8
    daemon = slow_model.start("--drain-timeout", "60s")
    launch_and_die(daemon, slow_model)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.told("STOPPING=1")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.wait() == 1
    assert "a second signal" in daemon.log
    assert leftovers(daemon) == []
