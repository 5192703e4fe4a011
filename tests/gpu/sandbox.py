#!/usr/bin/env python3
"""draftd with the GPU inside what draftd.service allows it: system calls, no writable and executable memory, Unix sockets only, no
capabilities, no new privileges, and no network but a loopback device of its own where this process may take it away. Golden cases must
come back right, device regions must be granted, a reload and a drain must succeed. Where there are two GPUs, the same with both, in the
block form, and through NCCL with the drop-in that the README has for it. Without systemd, so that it runs in a GPU machine's container.

Usage: sandbox.py [--backend NAME], from the unpacked archive or the sources (built); sandbox.py --list: the numbers of the system calls,
which the archive has in a file "syscalls". Ends with "N passed, N failed, N waived"; exit code 1 if anything failed.
"""

import ctypes
import errno
import fcntl
import os
import pathlib
import platform
import re
import socket
import struct
import subprocess
import sys

from daemon import GOLDEN, HERE, PAIR, TOP, Daemon, gpus, has_nccl, need_gpus
from tally import check, end, waive

CASES = "greedy_small", "sampled_odd_vocab", "multiplier_soft_cap"
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
NCCL_ENVIRONMENT = {"NCCL_SOCKET_IFNAME": "lo"}  # of the drop-in, which lets all these families through, too
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


def filter_program(allowed, families):
    """A seccomp filter: what is not allowed fails with EPERM, as the unit says; sockets of other families with EAFNOSUPPORT."""
    LOAD, EQUAL, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
    ALLOW, EPERM, EAFNOSUPPORT = 0x7FFF0000, 0x50000 | 1, 0x50000 | 97
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, 0xC000003E), (RETURN, 0, 0, EPERM), (LOAD, 0, 0, 0)]

    def only_if(number, argument, tests, refusal):
        # skipped for another system call; `tests` end in a jump over the refusal
        body = [(LOAD, 0, 0, 16 + 8 * argument), *tests, (RETURN, 0, 0, refusal), (LOAD, 0, 0, 0)]
        program.extend([(EQUAL, 0, len(body), number), *body])

    count = len(families)
    only_if(41, 0, [(EQUAL, count - at, 0, FAMILIES[name]) for at, name in enumerate(families)], EAFNOSUPPORT)  # socket
    only_if(9, 2, [(AND, 0, 0, 6), (EQUAL, 0, 1, 6)], EPERM)  # mmap: not PROT_WRITE and PROT_EXEC
    for mprotect in 10, 329:
        only_if(mprotect, 2, [(ANY_BIT, 0, 1, 4)], EPERM)  # not PROT_EXEC
    for number in allowed:
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    program.append((RETURN, 0, 0, EPERM))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def enter(code, families, no_network):
    """In the child, before draftd."""
    if no_network:
        take_network()
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "no_new_privs")
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(22, 2, program, 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "seccomp")
    for name in FAMILIES.keys() - set(families):
        if libc.socket(FAMILIES[name], socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) >= 0 or ctypes.get_errno() != errno.EAFNOSUPPORT:
            raise OSError(ctypes.get_errno(), f"{name} is not refused")


def take_network():
    """Leaves a loopback device of its own, which is up."""
    if libc.unshare(0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", 1))  # SIOCSIFFLAGS: IFF_UP


def may_take_network():
    pid = os.fork()
    if pid == 0:
        try:
            take_network()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def try_case(label, case, backend, allowed, no_network, *options, families=("AF_UNIX",), environment=()):
    case, code = GOLDEN / f"{case}.safetensors", filter_program(allowed, families)
    daemon = Daemon(
        case, *options, backend=backend, preexec_fn=lambda: enter(code, families, no_network), env=os.environ | dict(environment)
    )
    if not check(f"{label}: start", daemon.is_ready(), daemon.log()):
        daemon.stop()
        return
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    right = all(re.search(rule, status, re.M) for rule in (r"^Seccomp:\t2", r"^NoNewPrivs:\t1", r"^CapEff:\t0+$"))
    check(f"{label}: confined", right, status)
    for base in "inline", "host":
        done = daemon.ctl("replay", "--base", base, case)
        check(f"{label}: replay --base {base}", done.returncode == 0, done.stdout + done.stderr)
    if backend == "cuda":
        try:
            with daemon.connect() as connection:
                connection.region_open(1 << 20, memory="device").close()
            check(f"{label}: a device region", True)
        except Exception as error:
            check(f"{label}: a device region", False, error)
    drained = False
    for command in "reload", "drain":
        done = daemon.ctl(command)
        drained = check(f"{label}: {command}", done.returncode == 0, done.stderr)
    code = daemon.wait() if drained else daemon.stop()
    check(f"{label}: exit status", code == 0, f"{code}\n{daemon.log()}")


def main():
    if sys.argv[1:] == ["--list"]:
        print(*allowed_by_unit())
        return
    backend = sys.argv[2] if sys.argv[1:2] == ["--backend"] else "cuda"
    if platform.machine() != "x86_64":
        waive("the filter is for x86_64")
        end()
    if backend == "cuda":
        need_gpus(1)
    listed = HERE / "syscalls"
    allowed = list(map(int, listed.read_text().split())) if listed.exists() else allowed_by_unit()
    no_network = may_take_network()
    if not no_network:
        waive("this process may not take the network away")
    for name in CASES:
        try_case(name, name, backend, allowed, no_network)
    if backend == "cuda" and len(gpus()) > 1:
        try_case("two GPUs", CASES[1], backend, allowed, no_network, *PAIR)
        if has_nccl():
            through = *PAIR, "--cuda-form", "step"
            try_case("NCCL", CASES[1], backend, allowed, no_network, *through, families=FAMILIES, environment=NCCL_ENVIRONMENT)
    end()


if __name__ == "__main__":
    main()
