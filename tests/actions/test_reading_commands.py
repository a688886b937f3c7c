"""Programs that change much and may only show, and texts that look like reads and change something."""

from __future__ import annotations

import pytest

from foretrace.actions.shell.command_rules import classify_shell
from foretrace.actions.sql_rules import is_read_only_sql, may_call_more
from foretrace.actions.taxonomy import Effect

WRITES = [
    *('ls "${x:-`rm x`}"', "ls ${x:=`touch y`}", 'echo "a ${b:-`rm c`}"', 'ls "${x:-$(rm x)}"'),
    *("psql -c 'select f()'", "psql -c 'select 1 into t'", "psql -c 'select * into b from users'"),
    *("psql -c 'select \"f\"()'", "psql -c '\\copy t to x.csv'", "psql -c '\\i x.sql'", "psql -l < x.sql"),
    *("sqlite3 a.db 'pragma journal_mode(wal)'", "sqlite3 a.db 'select count(*) from f(3)'"),
    *("PATH=/usr/bin:/evil ls", "PATH=/usr/../evil:$PATH ls", "PATH=$HOMEx/y ls"),
    *("PATH=/evil ls", "PATH=/evil:$PATH ls", "env PATH=/evil ls", "export PATH=/evil; ls", "LD_LIBRARY_PATH=/x ls"),
    *("date 0101000020", "date 010112002024.30", "date -us 2020-01-01", "sudo date --set=2020-01-01"),
    *("git difftool", "git difftool HEAD~1", "git log -p --ext-diff", "git branch --sort=x new", "git branch -v new"),
    *("git config user.name x", "git config --global user.name x", "git symbolic-ref HEAD refs/heads/x"),
    *("tar xf a.tar", "tar -cf t.tar a", "tar tf a.tar --to-command=sh", "tar -t -I ./x -f a", "tar czf t a"),
    *("unzip a.zip", "unzip -o a.zip -d l", "gzip -k a", "gunzip a.gz", "zstd -c a -o b", "ar r a.a t", "xz -d a.xz"),
    *("systemctl restart status", "systemctl --user stop x", "service status restart", "journalctl --vacuum-size=1M"),
    *("dmesg -c", "dmesg -C", "crontab -r", "crontab f", "tmux ls \\; kill-server", "tmux send-keys x", "screen -wipe"),
    *("tmux display-message -p '#(touch x)'", "tmux ls -F 'a;' kill-server", "journalctl --cursor-file=f"),
    *("docker compose config -o f", "docker compose -f a.yml config --output=f", "hg cat -o f a"),
    *("iptables -F", "iptables -L -Z", "sysctl -w a=1", "sysctl a=1", "sysctl -p f", "rpm -i a", "rpm -qa --pipe x"),
    *("redis-cli set get x", "redis-cli -n 1 del get", "redis-cli flushall", "redis-cli eval get 0", "redis-cli < get"),
    *("npm config set get x", "go mod tidy", "aws logs delete-log-group --log-group-name tail", "shuf -o f f"),
    *("cat f | python -c \"import sys; open('o', 'w').write(sys.stdin.read())\"", "http --download x.org"),
    *("cat f | python3 -c \"import sys, os; [os.remove(l) for l in sys.stdin]\"", "psql -c 'select 1' -f x.sql"),
    *("cat f | python -c \"import sys, deploy; deploy.run(sys.stdin)\"", "mysql -e 'select 1' < x.sql"),
    "python -c \"import sqlite3; print(sqlite3.connect('a.db').execute('select f() from t').fetchall())\"",
    *("psql -c 'select 1; vacuum full'", "psql -c 'select 1; drop function f'", "psql -c 'select 1; copy t from f'"),
    *("mysql -e 'show tables; delete t from t join u'", "mysql -e 'desc t; truncate t'", "duckdb a 'select 1; load y'"),
    *("psql -c 'with a as (update t x set a=1) select 1'", "psql -c 'explain analyze update only t set a=1'"),
    *("mysql -e \"select 'it\\'s'; delete from t where x=''\"", "psql -c '\\dt' -f x.sql", "psql -c 'select 1 \\g f'"),
    *("psql <<'E'\nselect 1;\n\\! rm x\nE", "sqlite3 a.db <<'E'\nselect 1;\n.shell rm x\nE", "psql -c 'select é(1)'"),
    *("sqlite3 a.db 'pragma wal_checkpoint'", "iptables -L -F", "iptables -S -D INPUT 1", "tmux ls -F '#(rm x)'"),
    *("rpm -q --define '%(touch x)'", "rpm --query --initdb", "redis-cli --bigkeys --rdb x", "base64 -Do y x"),
    *("hg cat -o out f", "docker compose config -o x", "PATH=${PATH/usr/evil} ls", "journalctl --cursor-file=x"),
    "python -c \"import sqlite3; print(sqlite3.connect('a').execute('with a as (select 1) delete from t').rowcount)\"",
    *("base64 -i a -o b", "svn commit", "svn diff --diff-cmd x", "hg commit status", "conda env list > f"),
]  # fmt: skip
READS = [
    *('ls "${x:-a}"', "ls '${x:-`rm x`}'", "PATH=$PATH:/opt ls", 'export PATH="$PATH:/x"; ls', "PATH+=:/x ls"),
    *("date -d yesterday", "date -u +%F", "date -r f", "date", "date -Iseconds"),
    *("git branch --sort=-committerdate", "git branch -a --contains x", "git tag --points-at HEAD", "git tag -l 'v*'"),
    *("git config user.name", "git config --global --list", "git config --get-regexp x", "git symbolic-ref HEAD"),
    *("git diff-tree -r HEAD", "git show-branch", "git cherry -v", "git version", "git --version"),
        "zipinfo a.zip",
    *("base64 -d f", "shuf -n 5 f", "join a b", "tr a b < f"),
                    *("npm config get registry", "npm root -g", "go mod graph", "docker compose config", "svn log"),
    *("git branch -av", "docker top c -o pid"),
    *('export PATH="$HOME/.local/bin:$PATH" && git status', "PATH=/usr/local/bin:/usr/bin which x"),
    *("PATH=~/bin:$PATH ls", "LD_LIBRARY_PATH=/usr/local/lib ldd x", "PATH=${HOME}/bin:/opt/x/bin:${PATH} ls"),
    *("PATH=${PATH}:/x ls", "PATH=${PATH:+$PATH:}/x ls"),
    *("hg status", "docker manifest inspect i"),
]  # fmt: skip


@pytest.mark.parametrize("command", WRITES)
def test_what_may_change_something_is_no_read(command: str) -> None:
    assert classify_shell(command).effect is not Effect.PURE_READ


@pytest.mark.parametrize("command", READS)
def test_what_only_shows_is_a_read(command: str) -> None:
    assert classify_shell(command).effect is Effect.PURE_READ


@pytest.mark.parametrize(
    "query", ["select f()", "select app.delete_user(3)", "select 1; select f (1)", 'select "f"(1)']
)
def test_a_function_that_somebody_wrote_may_change_anything(query: str) -> None:
    assert is_read_only_sql(query) and may_call_more(query)


def test_a_query_too_long_to_look_at_may_call_anything() -> None:
    assert may_call_more("select 1" + " " * 200_000 + ", f(1)")
