"""Tables of shell programs, and what each does if its arguments do not matter.

To add a program, put its name into a table. If its arguments matter, write a rule (`program_rules`).
"""

from __future__ import annotations

import re

from foretrace.actions.call_facts import CallKind, split_words
from foretrace.actions.taxonomy import Effect


def _make_table(*groups: tuple[CallKind, Effect | None, str, str]) -> dict[str, tuple[CallKind, Effect | None, str]]:
    return {name: (kind, effect, rule) for kind, effect, rule, names in groups for name in names.split()}


PROGRAMS = _make_table(
    (CallKind.SETUP, None, "setup", "cd pushd popd export source . activate deactivate set unset shopt ulimit umask"),
    (CallKind.SETUP, None, "setup", "sleep wait true false : test [ [[ return exit break continue local declare trap"),
    (CallKind.SETUP, None, "setup", "alias readonly shift read yes seq clear reset stty tput module nvm echo printf"),
    (CallKind.READ, None, "read", "cat head tail less more nl bat batcat ls ll dir tree stat file wc du readlink view"),
    (
        CallKind.READ,
        None,
        "read",
        "eza exa lsd od xxd hexdump strings nm objdump readelf ldd zcat zless tac sort uniq cut column",
    ),
    (CallKind.READ, None, "read", "jq yq md5sum sha1sum sha256sum cksum exiftool pdftotext realpath fold rev paste"),
    (CallKind.READ, None, "read", "base64 join look shuf tr zipinfo"),
    (CallKind.SEARCH, None, "search", "grep egrep fgrep zgrep rg ag ack locate find fd fdfind glob ast-grep ctags"),
    (CallKind.SEARCH, None, "search", "find_file search_dir search_file man apropos info tldr dig nslookup host whois"),
    (CallKind.SEARCH, None, "search", "whereis lynx w3m elinks"),
    (CallKind.COMPARE, None, "compare", "diff cmp comm colordiff sdiff"),
    (CallKind.VERIFY, None, "test", "pytest py.test tox nox nosetests trial green stestr ctest jest vitest mocha ava"),
    (CallKind.VERIFY, None, "test", "jasmine karma cypress playwright phpunit rspec cucumber behave robot bats"),
    (
        CallKind.VERIFY,
        None,
        "lint",
        "mypy flake8 pylint pyflakes pycodestyle pydocstyle pyright basedpyright pyre bandit",
    ),
    (
        CallKind.VERIFY,
        None,
        "lint",
        "shellcheck hadolint yamllint jsonlint tslint stylelint golint golangci-lint vulture",
    ),
    (CallKind.VERIFY, None, "lint", "radon xmllint htmlhint tidy phpstan psalm pre-commit lint-staged"),
    (CallKind.VERIFY, None, "build", "gcc g++ cc c++ clang clang++ rustc javac kotlinc scalac ghc tsc swiftc gfortran"),
    (
        CallKind.VERIFY,
        None,
        "build",
        "nvcc ld ocamlc ocamlfind nasm ninja bazel buck scons meson mvn mvnw gradle gradlew",
    ),
    (CallKind.VERIFY, None, "build", "xcodebuild ant sbt rake webpack vite esbuild rollup grunt gulp invoke doit"),
    (CallKind.VERIFY, None, "run", "valgrind gdb lldb strace ltrace perf hyperfine asv ab wrk k6"),
    (
        CallKind.OTHER,
        Effect.PURE_READ,
        "environment",
        "pwd date ps whoami id hostname uname env printenv which type df",
    ),
    (CallKind.OTHER, Effect.PURE_READ, "environment", "free top htop uptime lscpu lsof nproc nvidia-smi netstat ss ip"),
    (CallKind.OTHER, Effect.PURE_READ, "environment", "command ifconfig ping jobs history groups who w locale lsblk"),
    (CallKind.OTHER, Effect.PURE_READ, "compute", "expr bc cal basename dirname factor numfmt"),
    (CallKind.OTHER, Effect.LOCAL_WRITE, "move", "mkdir rmdir rm mv cp chmod chown chgrp ln touch rsync unzip zip tar"),
    (CallKind.OTHER, Effect.LOCAL_WRITE, "move", "gzip gunzip bzip2 xz 7z mktemp truncate mount unlink shred"),
    (CallKind.OTHER, Effect.LOCAL_WRITE, "install", "apt apt-get yum dnf apk brew pacman snap dpkg rpm conda mamba"),
    (CallKind.OTHER, Effect.LOCAL_WRITE, "install", "gem bundle composer cabal stack opam nix virtualenv useradd pipx"),
    (CallKind.OTHER, Effect.SANDBOX_EXEC, "service", "kill pkill killall service systemctl supervisorctl tmux screen"),
    (
        CallKind.OTHER,
        Effect.SANDBOX_EXEC,
        "service",
        "uvicorn gunicorn flask celery redis-server mysqld postgres mongod",
    ),
    (CallKind.OTHER, Effect.EXTERNAL_WRITE, "remote", "ssh scp sftp mail sendmail aws gcloud az heroku kubectl helm"),
    (CallKind.OTHER, Effect.EXTERNAL_WRITE, "remote", "terraform twine telnet nc"),
    (
        CallKind.WRITE,
        None,
        "edit",
        "tee patch ed ex vi vim nano autopep8 yapf isort black gofmt rustfmt prettier dos2unix",
    ),
    (CallKind.WRITE, None, "edit", "clang-format pyupgrade autoflake 2to3 sponge"),
    (CallKind.TERMINAL, None, "submit", "submit"),
)
"""Program -> (kind, effect or `None` for the kind's default, name of the rule without `shell.`)."""

FILTERS = split_words(
    "head tail sort uniq wc cut tr less more cat column nl fold tac rev paste jq yq awk gawk sed perl xxd bat"
    " fmt pr od base64 dos2unix"
)
"""Programs that, after a pipe, only change how the output looks."""

INTERPRETERS = split_words(
    "bash sh zsh dash ksh fish node nodejs deno bun ruby perl php lua Rscript R julia java dotnet ts-node tsx"
    " osascript pwsh groovy elixir erl racket guile sbcl swift octave scala kotlin wine wasmtime luajit"
)
"""Programs that run a script named in their arguments, besides Python."""

SQL_CLIENTS = split_words("sqlite3 mysql psql mariadb duckdb clickhouse-client")
OPEN_PROGRAMS = INTERPRETERS | split_words("xargs eval parallel watch awk gawk mawk")
"""Programs that run what their arguments say. They are never a pure read: what may run early is decided by program
and options only."""

PYTHON = re.compile(r"(?:python|pypy|ipython)[\d.]*$")
SHELLS = split_words("bash sh zsh dash ksh fish")
WRAPPERS = split_words(
    "sudo doas nohup time nice ionice stdbuf command builtin exec xvfb-run unbuffer setsid env timeout gtimeout"
    " proxychains strace-off faketime"
)
"""Programs that run the command that follows."""
RUN_WRAPPERS = split_words("pipx poetry uv pipenv pdm hatch rye conda mamba micromamba bundle docker pixi")
"""Programs whose `run` or `exec` starts the command that follows."""
DIRECT_RUNNERS = split_words("uvx bunx pnpx")
"""Programs that fetch and run the command that follows."""
VALUE_FLAGS = split_words("-u -n -i -o -e -p -k -s -g -C --signal --kill-after --user --adjustment -w --with -d")
"""Flags of the wrappers that take the next word as their value."""

CHECK_FLAGS = {
    "black": "--check --diff",
    "isort": "--check --check-only --diff -c",
    "autopep8": "--diff -d",
    "yapf": "--diff -d",
    "prettier": "--check -c --list-different -l",
    "gofmt": "-l -d",
    "rustfmt": "--check",
    "clang-format": "--dry-run -n",
    "patch": "--dry-run",
    "autoflake": "--check",
}
"""Flags that make a formatter a check."""

WRITE_FLAGS = {
    "prettier": "--write -w",
    "gofmt": "-w",
    "clang-format": "-i",
    "autopep8": "-i --in-place",
    "yapf": "-i --in-place",
}
"""Formatters that only print unless one of these flags is given."""

REMOTE_CHECKS = {
    "helm": "lint template",
    "terraform": "validate plan",
    "tofu": "validate plan",
}
"""Clients of remote services -> sub-commands that check. Those that only look are in `remote_rules`."""

SUBCOMMANDS = {
    "npm": ("test t run run-script build lint ci-test", "start", ""),
    "yarn": ("test run build lint tsc jest", "start dev serve", ""),
    "pnpm": ("test t run build lint", "start dev", ""),
    "npx": ("*", "serve http-server", ""),
    "cargo": ("test build check run clippy bench nextest doc", "", ""),
    "go": ("test build run vet", "", ""),
    "make": ("*", "run serve start up install clean distclean uninstall", ""),
    "gmake": ("*", "run serve install clean", ""),
    "just": ("*", "run serve", ""),
    "cmake": ("*", "--install", ""),
    "dotnet": ("test build run", "", "--info"),
    "swift": ("test build run", "", ""),
    "mix": ("test compile credo", "phx.server", ""),
    "ruff": ("check", "", "rule"),
    "eslint": ("*", "", ""),
    "rubocop": ("*", "", ""),
    "composer": ("test validate run-script", "", ""),
    "docker": ("build", "run up start", ""),
    "docker-compose": ("build config", "up start", ""),
    "poetry": ("check build", "", "show"),
    "hatch": ("test build", "", ""),
    "uv": ("", "", "tree"),
    "nginx": ("-t -T", "", ""),
    "apachectl": ("configtest -t", "", ""),
    "bazel": ("test build coverage run", "clean shutdown", ""),
    "buck2": ("test build run", "clean kill", "query cquery uquery audit targets"),
    "pants": ("test check lint package run", "", "list peek dependencies dependents paths filedeps"),
    "zig": ("test build run ast-check", "", "env targets"),
    "hg": ("", "", "log annotate grep status st diff cat files heads tip branches tags identify id manifest parents"),
    "svn": ("", "", "log status st info diff list ls cat blame"),
    "coverage": ("report run html xml", "", ""),
    "pre-commit": ("run", "", ""),
    "alembic": ("check", "", "history current"),
    "rails": ("test spec", "server s", "routes"),
    "bin/rails": ("test spec", "server s", "routes"),
    "artisan": ("test", "serve", ""),
    "flask": ("test", "run", "routes"),
    "django-admin": ("check test", "runserver", ""),
    "manage.py": ("check test shell", "runserver", "showmigrations"),
    "setup.py": ("test check build build_ext", "", ""),
}
"""Program -> sub-commands that check, that start or change something, and that look something up if they come first
(those of other programs are in `remote_rules`); `*` is any other sub-command."""
