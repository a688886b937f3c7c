"""What secrets look like: one row for each kind of token, and the words that name a secret before its value.

A token is recognized by its shape. Its `head` is its beginning, in RE2 syntax: texts without any head or other sign of a
secret are not searched further.
"""

from __future__ import annotations

# ruff: noqa: E501 - a pattern is easier to read in one piece
import re
from typing import NamedTuple


class Token(NamedTuple):
    """A kind of secret that is recognizable by its shape."""

    type: str
    head: str
    """How it begins: a regular expression for both RE2 and Python. No groups other than `(?:...)`."""
    body: str
    """What follows: a regular expression for Python."""
    least: int = 16
    """Fewest characters of the body; placeholders are rarely this long."""
    sign: str = ""
    """For a head that is long or vague: a part of it that is quick to find."""


TOKENS = (
    # code and packages
    Token("github_token", r"gh[pousr]_|github_pat_", r"[A-Za-z0-9_]{30,251}"),
    Token("gitlab_token", r"gl(?:pat|dt|rt|ptt|ft|soat|agent|cbt|imt|oas|ffct|feature)-|GR1348941", r"[A-Za-z0-9_.=-]{16,300}"),
    Token("atlassian_token", r"AT(?:BB|CTT3xFfGN0|ATT3x)", r"[A-Za-z0-9_=-]{24,300}"),
    Token("pypi_token", r"pypi-", r"[A-Za-z0-9_-]{40,300}"),
    # models and data
    Token("anthropic_key", r"sk-ant-", r"[A-Za-z0-9_-]{20,200}"),
    Token("openrouter_key", r"sk-or-", r"[A-Za-z0-9_-]{20,120}"),
    Token("openai_key", r"sk-(?:proj|svcacct|admin|None|service)-", r"[A-Za-z0-9_-]{20,250}"),
    Token("openai_key", r"sk-", r"[A-Za-z0-9]{20,64}"),
    Token("openai_session", r"sess-", r"[A-Za-z0-9]{36,60}"),
    Token("huggingface_token", r"hf_|api_org_", r"[A-Za-z0-9]{28,60}"),
    Token("voyage_key", r"(?:pa|al)-[A-Za-z0-9_-]{16}", r"[A-Za-z0-9_-]{24,44}", sign=r"(?:pa|al)-[A-Za-z0-9_-]{16}"),
    Token("databricks_token", r"dapi", r"[a-f0-9]{32}(?:-\d)?"),
    Token("elevenlabs_key", r"sk_", r"(?:[a-f0-9]{48}|[a-f0-9]{8}-[a-f0-9-]{27})"),
    # clouds
    Token("aws_key_id", r"(?:AKIA|ASIA|ABIA|ACCA)", r"[A-Z0-9]{16}"),
    Token("aws_bedrock_key", r"(?:ABSK|bedrock-api-key-)", r"[A-Za-z0-9+/=]{100,300}"),
    Token("google_api_key", r"AIza", r"[A-Za-z0-9_-]{35}"),
    Token("google_api_key", r"AQ\.Ab8", r"[A-Za-z0-9_-]{30,100}"),
    Token("google_oauth_secret", r"GOCSPX-", r"[A-Za-z0-9_-]{20,60}"),
    Token("google_oauth_token", r"ya29\.", r"[A-Za-z0-9_.-]{20,500}"),
    Token("google_refresh_token", r"1//0", r"[A-Za-z0-9_-]{30,200}"),
    Token("azure_client_secret", r"[A-Za-z0-9_~.]{3}[78]Q~", r"[A-Za-z0-9_~.-]{31,34}", sign=r"[78]Q~"),
    Token("alibaba_key_id", r"LTAI", r"[A-Za-z0-9]{12,24}", 12),
    Token("vercel_token", r"vercel_blob_rw_|vc[pikar]_", r"[A-Za-z0-9_]{24,80}"),
    Token("fly_token", r"(?:FlyV1 )?fm[12][a-z]?_|fo1_", r"[A-Za-z0-9+/=_,-]{40,1500}"),
    Token("cloudflare_key", r"v1\.0-", r"[a-f0-9]{24,80}-[a-f0-9]{100,200}"),
    Token("vault_token", r"hv[sbr]\.", r"[A-Za-z0-9_-]{24,300}"),
    Token("terraform_token", r"[A-Za-z0-9]{14}\.atlasv1\.", r"[A-Za-z0-9_=-]{60,80}", sign=r"\.atlasv1\."),
    Token("tailscale_key", r"tskey-(?:auth|api|client|scim|webhook|secret)-", r"[A-Za-z0-9-]{16,80}"),
    # people and money
    Token("slack_token", r"xox[abeoprscd]-|xoxe\.xox[bp]-|xapp-", r"[A-Za-z0-9.-]{16,250}"),
    Token("slack_webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/", r"[A-Za-z0-9/_+-]{24,120}"),
    Token("discord_webhook", r"discord(?:app)?\.com/api/webhooks/", r"[0-9]{12,22}/[A-Za-z0-9_-]{40,100}"),
    Token("discord_token", r"[MNO][A-Za-z0-9_-]{22,30}\.[A-Za-z0-9_-]{6}\.", r"[A-Za-z0-9_-]{27,45}", sign=r"[MNO][A-Za-z0-9_-]*\.[A-Za-z0-9_-]{6}\."),
    Token("discord_token", r"mfa\.", r"[A-Za-z0-9_-]{80,95}"),
    Token("teams_webhook", r"(?:webhook\.office\.com/webhookb2|outlook\.office\.com/webhook)/", r"[A-Za-z0-9@/-]{60,250}"),
    Token("telegram_token", r"(?:bot)?[0-9]{8,10}:A", r"[A-Za-z0-9_-]{34}", sign=r"[0-9]{8}:A"),
    Token("stripe_key", r"[sr]k_(?:live|test|prod)_", r"[A-Za-z0-9]{16,120}"),
    Token("stripe_webhook_secret", r"whsec_", r"[A-Za-z0-9+/=]{24,90}"),
    Token("braintree_token", r"access_token\$(?:production|sandbox)\$", r"[a-z0-9]{16}\$[a-f0-9]{32}"),
    Token("facebook_token", r"EAA[A-Z]", r"[A-Za-z0-9]{60,250}"),
    Token("twitter_token", r"AAAAAAAAAAAAAAAAAAAAA", r"[A-Za-z0-9%]{60,120}"),
    # mail, telephone, monitoring, work
    Token("twilio_key", r"(?:SK|AC)[a-f0-9]{6}", r"[a-f0-9]{26}"),
    Token("sendgrid_key", r"SG\.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}"),
    Token("sendinblue_key", r"xkeysib-", r"[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    Token("mailgun_key", r"(?:key|pubkey)-", r"[a-f0-9]{32}"),
    Token("mailchimp_key", r"[a-f0-9]{32}-us[0-9]", r"[0-9]?", 0, sign=r"[a-f0-9]-us[0-9]"),
    Token("resend_key", r"re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,30}"),
    Token("dynatrace_token", r"dt0[a-z][0-9]{2}\.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{64}"),
    Token("airtable_token", r"pat[A-Za-z0-9]{14}\.", r"[a-f0-9]{64}", sign=r"pat[A-Za-z0-9]{10}"),
    Token("asana_token", r"[12]/[0-9]{10,20}(?:/[0-9]{10,20})?:", r"[a-f0-9]{32}", sign=r"[0-9]{10}:[a-f0-9]{4}"),
    Token("mapbox_token", r"(?:[st]k|p)\.eyJ", r"[A-Za-z0-9_-]{20,300}\.[A-Za-z0-9_-]{16,60}"),
    Token("dropbox_token", r"sl\.(?:u\.)?[A-Za-z0-9_-]{20}", r"[A-Za-z0-9_-]{100,1200}", sign=r"sl\.(?:u\.)?[A-Za-z0-9_-]{8}"),
    Token("onepassword_key", r"ops_eyJ", r"[A-Za-z0-9+/=_-]{200,1500}"),
    Token("firebase_key", r"AAAA[A-Za-z0-9_-]{7}:APA91b", r"[A-Za-z0-9_-]{100,180}", sign=r":APA91b"),
    Token("age_key", r"AGE-SECRET-KEY-(?:PQ-)?1", r"[0-9A-Z]{50,80}"),
    Token("onepassword_key", r"A3-[A-Z0-9]{6}-", r"[A-Z0-9-]{25,30}"),
    Token("grafana_token", r"eyJrIjoi", r"[A-Za-z0-9]{60,200}={0,2}"),
    # services whose keys only differ from random text by their beginning, grouped by alphabet
    Token("api_key", r"(?:npm|gsk|r8|rnd|napi|nf[pcoub]|pn[ub]|sq[upa]|bk(?:ua|aj|ct|ar)|do[por]_v1|e2b|KGAT|rubygems|CLOJARS|rdme|lin_(?:api|oauth)|secret|ntn|shp(?:at|ca|pa|ss|tka))_", r"[A-Za-z0-9]{28,120}"),
    Token("api_key", r"(?:xai|pplx|csk|pul)-", r"[A-Za-z0-9]{32,120}"),
    Token("api_key", r"AKCp|EZ[AT]K|oy2", r"[A-Za-z0-9]{43,90}"),
    Token("api_key", r"cio|AKID", r"[A-Za-z0-9]{32}", sign=r"(?:cio|AKID)[A-Za-z0-9]{8}"),
    Token("api_key", r"fw_", r"[A-Za-z0-9]{20,40}"),
    Token("api_key", r"(?:dckr_(?:pat|oat)|CCIPAT|tgp_v1|jina|lsv2_(?:pt|sk)|pcsk|wandb_v1|sb(?:p|_secret)|pscale_(?:tkn|pw|oauth)|duffel_(?:test|live)|gl(?:c|sa)|sntry[su]|fig(?:d|o[rhu]?|u[rh]?)|tfp)_", r"[A-Za-z0-9+/=_-]{24,400}"),
    Token("api_key", r"(?:PMAK|nvapi|tvly|sk-lf|HRKU|NR(?:AK|JS|II|AA|BR)|CFPAT|access-(?:sandbox|development|production)|FLW(?:SEC|PUB)K|FLW(?:SEC|PUB)K_TEST|pat-(?:na|eu)[0-9]|sq0[a-z]{3})-", r"[A-Za-z0-9_-]{19,120}"),
    Token("api_key", r"dp\.(?:pt|st|ct|sa|scim|audit)\.", r"[A-Za-z0-9_.-]{40,80}"),
    Token("api_key", r"AQVN", r"[A-Za-z0-9_-]{30,60}"),
    Token("api_key", r"EAAA", r"[A-Za-z0-9_-]{60}"),
    Token("api_key", r"(?:apify_api|aio|odt|dub|flp|ion|cog|sgp|slk|ph[acrsx]|apk(?:_user)?|mdb_sa_sk|ramp_(?:id|sec)|sct_(?:r|w|rs|rw|rwa))_", r"[A-Za-z0-9_=-]{24,400}", sign=r"(?:apify_api|aio|odt|dub|flp|ion|cog|sgp|slk|ph[acrsx]|apk(?:_user)?|mdb_sa_sk|ramp_(?:id|sec)|sct_(?:r|w|rs|rw|rwa))_[A-Za-z0-9]{8}"),
    Token("api_key", r"(?:key|live|live_auth|org)_[a-f0-9]{8}", r"[a-f0-9]{20,120}", sign=r"(?:key|live|live_auth|org)_[a-f0-9]{20}"),
    Token("api_key", r"(?:bb|c[ks]|dk|key|shippo|sm|rzp)_(?:live|test|prod|production|staging|aat|pat|sat)_", r"[A-Za-z0-9_-]{14,80}", 14, sign=r"(?:bb|c[ks]|dk|key|shippo|sm|rzp)_(?:live|test|prod|production|staging|aat|pat|sat)_[A-Za-z0-9]{8}"),
    Token("api_key", r"(?:pat|CCDB1)_", r"[A-Za-z0-9_]{60,80}", sign=r"(?:pat|CCDB1)_[A-Za-z0-9_]{20}"),
    Token("api_key", r"(?:bpk|cr|ico|dnkey|fio-u|tk-us|RGAPI|PMAT|secret-(?:test|live))-", r"[A-Za-z0-9_=-]{26,120}", sign=r"(?:bpk|cr|ico|dnkey|fio-u|tk-us|RGAPI|PMAT|secret-(?:test|live))-[A-Za-z0-9_=-]{20}"),
    Token("api_key", r"hawk\.|sha256~|4b1d[A-Za-z0-9]{8}|3MVG9", r"[A-Za-z0-9_.-]{30,120}", sign=r"hawk\.|sha256~|4b1d[A-Za-z0-9]{20}|3MVG9"),
    Token("api_key", r"(?:infura\.io/v3|alchemy(?:api)?\.(?:io|com)/v2|thingsboard\.cloud/api/v1)/", r"[A-Za-z0-9_-]{20,40}"),
    Token("password_hash", r"\$(?:[156789y]|2[abxy]|gy|apr1|argon2(?:id?|d)|scrypt|pbkdf2(?:-sha(?:1|256|512))?|krb5(?:tgs|asrep|pa))\$|(?:pbkdf2_sha(?:1|256|512)|scrypt|argon2|SCRAM-SHA-(?:1|256))\$|(?:pbkdf2:sha(?:1|256|512)|scrypt):[0-9]", r"[A-Za-z0-9./=,+*@:_-]{1,100}\$[A-Za-z0-9./$=,+*@:_-]{16,4000}", 24),
    Token("password_hash", r"\$[PHS]\$|\{S?SHA(?:256|384|512)?\}", r"[A-Za-z0-9+/.=]{28,200}", 28),
    # keys without their frame: PKCS 1 and 8, EC, Ed25519, OpenSSH
    Token("private_key", r"(?:MII[BCEJ][A-Za-z0-9+/]{2}IBA(?:AK[BC]|DANBgkq)|MHcCAQEE|MC4CAQAwBQYDK2Vw|MIGHAgEAMBMGByqGSM49)", r"[A-Za-z0-9+/=]{30,8000}"),
    Token("private_key", r"b3BlbnNzaC1rZXktdjE", r"[A-Za-z0-9+/=]{60,8000}"),
    Token("jwt", r"ey[JK][A-Za-z0-9_-]{10,1000}\.ey[JK]", r"[A-Za-z0-9_-]{8,6000}\.[A-Za-z0-9_-]{16,1000}", sign=r"ey[JK][A-Za-z0-9]{6}"),
    Token("jwt", r"ey[JK][A-Za-z0-9_-]{16,600}\.", r"[A-Za-z0-9_-]{0,800}\.[A-Za-z0-9_-]{10,200}\.[A-Za-z0-9_-]{20,6000}\.[A-Za-z0-9_-]{16,100}", sign=r"ey[JK][A-Za-z0-9]{6}"),
)  # fmt: skip

FOREIGN_WORDS = r"mot de passe|kennwort|contrase(?:n|ñ)a|senha"
""""Password" in other languages, except `Passwort`."""

TYPE_NAME = r"[A-Za-z][\w.<>\[\]|]*"
"""The type in a declaration: `let token: string = ...`."""

KEY_KINDS = (
    "api|access|account|auth|private|secret|signing|encryption|master|service|license|app|"
    "application|shared|subscription|webhook|storage|deploy|session|jwt|hmac|bot|preshared"
)
"""Kinds of keys that are secret: `api_key`, `access key`."""

CLEAR_WORDS = (
    r"passw(?:or)?[dt]|passwd|passphrase|passcode|secret|token|credential|pwd|pswd|"
    rf"(?:{KEY_KINDS})[_ .-]?key|"
    r"requirepass|sessionid|session[_-]id|connect\.sid|[_-]pass|dbpass|userpass|mypass|[_-]pw\b|\bpw\b|"
    rf"{FOREIGN_WORDS}"
)
"""Appears in the name of a setting that holds a secret, in any case; no groups other than `(?:...)`."""

VAGUE_WORDS = r"auth|bearer|cookie|[_-]pat|\bsid\b|\bsig\b|[a-z0-9][_-]key"
"""Appears in the name of a setting that may hold one: only a random value of some length counts."""

SERVICES = (
    "abstractapi|abuseipdb|adafruit|adobe|agora|ai21|aikido|airbrake|airtable|aiven|akamai|alchemy|algolia|"
    "alibaba|aliyun|amplitude|anthropic|anypoint|apify|apollo|appcenter|arcjet|asana|assemblyai|atlassian|auth0|"
    "aviationstack|axiom|azure|bamboo|baseten|beamer|betterstack|bitbucket|bitfinex|bitly|bitrise|bitwarden|"
    "blynk|braintree|branchio|brave|brevo|browserbase|browserstack|buildkite|buttercms|calendly|canva|cartesia|"
    "censys|cerebras|chartmogul|circleci|cisco|civo|clarifai|clearbit|clickhouse|clickup|cloudant|cloudflare|"
    "cloudinary|cloudsight|cockroach|codacy|codeclimate|codecov|cohere|coinbase|composio|configcat|confluent|"
    "contentful|contentstack|couchbase|coveralls|coze|crossmint|currencylayer|customerio|databento|databricks|"
    "datadog|datagov|datastax|deepgram|deepl|deepseek|detectify|devin|digitalocean|discord|disqus|docusign|"
    "doppler|droneci|dropbox|dwolla|dynatrace|easypost|elevenlabs|etsy|eventbrite|exoscale|facebook|falai|fastly|"
    "fernet|figma|fileio|finicity|finnhub|firebase|firecrawl|fireworks|fixer|flagsmith|flickr|flutterwave|"
    "foursquare|frameio|freemius|freshbooks|freshdesk|fullcontact|fullstory|gemfury|geoapify|gitter|gocardless|"
    "godaddy|grafana|greptile|groq|gumroad|harness|helpscout|heroku|hetzner|honeycomb|hubspot|huggingface|"
    "hunterio|infracost|infura|instagram|intercom|ipstack|jenkins|jina|jotform|jumpcloud|kagi|keen|klaviyo|"
    "kraken|kucoin|langchain|langfuse|launchdarkly|lichess|linkedin|livekit|lokalise|looker|mailchimp|mailgun|"
    "mailjet|mandrill|mapbox|mattermost|maxmind|meraki|messagebird|mistral|mixpanel|moralis|netlify|newrelic|"
    "ngrok|notion|nuget|numverify|nvidia|nylas|nytimes|octopus|okta|onesignal|openai|openrouter|openweather|"
    "openweathermap|opsgenie|owm|packagecloud|pagerduty|paypal|paystack|perplexity|pinata|pinecone|pingdom|"
    "pipedrive|plaid|planetscale|plivo|postmark|posthog|prefect|pubnub|pulumi|pushbullet|pusher|pyowm|quicknode|"
    "rapidapi|razorpay|recaptcha|rechargepay|render|replicate|resend|retellai|rollbar|runpod|salesforce|"
    "saucelabs|scaleway|scalingo|scraperapi|sendbird|sendgrid|sendinblue|sentry|serpapi|shippo|shodan|shopify|"
    "sidekiq|signifyd|slack|snowflake|snyk|sonar|sonarcloud|sonarqube|sourcegraph|splunk|spotify|squarespace|"
    "stabilityai|statuspage|storyblok|strava|stripe|sumologic|supabase|tableau|tailscale|tavily|telegram|telnyx|"
    "tencent|thingsboard|todoist|travis|trello|trendmicro|twilio|twitch|twitter|typeform|unsplash|unseal|upstash|"
    "urlscan|vercel|virustotal|vonage|voyage|vultr|wakatime|wandb|webex|webflow|wistia|xai|yandex|yelp|zapier|"
    "zendesk|zerotier|zhipu|zoho|zoom"
)
"""Services whose keys follow their name: `datadog: 1f0a...`; not those whose name may be followed by a commit or image."""

OF_SERVICE = rf"(?i:{SERVICES})[\w .-]*[\"'`\])]*[\s:=>,(|?]+[\"'`]*[A-Za-z]*[0-9][A-Za-z0-9_+/.-]{{8}}"
"""For RE2: matches every text with a service's key after its name."""

SECRET_WORDS = f"{CLEAR_WORDS}|{VAGUE_WORDS}"

PASSWORD_WORDS = re.compile(
    r"(?i)passw|passphrase|passcode|pwd|pswd|[_-]pass\b|dbpass|userpass|mypass|(?:[_-]|\b)pw\b|" + FOREIGN_WORDS
)
"""Names whose values are made up by people: shorter ones count than for tokens."""

HARMLESS_NAMES = re.compile(
    r"(?ix) (?: [_. -]? (?: type|name|names|id|ids|url|uri|endpoint|path|file|files|filename|dir|count|counts|limit|length|len|size|"
    r"field|column|header|param|params|parameter|prefix|suffix|regex|pattern|format|class|version|policy|policies|rules?|hint|"
    r"expir[a-z]*|ttl|age|duration|scope|scopes|provider|backend|method|mode|label|hash|hasher|hashers|algorithm|"
    r"validator|validators|strength|required|enabled|status|state|store|manager|usage|"
    r"index|offset|budget|s?[_ -]?used|s[_ -]?per.*|ized?|izer.*|s?[_ -]?(?:in|out)|input|output|reset|change[d]?|arn|ref|reference"
    r") )[\"'\])\s]*\Z | \b(?:max|min|num|n|next|prev|page|start|stop|eos|bos|pad|unk|mask|sep|cls|special|public|total|prompt|"
    r"completion|cached?|input|output|author|authors|continuation)(?:[_. -](?:\w{0,12}[_. -])?)?(?:token|key)"
)
"""Names that contain such a word but do not name a secret: `token_type`, `max_tokens`, `next_page_token`."""

PLACEHOLDER_WORDS = re.compile(
    r"(?ix) your|(?:^|[-_ ])(?:an?|my|the|some)[-_ ]|example|changeme|change[_-]?(?:me|it|this)|placeholder|replace|redacted|removed|hidden|masked|dummy|"
    r"(?:^|[^a-z0-9])(?:fake|sample|mock|foo|bar|baz|qux|todo|tbd|fixme|none|null|nil|undefined|true|false|insert|enter|"
    r"empty|default|invalid|wrong|bad|missing|expired|test(?:ing|er|user|case)?|demo|string|str|value|stdin|optional|required)(?:$|[^a-z0-9])|"
    r"x{4,}|\*{3,}|\.{3}|…|-{4,}|_{4,}|0{8,}|qwerty|^.{0,20}(?:1234567|abcdef|abc123|deadbeef).{0,10}$|"
    r"^pass(?:word|wd)?[!@\#0-9.]{0,4}$|^p(?:ass|w)\d{0,3}$|^(?:new|old|user|admin|root|secure|strong|super)?[_-]?(?:secret|pass(?:word)?|token|key)[_!@\#0-9-]{0,4}$|"
    r"passw(?:or)?d[_-]?(?:here|goes)|(?:key|token|secret|password)[_-]?here|^test"
)
"""Appears in values that are placeholders for a secret."""
