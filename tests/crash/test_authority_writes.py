"""The proxy is killed before, in and after every write of people's authority: it is done whole or not at all, and the
audit log says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.approvals import Held, prepared
from tests.support.client import ControlPlane, status_of
from tests.support.crashing_server import command
from tests.support.proxy import CLI, Proxy

# name → (which write of that name kills, what stands in the audit log of it)
BY_PEOPLE = {
    "add_approver": (2, "approver.added"),
    "disable_approver": (1, "approver.disabled"),
    "rotate_approver": (1, "approver.rotated"),
    "set_labels": (1, "session.labelled"),
    "decide": (1, "approval.decided"),
    "pause_session": (1, "session.paused"),
    "resume_session": (1, "session.resumed"),
    "rate": (1, "step.rated"),
    "label_step": (1, "step.labelled"),
}


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", BY_PEOPLE)
def test_proxy_killed_at_an_act_of_authority_has_done_it_whole_or_not_at_all(
    tmp_path: Path, name: str, when: str
) -> None:
    [key] = prepared(tmp_path, [Held()])
    count, action = BY_PEOPLE[name]
    with Proxy(tmp_path, command=command(name, count, when)) as proxy:
        ann = proxy.control.post("/api/approvers", {"name": "ann", "role": "approver"})["token"]
        calls: dict[str, tuple[str, dict[str, Any]]] = {
            "add_approver": ("/api/approvers", {"name": "bob", "role": "viewer"}),
            "disable_approver": ("/api/approvers/ann/disable", {}),
            "rotate_approver": ("/api/approvers/ann/rotate", {}),
            "set_labels": ("/api/sessions/s/labels", {"add": ["vip"]}),
            "decide": (f"/api/approvals/{key}/action", {"action": "APPROVED"}),
            "pause_session": ("/api/sessions/s/pause", {"reason": "why"}),
            "resume_session": ("/api/sessions/s/resume", {}),
            "rate": ("/api/sessions/s/steps/0/rating", {"rating": "good"}),
            "label_step": ("/api/sessions/s/steps/0/labels", {"add": ["example"]}),
        }
        if name == "resume_session":
            proxy.control.post("/api/sessions/s/pause", {})
        with pytest.raises(OSError, match=r"."):
            proxy.control.post(*calls[name])
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        done = when == "after"
        noted = [row["action"] for row in proxy.control.get("/api/audit")].count(action)
        assert noted == (count if done else count - 1)
        as_ann = ControlPlane(proxy.url, ann)
        if name in ("disable_approver", "rotate_approver"):
            assert (status_of(as_ann.get, "/api/sessions")[0] == 401) if done else as_ann.get("/api/sessions")
        else:
            status = proxy.control.session("s")["session"]["status"]
            seen = {
                "pause_session": status == "PAUSED",
                "resume_session": status == "RUNNING",
                "add_approver": len(proxy.control.get("/api/approvers")) == 2,
                "set_labels": proxy.control.get("/api/sessions/s/labels")["labels"] == ["vip"],
                "decide": as_ann.get(f"/api/approvals/{key}")["status"] == "APPROVED",
                "rate": proxy.control.steps("s")[0]["rating"] is not None,
                "label_step": proxy.control.steps("s")[0]["labels"] == ["example"],
            }
            assert seen[name] is done
        assert proxy.stop() == 0
        proxy.doctor()
