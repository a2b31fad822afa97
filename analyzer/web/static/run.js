// The keys, jumps and on-demand texts of a run's page. Without it, the same links lead to the same texts.
"use strict";

const USES_KEYS = "blamespan.keys";
const list = document.querySelector(".steps");
const dialog = document.getElementById("keys");
const find = document.getElementById("find");
let current = null;

const isStep = (row) => row.id.startsWith("step-");
const detailsOf = (row) => row.querySelector("details");

// Rows that can be seen: a closed stretch of repeated steps is one row.
function rows() {
  return [...list.querySelectorAll("li.step, li.repeat")].filter((row) => {
    const around = row.parentElement.closest("details.repeat");
    return !around || around.open;
  });
}

function mark(row) {
  if (current === row) return;
  if (current) current.classList.remove("current");
  current = row;
  row.classList.add("current");
}

function reveal(row, block) {
  const around = row.parentElement.closest("details.repeat");
  if (around) around.open = true;
  mark(row);
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block });
}

function move(by) {
  const seen = rows();
  const at = seen.indexOf(current);
  const next = at < 0 ? (by > 0 ? firstInSight(seen) : seen.at(-1)) : seen[at + by];
  if (next) reveal(next, "nearest");
}

function firstInSight(seen) {
  return seen.find((row) => row.getBoundingClientRect().bottom > 80) || seen[0];
}

// To the next, or previous, row of a kind, from the current one; around the end.
function jump(selector, by, what) {
  const all = [...list.querySelectorAll("li.step")];
  const fitting = all.filter((row) => row.matches(selector));
  const here = all.indexOf(current && !isStep(current) ? current.querySelector("li.step") : current);
  const ahead = by > 0 ? fitting.find((row) => all.indexOf(row) > here) : fitting.findLast((row) => all.indexOf(row) < here);
  const row = ahead || (by > 0 ? fitting[0] : fitting.at(-1));
  if (row) reveal(row, "center");
  tell(row ? "" : `no ${what} among these steps`);
  return Boolean(row);
}

const JUMPS = {
  decisive: () => jump(".decisive", 1, "decisive step"),
  error: (by = 1) => jump(".failed", by, "error"),
  agent: (by = 1) => jump(".handover", by, "change of agent"),
};

function toggle(row) {
  const details = detailsOf(row);
  details.open = !details.open;
}

function leave() {
  if (document.activeElement === find) { find.blur(); return; }
  if (!current) return;
  const around = current.parentElement.closest("details.repeat");
  if (detailsOf(current).open) detailsOf(current).open = false;
  else if (around) { around.open = false; reveal(around.parentElement, "nearest"); return; }
  current.focus({ preventScroll: true });
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  n: () => JUMPS.agent(1),
  N: () => JUMPS.agent(-1),
  e: () => JUMPS.error(1),
  E: () => JUMPS.error(-1),
  d: () => JUMPS.decisive(),
  "/": () => { find.focus(); find.select(); },
  "?": () => dialog.showModal(),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  if (event.key === "Escape") { leave(); return; }
  if (event.target.matches("input, select, textarea")) return;
  if (event.key === "Enter" && event.target === current) {
    toggle(current);
    event.preventDefault();
    return;
  }
  const act = document.getElementById("use-keys").checked && KEYS[event.key];
  if (!act) return;
  act();
  event.preventDefault();
}

// The server's part of a page: parsed as a document of its own, in which nothing runs.
async function load(place, address) {
  place.setAttribute("aria-busy", "true");
  const body = place.closest(".body");
  try {
    const answer = await fetch(address, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error(`status ${answer.status}`);
    const part = new DOMParser().parseFromString(await answer.text(), "text/html");
    body.replaceChildren(...part.body.childNodes);
    showCopying(body);
  } catch (error) {
    place.removeAttribute("aria-busy");
    tell(`The texts could not be loaded: ${error.message}`);
  }
}

async function loadSpan(raw) {
  const place = raw.querySelector("p");
  if (raw.querySelector("pre")) return;
  const answer = await fetch(raw.dataset.src);
  if (!answer.ok) { tell(`The span could not be loaded: status ${answer.status}`); return; }
  const shown = document.createElement("pre");
  shown.className = "plain";
  shown.tabIndex = 0;
  shown.textContent = (await answer.text()).replaceAll("\\u003c", "<"); // parsed, its numbers would be rounded
  place.after(shown);
}

function opened(event) {
  const details = event.target;
  if (!details.open) return;
  if (details.matches(".raw")) loadSpan(details);
  const place = details.parentElement.matches("li.step") && details.querySelector(".fetch");
  if (place && !place.hasAttribute("aria-busy")) load(place, place.dataset.src);
}

async function clicked(event) {
  const jumping = event.target.closest("a.jump");
  if (jumping && JUMPS[jumping.dataset.jump]()) event.preventDefault();
  const row = event.target.closest("li.step, li.repeat");
  if (row) mark(row);
  const link = event.target.closest("a.permalink, a.all");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    if (link.matches(".all")) {
      const index = link.closest("li.step").id.slice("step-".length);
      await load(link, `${location.pathname}/steps/${index}?full=1`);
      return;
    }
    history.replaceState(null, "", link.href);
    if (await copy(link.href, "Link copied.")) say(link, "Link copied");
  }
}

// Which part of a long run is in sight, on its map.
function followSight() {
  const seen = document.querySelector(".overview .seen");
  if (!seen || !window.IntersectionObserver) return;
  const steps = [...list.querySelectorAll("li.step")];
  const at = new Map(steps.map((row, number) => [row, number]));
  const inSight = new Set();
  const wide = seen.ownerSVGElement.viewBox.baseVal.width;
  const observer = new IntersectionObserver((changes) => {
    for (const one of changes) {
      if (one.isIntersecting) inSight.add(at.get(one.target));
      else inSight.delete(at.get(one.target));
    }
    const first = Math.min(...inSight);
    const last = Math.max(...inSight);
    if (!inSight.size) return;
    seen.setAttribute("x", String((wide * first) / steps.length));
    seen.setAttribute("width", String((wide * (last - first + 1)) / steps.length));
  });
  for (const row of steps) observer.observe(row);
}

function showHash() {
  const row = location.hash.startsWith("#step-") && document.getElementById(location.hash.slice(1));
  if (!row) return;
  reveal(row, "start");
  detailsOf(row).open = true;
}

function rememberKeys() {
  const box = document.getElementById("use-keys");
  box.checked = localStorage.getItem(USES_KEYS) !== "no";
  box.addEventListener("change", () => localStorage.setItem(USES_KEYS, box.checked ? "yes" : "no"));
  const button = document.getElementById("show-keys");
  button.hidden = false;
  button.addEventListener("click", () => dialog.showModal());
}

if (list) {
  rememberKeys();
  list.addEventListener("toggle", opened, true);
  list.addEventListener("focusin", (event) => {
    const row = event.target.closest("li.step, li.repeat");
    if (row) mark(row);
  });
  document.addEventListener("click", clicked);
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", showHash);
  showHash();
  followSight();
}
