/* Keeps the text of a plan's editor in this browser, through other pages, reloads and starters, until it is stored by
   the server or the person signs out. The text that another one replaced can be brought back.

   A draft is { text, from, before, isSent }: the text, the query of the address where it was written, the text that it
   replaced, and whether it was sent to be stored. */

import * as drafts from "../core/drafts.js";

const editor = document.querySelector("#compose #pj");
let before = "";
let isLost = false; // the browser stores nothing

function save(isSent = false) {
  const isStored = drafts.save(editor.dataset.draft, { text: editor.value, from: location.search, before, isSent });
  isLost = !isStored && !isSent && editor.value !== editor.defaultValue;
}

function show(part) {
  const note = document.getElementById("kept");
  note.hidden = !part;
  for (const each of note.querySelectorAll("[data-kept]")) each.hidden = each.dataset.kept !== part;
}

function put(text) {
  editor.value = text;
  editor.dispatchEvent(new Event("fixed")); // checks and saves it
}

function restore() {
  const draft = drafts.load(editor.dataset.draft);
  const isWritten = draft.text && draft.text !== editor.defaultValue;
  const isSent = "unsaved" in editor.dataset; // the server answered with what was sent
  if (isWritten && !isSent && (!editor.defaultValue.trim() || draft.from === location.search)) {
    before = draft.before;
    put(draft.text);
    return show("restored");
  }
  before = isWritten && !isSent ? draft.text : draft.before;
  if (isSent) save();
  show(before && before !== editor.value ? "before" : "");
}

if (editor) {
  editor.addEventListener("input", () => save());
  editor.addEventListener("fixed", () => save());
  addEventListener("load", restore); // after htmx has learnt of the editor, which checks what is put there
}

document.addEventListener("click", (event) => {
  const part = event.target.closest("[data-kept] button")?.closest("[data-kept]").dataset.kept;
  if (!part) return;
  const text = part === "restored" ? editor.defaultValue : before;
  before = editor.value;
  put(text);
  show(before.trim() && "before");
  editor.focus();
});

addEventListener("submit", (event) => {
  if (event.defaultPrevented || event.target.id !== "compose") return;
  save(["start", "change"].includes(event.submitter?.value));
});

addEventListener("beforeunload", (event) => {
  if (isLost) event.preventDefault();
});
