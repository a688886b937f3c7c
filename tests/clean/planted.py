"""Secrets that are none: made of the shapes of real ones with a seed, and planted where agents meet them.

No literal here looks like a key: each is put together when a test runs.
"""

from __future__ import annotations

# ruff: noqa: E501 - a planted text is easier to read in one piece
import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from foretrace.clean.rules import Token

ALNUM = string.ascii_letters + string.digits
WORD = ALNUM + "_-"
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
BASE64 = ALNUM + "+/"

Make = Callable[[random.Random], str]


def shape(*parts: str | tuple[str, int]) -> Make:
    """Literal parts, and (alphabet, length) for random ones."""

    def make(rng: random.Random) -> str:
        return "".join(p if isinstance(p, str) else "".join(rng.choice(p[0]) for _ in range(p[1])) for p in parts)

    return make


class Kind(NamedTuple):
    make: Make
    name: str
    """The name of its setting."""
    words: str
    """What prose calls it."""
    is_named: bool = False
    """Whether only its name tells that it is secret."""


def _jwt(rng: random.Random) -> str:
    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': str(rng.random()), 'iat': 1700000000})}.{shape((WORD, 43))(rng)}"


def _password(rng: random.Random) -> str:
    body = [rng.choice(a) for a in (string.ascii_uppercase, string.ascii_lowercase, string.digits, "!@#%^*+?")]
    body += [rng.choice(ALNUM + "!@#%^*+?") for _ in range(8)]
    rng.shuffle(body)
    return rng.choice(string.ascii_letters) + "".join(body) + rng.choice(ALNUM)


KINDS: dict[str, Kind] = {
    "github_classic": Kind(shape("ghp", "_", (ALNUM, 36)), "GITHUB_TOKEN", "GitHub token"),
    "github_server": Kind(shape("ghs", "_", (ALNUM, 36)), "GH_TOKEN", "installation token"),
    "github_fine": Kind(shape("github", "_pat_", (ALNUM, 22), "_", (ALNUM, 59)), "GH_PAT", "fine-grained token"),
    "gitlab": Kind(shape("glpat", "-", (ALNUM, 20)), "GITLAB_TOKEN", "GitLab token"),
    "slack_bot": Kind(shape("xox", "b-", ("0123456789", 12), "-", ("0123456789", 13), "-", (ALNUM, 24)), "SLACK_BOT_TOKEN", "Slack token"),
    "slack_webhook": Kind(shape("https://hooks.", "slack.com/services/T", (UPPER, 8), "/B", (UPPER, 10), "/", (ALNUM, 24)), "SLACK_URL", "Slack hook"),
    "huggingface": Kind(shape("hf", "_", (string.ascii_letters, 34)), "HF_TOKEN", "Hugging Face token"),
    "openai_project": Kind(shape("sk-", "proj-", (WORD, 74), "T3Blbk", "FJ", (WORD, 74)), "OPENAI_API_KEY", "OpenAI key"),
    "openai_old": Kind(shape("sk", "-", (ALNUM, 20), "T3Blbk", "FJ", (ALNUM, 20)), "OPENAI_API_KEY", "OpenAI key"),
    "anthropic": Kind(shape("sk-", "ant-api03-", (WORD, 93), "AA"), "ANTHROPIC_API_KEY", "Anthropic key"),
    "openrouter": Kind(shape("sk-", "or-v1-", (HEX, 64)), "OPENROUTER_API_KEY", "OpenRouter key"),
    "groq": Kind(shape("gsk", "_", (ALNUM, 52)), "GROQ_API_KEY", "Groq key"),
    "google_api": Kind(shape("AI", "za", (WORD, 35)), "GOOGLE_API_KEY", "Google key"),
    "google_oauth": Kind(shape("GOC", "SPX-", (WORD, 28)), "GOOGLE_CLIENT_SECRET", "client secret"),
    "google_access": Kind(shape("ya", "29.", "a0", (WORD, 120)), "ACCESS_TOKEN", "access token"),
    "aws_id": Kind(shape("AK", "IA", (string.ascii_uppercase + "234567", 16)), "AWS_ACCESS_KEY_ID", "AWS key id"),
    "aws_secret": Kind(shape((BASE64, 40)), "AWS_SECRET_ACCESS_KEY", "AWS secret access key", True),
    "azure_storage": Kind(shape((BASE64, 86), "=="), "AZURE_STORAGE_ACCOUNT_KEY", "account key", True),
    "azure_client": Kind(shape((ALNUM, 3), "8Q", "~", (ALNUM, 34)), "AZURE_CLIENT_SECRET", "client secret"),
    "stripe": Kind(shape("sk", "_live_", (ALNUM, 24)), "STRIPE_SECRET_KEY", "Stripe key"),
    "stripe_hook": Kind(shape("wh", "sec_", (ALNUM, 32)), "STRIPE_WEBHOOK_SECRET", "signing secret"),
    "twilio_key": Kind(shape("S", "K", (HEX, 32)), "TWILIO_API_KEY", "Twilio key"),
    "twilio_token": Kind(shape((HEX, 32)), "TWILIO_AUTH_TOKEN", "Twilio auth token", True),
    "sendgrid": Kind(shape("S", "G.", (WORD, 22), ".", (WORD, 43)), "SENDGRID_API_KEY", "SendGrid key"),
    "mailgun": Kind(shape("ke", "y-", (HEX, 32)), "MAILGUN_API_KEY", "Mailgun key"),
    "npm": Kind(shape("np", "m_", (ALNUM, 36)), "NPM_TOKEN", "npm token"),
    "pypi": Kind(shape("pyp", "i-AgEIcHlwaS5vcmc", (WORD, 140)), "TWINE_PASSWORD", "PyPI token"),
    "digitalocean": Kind(shape("do", "p_v1_", (HEX, 64)), "DIGITALOCEAN_TOKEN", "DigitalOcean token"),
    "datadog_api": Kind(shape((HEX, 32)), "DD_API_KEY", "Datadog API key", True),
    "datadog_app": Kind(shape((HEX, 40)), "DD_APP_KEY", "Datadog app key", True),
    "telegram": Kind(shape(("123456789", 10), ":A", "A", (WORD, 33)), "TELEGRAM_BOT_TOKEN", "bot token"),
    "discord": Kind(shape("M", (ALNUM, 23), ".", (WORD, 6), ".", (ALNUM, 27)), "DISCORD_TOKEN", "Discord token"),
    "jwt": Kind(_jwt, "SESSION_JWT", "session token"),
    "heroku": Kind(shape((HEX, 8), "-", (HEX, 4), "-4", (HEX, 3), "-a", (HEX, 3), "-", (HEX, 12)), "HEROKU_API_KEY", "Heroku API key", True),
    "databricks": Kind(shape("da", "pi", (HEX, 32)), "DATABRICKS_TOKEN", "Databricks token"),
    "vault": Kind(shape("hv", "s.", (ALNUM, 24)), "VAULT_TOKEN", "Vault token"),
    "shopify": Kind(shape("sh", "pat_", (HEX, 32)), "SHOPIFY_TOKEN", "Shopify token"),
    "linear": Kind(shape("lin", "_api_", (ALNUM, 40)), "LINEAR_API_KEY", "Linear key"),
    "notion": Kind(shape("nt", "n_", (ALNUM, 46)), "NOTION_TOKEN", "Notion token"),
    "grafana": Kind(shape("gl", "sa_", (ALNUM, 32), "_", (HEX, 8)), "GRAFANA_TOKEN", "Grafana token"),
    "docker": Kind(shape("dck", "r_pat_", (WORD, 27)), "DOCKER_TOKEN", "Docker token"),
    "atlassian": Kind(shape("ATA", "TT3xFfGF0", (WORD, 170), "=", (UPPER, 8)), "JIRA_API_TOKEN", "Atlassian token"),
    "password": Kind(_password, "DB_PASSWORD", "database password", True),
    "secret": Kind(shape((ALNUM, 32)), "APP_SECRET", "app secret", True),
    "cloudflare": Kind(shape((WORD, 40)), "CLOUDFLARE_API_TOKEN", "Cloudflare API token", True),
}  # fmt: skip


def make_token(token: Token, rng: random.Random) -> str:
    """A token of this kind: the parsed patterns of its head and body, with random characters."""

    def write(parsed: Any) -> str:
        return "".join(map(write_one, parsed))

    def write_one(item: tuple[Any, Any]) -> str:
        kind, value = str(item[0]), item[1]
        if kind == "LITERAL":
            return chr(value)
        if kind == "IN":
            return write_one(rng.choice([each for each in value if each[1] not in map(ord, "_.=-/*@:+~,%$")] or value))
        if kind == "RANGE":
            return chr(rng.randint(*value))
        if kind == "CATEGORY":
            return rng.choice(string.digits)
        if kind == "BRANCH":
            return write(rng.choice(value[1]))
        if kind == "SUBPATTERN":
            return write(value[-1])
        least, most, repeated = value  # MAX_REPEAT
        return "".join(write(repeated) for _ in range(min(most, least + 8)))

    return write(_parser.parse(f"(?:{token.head}){token.body}"))


class Planted(NamedTuple):
    kind: str
    place: str
    text: str
    pieces: tuple[str, ...]
    """What must not be found in the text any more."""


def _prose(rng: random.Random, kind: Kind, secret: str) -> str:
    return rng.choice(
        [
            f"Sure, the {kind.words} is {secret}. Let me know if that works.",
            f"I found a {kind.words} in the config: `{secret}`, which I will not use.",
            f"Use this {kind.words}: {secret}\nThen run the tests again.",
            f'She wrote that our {kind.words} was "{secret}" until yesterday.',
        ]
    )


def _json(rng: random.Random, kind: Kind, secret: str) -> str:
    value = {"service": {"region": "eu", kind.name.lower(): secret, "retries": 3}}
    return json.dumps(value, indent=rng.choice([None, 2]))


def _json_in_json(rng: random.Random, kind: Kind, secret: str) -> str:
    inner = json.dumps({"env": {kind.name: secret}}, indent=rng.choice([None, 2]))
    return json.dumps({"command": "create", "path": "/app/config.json", "file_text": inner})


def _shell(rng: random.Random, kind: Kind, secret: str) -> str:
    return rng.choice(
        [
            f"export {kind.name}={secret}\n./run.sh",
            f'{kind.name}="{secret}" python main.py --fast',
            f"docker run -e {kind.name}={secret} image:latest",
            f"echo '{kind.name}={secret}' >> .env && cat .env",
        ]
    )


def _shell_in_json(rng: random.Random, kind: Kind, secret: str) -> str:
    return json.dumps({"command": _shell(rng, kind, secret) + "\nls -la\n", "timeout": 10})


def _diff(rng: random.Random, kind: Kind, secret: str) -> str:
    sign = rng.choice("+-")
    return f"--- a/settings.py\n+++ b/settings.py\n@@ -1,2 +1,2 @@\n import os\n{sign}{kind.name} = '{secret}'\n DEBUG = True\n"


def _yaml(rng: random.Random, kind: Kind, secret: str) -> str:
    quote = rng.choice(["", '"', "'"])
    return f"services:\n  api:\n    environment:\n      {kind.name}: {quote}{secret}{quote}\n      MODE: fast\n"


def _dotenv(rng: random.Random, kind: Kind, secret: str) -> str:
    return f"# settings\nMODE=fast\n{kind.name}={secret}\nPORT=8080\n"


def _base64(rng: random.Random, kind: Kind, secret: str) -> str:
    config = rng.choice([_json, _yaml, _dotenv])(rng, kind, secret)
    encoded = base64.b64encode(config.encode()).decode()
    width = rng.choice([0, 64, 76])
    if width:
        encoded = "\n".join(encoded[i : i + width] for i in range(0, len(encoded), width))
    return rng.choice([f"$ base64 config\n{encoded}\n$ ", f"echo {encoded} | base64 -d", json.dumps({"blob": encoded})])


def _whole(place: Callable[[random.Random, Kind, str], str]) -> Callable[[random.Random, str, Kind], Planted]:
    def plant(rng: random.Random, name: str, kind: Kind) -> Planted:
        secret = kind.make(rng)
        text = place(rng, kind, secret)
        found = secret if secret in text else "".join(text.split())
        if place is _base64:
            lines = text.replace("\\n", "\n").split()
            found = max((w.strip('{}":,') for w in lines), key=len)
        return Planted(name, place.__name__.strip("_"), text, (found,))

    return plant


_PLACES = [_whole(p) for p in (_prose, _json, _json_in_json, _shell, _shell_in_json, _diff, _yaml, _dotenv, _base64)]


def plant_tokens(seed: int = 0, rounds: int = 3) -> Iterator[Planted]:
    """Every kind in every place."""
    rng = random.Random(seed)
    for _ in range(rounds):
        for name, kind in KINDS.items():
            for place in _PLACES:
                yield place(rng, name, kind)


def plant_others(seed: int = 0, rounds: int = 20) -> Iterator[Planted]:
    """Secrets that have a form of their own: keys, URLs, headers, cookies, options."""
    rng = random.Random(seed)
    for _ in range(rounds):
        for label in (
            "RSA PRIVATE KEY",
            "PRIVATE KEY",
            "EC PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
            "ENCRYPTED PRIVATE KEY",
        ):
            lines = [shape((BASE64, 64))(rng) for _ in range(rng.randrange(3, 26))] + [shape((BASE64, 30), "==")(rng)]
            pem = "\n".join(["-----BEGIN " + label + "-----", *lines, "-----END " + label + "-----"])
            for place, text in (
                ("pem", f"cat key\n{pem}\n$"),
                ("pem_json", json.dumps({"private_key": pem + "\n", "type": "service_account"})),
                ("pem_diff", "\n".join("+" + line for line in pem.splitlines())),
                ("pem_cut", pem[: len(pem) - 50]),
                ("pem_base64", base64.b64encode(pem.encode()).decode()),
                ("pem_indented", "tls.key: |\n" + "\n".join("    " + line for line in pem.splitlines())),
                ("pem_twice", json.dumps({"arguments": json.dumps({"text": pem})})),
            ):
                pieces = (text,) if place == "pem_base64" else tuple(line for line in lines[:-1])
                yield Planted(label, place, text, pieces)
        pgp = "\n".join(shape((BASE64, 64))(rng) for _ in range(20))
        text = (
            "-----BEGIN PGP PRIVATE KEY "
            + f"BLOCK-----\nVersion: GnuPG v2\n\n{pgp}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----"
        )
        yield Planted("pgp", "prose", text, tuple(pgp.split()))
        password, token, hexes = _password(rng), shape((ALNUM, 32))(rng), shape((HEX, 40))(rng)
        plain = shape((ALNUM, 14))(rng) + str(rng.randrange(10))
        basic = base64.b64encode(f"admin:{plain}".encode()).decode()
        wire_key, github = base64.b64encode(rng.randbytes(32)).decode(), KINDS["github_classic"].make(rng)
        otp = shape((string.ascii_uppercase + "234567", 32))(rng)
        for place, text, secret in (
            ("postgres", f"DATABASE_URL=postgres://app:{plain}@db.internal:5432/main", plain),
            ("redis", f"redis://:{plain}@cache:6379/0 is up", plain),
            ("mongodb", json.dumps({"uri": f"mongodb+srv://root:{plain}@c0.x.mongodb.net/?w=1"}), plain),
            ("git_url", f"git clone https://oauth2:{token}@gitlab.com/a/b.git", token),
            ("git_user", f"git remote add o https://{token}@github.com/a/b.git", token),
            ("bearer", f'curl -H "Authorization: Bearer {token}" https://api.x.io', token),
            ("bearer_python", f'headers = {{"Authorization": "Bearer {token}"}}', token),
            ("bearer_js", f"headers: {{ 'authorization': `Bearer {hexes}` }},", hexes),
            ("token_header", f"> Authorization: token {hexes}", hexes),
            ("basic", f"Authorization: Basic {basic}\r\nHost: x", basic),
            ("api_key_header", f"-H 'X-Api-Key: {token}' -H 'Accept: */*'", token),
            ("cookie", f"Cookie: sessionid={token}; theme=dark", token),
            ("set_cookie", f"< Set-Cookie: sid={hexes}; Path=/; HttpOnly", hexes),
            ("curl_cookie", f"curl -b 'session={token}' https://x.io", token),
            ("curl_user", f"curl -u admin:{plain} https://x.io", plain),
            ("option", f"tool login --token {token} --user bob", token),
            ("option_equals", f"tool --api-key={hexes}", hexes),
            ("mysql", f"mysql -u root -p{plain} shop", plain),
            ("sshpass", f"sshpass -p '{plain}' ssh bob@host", plain),
            ("docker_login", f"docker login -u bob -p {plain} registry.x.io", plain),
            ("docker_stdin", f"echo {token} | docker login -u bob --password-stdin", token),
            ("docker_config", json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": basic}}}), basic),
            ("npmrc", f"//registry.npmjs.org/:_authToken={token}", token),
            ("netrc", f"machine api.x.io login bob password {plain}", plain),
            ("aws_file", f"[default]\naws_access_key_id = {KINDS['aws_id'].make(rng)}\naws_secret_access_key = {hexes}", hexes),
            ("aws_configure", f"aws configure set aws_secret_access_key {hexes}", hexes),
            ("k8s_env", f"- name: DB_PASSWORD\n  value: {plain}\n", plain),
            ("ecs_env", json.dumps([{"name": "API_TOKEN", "value": token}]), token),
            ("k8s_secret", f"kind: Secret\ndata:\n  password: {base64.b64encode(password.encode()).decode()}\n", base64.b64encode(password.encode()).decode()),
            ("xml", f"<server><username>x</username><password>{plain}</password></server>", plain),
            ("parameter", f"<parameter=api_key>{token}</parameter>", token),
            ("properties", f"spring.datasource.password={plain}", plain),
            ("toml", f'[db]\npassword = "{password}"\n', password),
            ("python", f'client = Client(api_key="{token}", region="x")', token),
            ("environ", f"os.environ['SECRET_KEY'] = '{password}'", password),
            ("setenv", f'monkeypatch.setenv("API_TOKEN", "{token}")', token),
            ("sas", f"https://x.blob.core.windows.net/c/f?sv=2021&sig={shape((ALNUM, 43))(rng)}%3D".replace("sig=", f"sig={token[:4]}"), token[:4]),
            ("azure_string", f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={hexes}{hexes};EndpointSuffix=core", hexes + hexes),
            ("ado_net", f"Server=db;Database=x;User Id=sa;Password={plain};Encrypt=true", plain),
            ("sql", f"CREATE USER bob WITH PASSWORD '{plain}';", plain),
            ("sql_identified", f"CREATE USER 'a'@'%' IDENTIFIED BY '{plain}';", plain),
            ("wireguard", f"[Interface]\nPrivateKey = {wire_key}", wire_key),
            ("otp", f"otpauth://totp/x:bob?secret={otp}&issuer=x", otp),
            ("query", f"GET /v1/items?api_key={token}&page=2", token),
            ("terminal", f"\x1b[32m{github}\x1b[0m", github),
            ("graphql", json.dumps({"query": f'mutation {{ login(password: "{plain}") {{ ok }} }}'}), plain),
        ):  # fmt: skip
            yield Planted(place, "own form", text, (secret,))
