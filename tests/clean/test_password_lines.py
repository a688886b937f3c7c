"""Passwords that are plain words: found in lines of settings, and left alone in code and prose."""

from __future__ import annotations

import pytest

from foretrace.clean.redact import Redactor, RedactSettings

REDACTOR = Redactor(RedactSettings())

SETTINGS = [
    ("DB_PASSWORD=monkey7", "monkey7"),
    ("export DB_PASSWORD=trustno1", "trustno1"),
    ("$ DB_PASSWORD=mypassword1 ./run.sh", "mypassword1"),
    ("A=1\nDB_PASSWORD=Summer\nB=2", "Summer"),
    ("PASSWORD=qwerty123", "qwerty123"),
    ('PASSWORD="Dragon12"', "Dragon12"),
    ("docker run -e MYSQL_PWD=bluewhale42 mysql", "bluewhale42"),
    ("export ADMIN_PW=winter2024; ./run", "winter2024"),
    ("    environment:\n      POSTGRES_PASSWORD: Summer\n", "Summer"),
    ("    environment:\n      - POSTGRES_PASSWORD=Summer\n", "Summer"),
    ("db:\n  user: shop\n  password: Summer\n", "Summer"),
    ("db:\n  password: trustno1  # of the shop\n", "trustno1"),
    ('{"command": "printf \\"A=1\\\\nDB_PASSWORD=Summer\\\\n\\" > .env"}', "Summer"),
    ("+DB_PASSPHRASE=Summer", "Summer"),
    ("curl -u 'admin:Zx$8k' https://shop.internal/", "Zx$8k"),
    ("spring.datasource.password=monkey7\n", "monkey7"),
]

OTHERS = [
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


@pytest.mark.parametrize(("text", "password"), SETTINGS)
def test_a_word_is_a_password_where_its_setting_says_so(text: str, password: str) -> None:
    assert REDACTOR.redact_text(text) == text.replace(password, "<SECRET:password:1>")


@pytest.mark.parametrize("text", OTHERS)
def test_code_prose_and_placeholders_stay(text: str) -> None:
    assert REDACTOR.redact_text(text) == text
