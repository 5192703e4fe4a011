#!/usr/bin/env python3
"""draftd with the GPU inside what draftd.service allows it: system calls, no writable and executable memory, Unix sockets only, no
capabilities, no new privileges, and no network where this process may take it away. Golden cases must come back right, device regions
must be granted, a reload and a drain must succeed. Without systemd, so that it runs in a GPU machine's container.

Usage: sandbox.py [--backend NAME], from the unpacked archive or the sources (built); sandbox.py --list: the numbers of the system calls,
which the archive has in a file "syscalls". Ends with "N passed, N failed, N waived"; exit code 1 if anything failed.
"""

import ctypes
import os
import pathlib
import platform
import re
import signal
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
if (HERE.parents[3] / "bin/draftd").exists():
    TOP = HERE.parents[3]
    PROGRAMS, PACKAGES, GOLDEN = TOP / "bin", TOP / "lib/python3/dist-packages", TOP / "share/draftd/golden"
else:
    TOP = HERE.parents[2]
    PROGRAMS = pathlib.Path(os.environ.get("BUILD", TOP / "build"))
    PACKAGES, GOLDEN = TOP / "client/python", TOP / "tests/golden"
sys.path.insert(0, str(PACKAGES))

CASES = "greedy_small", "sampled_odd_vocab", "multiplier_soft_cap"
libc = ctypes.CDLL(None, use_errno=True)


def allowed_by_unit():
    """The numbers that SystemCallFilter= of the unit lets through, as this machine's systemd and kernel headers resolve them."""
    unit = (TOP / "packaging/systemd/draftd.service.in").read_text()
    groups = {}
    for line in subprocess.check_output(["systemd-analyze", "syscall-filter", "--no-pager"], text=True, stderr=subprocess.DEVNULL).splitlines():
        if line.startswith("@"):
            group = groups.setdefault(line.split()[0], [])
        elif line.startswith("    ") and not line.strip().startswith("#"):
            group.append(line.strip())

    def names(word):
        return set().union(*map(names, groups[word])) if word.startswith("@") else {word}

    allowed = set()
    for sign, words in re.findall(r"^SystemCallFilter=(~?)(.*)$", unit, re.M):
        for word in words.split():
            allowed = allowed - names(word) if sign else allowed | names(word)
    header = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text()
    numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", header))
    return sorted(int(numbers[name]) for name in allowed if name in numbers)


def filter_program(allowed):
    """A seccomp filter: what is not allowed fails with EPERM, as the unit says."""
    LOAD, EQUAL, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
    ALLOW, EPERM, EAFNOSUPPORT = 0x7FFF0000, 0x50000 | 1, 0x50000 | 97
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, 0xC000003E), (RETURN, 0, 0, EPERM), (LOAD, 0, 0, 0)]

    def only_if(number, argument, tests, refusal):
        # skipped for another system call; `tests` end in a jump over the refusal
        body = [(LOAD, 0, 0, 16 + 8 * argument), *tests, (RETURN, 0, 0, refusal), (LOAD, 0, 0, 0)]
        program.extend([(EQUAL, 0, len(body), number), *body])

    only_if(41, 0, [(EQUAL, 1, 0, 1)], EAFNOSUPPORT)  # socket: AF_UNIX
    only_if(9, 2, [(AND, 0, 0, 6), (EQUAL, 0, 1, 6)], EPERM)  # mmap: not PROT_WRITE and PROT_EXEC
    for mprotect in 10, 329:
        only_if(mprotect, 2, [(ANY_BIT, 0, 1, 4)], EPERM)  # not PROT_EXEC
    for number in allowed:
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    program.append((RETURN, 0, 0, EPERM))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def enter(code, no_network):
    """In the child, before draftd."""
    if no_network:
        libc.unshare(0x40000000)
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "no_new_privs")
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(22, 2, program, 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "seccomp")


def may_take_network():
    pid = os.fork()
    if pid == 0:
        os._exit(libc.unshare(0x40000000) != 0)
    return os.waitpid(pid, 0)[1] == 0


passed = failed = 0


def check(name, right, why=""):
    global passed, failed
    passed, failed = passed + bool(right), failed + (not right)
    if not right:
        print(f"FAILED: {name}\n{why}")


def ctl(socket, *arguments):
    return subprocess.run([PROGRAMS / "draftctl", "--socket", socket, *arguments], capture_output=True, text=True, timeout=120)


def try_case(name, backend, code, no_network):
    with tempfile.TemporaryDirectory(prefix="draftd-") as folder:
        socket, case = f"{folder}/s", GOLDEN / f"{name}.safetensors"
        daemon = subprocess.Popen(
            [PROGRAMS / "draftd", "--backend", backend, "--model", case, "--socket", socket],
            stderr=subprocess.PIPE, text=True, preexec_fn=lambda: enter(code, no_network),
        )
        log = []
        for line in daemon.stderr:
            log.append(line)
            if "ready on" in line:
                break
        check(f"{name}: start", "ready on" in log[-1] if log else False, "".join(log))
        if daemon.poll() is not None or not log or "ready on" not in log[-1]:
            daemon.wait()
            return
        status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
        check(f"{name}: confined", all(re.search(rule, status, re.M) for rule in (r"^Seccomp:\t2", r"^NoNewPrivs:\t1", r"^CapEff:\t0+$")))
        for base in "inline", "host":
            done = ctl(socket, "replay", "--base", base, case)
            check(f"{name}: replay --base {base}", done.returncode == 0, done.stdout + done.stderr)
        if backend == "cuda":
            try:
                import draft

                with draft.connect(socket) as connection:
                    connection.region_open(1 << 20, memory="device").close()
                check(f"{name}: a device region", True)
            except Exception as error:
                check(f"{name}: a device region", False, error)
        for command in "reload", "drain":
            done = ctl(socket, command)
            check(f"{name}: {command}", done.returncode == 0, done.stderr)
        if failed:
            daemon.send_signal(signal.SIGTERM)
        rest = daemon.stderr.read()
        check(f"{name}: exit status", daemon.wait() == 0, rest)


def main():
    if sys.argv[1:] == ["--list"]:
        print(*allowed_by_unit())
        return 0
    backend = sys.argv[2] if sys.argv[1:2] == ["--backend"] else "cuda"
    if platform.machine() != "x86_64":
        print("waived: the filter is for x86_64\n0 passed, 0 failed, 1 waived")
        return 0
    if backend == "cuda" and not os.path.exists("/dev/nvidiactl"):
        print("waived: this machine has no NVIDIA driver\n0 passed, 0 failed, 1 waived")
        return 0
    listed = HERE.with_name("syscalls")
    code = filter_program(list(map(int, listed.read_text().split())) if listed.exists() else allowed_by_unit())
    no_network = may_take_network()
    if not no_network:
        print("waived: this process may not take the network away")
    for name in CASES:
        try_case(name, backend, code, no_network)
    print(f"{passed} passed, {failed} failed, {int(not no_network)} waived")
    return int(failed > 0)


sys.exit(main())
