/* The tree of a JSON value: arrows move through what is shown, fold and unfold, and what a member holds is loaded when
   it is opened. Without scripts, the same members are links and disclosures. */

const TREE = ".json-tree";
const STOP = "summary, .json-line > a, [data-rest] > a";

/** Return the places of a tree that the arrows stop at, without those inside folded members. */
function stops(tree) {
  return [...tree.querySelectorAll(STOP)].filter((stop) => stop.checkVisibility());
}

/** Return the member around a place of the tree, for the line of a member the one that holds it. */
function parentOf(stop) {
  const item = stop.closest("li").parentElement.closest("li");
  return item?.querySelector("summary");
}

function target(key, tree, stop) {
  const all = stops(tree);
  const at = all.indexOf(stop);
  const member = stop.matches("summary") ? stop.parentElement : null;
  if (key === "ArrowDown") return all[at + 1];
  if (key === "ArrowUp") return all[at - 1];
  if (key === "Home") return all[0];
  if (key === "End") return all.at(-1);
  if (key === "ArrowRight" && member) {
    if (member.open) return all[at + 1];
    member.open = true;
  } else if (key === "ArrowLeft") {
    if (!member?.open) return parentOf(stop);
    member.open = false;
  }
  return stop;
}

document.addEventListener("keydown", (event) => {
  const stop = event.target.closest?.(STOP);
  const tree = stop?.closest(TREE);
  const isArrow = /^(Arrow(Up|Down|Left|Right)|Home|End)$/.test(event.key);
  if (!tree || !isArrow || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  target(event.key, tree, stop)?.focus();
});

// Members that are not on the page are loaded when their member is opened; the events of disclosures do not bubble.
document.addEventListener(
  "toggle",
  (event) => {
    if (!event.target.open || !event.target.closest(TREE)) return;
    event.target.querySelector(":scope > ul > [data-rest]:only-child > a")?.click();
  },
  true,
);

// Whoever pressed "Show more" goes on at the first member that came.
let before;

document.addEventListener("htmx:beforeSwap", (event) => {
  const rest = event.target.closest?.(`${TREE} [data-rest]`);
  before = rest?.contains(document.activeElement)
    ? { list: rest.parentElement, place: [...rest.parentElement.children].indexOf(rest) }
    : undefined;
});
document.addEventListener("htmx:afterSwap", () => {
  before?.list.children[before.place]?.querySelector(STOP)?.focus();
  before = undefined;
});
