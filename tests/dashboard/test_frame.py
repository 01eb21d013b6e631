"""The frame of the dashboard: logging in, what is asked of forms, headers, and how it looks."""

from __future__ import annotations

import re

from tests.support.story import Story
from tests.support.web import Web

COOKIE = re.compile(r"^agentstate_[0-9a-f]{8}=")


def test_who_is_not_logged_in_is_led_to_the_login_and_back(story: Story) -> None:
    web = Web(story.proxy.url)
    led = web.get("/dashboard?state=held")
    assert (led.status, led.location) == (303, "/dashboard/login?next=%2Fdashboard%3Fstate%3Dheld")
    form = web.follow(led).form("/login")
    done = web.submit(form, token=story.proxy.admin_token)
    assert done.location == "/dashboard?state=held"
    assert web.follow(done).status == 200
