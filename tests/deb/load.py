#!/usr/bin/python3
"""Four clients that draft on and on while daemons come and go behind the socket unit, until a file PATH is there. Each request gets its
tokens, the same every time, if need be from the next daemon: what one drained or died over is sent again, by libdraft's reconnecting.
Anything else (a refused connection, other tokens, another error) ends it with exit code 1.

Usage: load.py PATH; says "drafting" when it does, and at the end what there was.
"""

import pathlib
import random
import sys
import threading

import draft

CLIENTS, PIPELINE, ROWS, STEPS, RECONNECT_US = 4, 4, 2, 4, 60_000_000
stop = pathlib.Path(sys.argv[1])
drafting = threading.Barrier(CLIENTS + 1)
answered, again, connections, failed = [0] * CLIENTS, [0] * CLIENTS, [1] * CLIENTS, []


def run(index):
    client = draft.connect(client_name="load", timeout_us=RECONNECT_US)
    numbers = random.Random(index)
    base = [numbers.randrange(0x3F00, 0x4100) for _ in range(ROWS * STEPS * client.model.vocab)]
    request = {"anchors": [1, 2], "positions": [3, 4], "seeds": [5, index], "temperatures": [0.0, 1.0], "steps": STEPS}
    request["base"] = memoryview(b"".join(value.to_bytes(2, "little") for value in base)).cast("H")
    expected = client.draft(**request).tokens.tolist()
    drafting.wait(60)
    out = set()
    while not stop.exists():
        try:
            while len(out) < PIPELINE:
                out.add(client.submit(**request))
            result = client.poll(RECONNECT_US)
            if result is None:
                raise TimeoutError("no answer, and no end of the connection")
            out.remove(result.ticket)
            if result.error is None:
                if result.tokens.tolist() != expected:
                    raise ValueError(f"{result.tokens.tolist()} instead of {expected}")
                answered[index] += 1
                continue
            if not isinstance(result.error, draft.Draining):
                raise result.error
            again[index] += 1
        except draft.ConnectionLost:
            again[index] += len(out)
            out.clear()
            client.reconnect(RECONNECT_US)
            connections[index] += 1
    client.close()


def guarded(index):
    try:
        run(index)
    except BaseException as error:
        failed.append(f"client {index}: {type(error).__name__}: {error}")
        drafting.abort()


threads = [threading.Thread(target=guarded, args=(index,)) for index in range(CLIENTS)]
for thread in threads:
    thread.start()
try:
    drafting.wait(60)
    print("drafting", flush=True)
except threading.BrokenBarrierError:
    pass
for thread in threads:
    thread.join()
print(*failed, sep="\n")
print(f"{sum(answered)} right, {sum(again)} sent again, over {min(connections)} to {max(connections)} connections each")
sys.exit(bool(failed))
