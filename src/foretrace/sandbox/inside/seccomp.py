"""System call filters as BPF programs: an allowlist, with ENOSYS for everything else.

There are two filters, since the kernel compiles a filter anew for each process that installs it: the allowlist, which
the fork server installs once and children inherit, and a small one that denies a child what only the server may do.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import struct

from foretrace.sandbox.inside import syscalls

# What CPython, its standard library and numpy need to compute, read files, use threads and print.
_ALLOWED = """
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range open openat
    openat2 creat stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents
    getdents64 getcwd chdir fchdir statfs fstatfs fsync fdatasync ftruncate fallocate fadvise64 readahead
    mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat umask sendfile
    copy_file_range splice tee mmap mprotect munmap mremap brk madvise mincore msync rt_sigaction rt_sigprocmask
    rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause nanosleep clock_nanosleep
    clock_gettime clock_getres gettimeofday time times alarm setitimer getitimer timerfd_create timerfd_settime
    timerfd_gettime poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
    epoll_pwait2 eventfd eventfd2 pipe pipe2 dup dup2 dup3 getsockname getpeername getsockopt setsockopt shutdown
    sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg futex futex_waitv set_robust_list get_robust_list
    set_tid_address rseq membarrier arch_prctl restart_syscall getpid getppid gettid getuid geteuid getgid getegid
    getresuid getresgid getgroups getpgrp getpgid getsid capget getrlimit getrusage sysinfo uname getcpu
    getpriority getrandom sched_yield sched_getaffinity sched_getscheduler sched_getparam sched_get_priority_max
    sched_get_priority_min sched_rr_get_interval wait4 waitid exit exit_group
"""

# Changes of metadata. Landlock does not restrict them, so they need a file system that is read-only except the scratch.
_METADATA = """
    chmod fchmod fchmodat fchmodat2 utime utimes futimesat utimensat truncate getxattr lgetxattr fgetxattr
    listxattr llistxattr flistxattr
"""

# Refused with EPERM, which Python turns into a plain PermissionError, instead of "function not implemented".
_REFUSED = """
    flock execve execveat fork vfork socket connect bind listen accept accept4 kill tkill pidfd_open pidfd_send_signal
    rt_sigqueueinfo rt_tgsigqueueinfo ptrace process_vm_readv process_vm_writev chown fchown lchown fchownat mknod
    mknodat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr mount umount2 pivot_root chroot
    unshare setns sethostname setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid
    setpgid setsid setpriority sched_setaffinity sched_setscheduler capset memfd_create
"""

# What else the fork server needs, and a child until its own filter is installed.
_SERVER = """
    clone fork kill tgkill pidfd_open prctl prlimit64 setsid setgroups setresgid setresuid capset landlock_restrict_self
    seccomp mount umount2 memfd_create ioctl
"""

_LOAD, _JEQ, _JSET, _AND, _JGE, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x35, 0x06
_ALLOW, _ERRNO, _KILL, _NOTIFY = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
# TCGETS (isatty), FIONREAD, FIONBIO, FIOCLEX, FIONCLEX. TIOCSTI would type into a terminal.
_IOCTLS = (0x5401, 0x541B, 0x5421, 0x5451, 0x5450)
# PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, PR_CAPBSET_READ, PR_GET_SECCOMP, PR_GET_NO_NEW_PRIVS.
_PRCTLS = (15, 16, 3, 23, 21, 39)
# Duplicates, flags, locks, the size of a pipe; not F_SETOWN, which sends signals.
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
_AF_UNIX, _SOCK_STREAM = 1, 1
_RLIMIT_STACK = 3
_OWN_PID = 0x7E5E7E5E
"""Placeholder in the program for the child's own process id."""

Instructions = list[bytes]


def make_server_program(*, metadata: bool) -> bytes:
    """The instructions of the fork server's filter: the allowlist, which each child inherits; with `metadata` also
    chmod, utime and the like, for a jail where everything but the scratch is read-only."""
    code = [_op(_LOAD, _ARCH), _op(_JEQ, syscalls.AUDIT_ARCH, 1, 0), _op(_RETURN, _KILL), _op(_LOAD, _NUMBER)]
    if syscalls.MACHINE == "x86_64":  # the x32 interface reuses the numbers with this bit set
        code += [_op(_JGE, 0x40000000, 0, 1), _op(_RETURN, _KILL)]
    return b"".join([*code, *_choose(_server_rules(metadata)), *_UNKNOWN])


def make_child_program(*, metadata: bool, forks: bool) -> bytes:
    """The instructions of a child's additional filter: what the fork server may do and a child may not, since the
    kernel compiles it anew for each child. The process id is filled in later (see `SeccompFilter`). If it `forks`, as
    in a session, the kernel asks the fork server about each new process (see `answer_fork_request`)."""
    of_server, of_child = _server_rules(metadata), _rules(metadata, forks)
    rules = {number: of_child.get(number, _UNKNOWN) for number in of_server}
    denied = {number: rule for number, rule in rules.items() if rule != of_server[number]}
    return b"".join([_op(_LOAD, _NUMBER), *_choose(denied), *_LEAVE])


def _rules(metadata: bool, forks: bool) -> dict[int, Instructions]:
    """The rule for each system call of a child, by number; all other numbers are unknown."""
    refusal = [_op(_RETURN, _ERRNO | errno.EPERM)]
    rules = dict.fromkeys((_REFUSED + _METADATA).split(), refusal)
    allowed = [*_ALLOWED.split(), *(_METADATA.split() if metadata else ()), *(("kill", "tgkill") if forks else ())]
    rules["clone"] = _clone(_NOTIFY if forks else _ERRNO | errno.EPERM)
    rules["tgkill"] = rules["kill"] = _one_of(0, (_OWN_PID,))
    rules["ioctl"], rules["prctl"] = _one_of(1, _IOCTLS), _one_of(0, _PRCTLS)
    rules["fcntl"], rules["socketpair"] = _one_of(1, _FCNTLS), _stream_pair()
    rules["setrlimit"], rules["prlimit64"] = _stack_limit(0), _limits()
    return _numbered(rules | dict.fromkeys(allowed, _LEAVE))


def _server_rules(metadata: bool) -> dict[int, Instructions]:
    return _rules(metadata, False) | _numbered(dict.fromkeys(_SERVER.split(), _LEAVE))


def _numbered(rules: dict[str, Instructions]) -> dict[int, Instructions]:
    return {syscalls.NUMBERS[name]: rule for name, rule in rules.items() if name in syscalls.NUMBERS}


class SeccompFilter:
    def __init__(self, instructions: bytes, *, notifies: bool = False) -> None:
        self._buffer = ctypes.create_string_buffer(instructions, len(instructions))
        mark = struct.pack("=I", _OWN_PID)
        self._marks = [i for i in range(4, len(instructions), 8) if instructions[i : i + 4] == mark]
        """Offsets of the process id."""
        self._program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(self._buffer))
        set_filter, allow_speculation = 1, 1 << 2  # the slower mode only protects a process from itself
        flags = allow_speculation | (1 << 3 if notifies else 0)
        self._call = syscalls.prepare_call("seccomp", set_filter, flags, self._program)

    def install(self, own_pid: int) -> int:
        """Install it for good for this process and all that it starts (no_new_privs must be set). Returns, if the
        filter notifies, the descriptor of the kernel's requests (see `answer_fork_request`)."""
        for mark in self._marks:
            struct.pack_into("=I", self._buffer, mark, own_pid)
        return self._call()


def answer_fork_request(descriptor: int, *, allow: bool = False) -> None:
    """Answer the kernel's request about a new process of a session."""
    request = bytearray(80)
    with contextlib.suppress(OSError):  # the process that asked has exited
        fcntl.ioctl(descriptor, 0xC0502100, request)  # SECCOMP_IOCTL_NOTIF_RECV
        (number,) = struct.unpack_from("=Q", request)
        answer = struct.pack("=QqiI", number, 0, *((0, 1) if allow else (-errno.EPERM, 0)))
        fcntl.ioctl(descriptor, 0xC0182101, answer)  # SECCOMP_IOCTL_NOTIF_SEND


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value & 0xFFFFFFFF)


_LEAVE, _UNKNOWN = [_op(_RETURN, _ALLOW)], [_op(_RETURN, _ERRNO | errno.ENOSYS)]


def _choose(rules: dict[int, Instructions]) -> Instructions:
    """Apply the rule of the call's number, if it has one. (The kernel caches which calls are always allowed.)"""
    return [line for number, rule in rules.items() for line in (_op(_JEQ, number, 0, len(rule)), *rule)]


def _one_of(argument: int, values: tuple[int, ...]) -> Instructions:
    """Allow the call if its argument is in `values` (only the low half, which is all the kernel uses of these)."""
    code = [_op(_LOAD, _ARGUMENTS + 8 * argument)]
    for value in values:
        code += [_op(_JEQ, value, 0, 1), _op(_RETURN, _ALLOW)]
    return [*code, _op(_RETURN, _ERRNO | errno.EPERM)]


def _clone(otherwise: int) -> Instructions:
    """Allow threads, refuse new namespaces, and return `otherwise` for new processes."""
    return [
        _op(_LOAD, _ARGUMENTS),
        _op(_JSET, sum(syscalls.NEW_NAMESPACES.values()), 2, 0),
        _op(_JSET, syscalls.CLONE_THREAD, 0, 2),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _ERRNO | errno.EPERM),
        _op(_RETURN, otherwise),
    ]


def _stream_pair() -> Instructions:
    """Allow only pairs of stream sockets: datagram sockets could send to any address."""
    return [
        _op(_LOAD, _ARGUMENTS),
        _op(_JEQ, _AF_UNIX, 0, 4),
        _op(_LOAD, _ARGUMENTS + 8),
        _op(_AND, 0xF),
        _op(_JEQ, _SOCK_STREAM, 0, 1),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _ERRNO | errno.EPERM),
    ]


def _limits() -> Instructions:
    """Allow the call if it only reads a limit (the new limit is a null pointer); otherwise like `_stack_limit`."""
    new = _ARGUMENTS + 8 * 2
    return [
        _op(_LOAD, new),
        _op(_JEQ, 0, 0, 3),
        _op(_LOAD, new + 4),
        _op(_JEQ, 0, 0, 1),
        _op(_RETURN, _ALLOW),
        *_stack_limit(1),
    ]


def _stack_limit(argument: int) -> Instructions:
    """For the stack limit, do nothing and report success: programs that recurse deeply set it, and the memory limit
    covers the stack anyway. Refuse to set any other limit."""
    return [
        _op(_LOAD, _ARGUMENTS + 8 * argument),
        _op(_JEQ, _RLIMIT_STACK, 1, 0),
        _op(_RETURN, _ERRNO | errno.EPERM),
        _op(_RETURN, _ERRNO),
    ]
