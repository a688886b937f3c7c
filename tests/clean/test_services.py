"""Keys of services: those that their beginning tells, and those that only the name of the service tells."""

from __future__ import annotations

import random

import pytest

from clean.planted import ALNUM, HEX, Make, shape
from foretrace.clean.redact import make_redactor

BASE64 = ALNUM + "./"
HEADS: dict[str, Make] = {
    "apify": shape("apify", "_api_", (ALNUM, 36)),
    "dtrack": shape("odt", "_", (ALNUM, 32)),
    "posthog": shape("phx", "_", (ALNUM, 47)),
    "sourcegraph": shape("sgp", "_", (HEX, 40)),
    "sourcegraph licence": shape("slk", "_", (HEX, 64)),
    "ionic": shape("ion", "_", (ALNUM, 42)),
    "stackhawk": shape("hawk.", (ALNUM, 20), ".", (ALNUM, 20)),
    "scale": shape("live", "_", (HEX, 32)),
    "razorpay": shape("rzp", "_live_", (ALNUM, 14)),
    "bcrypt": shape("$2", "y$12$", (BASE64, 53)),
    "sha512crypt": shape("$6", "$", (ALNUM, 8), "$", (BASE64, 86)),
    "grafana": shape("eyJr", "Ijoi", (ALNUM, 80)),
    "infura": shape("https://mainnet.infura.io/v3/", (HEX, 32)),
}


def is_gone(text: str, secret: str) -> bool:
    redactor = make_redactor()
    assert redactor is not None
    return secret not in redactor.redact_text(text)


@pytest.mark.parametrize("kind", HEADS)
def test_a_key_is_told_by_its_beginning(kind: str) -> None:
    key = HEADS[kind](random.Random(kind))
    assert is_gone(f"it printed {key}", key)


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


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-cublas-cu11==11.10.3.66",
        "cloudflare: getResponseHeadersForRequest2",
        "awk '{print $1$OFS$2$OFS$3}'",
        "org_key_of_the_second_organization_2",
        "TOKEN=key_test_value_of_the_token",
        "sentry.captureExceptionWithContext(error1)",
    ],
)
def test_names_of_services_are_no_secrets(text: str) -> None:
    redactor = make_redactor()
    assert redactor is not None
    assert redactor.redact_text(text) == text
