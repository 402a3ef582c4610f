/* The form of a step in the plan builder: remembers where the cursor was in a text, so that a result is inserted there,
   and warns before the page is left with changes that are not saved. */

let place = { name: "", caret: 0 };
let isTyped = false;

function formOf(element) {
  return element.closest?.("#step-form form");
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
  if (formOf(target)) isTyped = true;
});

// Ctrl+Enter saves the step; the first button of the form only checks it.
document.addEventListener("toolgate:send", (event) => {
  if (!formOf(event.target)) return;
  event.preventDefault();
  document.getElementById("sf-save")?.click();
});

document.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.target?.id === "step-form") isTyped = false;
  if (detail.target?.id === "draft-news") followDraft();
});

/** Show the step as it is in a newer version of the draft, unless someone is filling in its form. */
function followDraft() {
  const form = document.querySelector("#step-form form");
  const version = document.getElementById("draft-seen")?.value;
  if (!form || !version || version === form.elements.base.value || form.elements.panel.value) return;
  if (unsavedForm() || document.querySelector("#sf-conflict")) return;
  window.htmx.ajax("GET", form.action, { target: "#step-form", swap: "outerHTML" });
}

// On the window, after htmx: a form that it does not send leads to another page.
addEventListener("submit", (event) => {
  if (!event.defaultPrevented && formOf(event.target)) isTyped = false;
});

function unsavedForm() {
  const form = document.querySelector("#step-form form");
  return form && (isTyped || "unsaved" in form.dataset) ? form : null;
}

addEventListener("beforeunload", (event) => {
  if (unsavedForm()) event.preventDefault();
});

// Another step is opened in the place of this one.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.target?.id !== "step-slot") return;
  const form = unsavedForm();
  if (form && !confirm(form.dataset.leave)) event.preventDefault();
  else isTyped = false;
});

// A step that was just added is opened only if nothing is lost by it.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  if (event.detail.target?.id === "step-slot" && unsavedForm()) event.detail.shouldSwap = false;
});
