"""Builds the real backends of the e2e suite: Collector, Jaeger v2, Helm, Kafka, Phoenix, MLflow.

``python -m tests.backends.install [collector|jaeger|helm|kafka|phoenix|mlflow|all]``, standard library only.
Kafka's jars come from Maven Central, Phoenix and MLflow from PyPI, the others from the Go module registry.
The first build of each takes minutes (Kafka, Phoenix, MLflow: seconds); later runs use the cache. Tests only
look up existing binaries. Phoenix is under the Elastic licence 2.0, the others under the Apache licence 2.0;
none of them is part of a release.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from tests.backends import cache, gotool

# --- Pins -------------------------------------------------------------------
# The builder brings the core of its own version along; v0.159.0's (no `xconfmap.Validator`)
# does not compile with modules of v0.155.0, so the two move together.
COLLECTOR_VERSION: Final = "v0.155.0"
BUILDER_VERSION: Final = COLLECTOR_VERSION
PROVIDER_VERSION: Final = "v1.61.0"  # what v0.155.0 calls its stable modules
JAEGER_VERSION: Final = "v1.76.0"  # is v2.13.0 too; pinned by jaeger/go.mod and go.sum
HELM_VERSION: Final = "v3.18.0"
KAFKA_VERSION: Final = "4.1.0"  # pinned by kafka/pom.xml; the bytes of each jar by kafka/SHA256SUMS
MAVEN_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

BUILDER: Final = "go.opentelemetry.io/collector/cmd/builder"
CORE: Final = "go.opentelemetry.io/collector"
CONTRIB: Final = "github.com/open-telemetry/opentelemetry-collector-contrib"
JAEGER: Final = "github.com/jaegertracing/jaeger/cmd/jaeger"
HELM: Final = "helm.sh/helm/v3/cmd/helm"

COMPONENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "receivers": (f"{CORE}/receiver/otlpreceiver", f"{CONTRIB}/receiver/kafkareceiver"),
    "processors": (
        f"{CORE}/processor/batchprocessor",
        f"{CORE}/processor/memorylimiterprocessor",
        f"{CONTRIB}/processor/filterprocessor",
        f"{CONTRIB}/processor/tailsamplingprocessor",
    ),
    "exporters": (
        f"{CORE}/exporter/debugexporter",
        f"{CORE}/exporter/nopexporter",
        f"{CORE}/exporter/otlpexporter",
        f"{CORE}/exporter/otlphttpexporter",
        f"{CONTRIB}/exporter/kafkaexporter",
        f"{CONTRIB}/exporter/loadbalancingexporter",
        f"{CONTRIB}/exporter/prometheusexporter",
    ),
    "connectors": (f"{CONTRIB}/connector/spanmetricsconnector",),
    "extensions": (f"{CONTRIB}/extension/storage/filestorage",),
}
OTHER_VERSIONS: Final[Mapping[str, str]] = {
    # Not to be had at v0.155.0; this one compiles with its modules.
    f"{CONTRIB}/exporter/loadbalancingexporter": "v0.150.0",
}
PROVIDERS: Final = ("envprovider", "fileprovider", "yamlprovider")
# ----------------------------------------------------------------------------

BackendName: TypeAlias = Literal["collector", "jaeger", "helm", "kafka", "phoenix", "mlflow"]
NAMES: Final[tuple[BackendName, ...]] = get_args(BackendName)

COLLECTOR_MODULE: Final = Path(__file__).parent / "collector"
JAEGER_MODULE: Final = Path(__file__).parent / "jaeger"
KAFKA_MODULE: Final = Path(__file__).parent / "kafka"
KAFKA_SUMS: Final = "SHA256SUMS"
KAFKA_LAUNCHER: Final = """#!/bin/sh
exec java -Xms256m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$(dirname "$0")/lib/*" "$@"
"""
MODULE_FILES: Final = ("go.mod", "go.sum")
BUILD_FLAGS: Final = ("-mod=readonly", "-trimpath", "-ldflags=-s -w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Recipe of one backend: ``pins`` determines the outcome, ``compile`` builds ``binary`` in the given
    folder and appends the tools' output to the given log.
    """

    binary: str
    pins: tuple[str, ...]
    patience: str
    compile: Callable[[Path, Path], None]


def collector_binary() -> Path | None:
    """Return the Collector if it has been built; does not build it."""
    return _lookup("collector")


def jaeger_binary() -> Path | None:
    """Return Jaeger if it has been built; does not build it."""
    return _lookup("jaeger")


def helm_binary() -> Path | None:
    """Return Helm if it has been built; does not build it."""
    return _lookup("helm")


def kafka_binary() -> Path | None:
    """Return the launcher of Kafka's Java programs if they have been fetched; does not fetch them."""
    return _lookup("kafka")


def python_of(name: Literal["phoenix", "mlflow"]) -> Path | None:
    """Return the interpreter of a backend in Python if it has been installed; does not install it."""
    return _lookup(name)


def build(name: BackendName) -> Path:
    """Return the binary of a backend, building it first if necessary.

    Raises:
        BuildError: ``go`` (for Kafka ``mvn``) is missing or too old, or the build failed.
    """
    recipe = _recipe(name)
    return cache.keep(name, _folder(name), recipe.binary, lambda folder: _make(name, recipe, folder))


def builder_config() -> str:
    """Return the Collector builder's configuration: JSON, which is YAML too."""
    config: dict[str, object] = {
        "dist": {"name": "otelcol", "module": "blamespan/otelcol", "output_path": "sources"},
        "providers": [{"gomod": f"{CORE}/confmap/provider/{name} {PROVIDER_VERSION}"} for name in PROVIDERS],
    }
    for kind, modules in COMPONENTS.items():
        pinned = ((module, OTHER_VERSIONS.get(module, COLLECTOR_VERSION)) for module in modules)
        config[kind] = [{"gomod": f"{module} {version}"} for module, version in pinned]
    return json.dumps(config, indent=2)


def _recipe(name: BackendName) -> Recipe:
    if name == "collector":
        return Recipe(
            binary="otelcol",
            pins=(BUILDER_VERSION, builder_config(), *_module(COLLECTOR_MODULE), *BUILD_FLAGS),
            patience=f"Collector {COLLECTOR_VERSION}, about 4 minutes",
            compile=_compile_collector,
        )
    if name == "helm":
        return Recipe(
            binary="helm",
            pins=(HELM_VERSION,),
            patience=f"Helm {HELM_VERSION}, about 2 minutes",
            compile=_compile_helm,
        )
    if name in {"phoenix", "mlflow"}:
        pins = (Path(__file__).parent / name / "requirements.txt").read_text()
        return Recipe(
            binary="bin/python",
            pins=(pins, f"{sys.version_info.major}.{sys.version_info.minor}"),
            patience=f"{name}'s environment, about 15 seconds",
            compile=partial(_install_packages, Path(__file__).parent / name / "requirements.txt"),
        )
    if name == "kafka":
        return Recipe(
            binary="kafka",
            pins=(*_module(KAFKA_MODULE, ("pom.xml", KAFKA_SUMS)), MAVEN_DEPENDENCIES, KAFKA_LAUNCHER),
            patience=f"Kafka {KAFKA_VERSION}, about 10 seconds",
            compile=_fetch_kafka,
        )
    return Recipe(
        binary="jaeger",
        pins=(*_module(JAEGER_MODULE), *BUILD_FLAGS),
        patience=f"Jaeger {JAEGER_VERSION}, about 4 minutes",
        compile=_compile_jaeger,
    )


def _compile_collector(folder: Path, log: Path) -> None:
    (folder / "builder.yaml").write_text(builder_config())
    tool = f"{BUILDER}@{BUILDER_VERSION}"
    gotool.run(["go", "install", tool], cwd=folder, log=log, extra={"GOBIN": str(folder)})
    # Sources only, and what they are compiled from is pinned beside this file: the builder's own
    # `go mod tidy` also wants what the modules' tests import, and not all of that is to be had.
    generate = [
        str(folder / "builder"),
        "--config",
        "builder.yaml",
        "--skip-get-modules",
        "--skip-compilation",
    ]
    gotool.run(generate, cwd=folder, log=log)
    for file in MODULE_FILES:
        shutil.copyfile(COLLECTOR_MODULE / file, folder / "sources" / file)
    compiled = ["go", "build", *BUILD_FLAGS, "-o", str(folder / "otelcol"), "."]
    gotool.run(compiled, cwd=folder / "sources", log=log)
    (folder / "builder").unlink()


def _compile_jaeger(folder: Path, log: Path) -> None:
    for file in MODULE_FILES:
        shutil.copyfile(JAEGER_MODULE / file, folder / file)
    gotool.run(["go", "build", *BUILD_FLAGS, "-o", "jaeger", JAEGER], cwd=folder, log=log)


def _compile_helm(folder: Path, log: Path) -> None:
    tool = f"{HELM}@{HELM_VERSION}"
    gotool.run(["go", "install", tool], cwd=folder, log=log, extra={"GOBIN": str(folder)})


def _fetch_kafka(folder: Path, log: Path) -> None:
    for file in ("pom.xml", KAFKA_SUMS):
        shutil.copyfile(KAFKA_MODULE / file, folder / file)
    copied = [f"-DoutputDirectory={folder / 'lib'}", "-DincludeScope=runtime"]
    gotool.run(["mvn", "-q", "-B", MAVEN_DEPENDENCIES, *copied], cwd=folder, log=log)
    gotool.run(["sha256sum", "--check", "--strict", "--quiet", KAFKA_SUMS], cwd=folder, log=log)
    launcher = folder / "kafka"
    launcher.write_text(KAFKA_LAUNCHER)
    launcher.chmod(0o755)


def _install_packages(requirements: Path, folder: Path, log: Path) -> None:
    python, pins = str(folder / "bin/python"), ("--no-deps", "--compile-bytecode", "-r", str(requirements))
    uv = str(Path(sys.executable).parent / "uv")
    made = [uv, "venv", "--python", sys.executable, "--allow-existing", str(folder)]
    gotool.run(made, cwd=folder, log=log)
    gotool.run([uv, "pip", "install", "--python", python, *pins], cwd=folder, log=log)


def _require_tools(name: BackendName) -> None:
    if name in {"phoenix", "mlflow"}:
        return  # uv is in the environment of the tests
    if name != "kafka":
        gotool.require_go()
        return
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            raise gotool.BuildError(f"`{tool}` is not on the PATH; install Maven and Java 17 or newer")


def _make(name: BackendName, recipe: Recipe, folder: Path) -> None:
    _require_tools(name)
    log = cache.cache_root() / f"{name}.log"
    log.write_bytes(b"")
    cache.say(f"{name}: building {recipe.patience} the first time (log: {log}) …")
    began = time.monotonic()
    recipe.compile(folder, log)
    cache.say(f"{name}: built in {time.monotonic() - began:.0f} s")


def _lookup(name: BackendName) -> Path | None:
    return cache.kept(_folder(name), _recipe(name).binary)


def _folder(name: BackendName) -> str:
    return f"{name}-{cache.key_of(_recipe(name).pins)}"


def _module(folder: Path, files: tuple[str, ...] = MODULE_FILES) -> tuple[str, ...]:
    return tuple((folder / file).read_text() for file in files)


def main() -> int:
    """Build the backends named on the command line; print each binary's path."""
    parser = argparse.ArgumentParser(prog="python -m tests.backends.install", description=__doc__)
    parser.add_argument("backend", nargs="?", default="all", choices=(*NAMES, "all"))
    asked = parser.parse_args().backend
    try:
        for name in NAMES:
            if asked in (name, "all"):
                print(build(name), flush=True)
    except gotool.BuildError as error:
        cache.say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
