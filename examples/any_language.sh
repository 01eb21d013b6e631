#!/bin/sh
# A tool-using agent in plain shell: any program that can send an HTTP request can be crash-proof.
#
# Start the proxy:  agentstate serve --simulate       (no key needed; without --simulate, set OPENAI_API_KEY)
# Start the agent:  sh examples/any_language.sh [SESSION]
#
# Session and run are in the base URL: /s/SESSION/r/RUN/v1. The session is the same in every life of the agent, the run
# another one each time. Kill it at any moment and start it again: it goes on where it was, and nothing is paid twice.
# Needs curl, sed and tr. Session and run are put into the URL as they are: keep them to letters, digits, '-' and '_'.
set -eu

session="${1:-shell-agent}"
run="${AGENTSTATE_RUN_ID:-$(date +%s)-$$}"
proxy="${AGENTSTATE_URL:-http://localhost:8080/v1}"
url="${proxy%/v1}/s/$session/r/$run/v1/chat/completions"
model="${MODEL:-gpt-4o-mini}"
key="${OPENAI_API_KEY:-OPENAI_API_KEY-is-not-set}"

tools='[{"type":"function","function":{"name":"disk_use","description":"How full a disk is.",
  "parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}]'
messages='{"role":"user","content":"Is there room left on the backup disk?"}'

ask() {  # one model call: prints the answer as one line of JSON, or ends the script with the proxy's words
  printf '{"model":"%s","messages":[%s],"tools":%s,"parallel_tool_calls":false}' "$model" "$messages" "$tools" |
    curl --silent --show-error --fail-with-body --max-time 600 "$url" \
      --header "Authorization: Bearer $key" --header 'Content-Type: application/json' --data-binary @- |
    tr -d '\n'
}

text_of() {  # the JSON string of a field, still escaped: text_of FIELD JSON
  printf '%s\n' "$2" | sed -nE "s/.*\"$1\": *\"(([^\"\\\\]|\\\\.)*)\".*/\\1/p"
}

while :; do
  answer=$(ask)
  id=$(text_of id "$(printf '%s' "$answer" | sed -nE 's/.*("id": *"call_[^"]*").*/\1/p')")
  if [ -z "$id" ]; then
    case "$answer" in *'"choices"'*) text_of content "$answer"; exit 0 ;; *) printf '%s\n' "$answer" >&2; exit 1 ;; esac
  fi
  name=$(text_of name "$answer")
  arguments=$(text_of arguments "$answer")
  result="62 per cent used"
  printf '%s(%s) -> %s\n' "$name" "$arguments" "$result"
  call='{"id":"'$id'","type":"function","function":{"name":"'$name'","arguments":"'$arguments'"}}'
  messages="$messages"',{"role":"assistant","content":null,"tool_calls":['$call']}'
  messages="$messages"',{"role":"tool","tool_call_id":"'$id'","content":"'$result'"}'
done
