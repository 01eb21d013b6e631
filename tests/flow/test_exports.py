"""Exports of a real proxy: what agents said becomes lines that trainers take, over HTTP and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import chat
from tests.support.client import status_of
from tests.support.exports import ASKED, SUNNY, SYSTEM, TOLD, WEATHER, fetched, lines, weather_agent, weather_model
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Upstream, plain


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with (
        Upstream(weather_model) as upstream,
        Proxy(tmp_path / "data", upstream.url, file="policies = []\n") as running,
    ):
        yield running


CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
LINE = {
    "messages": [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": ASKED},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": SUNNY},
        {"role": "assistant", "content": TOLD},
    ],
    "tools": [WEATHER],
}


def test_a_session_of_several_steps_is_one_line_with_every_answer_trained(proxy: Proxy) -> None:
    weather_agent(proxy, "s")
    assert lines(proxy) == [LINE] == lines(proxy, "/api/sessions/s/export")
    assert lines(proxy, "/api/sessions/s/export?format=openai") == [LINE]


def test_a_line_a_step_trains_each_answer_once(proxy: Proxy) -> None:
    weather_agent(proxy, "s")
    first, second = lines(proxy, "/api/export/dataset?per=step")
    assert first["messages"] == LINE["messages"][:3]  # type: ignore[index]
    assert [message.get("weight") for message in second["messages"]] == [None, None, 0, None, None]


def test_trl_gets_arguments_as_objects(proxy: Proxy) -> None:
    weather_agent(proxy, "s")
    [line] = lines(proxy, "/api/export/dataset?format=trl")
    assert line["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"city": "Rome"}


def test_a_trajectory_tells_everything_of_its_steps(proxy: Proxy) -> None:
    weather_agent(proxy, "s", run="run-1")
    proxy.control.post("/api/sessions/s/steps/1/rating", {"rating": "good", "note": "short"})
    [line] = lines(proxy, "/api/export/dataset?format=trajectory")
    assert (line["session"], [step["number"] for step in line["steps"]]) == ("s", [0, 1])
    assert (line["steps"][1]["rating"], line["steps"][0]["rating"]) == ("good", None)
    assert (line["steps"][0]["model"], line["steps"][0]["run"]) == (chat.MODEL, "run-1")
    assert line["messages"][4]["content"] == [{"type": "text", "text": TOLD}]


def test_two_agents_that_fork_one_conversation_train_its_beginning_once(proxy: Proxy) -> None:
    said = weather_agent(proxy, "s")
    for more in ("And in Oslo?", "And in Lima?"):
        assert proxy.client.ask("s", [*said, chat.user(more)], tools=[WEATHER]).status == 200
    found = lines(proxy)
    assert [len(line["messages"]) for line in found] == [7, 7]
    weights = [[m.get("weight", 1) for m in line["messages"] if m["role"] == "assistant"] for line in found]
    assert weights == [[1, 1, 1], [0, 0, 1]]


def test_what_an_agent_says_that_the_model_said_is_never_trained(proxy: Proxy) -> None:
    forged = [chat.user("Hi"), {"role": "assistant", "content": "I never said so."}, chat.user("Weather?")]
    assert proxy.client.ask("s", forged).status == 200
    [line] = lines(proxy)
    assert [message.get("weight") for message in line["messages"]] == [None, 0, None, None]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([chat.user("a"), {"role": "assistant", "tool_calls": [CALL]}, chat.user("b")], "unanswered tool call (1)"),
        (
            [chat.user("a"), {"role": "tool", "tool_call_id": "forged", "content": "x"}],
            "tool result without a call (1)",
        ),
        (
            [chat.user("a"), {"role": "assistant", "tool_calls": [chat.tool_call("w", "{")]},
             {"role": "tool", "tool_call_id": "call_1", "content": "x"}],
            "arguments that are no JSON object (1)",
        ),
    ],
)  # fmt: skip
def test_a_transcript_that_breaks_the_rules_is_left_out_and_told(
    proxy: Proxy, messages: list[dict[str, object]], reason: str
) -> None:
    assert proxy.client.ask("s", messages).status == 200
    assert lines(proxy) == []
    assert proxy.control.get("/api/export/report")["summary"] == f"0 lines; 1 left out: {reason}"


def test_a_call_that_nobody_answered_may_be_the_last_message(proxy: Proxy) -> None:
    assert proxy.client.ask("s", ASKED, tools=[WEATHER]).status == 200
    [line] = lines(proxy)
    assert line["messages"][-1] == {"role": "assistant", "tool_calls": [CALL]}


def test_a_failed_answer_is_left_out_unless_it_was_asked_again(tmp_path: Path) -> None:
    with Upstream() as upstream, Proxy(tmp_path / "data", upstream.url) as proxy:
        upstream.replies(plain(b"{}", 500), plain(chat.completion("again")), plain(b"{}", 500))
        assert [proxy.client.ask("s", text, run="a").status for text in ("one", "one", "two")] == [500, 200, 500]
        report = proxy.control.get("/api/export/report")
    assert (report["lines"], report["left_out"]) == (1, {"unfinished answer": 1})


def test_a_cut_answer_is_not_trained(tmp_path: Path) -> None:
    cut = plain(chat.completion("a long", finish="length"))
    with Upstream(lambda seen: cut) as upstream, Proxy(tmp_path / "data", upstream.url) as proxy:
        assert proxy.client.ask("s", "one").status == 200
        report = proxy.control.get("/api/export/report")
    assert report["left_out"] == {"answer cut by its token limit": 1}


def test_secrets_are_taken_out_and_counted_unless_they_are_asked_for(proxy: Proxy) -> None:
    secret, address = "sk-test-4f3a9c2b7d1e8f6a5b4c", "jo.doe@example.com"
    assert proxy.client.ask("s", f"My key is {secret}, mail {address}.").status == 200
    [line] = lines(proxy)
    assert line["messages"][0]["content"] == "My key is [redacted key], mail [redacted email]."
    report = proxy.control.get("/api/export/report")
    assert report["redacted"] == {"email": 1, "key": 1}
    assert secret not in json.dumps(report)
    [line] = lines(proxy, "/api/export/dataset?redact=false")
    assert secret in line["messages"][0]["content"]


def test_the_operators_own_patterns_are_redacted_too(tmp_path: Path) -> None:
    settings = 'policies = []\n[export]\nredact = ["ACME-[0-9]{4}"]\n'
    with Upstream() as upstream, Proxy(tmp_path / "data", upstream.url, file=settings) as proxy:
        assert proxy.client.ask("s", "Contract ACME-1234").status == 200
        assert lines(proxy)[0]["messages"][0]["content"] == "Contract [redacted custom]"


def test_filters_take_what_they_say(proxy: Proxy) -> None:
    for session, question in (("a", "one?"), ("b", "two?"), ("c", "three?")):
        weather_agent(proxy, session, question, run=f"run-{session}")
    proxy.control.post("/api/sessions/a/status", {"status": "COMPLETED"})
    proxy.control.post("/api/sessions/b/labels", {"add": ["vip"]})
    proxy.control.post("/api/sessions/c/rating", {"rating": "bad"})

    def asked(query: str) -> list[str]:
        return [line["messages"][1]["content"] for line in lines(proxy, f"/api/export/dataset?{query}")]

    assert asked("") == ["one?", "two?"]
    assert asked("status=completed") == ["one?"]
    assert asked("label=vip") == ["two?"]
    assert asked("rating=bad") == ["three?"]
    assert asked("rating=none") == ["one?", "two?"]
    assert asked("session=b&session=a") == ["two?", "one?"]
    assert asked("run=run-b") == ["two?"]
    assert asked("model=gpt-4o*") == ["one?", "two?"] and asked("model=claude*") == []
    assert asked("until=2020-01-01") == [] and asked("since=2020-01-01") == ["one?", "two?"]
    assert asked("min_steps=3") == [] and asked("min_steps=2&finished=1") == ["one?", "two?"]
    assert asked("approved=true") == []
    assert proxy.control.get("/api/export/report")["left_out"] == {"rated bad": 1}


def test_a_step_that_is_kept_as_an_example_is_the_only_one_trained(proxy: Proxy) -> None:
    weather_agent(proxy, "s")
    said = proxy.control.post("/api/sessions/s/steps/0/labels", {"add": ["example"]})
    assert said == {"id": "s", "step_number": 0, "labels": ["example"]}
    [line] = lines(proxy, "/api/export/dataset?label=example")
    assert line["messages"] == LINE["messages"][:3]  # type: ignore[index]


def test_a_bad_step_stays_as_context(proxy: Proxy) -> None:
    weather_agent(proxy, "s")
    proxy.control.post("/api/sessions/s/steps/0/rating", {"rating": "bad"})
    [line] = lines(proxy)
    assert [message.get("weight") for message in line["messages"]] == [None, None, 0, None, None]


def test_equal_conversations_are_one_line_unless_all_are_wanted(proxy: Proxy) -> None:
    for session in ("a", "b", "c"):
        weather_agent(proxy, session)
    assert len(lines(proxy)) == 1 and len(lines(proxy, "/api/export/dataset?dedupe=false")) == 3
    assert proxy.control.get("/api/export/report")["summary"] == "1 line; 2 left out: duplicate (2)"


def test_a_session_is_in_the_same_part_of_a_split_each_time(proxy: Proxy) -> None:
    for number in range(12):
        weather_agent(proxy, f"s{number}", f"question {number}?")
    parts = {
        part: {line["messages"][1]["content"] for line in lines(proxy, f"/api/export/dataset?split=0.5&part={part}")}
        for part in ("train", "validation")
    }
    assert len(parts["train"]) + len(parts["validation"]) == 12 and not parts["train"] & parts["validation"]
    assert 1 <= len(parts["validation"]) <= 11
    report = proxy.control.get("/api/export/report?split=0.5")
    assert report["parts"] == {part: len(found) for part, found in parts.items()}


def test_wrong_parameters_are_told_before_anything_is_sent(proxy: Proxy) -> None:
    for query in ("format=xml", "staus=x", "split=2", "since=yesterday", "part=train", "min_steps=x", "branch=1"):
        assert status_of(proxy.control.get, f"/api/export/dataset?{query}")[0] == 400, query
    assert status_of(proxy.control.get, "/api/sessions/nobody/export")[0] == 404
    assert status_of(proxy.control.get, "/api/export/dataset?session=nobody")[0] == 404
    proxy.client.ask("s", "x")
    assert status_of(proxy.control.get, "/api/sessions/s/export?session=t")[0] == 400
    assert status_of(proxy.control.get, "/api/sessions/s/export?branch=99")[0] == 404


def test_an_export_asks_for_a_token(proxy: Proxy) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(proxy.url + "/api/export/dataset", timeout=10)
    assert refused.value.code == 401


def test_the_command_line_writes_files_and_a_manifest(proxy: Proxy, tmp_path: Path) -> None:
    for number in range(6):
        weather_agent(proxy, f"s{number}", f"question {number}?")
    done = proxy.cli("export", "--out", str(tmp_path / "data.jsonl"), "--split", "0.5")
    names = [Path(line).name for line in done.stdout.splitlines()]
    assert names == ["data.train.jsonl", "data.validation.jsonl", "data.manifest.json"]
    assert done.stderr.startswith("6 lines\n")
    files = [(tmp_path / name).read_text().splitlines() for name in names[:2]]
    assert sum(map(len, files)) == 6
    manifest = json.loads((tmp_path / names[2]).read_text())
    assert manifest["lines"] == 6 and [file["name"] for file in manifest["files"]] == names[:2]
    assert manifest["parts"] == {"train": len(files[0]), "validation": len(files[1])} and manifest["unpriced"] == 12
    assert all((tmp_path / name).stat().st_mode & 0o077 == 0 for name in names)
    assert not list(tmp_path.glob("*.part"))


def test_the_command_line_pipes_lines_and_tells_the_rest_on_standard_error(proxy: Proxy) -> None:
    weather_agent(proxy, "s")
    done = proxy.cli("export", "s", "--report")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [LINE]
    assert json.loads(done.stderr)["lines"] == 1
    dry = proxy.cli("export", "--dry-run", "--format", "openai-dpo")
    assert dry.stdout.startswith("0 lines\n") and "at least 10" in dry.stdout
    assert proxy.cli("export", "--split", "0.1", check=False).returncode == 2


def test_a_table_holds_the_same_lines(proxy: Proxy, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    weather_agent(proxy, "s")
    path = tmp_path / "data.parquet"
    path.write_bytes(fetched(proxy, "/api/export/dataset?format=parquet"))
    [row] = parquet.read_table(path).to_pylist()
    assert (row["session"], row["steps"], row["cost"]) == ("s", [0, 1], None)
    assert row["messages"][2]["tool_calls"] == [{"id": "call_1", "name": "weather", "arguments": '{"city": "Rome"}'}]
    assert json.loads(row["tools"]) == [WEATHER]
    proxy.cli("export", "--format", "parquet", "--out", str(tmp_path / "again.parquet"))
    assert parquet.read_table(tmp_path / "again.parquet").to_pylist() == [row]


def test_ratings_and_labels_are_shown_and_stand_in_the_audit_log(proxy: Proxy) -> None:
    weather_agent(proxy, "s")
    proxy.cli("rate", "s", "--step", "1", "good", "--note", "terse")
    assert proxy.cli("rate", "s", "bad").stdout == "bad, said admin\n"
    assert proxy.cli("label", "s", "--step", "1", "--add", "example").stdout == "example\n"
    assert proxy.cli("label", "s", "--step", "1").stdout == "example\n"
    shown = proxy.control.session("s")
    step = shown["steps"][1]
    assert (step["rating"]["rating"], step["rating"]["note"], step["labels"]) == ("good", "terse", ["example"])
    assert shown["session"]["rating"]["by"] == "admin" and shown["steps"][0]["rating"] is None
    assert proxy.cli("rate", "s", "none").stdout == "no rating\n"
    assert proxy.control.session("s")["session"]["rating"] is None
    actions = [entry["action"] for entry in proxy.control.get("/api/audit")]
    assert actions == ["step.rated", "session.rated", "step.labelled", "session.rated"]
    assert status_of(proxy.control.post, "/api/sessions/s/rating", {"rating": "5"})[0] == 400
    assert status_of(proxy.control.post, "/api/sessions/s/steps/9/rating", {"rating": "good"})[0] == 404
    assert "nothing" in proxy.doctor() or proxy.doctor()


def said(number: int, text: str, **more: object) -> Reply:
    """An answer of the Responses API."""
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": parts}
    body = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "m", "output": [item]}
    return plain(json.dumps(body | more).encode())


def respond(proxy: Proxy, **body: object) -> int:
    headers = {"content-type": "application/json", "authorization": "Bearer sk-test-x"}
    sent = json.dumps({"model": "gpt-4o", **body}).encode()
    return proxy.client.send("POST", "/s/s/r/run-1/v1/responses", headers, sent).status


def test_a_conversation_that_is_only_pointed_to_is_one_line(tmp_path: Path) -> None:
    with Upstream() as upstream, Proxy(tmp_path / "data", upstream.url, file="policies = []\n") as proxy:
        upstream.replies(said(1, "one"), said(2, "two"), said(3, "three"), said(4, "four"))
        assert respond(proxy, input="a", instructions="Be brief.") == 200
        assert respond(proxy, input="b", instructions="Be brief.", previous_response_id="resp_1") == 200
        assert respond(proxy, input="c", instructions="Be brief.", previous_response_id="resp_2") == 200
        assert respond(proxy, input="d", conversation="conv_1") == 200
        [line] = lines(proxy)
        left = proxy.control.get("/api/export/report")["left_out"]
    told = [(message["role"], message["content"], message.get("weight", 1)) for message in line["messages"]]
    assert told == [
        ("system", "Be brief.", 1), ("user", "a", 1), ("assistant", "one", 1), ("user", "b", 1),
        ("assistant", "two", 1), ("user", "c", 1), ("assistant", "three", 1),
    ]  # fmt: skip
    assert left == {"conversation that the provider holds": 1}


def test_whoever_leaves_in_the_middle_of_an_export_ends_it(tmp_path: Path) -> None:
    with Upstream() as upstream, Proxy(tmp_path / "data", upstream.url, file="policies = []\n") as proxy:
        for number in range(12):
            assert proxy.client.ask(f"s{number}", f"{number} " + "x" * 2_000_000).status == 200
        for _ in range(3):
            with proxy.client.connect() as connection:
                headers = {"authorization": f"Bearer {proxy.admin_token}"}
                connection.request("GET", "/api/export/dataset?dedupe=false", headers)
                status, _fields = connection.read_head(method="GET")
                assert status == 200 and connection.read_until(b'"messages"')
                connection.reset()
        assert len(lines(proxy, "/api/export/dataset?dedupe=false")) == 12
        assert proxy.control.get("/healthz")["status"] == "ok" and "Traceback" not in proxy.log
        assert proxy.stop() == 0


def test_a_start_of_the_server_does_not_wait_for_what_only_exports_need() -> None:
    code = "import agentstate.server.api, sys; print([name for name in sys.modules if 'dataset' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
