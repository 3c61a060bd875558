"""The style sheet of a job's page: light and dark, narrow and wide, on paper."""

from __future__ import annotations

#: Plain CSS; it has no text of users or programs, and loads no file.
PAGE_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--faint:#57606a;--line:#d0d7de;--paper:#ffffff;--block:#f3f5f7;
--bad:#b3121d;--good:#1a7f37;--warn:#8a4b00}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--faint:#9ea7b3;--line:#3d444d;--paper:#0d1117;--block:#161b22;
--bad:#ff7b72;--good:#4ac26b;--warn:#e3a04f}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:76rem;margin:0 auto;padding:1.2rem}
h1{font-size:1.5rem;margin:0 0 .6rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:1.6rem 0 .5rem}
.word{color:var(--warn)}.word-failed{color:var(--bad)}.word-succeeded{color:var(--good)}
dl{margin:0}dl div{display:grid;grid-template-columns:10rem 1fr;gap:.2rem .8rem;padding:.15rem 0}
dt{color:var(--faint)}dd{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
pre,code{font:13px/1.4 ui-monospace,monospace}code{overflow-wrap:anywhere}
pre{background:var(--block);border:1px solid var(--line);border-radius:4px;padding:.5rem .7rem;margin:.2rem 0;
overflow-x:auto;max-height:32rem}
ol{padding-left:1.6rem}li p{margin:.4rem 0 .1rem;color:var(--faint)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}
th,td{border:1px solid var(--line);padding:.25rem .55rem;text-align:left;vertical-align:top}
summary{cursor:pointer}
@media (max-width:40rem){dl div{grid-template-columns:1fr}}
@media print{main{max-width:none;padding:0}pre{max-height:none;overflow:visible;white-space:pre-wrap;
overflow-wrap:anywhere}.wide{overflow:visible}section{break-inside:auto}h2{break-after:avoid}li,tr{break-inside:avoid}}
"""
