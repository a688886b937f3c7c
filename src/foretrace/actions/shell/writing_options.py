"""Options by which a program that else only reads writes: `curl -o FILE`, `find -fprint FILE`, `yq -i`.

Whoever runs a call early must know of them. What is not told apart for certain counts as a write.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

_NOWHERE = ("-", "/dev/null", "/dev/stdout", "/dev/stderr", "&1")
"""Places where output changes nothing."""
_CURL_OUTPUT = re.compile(r"(?:-[A-Za-z#]*o|--output)(?:=?(.+))?$")
_CURL_WRITES = re.compile(
    r"-[A-Za-z#]*O[A-Za-z#]*$|--remote-name|-[DcK](?!-)|--dump-header|--cookie-jar|--config|--trace|--etag-save|--hsts"
)
_WGET_OUTPUT = re.compile(r"(?:-[A-Za-z]*O|--output-document)(?:=?(.+))?$")
_NUMBER = re.compile(r"\+?(?:0x[\da-fA-F]+|\d+)$")
_AWK_WRITES = re.compile(r"\bprintf?\b[^;{}\n]*[>|]|\bsystem\s*\(")
_SED_WRITES = re.compile(r"(?:^|[;{}\n]|[\d$/]\s*!?)\s*[wW]\s+[^\s;]|/[gpiImMe0-9]*w\s+[^\s;]")
_FLAGS = {
    "find": r"-f(?:print|ls)",
    "less": r"-[oO]|--log-file|--LOG-FILE",
    "tree": r"-o",
    "diff": r"--output(?:=|$)",
    "sort": r"-[a-zA-Z]*o|--output",
    "yq": r"-[a-zA-Z]*i|--inplace|--in-place",
    "date": r"-s|--set",
    "history": r"-[acdnrws]",
    "file": r"-C|--compile",
    "man": r"-[PH]|--pager|--html",
    "ip": r"(?:add|del|delete|set|flush|replace|change|append|restore)$",
    "ifconfig": r"(?:up|down|add|del|netmask)$",
    "nvidia-smi": r"-r|--gpu-reset|-pm|-pl|-c$|-e$|-ac|-lgc",
    "exiftool": r"-[\w:]+[-+<]?=|-overwrite_original|-delete_original",
    "ast-grep": r"-U|--update-all",
    "rg": r"--pre$|--pre=",
}
"""Program -> what one of its arguments begins with where it writes, or runs something."""
_FLAG_PATTERNS = {name: re.compile(pattern) for name, pattern in _FLAGS.items()}


def has_writing_option(name: str, arguments: Sequence[str]) -> bool:
    """Whether a program that is known for reading writes, or runs another one, with these arguments.

    Args:
        name: The program, without its folder.
        arguments: What follows it.
    """
    if (pattern := _FLAG_PATTERNS.get(name)) is not None:
        return any(pattern.match(word) for word in arguments)
    rule = _RULES.get(name)
    return rule is not None and rule(arguments)


def _list_operands(arguments: Sequence[str]) -> list[str]:
    return [word for word in arguments if word == "-" or not word.startswith("-")]


def _list_outputs(arguments: Sequence[str], option: re.Pattern[str]) -> list[str]:
    """The files that an option names, in its own word or in the next one."""
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


def _does_awk_write(arguments: Sequence[str]) -> bool:
    script = re.sub(r'>+\s*"(?:/dev/(?:stderr|stdout|null)|-)"', "", " ".join(arguments))
    # Without its texts, and without what stands in brackets, where > compares.
    bare = re.sub(r"(?<!system)\([^()]*\)", "", re.sub(r'"(?:[^"\\]|\\.)*"', "", script))
    return _AWK_WRITES.search(bare) is not None


def _does_sed_write(arguments: Sequence[str]) -> bool:
    return any(_SED_WRITES.search(word) for word in arguments)


def _has_second_operand(arguments: Sequence[str]) -> bool:
    """`uniq IN OUT` and `xxd IN OUT`; numbers are values of options."""
    return len([word for word in _list_operands(arguments) if not _NUMBER.match(word)]) > 1


def _does_git_write(arguments: Sequence[str]) -> bool:
    if any(word == "--output" or word.startswith("--output=") for word in arguments):
        return True
    return "reflog" in arguments and bool({"expire", "delete"} & {*arguments})


_RULES: dict[str, Callable[[Sequence[str]], bool]] = {
    "git": _does_git_write,
    "curl": _does_curl_write,
    "wget": _does_wget_write,
    **dict.fromkeys(("awk", "gawk", "mawk"), _does_awk_write),
    **dict.fromkeys(("sed", "gsed"), _does_sed_write),
    **dict.fromkeys(("uniq", "xxd"), _has_second_operand),
    "hostname": lambda arguments: bool(_list_operands(arguments)),
    "pdftotext": lambda arguments: bool(arguments) and arguments[-1] not in _NOWHERE,
    "ctags": lambda arguments: "-x" not in arguments,
}
