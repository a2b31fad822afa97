CREATE TABLE absent_parent (
	tenant TEXT NOT NULL, 
	kind INTEGER NOT NULL, 
	service TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	since_ns INTEGER NOT NULL, 
	has_arrived BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (tenant, kind)
)
 WITHOUT ROWID;
CREATE TABLE agent_day (
	tenant TEXT NOT NULL, 
	service TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	day INTEGER NOT NULL, 
	took_part INTEGER NOT NULL, 
	blamed INTEGER NOT NULL, 
	PRIMARY KEY (tenant, service, agent, day)
)
 WITHOUT ROWID;
CREATE TABLE analysed (
	tenant TEXT NOT NULL, 
	trace_id TEXT NOT NULL, 
	analyses INTEGER NOT NULL, 
	upto_seq INTEGER NOT NULL, 
	PRIMARY KEY (tenant, trace_id)
)
 WITHOUT ROWID;
CREATE TABLE command (
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	given_ns INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	outcome TEXT, 
	PRIMARY KEY (id)
)
 WITHOUT ROWID;
CREATE TABLE counted_run (
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	service TEXT NOT NULL, 
	agents TEXT NOT NULL, 
	blamed TEXT, 
	step INTEGER, 
	mark TEXT, 
	issue TEXT, 
	decided_ns INTEGER NOT NULL, 
	label TEXT, 
	label_agent TEXT, 
	label_step INTEGER, 
	status TEXT DEFAULT '' NOT NULL, 
	settled_ns INTEGER DEFAULT 0 NOT NULL, 
	rules TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (tenant, run_id)
)
 WITHOUT ROWID;
CREATE TABLE cursor (
	name TEXT NOT NULL, 
	value INTEGER NOT NULL, 
	PRIMARY KEY (name)
)
 WITHOUT ROWID;
CREATE TABLE heeded (
	label INTEGER NOT NULL
);
CREATE TABLE issue (
	tenant TEXT NOT NULL, 
	id TEXT NOT NULL, 
	mark TEXT NOT NULL, 
	state TEXT NOT NULL, 
	since_ns INTEGER NOT NULL, 
	first_ns INTEGER NOT NULL, 
	last_ns INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	runs TEXT NOT NULL, 
	muted_until_ns INTEGER NOT NULL, 
	PRIMARY KEY (tenant, id)
)
 WITHOUT ROWID;
CREATE TABLE job (
	id TEXT NOT NULL, 
	choice TEXT NOT NULL, 
	body BLOB NOT NULL, 
	asked_ns INTEGER NOT NULL, 
	claims INTEGER DEFAULT 0 NOT NULL, 
	returned INTEGER DEFAULT 0 NOT NULL, 
	lease_ns INTEGER DEFAULT 0 NOT NULL, 
	answer BLOB, 
	answered_ns INTEGER DEFAULT 0 NOT NULL, 
	progress TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
)
 WITHOUT ROWID;
CREATE TABLE kept_run (
	id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	is_failure BOOLEAN DEFAULT 0 NOT NULL, 
	is_labelled BOOLEAN DEFAULT 0 NOT NULL, 
	kept_ns INTEGER NOT NULL, 
	size INTEGER NOT NULL, 
	packed BLOB NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE kept_spans (
	id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	is_failure BOOLEAN DEFAULT 0 NOT NULL, 
	kept_ns INTEGER NOT NULL, 
	size INTEGER NOT NULL, 
	packed BLOB NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE label (
	id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	service TEXT NOT NULL, 
	labelled_ns INTEGER NOT NULL, 
	agent TEXT, 
	step INTEGER, 
	span_id TEXT, 
	why TEXT, 
	author TEXT, 
	PRIMARY KEY (id)
);
CREATE TABLE notice (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	target TEXT NOT NULL, 
	issue TEXT NOT NULL, 
	noted_ns INTEGER NOT NULL, 
	document TEXT NOT NULL
);
CREATE TABLE opinion (
	id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	method TEXT NOT NULL, 
	model TEXT NOT NULL, 
	run_digest TEXT NOT NULL, 
	given_ns INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE outbox (
	id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	signal TEXT NOT NULL, 
	body BLOB NOT NULL, 
	ended_ns INTEGER DEFAULT 0 NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE place (
	id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	packed BLOB NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE proof (
	tenant TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	service TEXT NOT NULL, 
	ended_ns INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (tenant, subject, kind)
)
 WITHOUT ROWID;
CREATE TABLE replica (
	id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	version TEXT NOT NULL, 
	clock_ns INTEGER NOT NULL, 
	seen_ns INTEGER NOT NULL, 
	facts TEXT NOT NULL, 
	PRIMARY KEY (id)
)
 WITHOUT ROWID;
CREATE TABLE rewrite (
	seq INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	tenant TEXT DEFAULT '' NOT NULL, 
	late BLOB, 
	PRIMARY KEY (seq)
);
CREATE TABLE run_history (
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	said TEXT NOT NULL, 
	version TEXT NOT NULL, 
	release TEXT NOT NULL, 
	elements BLOB NOT NULL, 
	invariants BLOB, 
	PRIMARY KEY (tenant, run_id)
)
 WITHOUT ROWID;
CREATE TABLE run_key (
	tenant TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	trace_id TEXT NOT NULL, 
	PRIMARY KEY (tenant, "key", trace_id)
)
 WITHOUT ROWID;
CREATE TABLE run_part (
	tenant TEXT NOT NULL, 
	trace_id TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	PRIMARY KEY (tenant, trace_id, run_id)
)
 WITHOUT ROWID;
CREATE TABLE run_text (
	id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE run_totals (
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	decided_ns INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	agent TEXT, 
	service TEXT NOT NULL, 
	confidence DOUBLE, 
	workflow TEXT, 
	steps INTEGER, 
	started_ns INTEGER, 
	duration_ns INTEGER, 
	input_tokens INTEGER, 
	output_tokens INTEGER, 
	tokens INTEGER, 
	cost_usd DOUBLE, 
	PRIMARY KEY (tenant, run_id)
)
 WITHOUT ROWID;
CREATE TABLE spending (
	id INTEGER NOT NULL, 
	at_ns INTEGER NOT NULL, 
	usd DOUBLE NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE spilled_part (
	topic TEXT NOT NULL, 
	partition INTEGER NOT NULL, 
	first_offset INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	trace_id TEXT NOT NULL, 
	last_offset INTEGER NOT NULL, 
	spilled_ns INTEGER NOT NULL, 
	packed BLOB NOT NULL, 
	PRIMARY KEY (topic, partition, first_offset, tenant, trace_id)
)
 WITHOUT ROWID;
CREATE TABLE target (
	name TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	next_ns INTEGER NOT NULL, 
	PRIMARY KEY (name)
)
 WITHOUT ROWID;
CREATE TABLE told (
	target TEXT NOT NULL, 
	at_ns INTEGER NOT NULL
);
CREATE TABLE trial (
	tenant TEXT NOT NULL, 
	id TEXT NOT NULL, 
	expires_ns INTEGER NOT NULL, 
	PRIMARY KEY (tenant, id)
)
 WITHOUT ROWID;
CREATE TABLE trial_arm (
	id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	step INTEGER NOT NULL, 
	is_changed BOOLEAN DEFAULT 0 NOT NULL, 
	has_passed BOOLEAN DEFAULT 0 NOT NULL, 
	kept_ns INTEGER NOT NULL, 
	size INTEGER NOT NULL, 
	packed BLOB NOT NULL, 
	PRIMARY KEY (id)
)
 WITHOUT ROWID;
CREATE TABLE verdict (
	tenant TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	failure_id TEXT NOT NULL, 
	status TEXT NOT NULL, 
	agent TEXT, 
	step INTEGER, 
	span_id TEXT, 
	trace_id TEXT, 
	service TEXT NOT NULL, 
	is_provisional BOOLEAN DEFAULT 0 NOT NULL, 
	decided_ns INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (tenant, run_id, version)
)
 WITHOUT ROWID;
CREATE TABLE watch (
	tenant TEXT NOT NULL, 
	service TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	begun_day INTEGER NOT NULL, 
	last_day INTEGER NOT NULL, 
	hits INTEGER NOT NULL, 
	n INTEGER NOT NULL, 
	sums TEXT NOT NULL, 
	is_alarm BOOLEAN DEFAULT 0 NOT NULL, 
	calm_runs INTEGER NOT NULL, 
	alarm_ns INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	PRIMARY KEY (tenant, service, agent)
)
 WITHOUT ROWID;
CREATE INDEX analysed_by_seq ON analysed (upto_seq);
CREATE INDEX command_by_run ON command (tenant, run_id);
CREATE INDEX counted_run_by_issue ON counted_run (tenant, issue, decided_ns);
CREATE INDEX counted_run_by_label ON counted_run (tenant, service, label);
CREATE INDEX counted_run_by_time ON counted_run (decided_ns);
CREATE INDEX issue_by_time ON issue (last_ns);
CREATE INDEX job_by_age ON job (asked_ns);
CREATE INDEX kept_run_by_age ON kept_run (is_labelled, is_failure, kept_ns, size);
CREATE UNIQUE INDEX kept_run_by_id ON kept_run (tenant, run_id);
CREATE INDEX kept_spans_by_age ON kept_spans (is_failure, kept_ns, size);
CREATE UNIQUE INDEX kept_spans_by_id ON kept_spans (tenant, run_id);
CREATE INDEX label_by_run ON label (tenant, run_id, id);
CREATE INDEX opinion_by_run ON opinion (tenant, run_id, id);
CREATE INDEX opinion_by_time ON opinion (given_ns);
CREATE INDEX outbox_by_signal ON outbox (signal, id);
CREATE INDEX place_by_age ON place (id, size);
CREATE UNIQUE INDEX place_by_run ON place (tenant, run_id);
CREATE INDEX proof_by_age ON proof (ended_ns);
CREATE INDEX proof_by_service ON proof (tenant, service, ended_ns);
CREATE INDEX run_key_by_trace ON run_key (tenant, trace_id);
CREATE UNIQUE INDEX run_text_by_run ON run_text (tenant, run_id);
CREATE INDEX run_totals_by_confidence ON run_totals (confidence, tenant, run_id);
CREATE INDEX run_totals_by_cost ON run_totals (cost_usd, tenant, run_id);
CREATE INDEX run_totals_by_duration ON run_totals (duration_ns, tenant, run_id);
CREATE INDEX run_totals_by_steps ON run_totals (steps, tenant, run_id);
CREATE INDEX run_totals_by_tenant ON run_totals (tenant, decided_ns, run_id, status);
CREATE INDEX run_totals_by_time ON run_totals (decided_ns, tenant, run_id, status);
CREATE INDEX run_totals_by_tokens ON run_totals (tokens, tenant, run_id);
CREATE INDEX run_totals_by_workflow ON run_totals (tenant, service, workflow, decided_ns);
CREATE INDEX spilled_part_by_age ON spilled_part (spilled_ns);
CREATE INDEX spilled_part_by_trace ON spilled_part (tenant, trace_id);
CREATE INDEX trial_arm_by_age ON trial_arm (kept_ns, id, size);
CREATE INDEX trial_arm_by_run ON trial_arm (tenant, run_id);
CREATE INDEX verdict_by_run ON verdict (run_id);
CREATE INDEX verdict_by_time ON verdict (decided_ns);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
