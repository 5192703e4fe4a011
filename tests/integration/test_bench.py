"""draftctl bench: open loads, what their latency counts from, files that describe them, and its reports."""

import json
import os
import signal
import subprocess
import time

import pytest

import golden
from conftest import BUILD, MODEL, PATIENCE_S, draftctl
from test_draftctl import bad, good

STALL_S = 0.2


def bench(daemon, *options, code=0):
    done = draftctl("bench", "--warmup", "0", "--json", "-", *map(str, options), socket=daemon.socket)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


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


@pytest.mark.parametrize("arrival", ["constant", "poisson"])
def test_rate(daemon, arrival):
    told = bench(daemon, "--rate", 400, "--arrival", arrival, "--requests", 400, "-c", 3, "-t", 2)
    assert told["load"]["arrival"] == arrival and told["load"]["rate"] == 400
    assert told["totals"]["requests"] == 400 and told["totals"]["unsent"] == 0
    # 400 Poisson arrivals take 1 s, give or take 5 % (a standard deviation)
    assert told["per_second"]["requests"] == pytest.approx(400, rel=0.3 if arrival == "poisson" else 0.05)


def test_rate_beyond_reach(daemon):
    """What was planned and not sent is told, and with what was sent it is all that was planned."""
    told = bench(daemon, "--rate", 1000000, "--duration", 0.3, "--concurrency", 2)
    totals = told["totals"]
    assert totals["requests"] + totals["unsent"] == 300000
    assert totals["unsent"] > 0 and totals["late"] > 0
    assert told["per_second"]["requests"] < 1000000
    text = good(draftctl("bench", "--rate", "1000000", "-d", "0.2", "-n", "2", "--warmup", "0", socket=daemon.socket))
    assert "planned" in text and "late" in text and "unsent" in text


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
