"""One job as one HTML page for a ticket: it needs no server, no network and no JavaScript.

The page is made from strings and `html.escape`: there is only one page, so showing a job needs no template engine. Each
text goes through `safe` or `block`. A test compares the tags of a hostile job's page with those of a harmless one.
"""

from __future__ import annotations

from holdfast.report.page.job_page import page

__all__ = ["page"]
