/* The plan builder. What is typed into form[data-autosave] is saved by htmx, and kept in this browser until it is: if
   there is no connection, it is sent again. Parts of the page in which someone is typing are not replaced. On a step in
   the canvas or the list, keys connect, move and delete it. */

import { answer } from "../core/announce.js";
import * as drafts from "../core/drafts.js";
import { isTouched } from "../core/fragments.js";
import { changed, onChange } from "../core/page_changes.js";
import { onKey } from "../core/shortcuts.js";

const AGAIN_MS = 4000;
const VERSION = "Toolgate-Draft-Version";
const sent = new WeakMap(); // by request: the texts of its form's fields when it was sent
let source = null; // the step that the next one is to wait for
let isAdded = false; // the form of a new step has just been swapped in

const state = () => document.getElementById("draft-state");
const autosaved = (element) => element?.closest?.("form[data-autosave]");

function say(name) {
  const text = state()?.dataset[name];
  if (!text || state().textContent === text) return;
  state().textContent = text;
  state().classList.toggle("warn", name !== "saving");
}

/** The server has these texts now, so that this browser need not keep them. */
function stored(form, texts) {
  for (const [field, text] of texts) {
    field.defaultValue = text;
    if (field.value === text) drafts.remove(field.dataset.draft ?? form.dataset.draft);
  }
  changed();
}

document.addEventListener("htmx:beforeSend", ({ target, detail }) => {
  const form = autosaved(target);
  if (!form) return;
  const texts = [...form.querySelectorAll("textarea")].map((field) => [field, field.value]);
  sent.set(detail.xhr, texts);
  say("saving");
});

document.addEventListener("htmx:afterRequest", ({ target, detail }) => {
  const form = autosaved(target);
  const texts = sent.get(detail.xhr);
  if (!form || !texts) return;
  const version = detail.xhr.getResponseHeader(VERSION);
  if (detail.successful && version) {
    for (const field of form.querySelectorAll("[name=version]")) field.value = version;
    stored(form, texts);
  } else if (detail.successful) {
    if (document.querySelector("#conflict, #draft-news [role=alert]")) say("refused");
    else if (document.getElementById("unread-own")) stored(form, texts);
    else if (texts.every(([field, text]) => field.value === text)) location.reload(); // merged with changes of others
  } else if (detail.xhr.status === 0) {
    say("lost");
    setTimeout(() => target.isConnected && window.htmx?.trigger(target, "save-again"), AGAIN_MS);
  } else say("refused");
});

// A field that someone types into, or that is not saved yet, is not replaced.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const old = event.detail.target;
  const isUsed =
    old?.matches("#draft-canvas, #draft-steps, #findings, #forecast") &&
    [...old.querySelectorAll("input:not([type=hidden]), textarea, select")].some(isTouched);
  if (isUsed) event.detail.shouldSwap = false;
});

// A new step is opened with the cursor in its description.
document.addEventListener("htmx:oobAfterSwap", (event) => {
  if (event.detail.target?.id === "step-slot" && event.detail.shouldSwap) isAdded = true;
});

document.addEventListener("htmx:afterSettle", () => {
  if (!isAdded) return;
  isAdded = false;
  document.getElementById("step-description")?.select();
  const address = new URL(location.href);
  address.searchParams.set("step", document.getElementById("step-slot").dataset.step);
  history.replaceState(history.state, "", address);
});

// "Compare and choose": the form is sent as without scripts, and answered with both sides.
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-compare]")) return;
  const form = document.querySelector("#compose[data-autosave]") ?? document.getElementById("goal-form");
  if (form.id === "compose") {
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "do", value: "text" }));
  }
  form.submit();
});

function markOpenStep() {
  if (!document.getElementById("draft-list")) return;
  const step = document.getElementById("step-slot")?.dataset.step;
  for (const row of document.querySelectorAll("#draft-list a[data-step]")) {
    if (row.dataset.step === step) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
  for (const field of document.querySelectorAll("#draft-place [name=step], #goal-form [name=step]")) {
    field.value = step ?? "";
  }
  for (const box of document.querySelectorAll("#graph a.node")) {
    box.classList.toggle("connecting", box.dataset.step === source);
  }
}

onChange(markOpenStep);

/** Return the step of the canvas or the list that has the focus. */
function focusedStep() {
  const focused = document.activeElement?.closest("#graph a.node[data-step], #draft-list a[data-step]");
  return document.getElementById("draft-list") && focused ? focused.dataset.step : null;
}

function send(values) {
  const form = document.getElementById("draft-actions");
  window.htmx.ajax("POST", form.action, {
    target: "#draft-news",
    swap: "innerHTML",
    values: { ...values, fold: document.querySelector("#draft-place [name=fold]").value },
  });
}

onKey("c", () => {
  const step = focusedStep();
  if (!step) return undefined;
  if (source === null || source === step) {
    source = source === step ? null : step;
    answer(source ? `Step ${step} is chosen. Press C on the step that waits for it.` : "No step is chosen.");
  } else {
    send({ do: "connect", number: step, needs: source });
    answer(`Step ${step} waits for step ${source}.`);
    source = null;
  }
  markOpenStep();
  return true;
});

document.addEventListener("keydown", (event) => {
  const step = focusedStep();
  if (!step || event.ctrlKey || event.metaKey) return;
  if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    event.preventDefault();
    event.stopPropagation();
    send({ do: `${event.key === "ArrowUp" ? "up" : "down"}:${step}`, step });
  } else if (event.key === "Delete") {
    event.preventDefault();
    send({ do: `remove:${step}` });
  } else if (event.key === "Escape" && source) {
    source = null;
    markOpenStep();
  }
});
