"""``python -m tools.monitoring.dashboards``: writes the dashboards, and the Helm chart's copy.

Built and type-checked with Grafana's own foundation SDK; they have not been run in a Grafana here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from grafana_foundation_sdk.builders import common as draw
from grafana_foundation_sdk.builders import dashboard as built
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, tempo, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.tempo import SearchTableType

from tools.monitoring.panels import AGENTS, REPLICAS, SERVICE, Panel, Query, Shape, blamed_spans

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
FOLDER: Final = _DEPLOY / "grafana" / "dashboards"
CHART_FOLDER: Final = _DEPLOY / "helm" / "blamespan" / "files" / "dashboards"
"""A copy for the Helm chart, which can include only files from its own folder."""
PROMETHEUS: Final = dashboard.DataSourceRef(type_val="prometheus", uid="prometheus")
TEMPO: Final = dashboard.DataSourceRef(type_val="tempo", uid="tempo")
"""The uids of provisioning/datasources/blamespan.yaml."""
_HEIGHT: Final = 9
_REF_IDS: Final = "ABCDEFGH"

Drawn: TypeAlias = timeseries.Panel | heatmap.Panel | table.Panel | stat.Panel


def dashboards() -> dict[str, str]:
    """Return the files: names and JSON."""
    boards = {"agents": _agents(), "service": _service(), "replicas": _replicas()}
    return {f"{name}.json": _written(board) for name, board in boards.items()}


def _agents() -> built.Dashboard:
    board = _board("blamespan: agents", "blamespan-agents", "Who broke the runs, and how.")
    board = board.with_variable(_choice("service", "blamespan_agent_tasks_total"))
    board = board.with_variable(_choice("agent", 'blamespan_agent_tasks_total{service=~"$service"}'))
    for panel in AGENTS:
        board = board.with_panel(_drawn(panel))
    return board.with_panel(_spans())


def _service() -> built.Dashboard:
    board = _board("blamespan: the service", "blamespan-service", "Lag, cost and losses of blamespan itself.")
    for panel in SERVICE:
        board = board.with_panel(_drawn(panel))
    return board


def _replicas() -> built.Dashboard:
    board = _board(
        "blamespan: replicas", "blamespan-replicas", "Processors, analyzers and pages beside each other."
    )
    board = board.with_variable(_choice("instance", "blamespan_process_uptime_seconds_total"))
    for panel in REPLICAS:
        board = board.with_panel(_drawn(panel))
    return board


def _board(title: str, uid: str, description: str) -> built.Dashboard:
    board = built.Dashboard(title).uid(uid).description(description).tags(["blamespan"]).readonly()
    return board.time("now-6h", "now").refresh("1m").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)


def _choice(name: str, metric: str) -> built.QueryVariable:
    variable = built.QueryVariable(name).label(name).datasource(PROMETHEUS).multi(True).include_all(True)
    asked = variable.query(f"label_values({metric}, {name})").all_value(".*")
    return asked.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)


def _drawn(panel: Panel) -> Drawn:
    drawn = _SHAPES[panel.shape](panel)
    drawn = drawn.title(panel.title).description(panel.meaning).datasource(PROMETHEUS)
    drawn = drawn.span(panel.width).height(_HEIGHT)
    for target in _targets(panel):
        drawn = drawn.with_target(target)
    return drawn


def _targets(panel: Panel) -> Iterator[prometheus.Dataquery]:
    for ref_id, query in zip(_REF_IDS, panel.queries, strict=False):
        yield _target(panel.shape, query).ref_id(ref_id).datasource(PROMETHEUS)


def _target(shape: Shape, query: Query) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).exemplar(query.has_exemplars)
    if query.legend:
        target = target.legend_format(query.legend)
    if shape is Shape.TABLE:
        return target.instant().format(PromQueryFormat.TABLE)
    if shape is Shape.NUMBER:
        return target.instant()
    is_histogram = shape is Shape.HISTOGRAM
    return target.range().format(PromQueryFormat.HEATMAP if is_histogram else PromQueryFormat.TIME_SERIES)


def _lines(panel: Panel) -> Drawn:
    tooltip = draw.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    return timeseries.Panel().unit(panel.unit).min(0).fill_opacity(10).tooltip(tooltip)


def _heat(_panel: Panel) -> Drawn:
    return heatmap.Panel().calculate(False)


def _table(panel: Panel) -> Drawn:
    columns = {f"Value #{ref}": query.legend for ref, query in zip(_REF_IDS, panel.queries, strict=False)}
    merge = dashboard.DataTransformerConfig(id_val="merge", options={})
    options = {"excludeByName": {"Time": True}, "renameByName": columns}
    organize = dashboard.DataTransformerConfig(id_val="organize", options=options)
    share = [dashboard.DynamicConfigValue(id_val="unit", value="percentunit")]
    drawn = table.Panel().decimals(0).with_transformation(merge).with_transformation(organize)
    digits = dashboard.DynamicConfigValue(id_val="decimals", value=1)
    return drawn.override_by_name("share", [*share, digits])


def _number(panel: Panel) -> Drawn:
    return stat.Panel().unit(panel.unit).decimals(0)


_SHAPES: Final[dict[Shape, Callable[[Panel], Drawn]]] = {
    Shape.LINES: _lines,
    Shape.HEAT: _heat,
    Shape.HISTOGRAM: _heat,
    Shape.TABLE: _table,
    Shape.NUMBER: _number,
}


def _spans() -> table.Panel:
    asked = tempo.TempoQuery().ref_id("A").query_type("traceql").query(blamed_spans())
    asked = asked.table_type(SearchTableType.SPANS).limit(50).datasource(TEMPO)
    drawn = table.Panel().title("Blamed spans").datasource(TEMPO).with_target(asked)
    meaning = "The spans to blame, newest first, from Tempo; their trace opens with a click."
    return drawn.description(meaning).span(24).height(_HEIGHT)


def _written(board: built.Dashboard) -> str:
    return json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    for folder in (FOLDER, CHART_FOLDER):
        folder.mkdir(exist_ok=True, parents=True)
        for file, content in dashboards().items():
            (folder / file).write_text(content, encoding="utf-8")
