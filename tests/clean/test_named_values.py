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
    texts = [planted.text for planted in plant_others(2, 2)]
    texts += ["mariadb -u a -pXy7!kk2p", "htpasswd -b f u Xy7!kk2p", "redis-cli -a Xy7!kk2p", "--passin pass:Xy7!kk2p"]
    texts += ["echo a:Xy7!kk2p | chpasswd", "wget --user=a:Xy7!kk2p", "SET PASSWORD ('Xy7!kk2p')"]
    texts += ["*:*:db:me:Xy7!kk2p", "printf Xy7!kk2p | sudo -S ls", "A_PASSWORD=a1b2c3", "a_pwd: abcdef"]
    assert sum(any(way.pattern.search(text) for text in texts) for way in n._WAYS) >= len(n._WAYS) - 2
    for way in n._WAYS:
        assert [text for text in texts if way.pattern.search(text) and not n._has_sign(text.lower(), way)] == []
