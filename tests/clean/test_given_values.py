"""Secrets in places of their own: of commands, of calls, of declarations, of SQL, and in words of other languages."""

from __future__ import annotations

import json
import time

import pytest

from foretrace.clean.named_values import find_named_values
from foretrace.clean.redact import Redactor

SECRET = "Vq4!tw7Lp2x"
TOKEN = "u9w1384y8HjM8u8Uu6bBLRWFeq4Af3SY"
PLACES = [
    "unzip -P § a.zip",
    "7z x -p§ a.7z",
    "mongosh --host db -u root -p § shop",
    "mongosh 'mongodb://h/db?a=1&b=2' -u root -p §",
    "unzip a.zip && unzip -P § b.zip",
    "password: >-\n  §",
    "cqlsh -u cassandra -p § db",
    "sqlcmd -S db -U sa -P '§' -Q 'select 1'",
    "mosquitto_pub -h m -u dev -P § -t x",
    "ldapsearch -x -D cn=a,dc=b -w § -b dc=b",
    "lftp -u deploy,§ sftp://files.acme.dev",
    "smbclient //fs/share -U 'bob%§'",
    "etcdctl --user root:§ get /",
    "openssl enc -aes-256-cbc -k § -in a",
    "keytool -list -keystore k.jks -storepass §",
    "net user bob § /add",
    "rabbitmqctl add_user shop §",
    "wpa_passphrase Home §",
    "snmpwalk -v3 -A § host",
    "rocommunity §",
    '$s = ConvertTo-SecureString -String "§" -AsPlainText -Force',
    "$s = ConvertTo-SecureString '§' -AsPlainText",
    'expect "password:"; send "§\\r"',
    "echo '::add-mask::§'",
    "requests.get(u, auth=('bob', '§'))",
    "HTTPBasicAuth('bob', '§')",
    "jwt.sign(payload, '§', {expiresIn: '1h'})",
    "jwt.encode(claims, \"§\", algorithm='HS256')",
    "Login: admin / §",
    "user admin, pass §",
    "pw: §",
    "bind_pw: §",
    "Das Passwort lautet §",
    "El token es §",
    "senha: §",
    "password: >-\n  §\nport: 1",
    'variable "db_password" {\n  type = string\n  default = "§"\n}',
    "INSERT INTO users (name, password, age) VALUES ('bob', '§', 3), ('a,b', '§', 4);",
    'secret_key_base # => "§"',
    'let api_key: &str = "§";',
    'static API_KEY: &\'static str = "§";',
    "const token: string = `§`;",
    'val password: String = "§"',
    "export DB_PASSWORD='Zq4$§'",
    "DB_PASSWORD=Kp8$w9OJOEhYa§",
]
HARMLESS = [
    "unzip -P $PASS a.zip",
    "7z x -pPASSWORD a.7z",
    "mongosh --port 27017 -p",
    "sqlcmd -S db -U sa -P $SA_PASSWORD",
    "zip -r a.zip src",
    "requests.get(u, auth=('user', 'pass'))",
    "jwt.decode(token, settings.SECRET_KEY)",
    "auth = (user, password1)",
    "openssl x509 -in a.pem -noout",
    "tests pass 1200ms",
    "pw = pw[:-1]",
    "pass: 120ms",
    "user admin, pass",
    "pw = 0.25",
    "password: >-\n  the password of the account\n",
    "INSERT INTO users (name, password) VALUES (%s, %s)",
    "password: >-\nuser-name2: x",
    "token: Final[str] = get_token()",
    "let token: &str = args.token;",
    "DB_PASSWORD=prefix-$DB_PASS",
    "PASSWORD=Abc1$PASSWORD",
    'the pwd, ":*****@" stands for it',
    '_TOKEN: Final[str] = rf"[{_TCHAR}]+"',
    'export DB_PASSWORD="$db_password1"',
    # The option of the next command, behind `&&` or `&`.
    "mongo && mkdir -p dump2024/x",
    'unzip x.zip && grep -P "\\d{3}foo9" file',
    "unzip x.zip & mkdir -P dump2024/x",
    "redis-cli ping && tar -a x9/Zd",
    "docker login && mkdir -p dump2024/x",
    "mariadb -e q && mkdir -pdump2024/x",
    # Where a secret is kept.
    "secret: >-\n    vault:path/to9",
    "password: |\n  vault:kv/data/shop9#pw\n",
    "token: >\n  ssm:/prod/tok9en/x2",
    "password: op://team/shop9/key",
]


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_found_by_its_place(redactor: Redactor, place: str) -> None:
    secret = TOKEN if "token" in place.lower() or "key" in place.lower() or "jwt" in place else SECRET
    text = place.replace("§", secret)
    assert secret not in redactor.redact_text(text)
    escaped = json.dumps({"command": text, "n": 1})
    clean = redactor.redact_text(escaped)
    assert secret not in clean
    json.loads(clean)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_stands_in_such_a_place_is_left_alone(redactor: Redactor, text: str) -> None:
    assert redactor.redact_text(text) == text


def test_each_place_is_seen_by_the_rough_look(redactor: Redactor) -> None:
    filler = "x = 1\n" * 600  # a long text is looked at in parts
    for place in PLACES:
        text = filler + place.replace("§", TOKEN) + "\n" + filler
        assert TOKEN not in redactor.redact_text(text), place


@pytest.mark.parametrize(
    "part", ["unzip -P ", "keytool -pass", "net user ", "snmpget -A ", "password ", "auth=('", "jwt.sign(", "login: a "]
)
def test_no_text_is_slow_to_look_through(part: str) -> None:
    text = part * (200_000 // len(part)) + "\nunzip -P a1b2c3d!x9 f"
    start = time.process_time()
    assert "a1b2c3d!x9" in [value for *_, value in find_named_values(text, lambda: None)]
    assert time.process_time() - start < 5  # it takes .2 s
