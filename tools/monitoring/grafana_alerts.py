"""``python -m tools.monitoring.grafana_alerts``: writes deploy/grafana/provisioning/alerting/blamespan.yaml.

The Prometheus rules in Grafana's format, for users who alert from Grafana: the
same expressions and durations, from the same template.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from tools.monitoring.alert_rules import BASE, inlined, rule_file

FILE: Final = (
    Path(__file__).parents[2] / "deploy" / "grafana" / "provisioning" / "alerting" / "blamespan.yaml"
)
_HEAD: Final = """\
# Prometheus's alert rules for Grafana's own alerting. Made by `python -m tools.monitoring.grafana_alerts`;
# do not edit. A dollar sign is doubled: a single one is Grafana's.
# Links begin with the environment variable BLAMESPAN_WEB_URL of the Grafana that reads this.
"""
ADDRESS: Final = "${BLAMESPAN_WEB_URL}"
"""Base address of links; Grafana expands its own environment variables when it reads the file."""
_BACK_S: Final = 6 * 3600
"""Time range that Grafana draws beside the rule; an instant query does not need it."""

Json = dict[str, Any]


def provisioned() -> Json:
    """Return the provisioning file's content."""
    groups = [
        {
            "orgId": 1,
            "name": group["name"],
            "folder": "blamespan",
            "interval": group["interval"],
            "rules": [_rule(rule) for rule in group["rules"]],
        }
        for group in rule_file()["groups"]
        if "alert" in group["rules"][0]  # recorded series are inlined: Grafana may have no recording rules
    ]
    return {"apiVersion": 1, "groups": groups}


def write() -> str:
    """Return the content as YAML."""
    return _HEAD + yaml.safe_dump(provisioned(), sort_keys=False, width=1000)


def _rule(rule: Json) -> Json:
    return {
        "uid": re.sub(r"(?<!^)(?=[A-Z])", "-", rule["alert"]).lower(),
        "title": rule["alert"],
        "condition": "B",
        "data": [_asked(inlined(rule["expr"])), _IS_THERE],
        # The expressions return series only for problems: no data means healthy.
        "noDataState": "OK",
        "execErrState": "Error",
        "for": rule.get("for", "0s"),
        "labels": rule["labels"],
        "annotations": {name: _annotation(text) for name, text in rule["annotations"].items()},
    }


def _asked(expr: str) -> Json:
    return {
        "refId": "A",
        "relativeTimeRange": {"from": _BACK_S, "to": 0},
        "datasourceUid": "prometheus",
        "model": {"refId": "A", "expr": expr, "instant": True, "range": False},
    }


_IS_THERE: Final[Json] = {
    "refId": "B",
    "datasourceUid": "__expr__",
    "model": {"refId": "B", "type": "math", "expression": "is_number($$A)"},
}


def _annotation(text: str) -> str:
    """Write Prometheus's templates as Grafana's: values have a query's name, the address is a variable."""
    own = text.replace("$value", "$values.A.Value").replace("$", "$$")
    return own.replace(BASE.replace("$", "$$"), ADDRESS)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(write(), encoding="utf-8")
