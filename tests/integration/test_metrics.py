"""The Prometheus text, read by a parser that refuses what the exposition format (version 0.0.4) and the naming rules of
Prometheus refuse; counters that never fall; figures that agree with what the clients counted."""

import math
import os
import re
import shutil
import stat
import threading

import pytest

import golden
from conftest import draftctl
from test_lifecycle import CASE, reloadable  # noqa: F401 (a fixture)
from wire_codec import ErrorReply

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
VALUE = re.compile(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
# units that a name may not have: seconds and bytes are the base units
UNITS = re.compile(r"_(ms|us|ns|milliseconds|microseconds|minutes|hours|kib|mib|gib|kb|mb|gb|kilobytes|megabytes|percent|bits)(_|$)")


class Family:
    def __init__(self, name):
        self.name, self.type, self.samples = name, None, {}


def sample_of(line):
    """(name, labels as a sorted tuple, value)"""
    name = NAME.match(line)
    assert name, line
    at, labels = name.end(), []
    if line[at] == "{":
        at += 1
        while line[at] != "}":
            label = LABEL.match(line, at)
            assert label, line
            assert label[1] not in dict(labels) and not label[1].startswith("__"), line
            labels.append((label[1], re.sub(r'\\[\\"n]', lambda e: ESCAPES[e[0]], label[2])))
            at = label.end()
            if line[at] == ",":
                at += 1
        at += 1
    assert line[at] == " " and VALUE.fullmatch(line, at + 1), line
    return name[0], tuple(sorted(labels)), float(line[at + 1 :])


def check_histogram(family):
    series = {}
    for (name, labels), value in family.samples.items():
        rest = tuple(label for label in labels if label[0] != "le")
        one = series.setdefault(rest, {"buckets": []})
        if name.endswith("_bucket"):
            one["buckets"].append((float(dict(labels)["le"].replace("+Inf", "inf")), value))
        else:
            assert "le" not in dict(labels)
            one[name.removeprefix(family.name)] = value
    for one in series.values():
        bounds, counts = zip(*one["buckets"])
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == math.inf, "bounds rise to +Inf"
        assert list(counts) == sorted(counts), "buckets are cumulative"
        assert counts[-1] == one["_count"] and one["_sum"] >= 0


def check_names(family):
    name, kind = family.name, family.type
    assert name.startswith("draftd_") and name == name.lower() and not UNITS.search(name), name
    assert name.endswith("_total") == (kind == "counter"), name
    assert kind == "histogram" or not re.search(r"_(bucket|count|sum)$", name), name
    assert not re.search(r"_(counter|gauge|histogram|summary)(_|$)", name), name


def parse(text):
    """Families by name. Everything that promtool refuses or warns of is an assertion."""
    assert text.endswith("\n")
    families, family, helped = {}, None, None
    for line in text.splitlines():
        assert line == line.strip() and line, repr(line)
        if line.startswith("# HELP "):
            name, text = line.removeprefix("# HELP ").split(" ", 1)
            assert NAME.fullmatch(name) and name not in families and text.strip(), line
            assert "\\" not in re.sub(r"\\[\\n]", "", text), line
            family = families[name] = Family(name)
            helped = name
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name == helped and family.type is None and not family.samples, line
            assert kind in ("counter", "gauge", "histogram"), line
            family.type = kind
        else:
            assert not line.startswith("#"), line
            name, labels, value = sample_of(line)
            allowed = [family.name + end for end in ("_bucket", "_sum", "_count")] if family.type == "histogram" else [family.name]
            assert name in allowed, f"{line} stands among the samples of {family.name}"
            assert (name, labels) not in family.samples, f"{line} twice"
            family.samples[name, labels] = value
    for family in families.values():
        assert family.type, family.name
        check_names(family)
        if family.type == "histogram":
            check_histogram(family)
    return families


def counters(families):
    """Everything that may only rise, histograms' buckets and sums too."""
    return {key: value for f in families.values() if f.type in ("counter", "histogram") for key, value in f.samples.items()}


def never_falls(before, after):
    for key, value in before.items():
        assert after[key] >= value, f"{key} fell from {value} to {after[key]}"


def metrics(client):
    return parse(client.call("metrics")[0]["text"])


BAD = {
    "no last newline": "# HELP draftd_a_total x\n# TYPE draftd_a_total counter\ndraftd_a_total 1",
    "no type": "# HELP draftd_a_total x\ndraftd_a_total 1\n",
    "twice": "# HELP draftd_a x\n# TYPE draftd_a gauge\ndraftd_a 1\ndraftd_a 1\n",
    "a counter without _total": "# HELP draftd_a x\n# TYPE draftd_a counter\ndraftd_a 1\n",
    "milliseconds": "# HELP draftd_a_ms x\n# TYPE draftd_a_ms gauge\ndraftd_a_ms 1\n",
    "quote": '# HELP draftd_a x\n# TYPE draftd_a gauge\ndraftd_a{b="c"d"} 1\n',
    "falling buckets": "# HELP draftd_a x\n# TYPE draftd_a histogram\n"
    'draftd_a_bucket{le="1"} 2\ndraftd_a_bucket{le="+Inf"} 1\ndraftd_a_sum 1\ndraftd_a_count 1\n',
    "+Inf is not the count": "# HELP draftd_a x\n# TYPE draftd_a histogram\n"
    'draftd_a_bucket{le="1"} 1\ndraftd_a_bucket{le="+Inf"} 1\ndraftd_a_sum 1\ndraftd_a_count 2\n',
}


@pytest.mark.parametrize("name", BAD)
def test_the_parser_refuses(name):
    with pytest.raises(AssertionError):
        parse(BAD[name])


def test_the_text_is_well_formed(start, folder):
    """Idle and used, and with a model whose name has what must be escaped."""
    model = folder / 'a "quoted\\name".safetensors'
    shutil.copy(CASE.path, model)
    daemon = start(model=model)
    before = metrics(daemon.probe)
    daemon.probe.call("draft", CASE.params())
    after = metrics(daemon.probe)
    never_falls(counters(before), counters(after))
    assert before.keys() == after.keys()
    ((_, labels),) = after["draftd_model_info"].samples
    assert dict(labels)["name"] == 'a "quoted\\name"'
    (busy,) = after["draftd_device_busy_seconds_total"].samples.values()
    assert busy > 0


def test_a_name_that_is_not_text(start, folder):
    """A file's name is bytes: what draftd tells of it is UTF-8 without controls, which every reader takes."""
    model = os.fsencode(folder) + b"/caf\xe9 \xc3\xa9\nred \x1b[31m.safetensors"
    shutil.copy(CASE.path, model)
    daemon = start(model=model)
    name = "caf? \u00e9?red ?[31m"
    assert daemon.probe.server["model"]["name"] == daemon.probe.call("stats")[0]["model"] == name
    ((_, labels),) = metrics(daemon.probe)["draftd_model_info"].samples
    assert dict(labels)["name"] == name
    for command in "info", "stats", "metrics":
        done = draftctl(command, socket=daemon.socket)
        assert done.returncode == 0 and "caf? " in done.stdout and "\x1b" not in done.stdout, done.stdout + done.stderr
    assert f"model {name}:" in daemon.log


def test_figures_agree_with_what_clients_counted(start):
    """Clients of both kinds of outcome, and a reload in the middle: to the last one."""
    case = golden.case("sampled")
    daemon = start("--max-rows", str(case.rows), model=case.path)
    counted = {"drafts": 0, "rows": 0, "tokens": 0, "TOO_LARGE": 0, "NOT_FOUND": 0, "ping": 0}
    lock = threading.Lock()
    faults = []

    def client(rounds):
        try:
            with daemon.connect() as mine:
                for turn in range(rounds):
                    rows = range(1 + turn % case.rows)
                    tokens = mine.call("draft", case.params(rows))[0]["tokens"]
                    mine.call("ping")
                    names = []
                    for method, params in ("draft", case.params([0] * (case.rows + 1))), ("region_close", {"region": 9}):
                        with pytest.raises(ErrorReply) as refused:
                            mine.call(method, params)
                        names.append(refused.value.name)
                    with lock:
                        counted["drafts"] += 1
                        counted["rows"] += len(rows)
                        counted["tokens"] += len(tokens)
                        counted["ping"] += 1
                        for name in names:
                            counted[name] += 1
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=client, args=(60 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    last, reloads = {}, 0
    while any(thread.is_alive() for thread in threads) or reloads < 3:
        now = counters(metrics(daemon.probe))
        never_falls(last, now)
        last = now
        daemon.probe.call("reload")
        reloads += 1
    for thread in threads:
        thread.join()
    assert not faults, faults[0]
    text = metrics(daemon.probe)
    never_falls(last, counters(text))
    stats = daemon.probe.call("stats")[0]

    def value(name, /, **labels):
        return text[name].samples[name, tuple(sorted(labels.items()))]

    for key in "drafts", "rows", "tokens":
        assert value(f"draftd_{key}_total") == stats[key] == counted[key]
    for key in "TOO_LARGE", "NOT_FOUND":
        assert value("draftd_errors_total", name=key) == stats["errors"][key] == counted[key]
    assert sum(stats["errors"].values()) == counted["TOO_LARGE"] + counted["NOT_FOUND"]
    assert value("draftd_requests_total", method="ping") == counted["ping"]
    assert value("draftd_requests_total", method="draft") == counted["drafts"] + counted["TOO_LARGE"]
    for which in "queue", "device", "total":
        assert text[f"draftd_{which}_seconds"].samples[f"draftd_{which}_seconds_count", ()] == counted["drafts"]
    assert value("draftd_launched_rows_total") == counted["rows"]
    launches = sum(text["draftd_launches_total"].samples.values())
    assert 0 < launches <= counted["drafts"]
    assert value("draftd_reloads_total") == reloads and value("draftd_generation") == reloads + 1


def test_a_refused_reload_counts_and_changes_no_counter(reloadable):
    daemon, write, _ = reloadable
    daemon.probe.call("draft", CASE.params())
    before = counters(metrics(daemon.probe))
    write("[limits]\nmax_row = 1\n")
    with pytest.raises(ErrorReply):
        daemon.probe.call("reload")
    after = counters(metrics(daemon.probe))
    never_falls(before, after)
    risen = {key[0] for key in after if after[key] != before[key]}
    assert risen == {"draftd_requests_total", "draftd_errors_total", "draftd_reloads_failed_total"}


def test_textfile_is_whole_or_the_old_one(daemon, folder):
    path = folder / "draftd.prom"
    assert draftctl("metrics", "--textfile", path, socket=daemon.socket).returncode == 0
    first = parse(path.read_text())
    assert path.stat().st_mode & stat.S_IROTH  # node_exporter is another user
    inode = path.stat().st_ino
    daemon.probe.call("draft", CASE.params())
    assert draftctl("metrics", "--textfile", path, socket=daemon.socket).returncode == 0
    assert path.stat().st_ino != inode  # another file took its place at once
    never_falls(counters(first), counters(parse(path.read_text())))
    assert draftctl("metrics", "--textfile", path, socket=folder / "none").returncode == 1
    parse(path.read_text())
    assert sorted(os.listdir(folder)) == ["0", "draftd.prom"]
