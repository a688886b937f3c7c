"""What a user is told, and can do, where isolation is not to be had."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_WEAKER = "or accept weaker isolation explicitly (allow_weak_isolation=True, --allow-weak-isolation)"


def refused(message: str, call: str) -> str:
    """The failing call, and what would allow it."""
    remedy = (
        _for_namespaces()
        if call in ("unshare", "mount", "umount2", "pivot_root", "sethostname", "write /proc/self/uid_map")
        else ""
    )
    if call.startswith("landlock"):
        remedy = "needs a kernel with Landlock (5.13 or later, with landlock in its `lsm=` list)"
    if call == "seccomp":
        remedy = "needs a kernel with seccomp filters, and a container that allows seccomp(2)"
    if call == "madvise":
        remedy = "needs Linux 4.14 or later, whose MADV_WIPEONFORK keeps one run's data from the next"
    text = message.removeprefix("CallError: ")
    return f"{text}; {remedy}" if remedy else text


def _for_namespaces() -> str:
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor forbids user namespaces: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give this "
            "Python an AppArmor profile with `userns,`"
        )
    if _setting("user/max_user_namespaces") == "0":
        return "sysctl -w user.max_user_namespaces=15000"
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "sysctl -w kernel.unprivileged_userns_clone=1"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "the container forbids user namespaces: start it with a seccomp profile that allows unshare and mount"
    return "user namespaces are forbidden here (a container's seccomp profile, or a setting of the kernel)"


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text("ascii").strip()
    except OSError:
        return None


def too_weak(lowest: int, reasons: dict[int, str]) -> str:
    """Why no level that is high enough is to be had."""
    if sys.platform != "linux":
        return f"isolation level {lowest} needs Linux, and this is {sys.platform}: use --sandbox docker, {_WEAKER}"
    why = "; ".join(f"level {level}: {reason}" for level, reason in sorted(reasons.items(), reverse=True))
    return f"isolation level {lowest} is not to be had here: {why or 'a lower one was asked for'}; mend that, {_WEAKER}"


def no_start(interpreter: str, preload: tuple[str, ...], message: str) -> str:
    """Why an interpreter does not come up."""
    if not os.path.exists(interpreter):
        return f"no interpreter at {interpreter}: name an existing Python 3.11 or later"
    if preload and "Module" in message:
        return f"cannot preload {'+'.join(preload)} in {interpreter}: {message}; install it there"
    return message
