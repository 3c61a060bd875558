"""One job as one HTML page for a ticket: it needs no server, no network and no JavaScript.

The page is made with strings and `html.escape`, because a template engine is not worthwhile for one page. Each text
goes through `safe` or `block`. A test compares the tags of a hostile job's page with those of a harmless one.
"""

from __future__ import annotations

from holdfast.report.page.job_page import page

__all__ = ["page"]
