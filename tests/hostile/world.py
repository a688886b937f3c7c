"""Decoys that a snippet may attack: files, sockets, a process, shared memory; and what was done to them."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hostile import tree

PLACES = ("env", "argv", "memory", "file", "name", "module", "descriptor", "shm", "sysv")
SECRETS = {place: f"DECOY-{place}-{hashlib.sha256(place.encode()).hexdigest()[:32]}" for place in PLACES}
"""One secret for each place, so that a leak says where it came from. No snippet contains one."""

# System calls that the snippets make by number: (x86_64, aarch64).
_NUMBERS = {
    "ptrace": (101, 117), "add_key": (248, 217), "keyctl": (250, 219), "mq_open": (240, 180), "unshare": (272, 97),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "open_by_handle_at": (304, 265), "clone": (56, 220),
    "process_vm_readv": (310, 270), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "clone3": (435, 435),
    "pidfd_getfd": (438, 438), "io_uring_setup": (425, 425), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "sethostname": (170, 161), "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282),
    "finit_module": (313, 273), "setns": (308, 268), "mount": (165, 40), "pivot_root": (155, 41), "swapon": (167, 224),
    "fanotify_init": (300, 262), "move_pages": (279, 239), "quotactl": (179, 60), "syslog": (103, 116),
    "chroot": (161, 51), "clock_settime": (227, 112), "fsopen": (430, 430), "open_tree": (428, 428),
    "process_madvise": (440, 440), "memfd_secret": (447, 447), "kcmp": (312, 272), "execveat": (322, 281),
}  # fmt: skip
NUMBERS = {name: pair[platform.machine() == "aarch64"] for name, pair in _NUMBERS.items()}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _syscall(name: str, *arguments: Any) -> int:
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _libc.syscall(ctypes.c_long(NUMBERS[name]), *passed)


class World:
    """Decoys in a folder of their own, and everything outside of files. `facts` tells a snippet where they are."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="foretrace-decoy-"))
        self.home = self.folder / "home"
        self.work = Path(tempfile.mkdtemp(prefix="foretrace-temporary-"))
        """Its folder for temporary files; not watched."""
        tag = self.folder.name
        self.shm = Path("/dev/shm") / tag
        self.left = [Path(tempfile.gettempdir()) / f"left-{tag}", Path("/dev/shm") / f"left-{tag}"]
        self.key = 0x46000000 | int(hashlib.sha256(tag.encode()).hexdigest()[:5], 16) << 1
        self._make_files()
        self.victim = subprocess.Popen(["sleep", "300"], start_new_session=True)
        self.sockets = self._open_sockets(tag)
        self.segment = _syscall("shmget", self.key, 4096, 0o1600)
        self._segment_text(SECRETS["sysv"].encode())

    def _make_files(self) -> None:
        self.home.mkdir()
        (self.folder / "mount").mkdir()
        (self.folder / "token.txt").write_text(SECRETS["file"])
        (self.folder / "token.txt").chmod(0o640)
        (self.folder / "keep.txt").write_text("keep me")
        (self.folder / "gone.txt").write_text("keep me too")
        (self.folder / "decoy_module.py").write_text(f"SECRET = {SECRETS['module']!r}\n")
        (self.home / SECRETS["name"]).write_text("")
        (self.home / ".netrc").write_text(SECRETS["file"])
        self.shm.write_text(SECRETS["shm"])

    def _open_sockets(self, tag: str) -> dict[str, socket.socket]:
        found = {}
        for name, family, kind, address in (
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, str(self.folder / "unix.sock")),
            ("unix_datagram", socket.AF_UNIX, socket.SOCK_DGRAM, str(self.folder / "datagram.sock")),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{tag}-stream"),
            ("abstract_datagram", socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{tag}-datagram"),
        ):
            opened = socket.socket(family, kind)
            opened.bind(address)
            opened.setblocking(False)
            if kind == socket.SOCK_STREAM:
                opened.listen(8)
            found[name] = opened
        return found

    def _segment_text(self, text: bytes | None = None) -> bytes:
        _libc.shmat.restype = ctypes.c_void_p
        address = _libc.shmat(self.segment, None, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            return b""
        if text is not None:
            ctypes.memmove(address, text + b"\0", len(text) + 1)
        found = ctypes.string_at(address)
        _libc.shmdt(ctypes.c_void_p(address))
        return found

    def facts(self) -> dict[str, Any]:
        """What a snippet finds in `WORLD`. Parent and address are filled in by the process that starts it."""
        return {
            "parent": "@PARENT@",
            "address": "@ADDRESS@",
            "folder": str(self.folder),
            "home": str(self.home),
            "victim": self.victim.pid,
            "tcp": self.sockets["tcp"].getsockname()[1],
            "udp": self.sockets["udp"].getsockname()[1],
            "tag": self.folder.name,
            "key": self.key,
            "left": [str(path) for path in self.left],
            "nr": NUMBERS,
            "handle": self._handle(),
        }

    def _handle(self) -> str:
        """A kernel file handle of the token, hexadecimal; what `open_by_handle_at` takes in place of a path."""
        buffer = ctypes.create_string_buffer(8 + 128)
        ctypes.memmove(buffer, (128).to_bytes(4, "little"), 4)
        mount = ctypes.c_int()
        path = os.fsencode(self.folder / "token.txt")
        if _libc.name_to_handle_at(-100, path, buffer, ctypes.byref(mount), 0):
            return ""
        return bytes(buffer.raw[: 8 + int.from_bytes(buffer.raw[:4], "little")]).hex()

    def seen(self) -> dict[str, str]:
        """The state of every decoy; two of these tell what was done between them."""
        found = {str(path): self._file(path) for path in [self.folder, *sorted(self.folder.rglob("*"))]}
        found |= {str(path): self._file(path) for path in (self.shm, *self.left)}
        found["mount"] = str(os.path.ismount(self.folder / "mount"))
        found["victim"] = self._victim()
        found["sysv"] = self._segment_text().decode(errors="replace")
        found["sysv left"] = str(_syscall("shmget", self.key + 1, 0, 0) >= 0)
        queue = _libc.mq_open(f"/{self.folder.name}".encode(), os.O_RDONLY) if hasattr(_libc, "mq_open") else -1
        found["queue left"] = str(queue >= 0)
        if queue >= 0:
            os.close(queue)
        found["key left"] = str(_syscall("keyctl", 10, -4, b"user", self.folder.name.encode(), 0) >= 0)
        for name, opened in self.sockets.items():
            found[name] = self._heard(opened)
        return found

    def _file(self, path: Path) -> str:
        try:
            info = path.lstat()
        except OSError:
            return "none"
        facts = [oct(info.st_mode), info.st_uid, info.st_nlink, info.st_rdev, info.st_mtime_ns]
        if path.is_symlink():
            return f"{facts} -> {os.readlink(path)}"
        attributes = [name for name in os.listxattr(path) if name.startswith("user.")]
        return f"{facts} {attributes} {path.read_bytes() if path.is_file() else ''!r}"

    def _victim(self) -> str:
        pid = self.victim.pid
        if not tree.alive(pid):
            return "dead"
        stopped = tree.state(pid) in "Tt"
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        where = sorted(os.sched_getaffinity(pid))
        return f"{stopped} {os.getpriority(os.PRIO_PROCESS, pid)} {where} {os.sched_getscheduler(pid)} {limits}"

    def _heard(self, opened: socket.socket) -> str:
        try:
            if opened.type == socket.SOCK_STREAM:
                opened.accept()[0].close()
            else:
                opened.recv(4096)
        except BlockingIOError:
            return "silent"
        return "reached"

    def close(self) -> None:
        if self.victim.poll() is None:
            self.victim.send_signal(signal.SIGCONT)
        self.victim.kill()
        self.victim.wait()
        for opened in self.sockets.values():
            opened.close()
        for segment in (self.segment, _syscall("shmget", self.key + 1, 0, 0)):
            if segment >= 0:
                _syscall("shmctl", segment, 0, None)
        if hasattr(_libc, "mq_unlink"):
            _libc.mq_unlink(f"/{self.folder.name}".encode())
        key = _syscall("keyctl", 10, -4, b"user", self.folder.name.encode(), 0)
        if key >= 0:
            _syscall("keyctl", 9, key, -4)
        if os.path.ismount(self.folder / "mount"):
            _libc.umount2(os.fsencode(self.folder / "mount"), 2)
        for path in (self.shm, *self.left):
            path.unlink(missing_ok=True)
        for folder in (self.folder, self.work):
            shutil.rmtree(folder, ignore_errors=True)
