"""Many hostile clients at once, in one process: `hostile_crowd.py SOCKET COUNT` says "ready" when all are connected, goes on until its
stdin ends, and says then what they have done. A quarter each

- never reads what it asked for;
- dribbles a draft, a byte at a time;
- floods: pings, drafts and errors, as many as the daemon takes;
- dies within a frame, or with a region just opened and a draft on its way; the next one comes.

Who is closed comes again.
"""

import collections
import json
import os
import select
import socket
import sys
import time

import wire_codec
from wire_codec import request

HELLO = request(1, "hello", {"protocol": 1, "client": "crowd/1"})
PIECE_BYTES = 8 << 10  # that the kernel copies at once: nobody else can have this processor meanwhile
DRIBBLE_S = 0.02  # between two bytes of one client


def draft(id, vocab, rows, **more):
    return request(id, "draft", {
        "steps": 1, "anchors": [1] * rows, "positions": [1] * rows, "seeds": [1] * rows, "temperatures": [0.0] * rows,
        "base": bytes(2 * vocab * rows),
    } | more)


class Hostile:
    """One of them; `look` is called when its socket can be read or written, and every now and then."""

    events = select.EPOLLIN | select.EPOLLOUT
    counts = collections.Counter()

    def __init__(self, crowd):
        self.crowd = crowd
        self.come()

    def come(self):
        while True:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.connect(self.crowd.path)
            try:
                self.sock.sendall(HELLO)
                break
            except ConnectionError:  # all connections were in use, those of the dead among them
                self.counts["refused"] += 1
                self.sock.close()
        self.sock.setblocking(False)
        self.data = memoryview(b"")
        self.sent = 0
        self.crowd.watch(self)
        self.counts[f"{type(self).__name__} came"] += 1

    def go(self):
        self.crowd.forget(self)
        self.sock.close()

    def look(self, events):
        try:
            if events & select.EPOLLIN and not self.read():
                raise ConnectionResetError
            if events & (select.EPOLLHUP | select.EPOLLERR):
                raise ConnectionResetError
            self.write()
        except BlockingIOError:
            pass
        except ConnectionError:
            self.go()
            self.come()

    def read(self):
        return self.sock.recv(PIECE_BYTES)

    def write(self):
        """Sends `what()` again and again, as much as is taken."""
        if not self.data:
            self.data = memoryview(self.what())
        n = self.sock.send(self.data[:PIECE_BYTES])
        self.data = self.data[n:]
        self.counts[f"{type(self).__name__} bytes"] += n


class Deaf(Hostile):
    events = select.EPOLLOUT

    def what(self):
        self.sent += 1
        return draft(1 + self.sent, self.crowd.vocab, 1, logits=True)


class Dribbler(Hostile):
    events = select.EPOLLIN  # and written to by the clock

    def what(self):
        return draft(2, self.crowd.vocab, 1)

    def write(self):
        pass

    def tick(self):
        try:
            if not self.data:
                self.data = memoryview(self.what())
            self.data = self.data[self.sock.send(self.data[:1]) :]
            self.counts["Dribbler bytes"] += 1
        except BlockingIOError:
            pass
        except ConnectionError:
            self.go()
            self.come()


class Flooder(Hostile):
    def what(self):
        return self.crowd.flood


class Dying(Hostile):
    def what(self):
        self.sent += 1
        if self.sent > 1:
            raise ConnectionResetError  # by itself
        region = request(2, "region_open", {"bytes": 1 << 16, "memory": "host"})
        whole = draft(3, self.crowd.vocab, 1)
        return region + whole + draft(4, self.crowd.vocab, 1)[: os.getpid() % 4000]


class Crowd:
    def __init__(self, path, count):
        self.path = path
        with wire_codec.Connection(path) as client:
            self.vocab = client.server["model"]["vocab"]
        pings = b"".join(request(id, "ping") for id in range(10, 200))
        odd = draft(2, self.vocab, 1) + request(3, "conjure") + request(4, "draft", {"steps": 0})
        self.flood = 16 * (pings + odd)
        self.epoll = select.epoll()
        self.by_fd = {}
        self.hostile = [kind(self) for kind in (Deaf, Dribbler, Flooder, Dying) for _ in range(count // 4)]

    def watch(self, one):
        self.by_fd[one.sock.fileno()] = one
        self.epoll.register(one.sock, one.events)

    def forget(self, one):
        del self.by_fd[one.sock.fileno()]
        self.epoll.unregister(one.sock)

    def run(self):
        self.epoll.register(0, select.EPOLLIN | select.EPOLLHUP)
        print("ready", flush=True)
        dribbled = time.monotonic()
        while True:
            for fd, events in self.epoll.poll(DRIBBLE_S):
                if fd == 0:
                    return
                if fd in self.by_fd:
                    self.by_fd[fd].look(events)
            if time.monotonic() - dribbled > DRIBBLE_S:
                dribbled = time.monotonic()
                for one in self.hostile:
                    if isinstance(one, Dribbler):
                        one.tick()


if __name__ == "__main__":
    crowd = Crowd(sys.argv[1], int(sys.argv[2]))
    crowd.run()
    print(json.dumps(Hostile.counts))
