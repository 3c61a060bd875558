// What the pages do beyond HTML: they follow the jobs, and show times as ages or in UTC. All works without this file.
"use strict";

const live = document.getElementById("live");
// The parts as the server sent them: what a script has changed in them since is no news.
const untouched = new Map();
for (const part of document.querySelectorAll("[data-live]")) untouched.set(part.id, part.cloneNode(true));

function age(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const ahead = seconds < 0;
  const whole = Math.round(Math.abs(seconds));
  const at = whole ? units.findIndex(([size]) => whole >= size) : 3;
  const [size, unit] = units[at];
  let text = `${Math.floor(whole / size)} ${unit}`;
  const more = at < 2 ? Math.floor(whole % size / units[at + 1][0]) : 0;
  if (more) text += ` ${more} ${units[at + 1][1]}`;
  return ahead ? `in ${text}` : `${text} ago`;
}

// Countdowns and ages move by themselves; no server is asked.
function tick() {
  const now = Date.now() / 1000;
  for (const one of document.querySelectorAll("time[data-count]")) one.textContent = age(now - Number(one.dataset.at));
  if (mode === "ages")
    for (const one of document.querySelectorAll("time[data-at]:not([data-count])"))
      one.textContent = age(now - Number(one.dataset.at));
}

const modes = ["local", "ages", "UTC"];
let mode = "local";
try { mode = localStorage.getItem("times") || mode; } catch { /* storage is switched off: the choice lasts a page */ }

function showTimes() {
  for (const one of document.querySelectorAll("time[data-at]:not([data-count])")) {
    one.title ||= one.textContent;
    if (mode === "local") one.textContent = one.title;
    if (mode === "UTC")
      one.textContent = new Date(Number(one.dataset.at) * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
  }
  times.textContent = `Times: ${mode}`;
  tick();
}

const times = document.getElementById("times");
times.hidden = false;
times.addEventListener("click", () => {
  mode = modes[(modes.indexOf(mode) + 1) % modes.length];
  try { localStorage.setItem("times", mode); } catch { /* as above */ }
  showTimes();
});
showTimes();
setInterval(tick, 1000);

// Parts that change are fetched with their page and put in place, unless a person is in the middle of one.
let busy = false;
let again = false;
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) {
        const part = fresh.getElementById(old.id);
        const held = old.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
        const chosen = getSelection();
        const reads = chosen && !chosen.isCollapsed && old.contains(chosen.anchorNode);
        if (!part || held || reads || part.isEqualNode(untouched.get(old.id))) continue;
        const open = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
        const stops = (whole) => [...whole.querySelectorAll("a[href], button, summary, [tabindex]")];
        const focus = document.activeElement, place = stops(old).indexOf(focus);
        const places = [...old.querySelectorAll(".log, .wide")].map((each) => [each.scrollTop, each.scrollLeft,
          each.scrollTop + each.clientHeight >= each.scrollHeight - 4]);
        untouched.set(old.id, part.cloneNode(true));
        old.replaceWith(part);
        for (const id of open) document.getElementById(id)?.setAttribute("open", "");
        if (place >= 0) {
          showButtons();
          const same = stops(part).find((each) => focus.href && each.getAttribute("href") === focus.getAttribute("href"));
          (same || stops(part)[place])?.focus({ preventScroll: true });
        }
        [...part.querySelectorAll(".log, .wide")].forEach((each, index) => {
          if (!places[index]) return;
          [each.scrollTop, each.scrollLeft] = places[index];
          if (places[index][2]) each.scrollTop = each.scrollHeight;
        });
      }
      showTimes();
      showButtons();
    }
  } finally {
    busy = false;
    if (again) { again = false; refresh(); }
  }
}

if (untouched.size) {
  const source = new EventSource("/events?at=" + encodeURIComponent(location.pathname + location.search));
  source.addEventListener("open", () => { live.textContent = "live"; });
  source.addEventListener("change", refresh);
  source.addEventListener("full", () => { source.close(); live.textContent = "not live: too many pages are open"; });
  source.addEventListener("error", () => { live.textContent = "not live: the server does not answer"; });
}

// Buttons come anew with the parts that they stand in.
function showButtons() {
  for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;
}
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
});
showButtons();

// The cursor of the swimlane: one stop of the Tab key, from which arrows lead to the other moments.
document.addEventListener("keydown", (event) => {
  const from = event.target.closest("a:has(> .sw-cursor)");
  const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
  if (!from || by === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const slices = [...from.parentNode.querySelectorAll("a:has(> .sw-cursor)")];
  const to = slices[Math.min(Math.max(slices.indexOf(from) + by, 0), slices.length - 1)];
  from.setAttribute("tabindex", "-1");
  to.setAttribute("tabindex", "0");
  to.focus();
});
