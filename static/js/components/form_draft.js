/* Keeps what is typed into form[data-draft] in this browser until it is sent or the person signs out, and offers what it
   has restored to be discarded. Passwords, files, hidden fields and [data-secret] are never kept.

   A draft is { values, base, hasSecrets, isSent }: the values of each name, those that the page came with, and whether a
   secret was typed. Only what differs from the base is restored, so that a draft takes back no change of others. */

import { answer } from "../core/announce.js";
import * as drafts from "../core/drafts.js";

const TYPED = "input:not([type=hidden], [type=submit], [type=button]), select, textarea";
const SECRET = "[type=password], [type=file], [data-secret]";
const IS_CHOSEN = { checked: "defaultChecked", selected: "defaultSelected" };
const bases = new WeakMap(); // by form: the values that were there before the person changed any
const missing = new WeakMap(); // by form: restored values of fields that are not on the page yet

function fieldsOf(form) {
  return [...form.elements].filter((field) => field.name && field.matches(TYPED));
}

/** Return the values of the form's fields by name, or those that the page came with. */
function valuesOf(form, isDefault = false) {
  const values = {};
  const isOn = (part, name) => part[isDefault ? IS_CHOSEN[name] : name];
  for (const field of fieldsOf(form)) {
    if (field.matches(SECRET)) continue;
    const list = (values[field.name] ??= []);
    if (field.matches("[type=checkbox], [type=radio]")) {
      if (isOn(field, "checked")) list.push(field.value);
    } else if (field.matches("select")) {
      const chosen = [...field.options].filter((option) => isOn(option, "selected"));
      list.push(
        ...(chosen.length || field.multiple ? chosen : [...field.options].slice(0, 1)).map((each) => each.value),
      );
    } else list.push(isDefault ? field.defaultValue : field.value);
  }
  return values;
}

function isSame(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

function put(form, values) {
  const left = structuredClone(values);
  for (const field of fieldsOf(form)) {
    const list = left[field.name];
    if (!list || field.matches(SECRET)) continue;
    if (field.matches("[type=checkbox], [type=radio]")) field.checked = list.includes(field.value);
    else if (field.matches("select[multiple]")) {
      for (const option of field.options) option.selected = list.includes(option.value);
    } else if (list.length) field.value = list.shift();
  }
  const names = new Set(fieldsOf(form).map((field) => field.name));
  missing.set(form, Object.fromEntries(Object.entries(values).filter(([name]) => !names.has(name))));
  tell(form);
}

/** Let what follows the form's fields, such as its summary, follow the restored values. */
function tell(form) {
  for (const field of fieldsOf(form)) field.dispatchEvent(new Event("input", { bubbles: true }));
}

function keep(form, isSent = false) {
  const values = { ...missing.get(form), ...valuesOf(form) };
  const hasSecrets = fieldsOf(form).some((field) => field.matches(SECRET) && field.value);
  const isAsServed = !("unsaved" in form.dataset) && isSame(values, valuesOf(form, true));
  if (isAsServed && !isSent && !hasSecrets) drafts.remove(form.dataset.draft);
  else drafts.save(form.dataset.draft, { values, base: bases.get(form), hasSecrets, isSent });
}

function restore(form) {
  const { values: kept, base, hasSecrets, isSent } = drafts.load(form.dataset.draft);
  const served = valuesOf(form, true);
  bases.set(form, "unsaved" in form.dataset && base ? base : served);
  if (!kept) return;
  const changed = Object.entries(kept).filter(([name, list]) => !isSame(list, base?.[name]));
  const values = { ...served, ...Object.fromEntries(changed) };
  const [navigation] = performance.getEntriesByType("navigation");
  const isBack = navigation?.type === "back_forward"; // from an answer that was no success
  if ("unsaved" in form.dataset) return keep(form);
  if ((isSent && !isBack) || (!hasSecrets && isSame(values, valuesOf(form)))) return drafts.remove(form.dataset.draft);
  put(form, values);
  const note = form.querySelector("[data-draft-note]");
  note.hidden = false;
  note.querySelector("[data-draft-secrets]").hidden = !hasSecrets;
  note.querySelector("[data-draft-outdated]").hidden = !base || isSame(base, served);
  answer(note.innerText);
}

for (const form of document.querySelectorAll("form[data-draft]")) {
  addEventListener("load", () => restore(form)); // after htmx has learnt of the form
}

document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (form?.dataset.draft && event.isTrusted) keep(form);
});

document.addEventListener("htmx:load", (event) => {
  const form = event.target.closest("form[data-draft]");
  if (form && Object.keys(missing.get(form) ?? {}).length) put(form, missing.get(form));
});

document.addEventListener("click", (event) => {
  const form = event.target.closest("[data-draft-discard]")?.form;
  if (!form) return;
  missing.delete(form);
  form.reset();
  drafts.remove(form.dataset.draft);
  form.querySelector("[data-draft-note]").hidden = true;
  tell(form);
  answer("Draft discarded.");
  fieldsOf(form)[0]?.focus();
});

addEventListener("submit", (event) => {
  const { target: form, submitter: button } = event;
  if (!event.defaultPrevented && form.dataset.draft && !button?.formNoValidate) keep(form, true);
});
