"""Recall, false positives and cost of redaction: ``python -m benchmarks.hostile.redaction [FILE…]``.

Recall: made-up secrets in the formats that vendors document (not taken from the rules), each written in
several ways and put in several places of a run, which is encoded, rebuilt and redacted as by the service. A
secret leaks if any text of the run, raw or decoded, still holds it. False positives and cost: the recorded
runs in ``FILE…``; a verdict without a model must be the same with and without redaction. Cost of hostile
texts: made of the words before secrets that the rules know, compared with the clean texts of the lists.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import random
import re
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from analyzer.cli.recorded_runs import RecordedRuns
from analyzer.methods.attribution import Attributor
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import ALL_KINDS, Cleaner, make_redactor, redact
from collector_processor.rebuild.secret_rules import EMAILS, all_rules
from collector_processor.rebuild.stages import rebuild
from collector_processor.rebuild.unescape import readings
from semconv.model import Blame, Event, Link, Span, SpanId, Trajectory
from tests.factories import TRACE, agent, chat, said, span, tool, workflow

_B64: Final = string.ascii_letters + string.digits + "+/"
_ALPHABETS: Final = {
    "a": string.ascii_letters + string.digits,
    "w": string.ascii_letters + string.digits + "-_",
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "d": string.digits,
    "b": _B64,
}
_FIELD: Final = re.compile(r"\{([awhuldb])(\d+)\}")

SHAPES: Final[Mapping[str, str]] = {
    "openai": "sk-{a20}T3BlbkFJ{a20}", "openai-project": "sk-proj-{w74}T3BlbkFJ{w74}",
    "anthropic": "sk-ant-api03-{w93}AA", "openrouter": "sk-or-v1-{h64}", "groq": "gsk_{a52}",
    "huggingface": "hf_{a34}", "replicate": "r8_{a37}", "perplexity": "pplx-{a48}", "tavily": "tvly-{a32}",
    "google": "AIza{w35}", "google-oauth": "GOCSPX-{w28}", "google-access": "ya29.{w60}",
    "aws-id": "AKIA{u16}", "aws-session-id": "ASIA{u16}", "aws-secret": "aws_secret_access_key = {b40}",
    "azure-storage": "AccountName=x;AccountKey={b86}==;EndpointSuffix=core.windows.net",
    "azure-ad": "{a3}8Q~{a34}", "github": "ghp_{a36}", "github-oauth": "gho_{a36}", "github-app": "ghs_{a36}",
    "github-fine": "github_pat_{a22}_{a59}", "gitlab": "glpat-{w20}", "gitlab-runner": "glrt-{w20}",
    "slack-bot": "xoxb-{d12}-{d12}-{a24}", "slack-user": "xoxp-{d12}-{d12}-{d12}-{h32}",
    "slack-app": "xapp-1-A{u10}-{d13}-{h64}", "slack-webhook": "https://hooks.slack.com/services/T{u10}/B{u10}/{a24}",
    "stripe": "sk_live_{a24}", "stripe-restricted": "rk_live_{a24}", "stripe-webhook": "whsec_{a32}",
    "twilio-key": "SK{h32}", "twilio-account": "AC{h32}", "twilio-token": "TWILIO_AUTH_TOKEN={h32}",
    "telegram": "{d10}:AA{w33}", "discord-bot": "MTIz{a20}.{w6}.{w38}",
    "discord-webhook": "https://discord.com/api/webhooks/{d18}/{w68}", "databricks": "dapi{h32}",
    "digitalocean": "dop_v1_{h64}", "digitalocean-refresh": "dor_v1_{h64}", "vault": "hvs.{w95}",
    "vault-batch": "hvb.{w150}", "terraform": "{a14}.atlasv1.{w67}", "npm": "npm_{a36}",
    "npmrc": "//registry.npmjs.org/:_authToken={h8}-{h4}-{h4}-{h4}-{h12}",
    "pypi": "pypi-AgEIcHlwaS5vcmc{w160}",
    "rubygems": "rubygems_{h48}", "docker": "dckr_pat_{w27}",
    "docker-config": '{"auths": {"index.docker.io": {"auth": "{b40}"}}}', "sendgrid": "SG.{w22}.{w43}",
    "mailchimp": "mailchimp_key={h32}-us12", "brevo": "xkeysib-{h64}-{a16}", "shopify": "shpat_{h32}",
    "square": "sq0csp-{w43}", "linear": "lin_api_{a40}", "notion": "ntn_{d9}{a37}", "figma": "figd_{w40}",
    "grafana": "glsa_{a32}_{h8}", "newrelic": "NRAK-{u27}", "sentry": "sntryu_{h64}",
    "postman": "PMAK-{h24}-{h34}", "pulumi": "pul-{h40}", "supabase": "sbp_{h40}",
    "planetscale": "pscale_tkn_{w43}", "airtable": "pat{a14}.{h64}", "doppler": "dp.pt.{a43}",
    "tailscale": "tskey-auth-{a16}-{a32}", "age": "AGE-SECRET-KEY-1{u58}",
    "sonar": "squ_{h40}", "circleci": "CCIPAT_{a22}_{h40}", "jwt": "eyJ{a33}.eyJ{a60}.{w43}",
    "bearer": "Authorization: Bearer {w40}", "basic": "Authorization: Basic {b24}",
    "url": "postgres://app:{a16}@db.internal/x", "redis-url": "redis://:{a24}@cache:6379/0",
    "netrc": "machine api.example.com login ann password {a16}",
    "kubernetes": "kind: Secret\nmetadata:\n  name: x\ndata:\n  pw: {b32}\n",
    "password": "password: {a14}", "env": "DB_PASSWORD={a14}", "json-secret": '{"client_secret": "{a24}"}',
    "camel": '{"apiKey": "{a24}"}', "yaml": "api_key: '{a28}'", "flag": "--token={a30}",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\n{b64}\n{b64}\n{b20}==\n-----END RSA PRIVATE KEY-----",
    "pem-indented": "    -----BEGIN PRIVATE KEY-----\n    {b64}\n    {b64}\n    -----END PRIVATE KEY-----",
    "pem-cut": "-----BEGIN EC PRIVATE KEY-----\n{b64}\n{b64}\n", "openssh":
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{b70}\n{b70}\n-----END OPENSSH PRIVATE KEY-----",
    "pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n{b64}\n{b64}\n={b4}\n"
    "-----END PGP PRIVATE KEY BLOCK-----",
    "card": "{card}", "card-blanks": "{card }", "card-dots": "{card.}", "card-hyphens": "{card-}",
    "card-underscores": "{card_}", "card-no-break": "{card\u00a0}", "amex": "{amex}",
    "pem-numbered": "1\t-----BEGIN RSA PRIVATE KEY-----\n2\t{b64}\n3\t{b64}\n4\t{b20}==\n"
    "5\t-----END RSA PRIVATE KEY-----",
    "pem-found": "id:1:-----BEGIN PRIVATE KEY-----\nid:2:{b64}\nid:3:{b64}\nid:4:-----END PRIVATE KEY-----",
    "pem-logged": "2026-01-01T00:00:01Z stdout F -----BEGIN EC PRIVATE KEY-----\n"
    "2026-01-01T00:00:01Z stdout F {b64}\n2026-01-01T00:00:01Z stdout F {b64}\n",
    "pem-markup": "-----BEGIN PRIVATE KEY-----<br>{b64}<br>{b64}<br>-----END PRIVATE KEY-----",
    "ssh2": "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{b64}\n{b64}\n"
    "---- END SSH2 ENCRYPTED PRIVATE KEY ----",
    "jwk": '{"kty":"RSA","e":"AQAB","d":"{w86}"}', "wireguard": "PrivateKey = {b43}=",
    "crypt": "root:$6$saltsalt${b86}:19000:0", "bcrypt": "$2b$12${a53}",
    "cookie": "Cookie: lang=en; sessionid={l32}", "set-cookie": "Set-Cookie: sid={w40}; Path=/; HttpOnly",
    "scheme": "Authorization: Token {h40}", "no-scheme": '"Authorization": "{a40}"',
    "sas": "https://x.blob.core.windows.net/c?sv=2020-08-04&sig={b43}%3D",
    "presigned": "https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={h64}",
    "xml": "<password>{a14}</password>", "option": "deploy --password {a14}", "option-key": "--api-key {a30}",
    "sql-server": "Server=db;User Id=sa;Password={a14};",
    "curl": "curl -u ann:{a14} https://x.example", "otp": "otpauth://totp/x:ann?secret={u32}&issuer=x",
    "xai": "xai-{a80}", "nvidia": "nvapi-{a30}-{a33}", "langfuse": "sk-lf-{h8}-{h4}-{h4}-{h4}-{h12}",
    "deepseek": "sk-{h32}", "pinecone": "pcsk_{a70}", "wandb": "WANDB_API_KEY={h40}",
    "atlassian": "ATATT3{w186}", "openai-service": "sk-svcacct-{w74}T3BlbkFJ{w74}",
    "anthropic-admin": "sk-ant-admin01-{w93}AA",
    "netlify": "nfp_{a36}", "gitlab-deploy": "gldt-{w20}", "github-user": "ghu_{a36}",
    "email": "{l8}.{l6}@{l9}.com", "email-tag": "{l6}+{l4}@mail.{l6}.co.uk",
    "email-quoted": '"{l5} {l5}"@{l8}.org',
}  # fmt: skip
"""Formats by name; ``{a36}`` is 36 random characters of an alphabet above."""


BLIND: Final = Path(__file__).with_name("blind_secrets.jsonl.gz")
"""Lists ``a`` (2026-11-27) to ``e`` (2026-11-28), with invented secrets."""


class Made(NamedTuple):
    """One generated secret, and its parts that must not remain."""

    text: str
    parts: tuple[str, ...]


def make(template: str, rng: random.Random) -> Made:
    """Fill in a format with random characters."""
    card = re.fullmatch(r"\{card(.?)\}|\{amex\}", template)
    if card:
        number = _card(rng, "37", 15) if template == "{amex}" else _card(rng, rng.choice("45") + "3", 16)
        groups = [number[at : at + 4] for at in range(0, len(number), 4)]
        text = (card[1] or "").join(groups)
        return Made(text, (text,))
    parts: list[str] = []

    def fill(field: re.Match[str]) -> str:
        part = "".join(rng.choices(_ALPHABETS[field[1]], k=int(field[2])))
        parts.append(part)
        return part

    text = _FIELD.sub(fill, template)
    longest = sorted(parts or [text], key=len)[-3:]
    return Made(text, tuple(part for part in longest if len(part) >= min(8, len(longest[-1]))))


def _card(rng: random.Random, prefix: str, length: int) -> str:
    digits = prefix + "".join(rng.choices(string.digits, k=length - len(prefix) - 1))
    total = sum(
        sum(divmod(int(digit) * (2 if place % 2 == 0 else 1), 10)) for place, digit in enumerate(digits[::-1])
    )
    return digits + str(-total % 10)


def _zero_width(text: str) -> str:
    return "".join(char + "\u200b" * (place % 5 == 4) for place, char in enumerate(text))


WRITINGS: Final[Mapping[str, Callable[[str], str]]] = {
    "plain": lambda text: text,
    "quoted": lambda text: f"it is `{text}`.",
    "in brackets": lambda text: f"it is ({text}), see there",
    "marked": lambda text: f"<b>{text}</b>",
    "json": lambda text: json.dumps({"value": text}),
    "json in json": lambda text: json.dumps({"body": json.dumps({"value": text})}),
    "unicode": lambda text: "".join(f"\\u{ord(char):04x}" if not char.isalnum() else char for char in text),
    "percent": lambda text: f"https://x.example/?q={quote(text, safe='')}",
    "html": lambda text: "".join(f"&#{ord(char)};" if not char.isalnum() else char for char in text),
    "zero-width": _zero_width,
    "markdown": lambda text: re.sub(r"([_*`~.])", r"\\\1", text),
    "coloured": lambda text: f"\x1b[1;32m{text[:12]}\x1b[0m\x1b[31m{text[12:]}\x1b[0m",
    "braces": lambda text: "".join(f"\\u{{{ord(char):x}}}" if not char.isalnum() else char for char in text),
    "selectors": lambda text: "\ufe0f".join((text[:9], text[9:])),
    "base64": lambda text: base64.b64encode(f'{{"value": "{text}"}}'.encode()).decode(),
    "hex": lambda text: f"value={text}".encode().hex(),
}
"""Encodings of a text."""


def _run(text: str, *, place: str) -> Trajectory:
    root = workflow(task="find out" if place != "attribute" else f"use {text} now", answer="done")
    looked = chat(2, heard=[said("user", "q")], answer="looked", agent_name="a")
    placed = _PLACED.get(place)
    (run,) = rebuild([encode([root, looked, *([placed(text)] if placed else ())])])
    return run.trajectory


def _in_event(text: str) -> Span:
    body = {"gen_ai.output.messages": json.dumps([said("assistant", f"found {text} here")])}
    details = Event(name="gen_ai.client.inference.operation.details", time_ns=1, attributes=body)
    return chat(3, agent_name="b", events=[details])


def _in_link(text: str) -> Span:
    link = Link(trace_id=TRACE, span_id=SpanId("0" * 15 + "2"), attributes={"note": text})
    return span(3, parent=1, links=[link])


def _in_exception(text: str) -> Span:
    raised = {"exception.type": "ValueError", "exception.message": f"refused {text} there"}
    failed = Event(name="exception", time_ns=1, attributes=raised)
    return tool(3, "fetch", arguments="{}", error=f"ValueError: {text}", events=[failed])


def _in_span_name(text: str) -> Span:
    return span(3, parent=1, name=text, attributes={"gen_ai.operation.name": "chat"})


def _in_tool(text: str) -> Span:
    return tool(3, "fetch", arguments=json.dumps({"value": text}), result=f"got {text}.")


def _in_instructions(text: str) -> Span:
    told = json.dumps([{"type": "text", "content": f"You may use {text} here."}])
    return _asking("gen_ai.system_instructions", told)


def _in_tool_list(text: str) -> Span:
    offered = [{"type": "function", "name": "fetch", "description": f"Call it with {text} always"}]
    return _asking("gen_ai.tool.definitions", json.dumps(offered))


def _in_history(text: str) -> Span:
    return chat(3, agent_name="b", heard=[said("user", f"so {text} then")], answer="ok")


def _asking(key: str, value: str) -> Span:
    return chat(3, agent_name="b", heard=[said("user", "q")], answer="ok", attributes={key: value})


_PLACED: Final[Mapping[str, Callable[[str], Span]]] = {
    "event": _in_event,
    "link": _in_link,
    "resource": lambda text: span(3, parent=1, service=text),
    "exception": _in_exception,
    "span name": _in_span_name,
    "tool arguments": _in_tool,
    "instructions": _in_instructions,
    "tool list": _in_tool_list,
    "history": _in_history,
    "status": lambda text: agent(3, "b", error=f"it said {text} again"),
}
PLACES: Final = ("attribute", *_PLACED)


def texts_of(trajectory: Trajectory) -> Iterator[str]:
    """Yield the texts of a run that a model, the store or a page may get, except agents' and tools' names."""
    yield from (trajectory.task, trajectory.output, trajectory.reference or "", trajectory.root_error)
    for step in trajectory.steps:
        yield from (step.name, step.instructions, step.tools, step.input, step.output, step.error)


def leaks(clean: Callable[[Trajectory], Trajectory], secret: Made, written: str, place: str) -> bool:
    """Return whether a part of the secret remains in the redacted run."""
    shown = [text for text in texts_of(clean(_run(written, place=place))) if text]
    shown += [reading for text in shown for reading in readings(text)]
    return any(part in text for text in shown for part in (*secret.parts, written))


class _Tally(NamedTuple):
    tried: Counter[str]
    leaked: Counter[str]


def _recall(seed: int) -> dict[str, object]:
    clean, rng = Cleaner(make_redactor(ALL_KINDS)), random.Random(seed)
    tally = {name: _Tally(Counter(), Counter()) for name in ("shape", "writing", "place")}
    for shape, template in SHAPES.items():
        for writing, write in WRITINGS.items():
            secret = make(template, rng)
            for place in PLACES:
                leaked = leaks(clean, secret, write(secret.text), place)
                for name, key in (("shape", shape), ("writing", writing), ("place", place)):
                    tally[name].tried[key] += 1
                    tally[name].leaked[key] += leaked
    tried, missing = tally["place"].tried.total(), tally["place"].leaked.total()
    missed = {name: {key: n for key, n in each.leaked.items() if n} for name, each in tally.items()}
    return {
        "tried": tried,
        "shapes": len(SHAPES) * len(WRITINGS),
        "recall": 1 - missing / tried,
        "missed": missed,
    }


def _blind() -> dict[str, object]:
    """Return the share of secrets that are gone, of lists by writers who had not read the rules.

    The rules were mended after each list, so only what the newest one shows is the recall on unknown text.
    """
    found: dict[str, Counter[str]] = {}
    for line in gzip.decompress(BLIND.read_bytes()).splitlines():
        row = json.loads(line)
        said, counts = redact(row["text"]), found.setdefault(row["list"], Counter())
        counts["secrets"] += len(row["secrets"])
        counts["left whole"] += sum(secret in said for secret in row["secrets"])
        counts["clean"] += not row["secrets"]
        counts["clean, changed"] += not row["secrets"] and said != row["text"]
    return {"blind lists": {name: dict(counts) for name, counts in found.items()}}


def hostile_text(words: Sequence[str], size: int, seed: int = 1) -> str:
    """Return a text of these words at irregular distances, with beginnings of options and values between."""
    rng, parts, length = random.Random(seed), [""], 0
    while length < size:
        parts.append(f"{rng.choice(words)} {'x' * rng.randrange(9)}{rng.choice(_BETWEEN)}")
        length += len(parts[-1])
    return "".join(parts)


_BETWEEN: Final = (" ", "", " -", '="', ": ")


def cost_s(texts: Iterable[str]) -> float:
    """Return the CPU seconds that the redaction of a MiB of such texts takes."""
    texts = list(texts)
    started = time.process_time()
    for text in texts:
        redact(text)
    return (time.process_time() - started) / sum(map(len, texts)) * (1 << 20)


def command_cost_s(name: str) -> float:
    """Return the cost of a text that repeats the name of a command."""
    return cost_s([hostile_text([name], 30_000)])


def _hostile() -> dict[str, object]:
    """Return the cost of texts that repeat the words which the rules look for, in seconds for a MiB."""
    rows = [json.loads(line) for line in gzip.decompress(BLIND.read_bytes()).splitlines()]
    usual = cost_s(row["text"] for row in rows if not row["secrets"])
    words = sorted({word for rule in all_rules() for word in rule.keywords})
    alone = {word: cost_s([hostile_text([word], 20_000)]) for word in words}
    worst = sorted(alone, key=alone.__getitem__)[:-6:-1]
    return {
        "s_per_MiB": {
            "clean texts of the lists": round(usual, 2),
            "name of a command repeated": round(max(map(command_cost_s, COMMAND_NAMES)), 2),
            **{f"{word!r} repeated": round(alone[word], 2) for word in worst},
        }
    }


COMMAND_NAMES: Final = (
    *(
        "mysql",
        "redis-cli",
        "docker login",
        "mongo",
        "zip ",
        "7z x",
        "openssl",
        "ncftp",
        "ftp ",
        "ldapsearch",
    ),
    *("rdesktop", "smbclient", "curl", "net use", "tacacs"),
)
"""One for each of the commands whose passwords are found."""


def _recorded(paths: Iterable[Path]) -> dict[str, object]:
    runs = [run for _, run in RecordedRuns(list(paths), [])]
    cleaner, attributor = Cleaner(make_redactor(ALL_KINDS)), Attributor(method="signals")
    changed = other = 0
    for run in runs:
        cleaned = cleaner(run.trajectory)
        changed += cleaned is not run.trajectory
        before, after = (attributor.at_once(each).verdict for each in (run.trajectory, cleaned))
        other += _blamed(before) != _blamed(after)
    steps = sum(len(run.trajectory.steps) for run in runs)
    rounds = []
    for _ in range(3):
        started = time.process_time()
        for run in runs:
            cleaner(run.trajectory)
        rounds.append(time.process_time() - started)
    characters = sum(len(text) for run in runs for text in texts_of(run.trajectory))
    replaced = {kind: cleaner.count(kind) // 4 for kind in cleaner.kinds}
    return {
        "runs": len(runs),
        "runs_changed": changed,
        "verdicts_changed": other,
        "replaced": replaced,
        "replaced_but_e-mails": sum(replaced.values()) - replaced.get(EMAILS, 0),
        "us_per_step": round(min(rounds) / max(steps, 1) * 1e6, 1),
        "us_per_1000_characters": round(min(rounds) / max(characters, 1) * 1e9, 1),
    }


def _blamed(verdict: object) -> object:
    return (verdict.agent, verdict.step) if isinstance(verdict, Blame) else type(verdict)


def main() -> int:
    """Print a JSON object each for the lists, our own formats, hostile texts, and the recorded runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="recorded runs")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.write(json.dumps(_blind()) + "\n")
    sys.stdout.write(json.dumps(_recall(options.seed)) + "\n")
    sys.stdout.write(json.dumps(_hostile()) + "\n")
    if options.files:
        sys.stdout.write(json.dumps(_recorded(options.files)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
