#!/bin/sh
# Plays a recorded failing run into a running compose setup, and asks blamespan who broke it.
#
# Needs blamespan's command (pip install 'blamespan[server]', or `docker compose exec blamespan blamespan`).
#   BLAMESPAN_TOKEN=… deploy/smoke.sh [OTLP endpoint] [blamespan's page]
set -eu
otlp=${1:-http://127.0.0.1:14317}
page=${2:-http://127.0.0.1:8500}
token=${BLAMESPAN_TOKEN:-}
trace=$(python3 -c 'import secrets; print(secrets.token_hex(16))')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

get() {
    python3 -c '
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"authorization": "Bearer " + sys.argv[2]} if sys.argv[2] else {})
print(urllib.request.urlopen(request, timeout=5).read().decode())' "$1" "$token"
}

cat > "$work/run.json" <<RUN
{"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "smoke"}}]},
 "scopeSpans": [{"scope": {"name": "smoke"}, "spans": [
 {"traceId": "$trace", "spanId": "0000000000000001", "name": "invoke_workflow smoke", "kind": 1,
  "startTimeUnixNano": "$(date +%s)000000000", "endTimeUnixNano": "$(date +%s)900000000",
  "status": {"code": 2, "message": "the answer is wrong"},
  "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_workflow"}}]},
 {"traceId": "$trace", "spanId": "0000000000000002", "parentSpanId": "0000000000000001",
  "name": "execute_tool add", "kind": 1,
  "startTimeUnixNano": "$(date +%s)100000000", "endTimeUnixNano": "$(date +%s)200000000",
  "status": {"code": 2, "message": "ValueError: not a number"},
  "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
   {"key": "gen_ai.agent.name", "value": {"stringValue": "calculator"}},
   {"key": "gen_ai.tool.name", "value": {"stringValue": "add"}}]}]}]}]}
RUN

echo "sending a failing run to $otlp"
blamespan replay "$work/run.json" --endpoint "$otlp" --protocol grpc >/dev/null
for _ in $(seq 60); do
    if verdict=$(get "$page/api/runs/$trace" 2>/dev/null) && echo "$verdict" | grep -q '"agent": *"calculator"'; then
        echo "blamed: calculator, as it should be"
        echo "page:   $page/runs/$trace"
        exit 0
    fi
    sleep 1
done
echo "no verdict within a minute" >&2
exit 1
