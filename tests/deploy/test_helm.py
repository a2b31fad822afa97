"""The Helm chart, rendered with typical values and checked against Kubernetes' schemas; invalid values are
refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from analyzer.cli.main import COMMANDS
from analyzer.service.halves import STOP_S
from analyzer.telemetry.metric_table import OLDEST_ACTIONABLE
from collector_processor.settings import Settings, load_settings
from tests.backends import install
from tests.backends.debian import insist_on_debian
from tests.backends.fixtures import REQUIRE, insist_on
from tests.deploy.test_prometheus_rules import Play
from tools.monitoring.alert_rules import rule_file
from tools.monitoring.dashboards import dashboards
from tools.release import ROOT, version_of

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "blamespan"
KUBERNETES: Final = ("1.27", "1.37")
"""The oldest version that the chart supports, and the newest with published schemas."""
NOT_KUBERNETES: Final = frozenset({"ServiceMonitor", "PrometheusRule", "ScaledObject", "HTTPRoute"})
"""Kinds of the Prometheus operator, of KEDA and of the Gateway API, which have their own definitions."""
GATEWAY_API: Final = "sigs.k8s.io/gateway-api@v1.4.0"
"""The Go module that contains the definition of HTTPRoute."""
RELEASES: Final[Mapping[str, str]] = {
    "blamespan": "blamespan",
    "prod": "prod-blamespan",
    "my-blamespan": "my-blamespan",
    "blamespan-eu-2": "blamespan-eu-2",
    "b": "b-blamespan",
    "a-release-with-a-name-as-long-as-helm-allows-it-to-be": "a-release-with-a-name-as-long-blamespan",
}
"""Release names, each with the name of the chart's objects."""

Values: TypeAlias = dict[str, Any]
Object: TypeAlias = dict[str, Any]

STORE: Final[Values] = {"existingSecret": "database"}
TLS: Final[Values] = {"enabled": True, "existingSecret": "blame-tls", "requireClientCertificates": True}
CHOICES: Final[Mapping[str, Values]] = {
    "as it comes": {},
    "in halves": {"store": STORE, "analyzer": {"enabled": True}, "model": "openai/gpt-5-mini"},
    "in halves that grow": {
        "store": STORE,
        "analyzer": {"enabled": True, "autoscaling": {"enabled": True}},
    },
    "with jobs in a store": {
        "store": STORE,
        "analyzer": {
            "enabled": True,
            "autoscaling": {
                "enabled": True,
                "keda": {"enabled": True, "prometheus": "http://prometheus:9090"},
            },
        },
        "model": "openai/gpt-5-mini",
    },
    "behind Kafka": {
        "store": STORE,
        "kafka": {
            "brokers": "kafka-1:9092,kafka-2:9092",
            "security": "sasl_ssl",
            "existingSecret": "kafka-user",
            "tls": {"existingSecret": "kafka-tls", "clientCertificate": True},
        },
        "processor": {
            "persistence": {"enabled": False},
            "autoscaling": {
                "enabled": True,
                "keda": {"enabled": True, "prometheus": "http://prometheus:9090"},
            },
        },
        "analyzer": {"enabled": True},
        "web": {"enabled": True, "autoscaling": {"enabled": True}},
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
    },
    "with pages by themselves": {
        "store": STORE,
        "kafka": {"brokers": "kafka:9092"},
        "processor": {"replicas": 3, "autoscaling": {"enabled": False}},
        "web": {"enabled": True, "replicas": 3},
        "webUrl": "https://blamespan.example:8443",
        "ingress": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "tls": TLS,
    },
    "with TLS": {
        "tls": TLS,
        "serviceMonitor": {"enabled": True},
        "store": STORE,
        "analyzer": {"enabled": True},
    },
    "without a disk": {"processor": {"persistence": {"enabled": False}, "replicas": 3}},
    "with all": {
        "image": {"repository": "images.example/blamespan", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "pull"}],
        "auth": {"existingSecret": "token"},
        "backend": {"endpoint": "http://collector:4317", "protocol": "grpc", "logs": "", "metrics": ""},
        "webUrl": "https://blamespan.example/",
        "gateway": {"serviceAccounts": [{"name": "gateway", "namespace": "observability"}]},
        "modelKeys": {"existingSecret": "keys"},
        "ranker": {"configMap": "ranker"},
        "env": {"BLAMESPAN_ROOT_GRACE": "5000", "BLAMESPAN_FAILURE_PATTERN": "{{ fail }} \" $(X) 'é"},
        "processor": {
            "persistence": {"storageClass": "fast"},
            "tolerations": [{"key": "agents", "operator": "Exists"}],
            "nodeSelector": {"disk": "ssd"},
            "podAnnotations": {"note": "x"},
            "topologySpreadConstraints": [],
        },
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTP"},
            "tlsSecret": "blamespan-tls",
        },
        "httpRoute": {
            "enabled": True,
            "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
        },
        "serviceAccount": {"create": True, "annotations": {"example.com/role": "models"}},
        "priorityClassName": "important",
        "podLabels": {"team": "agents"},
        "extraEnvFrom": [{"secretRef": {"name": "notify"}}, {"configMapRef": {"name": "more"}}],
        "extraVolumes": [{"name": "mappings", "configMap": {"name": "mappings"}}],
        "extraVolumeMounts": [{"name": "mappings", "mountPath": "/etc/mappings", "readOnly": True}],
        "networkPolicy": {
            "enabled": True,
            "pagesFrom": [{"namespaceSelector": {"matchLabels": {"team": "ingress"}}}],
            "from": [{"namespaceSelector": {"matchLabels": {"team": "agents"}}}],
            "monitoringNamespaces": ["prometheus", "victoria"],
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "agents"}},
        "podDisruptionBudget": {"enabled": False},
    },
}


@pytest.fixture(scope="module")
def helm() -> Path:
    return insist_on("helm", install.helm_binary())


def ask(helm: Path, folder: Path, values: Values, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = folder / "values.yaml"
    given.write_text(json.dumps(values), encoding="utf-8")
    command = [str(helm), *arguments, "--values", str(given)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(
    helm: Path, folder: Path, values: Values, chart: Path = CHART, release: str = "blame"
) -> list[Object]:
    arguments = ("template", release, str(chart), "--namespace", "agents", "--kube-version", "1.31.0")
    done = ask(helm, folder, values, *arguments)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


@pytest.fixture(params=list(CHOICES.values()), ids=list(CHOICES))
def values(request: pytest.FixtureRequest) -> Values:
    found: Values = request.param
    return found


@pytest.fixture
def objects(helm: Path, tmp_path: Path, values: Values) -> list[Object]:
    return rendered(helm, tmp_path, values)


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    for found in objects:
        if found["kind"] in {"StatefulSet", "Deployment"}:
            yield found["kind"], found["spec"]["template"]["spec"]


def environ(pod: Object) -> dict[str, str]:
    entries = pod["containers"][0]["env"]
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names)), "a variable is set twice"
    return {entry["name"]: entry.get("value", "") for entry in entries}


def only(objects: list[Object], kind: str) -> Object:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def test_helm_finds_nothing_to_say_against_the_chart(helm: Path, tmp_path: Path, values: Values) -> None:
    done = ask(helm, tmp_path, values, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_would_take_all_of_it(objects: list[Object], version: str) -> None:
    known = [found for found in objects if found["kind"] not in NOT_KUBERNETES]
    assert {"StatefulSet", "Service"} <= {found["kind"] for found in known}
    for found in known:
        kubernetes_validate.validate(found, version, strict=True)


def test_pods_have_no_rights_and_more_time_to_end_than_a_shutdown_takes(objects: list[Object]) -> None:
    for _, pod in pods(objects):
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["fsGroup"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        shutdown_s = STOP_S if container["name"] == "analyzer" else load_settings({}).shutdown_s
        assert pod["terminationGracePeriodSeconds"] >= shutdown_s + 10


def test_pods_run_commands_there_are_with_settings_there_are_and_a_pinned_image(
    objects: list[Object],
) -> None:
    settings = {f"BLAMESPAN_{name.upper()}" for name in Settings.model_fields}
    for _, pod in pods(objects):
        (container,) = pod["containers"]
        assert container["args"][0] in COMMANDS
        assert {name for name in environ(pod) if name.startswith("BLAMESPAN_")} <= settings
        assert container["image"].endswith((f":{version_of(ROOT)}", f"@sha256:{'0' * 64}"))
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claimed = (
            {"data"} if "data" in mounted and "data" not in {v["name"] for v in pod["volumes"]} else set()
        )
        assert mounted == {volume["name"] for volume in pod["volumes"]} | claimed


def test_every_selector_finds_pods(objects: list[Object]) -> None:
    labels = [
        found["spec"]["template"]["metadata"]["labels"]
        for found in objects
        if found["kind"] in {"StatefulSet", "Deployment"}
    ]
    for found in objects:
        spec = found.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector")
        if selector is None or found["kind"] == "ServiceMonitor":
            continue
        wanted = selector.get("matchLabels", selector).items()
        assert sum(wanted <= own.items() for own in labels) == 1, found["kind"]


WATCHED: Final[Values] = {
    "networkPolicy": {"enabled": True},
    "store": STORE,
    "analyzer": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "gateway": {"serviceAccounts": [{"name": "gateway"}]},
}


@pytest.mark.parametrize(("release", "name"), RELEASES.items(), ids=list(RELEASES))
def test_under_every_name_of_a_release_kubernetes_would_take_it(
    helm: Path, tmp_path: Path, release: str, name: str
) -> None:
    objects = rendered(helm, tmp_path, WATCHED, release=release)
    assert only(objects, "StatefulSet")["metadata"]["name"] == name
    for found in objects:
        assert len(found["metadata"]["name"]) <= 63
        if found["kind"] not in NOT_KUBERNETES:
            kubernetes_validate.validate(found, KUBERNETES[-1], strict=True)


@pytest.mark.parametrize(("release", "name"), RELEASES.items(), ids=list(RELEASES))
def test_under_every_name_of_a_release_an_outage_raises_an_alert(
    helm: Path, tmp_path: Path, release: str, name: str
) -> None:
    objects = rendered(helm, tmp_path, WATCHED, release=release)
    job = scraped_as(objects)
    rules = only(objects, "PrometheusRule")["spec"]
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)  # a recorded series has none
    play = Play(insist_on_debian("promtool"), tmp_path)
    down = {"job": job, "namespace": "agents", "service": name, "pod": f"{name}-0"}
    matchers = ",".join(f'{label}="{value}"' for label, value in down.items())
    ours = f"up{{{matchers}}}"
    other = f'up{{job="{job}",namespace="agents",service="another-blamespan"}}'
    told = down | {"severity": "page"}
    gone = {"job": job, "namespace": "agents", "severity": "page"}
    for values, firing in (("1 1 0x30", told), ("1 1 stale", gone)):
        tests = [
            {"eval_time": moment, "alertname": "BlamespanDown", "exp_alerts": alerts}
            for moment, alerts in (("4m", []), ("10m", [{"exp_labels": firing}]))
        ]
        play.run({ours: values, other: "1x30"}, {"alert_rule_test": tests}, rules)


def names_of(group: Object) -> list[str]:
    """Return the names of a rule group's alerts and recorded series."""
    return [rule.get("alert") or rule["record"] for rule in group["rules"]]


def scraped_as(objects: list[Object]) -> str:
    """Return the ``job`` label that the Prometheus operator gives to our targets."""
    monitor = only(objects, "ServiceMonitor")["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    services = [one["metadata"]["labels"] for one in objects if one["kind"] == "Service"]
    (job,) = {labels[monitor["jobLabel"]] for labels in services if wanted <= labels.items()}
    return str(job)


def test_the_charts_rules_and_dashboards_equal_the_files_outside_of_it(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, tmp_path, WATCHED | {"webUrl": "https://blamespan.example/"})
    rules = only(objects, "PrometheusRule")["spec"]["groups"]
    own = rule_file()["groups"]
    assert [names_of(group) for group in rules] == [names_of(group) for group in own]
    assert "`https://blamespan.example`" in rules[0]["rules"][0]["annotations"]["link"]
    maps = [one for one in objects if one["kind"] == "ConfigMap"]
    assert {one["metadata"]["labels"]["grafana_dashboard"] for one in maps} == {"1"}
    shown = {name.removeprefix("blamespan-"): text for one in maps for name, text in one["data"].items()}
    assert {name: json.loads(text) for name, text in shown.items()} == {
        name: json.loads(text) for name, text in dashboards().items()
    }


def test_the_service_of_an_agent_is_not_overwritten_by_the_one_that_is_scraped(
    helm: Path, tmp_path: Path
) -> None:
    (endpoint,) = only(rendered(helm, tmp_path, WATCHED), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True


def test_prometheus_reaches_the_metrics_of_both_halves_and_nothing_else(helm: Path, tmp_path: Path) -> None:
    policies = [one for one in rendered(helm, tmp_path, WATCHED) if one["kind"] == "NetworkPolicy"]
    assert len(policies) == 2
    for policy in policies:
        (rule,) = (
            rule for rule in policy["spec"]["ingress"] if "namespaceSelector" in json.dumps(rule["from"])
        )
        assert rule["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"] == ["monitoring"]
        assert [port["port"] for port in rule["ports"]] == ["web"]


def test_pods_are_spread_over_machines_and_zones_unless_that_is_not_wanted(
    helm: Path, tmp_path: Path
) -> None:
    for kind, pod in pods(rendered(helm, tmp_path, WATCHED)):
        component = "processor" if kind == "StatefulSet" else "analyzer"
        keys = [one["topologyKey"] for one in pod["topologySpreadConstraints"]]
        assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        for one in pod["topologySpreadConstraints"]:
            assert one["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == component
    ((_, pod),) = pods(rendered(helm, tmp_path, {"processor": {"topologySpreadConstraints": []}}))
    assert "topologySpreadConstraints" not in pod


def test_the_gateways_collector_may_look_up_the_processors(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, tmp_path, CHOICES["with all"])
    (rule,) = only(objects, "Role")["rules"]
    assert (rule["resources"], rule["verbs"]) == (["endpointslices"], ["get", "list", "watch"])
    binding = only(objects, "RoleBinding")
    assert binding["roleRef"]["name"] == only(objects, "Role")["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "gateway", "namespace": "observability"}
    ]


def test_logs_and_metrics_go_nowhere_unless_a_backend_takes_them(helm: Path, tmp_path: Path) -> None:
    names = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
    ((_, pod),) = pods(rendered(helm, tmp_path, {"backend": {"endpoint": "http://jaeger:4317"}}))
    assert [environ(pod)[name] for name in names] == ["none", "none"]
    to_a_collector = {"endpoint": "http://collector:4317", "logs": "", "metrics": "http://mimir:4318"}
    ((_, pod),) = pods(rendered(helm, tmp_path, {"backend": to_a_collector}))
    assert [environ(pod).get(name) for name in names] == [None, "http://mimir:4318"]


def test_by_itself_the_processor_analyses_and_in_halves_it_asks(helm: Path, tmp_path: Path) -> None:
    whole = rendered(helm, tmp_path, {"model": "openai/m", "modelKeys": {"existingSecret": "keys"}})
    ((_, pod),) = pods(whole)
    assert pod["containers"][0]["args"][0] == "serve"
    assert environ(pod)["BLAMESPAN_MODEL"] == "openai/m"
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "keys"}}]

    halves = rendered(
        helm,
        tmp_path,
        {
            "model": "openai/m",
            "modelKeys": {"existingSecret": "keys"},
            "analyzer": {"enabled": True},
            "store": STORE,
        },
    )
    by_kind = dict(pods(halves))
    collector, analyzer = by_kind["StatefulSet"], by_kind["Deployment"]
    assert collector["containers"][0]["args"][1] == "collector"
    assert "envFrom" not in collector["containers"][0], "the half that asks no model needs no key"
    assert "BLAMESPAN_MODEL" not in environ(collector)
    assert analyzer["containers"][0]["args"][1] == "analyzer"
    assert environ(analyzer)["BLAMESPAN_MODEL"] == "openai/m"


def test_the_processors_have_names_that_stay_and_a_disk_each(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, tmp_path, {"processor": {"replicas": 3}})
    stateful = only(objects, "StatefulSet")["spec"]
    (headless,) = (
        one for one in objects if one["kind"] == "Service" and one["spec"].get("clusterIP") == "None"
    )
    assert stateful["serviceName"] == headless["metadata"]["name"]
    assert stateful["volumeClaimTemplates"][0]["metadata"]["name"] == "data"


def test_without_persistence_the_data_lie_beside_the_pod(helm: Path, tmp_path: Path) -> None:
    stateful = only(
        rendered(helm, tmp_path, {"processor": {"persistence": {"enabled": False}}}), "StatefulSet"
    )
    assert "volumeClaimTemplates" not in stateful["spec"]
    assert "data" in {volume["name"] for volume in stateful["spec"]["template"]["spec"]["volumes"]}


def test_with_tls_probes_questions_and_scrapes_speak_it(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, tmp_path, CHOICES["with TLS"])
    for _, pod in pods(objects):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert pod["containers"][0][probe]["httpGet"]["scheme"] == "HTTPS"
    processor = environ(dict(pods(objects))["StatefulSet"])
    assert processor["BLAMESPAN_TLS_CLIENT_CA"] == "/etc/blamespan/tls/ca.crt"
    (endpoint,) = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"]["credentials"]["key"] == "token"


def test_analyzers_that_grow_by_themselves_are_not_counted_twice(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, tmp_path, CHOICES["in halves that grow"])
    assert "replicas" not in only(objects, "Deployment")["spec"]
    scaler = only(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == only(objects, "Deployment")["metadata"]["name"]


def test_analyzers_take_jobs_from_the_store_and_grow_with_the_oldest_job(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, tmp_path, CHOICES["with jobs in a store"])
    by_kind = dict(pods(objects))
    assert by_kind["StatefulSet"]["containers"][0]["args"][1] == "collector"
    for pod in by_kind.values():
        (url,) = (one for one in pod["containers"][0]["env"] if one["name"] == "BLAMESPAN_STORE_URL")
        assert url["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "url"}
    assert "HorizontalPodAutoscaler" not in {found["kind"] for found in objects}
    assert "replicas" not in only(objects, "Deployment")["spec"]
    scaler = only(objects, "ScaledObject")["spec"]
    assert scaler["scaleTargetRef"]["name"] == only(objects, "Deployment")["metadata"]["name"]
    (trigger,) = scaler["triggers"]
    assert trigger["metadata"]["query"] == (
        'max(blamespan_oldest_actionable_age_seconds{namespace="agents", pod=~"blame-blamespan-analyzer-.*"})'
    )
    assert OLDEST_ACTIONABLE.name in trigger["metadata"]["query"]
    assert trigger["metadata"]["threshold"] == "30"


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def test_behind_kafka_processors_share_topics_and_a_store_without_secrets_in_the_open(
    helm: Path, tmp_path: Path
) -> None:
    objects = rendered(helm, tmp_path, CHOICES["behind Kafka"])
    pod = only(objects, "StatefulSet")["spec"]["template"]["spec"]
    said = environ(pod)
    queue = said["BLAMESPAN_QUEUE"].replace("$(KAFKA_USERNAME)", "u").replace("$(KAFKA_PASSWORD)", "p%40")
    access = load_settings({"BLAMESPAN_QUEUE": queue, "BLAMESPAN_STORE_URL": "postgresql+psycopg://db"}).kafka
    assert access is not None
    assert access.brokers == "kafka-1:9092,kafka-2:9092"
    assert (access.username, access.password) == ("u", "p@")
    assert access.group == "blamespan"
    assert access.common["security.protocol"] == "sasl_ssl"
    assert {value for name, value in access.common.items() if name.endswith(".location")} == {
        f"/etc/blamespan/kafka/{one}" for one in ("ca.crt", "tls.crt", "tls.key")
    }
    secrets = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]
        for entry in pod["containers"][0]["env"]
        if "valueFrom" in entry
    }
    assert secrets["KAFKA_PASSWORD"] == {"name": "kafka-user", "key": "password"}
    names = [entry["name"] for entry in pod["containers"][0]["env"]]
    assert names.index("KAFKA_PASSWORD") < names.index("BLAMESPAN_QUEUE"), (
        "the kubelet knows earlier ones only"
    )
    assert secrets["BLAMESPAN_STORE_URL"] == {"name": "database", "key": "url"}


def test_processors_behind_kafka_grow_with_the_oldest_run_and_shrink_slowly(
    helm: Path, tmp_path: Path
) -> None:
    objects = rendered(helm, tmp_path, CHOICES["behind Kafka"])
    stateful = only(objects, "StatefulSet")
    assert "replicas" not in stateful["spec"]
    scaler = named(objects, "ScaledObject", "blame-blamespan")["spec"]
    assert scaler["scaleTargetRef"] == {"kind": "StatefulSet", "name": stateful["metadata"]["name"]}
    (trigger,) = scaler["triggers"]
    assert trigger["metadata"]["query"] == (
        'max(blamespan_oldest_actionable_age_seconds{namespace="agents", pod=~"blame-blamespan-[0-9]+"})'
    )
    down = scaler["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] == 600


def test_pages_by_themselves_run_as_often_as_wished_and_are_never_all_away(
    helm: Path, tmp_path: Path
) -> None:
    objects = rendered(helm, tmp_path, CHOICES["with pages by themselves"])
    pages = named(objects, "Deployment", "blame-blamespan-web")["spec"]
    (container,) = pages["template"]["spec"]["containers"]
    assert (pages["replicas"], container["args"][1]) == (3, "pages")
    assert pages["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert "BLAMESPAN_QUEUE" not in environ(pages["template"]["spec"]), "pages read the store only"
    assert [port["name"] for port in named(objects, "Service", "blame-blamespan-web")["spec"]["ports"]] == [
        "web"
    ]
    (rule, _) = named(objects, "NetworkPolicy", "blame-blamespan-web")["spec"]["ingress"]
    assert (rule["from"], [port["port"] for port in rule["ports"]]) == ([{"podSelector": {}}], ["web"])


@pytest.mark.parametrize("choice", ["behind Kafka", "with pages by themselves", "in halves", "as it comes"])
def test_every_kind_of_pod_has_a_disruption_budget_of_one(helm: Path, tmp_path: Path, choice: str) -> None:
    objects = rendered(helm, tmp_path, CHOICES[choice])
    budgets = {
        one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]: one["spec"]["maxUnavailable"]
        for one in objects
        if one["kind"] == "PodDisruptionBudget"
    }
    components = {
        one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        for one in objects
        if one["kind"] in {"StatefulSet", "Deployment"}
    }
    assert budgets == dict.fromkeys(components, 1)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"store": STORE, "processor": {"replicas": 2}}, "belongs to one processor"),
        ({"kafka": {"brokers": "k:9092"}}, "kafka.brokers needs store.existingSecret"),
        ({"processor": {"autoscaling": {"enabled": True}}}, "processor.autoscaling needs kafka.brokers"),
        (
            {
                "store": STORE,
                "kafka": {"brokers": "k:9092"},
                "processor": {"autoscaling": {"enabled": True, "keda": {"enabled": True}}},
            },
            "keda needs its prometheus",
        ),
        (
            {
                "store": STORE,
                "kafka": {"brokers": "k:9092", "security": "sasl_ssl"},
            },
            "expected kafka.existingSecret",
        ),
        ({"web": {"enabled": True}}, "web.enabled needs store.existingSecret"),
        ({"ingress": {"enabled": True}}, "ingress.enabled needs webUrl"),
        (
            {"httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]}},
            "httpRoute.enabled needs webUrl",
        ),
        (
            {"httpRoute": {"enabled": True}, "webUrl": "https://blamespan.example"},
            "httpRoute.enabled needs httpRoute.parentRefs",
        ),
        (
            {"ingress": {"enabled": True}, "webUrl": "https://tools.example/blamespan"},
            "served at the host's root",
        ),
        (
            {"analyzer": {"enabled": True}},
            "analyzer.enabled needs store.existingSecret",
        ),
    ],
    ids=[
        "several processors on one database",
        "Kafka without a store",
        "scaling without Kafka",
        "KEDA without Prometheus",
        "SASL without a password",
        "pages without a store",
        "an Ingress without a host",
        "a route without a host",
        "a route without a Gateway",
        "pages below a path",
        "no store to take jobs from",
    ],
)
def test_what_cannot_work_together_is_refused(helm: Path, tmp_path: Path, values: Values, told: str) -> None:
    done = ask(helm, tmp_path, values, "template", "blame", str(CHART), "--kube-version", "1.31.0")
    assert done.returncode != 0
    assert told in done.stderr


def test_a_token_is_made_where_none_is_given_and_none_where_there_is_a_secret(
    helm: Path, tmp_path: Path
) -> None:
    made = only(rendered(helm, tmp_path, {}), "Secret")
    assert len(made["data"]["token"]) > 40
    objects = rendered(helm, tmp_path, {"auth": {"existingSecret": "mine"}})
    assert "Secret" not in {found["kind"] for found in objects}
    assert "mine" in json.dumps(only(objects, "StatefulSet"))


def test_metrics_with_a_token_of_their_own_are_scraped_with_it(helm: Path, tmp_path: Path) -> None:
    values = {"auth": {"ownMetricsToken": True}, "serviceMonitor": {"enabled": True}}
    objects = rendered(helm, tmp_path, values)
    made = only(objects, "Secret")["data"]
    assert len(made["metrics-token"]) > 40
    assert made["metrics-token"] != made["token"]
    (endpoint,) = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"]["key"] == "metrics-token"
    keys = {
        one["name"]: one["valueFrom"]["secretKeyRef"]["key"]
        for one in only(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["env"]
        if "valueFrom" in one
    }
    assert keys["BLAMESPAN_METRICS_TOKEN"] == "metrics-token"
    assert "BLAMESPAN_METRICS_TOKEN" not in json.dumps(rendered(helm, tmp_path, {}))


def test_what_a_setting_says_is_never_executed_by_the_template(helm: Path, tmp_path: Path) -> None:
    text = CHOICES["with all"]["env"]["BLAMESPAN_FAILURE_PATTERN"]
    ((_, pod),) = pods(rendered(helm, tmp_path, CHOICES["with all"]))
    assert environ(pod)["BLAMESPAN_FAILURE_PATTERN"] == text


def notes(helm: Path, folder: Path, values: Values) -> str:
    """Return what an installation shows; rendering shows no notes, so here an object holds them."""
    chart = folder / "blamespan"
    if not chart.exists():
        shutil.copytree(CHART, chart)
    holder = 'kind: Notes\ntext: {{ include "blamespan/templates/NOTES.txt" . | quote }}\n'
    (chart / "templates" / "shown.yaml").write_text(holder)
    return str(only(rendered(helm, folder, values, chart), "Notes")["text"])


def test_the_notes_say_whom_the_network_policy_blocks(helm: Path, tmp_path: Path) -> None:
    assert "NetworkPolicy" not in notes(helm, tmp_path, {"networkPolicy": {"enabled": False}})
    told = notes(helm, tmp_path, {})
    assert "lets in the pods of the namespace agents, and Prometheus in monitoring." in told
    assert "agents in other namespaces" in told
    assert "pagesFrom" not in told
    public = {"networkPolicy": {"enabled": True}, "ingress": {"enabled": True}, "webUrl": "https://x.example"}
    told = notes(helm, tmp_path, public)
    assert "The page: https://x.example, once your Ingress controller" in told
    assert "is blocked too, unless it is among them: name it in networkPolicy.pagesFrom" in told
    told = notes(helm, tmp_path, CHOICES["with all"])
    assert (
        "lets in the peers of networkPolicy.from, and those of networkPolicy.pagesFrom to the pages" in told
    )
    assert "is blocked too" not in told


def definition(kind: str, folder: Path) -> dict[str, Any]:
    """Return the schema of a kind of the Gateway API, from the module that defines it."""
    if shutil.which("go") is None:
        told = "the Gateway API's definitions come as a Go module, and there is no go"
        pytest.fail(told) if os.environ.get(REQUIRE) == "true" else pytest.skip(told)
    command = ["go", "mod", "download", "-json", GATEWAY_API]
    environ = os.environ | {"GOFLAGS": "-mod=mod", "GOWORK": "off"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True)
    crds = Path(json.loads(done.stdout)["Dir"]) / "config" / "crd" / "standard"
    crd = yaml.safe_load((crds / f"gateway.networking.k8s.io_{kind}.yaml").read_text(encoding="utf-8"))
    (schema,) = (one["schema"] for one in crd["spec"]["versions"] if one["name"] == "v1")
    found: dict[str, Any] = schema["openAPIV3Schema"]
    return found


def closed(schema: Any) -> Any:
    """Return a schema that refuses unknown keys, as an API server with strict validation does."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    return found | (
        {"additionalProperties": False} if found.get("type") == "object" and "properties" in found else {}
    )


def test_the_route_is_one_of_the_gateway_api(helm: Path, tmp_path: Path) -> None:
    route = only(rendered(helm, tmp_path, CHOICES["with all"]), "HTTPRoute")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    schema = closed(definition("httproutes", tmp_path))
    jsonschema.validate(
        route | {"metadata": {}}, schema | {"properties": schema["properties"] | {"metadata": {}}}
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"spec": {"hostname": "x"}}, schema)


@pytest.mark.parametrize(
    ("choice", "service"),
    [("with all", "blame-blamespan"), ("with pages by themselves", "blame-blamespan-web")],
)
def test_from_outside_only_the_pages_are_reached(
    helm: Path, tmp_path: Path, choice: str, service: str
) -> None:
    objects = rendered(helm, tmp_path, CHOICES[choice])
    ports = {one["name"]: one["port"] for one in named(objects, "Service", service)["spec"]["ports"]}
    (rule,) = only(objects, "Ingress")["spec"]["rules"]
    assert rule["host"] == "blamespan.example"
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert (backend["name"], ports[backend["port"]["name"]]) == (service, ports["web"])
    if choice == "with all":
        (reference,) = only(objects, "HTTPRoute")["spec"]["rules"][0]["backendRefs"]
        assert reference == {"name": service, "port": ports["web"]}
        (policy,) = (one for one in objects if one["kind"] == "NetworkPolicy")
        of_ingress = policy["spec"]["ingress"][1]
        assert "ingress" in json.dumps(of_ingress["from"])
        assert [port["port"] for port in of_ingress["ports"]] == ["web"]


def test_what_users_add_reaches_every_kind_of_pod(helm: Path, tmp_path: Path) -> None:
    values = CHOICES["with all"] | {
        "store": STORE,
        "analyzer": {"enabled": True},
        "web": {"enabled": True},
    }
    objects = rendered(helm, tmp_path, values)
    found = list(pods(objects))
    assert len(found) == 3
    for _, pod in found:
        (container,) = pod["containers"]
        assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("blame-blamespan", "important")
        assert {"secretRef": {"name": "notify"}} in container["envFrom"]
        keys = {"secretRef": {"name": "keys"}} in container["envFrom"]
        assert keys == (container["name"] == "analyzer"), "only the part that asks a model has its keys"
        assert {"name": "mappings", "mountPath": "/etc/mappings", "readOnly": True} in container[
            "volumeMounts"
        ]
    labels = [
        one["spec"]["template"]["metadata"]["labels"] for one in objects if "template" in one.get("spec", {})
    ]
    assert [one["team"] for one in labels] == ["agents"] * 3
    account = only(objects, "ServiceAccount")
    assert (account["metadata"]["name"], account["automountServiceAccountToken"]) == (
        "blame-blamespan",
        False,
    )


def test_as_it_comes_nothing_is_public_or_added(helm: Path, tmp_path: Path) -> None:
    objects = rendered(helm, tmp_path, {})
    assert {one["kind"] for one in objects} == {
        "NetworkPolicy",
        "Secret",
        "Service",
        "StatefulSet",
        "PodDisruptionBudget",
    }
    ((_, pod),) = pods(objects)
    assert {"serviceAccountName", "priorityClassName"}.isdisjoint(pod)
    assert "envFrom" not in pod["containers"][0]
    named_one = rendered(helm, tmp_path, {"serviceAccount": {"name": "mine"}})
    ((_, pod),) = pods(named_one)
    assert pod["serviceAccountName"] == "mine"
    assert "ServiceAccount" not in {one["kind"] for one in named_one}


def test_the_notes_tell_of_the_gateway_the_budget_and_what_is_missing(helm: Path, tmp_path: Path) -> None:
    values = {"processor": {"replicas": 3}, "model": "openai/m"}
    told = notes(helm, tmp_path, values)
    assert "deploy/collector/gateway.yaml" in told
    assert "\n  blame-blamespan-headless.agents\n" in told
    assert "service account in gateway.serviceAccounts" in told
    assert "The budget of $5 an hour is for each processor." in told
    assert "No backend is set" in told


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param({"image": {"tag": "latest"}}, id="an image that may change"),
        pytest.param({"image": {"tag": "1 --privileged"}}, id="a tag that is none"),
        pytest.param({"image": {"digest": "sha256:beef"}}, id="half a digest"),
        pytest.param({"auth": {"token": "short"}}, id="a token that can be guessed"),
        pytest.param({"auth": {"existingSecret": "../etc"}}, id="a name that is none"),
        pytest.param({"processor": {"replicas": 0}}, id="nobody at the door"),
        pytest.param({"processor": {"replicas": "two"}}, id="a number in words"),
        pytest.param({"processor": {"persistence": {"size": "lots"}}}, id="a size that is none"),
        pytest.param({"processor": {"securityContext": {}}}, id="rights"),
        pytest.param({"analyser": {"enabled": True}}, id="a misspelt key"),
        pytest.param({"env": {"BLAMESPAN_TOKEN": "in the open"}}, id="the token beside its secret"),
        pytest.param({"env": {"BLAMESPAN_METRICS_TOKEN": "x"}}, id="the metrics' token beside its secret"),
        pytest.param({"env": {"lower": "x"}}, id="no variable"),
        pytest.param({"env": {"BLAMESPAN_QUEUE": "kafka://k:9092"}}, id="Kafka beside its values"),
        pytest.param({"env": {"KAFKA_PASSWORD": "x"}}, id="a password beside its secret"),
        pytest.param({"kafka": {"brokers": "user:secret@kafka:9092"}}, id="a password among the brokers"),
        pytest.param({"kafka": {"brokers": "kafka"}}, id="a broker without a port"),
        pytest.param({"kafka": {"topics": "otlp_spans"}}, id="topics of one signal only"),
        pytest.param({"web": {"replicas": 0}}, id="no pages"),
        pytest.param({"env": {"BLAMESPAN_ROOT_GRACE": 3600000}}, id="a number that would be written 3.6e+06"),
        pytest.param({"tls": {"enabled": True}}, id="TLS without a certificate"),
        pytest.param({"backend": {"endpoint": "ftp://x"}}, id="a backend that is none"),
        pytest.param({"backend": {"endpoint": "http://user:secret@x"}}, id="a password in the open"),
        pytest.param({"budgetUsdPerHour": -1}, id="a budget below nothing"),
        pytest.param({"serviceMonitor": {"interval": "often"}}, id="an interval that is none"),
        pytest.param({"backend": {"logs": "off"}}, id="an endpoint for logs that is none"),
        pytest.param({"gateway": {"serviceAccounts": [{"namespace": "x"}]}}, id="an account without a name"),
        pytest.param({"extraVolumes": [{"name": "x", "hostPath": {"path": "/"}}]}, id="the machine's disk"),
        pytest.param({"extraVolumes": [{"name": "data", "emptyDir": {}}]}, id="a volume of the chart's own"),
        pytest.param({"extraVolumes": [{"name": "x"}]}, id="a volume of no kind"),
        pytest.param(
            {"extraVolumeMounts": [{"name": "x", "mountPath": "/var/lib/blamespan/"}]}, id="over the data"
        ),
        pytest.param({"extraVolumeMounts": [{"name": "x", "mountPath": "etc"}]}, id="no absolute path"),
        pytest.param({"extraEnvFrom": [{"secretRef": {}}]}, id="variables of a Secret without a name"),
        pytest.param({"extraEnvFrom": [{"prefix": "X_"}]}, id="variables from nowhere"),
        pytest.param({"podLabels": {"app.kubernetes.io/name": "x"}}, id="a label that the chart selects by"),
        pytest.param({"priorityClassName": "Not A Name"}, id="a priority that is none"),
        pytest.param({"ingress": {"hosts": ["x"]}}, id="hosts beside webUrl"),
        pytest.param({"httpRoute": {"parentRefs": [{"namespace": "x"}]}}, id="a Gateway without a name"),
        pytest.param({"networkPolicy": {"monitoringNamespaces": ["*"]}}, id="all namespaces"),
        pytest.param({"processor": {"topologySpreadConstraints": [{"maxSkew": 1}]}}, id="half a constraint"),
    ],
)
def test_nonsense_is_refused_before_anything_is_made(helm: Path, tmp_path: Path, hostile: Values) -> None:
    done = ask(helm, tmp_path, hostile, "template", "blame", str(CHART), "--kube-version", "1.31.0")
    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr
