"""Options with which a program writes that otherwise only reads: `curl -o FILE`, `find -fprint FILE`, `yq -i`.

Anything that runs a call early must know them. Doubtful cases count as writes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

_NOWHERE = ("-", "/dev/null", "/dev/stdout", "/dev/stderr", "&1")
"""Destinations of output that change nothing."""
_CURL_OUTPUT = re.compile(r"(?:-[A-Za-z#]*o|--output)(?:=?(.+))?$")
_CURL_WRITES = re.compile(
    r"-[A-Za-z#]*O[A-Za-z#]*$|--remote-name|-[DcK](?!-)|--dump-header|--cookie-jar|--config|--trace|--etag-save|--hsts|--libcurl|--stderr"
)
_WGET_OUTPUT = re.compile(r"(?:-[A-Za-z]*O|--output-document)(?:=?(.+))?$")
_NUMBER = re.compile(r"\+?(?:0x[\da-fA-F]+|\d+)$")
_SED_SCRIPT = re.compile(r"(?:--expression=|-[nErsz]*e)")
_SED_RUNS = re.compile(
    r"(?:^|[;{}\n])\s*(?:[\d,$]+\s*!?)?\s*e(?:\s+\S|\s*$)|s/[^/\n]*/[^/\n]*/[gpiImM\d]*e[gpiImM\d]*(?:$|[\s;}])"
)
_GIT_KEYS = re.compile(
    r"^alias\.|pager|editor|external|fsmonitor|command|textconv|helper|hookspath|program|askpass|proxy|driver|cmd|pack$",
    re.IGNORECASE,
)
"""Git settings whose value is a program that git runs."""
_SED_WRITES = re.compile(r"(?:^|[;{}\n]|[\d$/]\s*!?)\s*[wW]\s+[^\s;]|/[gpiImMe0-9]*w\s+[^\s;]")
_FLAGS = {
    "date": r"-(?!I)[a-zA-Z]*s|--set|\d",
    "find": r"-f(?:print|ls)",
    "less": r"-[oO]|--log-file|--LOG-FILE|\++(?![\d/?gGpF%]|\Z)",
    "more": r"\++(?![\d/]|\Z)",
    "tree": r"-o",
    "diff": r"--output(?:=|$)",
    "sdiff": r"-o|--output",
    "sort": r"-[a-zA-Z]*o|--output|--compress-program",
    "yq": r"-[a-zA-Z]*i|--inplace|--in-place",
    "history": r"-[acdnrws]",
    "file": r"-C|--compile",
    "base64": r"-[a-zA-Z]*o|--output",
    "shuf": r"-o|--output",
    "svn": r"--(?:diff-cmd|editor-cmd|config-option|config-dir)",
    "man": r"-[PH]|--pager|--html",
    "info": r"-o|--output",
    "ss": r"-\w*K|--kill",
    "ag": r"--pager",
    "bat": r"--pager(?!=(?:cat|never|less)?$)",
    "go": r"--?(?:toolexec|exec)\b",
    "hg": r"--config|-o|--output",
    "ip": r"-b|exec$|(?:add|del|delete|set|flush|replace|change|append|restore)$",
    "ifconfig": r"\d+\.\d+\.|(?:up|down|add|del|netmask)$",
    "nvidia-smi": r"-r|--gpu-reset|-pm|-pl|-c$|-e$|-ac|-lgc",
    "exiftool": r"-[\w:]+[-+<]?=|-overwrite_original|-delete_original",
    "ast-grep": r"-U|--update-all",
    "rg": r"--pre$|--pre=|--hostname-bin",
}
"""Program -> beginnings of arguments with which it writes, or runs something."""
_FLAG_PATTERNS = {name: re.compile(pattern) for name, pattern in _FLAGS.items()}


def has_writing_option(name: str, arguments: Sequence[str]) -> bool:
    """Whether a program that usually reads writes, or runs another one, with these arguments.

    Args:
        name: The program, without its folder.
        arguments: Its arguments.
    """
    if (pattern := _FLAG_PATTERNS.get(name)) is not None:
        return any(pattern.match(word) for word in arguments)
    rule = _RULES.get(name)
    return rule is not None and rule(arguments)


def _list_operands(arguments: Sequence[str]) -> list[str]:
    return [word for word in arguments if word == "-" or not word.startswith("-")]


def _list_outputs(arguments: Sequence[str], option: re.Pattern[str]) -> list[str]:
    """The files named by an option, in the same word or the next one."""
    pairs = itertools.pairwise([*arguments, ""])
    return [found[1] or after for word, after in pairs if (found := option.match(word)) is not None]


def _does_curl_write(arguments: Sequence[str]) -> bool:
    outputs = _list_outputs(arguments, _CURL_OUTPUT)
    if any(output not in _NOWHERE for output in outputs):
        return True
    return any(
        _CURL_WRITES.match(word) and not (word.startswith(("-D", "--dump-header")) and after in _NOWHERE)
        for word, after in itertools.pairwise([*arguments, ""])
    )


def _does_wget_write(arguments: Sequence[str]) -> bool:
    if {"--spider", "--version", "--help", "-V", "-h"} & {*arguments}:
        return False
    outputs = _list_outputs(arguments, _WGET_OUTPUT)
    return not outputs or any(output not in _NOWHERE for output in outputs)


def _does_sed_write(arguments: Sequence[str]) -> bool:
    """Whether a sed script writes; a script in a file is not known."""
    if any(re.match(r"-[nErsz]*f|--file", word) for word in arguments):
        return True
    scripts = [_SED_SCRIPT.sub("", word, count=1) for word in arguments]
    return any(_SED_WRITES.search(word) or _SED_RUNS.search(word) for word in scripts)


def _has_second_operand(arguments: Sequence[str]) -> bool:
    """`uniq IN OUT` and `xxd IN OUT`; numbers are values of options."""
    return len([word for word in _list_operands(arguments) if not _NUMBER.match(word)]) > 1


def _does_git_write(arguments: Sequence[str]) -> bool:
    if any(re.match(r"--(?:output|exec-path|config-env|upload-pack|exec)(?:=|\Z)|ext::", word) for word in arguments):
        return True
    for word, after in itertools.pairwise(arguments):
        key, _, value = after.partition("=")
        if word == "-c" and _GIT_KEYS.search(key) and value not in ("cat", "less", "true", "false", ""):
            return True
    if "difftool" in arguments or "--ext-diff" in arguments:  # a program named in the settings
        return True
    starts = {"grep": ("-O", "--open-files-in-pager")}
    if any(verb in arguments and word.startswith(flags) for verb, flags in starts.items() for word in arguments):
        return True
    return "reflog" in arguments and bool({"expire", "delete"} & {*arguments})


def _does_docker_write(arguments: Sequence[str]) -> bool:
    """`docker compose config` into a file; `-o` is another option elsewhere."""
    return "config" in arguments and any(word.startswith(("-o", "--output", "--lock")) for word in arguments)


_RULES: dict[str, Callable[[Sequence[str]], bool]] = {
    "git": _does_git_write,
    **dict.fromkeys(("docker", "docker-compose"), _does_docker_write),
    "curl": _does_curl_write,
    "wget": _does_wget_write,
    **dict.fromkeys(("sed", "gsed"), _does_sed_write),
    **dict.fromkeys(("uniq", "xxd"), _has_second_operand),
    "hostname": lambda arguments: bool(_list_operands(arguments)),
    "pdftotext": lambda arguments: bool(arguments) and arguments[-1] not in _NOWHERE,
    "ctags": lambda arguments: "-x" not in arguments,
}
