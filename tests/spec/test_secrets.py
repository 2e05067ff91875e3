"""Secrets in the source are found and never repeated; placeholders are ignored."""

import ast
import sysconfig
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.spec.checks.literal_secrets import LiteralSecret, find_secrets
from toolkiln.spec.syntax import walk

HEX = "9f86d081884c7d659a2feaa0c55ad015"
RANDOM = "q7Zp2LxV9sKd4TnB8wRm"
LONG = "x7Kd92LmQ4zR8sTv1WnB5yC3uE6fG0hJ2k9PaV4tN8rH3wM6jD1cXe"
UUID = "123e4567-e89b-42d3-a456-426614174000"
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"


def found(source: str) -> list[LiteralSecret]:
    """Samples are broken by a bar, so that repository scanners ignore them."""
    return find_secrets(walk(ast.parse(source.replace("|", ""))))


@each_row(
    "secret, kind",
    [
        ("AKI|A2E0A8F3B244C9986", "AWS access key AKIA…"),
        ("ASI|A2E0A8F3B244C9986", "AWS access key ASIA…"),
        ("ghp|_16C7e42F292c6912E7710c838347Ae178B4a", "GitHub token ghp_…"),
        ("git|hub_pat_11ABCDE0A0" + "x7Kd92LmQ4" * 6, "GitHub token gith…"),
        ("glp|at-x7Kd92LmQ4zR8sTv1WnB", "GitLab token glpa…"),
        ("sk-|ant-api03-Zx7Kd92LmQ4zR8sTv1WnB5yC3uE6", "API key sk-a…"),
        ("sk-|proj-Zx7Kd92LmQ4zR8sTv1WnB5yC3uE6", "API key sk-p…"),
        ("sk-|Zx7Kd92LmQ4zR8sTv1WnB5yC3uE6fG0hJ2", "API key sk-Z…"),
        ("xox|b-2847561930-x7Kd92LmQ4zR8sTv1WnB5yC3", "Slack token xoxb…"),
        (
            "https://hooks.slack.com/ser|vices/T02A8Q1ZX/B03B7R2WY/x7Kd92LmQ4zR8sTv1WnB5yC3",
            "Slack webhook hook…",
        ),
        ("AIz|aSyD7Kd92LmQ4zR8sTv1WnB5yC3uE6fG0hJ2", "Google API key AIza…"),
        ("sk_|live_4eC39HqLyjWDarjtT1zdp7dc", "Stripe key sk_l…"),
        ("npm|_x7Kd92LmQ4zR8sTv1WnB5yC3uE6fG0hJ2k9P", "npm token npm_…"),
        ("pyp|i-AgEIcHlwaS5vcmcCJDx7Kd92LmQ4zR8sTv1WnB5yC3uE6fG0hJ2k9PqRsT", "PyPI token pypi…"),
        ("hf_|x7KdLmQ4zRsTvWnB5yCuE6fGhJ2kPqRsTu", "Hugging Face token hf_x…"),
        (
            "eyJ|hbGciOiJIUzI1NiJ9.eyJ1c2VyX2lkIjo5ODIzNH0.x7Kd92LmQ4zR8sTv1WnB5yC3uE6fG0hJ2k9",
            "JSON web token eyJh…",
        ),
        (f"-----BEGIN RSA PRI|VATE KEY-----\\n{BODY}", "private key ----…"),
        (f"-----BEGIN OPENSSH PRI|VATE KEY-----\\nProc-Type: 4\\n{BODY}", "private key ----…"),
        *(
            (f"{sample[:2]}|{sample[2:]}", f"{kind} {sample[:4]}…")
            for kind, *samples in (
                ("GitHub token", f"ghu_{LONG[:36]}", f"ghr_{LONG[:36]}"),
                ("GitLab token", f"glrt-{LONG[:20]}"),
                ("API key", f"sk-admin-{LONG}"),
                ("Groq key", f"gsk_{LONG[:52]}"),
                ("xAI key", f"xai-{LONG * 2}"),
                ("Perplexity key", f"pplx-{LONG[:48]}"),
                ("Replicate token", f"r8_{LONG[:37]}"),
                ("NVIDIA key", f"nvapi-{LONG * 2}"),
                ("Tavily key", f"tvly-dev-{LONG[:32]}"),
                ("Pinecone key", f"pcsk_{LONG[:6]}_{LONG}"),
                ("LangSmith key", f"lsv2_pt_{HEX}_{HEX[:10]}"),
                ("Slack token", f"xapp-1-A02B3C4D5E6-5081472639-{HEX}"),
                ("Discord token", f"MTIz{LONG[:22]}.Gx7Kd9.{LONG[:38]}"),
                ("Telegram bot token", f"5081472639:AA{LONG[:33]}"),
                ("Google client secret", f"GOCSPX-{LONG[:28]}"),
                ("Stripe key", f"sk_live_51H7aBcDeF{LONG}", f"rk_test_{LONG}"),
                ("Square token", f"sq0atp-{LONG[:22]}", f"sq0csp-{LONG[:43]}"),
                ("Meta or Square token", f"EAAB{LONG * 3}"),
                ("Shopify token", f"shpat_{HEX}"),
                ("Twilio key", f"SK{HEX}"),
                ("Mailgun key", f"key-{HEX}"),
                ("Mailchimp key", f"{HEX}-us21"),
                ("Docker token", f"dckr_pat_{LONG[:27]}"),
                ("DigitalOcean token", f"dop_v1_{HEX * 2}"),
                ("Heroku key", f"HRKU-{UUID}"),
                ("Databricks token", f"dapi{HEX}"),
                ("Vault token", f"hvs.CAES{LONG}"),
                ("Grafana token", f"glsa_{LONG[:32]}_{HEX[:8]}"),
                ("New Relic key", f"NRAK-{LONG[:27].upper()}"),
                ("Sentry token", f"sntrys_{LONG}"),
                ("Supabase token", f"sbp_{HEX}{HEX[:8]}"),
                ("Supabase key", f"sb_secret_{LONG[:31]}"),
                ("Linear key", f"lin_api_{LONG[:40]}"),
                ("Notion token", f"secret_{LONG[:43]}", f"ntn_{LONG[:46]}"),
                ("Airtable token", f"pat{LONG[:14]}.{HEX * 2}"),
                ("Atlassian token", f"ATATT3x{LONG * 2}=5A1B2C3D"),
                ("Figma token", f"figd_{LONG[:40]}"),
                ("Postman key", f"PMAK-{HEX[:24]}-{HEX}a1"),
                ("HubSpot token", f"pat-na1-{UUID}"),
                ("Azure client secret", f"aB38Q~{LONG[:34]}"),
            )
            for sample in samples
        ),
        ("postgres://svc:h7Gq2pLx@db.internal:5432/app", "password in a postgres:// URL"),
        ("mongodb+srv://svc:h7Gq2pLx@cluster0.mongodb.net", "password in a mongodb+srv:// URL"),
        ("redis://:h7Gq2pLx@cache:6379", "password in a redis:// URL"),
    ],
)
def test_a_known_format_is_found_in_any_string(secret: str, kind: str) -> None:
    for source in (f'x = "{secret}"', f'f("Bearer {secret}")', f"b'{secret}'", f"f'{secret}{{x}}'"):
        assert [use.description for use in found(source)] == [kind], source


@each_row(
    "source",
    [
        f"API_KEY = '{HEX}'",
        f"api_key: str = '{HEX}'",
        f"self.token = '{RANDOM}'",
        f"client(api_key='{RANDOM}')",
        f"client(apiKey='{RANDOM}')",
        f"headers = {{'X-API-Key': '{RANDOM}'}}",
        f"headers['Authorization'] = 'Bearer {RANDOM}'",
        f"def f(x, secret='{RANDOM}'): ...",
        f"def f(*, access_token='{RANDOM}'): ...",
        f"os.getenv('WEATHER_KEY', '{RANDOM}')",
        f"if token == '{RANDOM}': ...",
        "CLIENT_SECRET = '123e4567-e89b-42d3-a456-926614174000'",
        "db_password = 'h7Gq!pLx2'",
        "connect(password='Tr0ub4dor&3')",
    ],
)
def test_a_random_value_is_a_secret_where_its_name_says_so(source: str) -> None:
    assert len(found(source)) == 1


@each_row(
    "source",
    [
        "",
        "api_key = ''",
        "api_key = 'your-api-key'",
        "api_key = 'YOUR_API_KEY_GOES_HERE_123'",
        "api_key = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
        "api_key = '<your token of 32 characters>'",
        "api_key = 'WEATHER_API_KEY_V2_PRODUCTION'",
        "api_key = os.environ['WEATHER_API_KEY']",
        "api_key = '${WEATHER_API_KEY_OF_2024}'",
        "api_key = 'sk-...'",
        "api_key = 'sk-your-key-goes-right-here-0001'",
        "api_key = 'sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
        "token = 'changeme'",
        "token = 'secret:weather_token_of_2024'",
        "password = 'password123'",
        "password = 'hunter'",
        "password = 'Enter your Password 1!'",
        "password = '{password}A1'",
        "access_key = 'AKIAIOSFODNN7EXAMPLE'",
        "css = 'sk-toggleable__content-with-a-long-name'",
        "name = 'task-1234567890abcdefghij1234'",
        "key = 'ghp_' + token",
        "prefix = 'ghp_'",
        "if text.startswith('-----BEGIN PRIVATE KEY-----'): ...",
        "'''-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----'''",
        "url = 'postgres://user:password@host/db'",
        "url = 'postgres://postgres:postgres@localhost/db'",
        "url = 'https://user:pass@example.com'",
        "url = f'postgres://{user}:{password}@{host}/db'",
        "url = 'postgres://USER:${PASSWORD}@db/x'",
        "url = 'redis://localhost:6379/0'",
        "url = 'https://example.org:8080/a@b'",
        "token_url = 'https://login.example.org/oauth2/v2.0/token'",
        f"digest = '{HEX}'",
        f"cache_key = '{HEX}'",
        f"key = 'weather-{UUID}'",
        f"parts = ['{HEX}', 'sha256:{HEX * 2}', 'a-key-{HEX}', '{HEX}-usa', '{LONG}']",
        "icon = 'iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DH='",
        "stripe = 'sk_li|ve_1234567890abcdefghijklmn'",
        "stripe = 'sk_test_4eC39HqLy|jWDarjtT1zdp7dc'",
        "telegram = '1234567890:A|Axxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
        "version = 'MTIzNDU2Nzg5MDEyMzQ1Njc4.short.tail'",
        f"public_key = '{RANDOM}'",
        f"next_token = '{RANDOM}'",
        f"commit = '{HEX}'",
        "primary_key = 'customer_id_of_the_year_2024'",
        "jwt = 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0."
        "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P'",
        "'''Sends a mail.\n\nArgs:\n    token: The token, such as <token> or ghp_xxxx.\n'''",
        "secret = 12345678901234567890",
        "token = None",
        "tokens = ['<pad>', '<eos>']",
        "KEY = {'a': 1}",
        "api_key_header = 'X-Api-Key-Of-Version-2-And-3'",
    ],
)
def test_placeholders_and_ordinary_strings_raise_no_alarm(source: str) -> None:
    assert found(source) == []


def test_the_report_points_at_the_line_inside_a_long_string() -> None:
    source = '"""One.\n\n    Use ghp|_16C7e42F292c6912E7710c838347Ae178B4a for it.\n"""\n'

    assert found(source) == [LiteralSecret(3, 1, "GitHub token ghp_…")]


def test_escaped_newlines_do_not_push_the_line_past_the_string() -> None:
    source = "x = 'a\\n\\n\\nghp|_16C7e42F292c6912E7710c838347Ae178B4a'\n"

    assert found(source) == [LiteralSecret(1, 5, "GitHub token ghp_…")]


def test_two_secrets_in_one_string_are_two_reports() -> None:
    source = "x = 'AKI|A2E0A8F3B244C9986 ghp|_16C7e42F292c6912E7710c838347Ae178B4a'"

    assert [use.description for use in found(source)] == [
        "AWS access key AKIA…",
        "GitHub token ghp_…",
    ]


@given(st.text(alphabet=st.sampled_from("abcXYZ0189-_./+=:@ "), min_size=8, max_size=60))
def test_no_report_repeats_the_secret(text: str) -> None:
    source = f"api_key = {text!r}\npassword = {text!r}\nx = {'postgres://u:' + text + '@h'!r}"

    for use in found(source):
        assert text not in use.description
        assert text[6:] not in use.description or len(text[6:]) < 8


@given(st.text() | st.binary(), st.text())
def test_no_constant_raises(value: str | bytes, name: str) -> None:
    tree = ast.parse(f"api_key = 1\nf(password=1)\nd = {{{name!r}: {value!r}}}")

    assert isinstance(find_secrets(walk(tree)), list)


def test_the_standard_library_has_hardly_any() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
    files = sorted(p for p in library.rglob("*.py") if not skipped.intersection(p.parts))
    reports = []

    for path in files[:: max(1, len(files) // 150)]:
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError):
            continue
        reports += find_secrets(walk(tree))

    assert len(reports) <= 1
