"""The jail: separate namespaces, and a root folder that contains only what an interpreter needs.

A fork server enters it once. Its children then see read-only binds of the standard library, shared libraries and
preloaded packages, an empty scratch folder (/tmp links to it), no /proc, no network, and only their own processes.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable

from foretrace.sandbox.inside import syscalls
from foretrace.sandbox.inside.syscalls import CallError

BOX = "/box"
"""Contains the scratch folder: Landlock rules must be on its parent, since it is mounted anew for each run."""
SCRATCH = "/box/tmp"
INNER_UID = 1000
NOBODY = 65534
_SPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/usr/share/zoneinfo", "/usr/lib/locale")
_LIBRARIES = ("/lib64", "/usr/lib64", "/lib/{m}-linux-gnu", "/usr/lib/{m}-linux-gnu", "/usr/local/lib")
_PACKAGES = ("site-packages", "dist-packages")
_PLAIN = syscalls.MS_NOSUID | syscalls.MS_NODEV
_NO_ACCESS_TIMES, _RELATIVE_TIMES, _STATVFS_RELATIVE = 1024, 1 << 21, 4096


def unshare() -> None:
    """Enter new namespaces; the caller's next child is the first process of the new pid namespace. For root, two users
    are mapped, so that children can be `nobody` on the host: the limit on processes does not apply to the host's
    root."""
    uid, gid = os.getuid(), os.getgid()
    ready, go = os.pipe()
    target = os.getpid()
    helper = os.fork() if uid == 0 else 0  # only a process outside may write a mapping of two users
    if helper == 0 and uid == 0:
        os.close(go)  # so that the pipe ends if the other process dies
        if not os.read(ready, 1):
            os._exit(1)
        try:
            _write(f"/proc/{target}/uid_map", f"0 0 1\n{INNER_UID} {NOBODY} 1")
            _write(f"/proc/{target}/gid_map", f"0 {gid} 1\n{INNER_UID} {NOBODY} 1")
        except OSError:
            os._exit(1)
        os._exit(0)
    try:
        syscalls.call("unshare", sum(syscalls.NEW_NAMESPACES[kind] for kind in _SPACES))
    finally:
        os.write(go, b"g")
        mapped = uid == 0 and os.waitpid(helper, 0)[1] == 0
        os.close(ready)
        os.close(go)
    if not mapped:
        try:
            _write("/proc/self/uid_map", f"{INNER_UID} {uid} 1")
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/gid_map", f"{INNER_UID} {gid} 1")
        except OSError as error:
            raise CallError("write /proc/self/uid_map", error.errno or 0) from None


def find_paths(preloaded: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Existing paths that code may read, folders within them that it may not read, and packages in those that it may.

    Code may read the standard library, shared libraries and devices. It may not read folders of installed packages,
    which may contain the answers to problems, except for preloaded packages.
    """
    standard = os.path.realpath(os.path.dirname(os.__file__))
    libraries = {os.path.realpath(p.format(m=syscalls.MACHINE)) for p in _LIBRARIES} - {"/lib", "/usr/lib"}
    roots = [standard, *sorted(p for p in libraries if os.path.isdir(p))]
    holes = [os.path.join(standard, n) for n in _PACKAGES if os.path.isdir(os.path.join(standard, n))]
    for root in roots[1:]:
        inside = [os.path.join(root, n) for n in sorted(os.listdir(root)) if n.startswith("python") or n in _PACKAGES]
        holes += [p for p in inside if os.path.isdir(p) and not f"{standard}/".startswith(p + "/")]
    own = os.path.join(sys.base_prefix, "lib")
    if os.path.isdir(own) and os.path.realpath(own) not in {"/lib", "/usr/lib", *roots}:
        roots += [os.path.join(own, n) for n in sorted(os.listdir(own)) if ".so" in n]  # the interpreter's
    roots += [p for p in (*_DEVICES, *_FILES) if os.path.exists(p)]
    return roots, holes, sorted(p for p in preloaded if os.path.exists(p))


def carve_holes(roots: list[str], holes: list[str]) -> tuple[list[str], list[str]]:
    """For rules that can only allow: what is readable of the roots without their holes, and folders to list only.

    A folder with a hole is replaced by its entries. It may still be listed, since Python's imports list folders.
    """
    whole: list[str] = []
    listable: list[str] = []
    for root in roots:
        if not any(hole.startswith(root + "/") for hole in holes):
            whole.append(root)
            continue
        listable.append(root)
        entries = [os.path.join(root, name) for name in sorted(os.listdir(root))]
        below, also_listable = carve_holes([e for e in entries if e not in holes], holes)
        whole += below
        listable += also_listable
    return whole, listable


def enter_root(roots: list[str], holes: list[str], preloaded: list[str]) -> None:
    """Make a new root with these paths, read-only, and an empty scratch folder, and move into it."""
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    # Opened before anything is mounted: the new root may hide the folder of the interpreter.
    opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (*roots, *preloaded)}
    links = {p: os.readlink(p) for p in ("/lib", "/lib64", "/bin") if os.path.islink(p)}
    base = next(p for p in ("/tmp", "/var/tmp", "/run", "/mnt", "/") if os.path.isdir(p))
    syscalls.mount("tmpfs", base, "tmpfs", _PLAIN, "mode=0755,size=1m")
    for link, to in links.items():
        os.symlink(to, base + link)
    for path in roots:
        _bind(opened[path], base + path)
    for hole in holes:
        syscalls.mount("tmpfs", base + hole, "tmpfs", _PLAIN, "mode=0755,size=1m")
    for path in preloaded:
        _bind(opened[path], base + path)
    for hole in holes:
        _make_read_only(base + hole)
    for handle in opened.values():
        os.close(handle)
    os.makedirs(base + SCRATCH)
    os.symlink(SCRATCH, base + "/dev/shm")
    if not os.path.lexists(base + "/tmp"):  # it exists if a readable path is below it
        os.symlink(SCRATCH, base + "/tmp")
    os.chdir(base)
    syscalls.call("pivot_root", b".", b".")
    syscalls.call("umount2", b".", syscalls.MNT_DETACH)
    os.chdir("/")
    _make_read_only("/")
    syscalls.call("sethostname", b"sandbox", 7)


class ScratchFolder:
    """The scratch folder of a run, a mount. Since mounts are slow, an untouched one is used again for the next run."""

    def __init__(self) -> None:
        self._size_mb = 0
        self._last_state = (0, 0, 0, 0)

    def renew(self, size_mb: int) -> None:
        """Provide an empty scratch folder of that size: the current one if nothing has touched it."""
        if self._size_mb == size_mb and self._read_state() == self._last_state:
            return
        if self._size_mb:
            syscalls.call("umount2", SCRATCH.encode(), syscalls.MNT_DETACH)
        options = f"size={size_mb}m,nr_inodes=512,mode=0700,uid={INNER_UID},gid={INNER_UID}"
        syscalls.mount("tmpfs", SCRATCH, "tmpfs", _PLAIN | syscalls.MS_NOEXEC, options)
        self._size_mb, self._last_state = size_mb, self._read_state()

    def _read_state(self) -> tuple[int, int, int, int]:
        # Nobody can set the ctime: it shows if a file was made and removed, or the mode changed and restored. It has
        # the kernel's ticks, within which the size still shows what is there: a tmpfs folder's grows with each entry.
        now = os.stat(SCRATCH)
        return now.st_ctime_ns, now.st_mtime_ns, now.st_mode, now.st_size


def _bind(handle: int, target: str) -> None:
    source = f"/proc/self/fd/{handle}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a", encoding="ascii"):
            pass
    syscalls.mount(source, target, None, syscalls.MS_BIND | syscalls.MS_REC)
    _make_read_only(target)


def _make_read_only(target: str) -> None:
    has = os.statvfs(target).f_flag  # the host's own flags cannot be removed
    own_flags = has & (_PLAIN | syscalls.MS_NOEXEC | _NO_ACCESS_TIMES)
    relative = _RELATIVE_TIMES if has & _STATVFS_RELATIVE else 0
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | syscalls.MS_NOSUID
    syscalls.mount("none", target, None, flags | own_flags | relative)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


# Landlock: which files a process may read and write.

_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 2, 4, 8
_FIRST_MISSING = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 4: 1 << 15}
"""By version of the interface: the first file access right that it does not have."""
_ALL = 1 << 16
_DEVICE_IOCTL = 1 << 15
_RULE_PATH = 1
_O_PATH_CLOEXEC = getattr(os, "O_PATH", 0) | os.O_CLOEXEC


def make_landlock_rules(readable: list[str], listable: list[str], writable: list[str]) -> int:
    """Make Landlock rules, and return their descriptor: everything is denied except reading below `readable`, listing
    below `listable`, and all access below `writable`; also TCP, and signals to processes outside."""
    known = syscalls.call("landlock_create_ruleset", None, 0, 1)
    files = _FIRST_MISSING.get(known, _ALL) - 1
    network = 3 if known >= 4 else 0
    scoped = 3 if known >= 6 else 0  # abstract sockets and signals
    attributes = struct.pack("=QQQ", files, network, scoped)
    size = 8 if known < 4 else 16 if known < 6 else 24
    handle = syscalls.call("landlock_create_ruleset", attributes, size, 0)
    os.set_inheritable(handle, False)
    for path in readable:
        _allow(handle, path, (_READ | _READ_DIR) & files)
    for path in listable:
        _allow(handle, path, _READ_DIR & files)
    for path in writable:
        _allow(handle, path, files & ~(_EXECUTE | _DEVICE_IOCTL))
    return handle


def _allow(handle: int, path: str, rights: int) -> None:
    try:
        found = os.open(path, _O_PATH_CLOEXEC)
    except OSError:
        return  # a path that does not exist needs no rule
    try:
        if not stat.S_ISDIR(os.fstat(found).st_mode):
            rights &= _WRITE | _READ | (1 << 14)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, found), 12)
        syscalls.call("landlock_add_rule", handle, _RULE_PATH, ctypes.byref(rule), 0)
    finally:
        os.close(found)
