/* The editor of a plan's text: a problem's link selects its line, a quick fix edits the text in place, and Ctrl+Z takes
   the fix back. */

const undoable = []; // fixes, as long as the text is the one that they left

function textarea() {
  return document.getElementById("pj");
}

function selectLine(number) {
  const editor = textarea();
  const lines = editor.value.split("\n");
  const start = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
  editor.focus();
  editor.setSelectionRange(start, start + (lines[number - 1]?.length ?? 0));
}

/** Replace part of the text; the caret and all scroll positions stay. */
function replace(from, to, put) {
  const editor = textarea();
  const moved = (place) => (place >= to ? place + put.length - (to - from) : Math.min(place, from + put.length));
  const caret = [moved(editor.selectionStart), moved(editor.selectionEnd)];
  const boxes = [document.scrollingElement, editor.parentElement, editor];
  const positions = boxes.map((box) => [box, box.scrollLeft, box.scrollTop]);
  editor.focus({ preventScroll: true });
  editor.setRangeText(put, from, to);
  editor.setSelectionRange(...caret);
  for (const [box, left, top] of positions) box.scrollTo({ left, top, behavior: "instant" });
  editor.dispatchEvent(new Event("fixed"));
}

/** Apply a quick fix. Return false if the text has changed since it was checked: then the button sends the form. */
function fix({ fix: start, size, was, put }) {
  if (!textarea()) return false;
  const before = textarea().value;
  const from = Number(start);
  const to = from + was.length;
  if (before.length !== Number(size) || before.slice(from, to) !== was) return false;
  replace(from, to, put);
  undoable.push({ from, was, put, after: textarea().value });
  return true;
}

/** Take the last fix back. Return false if the text has changed since. */
function undo() {
  const last = undoable.pop();
  if (!last || textarea().value !== last.after) return false;
  replace(last.from, last.from + last.put.length, last.was);
  return true;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-fix]");
  if (button && fix(button.dataset)) event.preventDefault();
});

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  const line = event.target.closest("[data-line]");
  if (!line) return;
  event.preventDefault();
  selectLine(Number(line.dataset.line));
});

document.addEventListener("keydown", (event) => {
  const isUndo = event.key === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey;
  if (isUndo && textarea() && event.target === textarea() && undo()) event.preventDefault();
});
