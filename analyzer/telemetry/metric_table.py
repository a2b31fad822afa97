"""Table of every metric of every process: name and labels, unit, meaning.

``/metrics``, OTLP, docs/metrics.md, alert rules and dashboards follow this table. Names, units,
labels and meanings are a contract with users.
"""

from __future__ import annotations

from typing import Any, Final

from analyzer.telemetry.metric import Half, counter, gauge, histogram, withdrawn

MAX_WORKFLOWS: Final = 50
"""Number of workflows, those with the latest runs, that have series."""
MAX_STANDING: Final = 100
"""Number of the newest issues and of the newest alarms that have a series of their own."""

ISSUES: Final = gauge(
    "blamespan_issues{state}", "{issue}", "Recurring failures by state: new, ongoing, resolved, regressed."
)
STANDING: Final = gauge(
    "blamespan_issue_standing{service, agent, mode, issue, state}",
    "{issue}",
    "1 for each new or regressed issue that is not muted; only the newest issues.",
    bound=MAX_STANDING,
)
ALARM: Final = gauge(
    "blamespan_agent_alarm{service, agent}",
    "{alarm}",
    "1 while an agent is blamed more often than before; only the newest alarms.",
    bound=MAX_STANDING,
)
SHARE_LOW: Final = gauge(
    "blamespan_agent_share_low{service, agent}",
    "1",
    "Lower bound of the 95 % interval of the agent's failure rate over seven days, corrected for the method's"
    " errors by people's labels. No series without labels.",
    bound=MAX_STANDING,
)
WORKFLOW_REGRESSED: Final = gauge(
    "blamespan_workflow_regressed{service, workflow, release}",
    "{alarm}",
    "1 while the newest version of a workflow fails more often than the runs before it; read every five"
    " minutes.",
    bound=MAX_WORKFLOWS,
)
WORKFLOW_PASSED: Final = gauge(
    "blamespan_workflow_passed_share{service, workflow}",
    "1",
    "Share of a workflow's newest 100 runs that passed, counting only runs whose outcome an evaluator, a"
    " check or a person stated; read every five minutes.",
    bound=MAX_WORKFLOWS,
)
REPEATED: Final = counter(
    "blamespan_issue_repetitions",
    "{run}",
    "Failed runs of an issue that was already announced; they cause no new notification.",
)
NOTICES: Final = tuple(
    counter(f"blamespan_notices_{what}{{receiver}}", unit, meaning)
    for what, unit, meaning in (
        ("sent", "{message}", "Messages that a receiver accepted."),
        ("failed", "{message}", "Failed sends of messages; each is retried."),
        ("merged", "{notice}", "Notices sent within another message because of the hourly limit."),
        ("dropped", "{notice}", "Notices dropped: permanently rejected, or older than a day."),
    )
)


# Items: spans, log records, metric points. The Collector has a metric for each signal (``_spans``,
# ``_log_records``, ``_metric_points``) where ours has a label.
ITEMS: Final = tuple(
    counter(f"blamespan_items_{what}{{signal}}", "{item}", meaning, otelcol=otelcol)
    for what, otelcol, meaning in (
        ("received", "", "Spans, log records and metric points in valid requests."),
        ("refused", "otelcol_receiver_refused_spans", "Items rejected before they were acknowledged."),
        (
            "acknowledged",
            "otelcol_receiver_accepted_spans",
            "Items written to disk, including those found there at start-up.",
        ),
        ("forwarded", "otelcol_exporter_sent_spans", "Items that the backend accepted."),
        ("rejected", "otelcol_exporter_send_failed_spans", "Items that the backend permanently rejected."),
        ("unsupported", "", "Items not sent because the backend has no service for their signal."),
        ("lost", "", "Acknowledged items lost to corruption on disk."),
        ("kept", "", "Acknowledged items that are not forwarded because no backend is set."),
        (
            "returned",
            "",
            "Acknowledged items given back to Kafka with their partition: another forwards them.",
        ),
    )
)
KAFKA_RECORDS: Final = counter(
    "blamespan_kafka_records{outcome}",
    "{record}",
    "Records of Kafka: `published`; `read`; `reread` for the analysis only, after a rebalance; `aside`"
    " (unreadable, kept in a file); `expired` (deleted by Kafka before they were forwarded).",
    bound=5,
)
KAFKA_REFUSED_COMMITS: Final = counter(
    "blamespan_kafka_refused_commits{reason}",
    "{commit}",
    "Commits of offsets that Kafka refused: `stale` if the partition has another owner; `failed` for another"
    " reason, such as a coordinator that is away, after which they are repeated.",
    bound=2,
)
KAFKA_PARTITIONS: Final = gauge(
    "blamespan_kafka_partitions", "{partition}", "Partitions that this process has now."
)
KAFKA_SPILLED_PARTS: Final = counter(
    "blamespan_kafka_spilled_parts{outcome}",
    "{part}",
    "Parts of traces open for more than a minute: `spilled` into PostgreSQL; `recalled` from there by a"
    " partition's next owner; `damaged` there, and missing from the analysis.",
    bound=3,
)
KAFKA_SPILLED_BYTES: Final = gauge(
    "blamespan_kafka_spilled_bytes",
    "By",
    "Bytes, compressed, of this process's open traces in PostgreSQL; at most 256 MiB.",
)
HELD: Final = gauge("blamespan_items_held{signal}", "{item}", "Items in the journal waiting to be forwarded.")
MALFORMED: Final = counter("blamespan_malformed_requests", "{request}", "Requests that could not be parsed.")
OPEN_TRACES: Final = gauge("blamespan_open_traces", "{trace}", "Agent traces that are not complete yet.")
EXAMINATIONS: Final = gauge("blamespan_examinations", "{trace}", "Traces being analysed.")
EARLY_WARNINGS: Final = counter(
    "blamespan_early_warnings",
    "{run}",
    "Runs with a warning before their end.",
    needs="early_false_alarms",
)
EARLY_LOOKS: Final = counter(
    "blamespan_early_looks{outcome}",
    "{look}",
    "Looks at runs before their end: `done`, or `skipped` because too many traces were open.",
    needs="early_false_alarms",
)
EVICTED: Final = counter(
    "blamespan_traces_evicted",
    "{trace}",
    "Agent traces dropped from retention before their analysis; all their spans were forwarded.",
)

PREPARED: Final = counter(
    "blamespan_traces_prepared{outcome}",
    "{trace}",
    "Traces prepared for a verdict: `analysed` if that needed no model; `open` if a model or an analyzer"
    " is asked next, or the spans cannot be read; `lost` if the trace crashed worker processes or used up its"
    " CPU time.",
)
PREPARING_S: Final = counter(
    "blamespan_preparing_seconds",
    "s",
    "Time spent preparing traces, summed over worker processes. A rate near their number means that traces"
    " are queueing.",
)
PROCESSES: Final = gauge(
    "blamespan_analysis_processes",
    "{process}",
    "Running worker processes for analyses; each starts when a run finds the others busy.",
)
PROCESS_STARTS: Final = counter("blamespan_analysis_process_starts", "{process}", "Worker processes started.")
PROCESS_DEATHS: Final = counter(
    "blamespan_analysis_process_deaths",
    "{process}",
    "Worker processes that crashed or were killed: out of memory, or over the CPU limit of an analysis."
    " Other processes take over their traces.",
)
PAGES_RESTARTS: Final = counter(
    "blamespan_pages_restarts",
    "{restart}",
    "Processes of the pages that ended by themselves, or hung for a minute and were killed, and were started"
    " again; spans and verdicts do not wait for them.",
)
STORE_FAULTY: Final = gauge(
    "blamespan_store_faulty{store}",
    "1",
    "1 while a store has not answered for 10 s, or cannot be written (full, read-only, damaged, its server"
    " away) and for 30 s afterwards: `journal` (spans are refused) or `verdicts` (verdicts wait).",
)
TLS_FAILED: Final = counter(
    "blamespan_tls_renewals_failed",
    "{renewal}",
    "Changed TLS files that a listener could not load; it keeps the previous certificate until that expires.",
)

# Queues, failed sends, refused requests and the process: what operators of a Collector look for.
QUEUE_SIZE: Final = gauge(
    "blamespan_queue_size_bytes{signal}",
    "By",
    "Bytes in the journal still to be forwarded, plus 256 for each request.",
    otelcol="otelcol_exporter_queue_size",
)
QUEUE_CAPACITY: Final = gauge(
    "blamespan_queue_capacity_bytes{signal}",
    "By",
    "Limit of pending bytes of all signals together (4/9 of BLAMESPAN_STORAGE_BYTES); beyond it requests are"
    " refused.",
    otelcol="otelcol_exporter_queue_capacity",
)
QUEUE_FULLNESS: Final = gauge(
    "blamespan_queue_fullness{signal}",
    "1",
    "How full the queue is, 0 to 1; at 1 requests are refused. The larger of two shares: the fullest"
    " tenant's share of half the capacity, and the share of all signals of the whole capacity.",
)
QUEUE_AGE: Final = gauge(
    "blamespan_queue_oldest_age_seconds{signal}",
    "s",
    "Age of the oldest item waiting to be forwarded; 0 if there is none.",
)
OLDEST_ACTIONABLE: Final = gauge(
    "blamespan_oldest_actionable_age_seconds",
    "s",
    "Time since the analysis that waits longest could have begun: of a complete trace in `serve` and"
    " `collector`, of a job in `analyzer`; 0 if none waits. Scale on it.",
    halves=tuple(Half),
)
SEND_FAILURES: Final = counter(
    "blamespan_send_failures{signal, cause}",
    "{request}",
    "Failed sends to the backend, counting every try, by cause: no answer (`away`), asked to wait, a"
    " temporary failure (`failing`), a permanent rejection, no such service.",
    otelcol="otelcol_exporter_send_failed_spans (items there, after its last try)",
)
REFUSALS: Final = counter(
    "blamespan_refused_requests{reason}",
    "{request}",
    "Requests that the receivers refused, by reason; without those that the gRPC library refuses itself"
    " (too large, unknown compression).",
    otelcol="otelcol_receiver_refused_spans (items there: blamespan_items_refused_total)",
)
_ALL: Final = tuple(Half)
UPTIME: Final = counter(
    "blamespan_process_uptime_seconds",
    "s",
    "Time since the process started.",
    halves=_ALL,
    otelcol="otelcol_process_uptime",
)
CPU: Final = counter(
    "blamespan_process_cpu_seconds",
    "s",
    "User and system CPU time of the process, without its worker processes.",
    halves=_ALL,
    otelcol="otelcol_process_cpu_seconds",
)
MEMORY: Final = gauge(
    "blamespan_process_memory_rss_bytes",
    "By",
    "Resident memory of the process; Linux only.",
    halves=_ALL,
    otelcol="otelcol_process_memory_rss",
)
BUILD_INFO: Final = gauge(
    "blamespan_build_info{version, python}",
    "1",
    "Always 1; the labels give the versions of blamespan and Python.",
    halves=_ALL,
    otelcol="target_info (service_version)",
)
VERDICTS_SENT: Final = counter(
    "blamespan_verdicts_sent{signal}",
    "{request}",
    "Outbox entries delivered; those of scores have the signal `scores:BACKEND`.",
)
VERDICTS_REFUSED: Final = counter(
    "blamespan_verdicts_refused{signal}", "{request}", "Outbox entries that the backend permanently rejected."
)
VERDICTS_UNSUPPORTED: Final = counter(
    "blamespan_verdicts_unsupported{signal}",
    "{request}",
    "Outbox entries not sent because the backend has no service for their signal.",
)
REDACTED: Final = counter(
    "blamespan_redacted{kind}", "{secret}", "Secrets removed from runs before their analysis."
)

# Verdicts.
RUNS: Final = counter(
    "blamespan_runs{service, status}",
    "{run}",
    "Runs with a settled verdict; each counts once, under the service of its root.",
)
RUNS_WITHDRAWN: Final = withdrawn(RUNS)
TASKS: Final = counter(
    "blamespan_agent_tasks{service, agent}",
    "{run}",
    "Settled runs in which the agent took part: the denominator of its failure rate.",
)
TASKS_WITHDRAWN: Final = withdrawn(TASKS)
FAILURES: Final = counter(
    "blamespan_agent_failures{service, agent, mode}",
    "{run}",
    "Settled runs whose failure is attributed to the agent; the exemplar is the decisive span.",
    has_exemplars=True,
)
FAILURES_WITHDRAWN: Final = withdrawn(FAILURES)
SUSPICIONS: Final = counter(
    "blamespan_agent_suspicions{service, agent, mode}",
    "{run}",
    "Settled runs that reported no failure and in which the agent is suspected of one;"
    " they are not counted as failures.",
    has_exemplars=True,
)
SUSPICIONS_WITHDRAWN: Final = withdrawn(SUSPICIONS)
SUPERSEDED: Final = counter(
    "blamespan_verdicts_superseded",
    "{run}",
    "Settled verdicts replaced by a different verdict; the run's other counts are corrected too.",
)
CONFIDENCE: Final = histogram(
    "blamespan_confidence",
    "1",
    "The method's stated probability that the blamed step is the decisive one.",
    has_exemplars=True,
)
LAG: Final = histogram(
    "blamespan_analysis_lag_seconds",
    "s",
    "From the end of a run's last span until the backend accepted its carrier, or until its verdict if it"
    " has no carrier. Not measured for carriers without a backend and for runs replayed a day later.",
)

# What models cost.
CALLS: Final = counter(
    "blamespan_model_calls{model}", "{call}", "Model calls of analyses that ended in a verdict."
)
TOKENS: Final = counter(
    "blamespan_model_tokens{model, direction}", "{token}", "Input and output tokens of these calls."
)
COST: Final = counter(
    "blamespan_model_cost_usd{model}", "USD", "Cost of these calls, where the price is known."
)
UNPRICED: Final = counter(
    "blamespan_model_unpriced{model}", "{run}", "Analyses with a model call of unknown price."
)
_PAYS: Final[dict[str, Any]] = {"halves": (Half.SERVE, Half.ANALYZER), "needs": "BLAMESPAN_MODEL"}
BUDGET_REFUSALS: Final = counter(
    "blamespan_budget_refusals",
    "{call}",
    "Model calls not made because the hourly budget was used up.",
    **_PAYS,
)
SUSPECT_USAGE: Final = counter(
    "blamespan_model_suspect_usage",
    "{reply}",
    "Model replies that reported more usage than their request could have had. The excess is not counted.",
    **_PAYS,
)
BUDGET_SPENT: Final = gauge(
    "blamespan_budget_spent_usd",
    "USD",
    "Cost of model calls in the last 60 minutes. Calls in progress count at their maximum cost in `serve`.",
    **_PAYS,
)
BUDGET_LIMIT: Final = gauge(
    "blamespan_budget_limit_usd", "USD", "Budget for model calls in 60 minutes.", **_PAYS
)

# The analyzer half.
_ANALYZER: Final = (Half.ANALYZER,)
ANALYSES: Final = counter(
    "blamespan_analyzer_analyses{status}",
    "{analysis}",
    "Analyses done, by the status of their verdict.",
    halves=_ANALYZER,
)
UNDER_WAY: Final = gauge(
    "blamespan_analyzer_under_way", "{analysis}", "Analyses in progress.", halves=_ANALYZER
)
JOBS_WAITING: Final = gauge(
    "blamespan_jobs_waiting",
    "{job}",
    "Runs in the store that wait for an analyzer; every analyzer of a store shows the same number.",
    halves=_ANALYZER,
)
SPENT: Final = counter(
    "blamespan_analyzer_cost_usd",
    "USD",
    "Cost of analyses, where the models' prices are known.",
    halves=_ANALYZER,
)

METRICS: Final = (
    *ITEMS, HELD, KAFKA_RECORDS, KAFKA_REFUSED_COMMITS, KAFKA_PARTITIONS, KAFKA_SPILLED_PARTS,
    KAFKA_SPILLED_BYTES, MALFORMED, OPEN_TRACES,
    EXAMINATIONS, EARLY_WARNINGS, EARLY_LOOKS, EVICTED,
    PREPARED, PREPARING_S, PROCESSES, PROCESS_STARTS, PROCESS_DEATHS, PAGES_RESTARTS,
    STORE_FAULTY, TLS_FAILED,
    QUEUE_SIZE, QUEUE_CAPACITY, QUEUE_FULLNESS, QUEUE_AGE, OLDEST_ACTIONABLE, SEND_FAILURES, REFUSALS,
    UPTIME, CPU, MEMORY, BUILD_INFO,
    VERDICTS_SENT, VERDICTS_REFUSED, VERDICTS_UNSUPPORTED, REDACTED,
    RUNS, RUNS_WITHDRAWN, TASKS, TASKS_WITHDRAWN, FAILURES, FAILURES_WITHDRAWN, SUSPICIONS,
    SUSPICIONS_WITHDRAWN, SUPERSEDED, CONFIDENCE, LAG,
    CALLS, TOKENS, COST, UNPRICED, BUDGET_REFUSALS, SUSPECT_USAGE, BUDGET_SPENT, BUDGET_LIMIT,
    ISSUES, STANDING, ALARM, SHARE_LOW, WORKFLOW_REGRESSED, WORKFLOW_PASSED,
    REPEATED, *NOTICES,
    ANALYSES, UNDER_WAY, JOBS_WAITING, SPENT,
)  # fmt: skip
"""All metrics, in the order of docs/metrics.md."""
