"""A server that wants a pause is told from an account whose quota is used up, by texts that servers really send."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from foretrace.models.server_errors import ServerErrors, read_wait

ERRORS = ServerErrors("https://host.example", "m", "openai", None, "")
PLAN = "You exceeded your current quota, please check your plan and billing details."
DOCS = " For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits."
METRIC = "\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: "
ANTHROPIC = (
    "This request would exceed the rate limit for your organization of 30,000 input tokens per minute. For details, "
    "refer to: https://docs.anthropic.com/en/api/rate-limits. You may also contact sales to discuss your options."
)
PAYMENT = "Please add a payment method to your account to increase your rate limit. Visit https://x/account/billing."


def groq(per: str, wait: str) -> Any:
    said = (
        f"Rate limit reached for model `llama-3.3-70b-versatile` in organization `org_x` service tier `on_demand` on "
        f"tokens per {per}: Limit 12000, Used 4437, Requested 9854. Please try again in {wait}. Need more tokens? "
        "Upgrade to Dev Tier today at https://console.groq.com/settings/billing"
    )
    return {"error": {"message": said, "type": "tokens", "code": "rate_limit_exceeded"}}


def openai(said: str, kind: str | None, code: str | None) -> Any:
    return {"error": {"message": said, "type": kind, "param": None, "code": code}}


def gemini(said: str, *details: Any) -> Any:
    return [{"error": {"code": 429, "message": said, "status": "RESOURCE_EXHAUSTED", "details": list(details)}}]


def violated(quota: str) -> Any:
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]}


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26s"}
REQUESTS = "Rate limit reached for gpt-4o in organization org-x on requests per "

REAL: dict[str, tuple[Any, str, float | None]] = {
    # per minute, though most of them speak of money
    "groq, a minute": (groq("minute (TPM)", "11.455s"), "busy", 11.455),
    "openai, a minute": (
        openai(
            f"{REQUESTS}min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s. {PAYMENT}", "requests", None
        ),
        "busy",
        20.0,
    ),
    "openai, a day with a short pause": (
        openai(f"{REQUESTS}day (RPD): Limit 10000, Used 10000. Please try again in 8.64s.", "requests", None),
        "busy",
        8.64,
    ),
    "gemini, a minute": (
        gemini(f"{PLAN}{DOCS}{METRIC}10, model: gemini-2.5-flash\nPlease retry in 21.5s."),
        "busy",
        21.5,
    ),
    "gemini, in its details": (
        gemini(PLAN + DOCS, violated("GenerateContentInputTokensPerModelPerMinute-FreeTier"), RETRY),
        "busy",
        26.0,
    ),
    "anthropic": ({"type": "error", "error": {"type": "rate_limit_error", "message": ANTHROPIC}}, "busy", None),
    "openrouter, upstream": (
        {
            "error": {
                "message": "Provider returned error",
                "code": 429,
                "metadata": {
                    "raw": "google/gemini-2.0-flash-exp:free is temporarily rate-limited upstream. Please "
                    "retry shortly, or add your own key to accumulate your rate limits"
                },
            }
        },
        "busy",
        None,
    ),
    "xai": (
        "Too many tokens for team x and model grok-4. Your team's rate limit is: Tokens per Minute: 65605/16000.",
        "busy",
        None,
    ),
    "ollama cloud, slots": ({"error": "timed out waiting for a concurrent request slot"}, "busy", None),
    "a proxy before vLLM": ("<html><head><title>429 Too Many Requests</title></head></html>", "busy", None),
    # used up: no pause of minutes mends it
    "openai, no money": (openai(PLAN, "insufficient_quota", "insufficient_quota"), "quota", None),
    "groq, the day": (groq("day (TPD)", "9m38.016s"), "quota", 578.016),
    "gemini, not in this plan": (
        gemini(f"{PLAN}{DOCS}{METRIC}0, model: gemini-2.5-pro\nPlease retry in 38.9s."),
        "quota",
        38.9,
    ),
    "gemini, the day": (
        gemini(PLAN, violated("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), RETRY),
        "quota",
        26.0,
    ),
    "openrouter, the day": (
        openai(
            "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day",
            "rate_limit_error",
            None,
        ),
        "quota",
        None,
    ),
    "ollama cloud, the hour": (
        {"error": "you've reached your hourly usage limit, please wait or upgrade to continue"},
        "quota",
        None,
    ),
    "anthropic, no money": (
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "Your credit balance is too "
                "low to access the API. Please go to Plans & Billing to upgrade or purchase credits.",
            },
        },
        "quota",
        None,
    ),
}


@pytest.mark.parametrize("case", REAL)
def test_what_servers_say_is_understood(case: str) -> None:
    said, kind, wait = REAL[case]
    body = said.encode() if isinstance(said, str) else json.dumps(said).encode()
    error = ERRORS.from_status(429, body)
    assert (error.kind, error.retryable, error.final) == (kind, kind == "busy", kind == "quota")
    assert error.retry_after_s == (None if wait is None else pytest.approx(wait))
    if isinstance(said, dict):  # the same words inside a stream that began well
        streamed = ERRORS.from_stream(said["error"])
        expected = kind if kind == "quota" or "slot" not in str(said) else "server"
        assert (streamed.kind, streamed.retryable) == (expected, kind == "busy")


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
    error = ERRORS.from_status(429, json.dumps(openai(said, "tokens", "rate_limit_exceeded")).encode())
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
