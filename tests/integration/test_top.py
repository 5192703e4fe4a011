"""draftctl top on a terminal of the test's own, and in a pipe."""

import contextlib
import fcntl
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from conftest import BUILD, PATIENCE_S, draftctl
from test_lifecycle import CASE

ENTER, LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"


class Terminal:
    """A pseudo-terminal with a draftctl top on it, which leads a session of its own as under a shell."""

    def __init__(self, daemon, *options, lines=30, columns=100):
        self.master, slave = pty.openpty()
        self.resize(lines, columns)
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [BUILD / "draftctl", "--socket", daemon.socket, "top", *options], stdin=slave, stdout=slave, stderr=slave,
            env=os.environ | {"TERM": "xterm"}, start_new_session=True,
            preexec_fn=self.take_terminal,
        )
        self.seen = b""

    @staticmethod
    def take_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def resize(self, lines, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds=PATIENCE_S):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):
            self.seen += os.read(self.master, 65536)
        return True

    def wait_for(self, pattern):
        """Reads on until what was shown since the last such wait matches."""
        end = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            assert time.monotonic() < end and self.read(), self.seen
        self.seen = self.seen[found.end() :]
        return found

    def press(self, keys):
        os.write(self.master, keys)

    def ended(self):
        """The exit status, of a program that ends: and the terminal is as it was."""
        status = self.process.wait(PATIENCE_S)
        while self.read(0):
            pass
        assert self.is_restored(), self.seen
        return status

    def is_restored(self):
        return self.seen.rfind(LEAVE) > self.seen.rfind(ENTER) and termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(daemon):
    terminals = []

    def terminal(*options, **more):
        terminals.append(Terminal(daemon, *options, **more))
        return terminals[-1]

    yield terminal
    for each in terminals:
        each.close()


def test_q_ends_it(daemon, terminal):
    daemon.probe.call("draft", CASE.params())
    top = terminal()
    top.wait_for(re.escape(ENTER))
    top.wait_for(rb"greedy_small on cpu.*since the start.*requests +\d.* 1.*latency.*total.*errors     none")
    assert termios.tcgetattr(top.slave) != top.before  # keys come as they are pressed
    top.press(b"x")  # means nothing
    top.press(b"q")
    assert top.ended() == 0


def test_it_looks_again(daemon, terminal):
    top = terminal("--interval", "0.1", "--count", "5")
    for _ in range(5):
        top.wait_for(rb"requests ")
    assert top.ended() == 0


SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV, signal.SIGABRT


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_signals_leave_the_terminal_as_it_was(terminal, number):
    top = terminal()
    top.wait_for(rb"errors     none")
    top.seen = ENTER + top.seen
    top.process.send_signal(number)
    status = top.ended()
    assert status == -number or status > 0 and number in (signal.SIGSEGV, signal.SIGABRT)  # a sanitizer reports those


def test_control_c(terminal):
    top = terminal()
    top.wait_for(rb"errors     none")
    top.press(b"\x03")
    assert top.ended() == -signal.SIGINT


def test_it_can_be_stopped_and_go_on(terminal):
    """As by control-Z and fg."""
    top = terminal("--interval", "100")
    top.wait_for(rb"errors     none")
    top.process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(top.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    top.wait_for(re.escape(LEAVE))
    assert termios.tcgetattr(top.slave) == top.before
    top.process.send_signal(signal.SIGCONT)
    top.wait_for(re.escape(ENTER) + rb".*errors     none")  # and is drawn again at once
    top.press(b"q")
    assert top.ended() == 0


def shown_lines(screen):
    """The terminal puts a carriage return before each newline."""
    return [line.replace(b"\x1b[K", b"").rstrip(b"\r") for line in screen.removesuffix(b"\x1b[J").split(b"\n")]


def test_a_terminal_that_changes_its_size(terminal):
    top = terminal("--interval", "100", lines=40, columns=200)
    top.wait_for(rb"errors     none.*\x1b\[J")
    top.resize(6, 20)
    lines = []
    while len(lines) != 6:  # the next one, unless a larger one was on its way
        (screen,) = top.wait_for(rb"\x1b\[H((?:(?!\x1b\[H).)*\x1b\[J)").groups()
        lines = shown_lines(screen)
    assert max(map(len, lines)) == 20
    top.resize(40, 200)
    top.wait_for(rb"errors     none")
    top.press(b"q")
    assert top.ended() == 0


def test_it_waits_for_a_daemon_that_restarts(start, folder):
    daemon = start(socket=folder / "s")
    top = Terminal(daemon, "--interval", "0.1")
    try:
        top.wait_for(rb"errors     none")
        daemon.probe.close()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0
        top.wait_for(rb"draftd is away: .*; trying again")
        again = start(socket=folder / "s")
        top.wait_for(rb"\x1b\[Hdraftd/")
        top.press(b"q")
        assert top.ended() == 0
        again.settle()
    finally:
        top.close()


def test_in_a_pipe_it_is_lines(daemon):
    done = draftctl("top", "--count", "3", "--interval", "0.1", socket=daemon.socket)
    assert done.returncode == 0 and done.stderr == ""
    device, head, *lines = done.stdout.splitlines()
    assert device.startswith("device 0   ") and device.endswith("(CPU)")
    assert head.split()[:3] == ["requests/s", "rows/s", "tokens/s"] and len(lines) == 3
    assert "\x1b" not in done.stdout and all(line.split()[0] == "0.00" or float(line.split()[0]) >= 0 for line in lines)


def test_in_a_pipe_it_ends_with_the_daemon(start):
    daemon = start()
    with subprocess.Popen(
        [BUILD / "draftctl", "--socket", daemon.socket, "top", "--interval", "0.1"], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as top:
        for _ in range(3):  # the device, the head, and a look
            assert top.stdout.readline()
        daemon.probe.close()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0
        assert top.wait(PATIENCE_S) == 1
        assert top.stderr.read().startswith("draftctl: ")


def test_nobody_listens(folder):
    done = draftctl("top", socket=folder / "none")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
