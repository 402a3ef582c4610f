/* Keeps the text of a plan's editor in this browser, through other pages, reloads and starters, until it is stored by
   the server or the person signs out. The text that another one replaced can be brought back.

   A draft is { text, from, before, isSent }: the text, the query of the address where it was written, the text that it
   replaced, and whether it was sent to be stored. */

const PREFIX = `toolgate.draft.${document.body.dataset.person}.`;
const editor = document.querySelector("#compose #pj");
const key = editor && PREFIX + editor.dataset.draft;
let before = "";
let isLost = false; // the browser stores nothing

function load(name) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? {};
  } catch {
    return {};
  }
}

function save(isSent = false) {
  const draft = { text: editor.value, from: location.search, before, isSent };
  try {
    localStorage.setItem(key, JSON.stringify(draft));
    isLost = false;
  } catch {
    isLost = !isSent && editor.value !== editor.defaultValue;
  }
}

function remove(isEnded) {
  try {
    const drafts = Object.keys(localStorage).filter((name) => name.startsWith("toolgate.draft."));
    for (const name of drafts.filter(isEnded)) localStorage.removeItem(name);
  } catch {
    /* private browsing */
  }
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
  const draft = load(key);
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

if (document.body.dataset.person) {
  remove((name) => !name.startsWith(PREFIX) || (name !== key && load(name).isSent));
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
  if (event.defaultPrevented) return;
  if (event.target.getAttribute("action")?.endsWith("/sign-out/")) remove(() => true);
  else if (event.target.id === "compose") save(["start", "change"].includes(event.submitter?.value));
});

addEventListener("beforeunload", (event) => {
  if (isLost) event.preventDefault();
});
