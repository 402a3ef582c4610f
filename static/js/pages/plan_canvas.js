/* The graph of a plan as a canvas: it marks the open step, zooms, follows the pointer and the running step, moves along
   the arrows by keys, and shows a map. Only the boxes in view are drawn. Without it the region scrolls and has them all. */

import { answer } from "../core/announce.js";
import { onChange } from "../core/page_changes.js";

const [WIDTH, HEIGHT] = [148, 64]; // of a box, as in plans/web/graph.py
const [LEAST, MOST, FACTOR] = [0.05, 2, 1.25];
const FITS = 0.75; // a graph that fits only at a smaller scale begins at 100 %
const LEGIBLE = 0.4;
const MARGIN = 300;
const DRAG = 4;
const LOOKS = ["idle", "skip", "ok", "run", "bad", "human"];
const SEEN = ["bad", "human"]; // seen on the map among 500 steps

let svg;
let zoom = 1;
let inView = { x: 0, y: 0, width: 0, height: 0 }; // of the drawing
let mapSize = [0, 0]; // in pixels
let boxes = new Map();
let openStep;
let followed;
let isDragged = false;
let due = false;

const region = () => document.getElementById("graph");
const map = () => document.getElementById("map");
const size = () => ["width", "height"].map((name) => Number(svg.querySelector("#drawn").getAttribute(name)));

function place(box) {
  const { e, f } = box.transform.baseVal.getItem(0).matrix;
  return { x: e, y: f };
}

function steps(box) {
  return (box.dataset.steps ?? box.dataset.step).split(" ");
}

/** Bring the canvas up to date with the page, before the next frame. */
function refresh() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const found = document.querySelector("#graph svg.graph:has(#drawn)");
    if (!found?.querySelector("a.node")) return;
    if (found !== svg) begin(found);
    boxes = new Map([...svg.querySelectorAll("a.node")].map((box) => [box, place(box)]));
    const [width, height] = size();
    const isResized = svg.getAttribute("viewBox") !== `0 0 ${width} ${height}`;
    if (isResized) resize();
    markOpenStep();
    drawMap();
    if (isResized) updateView();
    else show();
  });
}

function begin(found) {
  svg = found;
  svg.classList.remove("fits");
  const { scale } = fitting();
  zoom = scale >= FITS ? scale : 1;
  resize();
  inView = view();
  sizes.disconnect();
  sizes.observe(region());
  if (map()) sizes.observe(map());
}

// The sizes are asked for when they change. To ask after every change of the page would lay out the whole page each time.
const sizes = new ResizeObserver(() => {
  mapSize = map() ? [map().clientWidth, map().clientHeight] : [0, 0];
  drawMap();
  updateView();
});

/** See which part of the drawing is in view, and draw what is there. */
function updateView() {
  if (!svg?.isConnected) return;
  inView = view();
  show();
}

function resize() {
  const [width, height] = size();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width * zoom);
  svg.setAttribute("height", height * zoom);
  svg.classList.toggle("far", zoom < LEGIBLE);
  const reset = document.querySelector("[data-zoom=reset]");
  if (reset) reset.textContent = `${Math.round(zoom * 100)} %`;
}

function fitting() {
  const style = getComputedStyle(region());
  const [width, height] = size();
  const across = region().clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const down = parseFloat(style.maxHeight) - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  const fit = (...scales) => Math.floor(1000 * Math.min(1, ...scales)) / 1000; // never a pixel too wide
  return { scale: fit(across / width), whole: fit(across / width, down / height) };
}

/** Zoom; the point of the drawing at `at`, in pixels of the window, stays where it is. */
function zoomTo(scale, at = centre()) {
  const before = svg.getBoundingClientRect();
  const [x, y] = [(at.x - before.left) / zoom, (at.y - before.top) / zoom];
  zoom = Math.min(MOST, Math.max(LEAST, scale));
  resize();
  const after = svg.getBoundingClientRect();
  region().scrollLeft += after.left + x * zoom - at.x;
  region().scrollTop += after.top + y * zoom - at.y;
  updateView();
}

function centre() {
  const { left, top } = region().getBoundingClientRect();
  return { x: left + region().clientWidth / 2, y: top + region().clientHeight / 2 };
}

/** Return the part of the drawing that is in view. */
function view() {
  const [outer, inner] = [region().getBoundingClientRect(), svg.getBoundingClientRect()];
  const [x, y] = [(outer.left - inner.left) / zoom, (outer.top - inner.top) / zoom];
  return { x, y, width: region().clientWidth / zoom, height: region().clientHeight / zoom };
}

/** Draw the boxes in view, and those that have the focus or get it next. */
function show() {
  const { x, y, width, height } = inView;
  for (const [box, at] of boxes) {
    const isOff =
      at.x + WIDTH + MARGIN < x ||
      at.x - MARGIN > x + width ||
      at.y + HEIGHT + MARGIN < y ||
      at.y - MARGIN > y + height;
    box.classList.toggle("off", isOff && box.tabIndex !== 0 && box !== document.activeElement);
  }
  const frame = map()?.querySelector("rect");
  if (!frame) return;
  for (const [name, value] of Object.entries({ x, y, width, height })) frame.setAttribute(name, value);
}

function markOpenStep() {
  const step = document.querySelector("#step[data-step], #step-slot[data-step]")?.dataset.step;
  const all = [...boxes.keys()];
  const open = all.find((box) => steps(box).includes(step));
  const focused = all.find((box) => box === document.activeElement);
  const stop = focused ?? open ?? all[0];
  for (const box of all) {
    box.classList.toggle("selected", box === open);
    const tabindex = box === stop ? "0" : "-1";
    if (box.getAttribute("tabindex") !== tabindex) box.setAttribute("tabindex", tabindex);
  }
  if (step === openStep) return;
  const named = openStep === undefined && svg.querySelector("a.node:target"); // the first step of a group just opened
  if (named) {
    named.focus({ preventScroll: true });
    document.getElementById("g-h").scrollIntoView({ behavior: "instant" });
  }
  const shown = named || focused || open;
  if (shown) reveal(shown);
  for (const link of document.querySelectorAll(".canvas-tools a")) {
    const query = new URLSearchParams(link.search);
    query.set("step", step);
    link.search = query;
  }
  openStep = step;
}

/** Scroll the region, never the page, so that a box is in view. */
function reveal(box) {
  const { x, y, width, height } = view();
  const at = boxes.get(box);
  if (at.x < x || at.y < y || at.x + WIDTH > x + width || at.y + HEIGHT > y + height) moveTo(at);
}

function moveTo({ x, y }, behavior = "instant") {
  const [width, height] = [region().clientWidth, region().clientHeight];
  region().scrollTo({ left: (x + WIDTH / 2) * zoom - width / 2, top: (y + HEIGHT / 2) * zoom - height / 2, behavior });
}

function drawMap() {
  if (!map() || !mapSize[0]) return;
  const [width, height] = size();
  const [across, down] = [width / mapSize[0], height / mapSize[1]]; // of a pixel of the map
  const paths = Object.fromEntries(LOOKS.map((look) => [look, ""]));
  for (const [box, { x, y }] of boxes) {
    const look = LOOKS.find((each) => box.classList.contains(each)) ?? "idle";
    const least = SEEN.includes(look) ? 5 : 2;
    const [wide, high] = [Math.max(WIDTH, least * across), Math.max(HEIGHT, least * down)];
    paths[look] += `M${x} ${y}h${wide}v${high}h${-wide}z`;
  }
  map().setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const look of LOOKS) {
    const path = map().querySelector(`.${look}`);
    if (path.getAttribute("d") !== paths[look]) path.setAttribute("d", paths[look]);
  }
}

/** Have the link of folded steps, which opens them, keep the open step and lead to the first of them. */
function keepOpenStep(box) {
  const query = new URLSearchParams(box.getAttribute("href").split("#")[0]);
  if (openStep) query.set("step", openStep);
  box.setAttribute("href", `?${query}#${box.id}`);
}

const follows = () => document.getElementById("follow-step");

function stopFollowing() {
  if (follows()) follows().checked = false;
}

/** Keep a running step in the middle, and when it has ended the next one. */
function follow() {
  if (!follows()?.checked || !svg?.isConnected || svg.contains(document.activeElement)) return;
  const isRunning = (step) => document.getElementById(`n${step}`)?.matches(".run, .human");
  if (isRunning(followed)) return;
  const box = svg.querySelector("a.node.run") ?? svg.querySelector("a.node.human");
  if (!boxes.has(box)) return;
  followed = box.dataset.step;
  moveTo(boxes.get(box), matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth");
}

setInterval(follow, 500);

function neighbours(box, key) {
  const needs = (each) => (document.getElementById(`w${each.dataset.step}`)?.dataset.needs ?? "").split(" ");
  if (key === "ArrowLeft") return needs(box).map((step) => document.getElementById(`n${step}`));
  if (key === "ArrowRight") return [...boxes.keys()].filter((each) => needs(each).includes(box.dataset.step));
  return [];
}

const FURTHER = {
  ArrowLeft: ({ x }) => -x,
  ArrowRight: ({ x }) => x,
  ArrowUp: ({ y }) => -y,
  ArrowDown: ({ y }) => y,
};

/** Return the box to which a key leads: along an arrow, otherwise the nearest in this direction. */
function next(box, key) {
  const from = boxes.get(box);
  if (key === "Home" || key === "End") return [...boxes.keys()].at(key === "Home" ? 0 : -1);
  const further = FURTHER[key];
  const joined = neighbours(box, key).filter((each) => boxes.has(each));
  const ahead = joined.length ? joined : [...boxes.keys()].filter((each) => further(boxes.get(each)) > further(from));
  const isAcross = key === "ArrowLeft" || key === "ArrowRight";
  const distance = (each) => {
    const [x, y] = [Math.abs(boxes.get(each).x - from.x), Math.abs(boxes.get(each).y - from.y)];
    return isAcross ? x + 4 * y : 4 * x + y;
  };
  return ahead.toSorted((one, other) => distance(one) - distance(other))[0];
}

document.addEventListener("keydown", (event) => {
  const box = event.target.closest?.("#graph a.node");
  const isKey = event.key in FURTHER || event.key === "Home" || event.key === "End";
  if (!box || !isKey || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  event.preventDefault();
  const target = next(box, event.key);
  if (!target) return;
  target.classList.remove("off");
  target.setAttribute("tabindex", 0);
  target.focus({ preventScroll: true });
  box.setAttribute("tabindex", -1);
  reveal(target);
});

document.addEventListener("click", (event) => {
  const control = event.target.closest("[data-zoom]");
  if (control && svg) {
    const scales = { in: zoom * FACTOR, out: zoom / FACTOR, reset: 1, fit: fitting().whole };
    zoomTo(scales[control.dataset.zoom]);
    answer(`${Math.round(zoom * 100)} %`);
  }
  const box = event.target.closest("#graph a.node");
  if (isDragged && box && event.detail) return event.preventDefault(); // with 0, by a key
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (box?.dataset.steps) return keepOpenStep(box);
  const row = box && document.getElementById(`s${box.dataset.step}`);
  if (!row) return;
  event.preventDefault();
  row.click();
});

document.addEventListener(
  "wheel",
  (event) => {
    if (!svg || !event.target.closest("#graph")) return;
    stopFollowing();
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomTo(zoom * Math.exp(-event.deltaY / 300), { x: event.clientX, y: event.clientY });
  },
  { passive: false },
);

document.addEventListener("touchmove", (event) => event.target.closest("#graph") && stopFollowing(), { passive: true });

// A finger scrolls the region by itself.
document.addEventListener("pointerdown", (event) => {
  isDragged = false;
  if (event.target.closest("#map")) return void track(event, moveByMap);
  if (!svg?.contains(event.target) || event.pointerType === "touch" || event.button !== 0) return;
  const { scrollLeft, scrollTop } = region();
  track(event, (moved) => {
    const [x, y] = [moved.clientX - event.clientX, moved.clientY - event.clientY];
    if (!isDragged && Math.hypot(x, y) < DRAG) return;
    isDragged = true;
    stopFollowing();
    region().scrollTo({ left: scrollLeft - x, top: scrollTop - y, behavior: "instant" });
  });
});
document.addEventListener("dragstart", (event) => svg?.contains(event.target) && event.preventDefault());

function track(event, move) {
  const stop = new AbortController();
  document.addEventListener("pointermove", move, { signal: stop.signal });
  for (const name of ["pointerup", "pointercancel"]) {
    document.addEventListener(name, () => stop.abort(), { signal: stop.signal });
  }
  if (event.target.closest("#map")) move(event);
}

function moveByMap(event) {
  event.preventDefault();
  stopFollowing();
  const box = map().getBoundingClientRect();
  const [width, height] = size();
  moveTo({
    x: ((event.clientX - box.left) / box.width) * width - WIDTH / 2,
    y: ((event.clientY - box.top) / box.height) * height - HEIGHT / 2,
  });
}

document.addEventListener("scroll", (event) => event.target === region() && updateView(), {
  capture: true,
  passive: true,
});
document.addEventListener("focusin", (event) => event.target.closest("#graph a.node") && refresh());
onChange(refresh);
