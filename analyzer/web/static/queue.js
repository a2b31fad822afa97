// The keys of the page that asks for labels. Without it, the same buttons and links are there.
"use strict";

const legend = document.getElementById("legend");
let current = null;

function rows() {
  return [...document.querySelectorAll("li.step")].filter((row) => row.offsetParent !== null);
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  const place = current ? all.indexOf(current) + by : 0;
  current = all[Math.min(Math.max(place, 0), all.length - 1)];
  current.focus();
  current.scrollIntoView({ block: "nearest" });
  const said = document.getElementById("said-step");
  if (said) said.value = current.id.replace("step-", "");
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) return;
  if (event.key === "Enter" && event.target === current) {
    const details = current.querySelector("details");
    details.open = !details.open;
    event.preventDefault();
    return;
  }
  if (!document.getElementById("use-keys").checked) return;
  if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
  else {
    const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!found) return;
    found.click();
  }
  event.preventDefault();
}

if (legend) {
  legend.hidden = false;
  document.addEventListener("keydown", onKey);
}
