"""How draftd starts, refuses to start, reloads, drains and ends."""

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import golden
import wire_codec
from conftest import BUILD, MODEL, PATIENCE_S, ROOT, WRAPPER, draftctl
from wire_codec import ErrorReply

CASE = golden.case("greedy_small")
LONG = "--drain-timeout", "60s"


# ---- the end ----


@pytest.mark.alone
@pytest.mark.valgrind
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_end_takes_less_than_a_second(start, number):
    daemon = start()
    daemon.probe.call("draft", CASE.params())
    begin = time.monotonic()
    daemon.process.send_signal(number)
    assert daemon.wait() == 0
    assert time.monotonic() - begin < (20 if WRAPPER else 1)
    assert sorted(os.listdir(daemon.folder)) == ["log", "notify"]
    (goaway, _) = daemon.probe.receive()
    assert goaway[:2] == [2, "goaway"] and daemon.probe.receive() is None


def test_no_accepted_request_is_lost(slow_model):
    """SIGTERM under load: what was accepted is answered; what comes after is DRAINING; then exit 0."""
    daemon = slow_model.start(*LONG)
    clients = [daemon.connect() for _ in range(3)]
    expected = [slow_model.draft(client)["tokens"] for client in clients]
    ids = [[client.submit("draft", slow_model.params(client)) for _ in range(4)] for client in clients]
    for client in clients:
        client.call("ping")  # they have arrived
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.told("STOPPING=1")
    for client, mine, tokens in zip(clients, ids, expected):
        for id in mine:
            assert client.wait(id)[0]["tokens"] == tokens
        assert [message[1] for message in client.notifications] == ["goaway"]
        assert client.receive() is None
    with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
        daemon.raw()
    assert daemon.wait() == 0


def test_new_work_is_refused_while_draining(slow_model):
    daemon = slow_model.start(*LONG)
    with daemon.connect() as client:
        slow_model.draft(client)
        ids = [client.submit("draft", slow_model.params(client)) for _ in range(4)]
        client.call("ping")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.told("STOPPING=1")
        late = client.submit("draft", slow_model.params(client))
        with pytest.raises(ErrorReply) as refused:
            client.wait(late)
        assert refused.value.name == "DRAINING" and refused.value.retryable
        for id in ids:
            client.wait(id)
    assert daemon.wait() == 0


@pytest.mark.alone
def test_what_is_sent_is_answered_while_draining(start):
    """A pipeline that the drain cuts in two, in the daemon's hands and in the socket: each request gets its reply, and then
    comes an end of stream, no reset."""
    daemon = start(*LONG)
    with daemon.connect() as client:
        ids = range(1000, 3000)
        pings = b"".join(wire_codec.request(id, "ping") for id in ids)
        client.send(wire_codec.request(999, "drain") + pings + wire_codec.request(3000, "draft", CASE.params()))
        got = {}
        while whole := client.receive():
            message, _ = whole
            if message[0] == 1:
                got[message[1]] = message[2]
        assert sorted(got) == [999, *ids, 3000]
        assert got.pop(3000)["name"] == "DRAINING"
        assert set(got.values()) == {None}
        begin = time.monotonic()
    assert daemon.wait() == 0
    assert time.monotonic() - begin < (20 if WRAPPER else 1)


def test_drain_ends_clients_that_never_stop(start):
    """One that sends on and on is answered for a while; a client that does not close is cut."""
    daemon = start(*LONG)
    with daemon.connect() as flood:
        pings = wire_codec.request(7, "ping") * 500

        def send():
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while True:
                    flood.sock.sendall(pings)

        sender = threading.Thread(target=send)
        sender.start()
        flood.sock.recv(1000)
        daemon.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            while flood.sock.recv(1 << 20):
                pass
        assert daemon.wait() == 0
        assert time.monotonic() - begin < 20
        sender.join(PATIENCE_S)


UNREAD_S = 10  # so long a client may read nothing of what waits for it while the daemon drains


def ask_for_much(client, end):
    """Requests whose replies are many times what a socket holds, and then `end`; nothing is read. Returns their ids."""
    ids = range(1000, 1400)
    client.send(b"".join(wire_codec.request(id, "metrics") for id in ids) + end)
    return ids


@pytest.mark.parametrize("way", ["sends on", "waits for drafts", "has ended its stream", "ends its stream"])
def test_drain_goes_on_without_a_client_that_reads_nothing(slow_model, way):
    """It is closed, and the log says why; who reads has everything, and the exit is a good one."""
    daemon = slow_model.start(*LONG)
    with daemon.connect() as deaf, daemon.connect() as other:
        slow_model.region(other)
        sender = threading.Thread(target=lambda: None)
        if way == "sends on":

            def send():
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    while True:
                        deaf.sock.sendall(wire_codec.request(7, "ping") * 500)

            sender = threading.Thread(target=send)
        elif way == "waits for drafts":
            params = slow_model.params(deaf)
            ask_for_much(deaf, b"".join(wire_codec.request(id, "draft", params) for id in range(50)))
        else:
            ask_for_much(deaf, b"")
        if way == "has ended its stream":
            deaf.sock.shutdown(socket.SHUT_WR)
        sender.start()
        # so many replies are more than a socket holds: the rest is in its outbox
        asked, enough = ("ping", 40_000) if way == "sends on" else ("metrics", 400)
        while daemon.probe.call("stats")[0]["requests"].get(asked, 0) < enough:
            pass
        drafts = [other.submit("draft", slow_model.params(other)) for _ in range(4)]
        other.call("ping")
        begin = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.told("STOPPING=1")
        if way == "ends its stream":
            deaf.sock.shutdown(socket.SHUT_WR)
        for draft in drafts:
            assert "tokens" in other.wait(draft)[0]
        other.close()
        assert daemon.wait() == 0, daemon.log
        assert UNREAD_S - 1 < time.monotonic() - begin < 40
        assert f"has read none of its replies for {UNREAD_S} s while the daemon drains" in daemon.log
        sender.join(PATIENCE_S)


@pytest.mark.alone
def test_drain_waits_for_a_client_that_reads_slowly(start):
    """Little by little, less than makes the socket writable again in the time after which it would count as one that reads
    nothing, and for longer than that: it gets every reply, and then the end of the stream."""
    daemon = start(*LONG)
    with daemon.connect() as client:
        ids = ask_for_much(client, wire_codec.request(2000, "drain"))
        begin = time.monotonic()
        while time.monotonic() < begin + UNREAD_S + 2.5:
            client.reader.feed(client.sock.recv(1 << 10), [])
            select.select([daemon.pidfd], [], [], 0.15)  # the pace: 7 KiB a second
        assert daemon.alive()
        got = []
        while whole := client.receive():
            message, _ = whole
            if message[0] == 1:
                assert message[2] is None
                got.append(message[1])
        assert sorted(got) == [*ids, 2000]
    assert daemon.wait() == 0, daemon.log


@pytest.mark.alone
def test_second_sigterm_means_now(slow_model):
    daemon = slow_model.start(*LONG)
    with daemon.connect() as client:
        one = slow_model.seconds(client)
        for _ in range(60):
            client.submit("draft", slow_model.params(client))
        client.call("ping")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.told("STOPPING=1")
        daemon.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        daemon.wait()
        assert time.monotonic() - begin < 5 * one + 1
    assert not daemon.socket.exists()


def test_sigterm_after_a_clients_drain_is_the_first_signal(slow_model):
    """The manager stops a daemon that a client drains already: nothing is dropped."""
    daemon = slow_model.start(*LONG)
    with daemon.connect() as client, daemon.connect() as other:
        drafts = [client.submit("draft", slow_model.params(client)) for _ in range(8)]
        client.call("ping")
        other.call("drain")
        daemon.process.send_signal(signal.SIGTERM)
        for draft in drafts:
            assert "tokens" in client.wait(draft)[0]
    assert daemon.wait() == 0, daemon.log


@pytest.mark.alone
def test_drain_timeout_ends_the_waiting(slow_model):
    daemon = slow_model.start("--drain-timeout", "10ms")
    with daemon.connect() as client:
        one = slow_model.seconds(client)
        for _ in range(60):
            client.submit("draft", slow_model.params(client))
        client.call("ping")
        daemon.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        assert daemon.wait() == 1
        assert time.monotonic() - begin < 5 * one + 1
    assert not daemon.socket.exists()


def test_drain_by_a_client(start):
    daemon = start()
    with daemon.connect() as client:
        assert client.call("drain") == ({}, [])
        while (message := client.receive()) is not None:
            assert message[0][1] == "goaway"
    assert daemon.wait() == 0
    assert not daemon.socket.exists()


# ---- the socket ----


def test_stale_socket_is_replaced(start):
    daemon = start()
    daemon.process.kill()
    daemon.wait()
    assert daemon.socket.exists()
    start(socket=daemon.socket)


def test_socket_file_of_another_program_is_replaced_only_if_dead(start, folder):
    path = folder / "s"
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(path))
    other.listen()
    refuses(start(socket=path, wait=False), str(path))
    assert path.exists()
    other.close()
    start(socket=path)


def test_live_socket_is_never_stolen(daemon, start):
    second = start(socket=daemon.socket, wait=False)
    refuses(second, str(daemon.socket))
    daemon.probe.call("ping")
    daemon.connect().close()


def test_socket_that_is_a_file(start, folder):
    path = folder / "s"
    path.write_text("precious")
    refuses(start(socket=path, wait=False), str(path))
    assert path.read_text() == "precious"


def test_socket_mode(start):
    daemon = start("--socket-mode", "600")
    assert daemon.socket.stat().st_mode & 0o7777 == 0o600
    daemon = start()
    assert daemon.socket.stat().st_mode & 0o7777 == 0o660


def test_socket_path_lengths(start, folder):
    for length, good in (107, True), (108, False), (109, False), (4096, False):
        name = str(folder) + "/" + "s" * (length - len(str(folder)) - 1)
        assert len(name) == length
        if good:
            start(socket=name).stop()
        else:
            refuses(start(socket=name, wait=False), str(length), "107")
        assert not any(entry.startswith("s") for entry in os.listdir(folder))


def test_inherited_socket_is_not_unlinked(start, folder):
    """Under systemd-socket-activate: the first client's connection waits until the daemon serves it."""
    path = folder / "activated"
    command = [shutil.which("systemd-socket-activate"), "--listen", path, "--setenv=NOTIFY_SOCKET"]
    daemon = start(command=command, socket=path, wait=False)
    daemon.raw_when_possible().close()
    daemon.ready()
    with daemon.connect() as client:
        assert client.call("draft", CASE.params())[0]["tokens"] == CASE.tokens
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.wait() == 0, daemon.log
    assert path.exists()


# ---- starts that must fail ----


def refuses(daemon, *words):
    """Exit 1 with one sentence that has all of `words`, never ready, nothing left behind."""
    assert not daemon.told("READY=1")
    assert daemon.wait() == 1, daemon.log
    lines = [line for line in daemon.log.splitlines() if not line.startswith("draftd: info: ")]
    assert len(lines) == 1 and lines[0].startswith("draftd: error: "), daemon.log
    for word in words:
        assert word in lines[0]
    assert sorted(os.listdir(daemon.folder)) == ["log", "notify"]


BAD_STARTS = {
    "no model": (None, [], "--model"),
    "model that is not there": ("/nowhere/model.safetensors", [], "/nowhere/model.safetensors"),
    "model that is no model": (ROOT / "LICENSE", [], "LICENSE"),
    "folder without a checkpoint": (ROOT / "tests", [], "tests"),
    "unknown option": (MODEL, ["--colour", "red"], "--colour"),
    "value out of range": (MODEL, ["--max-rows", "0"], "--max-rows is 0; it must be 1 to 1024"),
    "folder of the socket is not there": (MODEL, ["--socket", "/nowhere/s"], "/nowhere"),
    "configuration that is not there": (MODEL, ["--config", "/nowhere/c"], "/nowhere/c: can't be opened"),
    "configuration that is a folder": (MODEL, ["--config", "/tmp"], "/tmp: is a directory"),
}


@pytest.mark.parametrize("name", BAD_STARTS)
def test_bad_start(start, name):
    model, options, words = BAD_STARTS[name]
    refuses(start(*options, model=model, wait=False), words)


@pytest.mark.parametrize("before", ["", "x"])
def test_a_long_path_is_cut_between_characters(start, folder, before):
    """Of the model, of the configuration, of both in one sentence; and by draftctl."""
    long = "/" + before + "é" * 110
    conf = folder / long[1:]
    conf.write_text(f"[model]\npath = {long}\n")
    for options in ["--model", long], ["--config", long], ["--config", conf]:
        daemon = start(*options, model=None, wait=False)
        assert daemon.wait() == 1
        assert "é: can't be opened" in daemon.log_path.read_bytes().decode()  # whole characters
    assert "é: can't be opened" in draftctl("model", "show", long).stderr


HAS_GPU = os.path.exists("/dev/nvidiactl")
needs_no_gpu = pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")


@needs_no_gpu
def test_cuda_is_refused_without_a_gpu(start):
    """By a build with CUDA and by one without: exit 1 with one sentence that says what would do instead."""
    refuses(start("--backend", "cuda", wait=False), "backend", "'auto'")


@needs_no_gpu
def test_auto_serves_on_the_cpu_and_says_why(start):
    daemon = start("--backend", "auto")
    (line,) = [line for line in daemon.log.splitlines() if "backend cpu, because " in line]
    assert re.search(r"this build has no CUDA backend|no NVIDIA (driver|GPU)", line)
    with daemon.connect() as client:
        assert client.server["backend"]["name"] == "cpu"
        assert client.call("draft", CASE.params())[0]["tokens"] == CASE.tokens
    assert "warning" not in daemon.log


@needs_no_gpu
def test_auto_on_the_cpu_names_what_it_does_not_use(start, folder):
    conf = folder / "conf"
    conf.write_text("[backend]\ndevices = 0\n[cuda]\nl2 = keep\n")
    daemon = start("--backend", "auto", "--config", conf, "--cuda-form", "step")
    (line,) = [line for line in daemon.log.splitlines() if "warning" in line]
    assert line.endswith("took the CPU, which makes no use of [backend] devices, --cuda-form, [cuda] l2")


def test_truncated_model(start, folder):
    path = folder / "cut.safetensors"
    path.write_bytes(MODEL.read_bytes()[:-1])
    refuses(start(model=path, wait=False), "cut.safetensors")


CONFIGS = {
    "unknown key": ("[limits]\nmax_row = 1\n", ":2: [limits] has no key max_row"),
    "unknown section": ("[limit]\n", ":1: there is no section [limit]"),
    "duplicate": ("[limits]\nmax_rows = 1\nmax_rows = 1\n", ":3: [limits] max_rows was set in line 2"),
    "long line": ("[model]\npath = " + "x" * 5000, ":2: the line is 5007 bytes long; the most is 4096"),
    "bad value": ("[backend]\nname = gpu\n", ':2: [backend] name is "gpu"; it must be one of auto, cpu, cuda'),
    "NUL": ("[log]\nlevel = in\0fo\n", ":2: byte 11 is 0x00"),
    "frames over replies": (
        "[limits]\nmax_frame_bytes = 512M\n[model]\npath = x\n", ":2: max_output_bytes is 268435456, less than max_frame_bytes",
    ),
    "regions over memory": ("[model]\npath = x\n[limits]\nmax_memory_bytes = 1K\n", ":4: max_memory_bytes is 1024, less than"),
    "group": ("[model]\npath = x\n[socket]\ngroup = no-such-group\n", ":4: [socket] group is no-such-group; there is no such"),
    "soft cap": (f"[model]\npath = {MODEL}\nsoft_cap = 1e-45\n", f":3: {MODEL}: the soft cap option is 1.4013e-45: it must be at least"),
    "model": ("[model]\n\npath = /none\n", ":3: /none: can't be opened: No such file or directory"),
    "model beside a cap": ("[model]\nsoft_cap = 1\npath = /none/the soft cap option\n", ":3: /none/the soft cap option: can't be"),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("check", [[], ["--check-config"]], ids=["start", "check"])
def test_bad_configuration(start, folder, name, check):
    path = folder / "c"
    path.write_text(CONFIGS[name][0])
    refuses(start("--config", path, *check, model=None, wait=False), f"{path}{CONFIGS[name][1]}")


@needs_no_gpu
def test_gpus_that_are_not_there_are_named_with_their_line(folder):
    path = folder / "c"
    for text, line in ("[backend]\n\nname = cuda\n", 3), ("[backend]\nname = cuda\ndevices = 0\n", 2):
        path.write_text(f"{text}[model]\npath = {MODEL}\n[socket]\npath = {folder}/s\n")
        done = run("--config", path)
        assert done.returncode == 1 and f"{path}:{line}: " in done.stderr and "'auto'" in done.stderr


@pytest.mark.skipif(os.environ.get("CUDA") != "0", reason="this build has CUDA")
def test_a_build_without_cuda_is_refused_by_both(folder):
    """By the start and by --check-config, with one sentence, and the line of what asks for it."""
    path = folder / "c"
    why = "this build has no CUDA backend: use the backend 'cpu' or 'auto', or a build with CUDA\n"
    served = f"[model]\npath = {MODEL}\n[socket]\npath = {folder}/s\n"
    for text, options, place in (
        (f"{served}[backend]\nname = cuda\n", [], f"{path}:6: "),
        (f"{served}[backend]\nname = cuda\ndevices = 0,1\ntensor_parallel = 1\n", [], f"{path}:6: "),
        (f"{served}[backend]\nname = cpu\n", ["--backend", "cuda"], ""),
    ):
        path.write_text(text)
        for check in [], ["--check-config"]:
            done = run("--config", path, *options, *check)
            said = "".join(line for line in done.stderr.splitlines(True) if not line.startswith("draftd: info: starting: "))
            assert (done.returncode, done.stdout, said) == (1, "", f"draftd: error: {place}{why}")


@pytest.mark.skipif(os.environ.get("CUDA") != "1", reason="this build has no CUDA")
def test_check_config_needs_no_gpu():
    done = run("--model", MODEL, "--backend", "cuda", "--check-config")
    assert (done.returncode, done.stdout, done.stderr) == (0, "configuration ok\n", "")


def test_a_socket_that_cannot_be_made_is_named_with_its_line(start, folder):
    path = folder / "c"
    for check in [], ["--check-config"]:
        for socket, why in (
            ("/none/s", "the socket's folder does not exist: /none; make it, or choose another [socket] path"),
            (folder, f"{folder} is a folder; name a socket in it with [socket] path"),
        ):
            path.write_text(f"[socket]\npath = {socket}\n")
            refuses(start("--config", path, *check, command=["env"], wait=False), f"error: {path}:2: {why}")
            refuses(start("--socket", socket, *check, command=["env"], wait=False),
                    f"error: {why.replace('[socket] path', '--socket')}")


def run(*arguments):
    return subprocess.run([BUILD / "draftd", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)


def test_check_config(folder):
    path = folder / "c"
    path.write_text(f"[model]\npath = {MODEL}\n[socket]\npath = {folder}/s\n")
    done = run("--config", path, "--check-config")
    assert done.returncode == 0 and done.stdout == "configuration ok\n" and done.stderr == ""
    assert os.listdir(folder) == ["c"]


def test_version_and_help():
    done = run("--version")
    assert done.returncode == 0 and re.fullmatch(r"draftd \d+\.\d+\.\d+\n", done.stdout)
    done = run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for option in (
        "socket", "model", "backend", "devices", "max-rows", "max-steps", "multiplier", "soft-cap", "config",
        "check-config", "version", "help",
    ):
        assert f"--{option}" in done.stdout


# ---- reload ----


@pytest.fixture
def reloadable(start, folder):
    """A daemon whose configuration file, and so whose model, the test can change."""
    path = folder / "draftd.conf"
    model = folder / "model.safetensors"
    shutil.copy(MODEL, model)

    def write(text=""):
        path.write_text(f"[model]\npath = {model}\n{text}")

    write()
    daemon = start("--config", path, model=None)
    return daemon, write, model


def reload_by_signal(daemon):
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.told("READY=1")


def reload_by_method(daemon):
    daemon.probe.call("reload")
    assert daemon.told("READY=1")


@pytest.mark.parametrize("reload", [reload_by_signal, reload_by_method], ids=["signal", "method"])
def test_reload_takes_the_new_model(reloadable, reload):
    daemon, _, model = reloadable
    before = daemon.probe.call("draft", CASE.params())[0]
    assert before["tokens"] == CASE.tokens
    other = other_model(model)
    os.replace(other, model)
    reload(daemon)
    after = daemon.probe.call("draft", CASE.params())[0]
    assert after["generation"] > before["generation"]
    assert after["tokens"] != before["tokens"]


def other_model(model):
    """The same model with w2's rows in reverse order: another token wins."""
    data = bytearray(CASE.path.read_bytes())
    weights = CASE.bytes["markov_head.markov_w2.weight"]
    at = data.find(weights)
    size = len(weights) // CASE.vocab
    data[at : at + len(weights)] = b"".join(
        weights[r * size : (r + 1) * size] for r in reversed(range(CASE.vocab))
    )
    path = model.with_name("other.safetensors")
    path.write_bytes(data)
    return path


def test_bad_reload_changes_nothing_and_says_why(reloadable):
    daemon, write, model = reloadable
    before = daemon.probe.call("draft", CASE.params())[0]
    for damage in (
        lambda: write("[limits]\nmax_row = 1\n"),
        lambda: (write(), model.write_bytes(b"no model")),
        lambda: (write(), model.unlink()),
    ):
        damage()
        with pytest.raises(ErrorReply):
            daemon.probe.call("reload")
        reload_by_signal(daemon)
        after = daemon.probe.call("draft", CASE.params())[0]
        assert (after["tokens"], after["generation"]) == (before["tokens"], before["generation"])
    assert "draftd.conf:4: [limits] has no key max_row" in daemon.log
    assert daemon.alive()


def test_who_asked_is_told_why_a_reload_was_refused(reloadable, folder):
    """With the line of a setting, but no file's name; the log has the paths. draftctl passes it on."""
    daemon, write, model = reloadable
    conf = folder / "draftd.conf"
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{")
    named = lambda path, more="": conf.write_text(f"[model]\npath = {path}\n{more}")
    deep = folder / ("d" * 200) / "m"
    for damage, why in (
        (lambda: write("[limits]\nmax_row = 1\n"), "the configuration:4: [limits] has no key max_row; draftd --help lists the keys"),
        (lambda: write("[limits]\nmax_rows = 7\n"), "the configuration:4: max_rows is 64 and would become 7; that needs a restart"),
        (lambda: write("[latency]\nengine_spin = 1ms\n"), "the configuration:4: engine_spin is 0us and would become 1000us; that"),
        (lambda: write("[limits]\nmax_region_bytes = 1M\n"), "the configuration:4: max_region_bytes is 1073741824 and would become 1048576;"),
        (lambda: named(folder), "the configuration:2: the model: holds no config.json: name a checkpoint folder or a .safetensors"),
        (lambda: write("[limits]\nmax_memory_bytes = 1\n"), "the configuration:4: max_memory_bytes is 1, less than max_region_bytes"),
        (lambda: write("[socket]\nmode = 0600\n"), "the configuration:4: [socket] has changed; that needs a restart"),
        (lambda: named(folder / "none" / "m"), "the configuration:2: the model: can't be opened: No such file or directory"),
        (lambda: named(golden.case("wide_rank").path), "the configuration:2: the new model scores"),
        (lambda: named(checkpoint), "the configuration:2: the model's config.json: "),
        (lambda: named(f"{checkpoint}/"), "the configuration:2: the model's config.json: "),
        (lambda: named("m"), "the configuration:2: the model: can't be opened"),
        (lambda: named(deep), "the daemon's log has the reason"),  # too long to be found in the sentence
        (lambda: (write(), model.write_bytes(b"no model")), "the configuration:2: the model: "),
        (lambda: (write(), model.unlink()), "the configuration:2: the model: can't be opened: No such file or directory"),
        (lambda: conf.unlink(), "the configuration: can't be opened: No such file or directory"),
    ):
        damage()
        with pytest.raises(ErrorReply) as refused:
            daemon.probe.call("reload")
        assert refused.value.name == "INTERNAL"
        assert refused.value.message.startswith(f"refused, the old model serves on: {why}"), refused.value.message
        assert "/" not in refused.value.message
    asked = draftctl("reload", socket=daemon.socket)
    assert asked.returncode == 1
    assert asked.stderr == (
        "draftctl: reload: refused, the old model serves on: the configuration: can't be opened: No such file or directory\n"
    )
    assert f"{conf}:4: [limits] has no key" in daemon.log and f"{conf}:2: {model}: can't be opened" in daemon.log


def test_a_configuration_with_a_long_name(start, folder):
    """Its name is cut short in the log; who asked for the reload is told the line."""
    path = folder / ("d" * 200) / "c"
    path.parent.mkdir()
    path.write_text("")
    daemon = start("--config", path)
    path.write_text("[limits]\nmax_rows = 7\n")
    with pytest.raises(ErrorReply, match="serves on: the configuration:2: max_rows is 64 and would become 7; that needs a restart$"):
        daemon.probe.call("reload")


def test_reload_under_load(reloadable):
    """Requests all the while: none is lost, each answer belongs to one of the two models, generations never fall."""
    daemon, _, model = reloadable
    with daemon.connect() as client:
        last = 0
        for turn in range(6):
            ids = [client.submit("draft", CASE.params()) for _ in range(20)]
            daemon.process.send_signal(signal.SIGHUP)
            for id in ids:
                result, _ = client.wait(id)
                assert result["tokens"] == CASE.tokens and result["generation"] >= last
                last = result["generation"]
            assert daemon.told("READY=1")
    assert daemon.probe.call("draft", CASE.params())[0]["generation"] > 1


def test_first_client_after_ready_is_served(start):
    daemon = start(wait=False).ready()
    with daemon.connect() as client:
        assert client.call("draft", CASE.params())[0]["tokens"] == CASE.tokens
    daemon.stop()


def test_clients_that_come_too_early_wait_or_are_refused(start):
    """Nobody is answered before the daemon is ready; nobody hangs."""
    daemon = start(wait=False)
    sock = daemon.raw_when_possible()
    sock.sendall(wire_codec.request(1, "hello", {"protocol": 1, "client": "early/1"}))
    data, _ = wire_codec.receive(sock)
    assert wire_codec.decode(data[8:], "hello")[3]["protocol"] == 1
    daemon.manager.setblocking(False)  # READY=1 was sent before the reply
    assert daemon.told("READY=1")
    sock.close()
    daemon.stop()
