"""The system call filter, run instruction by instruction for calls of every number on both machines' tables."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from foretrace.sandbox.inside import seccomp, syscalls

ALLOW, KILL, ASK = 0x7FFF0000, 0x80000000, 0x7FC00000
EPERM, ENOSYS = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
OWN = 4242


class Filter:
    """A child's filter on top of the fork server's for one machine, with a small reading of classic BPF."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, machine: str, *, metadata: bool, forks: bool) -> None:
        self.arch, self.numbers = syscalls.SYSCALL_TABLES[machine]
        for name, value in (("MACHINE", machine), ("AUDIT_ARCH", self.arch), ("NUMBERS", self.numbers)):
            monkeypatch.setattr(syscalls, name, value)
        own = seccomp.make_child_program(metadata=metadata, forks=forks)
        own = own.replace(struct.pack("=I", seccomp._OWN_PID), struct.pack("=I", OWN))
        self.own = list(struct.iter_unpack("=HBBI", own))
        self.server = list(struct.iter_unpack("=HBBI", seccomp.make_server_program(metadata=metadata)))

    def __call__(self, call: str | int, *arguments: int, arch: int | None = None) -> int:
        """What the kernel makes of both: the action of the lower number (as a signed one) wins."""
        number = self.numbers[call] if isinstance(call, str) else call
        words = [a & 0xFFFFFFFFFFFFFFFF for a in (*arguments, *[0] * 6)][:6]
        data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, self.arch if arch is None else arch, 0, *words)
        said = [act(code, data) for code in (self.own, self.server)]
        return min(said, key=lambda action: (action & 0xFFFF0000) - (1 << 32) * (action >> 31))


def act(code: list[Any], data: bytes) -> int:
    """What one filter makes of a call."""
    at = value = 0
    while True:
        operation, yes, no, k = code[at]
        at += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("=I", data, k)
        elif operation == 0x54:
            value &= k
        elif operation == 0x06:
            return k
        else:
            hit = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[operation]
            at += yes if hit else no


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, machine: str) -> Filter:
    """The filter of a run at level 2 and 1."""
    return Filter(monkeypatch, machine, metadata=False, forks=False)


@pytest.fixture
def jailed(monkeypatch: pytest.MonkeyPatch, machine: str) -> Filter:
    return Filter(monkeypatch, machine, metadata=True, forks=False)


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch, machine: str) -> Filter:
    return Filter(monkeypatch, machine, metadata=True, forks=True)


def test_it_is_an_allowlist(plain: Filter, jailed: Filter, forking: Filter) -> None:
    """No number beyond what is listed passes, whatever it is."""
    known = set(plain.numbers.values())
    for filter_ in (plain, jailed, forking):
        assert len(filter_.own) < 100 and len(filter_.server) < 4096  # the first is compiled for each run
        assert {n for n in range(1024) if n not in known and filter_(n) != ENOSYS} == set()
        allowed = {name for name, n in filter_.numbers.items() if filter_(n, *[0x7FFFFFFF] * 6) == ALLOW}
        listed = {*seccomp._ALLOWED.split(), *seccomp._METADATA.split()} | {"kill", "tgkill"}
        assert allowed <= listed
        assert "prlimit64" not in allowed and "clone" not in allowed


_DANGEROUS = """
execve execveat ptrace process_vm_readv process_vm_writev mount umount2 pivot_root unshare setns chroot socket connect
bind listen accept accept4 setuid setresuid setgroups capset pidfd_open pidfd_send_signal tkill rt_sigqueueinfo chown
fchownat setxattr mknodat setsid setrlimit clone3 seccomp landlock_create_ruleset sethostname memfd_create
io_uring_setup io_uring_register
"""
DANGEROUS = _DANGEROUS.split()


def test_dangerous_calls_are_refused_in_every_filter(plain: Filter, jailed: Filter, forking: Filter) -> None:
    for filter_ in (plain, jailed, forking):
        passed = [n for n in DANGEROUS if n in filter_.numbers and filter_(n) not in (EPERM, ENOSYS)]
        assert passed == []


def test_other_interfaces_of_the_kernel_kill(plain: Filter, machine: str) -> None:
    for arch in (0x40000003, 0x40000028, 0xC00000B7 if machine == "x86_64" else 0xC000003E, 0):
        assert plain("read", arch=arch) == KILL
    if machine == "x86_64":
        assert plain(0x40000000) == plain(0x40000000 | 59) == plain(0xFFFFFFFF) == KILL


def test_threads_may_be_made_and_processes_not(plain: Filter, jailed: Filter, forking: Filter) -> None:
    thread = 0x3D0F00  # what pthread_create asks for
    for filter_ in (plain, jailed):
        assert filter_("clone", thread) == ALLOW
        assert filter_("clone", 17) == filter_("clone", 0x4111) == EPERM  # fork, posix_spawn
        for name in ("fork", "vfork"):
            assert name not in filter_.numbers or filter_(name) == EPERM
    assert forking("clone", thread) == ALLOW
    for flags in (17, 0x4111, 0x1200011, 0):  # each of them is for the fork server to decide
        assert forking("clone", flags) == ASK
    for name in ("fork", "vfork"):
        assert name not in forking.numbers or forking(name) == EPERM
    for space in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        for filter_ in (plain, jailed, forking):
            assert filter_("clone", 17 | space) == filter_("clone", thread | space) == EPERM


def test_signals_go_to_oneself_only(plain: Filter, jailed: Filter) -> None:
    for filter_ in (plain, jailed):
        assert filter_("kill", OWN, 9) == filter_("tgkill", OWN, OWN, 9) == ALLOW
        for target in (0, 1, -1, -OWN, OWN + 1):
            assert filter_("kill", target, 9) == filter_("tgkill", target, target, 9) == EPERM


def test_metadata_can_be_changed_in_a_jail_only(plain: Filter, jailed: Filter) -> None:
    for name in ("fchmodat", "utimensat", "truncate", "fchmod"):
        assert plain(name) == EPERM and jailed(name) == ALLOW


def test_arguments_that_matter(plain: Filter, forking: Filter) -> None:
    assert plain("ioctl", 1, 0x5401) == ALLOW
    for request in (0x5412, 0x541C, 0x8933, 0x5410, 0x541D):  # TIOCSTI, TIOCLINUX, SIOCGIFINDEX, TIOCSPGRP, TIOCCONS
        assert plain("ioctl", 1, request) == plain("ioctl", 1, request | 1 << 32) == EPERM
    assert plain("socketpair", 1, 1) == plain("socketpair", 1, 1 | 0o2000000) == ALLOW
    assert plain("socketpair", 2, 1) == plain("socketpair", 16, 1) == EPERM
    assert plain("socketpair", 1, 2) == plain("socketpair", 1, 2 | 0o2000000) == EPERM  # can be turned to strangers
    assert plain("prlimit64", 0, 7, 0, 0x7FFF0000) == ALLOW
    for pointer in (0x7FFF0000, 1 << 32, 1 << 63):
        assert plain("prlimit64", 0, 7, pointer) == EPERM
    assert plain("prctl", 15) == ALLOW
    for option in (1, 2, 4, 22, 24, 8, 28, 35, 38, 59, 0x59616D61):
        assert plain("prctl", option) == EPERM
    assert plain("fcntl", 0, 1030) == ALLOW
    for command in (1024, 1031, 1033, 8, 10, 15):  # leases, pipe sizes, seals, owners and signals
        assert plain("fcntl", 0, command) == EPERM


def test_every_listed_name_is_known_somewhere() -> None:
    tables = [numbers for _, numbers in syscalls.SYSCALL_TABLES.values()]
    listed = {*(seccomp._ALLOWED + seccomp._METADATA + seccomp._REFUSED).split(), *DANGEROUS}
    assert {name for name in listed if not any(name in numbers for numbers in tables)} == set()


def _header(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)}


HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}


def test_the_tables_agree_with_the_kernel_headers(machine: str) -> None:
    path = next((Path(p) for p in HEADERS[machine] if Path(p).exists()), None)
    if path is None:
        pytest.skip("no kernel headers here")
    known: dict[str, Any] = _header(path.read_text("utf-8"))
    numbers = syscalls.SYSCALL_TABLES[machine][1]
    assert len(known) > 200
    renamed = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    wrong = {n: (v, known.get(renamed.get(n, n))) for n, v in numbers.items() if known.get(renamed.get(n, n), v) != v}
    assert wrong == {}
    assert len(set(numbers.values())) == len(numbers)


def test_no_limit_is_set_and_that_of_the_stack_is_said_to_be(plain: Filter, jailed: Filter, forking: Filter) -> None:
    new, done = 0x7FFF0000, 0x50000  # an error of number 0: the kernel does nothing, and the call succeeds
    for filter_ in (plain, jailed, forking):
        assert filter_("setrlimit", 3, new) == filter_("prlimit64", 0, 3, new, 0) == done
        for other in {*range(16)} - {3}:
            assert filter_("setrlimit", other, new) == filter_("prlimit64", 0, other, new) == EPERM
        assert filter_("prlimit64", 0, 3, 0, new) == ALLOW
