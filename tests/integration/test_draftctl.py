"""Every subcommand of draftctl: what it prints, and its exit code: 0 done, 1 failed, 2 used wrongly."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading

import pytest

import golden
from conftest import BUILD, MODEL, PATIENCE_S, draftctl

CASE = golden.case("greedy_small")


def good(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def bad(done, code, *words):
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.startswith("draftctl: ")
    for word in words:
        assert word in done.stderr
    if code == 1:
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_ping(daemon):
    assert "answered" in good(draftctl("ping", socket=daemon.socket))
    assert "3 answered" in good(draftctl("ping", "--count", "3", "--quiet", socket=daemon.socket))


def test_info(daemon):
    text = good(draftctl("info", socket=daemon.socket))
    for word in "greedy_small", "300", "16", "cpu":
        assert word in text
    told = json.loads(good(draftctl("info", "--json", socket=daemon.socket)))
    assert "greedy_small" in json.dumps(told)


def test_draft(daemon):
    """The golden case's base logits, anchor, position, seed and temperature: the recorded token."""
    told = json.loads(
        good(
            draftctl(
                "draft", "--json", "--base", MODEL, "--anchor", str(CASE.anchors[0]), "--position",
                str(CASE.positions[0]), "--seed", str(CASE.seeds[0]), "--temperature", str(CASE.temperatures[0]),
                socket=daemon.socket,
            )
        )
    )
    assert told["rows"][0]["tokens"] == CASE.tokens
    text = good(draftctl("draft", "--rows", "3", "--steps", "5", socket=daemon.socket))
    assert len([line for line in text.splitlines() if line.split() and line.split()[0] in "012"]) == 3


def test_draft_is_deterministic(daemon):
    one, two, other = (
        json.loads(good(draftctl("draft", "--json", "--seed", seed, "--temperature", "1", socket=daemon.socket)))
        for seed in ("5", "5", "6")
    )
    assert one["rows"] == two["rows"] != other["rows"]


def test_replay(start):
    case = golden.case("padding_rows")
    daemon = start(model=case.path)
    for base in "inline", "host":
        assert "equal" in good(draftctl("replay", "--base", base, case.path, socket=daemon.socket))


def test_device_memory_of_a_processor(start):
    """What the CPU backend has none of is refused in draftd's words."""
    case = golden.case("sampled")
    daemon = start(model=case.path)
    bad(draftctl("replay", "--base", "device", case.path, socket=daemon.socket), 1, 'works on "host" memory only')
    bad(draftctl("bench", "--base", "device", "--requests", "1", socket=daemon.socket), 1, 'works on "host" memory only')


def test_replay_finds_one_bit(start, folder):
    """A token or a stored logit that differs in one bit ends in exit code 1."""
    case = golden.case("sampled_odd_vocab")
    daemon = start(model=case.path)
    data = case.path.read_bytes()
    for name in "tokens", "draft_logits":
        at = data.find(case.bytes[name]) + len(case.bytes[name]) // 2 // 8 * 8
        wrong = folder / f"{name}.safetensors"
        wrong.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        for base in "inline", "host":
            done = draftctl("replay", "--base", base, wrong, socket=daemon.socket)
            assert done.returncode == 1 and "DIFFERENT" in done.stdout, done.stdout + done.stderr


def test_replay_of_what_is_no_case(daemon, folder):
    bad(draftctl("replay", folder / "none.safetensors", socket=daemon.socket), 1, "none.safetensors")
    other = golden.case("soft_cap").path
    done = draftctl("replay", other, socket=daemon.socket)
    assert done.returncode == 1


def test_stats_has_whole_names(start, folder):
    """As long as the daemon keeps them: 127 bytes, in whole characters."""
    model = shutil.copyfile(MODEL, folder / ("é" * 100 + ".safetensors"))
    daemon = start(model=model)
    assert re.search("^model +" + "é" * 63 + "$", good(draftctl("stats", socket=daemon.socket)), re.MULTILINE)


def test_stats_and_metrics(daemon):
    daemon.probe.call("draft", CASE.params())
    assert "draft" in good(draftctl("stats", socket=daemon.socket))
    text = good(draftctl("metrics", socket=daemon.socket))
    for line in text.splitlines():
        assert line.startswith("#") or line.rsplit(" ", 1)[0].split("{")[0].startswith("draftd_"), line
        assert line.startswith("#") or float(line.rsplit(" ", 1)[1]) >= 0


def test_names_are_shown_as_they_are(start, folder):
    """Other than ASCII too; only what a terminal would obey, and what is no UTF-8, is not."""
    for name, shown in ("façade 模", "façade 模"), (b"fa\xe7ade\x1b[31m", "fa?ade?[31m"):
        path = folder / os.fsdecode(name)
        shutil.copy(MODEL, path)
        daemon = start(model=path)
        for command in "stats", "info":
            assert shown in good(draftctl(command, socket=daemon.socket, encoding="utf-8"))


def test_bench(daemon, folder):
    report = folder / "report.json"
    text = good(
        draftctl(
            "bench", "--requests", "200", "--concurrency", "4", "--rows", "2", "--steps", "2", "--warmup", "0",
            "--json", report, socket=daemon.socket,
        )
    )
    assert "p99.9" in text and "errors: none" in text
    assert '200' in json.dumps(json.loads(report.read_text()))
    assert draftctl("bench", "--requests", "20", "--warmup", "0", "--base", "host", socket=daemon.socket).returncode == 0
    for connections in "1", "3":
        options = "--requests", "60", "-n", "3", "-c", connections, "--warmup", "0", "--spin", "200", "--json", "-"
        latency = json.loads(good(draftctl("bench", *options, socket=daemon.socket)))["latency_us"]
        for less in "total", "device":
            rest = latency[f"seen_less_{less}"]
            assert 0 <= rest["p50"] <= rest["p99"] <= rest["max"] <= latency["seen"]["max"]
        assert latency["seen_less_device"]["mean"] == pytest.approx(latency["seen"]["mean"] - latency["device"]["mean"], abs=1)
    done = draftctl("bench", "--requests", "50", "--warmup", "0", "--verify", "--model", MODEL, socket=daemon.socket)
    assert done.returncode == 0 and "equal" in done.stdout, done.stdout + done.stderr


def test_bench_against_another_model_is_wrong(daemon, folder):
    """--verify against a model that is not the one served must not pass."""
    data = bytearray(CASE.path.read_bytes())
    weights = CASE.bytes["markov_head.markov_w2.weight"]
    at = data.find(weights)
    data[at : at + len(weights)] = weights[::-1]
    other = folder / "other.safetensors"
    other.write_bytes(data)
    done = draftctl("bench", "--requests", "50", "--warmup", "0", "--verify", "--model", other, socket=daemon.socket)
    assert done.returncode == 1, done.stdout + done.stderr


def test_model_make_over_the_limit_of_a_file(folder):
    """The error names the limit, and nothing half written is left."""
    made = draftctl(
        "model", "make", "--vocab", "2000", folder / "big.safetensors",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
    )
    bad(made, 1, "big.safetensors", "RLIMIT_FSIZE")
    assert not list(folder.iterdir())


def test_model_make_and_show(start, folder):
    one, two = folder / "one.safetensors", folder / "two.safetensors"
    for path in one, two:
        draftctl("model", "make", "--vocab", "500", "--rank", "24", "--seed", "9", path, check=True)
    assert one.read_bytes() == two.read_bytes()
    shown = json.loads(good(draftctl("model", "show", "--json", one)))
    assert (shown["vocab"], shown["rank"], shown["soft_cap"]) == (500, 24, None)
    bad(draftctl("model", "make", "--vocab", "500", "--rank", "24", one), 1, "--force")
    for force in [], ["--force"]:  # which can't help
        for path, what in (
            (folder, f"{folder} is a folder: name a file"),
            (f"{folder}/none/", "none/\" can't be a file's name"),
            ("", '"" can\'t be a file\'s name'),
            ("/dev/null", "/dev/null is no regular file"),
        ):
            refused = draftctl("model", "make", "--vocab", "500", *force, path)
            bad(refused, 1, what)
            assert "--force" not in refused.stderr
    daemon = start(model=one)
    assert daemon.probe.server["model"]["vocab"] == 500
    bad(draftctl("model", "show", folder / "none"), 1, "none")


def test_reload_and_drain(start):
    daemon = start()
    good(draftctl("reload", socket=daemon.socket))
    good(draftctl("drain", socket=daemon.socket))
    assert daemon.wait() == 0


USED_WRONGLY = [
    [],
    ["conjure"],
    ["model"],
    ["model", "conjure"],
    ["ping", "--colour"],
    ["ping", "--count"],
    ["ping", "--count", "0"],
    ["ping", "surplus"],
    ["replay"],
    ["replay", "--base", "nowhere", "x"],
    ["draft", "--temperature", "hot"],
    ["bench", "--rows", "-1"],
    ["model", "make", "--vocab", "0", "x"],
    ["--timeout", "0", "ping"],
]


@pytest.mark.parametrize("arguments", USED_WRONGLY, ids=" ".join)
def test_used_wrongly(folder, arguments):
    bad(draftctl(*arguments, socket=folder / "none"), 2)


def test_nobody_listens(folder):
    for command in ["ping"], ["info"], ["stats"], ["bench", "--requests", "1"], ["replay", MODEL]:
        bad(draftctl(*command, socket=folder / "none"), 1, "none")


def test_help_and_version():
    assert "Commands:" in good(draftctl("--help"))
    assert "--concurrency" in good(draftctl("bench", "--help"))
    assert good(draftctl("--version")).startswith("draftctl ")


def test_socket_from_the_environment(daemon):
    good(draftctl("ping", env=os.environ | {"DRAFTD_SOCKET": str(daemon.socket)}))
    nobody = os.environ | {"DRAFTD_SOCKET": "/none"}
    good(draftctl("ping", socket=daemon.socket, env=nobody))
    bad(draftctl("ping", env=nobody), 1, "/none (DRAFTD_SOCKET)")
    bad(draftctl("ping", socket="/nope", env=nobody), 1, "listens on /nope: ")
    folder = daemon.socket.parent
    bad(draftctl("ping", env=nobody | {"DRAFTD_SOCKET": str(folder)}), 1, f"draftctl: {folder} (DRAFTD_SOCKET) is a folder; ")
    bad(draftctl("ping", env=os.environ | {"DRAFTD_SOCKET": "x" * 108}), 1, "DRAFTD_SOCKET has 108 bytes", "1 to 107")
    assert "default /run/draftd/draftd.sock" in good(draftctl("ping", "--help", env=os.environ | {"DRAFTD_SOCKET": ""}))


def test_a_folder_is_no_socket(folder):
    bad(draftctl("ping", socket=folder), 1, f"draftctl: {folder} is a folder; name the socket in it, draftd.sock if")


def test_a_file_is_no_socket(folder):
    path = folder / "file"
    path.touch()
    fix = "draftd makes (draftd --socket)\n"
    bad(draftctl("ping", socket=path), 1, f"draftctl: {path} is no socket; name the one that {fix}")
    bad(draftctl("ping", socket=path / "x"), 1, f"draftctl: {path}/x leads through a file as if that were a folder; ", fix)
    bad(draftctl("ping", env=os.environ | {"DRAFTD_SOCKET": str(path)}), 1, f"draftctl: {path} (DRAFTD_SOCKET) is no socket; ")


def test_base_is_a_regular_file(daemon, folder):
    os.mkfifo(folder / "pipe")
    for path in folder, folder / "pipe":
        bad(draftctl("draft", "--base", path, socket=daemon.socket), 1, f"{path} is no regular file")


@pytest.fixture
def keeper(daemon, folder):
    """A socket between draftctl and draftd whose owner passes hello on, and keeps every later question."""
    path = folder / "s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def keep():
        client, _ = listener.accept()
        with client, daemon.raw() as server:
            server.sendall(client.recv(65536))
            client.sendall(server.recv(65536))  # to hello
            while client.recv(65536):
                pass

    keeper = threading.Thread(target=keep)
    keeper.start()
    yield path
    keeper.join()
    listener.close()


def test_reload_that_takes_longer(keeper):
    """It is not failed yet, and the sentence says so."""
    bad(draftctl("--timeout", "1", "reload", socket=keeper), 1, "within the timeout of 1 s", "goes on", "draftctl info", "--timeout")


UNANSWERED = [
    ["ping"],
    ["info"],
    ["stats"],
    ["metrics"],
    ["top"],
    ["drain"],
    ["draft"],
    ["replay", MODEL],
    ["bench", "--requests", "1", "--connections", "1"],
    ["bench", "--requests", "1", "--connections", "1", "--base", "host"],
]


@pytest.mark.parametrize("arguments", UNANSWERED, ids=lambda arguments: " ".join(map(str, arguments[:1] + arguments[5:])))
def test_no_answer_in_time(keeper, arguments):
    """The sentence says how long was waited, and what would make it longer."""
    done = draftctl("--timeout", "0.25", *arguments, socket=keeper)
    assert done.returncode == 1
    assert "draftd did not answer within the timeout of 0.25 s; --timeout allows more" in done.stdout + done.stderr


def test_no_hello_in_time(folder):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        done = draftctl("--timeout", "0.25", "ping", socket=folder / "s")
    bad(done, 1, f"{folder}/s: draftd did not answer within the timeout of 0.25 s; --timeout allows more")


@pytest.mark.parametrize("arguments", [["--help"], ["stats"], ["metrics"], ["ping", "--count", "100000"]], ids=" ".join)
def test_closed_pipe(daemon, arguments):
    """A reader that goes away ends draftctl quietly."""
    process = subprocess.Popen(
        [BUILD / "draftctl", "--socket", daemon.socket, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.wait(PATIENCE_S) in (-signal.SIGPIPE, 0, 1)
    assert process.stderr.read() == b"" or process.returncode == 1
    process.stderr.close()


def test_full_disk(daemon):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [BUILD / "draftctl", "--socket", daemon.socket, "info"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    bad(subprocess.CompletedProcess([], done.returncode, "", done.stderr), 1, "output")
