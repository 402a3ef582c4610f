/* The plan pages. The open step is marked in every view, boxes of the graph open steps, the newest events are kept
   in sight while Follow is on. In the editor, a problem's line is selected, and its fix edits the text in place. */

import { onChange } from "../core/page_changes.js";
import { choose } from "../components/list_navigation.js";

const BESIDE = "(min-width: 1181px)"; // the open step stands beside the rows
let open;

function markOpenStep() {
  const card = document.querySelector("#step[data-step]");
  if (!card) return;
  const row = document.getElementById(`s${card.dataset.step}`);
  if (row && card.dataset.step !== open) choose(row);
  if (row && open === undefined) lead(row);
  open = card.dataset.step;
  for (const box of document.querySelectorAll("#graph [data-step]")) {
    box.classList.toggle("sel", box.dataset.step === open);
  }
  showBox(document.querySelector("#graph .sel"));
}

/* The graph is drawn anew with each change: it stays where it was scrolled to, until another step is open. */
let graph,
  scrolled = 0,
  shown;
function showBox(box) {
  const wrap = document.getElementById("graph");
  if (wrap !== graph) wrap.scrollLeft = scrolled;
  graph = wrap;
  if (box && shown !== open) {
    const [inner, outer] = [box.getBoundingClientRect(), wrap.getBoundingClientRect()];
    if (inner.left < outer.left || inner.right > outer.right) {
      wrap.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
    }
  }
  shown = open;
}
document.addEventListener(
  "scroll",
  (event) => {
    if (event.target === graph) scrolled = graph.scrollLeft;
  },
  true,
);

/** Bring the row of the step that the address names into sight, where its card is in sight beside it. */
function lead(row) {
  if (!new URLSearchParams(location.search).has("step") || location.hash || !matchMedia(BESIDE).matches) return;
  const { top, bottom } = row.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight) row.scrollIntoView({ block: "center", behavior: "instant" });
}

function follow() {
  const events = document.getElementById("events");
  if (events && document.getElementById("follow")?.checked) events.scrollTop = 0;
}

/* Whoever folded the work of an agent finds it folded when the card is drawn again. */
const folded = new Set();
document.addEventListener(
  "toggle",
  (event) => {
    if (event.target.id !== "work") return;
    const step = event.target.closest("[data-step]").dataset.step;
    if (event.target.open) folded.delete(step);
    else folded.add(step);
  },
  true,
);
for (const name of ["htmx:afterSwap", "htmx:oobAfterSwap"]) {
  document.addEventListener(name, () => {
    const work = document.getElementById("work");
    if (work && folded.has(work.closest("[data-step]").dataset.step)) work.open = false;
  });
}

/* What was written and neither checked in nor started is not left without a question. */
let sending = false;
const isUnsaved = () => {
  const editor = document.querySelector("#compose #pj");
  return Boolean(editor && !sending && ("unsaved" in editor.dataset || editor.value !== editor.defaultValue));
};
addEventListener("submit", (event) => {
  sending = event.target.id === "compose" && !event.defaultPrevented;
});
addEventListener("pageshow", () => {
  sending = false;
});
addEventListener("beforeunload", (event) => {
  if (isUnsaved()) event.preventDefault();
});

function selectLine(number) {
  const editor = document.getElementById("pj");
  const lines = editor.value.split("\n");
  const start = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
  editor.focus();
  editor.setSelectionRange(start, start + (lines[number - 1]?.length ?? 0));
}

/* Make a fix's edit as if it were typed, so that it can be undone; caret and scroll stay. A text that is no longer the
   one that was checked is left to the server: the button sends the form. */
function fix({ fix: start, size, was, put }) {
  const editor = document.getElementById("pj");
  const from = Number(start),
    to = from + was.length;
  if (editor.value.length !== Number(size) || editor.value.slice(from, to) !== was) return false;
  const moved = (place) => (place >= to ? place + put.length - was.length : Math.min(place, from + put.length));
  const caret = [moved(editor.selectionStart), moved(editor.selectionEnd)];
  const scrolled = [document.scrollingElement, editor.parentElement, editor].map((box) => [
    box,
    box.scrollLeft,
    box.scrollTop,
  ]);
  editor.focus({ preventScroll: true });
  editor.setSelectionRange(from, to);
  if (!document.execCommand(put ? "insertText" : "delete", false, put)) editor.setRangeText(put, from, to);
  editor.setSelectionRange(...caret);
  for (const [box, left, top] of scrolled) box.scrollTo({ left, top, behavior: "instant" });
  editor.dispatchEvent(new Event("fixed"));
  return true;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-fix]");
  if (button && fix(button.dataset)) event.preventDefault();
});

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  const box = event.target.closest("#graph [data-step]");
  const row = box && document.getElementById(`s${box.dataset.step}`);
  const line = event.target.closest("[data-line]");
  if (!row && !line) return;
  event.preventDefault();
  if (row) row.click();
  else selectLine(Number(line.dataset.line));
});
document.addEventListener("change", (event) => event.target.id === "follow" && follow());

onChange(markOpenStep);
onChange(follow);
