"""A server that wants a pause is told from an account whose quota is used up, by texts that servers really send."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from foretrace.models.server_errors import ServerErrors, read_wait

ERRORS = ServerErrors("https://host.example", "m", "openai", None, "")
PLAN = "You exceeded your current quota, please check your plan and billing details."
METRIC = f"{PLAN}\n* Quota exceeded for metric: googleapis.com/generate_content_free_tier_requests, limit: "
GROQ = "Rate limit reached for model `x` on tokens per {}: Limit 12000, Used 4437, Requested 9854. Please try again in "
GROQ += (
    "{}. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing; rate_limit_exceeded"
)
OPENAI = "Rate limit reached for gpt-4o in organization org-x on requests per "
PAYMENT = "Please add a payment method to your account to increase your rate limit. Visit https://x/account/billing."
REAL: list[tuple[str, str, float | None]] = [
    # per minute, though most of them speak of money
    (GROQ.format("minute (TPM)", "11.455s"), "busy", 11.455),
    (f"{OPENAI}min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s. {PAYMENT}", "busy", 20.0),
    (f"{OPENAI}day (RPD): Limit 10000, Used 10000. Please try again in 8.64s.", "busy", 8.64),
    (f"{METRIC}10, model: gemini-2.5-flash\nPlease retry in 21.5s.", "busy", 21.5),
    (f"{PLAN} GenerateContentInputTokensPerModelPerMinute-FreeTier", "busy", None),
    ("Quota exceeded for quota metric 'Generate Content API requests per minute' and limit 'request limit per minute "
     "for a region' of service 'x'.", "busy", None),
    ("You have been rate limited. Your rate limit is 60 queries per minute. Please navigate to https://api.together.xyz/"
     "settings/billing to upgrade to a paid plan; credit_limit", "busy", None),
    ("This request would exceed the rate limit for your organization of 30,000 input tokens per minute. You may also "
     "contact sales to discuss your options; rate_limit_error", "busy", None),
    ("Too many tokens for team x and model grok-4. Your team's rate limit is: Tokens per Minute: 65605/16000.", "busy",
     None),
    ("rate_limit_exceeded: Rate limit exceeded, upgrade your plan for more", "busy", None),
    ("timed out waiting for a concurrent request slot", "busy", None),
    ("<html><head><title>429 Too Many Requests</title></head></html>", "busy", None),
    # used up: no pause of minutes mends it
    (f"{PLAN} insufficient_quota", "quota", None),
    (GROQ.format("day (TPD)", "9m38.016s"), "quota", 578.016),
    (f"{METRIC}0, model: gemini-2.5-pro\nPlease retry in 38.9s.", "quota", 38.9),
    (f"{PLAN} GenerateRequestsPerDayPerProjectPerModel-FreeTier. Please retry in 26s.", "quota", 26.0),
    ("Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day; "
     "rate_limit_error", "quota", None),
    ("you've reached your hourly usage limit, please wait or upgrade to continue", "quota", None),
    ("you have reached your session usage limit, upgrade for higher limits: https://ollama.com/upgrade", "quota", None),
    ("Your credit balance is too low to access the API. Please go to Plans & Billing to upgrade or purchase credits.",
     "quota", None),
]  # fmt: skip
"""What OpenAI, Groq, Gemini, Together, Anthropic, xAI, OpenRouter and Ollama Cloud say, what it means, and the wait."""


@pytest.mark.parametrize(("said", "kind", "wait"), REAL, ids=[said[:50] for said, *_ in REAL])
def test_what_servers_say_is_understood(said: str, kind: str, wait: float | None) -> None:
    for body in (said.encode(), json.dumps({"error": {"message": said}}).encode()):
        error = ERRORS.from_status(429, body)
        assert (error.kind, error.retryable, error.final) == (kind, kind == "busy", kind == "quota")
        assert error.retry_after_s == (None if wait is None else pytest.approx(wait))
    streamed = ERRORS.from_stream({"message": said, "code": 429})  # the same words inside a stream that began well
    assert (streamed.kind, streamed.retryable) == (kind, kind == "busy")


def test_a_wait_in_the_details_of_gemini_is_read() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26s"}]
    body = [{"error": {"code": 429, "message": PLAN, "status": "RESOURCE_EXHAUSTED", "details": details}}]
    error = ERRORS.from_status(429, json.dumps(body).encode())
    assert (error.kind, error.retry_after_s) == ("busy", 26.0)


def test_a_short_pause_in_the_header_outweighs_words_of_money_but_no_empty_account() -> None:
    said = b'{"error": {"message": "over your quota: upgrade in billing"}}'
    assert ERRORS.from_status(429, said).kind == "quota"
    assert ERRORS.from_status(429, said, retry_after="1").kind == "busy"
    assert ERRORS.from_status(429, said, retry_after="120").kind == "busy"
    assert ERRORS.from_status(429, said, retry_after="121").kind == "quota"
    assert ERRORS.from_status(429, b'{"error": {"code": "insufficient_quota"}}', retry_after="1").kind == "quota"
    assert ERRORS.from_status(503, said).kind == "busy" and ERRORS.from_status(402, b"per minute").kind == "quota"


def test_one_request_that_is_too_large_for_the_minute_is_that_request_s_own_failure() -> None:
    said = "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 6294"
    error = ERRORS.from_status(429, json.dumps({"error": said}).encode())
    assert (error.kind, error.retryable, error.final) == ("bad_request", False, False)
    assert "lower max_tokens or max_turns" in str(error)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("try again in 20s.", 20.0),
        ("try again in 1m30s", 90.0),
        ("try again in 2 minutes", 120.0),
        ("Retry after 5 seconds", 5.0),
        ("try again in 20ms", 0.02),
        ("try again in 1h2m3.5s", 3723.5),
        ("try again in a moment", None),
        ("try again in 5 bananas", None),
    ],
)
def test_a_pause_is_read_from_words(words: str, seconds: float | None) -> None:
    assert read_wait(words) == (None if seconds is None else pytest.approx(seconds))
    assert read_wait(words, "4000") == 4000.0


def test_a_wait_is_seconds_or_a_date() -> None:
    def asked(value: str | None) -> float | None:
        return ERRORS.from_status(503, b"", retry_after=value).retry_after_s

    later = asked(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))
    assert later is not None and 95 < later <= 100
    assert [asked(v) for v in ("2.5", "-3", None, "soon", "")] == [2.5, 0.0, None, None, None]
