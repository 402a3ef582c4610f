/* Keeps the text of a plan's editor in this browser, through other pages, reloads and starters, until it is stored by
   the server or the person signs out. The text that another one replaced can be brought back.

   A version is { text, base, fields }: a text, the text that its page came with, and the values of the page's
   [data-base] fields, by which the server knows what the text was written about. If others have changed the plan
   since, the text is not put over their change: it is offered, and comes back with its own fields.
   A draft is { ...version, from, before, isSent }: the query of the address where it was written, the version that it
   replaced, and whether it was sent to be stored. */

import * as drafts from "../core/drafts.js";

const editor = document.querySelector("#compose #pj");
const baseFields = editor ? [...editor.form.querySelectorAll("[data-base]")] : [];
const NOTHING = { text: "", base: "", fields: {} };
let shown = { base: editor?.defaultValue, fields: fieldsNow() }; // of the text in the editor
const served = { ...shown, text: editor?.defaultValue };
let before = NOTHING;
let isLost = false; // the browser stores nothing

function fieldsNow() {
  return Object.fromEntries(baseFields.map((field) => [field.name, field.value]));
}

function save(isSent = false) {
  const draft = { ...shown, text: editor.value, from: location.search, before, isSent };
  isLost = !drafts.save(editor.dataset.draft, draft) && !isSent && editor.value !== editor.defaultValue;
}

function show(part) {
  const note = document.getElementById("kept");
  note.hidden = !part;
  for (const each of note.querySelectorAll("[data-kept]")) each.hidden = each.dataset.kept !== part;
}

function put({ text, base, fields }) {
  shown = { base, fields };
  for (const field of baseFields) field.value = fields[field.name] ?? field.value;
  editor.value = text;
  editor.dispatchEvent(new Event("fixed")); // checks and saves it
}

function restore() {
  const draft = drafts.load(editor.dataset.draft);
  const version = { text: draft.text ?? "", base: draft.base ?? "", fields: draft.fields ?? {} };
  const isWritten = version.text && version.text !== editor.defaultValue;
  const isSent = "unsaved" in editor.dataset; // the server answered with what was sent
  if (isSent) {
    before = draft.before ?? NOTHING;
    if (version.base) shown.base = version.base;
    save();
    return show(before.text && before.text !== editor.value ? "before" : "");
  }
  const isHere = !editor.defaultValue.trim() || draft.from === location.search;
  const isOutdated = version.base !== editor.defaultValue && Boolean(editor.defaultValue.trim());
  if (isWritten && isHere && !isOutdated) {
    before = draft.before ?? NOTHING;
    put({ ...version, fields: served.fields });
    return show("restored");
  }
  before = isWritten ? version : (draft.before ?? NOTHING);
  const part = isWritten && isHere ? "outdated" : "before";
  show(before.text && before.text !== editor.value ? part : "");
}

if (editor) {
  editor.addEventListener("input", () => save());
  editor.addEventListener("fixed", () => save());
  addEventListener("load", restore); // after htmx has learnt of the editor, which checks what is put there
}

document.addEventListener("click", (event) => {
  const part = event.target.closest("[data-kept] button")?.closest("[data-kept]").dataset.kept;
  if (!part) return;
  const wanted = part === "restored" ? served : before;
  before = { ...shown, text: editor.value };
  put(wanted);
  show(before.text.trim() && "before");
  editor.focus();
});

addEventListener("submit", (event) => {
  if (event.defaultPrevented || event.target.id !== "compose") return;
  save(["start", "change", "begin"].includes(event.submitter?.value));
});

addEventListener("beforeunload", (event) => {
  if (isLost) event.preventDefault();
});
