"""The short way of a draft: no allocation on either side, and threads that look for news instead of sleeping."""

import os
import pathlib
import signal
import struct

import pytest

import golden
from conftest import BUILD, SANITIZED, WRAPPER, draftctl

CASE = golden.case("greedy_small")
SPINNING = "--engine-spin", "2ms", "--loop-spin", "2ms"

counts_allocations = pytest.mark.skipif(bool(WRAPPER) or SANITIZED, reason="the tool has its own allocator")


def counting(folder):
    """The environment of a process whose allocations are counted, and how to read the count."""
    path = pathlib.Path(folder) / "mallocs"
    environment = {"LD_PRELOAD": str(BUILD / "tests/malloc_count.so"), "MALLOC_COUNT_FILE": str(path)}
    return environment, lambda: struct.unpack("=Q", path.read_bytes())[0]


def in_region(client):
    """The case's request with its base logits in a region."""
    base = CASE.bytes["base_logits"]
    result, (fd,) = client.call("region_open", {"bytes": len(base), "memory": "host"})
    os.pwrite(fd, base, 0)
    os.close(fd)
    row = len(base) // len(CASE.params()["anchors"])
    place = {"region": result["region"], "offset": 0, "row_stride": row, "step_stride": row // CASE.params()["steps"]}
    return CASE.params() | {"base": place}


@counts_allocations
@pytest.mark.parametrize("options", [(), SPINNING])
def test_the_daemon_allocates_nothing_for_a_draft(start, folder, options):
    environment, count = counting(folder)
    daemon = start(*options, env=environment)
    with daemon.connect() as client:
        params = in_region(client)
        tokens = client.call("draft", params)[0]["tokens"]

        def some(number):
            """Drafts and pings, some of them in flight together."""
            for _ in range(number):
                sent = [client.submit("draft", params) for _ in range(4)] + [client.submit("ping")]
                for one in sent[:-1]:
                    assert client.wait(one)[0]["tokens"] == tokens
                client.wait(sent[-1])

        os.kill(daemon.pid, signal.SIGSTOP)  # so that more is in flight at once than ever below
        burst = [client.submit(method, params if method == "draft" else {}) for method in ["draft", "ping"] * 8]
        os.kill(daemon.pid, signal.SIGCONT)
        for one in burst:
            client.wait(one)
        some(20)
        before = count()
        assert before > 0
        some(200)
        assert count() == before
        client.call("stats")  # which does allocate: the count counts
        assert count() > before


@counts_allocations
def test_libdraft_allocates_nothing_for_a_draft(daemon, folder):
    environment, count = counting(folder)

    def allocations(requests):
        """Of a whole run."""
        options = "--requests", str(requests), "--concurrency", "4", "--base", "host", "--warmup", "0", "--json", "-"
        done = draftctl("bench", *options, socket=daemon.socket, env=os.environ | environment)
        assert done.returncode == 0, done.stderr
        total = count()
        os.unlink(environment["MALLOC_COUNT_FILE"])
        return total

    assert allocations(100) == allocations(2000) > 0


@pytest.mark.valgrind
def test_spinning_changes_no_token(start):
    daemon = start(*SPINNING)
    with daemon.connect() as client, daemon.connect() as other:
        for _ in range(20):
            one, two = client.submit("draft", CASE.params()), other.submit("draft", CASE.params())
            assert client.wait(one)[0]["tokens"] == CASE.tokens
            assert other.wait(two)[0]["tokens"] == CASE.tokens


def test_a_launch_outlives_the_spin(slow_model):
    """The threads sleep long before the launch ends, and are woken."""
    daemon = slow_model.start("--engine-spin", "1us", "--loop-spin", "1us")
    with daemon.connect() as client:
        expected = slow_model.draft(client)["tokens"]
        for _ in range(3):
            assert slow_model.draft(client)["tokens"] == expected


def test_a_client_that_goes_while_the_loop_spins(start):
    daemon = start("--loop-spin", "1s")
    for _ in range(20):
        client = daemon.connect()
        client.submit("draft", CASE.params())
        client.close()
    assert daemon.probe.call("draft", CASE.params())[0]["tokens"] == CASE.tokens


def test_draining_does_not_wait_for_the_spin_to_end(start):
    daemon = start("--loop-spin", "1s", "--engine-spin", "1s")
    assert daemon.probe.call("draft", CASE.params())[0]["tokens"] == CASE.tokens
    daemon.stop()
