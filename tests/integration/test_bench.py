"""draftctl bench: open loads, what their latency counts from, files that describe them, and its reports."""

import csv
import datetime
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

import golden
import wire_codec
from conftest import BUILD, MODEL, PATIENCE_S, SANITIZED, WRAPPER, draftctl
from test_draftctl import bad, good

STALL_S = 0.2


def bench(daemon, *options, code=0):
    done = draftctl("bench", "--warmup", "0", "--json", "-", *map(str, options), socket=daemon.socket)
    assert done.returncode == code, done.stdout + done.stderr
    report = json.loads(done.stdout)
    totals = report["totals"]
    planned = totals["requests"] + totals["unsent"] + sum(report["errors"].values())
    assert code != 0 or ("were not sent" in done.stderr) == (totals["unsent"] > 0.01 * planned)
    return report


def bench_stalled(daemon, *options):
    """The report of a load during which draftd stood still once, for STALL_S."""
    command = [BUILD / "draftctl", "--socket", daemon.socket, "bench", "--warmup", "0", "--json", "-", *map(str, options)]
    answered = lambda: daemon.probe.call("stats")[0]["requests"]["draft"]
    before = answered()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE_S
    while answered() < before + 100:
        assert time.monotonic() < end
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        time.sleep(STALL_S)  # not to wait for anything: this is the stall
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    report, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, report
    return json.loads(report)


@pytest.mark.alone
def test_a_stall_is_seen(daemon):
    """Coordinated omission: a closed load holds its requests back while draftd stalls, and hardly sees it. An open load plans them
    all the same: about a tenth of these wait for up to the stall, the hundredth that waits longest for nine tenths of it."""
    planned = bench_stalled(daemon, "--rate", 500, "--requests", 1000, "--concurrency", 4)
    assert planned["latency_us"]["seen"]["p99"] > STALL_S * 0.6e6
    assert planned["latency_us"]["seen"]["max"] > STALL_S * 0.9e6
    assert planned["totals"]["requests"] == 1000
    assert planned["totals"]["late"] >= 80  # of the 100 that were planned meanwhile, 4 found room
    assert planned["latency_us"]["late"]["p99"] > STALL_S * 0.6e6
    closed = bench_stalled(daemon, "--duration", 2, "--concurrency", 4)
    assert closed["latency_us"]["seen"]["max"] > STALL_S * 0.9e6
    assert closed["latency_us"]["seen"]["p99"] < STALL_S * 0.3e6
    assert closed["totals"]["late"] == 0


@pytest.mark.alone
@pytest.mark.parametrize("arrival", ["constant", "poisson"])
def test_rate(daemon, arrival):
    told = bench(daemon, "--rate", 400, "--arrival", arrival, "--requests", 400, "-c", 3, "-t", 2)
    assert told["load"]["arrival"] == arrival and told["load"]["rate"] == 400
    assert told["totals"]["requests"] == 400 and told["totals"]["unsent"] == 0  # and nothing is said on stderr, see bench()
    # 400 Poisson arrivals take 1 s, give or take 5 % (a standard deviation)
    assert told["per_second"]["requests"] == pytest.approx(400, rel=0.3 if arrival == "poisson" else 0.05)


def test_rate_beyond_reach(daemon):
    """What was planned and not sent is told, and with what was sent it is all that was planned."""
    told = bench(daemon, "--rate", 1000000, "--duration", 0.3, "--concurrency", 2)
    totals = told["totals"]
    assert totals["requests"] + totals["unsent"] == 300000
    assert totals["unsent"] > 0 and totals["late"] > 0
    assert told["per_second"]["requests"] < 1000000
    done = draftctl("bench", "--rate", "1000000", "-d", "0.2", "-n", "2", "--warmup", "0", socket=daemon.socket)
    assert done.returncode == 0 and "planned" in done.stdout and "late" in done.stdout
    unsent = re.search(r"unsent +([0-9,]+) ", done.stdout)[1]
    (warning,) = done.stderr.splitlines()
    assert f"{unsent} of 200,000 planned requests were not sent" in warning and "at most 2 in flight" in warning
    assert "--concurrency" in warning and "--threads" in warning


def test_what_the_warm_up_left_is_not_counted(daemon):
    """Far behind already when measuring begins: what was planned before that is in no figure."""
    totals = bench(daemon, "--rate", 1000000, "--warmup", 0.5, "--duration", 0.25, "--concurrency", 2)["totals"]
    assert totals["requests"] + totals["unsent"] == 250000


def test_no_more_in_flight_than_draftd_takes(start):
    """A number that nobody gave is one that works, and is told; one that was given is refused where it is too great."""
    daemon = start("--max-inflight", "3")
    for options, used in {
        ("--rate", 2000): 3, ("--rate", 2000, "-c", 2): 6, (): 3, ("-c", 2): 6, ("-c", 4): 8, ("-c", 9): 9,
    }.items():
        told = bench(daemon, "--requests", 50, *options)
        assert told["load"]["concurrency"] == used and told["totals"]["requests"] == 50
    assert bench(daemon, "--ramp", 1e6, "--duration", 0.05, "--rate", 1e6)["load"]["concurrency"] == 3
    text = good(draftctl("bench", "--requests", "5", "--rate", "2000", socket=daemon.socket))
    assert "at most 3 in flight (all that draftd takes) over 1 connection," in text
    assert "8 in flight over 4 connections," in good(draftctl("bench", "--requests", "9", "-c", "4", socket=daemon.socket))
    bad(draftctl("bench", "--requests", "5", "-n", "4", socket=daemon.socket), 1, "4 requests in flight", "takes 3", "--concurrency")


def test_no_more_in_flight_than_draftd_has_room_for(start):
    """Nor more than its frames and regions hold: a number that nobody gave fails no request. Base logits of a request are 74 KiB."""
    daemon = start("--max-frame-bytes", "128K", "--max-region-bytes", "2M")
    load = ("--rate", 100000, "--requests", 300, "--rows", 16, "--steps", 8)
    bytes_ = 16 * 8 * daemon.probe.server["model"]["vocab"] * 2
    for more, room in (
        ((), 4 * 2**17 // bytes_),  # a connection's frames are four
        (("--logits",), 4 * 2**17 // bytes_ // 2),
        (("-c", 3), 3 * (4 * 2**17 // bytes_)),
        (("-c", 8), 8 * (12 * 2**17 // 8 // bytes_)),  # of all connections 12: the share of who is not root has at least these
        (("--base", "host"), 64),
        (("--base", "host", "--logits"), (2**21 - 8 * bytes_) // bytes_),  # behind eight blocks
    ):
        told = bench(daemon, *load, *more)
        assert (told["load"]["concurrency"], told["totals"]["requests"], told["errors"]) == (room, 300, {}), more


def test_phases_add_up(daemon):
    told = bench(daemon, "--rate", 1000, "--requests", 300)["latency_us"]
    # draftd's times are whole microseconds
    assert told["late"]["mean"] + told["seen_less_total"]["mean"] + told["total"]["mean"] == pytest.approx(
        told["seen"]["mean"], abs=1
    )


def test_schedule(daemon, folder):
    """The times of a file: a burst, a gap of 0.3 s, and another burst."""
    file = folder / "schedule"
    file.write_text("# two bursts\n" + "0\n" * 20 + "\n 0.3 # now\n" * 20)
    told = bench(daemon, "--schedule", file, "--connections", 2, "--threads", 2)
    assert told["load"]["arrival"] == "schedule" and told["totals"]["requests"] == 40
    assert 0.3 <= told["seconds"] < 5
    bad(draftctl("bench", "--schedule", folder / "none", socket=daemon.socket), 1, "none")
    bad(draftctl("bench", "--schedule", folder, socket=daemon.socket), 1, str(folder), "Is a directory")
    for text, words in {
        "": ["has no times"], "0\n1\n0.5\n": [":3:", "0.5"], "0\n\nsoon\n": [":3:", "soon"], "-1\n": [":1:", "-1"],
        "1 2\n": [":1:"], "x" * 2000: [":1:", "longer"],
    }.items():
        file.write_text(text)
        bad(draftctl("bench", "--schedule", file, socket=daemon.socket), 1, str(file), *words)


def test_threads(daemon):
    """Each of them has a share of connections and requests; together they are one report, and every reply is right."""
    told = bench(
        daemon, "--threads", 3, "--connections", 4, "--concurrency", 9, "--requests", 500, "--rows", 2, "--verify", "--model", MODEL,
        "--logits", "--temperature", 1,
    )
    assert told["totals"]["requests"] == 500 and told["totals"]["rows"] == 1000
    assert told["verified"]["different"] == 0 and told["verified"]["checked"] == 16
    assert told["load"]["threads"] == 3


def test_contradictions(daemon, folder):
    for options, words in {
        ("--rate", "5", "--schedule", "x"): ["--rate", "--schedule"],
        ("--arrival", "poisson"): ["--rate"],
        ("--threads", "2"): ["--connections 1", "--threads 2"],
        ("--rate", "0"): ["--rate", "0.001"],
        ("--arrival", "never"): ["constant or poisson"],
    }.items():
        bad(draftctl("bench", *options, socket=daemon.socket), 2, *words)


def test_mix(start, folder):
    """Kinds are sent by their shares, each with its own shape and temperature, and every reply is right."""
    case = golden.case("sampled")
    daemon = start(model=case.path)
    file = folder / "mix"
    file.write_text("share=3 rows=1 steps=2\n# comment\nshare=1 rows=5 steps=3 temperature=0.8 priority=1\n")
    for base in "inline", "host":
        told = bench(
            daemon, "--mix", file, "--requests", 400, "--verify", "--model", case.path, "--logits", "--base", base, "-c", 2, "-t", 2
        )
        one, five = told["mix"]
        assert (one["rows"], one["steps"], one["temperature"], one["priority"]) == (1, 2, 0, 0)
        assert (five["rows"], five["steps"], five["temperature"], five["priority"]) == (5, 3, 0.8, 1)
        assert one["requests"] + five["requests"] == 400
        assert told["totals"]["rows"] == one["requests"] + 5 * five["requests"]
        assert told["totals"]["tokens"] == 2 * one["requests"] + 15 * five["requests"]
        assert 60 <= five["requests"] <= 140  # 100, a deviation of 9
        assert told["verified"] == {"checked": 16, "different": 0, "first_difference": ""}
    text = good(draftctl("bench", "--mix", file, "--requests", "40", socket=daemon.socket))
    assert "line 1" in text and "line 3" in text
    file.write_text("share=1\n\nshare=2 rows=0\n")
    bad(draftctl("bench", "--mix", file, socket=daemon.socket), 1, f"{file}:3:", "rows", "1 to 4096")
    file.write_text("share=1\nshare=2 rows=4096\n")
    bad(draftctl("bench", "--mix", file, socket=daemon.socket), 1, "line 2", "rows is 4096")
    bad(draftctl("bench", "--mix", folder / "none", socket=daemon.socket), 1, "none")


def test_deadlines_of_a_mix(slow_model, folder):
    """A deadline that a mix asks for may be missed: this is told, and is no failure. (A launch takes far longer than 1 us, and
    each request but the first waits for one.)"""
    daemon = slow_model.start()
    file = folder / "mix"
    file.write_text(f"share=1 rows={slow_model.ROWS} steps={slow_model.STEPS} deadline_us=1\n")
    told = bench(daemon, "--mix", file, "--base", "host", "--requests", 6, "--concurrency", 3)
    assert told["totals"]["deadlines_missed"] == told["errors"]["DEADLINE_EXCEEDED"] >= 1
    assert told["totals"]["requests"] + told["totals"]["deadlines_missed"] == 6


def test_csv(daemon, folder):
    """The spectrum begins at the smallest latency, ends at the largest, never falls, and has the report's p50 and p99."""
    file = folder / "spectrum.csv"
    seen = bench(daemon, "--requests", 1000, "--csv", file)["latency_us"]["seen"]
    rows = list(csv.DictReader(file.read_text().splitlines()))
    names = "seen_us", "late_us", "seen_less_total_us", "total_us", "queue_us", "device_us"
    assert list(rows[0]) == ["fraction", *names]
    for name in "fraction", *names:
        column = [float(row[name]) for row in rows]
        assert column == sorted(column)
    latency = {float(row["fraction"]): float(row["seen_us"]) for row in rows}
    assert min(latency) == 0 and max(latency) == 1
    assert sorted(latency)[-2] >= 1 - 2 / 1000
    assert latency[0] == pytest.approx(seen["min"], rel=0.01)
    assert latency[0.5] == pytest.approx(seen["p50"], abs=0.001)
    assert latency[1] == pytest.approx(seen["max"], abs=0.001)


def test_plot(daemon, folder):
    picture = folder / "p.png"
    good(draftctl("bench", "--requests", "300", "--plot", picture, socket=daemon.socket))
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"
    assert struct.unpack(">II", data[16:24]) == (1100, 650)
    assert list(folder.glob("p.png*")) == [picture]


def test_no_gnuplot(daemon, folder):
    """Said before the load; a gnuplot that fails leaves no picture."""
    picture = folder / "p.png"
    empty = os.environ | {"PATH": str(folder)}
    bad(draftctl("bench", "--requests", "3", "--plot", picture, socket=daemon.socket, env=empty), 1, "gnuplot-nox", "--csv")
    gnuplot = folder / "gnuplot"
    gnuplot.write_text('#!/bin/sh\n[ "$1" = --version ]\n')
    gnuplot.chmod(0o755)
    done = draftctl("bench", "--requests", "3", "--plot", picture, socket=daemon.socket, env=empty)
    assert done.returncode == 1 and "gnuplot failed" in done.stderr
    assert not list(folder.glob("p.png*"))


def can_mount():
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="only root may fill a disk of the test's own")
@pytest.mark.parametrize("option", ["--json", "--csv", "--plot"])
def test_a_full_disk(daemon, folder, option):
    """It is said, whoever notices it, and no part of a report is left."""
    full = folder / "full"
    full.mkdir()
    script = 'mount -t tmpfs -o size=16k none "$1"; cd "$1"; cat /dev/zero > all 2>/dev/null; shift; "$@"; code=$?; ls; exit $code'
    command = [BUILD / "draftctl", "--socket", daemon.socket, "bench", "--requests", "30", option, "report"]
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", full, *command], capture_output=True, text=True)
    assert done.returncode == 1 and "report: can't be written: No space left on device" in done.stderr
    assert done.stdout.splitlines()[-1] == "all"


@pytest.mark.parametrize("option", ["--json", "--csv", "--plot"])
def test_reports_that_cannot_be_written(folder, option):
    """Found out before anything else is tried."""
    bad(draftctl("bench", option, folder / "none" / "x", socket=folder / "nobody"), 1, "none/x")


def test_environment(daemon):
    told = bench(daemon, "--requests", 5)
    environment = told["environment"]
    assert environment["processor"] in pathlib.Path("/proc/cpuinfo").read_text() or environment["processor"] == "unknown"
    assert environment["processors"] == len(os.sched_getaffinity(0))
    assert environment["kernel"].endswith(os.uname().release)
    date = datetime.datetime.fromisoformat(environment["date"].replace("Z", "+00:00"))
    assert abs((datetime.datetime.now(datetime.timezone.utc) - date).total_seconds()) < 2 * PATIENCE_S
    assert environment["driver"] == ""  # the CPU backend has none, whatever the machine has
    assert (told["server"]["backend"], told["server"]["model"]) == ("cpu", "greedy_small")
    assert told["server"]["version"].startswith("draftd/") and environment["tool"].startswith("draftctl/")
    text = good(draftctl("bench", "--requests", "5", socket=daemon.socket))
    assert environment["processor"] in text and "draftd/" in text and environment["date"][:10] in text


@pytest.mark.alone
def test_own_processor_time(daemon):
    """What the kernel says of the process, less its start and end, which are little beside so many requests."""
    command = [BUILD / "draftctl", "--socket", daemon.socket, "bench", "--warmup", "0", "--json", "-", "--requests", "20000"]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    with process.stdout as stdout:
        told = json.load(stdout)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    own, used = told["own_cpu"], usage.ru_utime + usage.ru_stime
    assert used / 2 <= own["user_seconds"] + own["system_seconds"] <= used
    assert told["seconds"] <= own["wall_seconds"] <= time.monotonic() - begin
    assert "own CPU time" in good(draftctl("bench", "--requests", "5", socket=daemon.socket))


@pytest.mark.alone
def test_ramp(daemon):
    """A bound that low rates keep, on however busy a machine, and that rates of a million do not; and one that none keeps."""
    told = bench(daemon, "--ramp", 100000, "--rate", 1000, "--duration", 0.2)
    ramp = told["ramp"]
    steps = ramp["steps"]
    assert steps[0]["rate"] == 1000 and ramp["p99_bound_us"] == 100000
    for step in steps:
        planned = 0.2 * step["rate"]  # give or take one
        assert step["kept"] <= (step["p99_us"] <= 100000 and step["unsent"] <= 0.01 * (planned + 1))
        assert step["kept"] or step["p99_us"] > 100000 or step["unsent"] > 0.01 * (planned - 1)
    kept = {step["rate"] for step in steps if step["kept"]}
    assert max(kept) == ramp["rate"] == told["load"]["rate"]
    # the search ended where a rate that is hardly higher breaks the bound, tried twice
    broken = [step["rate"] for step in steps if step["rate"] not in kept]
    assert ramp["rate"] < min(broken) <= 1.05 * ramp["rate"] and broken.count(min(broken)) == 2
    assert told["latency_us"]["seen"]["p99"] <= 100000
    done = draftctl("bench", "--ramp", "1", "-d", "0.05", "--rate", "100", socket=daemon.socket)
    assert done.returncode == 1 and "no rate that was tried keeps a p99 of 1 us" in done.stderr
    for options in ("--requests", "5"), ("--schedule", "x"):
        bad(draftctl("bench", "--ramp", "5000", *options, socket=daemon.socket), 2, "--ramp")


def test_documented_json(daemon, folder):
    """BENCH.md's table names every key of a report, and no other."""
    text = (pathlib.Path(__file__).parents[2] / "client/draftctl/BENCH.md").read_text()
    documented = set(re.findall(r"^\| `([a-z0-9_.\[\]*]+)` \|", text, re.MULTILINE))
    told = set()

    def walk(value, path):
        if isinstance(value, dict) and path != "errors":
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else key)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, path + "[]")
        else:
            told.add(path)

    walk(bench(daemon, "--requests", 20, "--verify", "--model", MODEL), "")
    walk(bench(daemon, "--ramp", 100000, "--rate", 100000, "--duration", 0.05), "")
    percentile = re.compile(r"\.(p50|p90|p99|p99_9|max|mean|min)$")
    assert {percentile.sub(".*", path) for path in told if "steps[]" not in path} | {
        path for path in told if "steps[]" in path
    } == documented


@pytest.fixture
def echo(folder):
    """A server that answers at once without drafting; called with the shape of the requests, it gives its socket."""
    processes = []

    def start(vocab, rows, steps):
        path = folder / "echo.sock"
        command = [BUILD / "tests/draft_echo", path, str(vocab), str(rows), str(steps)]
        processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout.readline() == "listening\n"
        return path

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def fastest(socket, *options):
    """The better of three reports: other work on the machine only takes from a rate."""
    reports = [
        json.loads(good(draftctl("bench", "-d", "0.5", "--warmup", "0.1", "--json", "-", *options, socket=socket)))
        for _ in range(3)
    ]
    return max(reports, key=lambda report: report["per_second"]["requests"])


@pytest.mark.alone
@pytest.mark.skipif(SANITIZED or bool(WRAPPER), reason="speed")
def test_it_outruns_the_daemon(start, echo, folder):
    """With a tiny model, two threads of the tool send three times as fast as draftd answers, if each has a processor to itself: by the
    processor time that a request takes them, against an echo. On a machine with processors for all of them the rates themselves are
    seen to. (BENCH.md has what one thread does.)"""
    model = folder / "tiny.safetensors"
    draftctl("model", "make", "--vocab", "512", "--rank", "16", "--seed", "1", model, check=True)
    daemon = start(model=model)
    path = echo(512, 1, 4)
    for in_flight in "8", "64":
        options = "-n", in_flight, "-c", "2", "-t", "2"
        served = fastest(daemon.socket, *options)["per_second"]["requests"]
        echoed = fastest(path, *options)
        own = echoed["own_cpu"]
        processors = (own["user_seconds"] + own["system_seconds"]) / own["wall_seconds"]
        assert echoed["per_second"]["requests"] / processors * 2 >= 3 * served
        if len(os.sched_getaffinity(0)) >= 8:
            assert echoed["per_second"]["requests"] >= 3 * served


@pytest.mark.parametrize("options", [(), ("--rate", "1000")], ids=["closed", "open"])
def test_interrupted(daemon, options):
    """The first Ctrl-C ends all threads, with a report of what there was."""
    command = [BUILD / "draftctl", "--socket", daemon.socket, "bench", "--json", "-", "-d", "600", "-c", "2", "-t", "2", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE_S
    while daemon.probe.call("stats")[0]["requests"]["draft"] < 100:
        assert time.monotonic() < end
    process.send_signal(signal.SIGINT)
    report, _ = process.communicate(timeout=PATIENCE_S)
    told = json.loads(report)
    assert process.returncode == 0 and told["interrupted"] and told["totals"]["requests"] >= 50
    assert told["seconds"] < PATIENCE_S


def test_a_daemon_that_goes_away(start):
    """A load whose connections are gone ends, and says why; so does a ramp, at once."""
    for options in ("--rate", "500", "-d", "600"), ("--ramp", "1000000", "-d", "600"), ("-d", "600"):
        daemon = start()
        command = [BUILD / "draftctl", "--socket", daemon.socket, "bench", "--json", "-", *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + PATIENCE_S
        while daemon.probe.call("stats")[0]["requests"]["draft"] < 20:
            assert time.monotonic() < end
        daemon.process.kill()
        daemon.wait()
        report, complaint = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1 and "failed" in complaint
        assert json.loads(report)["errors"]


def answer_some(listener, facts, says_so):
    """Takes 8 drafts, answers 3 of them, and ends the connection; when it says so before, no others come meanwhile, else 3."""
    client, _ = listener.accept()
    reader = wire_codec.Reader(1 << 20)
    drafts = []
    with client:
        while len(drafts) < (8 if says_so else 11):
            reader.feed(wire_codec.receive(client)[0])
            while whole := reader.next():
                _, id, method, params = wire_codec.decode(whole[0])
                if method == "hello":
                    client.sendall(wire_codec.reply(id, facts))
                    continue
                drafts.append(id)
                if len(drafts) != 8:
                    continue
                if says_so:
                    client.sendall(wire_codec.notification("goaway", {"reason": "shutdown"}))
                rows = len(params["anchors"])
                result = {"tokens": [0] * rows * params["steps"], "flags": [0] * rows, "generation": 1,
                          "times_us": {"queue": 0, "device": 0, "total": 0}}
                client.sendall(b"".join(wire_codec.reply(id, result) for id in drafts[:3]))


@pytest.mark.parametrize("says_so, lost", [(False, 8), (True, 5)], ids=["dies", "drains"])
def test_every_request_without_a_reply_is_an_error(daemon, folder, says_so, lost):
    with daemon.connect() as client:
        facts = client.server
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        server = threading.Thread(target=answer_some, args=(listener, facts, says_so))
        server.start()
        done = draftctl("bench", "--json", "-", "-n", "8", "--warmup", "0", "-d", "600", socket=folder / "s")
        server.join()
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["totals"]["requests"] == 3
    (name, count), = report["errors"].items()
    assert count == lost and (name == "DRAINING") == says_so, report["errors"]
    assert f"{lost} " in done.stderr
