"""A stand-in for a container engine: its containers are namespaces with a root folder of their own.

Run as `docker` or `podman`. The variable `ENGINE_STATE` names a folder: there it notes each command (`log`) and the
process of each container, and reads what is the matter with it (`fault`). As with a real engine, a container is no
child of the client's process group, and gets variables that the client adds.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ["ENGINE_STATE"])
ENTER = """
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
root=$1 box=$2 open=$3
shift 3
mount -t tmpfs tmpfs "$root"
for folder in /*; do
    case $folder in /proc | /sys | "$box") continue ;; esac
    if [ "$folder" = /tmp ] && [ -z "$open" ]; then continue; fi
    if [ -L "$folder" ]; then cp -P "$folder" "$root$folder"; continue; fi
    [ -d "$folder" ] || continue
    mkdir "$root$folder"
    mount --rbind "$folder" "$root$folder"
    [ "$folder" = /dev ] || mount -o remount,bind,ro "$root$folder"
done
mkdir "$root/proc" "$root$box"
mount --rbind /proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root$box"
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv --bounding-set -all --inh-caps -all "$@"
"""


def run(arguments: list[str], fault: str) -> int:
    entry = arguments.index("--entrypoint")
    command = [arguments[entry + 1], *arguments[entry + 3 :]]
    box = arguments[arguments.index("--tmpfs") + 1].split(":")[0]
    if fault != "no-container":
        spaces = ["--user", "--map-root-user", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]
        if fault != "open":
            spaces += ["--net", "--ipc"]
        root = STATE / "root"
        root.mkdir(exist_ok=True)
        open_ = "open" if fault == "open" else ""
        command = ["unshare", *spaces, "sh", "-c", ENTER, "sh", str(root), box, open_, *command]
    container = subprocess.Popen(
        command, start_new_session=True, env={**os.environ, "HTTPS_PROXY": "http://user:secret@proxy"}
    )
    if "--name" in arguments:
        (STATE / arguments[arguments.index("--name") + 1]).write_text(str(container.pid))
    return container.wait()


def remove(name: str) -> int:
    try:
        os.kill(int((STATE / name).read_text()), signal.SIGKILL)
    except OSError:
        print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    engine, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    fault = (STATE / "fault").read_text() if (STATE / "fault").exists() else ""
    with (STATE / "log").open("a") as log:
        log.write(json.dumps([engine, *arguments]) + "\n")
    if fault == "no service" and engine == "docker":
        print("\nCannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?", file=sys.stderr)
        return 1
    if fault == "no image":
        print(f"Error response from daemon: No such image: {arguments[-1]}", file=sys.stderr)
        return 1
    if arguments[0] == "run":
        return run(arguments, fault)
    return remove(arguments[-1]) if arguments[0] == "rm" else 0


if __name__ == "__main__":
    sys.exit(main())
