/* The form of a step in the plan builder. It remembers where the cursor was in a text, so that a result is inserted
   there, and says when something is not saved. What leads away from the form inside the builder saves it first, and
   goes on only when it is saved; before another page is opened, the browser asks. */

import { answer } from "../core/announce.js";

const CONTROL = "input:not([type=hidden]), select, textarea, button:not([hidden])";
const KEEPING = ["add", "duplicate", "start", "undo", "redo", "copy"]; // what follows needs what the form says
let place = { name: "", caret: 0 };
let isSaving = false;
let goOn = null; // what to do once the step is saved

const formOf = (element) => element?.closest?.("#step-form form");
const openForm = () => document.querySelector("#step-form form");

function unsavedForm() {
  const form = openForm();
  return form && "unsaved" in form.dataset ? form : null;
}

function say(name) {
  const status = document.getElementById("sf-status");
  const text = status?.dataset[name];
  if (text && status.textContent.trim() !== text) status.textContent = text;
}

document.addEventListener("focusout", ({ target }) => {
  if (!formOf(target) || !target.name?.startsWith("value:") || target.selectionEnd === undefined) return;
  place = { name: target.name.slice("value:".length), caret: target.selectionEnd };
});

document.addEventListener(
  "click",
  ({ target }) => {
    const button = target.closest?.("[data-caret]");
    const form = button && formOf(button);
    if (form) form.elements.caret.value = button.dataset.caret === place.name ? String(place.caret) : "";
  },
  { capture: true }, // before htmx reads the form
);

document.addEventListener("input", ({ target }) => {
  const form = formOf(target);
  if (!form || target.type === "search") return;
  form.dataset.unsaved = "";
  say("changed");
});

/** Save the step, and do `action` once it is saved. */
function save(action = null) {
  goOn = action;
  document.getElementById("sf-save").click();
}

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("#sf-save")) return;
  isSaving = true;
  say("saving");
});

// Ctrl+Enter saves the step wherever the focus is in its form; the first button of the form only checks it.
document.addEventListener("toolgate:send", (event) => {
  if (!formOf(event.target)) return;
  event.preventDefault();
  save();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.defaultPrevented) return;
  if (!formOf(event.target) || !document.getElementById("sf-save")) return;
  event.preventDefault();
  save();
});

// The digits lead to the parts of the form, as its links do.
document.addEventListener("click", (event) => {
  const link = event.target.closest("#step-parts a");
  const part = link && document.getElementById(link.hash.slice(1));
  if (!part) return;
  event.preventDefault();
  const controls = [...part.querySelectorAll(CONTROL)].filter((each) => !each.disabled && each.checkVisibility());
  const field = controls.find((each) => !each.matches("button"));
  (part.matches(CONTROL) ? part : (field ?? controls.at(-1)))?.focus();
  part.scrollIntoView({ block: "nearest" });
});

document.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.target?.id === "draft-news") followDraft();
  if (detail.target?.id !== "step-form") return;
  const [wasSaving, action] = [isSaving, goOn];
  [isSaving, goOn] = [false, null];
  if (!wasSaving) return;
  answer(document.getElementById("sf-status").textContent.trim()); // a status that is replaced is not read aloud
  if (unsavedForm()) document.querySelector("#sf-conflict, #sf-setback, #step-form [aria-invalid=true]")?.focus();
  else action?.();
});

for (const name of ["htmx:sendError", "htmx:responseError"]) {
  document.addEventListener(name, ({ detail }) => {
    if (detail.target?.id !== "step-form") return;
    [isSaving, goOn] = [false, null];
    const isGone = detail.xhr?.status === 404 && detail.requestConfig?.verb === "get";
    if (isGone) showDraft();
    else if (unsavedForm()) say(name === "htmx:sendError" ? "lost" : "refused");
  });
}

/** Load the page anew: it says that the step was deleted. */
function showDraft() {
  const address = document.getElementById("sf-discard")?.href;
  delete openForm().dataset.unsaved;
  if (address) location.assign(address);
}

/** Show the step as it is in a newer version of the draft, unless someone is filling in its form. */
function followDraft() {
  const form = openForm();
  const version = document.getElementById("draft-seen")?.value;
  if (!form || !version || version === form.elements.base.value || form.elements.panel.value) return;
  if (unsavedForm() || document.querySelector("#sf-conflict")) return;
  window.htmx.ajax("GET", form.action, { target: "#step-form", swap: "outerHTML" });
}

/** Save the step; once the other parts of the page have followed, press what matches `selector`. */
function saveAndPress(selector) {
  save(() => {
    const press = ({ detail }) => {
      if (detail.elt.id !== "draft-refresh") return;
      document.removeEventListener("htmx:afterRequest", press);
      document.querySelector(selector)?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    };
    document.addEventListener("htmx:afterRequest", press);
  });
}

// Another step is opened, or added, in the place of this one.
document.addEventListener("htmx:confirm", (event) => {
  const { target, elt, triggeringEvent } = event.detail;
  if (!unsavedForm() || !document.getElementById("sf-save")) return;
  const button = triggeringEvent?.submitter;
  const isMore = elt.id === "step-tools" && KEEPING.includes(button?.value.split(":")[0]);
  if (!isMore && elt.id !== "draft-add" && target?.id !== "step-slot") return;
  event.preventDefault();
  if (isMore) saveAndPress(`#step-tools [value="${CSS.escape(button.value)}"]`);
  else saveAndPress(`#${CSS.escape(elt.id === "draft-add" ? "add-step" : elt.id)}`);
});

// Buttons and links that lead to the page anew, such as Start and the view as JSON.
addEventListener(
  "submit",
  (event) => {
    const { target: form, submitter } = event;
    if (form.id !== "draft-actions" || !unsavedForm() || !KEEPING.includes(submitter?.value)) return;
    event.preventDefault();
    saveAndPress(`#${submitter.id}`);
  },
  { capture: true },
);

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const isHere = link && link.pathname === location.pathname && !link.hash && !link.hasAttribute("hx-get");
  if (!isHere || event.ctrlKey || event.metaKey || event.shiftKey || !unsavedForm()) return;
  event.preventDefault();
  save(() => location.assign(link.href));
});

// On the window, after htmx: a form that it does not send leads to another page.
addEventListener("submit", (event) => {
  if (!event.defaultPrevented && formOf(event.target)) delete event.target.dataset.unsaved;
});

addEventListener("beforeunload", (event) => {
  if (unsavedForm()) event.preventDefault();
});

// A step that was just added is opened only if nothing is lost by it.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  if (event.detail.target?.id === "step-slot" && unsavedForm()) event.detail.shouldSwap = false;
});
