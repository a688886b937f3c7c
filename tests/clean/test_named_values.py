"""What is looked for first stands in every text that the patterns themselves match."""

from __future__ import annotations

import random

from clean.planted import KINDS, plant_others
from foretrace.clean import named_values as n


def test_words_are_found_as_by_their_pattern_alone() -> None:
    rng = random.Random(3)
    pieces = [*(kind.name.lower() for kind in KINDS.values()), "design", "consider", "x_key", "key", "-pat", "_", "-"]
    pieces += [
        " sid ",
        "sig=",
        "connect.sid",
        "subscription.key",
        "password",
        "requirepass",
        "author",
        "session id",
        "y",
    ]
    for _ in range(300):
        text = "".join(rng.choice([*pieces, " " * 30, "words " * 8]) for _ in range(12))
        assert list(n._find_words(text)) == [match.start() for match in n._WORDS.finditer(text)], text


def test_nothing_is_left_out_where_no_sign_stands() -> None:
    signs = {
        n._COMMANDS: lambda text: (
            n._holds(text, n._COMMAND_SIGNS) or any(p.search(text) for p in (n._PASSWORD_CALL, n._USER_OPTION))
        ),
        n._PIPED: lambda text: n._holds(text, n._PIPED_SIGNS),
        n._PGPASS: n._PORT.search,
        n._USER_INFO: n._BEFORE_AT.search,
        n._USER_ALONE: n._BEFORE_AT.search,
        n._TRAILING: n._VERB.search,
    }
    texts = [planted.text for planted in plant_others(2, 2)]
    texts += ["mariadb -u a -pXy7!kk2p", "htpasswd -b f u Xy7!kk2p", "redis-cli -a Xy7!kk2p", "--passin pass:Xy7!kk2p"]
    texts += [
        "echo a:Xy7!kk2p | chpasswd",
        "wget --user=a:Xy7!kk2p",
        "http -a a:Xy7!kk2p x",
        "SET PASSWORD ('Xy7!kk2p')",
    ]
    texts += ["a1B2c3D4e5F6g7H8i9J0 is our deploy token", "*:*:db:me:Xy7!kk2p", "printf Xy7!kk2p | sudo -S ls"]
    for pattern, may_match in signs.items():
        hits = [text for text in texts if pattern.search(text)]
        assert hits
        assert [text for text in hits if not may_match(text.lower() if pattern is n._COMMANDS else text)] == []
