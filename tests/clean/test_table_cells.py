"""Secrets in tables: under a name at the top of a column, or beside one; and tables that hold none."""

from __future__ import annotations

import json

import pytest

from foretrace.clean.redact import Redactor

PASSWORD = "Kz4hfJ" + "Xq!873q"
KEY = "76226e236a23e238" + "e3b1c77fc4c011f1"
REDACTOR = Redactor()


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
def test_cells_are_found(text: str) -> None:
    for written in (text, json.dumps({"out": text}, ensure_ascii=False)):
        assert (REDACTOR.redact_text(written)).count("<SECRET:") == 1
        assert PASSWORD not in REDACTOR.redact_text(written) and KEY not in REDACTOR.redact_text(written)


@pytest.mark.parametrize(
    "text",
    [
        "| name | password |\n|---|---|\n| db | required |\n| cache | varchar(255) |\n",
        "token,count\nthe1,123\nof2,99\n",
        "| token | id |\n|---|---|\n| hello1 | 15496 |\n",
        f"sha256,token_count\n{KEY},12\n",
        f"| key | value |\n|---|---|\n| commit | {KEY} |\n",
        "service,api_key\nmaps,YOUR_API_KEY\nshop,os.environ['KEY1']\n",
        f"Give a name, a password, and a city:\nKoeln, {PASSWORD[:4]}, 50667\n",
        f"| token_type | id |\n|---|---|\n| {KEY} | 1 |\n",
    ],
)
def test_other_tables_stay(text: str) -> None:
    assert REDACTOR.redact_text(text) == text
