"""``python -m tools.secret_rules``: renews the rules by which redaction recognises secrets.

Reads the newest gitleaks (through the Go module proxy; needs ``go``) and CredSweeper (through pip), both
under the MIT licence, and writes ``collector_processor/rebuild/secret_rules.json`` with their versions and
licences. None of their code is run: only the rules are taken, as data.

- gitleaks: all rules with a pattern. Conditions on file paths are dropped, since a run's texts have no path;
  so is ``private-key``, whose pattern matches all text between two keys.
- CredSweeper: rules whose pattern alone identifies a secret (confidence strong or moderate, without its
  machine learning), for vendors and formats that gitleaks lacks. A look-ahead at the end becomes a character
  class.

Rules that RE2 does not accept are listed and left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from collector_processor.core.patterns import compile_rule
from collector_processor.rebuild.secret_rules import DATA

GITLEAKS: Final = "github.com/zricethezav/gitleaks/v8"
CREDSWEEPER: Final = "credsweeper"
_TAKES_TOO_MUCH: Final = frozenset({"private-key"})
_NO_SECRETS: Final = frozenset({
    "UUID", "Product Activation Key", "Firebase Domain", "AWS S3 Bucket", "JSON Web Key",
    "Basic Authorization", "Bearer Authorization", "Grafana Provisioned API Key", "URL Credentials",
})  # fmt: skip
"""Rules of CredSweeper to skip: for ids and addresses, or those that need its code."""
_BY_PATTERN: Final = frozenset({"Twilio Credentials", "Discord Bot Token"})
"""Rules whose keywords are too short to search for, but whose patterns are precise."""
_SHORTEST_KEYWORD: Final = 3
_GENERIC_FILTERS: Final = re.compile(
    r"GeneralPattern|TokenPattern|Value(Pattern|Morphemes|EntropyBase64)Check.*"
)
_LOOK_AHEAD: Final = re.compile(r"\(\?!\[([^\]]*)\]\)$")
_LONG_REPEAT: Final = re.compile(r"\{(\d+),\d{4,}\}")
"""Bound of RE2 on repetitions."""
_PREFIX: Final = re.compile(r"[a-z][a-z0-9_-]{2,}[_-]|[a-z]{2,}[0-9]?_")
_TOO_COMMON: Final = re.compile(
    r"(?:(?:[a-z]+_)?(?:key|secret|token|password)|api|ext|ico|live|ops|pat|sc|test)[_-]"
)


def main() -> int:
    """Write the rules."""
    gitleaks, credsweeper = _gitleaks(), _credsweeper()
    rules = [*gitleaks.pop("rules"), *credsweeper.pop("rules")]
    refused = [rule["id"] for rule in rules if not _is_accepted(rule["pattern"])]
    kept = [rule for rule in rules if rule["id"] not in refused]
    prefixes = {word for rule in kept for word in rule["keywords"] if _PREFIX.fullmatch(word)}
    document = {
        "sources": [gitleaks, credsweeper],
        "prefixes": sorted(word for word in prefixes if not _TOO_COMMON.fullmatch(word)),
        "rules": kept,
    }
    Path(str(DATA)).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(kept)} rules; not accepted by RE2: {', '.join(refused) or 'none'}\n")
    return 0


def _gitleaks() -> dict[str, Any]:
    told = subprocess.run(
        ["go", "mod", "download", "-json", f"{GITLEAKS}@latest"],
        capture_output=True, text=True, check=True, cwd=tempfile.gettempdir(),
    )  # fmt: skip
    module = json.loads(told.stdout)
    folder = Path(module["Dir"])
    config = tomllib.loads((folder / "config" / "gitleaks.toml").read_text(encoding="utf-8"))
    everywhere = _allowed(config["allowlist"])
    return {
        "name": "gitleaks",
        "version": module["Version"],
        "licence": (folder / "LICENSE").read_text(encoding="utf-8"),
        "allowed": everywhere,
        "rules": [
            _rule(
                f"gitleaks:{raw['id']}",
                raw["regex"],
                keywords=raw["keywords"],
                entropy=raw.get("entropy", 0),
                group=raw.get("secretGroup", 0),
                # Upstream allows documentation examples in source code; in a run they count as keys.
                allowed=[_allowed(each) for each in raw.get("allowlists", ())]
                if raw["id"] in {"generic-api-key", "curl-auth-user", "kubernetes-secret-yaml"}
                else [],
            )
            for raw in config["rules"]
            if "regex" in raw and raw["id"] not in _TAKES_TOO_MUCH
        ],
    }


def _allowed(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exceptions of a rule, without those on paths, which a run's texts do not have."""
    if raw.get("condition") == "AND" and raw.get("paths"):
        return {"target": "secret", "patterns": [], "words": []}
    return {
        "target": raw.get("regexTarget", "secret"),
        "patterns": raw.get("regexes", []),
        "words": raw.get("stopwords", []),
    }


def _credsweeper() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, CREDSWEEPER]
        subprocess.run(pip, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            config = yaml.safe_load(archive.read("credsweeper/rules/config.yaml"))
            licence = next(name for name in archive.namelist() if name.endswith("licenses/LICENSE"))
            return {
                "name": "CredSweeper",
                "version": wheel.name.split("-")[1],
                "licence": archive.read(licence).decode(),
                "allowed": {"target": "secret", "patterns": [], "words": []},
                "rules": list(_read_credsweeper(config)),
            }


def _read_credsweeper(config: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for raw in config:
        keywords = [word.lower() for word in raw.get("required_substrings", ())]
        is_precise = raw["confidence"] == "strong" or (
            raw["confidence"] == "moderate" and _is_checked_by_pattern(raw["filter_type"])
        )
        is_named = keywords and all(len(word) >= _SHORTEST_KEYWORD for word in keywords)
        if raw["type"] != "pattern" or not is_precise or raw.get("use_ml") or raw["name"] in _NO_SECRETS:
            continue
        if not is_named and raw["name"] not in _BY_PATTERN:
            continue
        (pattern,) = raw["values"]
        translated = _LONG_REPEAT.sub(r"{\1,}", _LOOK_AHEAD.sub(r"(?:[^\1]|\\z)", pattern))
        slug = re.sub(r"[^a-z0-9]+", "-", raw["name"].lower()).strip("-")
        named = re.findall(r"\((?!\?)|\(\?P<(\w+)>", re.sub(r"\\.|\[[^\]]*\]", "", translated))
        words = keywords if is_named else []
        yield _rule(f"credsweeper:{slug}", translated, keywords=words, group=named.index("value") + 1)


def _is_checked_by_pattern(filters: str | list[str]) -> bool:
    return all(
        _GENERIC_FILTERS.fullmatch(each) for each in ([filters] if isinstance(filters, str) else filters)
    )


def _rule(
    name: str,
    pattern: str,
    *,
    keywords: list[str],
    entropy: float = 0,
    group: int = 0,
    allowed: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    return {
        "id": name,
        "pattern": pattern,
        "keywords": sorted({word.lower() for word in keywords}),
        "entropy": entropy,
        "group": group,
        "allowed": [each for each in allowed or [] if each["patterns"] or each["words"]],
    }


def _is_accepted(pattern: str) -> bool:
    try:
        compile_rule(pattern)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
