"""Secrets that are found by what comes before them: names of settings and columns, places of commands, services."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clean.planted import ALNUM, HEX, make_token, plant_others, shape
from foretrace.clean import named_values as n
from foretrace.clean.gate import Gate
from foretrace.clean.named_values import find_named_values
from foretrace.clean.re2_patterns import compile_pattern
from foretrace.clean.redact import Redactor
from foretrace.clean.rules import TOKENS, Token

PLAIN = st.characters(codec="ascii", exclude_categories=["Cc"], include_characters="\t\n\r")
REDACTOR = Redactor()
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
    'secret_key_base # => "§"',
    'let api_key: &str = "§";',
    'static API_KEY: &\'static str = "§";',
    "const token: string = `§`;",
    'val password: String = "§"',
    "export DB_PASSWORD='Zq4$§'",
    "DB_PASSWORD=Kp8$w9OJOEhYa§",
    "create user a identified  by '§'",
    "docker login -u a -p §",
    "printf § | sudo  -S ls",
    "user.set_password('§')",
    "HTTPS://ann:§@db.acme.dev/x",
    "https://ann:a/§@db.acme.dev/x",
    "https://b.acme.dev/k?X-Amz-Signature=§&X-Amz-Kind=token",
]
FILLER = "x = 1\n" * 600
"""A long text is looked at in parts."""
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


@pytest.mark.parametrize("way", n.WAYS, ids=range(len(n.WAYS)))
@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
def test_each_text_with_a_secret_has_the_sign_of_its_way(way: n.Way, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(way.pattern, alphabet=PLAIN))
    if any(map(way.is_secret, way.pattern.finditer(text))):
        assert compile_pattern(way.sign)(text.encode())
        assert any(suspect.has_name for suspect in Gate().find_suspects([text])), "the rough look passes it over"


def test_each_way_is_met() -> None:
    texts = [*(planted.text for planted in plant_others(2, 2)), *(place.replace("§", SECRET) for place in PLACES)]
    texts += ["https://u9w1384y8HjM8u8Uu6bB@x.de/"]
    for way in n.WAYS:
        assert any(way.is_secret(match) for text in texts for match in way.pattern.finditer(text)), way


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_found_by_its_place(place: str) -> None:
    secret = TOKEN if "token" in place.lower() or "key" in place.lower() or "jwt" in place else SECRET
    text = place.replace("§", secret)
    assert secret not in REDACTOR.redact_text(text)
    assert secret not in REDACTOR.redact_text(f"{FILLER}{text}\n{FILLER}")
    escaped = json.dumps({"command": text, "n": 1})
    clean = REDACTOR.redact_text(escaped)
    assert secret not in clean
    json.loads(clean)


@pytest.mark.parametrize(
    "part", ["unzip -P ", "keytool -pass", "net user ", "snmpget -A ", "password ", "auth=('", "jwt.sign(", "login: a "]
)
def test_no_text_is_slow_to_look_through(part: str) -> None:
    text = part * (100_000 // len(part)) + "\nunzip -P a1b2c3d!x9 f"
    start = time.process_time()
    assert "a1b2c3d!x9" in [value for *_, value in find_named_values(text, lambda: None)]
    assert time.process_time() - start < 3  # it takes .1 s


SETTINGS = [
    ("DB_PASSWORD=monkey7", "monkey7"),
    ("DB_PASSWORD=%41bcdef9", "%41bcdef9"),
    ("DB_PASSWORD:  'abcd'", "abcd"),
    ("export DB_PASSWORD=trustno1", "trustno1"),
    ("$ DB_PASSWORD=mypassword1 ./run.sh", "mypassword1"),
    ("A=1\nDB_PASSWORD=Summer\nB=2", "Summer"),
    ("PASSWORD=qwerty123", "qwerty123"),
    ('PASSWORD="Dragon12"', "Dragon12"),
    ("docker run -e MYSQL_PWD=bluewhale42 mysql", "bluewhale42"),
    ("export ADMIN_PW=winter2024; ./run", "winter2024"),
    ("    environment:\n      POSTGRES_PASSWORD: Summer\n", "Summer"),
    ("    environment:\n      - POSTGRES_PASSWORD=Summer\n", "Summer"),
    ("db:\n  password: trustno1  # of the shop\n", "trustno1"),
    ('{"command": "printf \\"A=1\\\\nDB_PASSWORD=Summer\\\\n\\" > .env"}', "Summer"),
    ("+DB_PASSPHRASE=Summer", "Summer"),
    ("spring.datasource.password=monkey7\n", "monkey7"),
]

OTHERS = [
    "nvidia-cublas-cu11==11.10.3.66",
    "cloudflare: getResponseHeadersForRequest2",
    "awk '{print $1$OFS$2$OFS$3}'",
    "org_key_of_the_second_organization_2",
    "TOKEN=key_test_value_of_the_token",
    "sentry.captureExceptionWithContext(error1)",
    "curl -u admin:$PW1 https://shop.internal/",
    "password = getpass()",
    "login(password=args.password)",
    "    password=password1,",
    "PASSWORD=args.password",
    "def login(user: str, password: str) -> None:",
    "class A:\n    user: str\n    password: str\n    db_password: SecretStr",
    "ES_PASSWORD: Final = 32",
    "PLAIN_PASSWORD: SocketOption = SocketOption.PLAIN_PASSWORD",
    "interface A {\n  user: string;\n  password: string;\n}",
    "password=None",
    "DB_PASSWORD=",
    "DB_PASSWORD=${DB_PASSWORD}",
    "DB_PASSWORD=$1",
    "DB_PASSWORD='$(cat /run/secrets/db)'",
    "DB_PASSWORD=/run/secrets/db",
    "DB_PASSWORD=changeme",
    "POSTGRES_PASSWORD: postgres",
    "MYSQL_ALLOW_EMPTY_PASSWORD=true",
    "DB_PASSWORD=your-password-here",
    "DB_PASSWORD=<password>",
    "OLDPWD=/srv/shop1",
    "PWD=/srv/shop1",
    'PASSWORD = config["password"]',
    "PASSWORD = read_password",
    "DB_PASSWORD=DEFAULT_DB_PASSWORD",
    "Password: required",
    "user: the name\npassword: the word that you chose",
    "if PASSWORD == 'x': print(PASSWORD)",
    "PASSWORD_MIN_LENGTH=12",
    "PASSWORD=<SECRET:password:1>",
]


PASSWORD = "Kz4hfJ" + "Xq!873q"
KEY = "76226e236a23e238" + "e3b1c77fc4c011f1"
TABLES = [
    "| name | password |\n|---|---|\n| db | required |\n| cache | varchar(255) |\n",
    "token,count\nthe1,123\nof2,99\n",
    "| token | id |\n|---|---|\n| hello1 | 15496 |\n",
    f"sha256,token_count\n{KEY},12\n",
    f"| key | value |\n|---|---|\n| commit | {KEY} |\n",
    "service,api_key\nmaps,YOUR_API_KEY\nshop,os.environ['KEY1']\n",
    f"Give a name, a password, and a city:\nKoeln, {PASSWORD[:4]}, 50667\n",
    f"| token_type | id |\n|---|---|\n| {KEY} | 1 |\n",
]
"""Tables in which nothing is secret."""


@pytest.mark.parametrize(
    "text",
    [
        f"| name | password |\n|------|----------|\n| db   | {PASSWORD} |\n",
        f"| service | api_key |\n|---|---|\n| shop | n/a |\n| maps | `{KEY}` |\n",
        f" id | login | password \n----+-------+----------\n  1 | root2 | {PASSWORD}\n(1 row)\n",
        f"+----+------------+\n| id | password   |\n+----+------------+\n|  1 | {PASSWORD} |\n+----+------------+\n",
        f"┌──────┬─────────┐\n│ name │ api_key │\n├──────┼─────────┤\n│ maps │ {KEY} │\n└──────┴─────────┘\n",
        f"id,username,password,role\r\n1,ann,{PASSWORD},admin\r\n",
        f'"id","user","password"\n"1","ann","{PASSWORD}"\n',
        f"name\tsecret_key\tregion\nprod\t{KEY}\teu\n",
        f"user;password;mail\nann;{PASSWORD};x\n",
    ],
)
def test_secrets_under_or_beside_a_name_in_a_table_are_found(text: str) -> None:
    for written in (text, json.dumps({"out": text}, ensure_ascii=False)):
        assert (REDACTOR.redact_text(written)).count("<SECRET:") == 1
        assert PASSWORD not in REDACTOR.redact_text(written) and KEY not in REDACTOR.redact_text(written)


@pytest.mark.parametrize(("text", "password"), SETTINGS)
def test_a_word_is_a_password_where_its_setting_says_so(text: str, password: str) -> None:
    assert REDACTOR.redact_text(text) == text.replace(password, "<SECRET:password:1>")


@pytest.mark.parametrize("text", [*HARMLESS, *OTHERS, *TABLES])
def test_code_prose_and_placeholders_stay(text: str) -> None:
    assert REDACTOR.redact_text(text) == text


@pytest.mark.parametrize("token", TOKENS, ids=[f"{token.type} {token.head}"[:40] for token in TOKENS])
def test_a_token_is_told_by_its_beginning(token: Token) -> None:
    """Its own characters make it random enough, or else no rule counts it."""
    key = make_token(token, random.Random(token.head))
    assert key not in REDACTOR.redact_text(f"it printed {key}"), key


def is_gone(text: str, secret: str) -> bool:
    return secret not in REDACTOR.redact_text(text)


@pytest.mark.parametrize(
    "text", ["datadog {}", "Mixpanel secret: '{}'", 'PushBullet("{}")', "sonar.login', '{}", "asana :'{}'"]
)
def test_a_key_is_told_by_the_name_of_its_service(text: str) -> None:
    for alphabet in (HEX, ALNUM):
        key = shape((alphabet, 32))(random.Random(text))
        assert is_gone(text.format(key), key)
        assert not is_gone(f"commit {key}", key)
        assert not is_gone(f"slack commit {key} is merged, sentry sha256: {key}", key)


@pytest.mark.parametrize("name", ['COURIER_AUTH_TOKEN="{}"', "VAULT_CLIENT_TOKEN={}", "baseten_key = {}"])
def test_a_random_part_is_neither_code_nor_a_placeholder(name: str) -> None:
    for make in (shape("dk_test_", (ALNUM, 24)), shape("s.", (ALNUM, 24)), shape((ALNUM, 8), ".", (ALNUM, 32))):
        key = make(random.Random(name))
        assert is_gone(name.format(key), key), key
