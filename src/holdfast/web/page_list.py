"""All pages, in the order of the navigation."""

from __future__ import annotations

from holdfast.web import (
    checks_page,
    devices_page,
    failures_page,
    front_page,
    goodput_page,
    jobs_page,
    moment_page,
    rank_page,
    web_job_page,
)
from holdfast.web.page_parts import Page

PAGES: tuple[Page, ...] = (
    front_page.PAGE,
    jobs_page.PAGE,
    devices_page.PAGE,
    failures_page.PAGE,
    goodput_page.PAGE,
    checks_page.PAGE,
    moment_page.PAGE,
    web_job_page.PAGE,
    rank_page.PAGE,
)
