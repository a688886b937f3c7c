"""Tables of shell programs: what each does by its name, its sub-command or its options. `command_rules` reads them.

To add a program, put its name into `PROGRAMS`. If its arguments matter, add a line to `BY_ARGUMENTS`, to `SUBCOMMANDS`,
or to `WRITING_ARGUMENTS`.
"""

from __future__ import annotations

import re

from foretrace.actions.call_facts import CallKind, read_table, split_words
from foretrace.actions.taxonomy import Effect

PROGRAMS = read_table("""
setup: cd pushd popd export source . activate deactivate set unset shopt ulimit umask sleep wait true false : test [ [[
setup: return exit break continue local declare trap alias readonly shift read yes seq clear reset stty tput module nvm
read: cat head tail less more nl bat batcat ls ll dir tree stat file wc du readlink view eza exa lsd od xxd hexdump
read: strings nm objdump readelf ldd zcat zless tac sort uniq cut column jq yq md5sum sha1sum sha256sum sha512sum cksum
read: exiftool pdftotext realpath fold rev paste base64 join look shuf tr zipinfo
search: grep egrep fgrep zgrep rg ag ack locate find fd fdfind glob ast-grep ctags find_file search_dir search_file man
search: apropos info tldr dig nslookup host whois whereis lynx w3m elinks
compare: diff cmp comm colordiff sdiff
fetch: curl wget
test: pytest py.test tox nox nosetests trial green stestr ctest jest vitest mocha ava jasmine karma cypress playwright
test: phpunit rspec cucumber behave robot bats
lint: mypy flake8 pylint pyflakes pycodestyle pydocstyle pyright basedpyright pyre bandit shellcheck hadolint yamllint
lint: jsonlint tslint stylelint golint golangci-lint vulture radon xmllint htmlhint tidy phpstan psalm lint-staged
build: gcc g++ cc c++ clang clang++ rustc javac kotlinc scalac ghc tsc swiftc gfortran nvcc ld ocamlc ocamlfind nasm
build: ninja buck scons meson mvn mvnw gradle gradlew xcodebuild ant sbt rake webpack vite esbuild rollup grunt gulp
build: invoke doit
run: valgrind gdb lldb strace ltrace perf hyperfine asv ab wrk k6
environment: pwd date ps whoami id hostname uname env printenv which type df free top htop uptime lscpu lsof nproc ip
environment: ping nvidia-smi netstat ss command ifconfig jobs history groups who w locale lsblk
compute: expr bc cal basename dirname factor numfmt
move: mkdir rmdir rm mv cp chmod chown chgrp ln touch rsync unzip zip tar gzip gunzip bzip2 xz 7z mktemp truncate mount
move: unlink shred
install: apt apt-get apt-cache yum dnf apk brew pacman snap dpkg rpm conda mamba gem bundle cabal stack opam nix
install: virtualenv useradd pipx pip pip3 uv
service: kill pkill killall service systemctl supervisorctl tmux screen uvicorn gunicorn celery redis-server mysqld
service: postgres mongod
remote: ssh scp sftp mail sendmail aws gcloud az heroku kubectl helm terraform tofu twine telnet nc gh
edit: tee patch dd ed ex vi vim nano autopep8 yapf isort black gofmt rustfmt prettier dos2unix clang-format pyupgrade
edit: autoflake 2to3 sponge
submit: submit
""")
"""Program -> the rule for it, without `shell.`."""

CMDLETS = read_table("""
read: get-content gc get-childitem gci get-item format-hex import-csv get-filehash
search: select-string sls findstr get-command get-help
edit: set-content add-content clear-content out-file export-csv tee-object
fetch: invoke-webrequest iwr invoke-restmethod irm
filter: select-object where-object foreach-object foreach sort-object measure-object group-object format-table
filter: format-list format-wide out-string out-null out-host out-default convertto-json convertfrom-json get-unique
setup: set-location push-location pop-location write-host write-output write-verbose write-warning start-sleep
setup: set-strictmode clear-host set-executionpolicy import-module
move: new-item remove-item copy-item move-item rename-item expand-archive compress-archive copy del erase md rd ren
move: xcopy robocopy icacls attrib
""")
"""Command of PowerShell and cmd.exe, in lower case -> its rule. None counts as a pure read: their lines have blocks and
brackets in which anything may run."""

FILTERS = split_words(
    "head tail sort uniq wc cut tr less more cat column nl fold tac rev paste jq yq awk gawk mawk sed gsed perl xxd bat"
    " fmt pr od base64 dos2unix"
)
"""Programs that, after a pipe, only change how the output looks."""
SCRIPT_READERS = split_words("sed gsed perl yq awk gawk mawk")
"""Programs whose first operand is a script, and which may change files in place."""
SHELLS = split_words("bash sh zsh dash ksh fish")
INTERPRETERS = SHELLS | split_words(
    "node nodejs deno bun ruby perl php lua Rscript R julia java ts-node tsx osascript pwsh groovy elixir erl racket"
    " guile sbcl octave scala kotlin wine wasmtime luajit"
)
"""Programs that run a script named in their arguments, besides Python."""
SQL_CLIENTS = split_words("sqlite3 mysql psql mariadb duckdb clickhouse-client")
OPEN_PROGRAMS = INTERPRETERS | split_words(
    "xargs eval parallel watch awk gawk mawk dotnet swift man info sdiff hg svn history hostname ip ifconfig ss"
    " nvidia-smi exiftool ast-grep pdftotext ctags"
)
"""Programs that run what their arguments say, or write by many options. They are never a pure read: what may run early
is decided by program and options only."""
PYTHON = re.compile(r"(?:python|pypy|ipython)[\d.]*$")

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

_VERSION = r"(?:--version|-V|-version|--help|-h)$"
_NOWHERE = r"(?:-|/dev/null|/dev/stdout|/dev/stderr|&1)$"
_PIP = (
    (r"(?:pip )?(?:show|list|freeze|search|index|inspect|tree)\b", "package", None),
    (r"(?:pip )?check\b", "package", CallKind.VERIFY),
    (rf"(?:pip )?(?:$|debug\b|help\b|config (?:list|get|debug)\b|{_VERSION})", "environment", None),
)
_PACKAGES = ((r"(?:show|list|search|info|-l|-s|-qa|-L|policy)(?: |$)", "package", None),)
_LOOKS_ELSEWHERE = (
    r"(?:[^- ][^ ]* ){0,3}?(?:get|list|describe|show|ls|status|history|version|info|search|lookup|tail)(?:[- ]|$)",
    "look",
    Effect.UNKNOWN,
)
_CHECKS_PLAN = (r"(?:lint|template|validate|plan)(?: |$)", "build", CallKind.VERIFY)
_CHECKSUM = ((r"(?:.* )?(?:-c|--check)(?: |$)", "checksum", None),)
_CURL_SWITCHES = "[sSLkfivgGINq#]*"
_LOCAL = (
    r"(?:.* )?(?:https?://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?:[:/ ]|$)", "probe", None,
)  # fmt: skip
_SAFE_METHOD = r"(?!(?i:GET|HEAD|OPTIONS)\b)\w"


def _checks(flags: str) -> tuple[str, str, None]:
    return rf"(?:.* )?(?:{flags})(?:[ =]|$)", "lint", None


def _writes_only(flags: str) -> tuple[str, str, None]:
    return rf"(?!(?:.* )?(?:{flags})(?:[ =]|$))", "lint", None


_BY_ARGUMENTS: dict[str, tuple[tuple[str, str, CallKind | Effect | None], ...]] = {
    "pip pip3 uv": _PIP,
    "apt apt-get apt-cache dpkg conda mamba brew gem": _PACKAGES,
    "tar": ((r"(?:-?t[a-zA-Z]*|-[zvjJ]+t[a-zA-Z]*|--list)(?: |$)", "read", Effect.UNKNOWN),),
    "unzip": ((r"-[lpZ][qv]*(?: |$)", "read", Effect.UNKNOWN),),
    "md5sum sha1sum sha256sum sha512sum": _CHECKSUM,
    "helm terraform tofu": (_CHECKS_PLAN, _LOOKS_ELSEWHERE),
    "aws gcloud az": (_LOOKS_ELSEWHERE,),
    "gh": (
        (r"(?:--version|--help|version)$", "version", None),
        (rf"(?:.* )?api\b.* -X {_SAFE_METHOD}", "send", None),
        (r"(?:.* )?api\b.* -(?!(?:[HqtipX]|-(?:paginate|include|silent|slurp|verbose|header|jq|template"
         r"|hostname|preview|cache))(?:[= ]|$))", "send", None),
        (r"(?!-)\S+ (?:clone|checkout|download)\b", "project", None),
    ),
    "curl": (
        _LOCAL,
        (rf"(?:.* )?(?:-{_CURL_SWITCHES}X|--req\w*)[ =]?[\"']?{_SAFE_METHOD}", "send", None),
        (rf"(?:.* )?(?:-{_CURL_SWITCHES}[TQt]|--(?:upload-file|quote|mail-|telnet-option))", "send", None),
        (rf"(?!(?:.* )?(?:-[a-zA-Z]*[GIX]|--get|--head|--req))(?:.* )?(?:-{_CURL_SWITCHES}[dF]"
         r"|--(?:data|form|json|url-query-data))", "send", None),
    ),
    "wget": (_LOCAL, (r"(?:.* )?--(?:post|body|method)\b", "send", None)),
    "black": (_checks("--check|--diff"),),
    "isort": (_checks("--check|--check-only|--diff|-c"),),
    "autopep8 yapf": (_checks("--diff|-d"), _writes_only("-i|--in-place")),
    "prettier": (_checks("--check|-c|--list-different|-l"), _writes_only("--write|-w")),
    "gofmt": (_checks("-l|-d"), _writes_only("-w")),
    "rustfmt autoflake": (_checks("--check"),),
    "clang-format": (_checks("--dry-run|-n"), _writes_only("-i")),
    "patch": (_checks("--dry-run"),),
    "sort": ((r"(?:.* )?(?:-[a-zA-Z]*o|--output)", "edit", None),),
    "tee": (
        (r"(?:-\w+ )*(?:/dev/\S+(?: |$))*$", "filter", None),
        (r"--(?:help|version)$", "version", None),
    ),
    "nvm": ((r"(?!(?:use|ls|list|current)\b)", "setup", Effect.SANDBOX_EXEC),),
    "alias": ((r".*=", "setup", Effect.SANDBOX_EXEC),),
    "trap": ((r"", "setup", Effect.SANDBOX_EXEC),),
    "source .": (
        (r"(?!(?:\S*/)?(?:activate(?:\.\w+)?|\.?env(?:\.\w+)?|\.(?:ba|z)shrc|\.(?:bash_)?profile|profile|nvm\.sh"
         r"|conda\.sh)(?: |$))", "setup", Effect.SANDBOX_EXEC),
    ),
}  # fmt: skip
BY_ARGUMENTS = {
    name: [(re.compile(pattern), rule, special) for pattern, rule, special in rules]
    for names, rules in _BY_ARGUMENTS.items()
    for name in names.split()
}
"""Program -> patterns of the beginning of its arguments (joined by spaces), the first of which gives the rule, and
the kind or effect where it is not the rule's usual one. If none matches, `PROGRAMS` gives the rule."""

IS_VERSION = re.compile(_VERSION)

_ANY = r"(?: .*)?"
_COMPOSE = r"compose(?: (?:-f|--file|-p|--project-name|--project-directory|--env-file|--profile) \S+)*"
_GIT_FLAGS = r"(?: (?:--(?:sort|format|column|all|remotes|show-current)|-[ar]?v{1,2}|-[arni]|-ra)(?:=\S+)?)*"
_LOOKUPS = {
    "kubectl": (
        "-n --namespace --context --kubeconfig --cluster --user -s --server --token --as --request-timeout",
        rf"(?:get|describe|logs|top|explain|api-resources|api-versions|version|events){_ANY}|cluster-info"
        rf"|config (?:view|get-contexts|get-clusters|get-users|current-context){_ANY}|rollout (?:status|history){_ANY}"
        rf"|auth (?:can-i|whoami){_ANY}",
    ),
    "gh": (
        "-R --repo",
        r"(?:pr|issue|run|repo|release|workflow|gist|label|secret|variable|cache|ruleset|project|extension|alias|config"
        rf"|codespace|ssh-key|gpg-key|org|auth) (?:view|list|ls|status|diff|checks|field-list|item-list){_ANY}"
        rf"|search (?:code|commits|issues|prs|repos){_ANY}|status{_ANY}|api(?: [^- ]\S*)?(?: -.*)?",
    ),
    "docker": (
        "-H --host -c --context --config -l --log-level",
        rf"(?:ps|images|logs|inspect|version|info|top|port|history|stats|diff|search){_ANY}|(?:container|image|volume"
        rf"|network|context) (?:ls|list|inspect|logs|top|history){_ANY}|{_COMPOSE} (?:ps|logs|images|ls|top|port"
        rf"|version){_ANY}|system (?:df|info){_ANY}|manifest inspect{_ANY}",
    ),
    "npm": (
        "--prefix -C -w --workspace",
        rf"(?:ls|list|view|outdated|root|prefix|bin|whoami){_ANY}|config (?:get|list|ls){_ANY}",
    ),
    "yarn": ("--cwd", rf"(?:list|why|info){_ANY}"),
    "pnpm": ("-C --dir -F --filter", rf"(?:ls|list|why){_ANY}"),
    "cargo": ("--manifest-path", rf"(?:\+[\w.-]+ )?(?:tree|metadata|search){_ANY}"),
    "go": ("-C", rf"(?:list|doc|version|mod (?:graph|why|verify)){_ANY}|env(?: \w+)*"),
    "git": (
        "-C -c --git-dir --work-tree --namespace",
        r"(?:log|reflog|blame|grep|ls-files|ls-tree|ls-remote|rev-parse|rev-list|describe|shortlog|cat-file|whatchanged"
        r"|annotate|merge-base|name-rev|show-ref|for-each-ref|count-objects|check-ignore|var|help|version|diff-tree"
        rf"|range-diff|cherry|show-branch|stash (?:list|show)|worktree list|remote (?:show|get-url)){_ANY}"
        rf"|remote(?: -v)?|submodule(?: status{_ANY})?|(?:branch|tag){_GIT_FLAGS}"
        r"(?: (?:--list|-l|--(?:no-)?(?:contains|merged)|--points-at)"
        rf"(?:[ =][^ -]\S*)?)?{_GIT_FLAGS}|config(?: --(?:global|system|local|worktree))*(?: --list| -l| list"
        r"|(?: --get(?:-all|-regexp)?| get)? [\w-]+\.\S*)",
    ),
}
LOOKUPS = {name: (split_words(flags), re.compile(pattern)) for name, (flags, pattern) in _LOOKUPS.items()}
"""Program -> the flags with a value that may stand before its sub-command, and a pattern of whole commands that only
look. Only its position makes a word a sub-command: a flag's value may look like one (`kubectl -n get delete x`)."""

_GIT_PROGRAM_KEY = (
    r"(?i:alias\.|[^\n=]*?(?:pager|editor|external|fsmonitor|command|textconv|helper|hookspath|program|askpass|proxy"
    r"|driver|cmd|pack=))"
)
"""Git settings whose value is a program that git runs."""
_OPERAND = r"(?!-.|\+?(?:0x[\da-fA-F]+|\d+)$).+"
"""A word that is no option and no number, which may be the value of an option."""
_WRITING_ARGUMENTS = {
    "date": r"-(?!I)[a-zA-Z]*s|--set|\d",
    "find": r"-f(?:print|ls)",
    "less more": r"-[oO]|--log-file|--LOG-FILE|\++(?![\d/?gGpF%]|$)",
    "tree shuf diff base64": r"-[a-zA-Z]*o|--output",
    "sort": r"--compress-program",
    "yq": r"-[a-zA-Z]*i|--in-?place",
    "file": r"-C|--compile",
    "ag bat rg": r"--pager(?!=(?:cat|never|less)?$)|--pre(?:=|$)|--hostname-bin",
    "go": r"--?(?:toolexec|exec)\b|-mod=mod$",
    "kubectl": r"--profile",
    "uniq xxd": rf"{_OPERAND}$[\s\S]*^{_OPERAND}",
    "curl": (
        rf"(?:-[A-Za-z#]*o|--output|-D|--dump-header)(?:=|\n)?+(?!{_NOWHERE})|-[A-Za-z#]*O[A-Za-z#]*$|--remote-name"
        r"|-[cK](?!-)|--cookie-jar|--config|--trace|--etag-save|--hsts|--libcurl|--stderr"
    ),
    "wget": (
        r"\A(?![\s\S]*^(?:--spider|--version|--help|-V|-h)$)"
        rf"(?![\s\S]*^(?:-[A-Za-z]*O|--output-document)(?:=|\n)?+{_NOWHERE})"
    ),
    "git": (
        r"--(?:output|exec-path|config-env|upload-pack|exec)(?:=|$)|ext::|difftool$|--ext-diff$"
        rf"|-c\n(?=[^\n=]*=)(?={_GIT_PROGRAM_KEY})[^\n=]*+=(?!(?:cat|less|true|false)?$)"
        r"|grep$[\s\S]*^(?:-O|--open-files-in-pager)|reflog$[\s\S]*^(?:expire|delete)$"
    ),
    "sed gsed": (
        r"-[nErsz]*f|--file|(?:.*[;{}]|--expression=|-[nErsz]*e)?[ \t]*+(?:[\d,$]+[ \t]*+!?[ \t]*+)?(?:e(?:[ \t]+\S"
        r"|[ \t]*$)|[wW][ \t]+[^\s;])|.*(?:[\d/$][ \t]*+(?:![ \t]*+)?[wW][ \t]+[^\s;]|/[gpiImMe0-9]*w[ \t]+[^\s;]"
        r"|s/[^/\n]*/[^/\n]*/[gpiImM\d]*e[gpiImM\d]*(?:$|[\s;}]))"
    ),
}
WRITING_ARGUMENTS = {
    name: re.compile(rf"^(?:{pattern})", re.M)
    for names, pattern in _WRITING_ARGUMENTS.items()
    for name in names.split()
}
"""Program that otherwise only reads -> a pattern of arguments (one a line) with which it writes or runs something.
Anything that runs a call early must know them: doubtful cases count as writes."""

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
    "nginx": ("-t -T", "", ""),
    "apachectl": ("configtest -t", "", ""),
    "bazel": ("test build coverage run", "clean shutdown", ""),
    "zig": ("test build run ast-check", "", "env targets"),
    "hg": ("", "", "log annotate grep status st diff cat files heads tip branches tags identify id manifest parents"),
    "svn": ("", "", "log status st info diff list ls cat blame"),
    "coverage": ("report run html xml", "", ""),
    "pre-commit": ("run", "", ""),
    "alembic": ("check", "", "history current"),
    "rails": ("test spec", "server s", "routes"),
    "artisan": ("test", "serve", ""),
    "flask": ("test", "run", "routes"),
    "django-admin": ("check test", "runserver", ""),
    "manage.py": ("check test shell", "runserver", "showmigrations"),
    "setup.py": ("test check build build_ext", "", ""),
}
"""Program -> sub-commands that check, that start or change something, and that look something up if they come first
(those of other programs are in `LOOKUPS`); `*` is any other sub-command."""
