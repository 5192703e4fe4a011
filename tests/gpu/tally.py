"""What a script has checked: passed, failed, waived. Threads may check at the same time."""

import sys
import threading

_lock = threading.Lock()
_counts = {"passed": 0, "failed": 0, "waived": 0}


def _count(outcome):
    with _lock:
        _counts[outcome] += 1


def check(name, right, why=""):
    """Whether it is right; if not, it says so, and `why`."""
    _count("passed" if right else "failed")
    if not right:
        print(f"FAILED: {name}\n{why}".rstrip(), flush=True)
    return bool(right)


def waive(why):
    _count("waived")
    print(f"waived: {why}", flush=True)


def end():
    """The last line of a script, and the end of it: exit code 1 if anything failed."""
    print("{passed} passed, {failed} failed, {waived} waived".format(**_counts))
    sys.exit(_counts["failed"] > 0)
