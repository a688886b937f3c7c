"""Tables of shell programs and of what each does when its arguments do not matter.

To teach the labels a program, put its name into a table. Where arguments decide, write a reader (`readers.py`).
"""

from __future__ import annotations

import re

from foretrace.actions.meaning import Kind, words
from foretrace.actions.taxonomy import Effect


def _table(*groups: tuple[Kind, Effect | None, str, str]) -> dict[str, tuple[Kind, Effect | None, str]]:
    return {name: (kind, effect, rule) for kind, effect, rule, names in groups for name in names.split()}


PROGRAMS = _table(
    (Kind.SETUP, None, "setup", "cd pushd popd export source . activate deactivate set unset shopt ulimit umask"),
    (Kind.SETUP, None, "setup", "sleep wait true false : test [ [[ return exit break continue local declare trap"),
    (Kind.SETUP, None, "setup", "alias readonly shift read yes seq clear reset stty tput module nvm echo printf"),
    (Kind.READ, None, "read", "cat head tail less more nl bat batcat ls ll dir tree stat file wc du readlink view"),
    (Kind.READ, None, "read", "od xxd hexdump strings nm objdump readelf ldd zcat zless tac sort uniq cut column"),
    (Kind.READ, None, "read", "jq yq md5sum sha1sum sha256sum cksum exiftool pdftotext realpath fold rev paste"),
    (Kind.SEARCH, None, "search", "grep egrep fgrep zgrep rg ag ack locate find fd fdfind glob ast-grep ctags"),
    (Kind.SEARCH, None, "search", "find_file search_dir search_file man apropos info tldr dig nslookup host whois"),
    (Kind.SEARCH, None, "search", "whereis lynx w3m elinks"),
    (Kind.INSPECT, None, "compare", "diff cmp comm colordiff sdiff"),
    (Kind.VERIFY, None, "test", "pytest py.test tox nox nosetests trial green stestr ctest jest vitest mocha ava"),
    (Kind.VERIFY, None, "test", "jasmine karma cypress playwright phpunit rspec cucumber behave robot bats"),
    (Kind.VERIFY, None, "lint", "mypy flake8 pylint pyflakes pycodestyle pydocstyle pyright basedpyright pyre bandit"),
    (Kind.VERIFY, None, "lint", "shellcheck hadolint yamllint jsonlint tslint stylelint golint golangci-lint vulture"),
    (Kind.VERIFY, None, "lint", "radon xmllint htmlhint tidy phpstan psalm pre-commit lint-staged"),
    (Kind.VERIFY, None, "build", "gcc g++ cc c++ clang clang++ rustc javac kotlinc scalac ghc tsc swiftc gfortran"),
    (Kind.VERIFY, None, "build", "nvcc ld ocamlc ocamlfind nasm ninja bazel buck scons meson mvn mvnw gradle gradlew"),
    (Kind.VERIFY, None, "build", "ant sbt rake webpack vite esbuild rollup grunt gulp invoke doit"),
    (Kind.VERIFY, None, "run", "valgrind gdb lldb strace ltrace perf hyperfine asv ab wrk k6"),
    (Kind.OTHER, Effect.PURE_READ, "environment", "pwd date ps whoami id hostname uname env printenv which type df"),
    (Kind.OTHER, Effect.PURE_READ, "environment", "free top htop uptime lscpu lsof nproc nvidia-smi netstat ss ip"),
    (Kind.OTHER, Effect.PURE_READ, "environment", "command ifconfig ping jobs history groups who w locale lsblk"),
    (Kind.OTHER, Effect.PURE_READ, "compute", "expr bc cal basename dirname factor numfmt"),
    (Kind.OTHER, Effect.LOCAL_WRITE, "move", "mkdir rmdir rm mv cp chmod chown chgrp ln touch rsync unzip zip tar"),
    (Kind.OTHER, Effect.LOCAL_WRITE, "move", "gzip gunzip bzip2 xz 7z mktemp truncate mount unlink shred"),
    (Kind.OTHER, Effect.LOCAL_WRITE, "install", "apt apt-get yum dnf apk brew pacman snap dpkg rpm conda mamba"),
    (Kind.OTHER, Effect.LOCAL_WRITE, "install", "gem bundle composer cabal stack opam nix virtualenv useradd pipx"),
    (Kind.OTHER, Effect.SANDBOX_EXEC, "service", "kill pkill killall service systemctl supervisorctl tmux screen"),
    (Kind.OTHER, Effect.SANDBOX_EXEC, "service", "uvicorn gunicorn flask celery redis-server mysqld postgres mongod"),
    (Kind.OTHER, Effect.EXTERNAL_WRITE, "remote", "ssh scp sftp mail sendmail aws gcloud az heroku kubectl helm"),
    (Kind.OTHER, Effect.EXTERNAL_WRITE, "remote", "terraform twine telnet nc"),
    (Kind.WRITE, None, "edit", "tee patch ed ex vi vim nano autopep8 yapf isort black gofmt rustfmt prettier dos2unix"),
    (Kind.WRITE, None, "edit", "clang-format pyupgrade autoflake 2to3 sponge"),
    (Kind.TERMINAL, None, "submit", "submit"),
)
"""Program -> (kind, effect or the kind's own, rule)."""

FILTERS = words(
    "head tail sort uniq wc cut tr less more cat column nl fold tac rev paste jq yq awk gawk sed perl xxd bat"
    " fmt pr od base64 dos2unix"
)
"""Programs that only shape what a pipeline prints when they stand behind a pipe."""

INTERPRETERS = words(
    "bash sh zsh dash ksh fish node nodejs deno bun ruby perl php lua Rscript R julia java dotnet ts-node tsx"
    " osascript pwsh groovy elixir erl racket guile sbcl swift octave scala kotlin wine wasmtime luajit"
)
"""Programs that run a script named in their arguments, besides Python."""

PYTHON = re.compile(r"(?:python|pypy|ipython)[\d.]*$")
SHELLS = words("bash sh zsh dash ksh fish")
WRAPPERS = words(
    "sudo doas nohup time nice ionice stdbuf command builtin exec xvfb-run unbuffer setsid env timeout gtimeout"
    " proxychains strace-off faketime"
)
RUN_WRAPPERS = words("poetry uv pipenv pdm hatch rye conda mamba micromamba bundle docker pixi")
"""Programs whose `run` or `exec` starts the command that follows."""
VALUE_FLAGS = words("-u -n -i -o -e -p -k -s -g -C --signal --kill-after --user --adjustment -w --with -d")
"""Flags of the wrappers that take the next word as their value."""

CHECK_MODES = {
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

WRITE_MODES = {
    "prettier": "--write -w",
    "gofmt": "-w",
    "clang-format": "-i",
    "autopep8": "-i --in-place",
    "yapf": "-i --in-place",
}
"""Formatters that only print unless one of these flags is given."""

PROJECT_TOOLS = {
    # Programs with sub-commands: (those that check, those that start a service, those that only look).
    "npm": ("test t run run-script build lint ci-test", "start", "ls list view outdated audit"),
    "yarn": ("test run build lint tsc jest", "start dev serve", "list why info"),
    "pnpm": ("test t run build lint", "start dev", "ls list why"),
    "npx": ("*", "serve http-server", ""),
    "cargo": ("test build check run clippy bench nextest doc", "", "tree metadata search"),
    "go": ("test build run vet", "", "list doc env version"),
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
    "composer": ("test validate run-script", "", "show"),
    "docker": ("build", "run up start", "ps images logs inspect"),
    "docker-compose": ("build config", "up start", "ps logs"),
    "poetry": ("check build", "", "show"),
    "hatch": ("test build", "", ""),
    "uv": ("", "", "tree"),
    "nginx": ("-t -T", "", ""),
    "apachectl": ("configtest -t", "", ""),
    "hg": ("", "", "log annotate grep"),
    "gh": ("", "", "view list status search api diff"),
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
"""Program -> sub-commands that verify, that start or change something, that look; `*` is every other."""
