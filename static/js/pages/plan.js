/* The page of a plan: marks the open step in the list, and keeps folded what the reader has folded. */

import { choose } from "../components/list_navigation.js";
import { onChange } from "../core/page_changes.js";
import { isStepBesideList } from "../core/viewport.js";

let openStep;

function markOpenStep() {
  const card = document.querySelector("#step[data-step]");
  if (!card) return;
  const row = document.getElementById(`s${card.dataset.step}`);
  if (row && card.dataset.step !== openStep) choose(row);
  if (row && card.dataset.step !== openStep) scrollBox(row);
  if (row && openStep === undefined) scrollToLinked(row);
  openStep = card.dataset.step;
}

/** Scroll the box of a long timeline, never the page, so that a row is in view. */
function scrollBox(row) {
  const box = row.closest(".waterfall.many");
  if (!box) return;
  const [outer, inner] = [box.getBoundingClientRect(), row.getBoundingClientRect()];
  if (inner.top >= outer.top + inner.height && inner.bottom <= outer.bottom) return;
  box.scrollTop += inner.top - outer.top - (outer.height - inner.height) / 2;
}

/** Scroll to the row of the step that the address names, if the step itself is shown beside the list. */
function scrollToLinked(row) {
  if (!new URLSearchParams(location.search).has("step") || location.hash || !isStepBesideList()) return;
  const { top, bottom } = row.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight) row.scrollIntoView({ block: "center", behavior: "instant" });
}

// The answer for a step that was open before comes too late once the reader has asked for another.
let opened;
const isOfRow = ({ detail }) => detail.elt.matches("#steps > .row");
document.addEventListener("htmx:beforeRequest", (event) => {
  if (isOfRow(event)) opened = event.detail.elt.dataset.step;
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (isOfRow(event) && event.detail.failed && opened === event.detail.elt.dataset.step) opened = undefined;
});
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const { target, fragment } = event.detail;
  const open = opened ?? new URLSearchParams(location.search).get("step");
  const step = fragment.querySelector("#step")?.dataset.step;
  if (target.id === "step" && open && step && step !== open) event.preventDefault();
});

// An agent's work that the reader has folded stays folded when the card of the step is replaced.
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

onChange(markOpenStep);
