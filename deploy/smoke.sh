#!/bin/sh
# Plays a recorded run into a running compose setup, and waits for blamespan's verdict on it.
#
# The run passes, so it opens no issue and fires no alert. With --blame the run fails, and the script checks that
# blamespan says who broke it; the issue that this opens is muted for a year.
#
# Needs blamespan's command (pip install '.[server]' in a checkout, or `docker compose exec blamespan blamespan`).
#   BLAMESPAN_TOKEN=… deploy/smoke.sh [--blame] [OTLP endpoint] [blamespan's page]
set -eu
blame=
if [ "${1:-}" = --blame ]; then
    blame=yes
    shift
fi
otlp=${1:-http://127.0.0.1:4317}
page=${2:-http://127.0.0.1:8500}
token=${BLAMESPAN_TOKEN:-}
trace=$(python3 -c 'import secrets; print(secrets.token_hex(16))')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ask PATH FIELD…: prints fields of blamespan's answer, one a line; ask PATH --post BODY: sends something.
ask() {
    python3 - "$page" "$token" "$@" <<'PY'
import json, sys, urllib.request
page, token, path, *fields = sys.argv[1:]
headers = {"authorization": "Bearer " + token} if token else {}
body = fields[1].encode() if fields[:1] == ["--post"] else None
if body:
    headers["content-type"] = "application/json"
answer = urllib.request.urlopen(urllib.request.Request(page + path, data=body, headers=headers), timeout=5)
if not body:
    found = json.loads(answer.read())
    if "issues" in found:
        print(*(one["id"] for one in found["issues"]), sep="\n")
    else:
        print(*(found.get(field) for field in fields))
PY
}

if [ -n "$blame" ]; then
    root='"status": {"code": 2, "message": "the answer is wrong"},'
    tool='"status": {"code": 2, "message": "ValueError: not a number"},'
    expected="attributed calculator False"
else
    root='"status": {"code": 1},'
    tool='"status": {"code": 1},'
    expected="no_failure None False"
fi
cat > "$work/run.json" <<RUN
{"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "smoke"}}]},
 "scopeSpans": [{"scope": {"name": "smoke"}, "spans": [
 {"traceId": "$trace", "spanId": "0000000000000001", "name": "invoke_workflow smoke", "kind": 1,
  "startTimeUnixNano": "$(date +%s)000000000", "endTimeUnixNano": "$(date +%s)900000000", $root
  "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_workflow"}}]},
 {"traceId": "$trace", "spanId": "0000000000000002", "parentSpanId": "0000000000000001",
  "name": "execute_tool add", "kind": 1,
  "startTimeUnixNano": "$(date +%s)100000000", "endTimeUnixNano": "$(date +%s)200000000", $tool
  "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
   {"key": "gen_ai.agent.name", "value": {"stringValue": "calculator"}},
   {"key": "gen_ai.tool.name", "value": {"stringValue": "add"}}]}]}]}]}
RUN

echo "sending a run to $otlp"
blamespan replay "$work/run.json" --endpoint "$otlp" --protocol grpc >/dev/null
verdict=
for _ in $(seq 60); do
    verdict=$(ask "/api/runs/$trace" status agent provisional 2>/dev/null) || true
    [ "$verdict" = "$expected" ] && break
    sleep 1
done
if [ "$verdict" != "$expected" ]; then
    echo "expected the verdict \"$expected\" within a minute, got \"$verdict\" (status, agent, provisional)" >&2
    exit 1
fi
if [ -n "$blame" ]; then
    for _ in $(seq 60); do
        issues=$(ask "/api/issues?service=smoke") && [ -n "$issues" ] && break
        sleep 1
    done
    for issue in $issues; do
        ask "/api/issues/$issue/mute" --post '{"for_s": 31536000}'
    done
    echo "blamed: calculator, as it should be; its issue is muted"
else
    echo "passed: the run went all the way, and its verdict is that nobody broke it"
fi
echo "page:   $page/runs/$trace"
