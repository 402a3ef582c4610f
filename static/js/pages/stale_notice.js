/* A part that is drawn for one person is asked for again when it has changed. What that person is writing in it is not
   taken from them: they are told, and look when they want to. The list beside a request stays the one it was.
   Parts of a plan that change within a moment are asked for together. */

import { report } from "../core/announce.js";
import { isTouched } from "../core/fragments.js";

const SELECTOR = "[id^=look-][hx-get]";

function sameList(path) {
  const asked = new URL(path, location.origin);
  const here = new URLSearchParams(location.search);
  if (asked.pathname !== location.pathname) return asked.pathname + asked.search;
  for (const [name, value] of here) {
    if (!asked.searchParams.has(name)) asked.searchParams.set(name, value);
  }
  return asked.pathname + asked.search;
}

function tell(look, part) {
  if (part.querySelector("[data-newer]")) return;
  const note = document.createElement("div");
  note.className = "note warn";
  note.dataset.newer = "";
  note.setAttribute("role", "status");
  const words = document.createElement("div");
  words.textContent = "This has changed while you were writing. What you see is how it was. ";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button compact";
  button.textContent = "Show it as it is";
  button.addEventListener("click", () => show(look));
  words.append(button);
  note.append(words);
  part.prepend(note);
  report(words.firstChild.textContent);
}

async function show(look) {
  const written = document.getElementById("note")?.value;
  const swap = look.getAttribute("hx-swap") ?? "innerHTML";
  await window.htmx.ajax("GET", sameList(look.getAttribute("hx-get")), {
    target: look.getAttribute("hx-target"),
    swap,
  });
  const field = document.getElementById("note");
  if (written && field && !field.value) field.value = written;
}

document.addEventListener("htmx:configRequest", (event) => {
  if (event.target.matches(SELECTOR)) event.detail.path = sameList(event.detail.path);
});

// A part that changes again while it is being requested, or whose request failed, is requested again.
document.addEventListener("htmx:beforeSend", (event) => {
  if (event.target.matches(SELECTOR)) event.target.dataset.state = "asked";
});

/** Say whether what a look asks for is being written in; then its writer is told. */
function isWritten(look) {
  const part = document.querySelector(look.getAttribute("hx-target"));
  if (!part || ![...part.querySelectorAll("input, textarea, select")].some(isTouched)) return false;
  tell(look, part);
  return true;
}

document.addEventListener("htmx:beforeRequest", (event) => {
  const look = event.target;
  if (!look.matches(SELECTOR)) return;
  if (isWritten(look)) event.preventDefault();
  else if (look.dataset.part) {
    event.preventDefault();
    gather(look);
  }
});

const GATHER_MS = 150;
const due = new Map();
let isAsking = false;

function gather(look) {
  due.set(look.dataset.part, look);
  if (isAsking) return;
  isAsking = true;
  setTimeout(ask, GATHER_MS);
}

/** Ask for all that is due in one request; what comes due meanwhile is asked for after it. */
async function ask() {
  const looks = [...due.values()].filter((look) => !isWritten(look));
  due.clear();
  if (looks.length) {
    for (const look of looks) look.dataset.state = "asked";
    const url = new URL(sameList(looks[0].getAttribute("hx-get")), location.origin);
    url.searchParams.set("parts", looks.map((look) => look.dataset.part).join());
    await window.htmx.ajax("GET", url.pathname + url.search, { target: "#parts", swap: "none" }).catch(() => {});
  }
  if (due.size) setTimeout(ask, GATHER_MS);
  else isAsking = false;
}
