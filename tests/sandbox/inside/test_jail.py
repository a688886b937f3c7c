"""What lies in the jail: read-only, of the library and of devices only, and nothing that names the host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foretrace.sandbox.inside import jail
from sandbox.boxes import Box


def test_the_jail_holds_the_library_and_nothing_else(jailed: Box, tmp_path: Path) -> None:
    tops = jailed.out("import os; print(*sorted(os.listdir('/')))").split()
    library = os.path.realpath(os.path.dirname(os.__file__)).split("/")[1]
    assert set(tops) <= {"box", "tmp", "dev", "etc", "usr", "lib", "lib64", "bin", library}
    files = json.loads(jailed.out("import os, json; print(json.dumps([os.listdir('/etc'), os.listdir('/dev')]))"))
    assert set(files[0]) <= {"ld.so.cache", "localtime", "mime.types"}
    assert set(files[1]) == {"null", "zero", "urandom", "random", "shm"}
    assert jailed.out("import os; open('/dev/shm/x', 'w').close(); print(os.listdir('.'))") == "['x']\n"
    for path in ("/proc", "/sys", "/home", "/etc/passwd", "/var", str(tmp_path), "/etc/hostname"):
        assert jailed.run(f"import os; os.stat({path!r})").ending == "error", path


_DIES = """
import os, signal
from foretrace.sandbox.inside import jail, syscalls
syscalls.call = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
jail.unshare()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only a process of root's has a helper that maps its users")
def test_the_helper_ends_with_the_process_that_it_helps() -> None:
    died = subprocess.run([sys.executable, "-c", _DIES], capture_output=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL  # the pipes of its output were closed, so the helper has ended too


def test_nothing_of_it_can_be_changed(jailed: Box) -> None:
    code = """
import os
bad = []
for folder, folders, files in os.walk("/"):
    if folder.startswith(("/box/tmp", "/dev")): continue
    for act in (lambda: open(folder + "/new", "w"), lambda: os.mkdir(folder + "/d"), lambda: os.chmod(folder, 0o777)):
        try: act()
        except OSError: continue
        bad.append(folder)
    if folder.count("/") > 6: folders.clear()
for act in (lambda: os.rmdir("/box/tmp"), lambda: os.rename("/box/tmp", "/box/x"), lambda: os.unlink("/tmp"),
            lambda: os.utime(os.__file__), lambda: os.unlink(os.__file__), lambda: os.chmod("/dev/null", 0)):
    try: act()
    except OSError: continue
    bad.append("act")
print(bad)"""
    result = jailed.run(code, cpu_s=10, wall_s=20)
    assert result.stdout == "[]\n", result


def test_code_is_nobody_in_an_empty_world(jailed: Box) -> None:
    code = """
import os, socket, json
print(json.dumps([os.getuid(), os.geteuid(), os.getgid(), os.getgroups() in ([], [65534]), os.getppid(),
    socket.gethostname(), os.getresuid()[2], len(os.listdir("/box"))]))"""
    uid, euid, gid, no_groups, parent, name, saved, entries = json.loads(jailed.out(code))
    assert uid == euid == saved == 1000 and gid == 1000 and no_groups and name == "sandbox" and entries == 1
    assert parent in (0, 1)


def test_scratch_cannot_run_programs_or_hold_devices(jailed: Box) -> None:
    result = jailed.run(
        "import ctypes, shutil, glob\nlibrary = glob.glob('/**/libc.so.6', recursive=True)[0]\n"
        "shutil.copyfile(library, 'x.so')\nctypes.CDLL('./x.so')"
    )
    assert result.ending == "error" and result.error and result.error.kind == "OSError", result


def test_carving_leaves_holes_out(tmp_path: Path) -> None:
    for name in ("a/one", "a/hole/x", "a/deep/er/hole/y", "a/deep/er/z", "a/deep/w", "b/v"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    whole, listed = jail.carve_holes([a, b], [f"{a}/hole", f"{a}/deep/er/hole"])
    assert sorted(whole) == sorted([f"{a}/one", f"{a}/deep/er/z", f"{a}/deep/w", b])
    assert sorted(listed) == sorted([a, f"{a}/deep", f"{a}/deep/er"])
    assert jail.carve_holes([b], []) == ([b], [])


def test_places_exist_and_leave_packages_out(tmp_path: Path) -> None:
    roots, holes, packages = jail.find_paths([str(tmp_path), str(tmp_path / "missing")])
    assert all(os.path.exists(p) for p in (*roots, *holes)) and packages == [str(tmp_path)]
    assert os.path.realpath(os.path.dirname(os.__file__)) in roots
    assert not {"/", "/etc", "/home", "/root", "/usr"} & set(roots)
    import msgspec

    package = os.path.realpath(os.path.dirname(msgspec.__file__))
    whole, _ = jail.carve_holes(roots, holes)
    assert not [root for root in whole if f"{package}/".startswith(root.rstrip("/") + "/")]
