"""Linux system calls that Python does not offer, through plain ctypes, with numbers for x86_64 and aarch64."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable

MACHINE = platform.machine()

# Names of consecutive system calls after the number of the first. Numbers above 423 are the same everywhere.
_COMMON = """
    424 pidfd_send_signal io_uring_setup 427 io_uring_register 434 pidfd_open clone3 close_range openat2 439
    faccessat2 441 epoll_pwait2 mount_setattr 444 landlock_create_ruleset landlock_add_rule landlock_restrict_self
    449 futex_waitv 452 fchmodat2
"""
_X86_64 = """
    0 read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask
    rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise 32
    dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg
    recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve
    exit wait4 kill uname 72 fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename
    mkdir rmdir creat link unlink symlink readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit
    getrusage sysinfo times ptrace getuid 104 getgid setuid setgid geteuid getegid setpgid getppid getpgrp setsid
    setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid
    capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod 137 statfs
    fstatfs 140 getpriority setpriority 143 sched_getparam sched_setscheduler sched_getscheduler
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval 155 pivot_root 157 prctl arch_prctl 160
    setrlimit chroot 165 mount umount2 170 sethostname 186 gettid readahead setxattr lsetxattr fsetxattr getxattr
    lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex
    sched_setaffinity sched_getaffinity 213 epoll_create 217 getdents64 set_tid_address restart_syscall 221
    fadvise64 228 clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes 247
    waitid 257 openat mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat
    fchmodat faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice tee 280 utimensat epoll_pwait
    283 timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4 290 eventfd2 epoll_create1 dup3
    pipe2 295 preadv pwritev rt_tgsigqueueinfo 299 recvmmsg 302 prlimit64 307 sendmmsg setns getcpu process_vm_readv
    process_vm_writev 316 renameat2 seccomp getrandom memfd_create 322 execveat 324 membarrier 326 copy_file_range
    preadv2 pwritev2 332 statx 334 rseq
"""
_AARCH64 = """
    5 setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr
    lremovexattr fremovexattr getcwd 19 eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl 29 ioctl 32
    flock mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount pivot_root 43 statfs fstatfs truncate
    ftruncate fallocate faccessat chdir fchdir chroot fchmod fchmodat fchownat fchown openat close 59 pipe2 61
    getdents64 lseek read write readv writev pread64 pwrite64 preadv pwritev sendfile pselect6 ppoll 76 splice tee
    readlinkat newfstatat fstat 82 fsync fdatasync 85 timerfd_create timerfd_settime timerfd_gettime utimensat 90
    capget capset 93 exit exit_group waitid set_tid_address unshare futex set_robust_list get_robust_list nanosleep
    getitimer setitimer 113 clock_gettime clock_getres clock_nanosleep 117 ptrace 119 sched_setscheduler
    sched_getscheduler sched_getparam sched_setaffinity sched_getaffinity sched_yield sched_get_priority_max
    sched_get_priority_min sched_rr_get_interval restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend
    rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn setpriority getpriority
    143 setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid setfsgid times setpgid
    getpgid getsid setsid getgroups setgroups uname sethostname 163 getrlimit setrlimit getrusage umask prctl getcpu
    gettimeofday 172 getpid getppid getuid geteuid getgid getegid gettid sysinfo 198 socket socketpair bind listen
    accept connect getsockname getpeername sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead
    brk munmap mremap 220 clone execve mmap fadvise64 226 mprotect msync 232 mincore madvise 240 rt_tgsigqueueinfo
    242 accept4 recvmmsg 260 wait4 prlimit64 268 setns sendmmsg process_vm_readv process_vm_writev 276 renameat2
    seccomp getrandom memfd_create 281 execveat 283 membarrier 285 copy_file_range preadv2 pwritev2 291 statx 293
    rseq
"""


def _table(text: str) -> dict[str, int]:
    table, number = dict[str, int](), 0
    for word in (text + _COMMON).split():
        if word.isdigit():
            number = int(word)
        else:
            table[word], number = number, number + 1
    return table


SYSCALL_TABLES = {"x86_64": (0xC000003E, _table(_X86_64)), "aarch64": (0xC00000B7, _table(_AARCH64))}
"""Audit number of the architecture (as seccomp sees it), and its system calls."""
AUDIT_ARCH, NUMBERS = SYSCALL_TABLES.get(MACHINE, (0, {}))

# Constants from the kernel headers.
CLONE_THREAD = 0x00010000
NEW_NAMESPACES = {
    "mnt": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "time": 0x00000080,
}
"""Flags of clone(2) and unshare(2)."""
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 4, 38, 36

if os.name == "posix":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.syscall.restype = ctypes.c_long


class CallError(OSError):
    """A system call was refused; `call` names it."""

    def __init__(self, call: str, number: int) -> None:
        super().__init__(number, f"{call}: {errno.errorcode.get(number, number)} ({os.strerror(number)})")
        self.call = call


def call(name: str, *arguments: object) -> int:
    """Make a system call by name; integers, bytes and ctypes references are passed as they are. A CallError says that
    the kernel refused, or that this machine's table does not have the name."""
    return prepare_call(name, *arguments)()


def prepare_call(name: str, *arguments: object) -> Callable[[], int]:
    """Prepare a call (see `call`), so that the child that makes it later writes to less memory."""
    number = NUMBERS.get(name)
    if number is None:
        raise CallError(name, errno.ENOSYS)
    passed = [ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)]

    def make() -> int:
        result: int = _libc.syscall(*passed)
        if result < 0:
            raise CallError(name, ctypes.get_errno())
        return result

    return make


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    call(
        "mount",
        os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        flags,
        None if options is None else options.encode(),
    )
