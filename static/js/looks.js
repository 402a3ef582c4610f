/* A part that is drawn for one person is asked for again when it has changed. What that person is writing in it is not
   taken from them: they are told, and look when they want to. The list beside a request stays the one it was. */

import { report } from "./announce.js";
import { isTouched } from "./swaps.js";

const SELECTOR = "[id^=look-][hx-get]";

function sameList(path) {
  const asked = new URL(path, location.origin);
  const here = new URLSearchParams(location.search);
  if (asked.pathname === location.pathname) for (const [name, value] of here) if (!asked.searchParams.has(name)) asked.searchParams.set(name, value);
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
  button.className = "btn sm";
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
  await window.htmx.ajax("GET", sameList(look.getAttribute("hx-get")), { target: look.getAttribute("hx-target"), swap });
  const field = document.getElementById("note");
  if (written && field && !field.value) field.value = written;
}

document.addEventListener("htmx:configRequest", (event) => {
  if (event.target.matches(SELECTOR)) event.detail.path = sameList(event.detail.path);
});

// What changes while the question is on its way, or when it came to nothing, is asked about again though it looks the same.
document.addEventListener("htmx:beforeSend", (event) => {
  if (event.target.matches(SELECTOR)) event.target.dataset.state = "asked";
});

document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.target.matches(SELECTOR)) return;
  const part = document.querySelector(event.target.getAttribute("hx-target"));
  if (!part || ![...part.querySelectorAll("input, textarea, select")].some(isTouched)) return;
  event.preventDefault();
  tell(event.target, part);
});
