"""All pages, in the order of the navigation."""

from __future__ import annotations

from holdfast.web import checks, devices, failures, goodput, job, jobs, moment, now, rank
from holdfast.web.asking import Page

PAGES: tuple[Page, ...] = (
    now.PAGE,
    jobs.PAGE,
    devices.PAGE,
    failures.PAGE,
    goodput.PAGE,
    checks.PAGE,
    moment.PAGE,
    job.PAGE,
    rank.PAGE,
)
