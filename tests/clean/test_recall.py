"""Planted secrets are found wherever they stand, and what only looks like one is left alone."""

from __future__ import annotations

import base64
import json
import random
import time
from collections import Counter

import pytest

from clean.planted import Planted, plant_others, plant_tokens
from foretrace.clean.redact import Redactor
from foretrace.clean.scanner import Deadline, TooSlowError, find_secrets, read_in_other_ways
from foretrace.clean.values import decode_base64, may_be_base64

LEAST = 0.99


def hide(text: str) -> str:
    for found in reversed(find_secrets(text, Deadline(60))):
        text = f"{text[: found.start]}<SECRET:x:1>{text[found.end :]}"
    return text


def is_gone(planted: Planted, text: str) -> bool:
    return not any(piece in text for piece in planted.pieces)


def test_planted_secrets_are_found() -> None:
    planted = [*plant_tokens(0, 2), *plant_others(0, 10)]
    missed = Counter((p.kind, p.place) for p in planted if not is_gone(p, hide(p.text)))
    assert len({p.kind for p in planted}) > 80
    assert missed.total() <= (1 - LEAST) * len(planted), missed


def test_what_cannot_be_text_in_base64_is_told_as_decoding_tells_it() -> None:
    rng = random.Random(1)
    digits = "ABCDEFabcdefghijklmnopqrstuvwxyz0123456789+/-_"
    for _ in range(400):
        odd = 0.3 * rng.random()
        plain = bytes(200 if i % 3 == 0 and rng.random() < odd else 97 for i in range(rng.randrange(18, 60)))
        random_line = "".join(rng.choices(digits, k=rng.randrange(24, 90)))
        for line in (base64.b64encode(plain).decode(), random_line):
            assert may_be_base64(line) == (decode_base64(line[:64]) is not None), line


@pytest.mark.parametrize(
    "text",
    [
        'api_key = "your-api-key"',
        "API_KEY=xxxxxxxxxxxxxxxx",
        "export TOKEN=${GITHUB_TOKEN}",
        'token = os.environ["GITHUB_TOKEN"]',
        "password: <your password>",
        "PASSWORD=changeme",
        "max_tokens: 4096, next_page_token=None",
        "def check_password(self, password, user=None): return self.password == password",
        "Authorization: Bearer $TOKEN",
        "curl -H 'Authorization: Bearer <token>' https://api.example.com",
        "postgres://postgres:postgres@localhost:5432/test",
        "postgres://user:password@localhost/db",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "sha256:" + "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        '"integrity": "sha512-' + "A1b2" * 21 + '=="',
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        'if "-----BEGIN RSA PRIVATE KEY-----" in text: raise ValueError("a key was found in the text")',
        "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')",
        "secret_name = 'prod/db/password'",
        "the secret of the author is patience2",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "print(f'password is {password}')",
        "hf_hub_download(repo_id='x')",
        "import re\n_compile_every_pattern9(x)",
        "see sk\n-learn-the-pipeline-with-grid-search",
        *(f"{name}: 76226e236a23e238e3b1c77fc4c011f1" for name in ("n_tokens", "next_page_token", "pad_token")),
        "token = _load_token_for_host(host)",
        "password = sha256(data)",
        "secret = b64encode(raw).decode()",
        "token = tokens2[index]",
        "per_token_loss = -results2.log_probs",
        'call.headers["Authorization"] = self._make_auth_header(call.method, url)',
        'authorization = call.headers.get("Authorization")',
        'PRIVATE = {"authorization", "proxy-authorization", "x-shop-date-sha256"}',
        "for token in shop.stream(question, max_tokens=512):",
        "login(access_token=_access_token, token_ids_0=token_ids_0)",
        "def exchange(peer_public_key: Pkcs12PublicKeyHolder): ...",
        "UpdateTokens = Callable[[RefreshedToken2], None]",
        'URL_PAT = "[0-9A-Fa-f]{1,4}[a-f]"',
        'git commit -m "Fix password reset\\n2FA too"',
        json.dumps({"c": 'git commit -m "Fix password reset\n2FA too"'}),
    ],
)
def test_what_stands_for_a_secret_is_none(text: str) -> None:
    assert Redactor().redact_text(text) == text


BODY = "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7"


@pytest.mark.parametrize(
    "command",
    [
        f'curl -H "Authorization: Bearer {BODY}" https://api.shop.io',
        f"cat <<EOF >> ~/.netrc\nmachine api.shop.io\n  login me@shop.io\n  password {BODY}\nEOF",
        '{"body": "{\\"env\\": \\"DB_PASSWORD=' + BODY + '\\\\nDB_USER=shop\\\\n\\"}"}',
    ],
)
def test_a_value_ends_where_its_escaped_text_does(command: str) -> None:
    arguments = json.dumps({"command": command})
    clean = json.loads(Redactor().redact_text(arguments))["command"]
    assert BODY not in clean and clean.endswith(command[-2:])


@pytest.mark.parametrize(
    "text",
    [
        f"\x1b[01;31m\x1b[KPASSWORD\x1b[m\x1b[K={BODY[:12]}",
        f"machine api.shop.io login ann password {BODY[:12]}",
        f"password: {BODY[:5]},{BODY[5:14]}",
        f"SECRET_KEY = '%k2g(#{BODY[:14].lower()}&$b*y!=k(w^x8@+z-{BODY[14:24].lower()}'",
    ],
)
def test_passwords_are_taken_out_of_text_and_json(text: str) -> None:
    clean = Redactor().redact_text(text)
    assert "<SECRET:" in clean and BODY[8:12].lower() not in clean.lower()
    arguments = json.loads(Redactor().redact_text(json.dumps({"command": f"echo\n{text}\n"})))
    assert BODY[8:12].lower() not in arguments["command"].lower()


KEY = "Zx81kQ_r7Vw" * 5
AWS = "wJalrXUtnFEMIK7MDENGbPxRfiCYzT9qLmN0pQ4s"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f'{{"kty": "EC", "crv": "P-256", "d": "{KEY}"}}', KEY),
        ("PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 1\nAAAAgQCd\nPrivate-MAC: " + "0a" * 32, "AAAAgQCd"),
        ("mysql -uroot -pAb1! shop", "Ab1!"),
        ("curl -u bob:aB3!x https://example.org", "aB3!x"),
        (f"AKIAQ4ZD7WN2XKTB5RCM,{AWS}", AWS),
    ],
)
def test_keys_and_short_passwords_of_other_programs(text: str, secret: str) -> None:
    assert secret not in hide(text)


def test_characters_are_found_in_the_original() -> None:
    original = json.dumps(json.dumps({"key\n": 'a"b\\c', "é": "%41"})) + " tail"
    for view in read_in_other_ways(original):
        for place, character in enumerate(view.text):
            start, end = view.find_span(place, place + 1)
            assert original[start:end].endswith(character) or original[start] in "\\%"
            assert place + 1 == len(view.text) or end == view.find_span(place + 1, place + 2)[0]
        assert view.find_span(len(view.text) - 4, len(view.text)) == (len(original) - 4, len(original))


def test_long_blanks_take_no_time() -> None:
    text = 'password = "Xy7!kk2pQ"' + " " * 50_000 + "end\n" + "\t" * 50_000 + "x"
    begun = time.process_time()
    assert [found.type for found in find_secrets(text, Deadline(60))] == ["password"]
    assert time.process_time() - begun < 5


def test_many_names_in_a_row_are_given_up_at_the_deadline() -> None:
    """Each is a name, and what follows its long value: all of them would take ten seconds."""
    before = time.thread_time()
    with pytest.raises(TooSlowError):
        find_secrets("password=" * 5000, Deadline(0.05))
    assert time.thread_time() - before < 2
