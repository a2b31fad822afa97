// Progressive enhancements: every page works without this script.
"use strict";

const LIVE_PAUSE_MS = 400;
const POLL_MS = 700;
const TOLD_MS = 2500;
const LONG = { dateStyle: "medium", timeStyle: "medium" };
const SHORT = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" };

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = time.textContent;
    time.textContent = moment.toLocaleString(undefined, time.closest(".when") ? SHORT : LONG);
  }
}

function openTarget() {
  const id = decodeURIComponent(location.hash.slice(1));
  const step = id && document.getElementById(id);
  const details = step && step.querySelector("details");
  if (details) details.open = true;
}

function showDecisive() {
  const stage = document.querySelector(".stage");
  const guilty = stage && stage.querySelector("a.decisive");
  if (!guilty) return;
  const box = guilty.getBoundingClientRect();
  const frame = stage.getBoundingClientRect();
  if (box.right > frame.right) stage.scrollLeft = box.left - frame.left - frame.width / 2;
}

function followRuns() {
  const rows = document.querySelector("#rows[data-live]");
  const sign = document.getElementById("live");
  if (!rows || !window.EventSource) return;
  const source = new EventSource("/events");
  let waiting = 0;
  source.onopen = () => { sign.hidden = false; };
  source.onerror = () => { sign.hidden = true; };
  source.addEventListener("runs", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const asked = new URLSearchParams(location.search);
      asked.set("part", "rows");
      const answer = await fetch("/runs?" + asked, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      if (answer.headers.get("X-Columns") !== rows.dataset.live) { location.reload(); return; }
      const part = new DOMParser().parseFromString("<table><tbody>" + (await answer.text()), "text/html");
      localTimes(part);
      if (rows.contains(document.activeElement)) return; // do not replace rows that have the keyboard focus
      rows.replaceChildren(...part.querySelectorAll("tr"));
    }, LIVE_PAUSE_MS);
  });
}

function followJob() {
  const job = document.getElementById("job");
  if (!job) return;
  const progress = document.getElementById("progress");
  const spent = document.getElementById("spent");
  const look = async () => {
    const answer = await fetch("/try/" + job.dataset.job + "/state");
    if (!answer.ok) return;
    const state = await answer.json();
    if (state.over) { location.reload(); return; }
    const runs = state.runs > 1 ? `, run ${state.done + 1} of ${state.runs}` : "";
    const words = state.state + runs;
    if (progress.textContent !== words) progress.textContent = words;
    spent.textContent = state.spent;
    setTimeout(look, POLL_MS);
  };
  setTimeout(look, POLL_MS);
}

function takeDrops() {
  const drop = document.getElementById("drop");
  if (!drop) return;
  const input = drop.querySelector("input[type=file]");
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length) input.files = event.dataTransfer.files;
  });
}

function tell(words) {
  const told = document.getElementById("told");
  if (told) told.textContent = words;
}

function say(place, words) {
  const before = place.textContent;
  if (before === words) return;
  place.textContent = words;
  setTimeout(() => { place.textContent = before; }, TOLD_MS);
}

async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text);
    tell(done);
    return true;
  } catch { // refused, or no secure context
    tell("The browser does not allow copying here.");
    return false;
  }
}

function showCopying(root) {
  for (const button of root.querySelectorAll("button.copy")) button.hidden = false;
}

async function copyBeside(event) {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const text = button.closest(".text").querySelector("pre.plain").textContent;
  say(button, (await copy(text, "Copied.")) ? "Copied" : "Not allowed");
}

localTimes(document);
showCopying(document);
document.addEventListener("click", copyBeside);
openTarget();
window.addEventListener("hashchange", openTarget);
showDecisive();
followRuns();
followJob();
takeDrops();
