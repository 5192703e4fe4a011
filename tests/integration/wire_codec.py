"""The wire protocol once more, written from proto/PROTOCOL.md over python3-msgpack and struct.

Nothing here comes from the C codec: tests use it to check frames and to speak to the daemon as a second
implementation would. It is strict: what the protocol refuses raises FrameError or BodyError, whose `kind` says why.
"""

import array
import os
import socket
import struct

import msgpack

HEADER = struct.Struct(">2sBBI")
MAGIC = b"DT"
VERSION = 1
FDS_MAX = 4
DEPTH_MAX = 8
VALUES_MAX = 65536
KEYS_MAX = 64
KEY_BYTES_MAX = 255
HELLO_BODY_BYTES_MAX = 4096

U32 = 2**32 - 1
U64 = 2**64 - 1

ERRORS = {  # code: (name, retryable, the server closes the connection)
    1: ("BAD_FRAME", False, True),
    2: ("VERSION_MISMATCH", False, True),
    3: ("BAD_REQUEST", False, False),
    4: ("UNKNOWN_METHOD", False, False),
    5: ("NOT_FOUND", False, False),
    6: ("OUT_OF_RANGE", False, False),
    7: ("TOO_LARGE", False, False),
    8: ("RESOURCE_EXHAUSTED", True, False),
    9: ("DEADLINE_EXCEEDED", False, False),
    10: ("CANCELLED", False, False),
    11: ("DRAINING", True, False),
    12: ("PERMISSION_DENIED", False, False),
    13: ("DEVICE_LOST", True, True),
    14: ("INTERNAL", False, False),
}
CODES = {name: code for code, (name, _, _) in ERRORS.items()}

REQUESTS = (
    "hello", "ping", "draft", "region_open", "region_import", "region_close", "event_import", "event_close", "stats", "metrics",
    "drain", "reload",
)
NOTIFICATIONS = ("cancel", "goaway")


class FrameError(Exception):
    """The stream is broken: kind is magic, version, too-many-fds, missing-fds, surplus-fds or too-long."""

    def __init__(self, kind):
        super().__init__(kind)
        self.kind = kind


class BodyError(Exception):
    """One message is bad: kind is scan, envelope or fields."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class ErrorReply(Exception):
    """The peer answered with an error."""

    def __init__(self, error):
        super().__init__(f"{error['name']}: {error['message']}")
        self.code = error["code"]
        self.name = error["name"]
        self.message = error["message"]
        self.retryable = error["retryable"]


# ---- frames ----


def frame(body, fds=0, version=VERSION, magic=MAGIC, length=None):
    return HEADER.pack(magic, version, fds, len(body) if length is None else length) + body


def pack(value):
    return msgpack.packb(value, use_bin_type=True, use_single_float=True)


def request(id, method, params=None, fds=0):
    return frame(pack([0, id, method, {} if params is None else params]), fds)


def reply(id, result=None, fds=0):
    return frame(pack([1, id, None, {} if result is None else result]), fds)


def error(id, code, text):
    name, retryable, _ = ERRORS[code]
    shape = {"code": code, "name": name, "message": text, "retryable": retryable}
    return frame(pack([1, id, shape, None]))


def notification(method, params):
    return frame(pack([2, method, params]))


class Reader:
    """Bytes and descriptors in, (body, fds) out. close() closes what no frame claimed."""

    def __init__(self, body_bytes_max=HELLO_BODY_BYTES_MAX):
        self.body_bytes_max = body_bytes_max
        self.bytes = bytearray()
        self.fds = []

    def feed(self, data, fds=()):
        self.bytes += data
        self.fds += fds

    def next(self):
        """A whole frame, or None when more bytes are needed."""
        if len(self.bytes) < HEADER.size:
            return None
        magic, version, fd_count, length = HEADER.unpack_from(self.bytes)
        if magic != MAGIC:
            raise FrameError("magic")
        if version != VERSION:
            raise FrameError("version")
        if fd_count > FDS_MAX:
            raise FrameError("too-many-fds")
        if fd_count > len(self.fds):
            raise FrameError("missing-fds")
        if length > self.body_bytes_max:
            raise FrameError("too-long")
        if len(self.bytes) < HEADER.size + length:
            return None
        body = bytes(self.bytes[HEADER.size : HEADER.size + length])
        del self.bytes[: HEADER.size + length]
        fds, self.fds = self.fds[:fd_count], self.fds[fd_count:]
        if not self.bytes and self.fds:
            raise FrameError("surplus-fds")
        return body, fds

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []


# ---- bodies ----


def pairs_to_map(pairs):
    """Every map of a body passes here; what to refuse is decided by those who know which map it is."""
    return Pairs(pairs)


class Pairs(list):
    """A map as it stood on the wire: a list of (key, value), duplicates and all."""


def refuse_ext(code, data):
    raise BodyError("scan", f"ext type {code}")


def measure(value):
    """Levels of arrays and maps, and how many values there are. A timestamp is an ext value that msgpack reads by itself."""
    deepest, values, todo = 0, 0, [(value, 1)]
    while todo:
        item, level = todo.pop()
        values += 1
        if isinstance(item, Pairs):
            children = [part for pair in item for part in pair]
        elif isinstance(item, list):
            children = item
        elif isinstance(item, msgpack.Timestamp):
            raise BodyError("scan", "ext type -1")
        else:
            continue
        deepest = max(deepest, level)
        todo += [(child, level + 1) for child in children]
    return deepest, values


def unpack(body):
    try:
        value = msgpack.unpackb(
            body, raw=False, strict_map_key=False, object_pairs_hook=pairs_to_map,
            ext_hook=refuse_ext, timestamp=0, unicode_errors="surrogateescape",
        )
    except BodyError:
        raise
    except Exception as fault:  # msgpack raises many kinds
        raise BodyError("scan", str(fault)) from fault
    deepest, values = measure(value)
    if deepest > DEPTH_MAX:
        raise BodyError("scan", "too deep")
    if values > VALUES_MAX:
        raise BodyError("scan", "too many values")
    return value


def is_int(value, low=0, high=U32):
    return type(value) is int and low <= value <= high


def is_number(value):
    return type(value) in (int, float)


def is_finite(value):
    return is_number(value) and abs(value) < 2.0**128


def is_text(low, high):
    return lambda v: type(v) is str and low <= len(v.encode(errors="surrogateescape")) <= high


def is_column(element):
    return lambda v: type(v) is list and len(v) >= 1 and all(element(e) for e in v)


def is_even(value):
    return is_int(value, 0, U64) and value % 2 == 0


def fields(table, optional=()):
    """A checker of a map: reads Pairs into a dict, nested maps too."""

    def read(pairs, where):
        if not isinstance(pairs, Pairs):
            raise BodyError("fields", f"{where} is no map")
        if len(pairs) > KEYS_MAX:
            raise BodyError("fields", f"{where} has too many keys")
        result = {}
        for key, value in pairs:
            if type(key) is not str or len(key.encode(errors="surrogateescape")) > KEY_BYTES_MAX:
                raise BodyError("fields", f"a key of {where} is no short string")
            if key in result:
                raise BodyError("fields", f"{key} twice in {where}")
            result[key] = value
        for key, check in table.items():
            if key not in result:
                if key not in optional:
                    raise BodyError("fields", f"{key} is missing")
            elif getattr(check, "reads", False):
                result[key] = check(result[key], key)
            elif not check(result[key]):
                raise BodyError("fields", f"{key} is {result[key]!r}")
        return result

    read.reads = True
    return read


def map_or(plain, nested):
    def read(value, where):
        return value if plain(value) else nested(value, where)

    read.reads = True
    return read


def each(element):
    def read(value, where):
        if type(value) is not list or len(value) > 32:
            raise BodyError("fields", f"{where} is no array of at most 32")
        return [element(item, where) for item in value]

    read.reads = True
    return read


def u32(low=0, high=U32):
    return lambda v: is_int(v, low, high)


def u64(low=0, high=U64):
    return lambda v: is_int(v, low, high)


MEMORY = ("host", "device")
COLUMN_U32 = is_column(is_int)
COLUMN_I64 = is_column(lambda v: is_int(v, -(2**63), 2**63 - 1))
EMPTY = fields({})
REGION_REQUEST = fields(
    {"bytes": u64(1), "memory": lambda v: v in MEMORY, "device": is_text(1, 63)}, ("device",)
)
REGION_ONLY = fields({"region": u32()})
EVENT_ONLY = fields({"event": u32()})

PARAMS = {
    "hello": fields({"protocol": u32(), "client": is_text(1, 128)}),
    "ping": EMPTY,
    "draft": fields(
        {
            "steps": u32(1),
            "anchors": COLUMN_U32,
            "positions": COLUMN_I64,
            "seeds": is_column(lambda v: is_int(v, -(2**63), U64)),
            "temperatures": is_column(is_number),
            "slots": COLUMN_I64,
            "base": map_or(
                lambda v: type(v) is bytes,
                fields({"region": u32(), "offset": is_even, "row_stride": is_even, "step_stride": is_even}),
            ),
            "logits": map_or(
                lambda v: type(v) is bool,
                fields({"region": u32(), "offset": is_even, "slot_stride": is_even, "step_stride": is_even}),
            ),
            "deadline_us": u64(0, 3_600_000_000),
            "priority": u32(0, 1),
            "event": u32(),
        },
        ("slots", "logits", "deadline_us", "priority", "event"),
    ),
    "region_open": REGION_REQUEST,
    "region_import": REGION_REQUEST,
    "region_close": REGION_ONLY,
    "event_import": fields({"handle": lambda v: type(v) is bytes and len(v) == 64, "device": is_text(1, 63)}, ("device",)),
    "event_close": EVENT_ONLY,
    "stats": EMPTY,
    "metrics": EMPTY,
    "drain": EMPTY,
    "reload": EMPTY,
    "cancel": fields({"id": u32()}),
    "goaway": fields({"reason": is_text(0, U32)}),
}

RESULTS = {
    "hello": fields(
        {
            "protocol": u32(),
            "server": is_text(1, 255),
            "generation": u64(),
            "model": fields(
                {
                    "name": is_text(0, 255), "vocab": u32(1), "rank": u32(1), "target_vocab": u32(1),
                    "multiplier": is_finite, "soft_cap": lambda v: v is None or is_finite(v),
                    "dtype": is_text(1, 255),
                }
            ),
            "backend": fields(
                {
                    "name": is_text(1, 255), "bias_order": is_text(1, 255), "tensor_parallel": u32(1),
                    "devices": each(
                        fields({"uuid": is_text(1, 63), "name": is_text(0, 255), "memory_bytes": u64()})
                    ),
                }
            ),
            "limits": fields(
                {
                    "max_rows": u32(1), "max_steps": u32(1), "max_frame_bytes": u32(1),
                    "max_inflight": u32(1), "max_regions": u32(), "max_region_bytes": u64(),
                }
            ),
        }
    ),
    "ping": EMPTY,
    "draft": fields(
        {
            "tokens": COLUMN_U32,
            "flags": COLUMN_U32,
            "generation": u64(),
            "times_us": fields({"queue": u64(), "device": u64(), "total": u64()}),
            "logits": lambda v: type(v) is bytes,
        },
        ("logits",),
    ),
    "region_open": fields(
        {"region": u32(), "bytes": u64(1), "memory": lambda v: v in MEMORY, "device": is_text(0, 63)},
    ),
    "region_import": REGION_ONLY,
    "region_close": EMPTY,
    "event_import": EVENT_ONLY,
    "event_close": EMPTY,
    "stats": EMPTY,
    "metrics": fields({"text": is_text(0, U32)}),
    "drain": EMPTY,
    "reload": EMPTY,
}

ERROR = fields(
    {
        "code": u32(1, 2**31 - 1), "name": is_text(0, U32), "message": is_text(0, U32),
        "retryable": lambda v: type(v) is bool,
    }
)


def plain(value):
    """Pairs below a checked map become dicts."""
    if isinstance(value, Pairs):
        return {key: plain(item) for key, item in value}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def check_lengths(params):
    rows = len(params["anchors"])
    for key in ("positions", "seeds", "temperatures", "slots"):
        if key in params and len(params[key]) != rows:
            raise BodyError("fields", f"{key} has {len(params[key])} elements, anchors {rows}")


def decode(body, method=None):
    """The message as [0, id, method, params], [1, id, error, result] or [2, method, params]. A response's result
    is checked as that of `method`, where given."""
    value = unpack(body)
    if isinstance(value, Pairs) or not isinstance(value, list) or not value:
        raise BodyError("envelope", "no array")
    kind = value[0]
    if not is_int(kind, 0, 2) or len(value) != (4, 4, 3)[kind]:
        raise BodyError("envelope", "kind or length")
    if kind == 1:
        return decode_response(value, method)
    if kind == 0 and not is_int(value[1]):
        raise BodyError("envelope", "id")
    name, params = value[-2:]
    if type(name) is not str:
        raise BodyError("envelope", "method")
    if name in (REQUESTS, None, NOTIFICATIONS)[kind]:
        params = plain(PARAMS[name](params, "params"))
        if name == "draft":
            check_lengths(params)
    return value[:-1] + [params]


def decode_response(value, method):
    _, id, failure, result = value
    if id is not None and not is_int(id):
        raise BodyError("envelope", "id")
    if failure is None:
        if id is None:
            raise BodyError("envelope", "a result without an id")
        if method:
            result = plain(RESULTS[method](result, "result"))
            if method == "draft" and len(result["tokens"]) % len(result["flags"]):
                raise BodyError("fields", "tokens is no multiple of flags")
        return [1, id, None, plain(result)]
    try:
        failure = ERROR(failure, "error")
    except BodyError as fault:
        raise BodyError("envelope", str(fault)) from fault
    if result is not None:
        raise BodyError("envelope", "an error beside a result")
    return [1, id, failure, None]


# ---- sockets ----


def send(sock, data, fds=()):
    """Sends all of `data`, descriptors on its first byte."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sent = sock.sendmsg([data], rights)
    if sent < len(data):
        sock.sendall(memoryview(data)[sent:])


def receive(sock, size=1 << 16):
    """Bytes and descriptors; b"" at the end of the stream."""
    space = socket.CMSG_SPACE(2 * FDS_MAX * array.array("i").itemsize)
    data, rights, flags, _ = sock.recvmsg(size, space, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, payload in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if flags & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise FrameError("truncated-fds")
    return data, list(fds)


class Connection:
    """A client. Replies may come in any order: call() waits for its own and keeps the others."""

    def __init__(self, path, timeout=30.0, hello=True, client="wire_codec.py/1"):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        self.reader = Reader(1 << 30)
        self.last_id = 0
        self.methods = {}  # id: method, of requests without a reply
        self.replies = {}  # id: ([1, id, error, result], fds)
        self.notifications = []
        self.server = None
        try:
            self.sock.connect(os.fspath(path))
            if hello:
                self.server, _ = self.call("hello", {"protocol": 1, "client": client})
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for _, fds in self.replies.values():
            for fd in fds:
                os.close(fd)
        self.replies.clear()
        self.reader.close()
        self.sock.close()

    def send(self, data, fds=()):
        send(self.sock, data, fds)

    def submit(self, method, params=None, fds=()):
        """Sends a request; returns its id."""
        self.last_id += 1
        self.methods[self.last_id] = method
        self.send(request(self.last_id, method, params, len(fds)), fds)
        return self.last_id

    def notify(self, method, params):
        self.send(notification(method, params))

    def receive(self):
        """The next message, checked, and its descriptors; None at the end of the stream."""
        while (whole := self.reader.next()) is None:
            data, fds = receive(self.sock)
            if not data:
                return None
            self.reader.feed(data, fds)
        body, fds = whole
        # The id is needed to know which method's result this is.
        message = decode(body)
        if message[0] == 1 and message[1] in self.methods:
            method = self.methods.pop(message[1])
            message = decode(body, method)
            wanted = 1 if method == "region_open" and message[2] is None else 0
            if len(fds) != wanted:
                raise FrameError("fds-of-reply")
        return message, fds

    def wait(self, id):
        """The reply to `id`: (result, fds). Raises ErrorReply, and EOFError at the end of the stream."""
        while id not in self.replies:
            got = self.receive()
            if got is None:
                raise EOFError("the server closed the connection")
            message, fds = got
            if message[0] == 2:
                self.notifications.append(message)
            else:
                self.replies[message[1]] = message, fds
        message, fds = self.replies.pop(id)
        if message[2] is not None:
            raise ErrorReply(message[2])
        return message[3], fds

    def call(self, method, params=None, fds=()):
        return self.wait(self.submit(method, params, fds))
