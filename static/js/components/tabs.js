/* Tabs by the ARIA pattern, for buttons and for links that also work as pages. Panels are named by aria-controls. */

const TAB = "[role=tab]";

function tabsOf(tab) {
  return [...tab.closest("[role=tablist]").querySelectorAll(TAB)];
}

function panelOf(tab) {
  return document.getElementById(tab.getAttribute("aria-controls"));
}

function pick(tab) {
  for (const other of tabsOf(tab)) {
    const on = other === tab;
    other.setAttribute("aria-selected", String(on));
    other.tabIndex = on ? 0 : -1;
    const panel = panelOf(other);
    if (panel) panel.hidden = !on;
  }
  if (tab.href) history.replaceState(history.state, "", tab.href);
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest(TAB);
  if (!tab || !panelOf(tab)) return;
  event.preventDefault();
  pick(tab);
});

document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.(TAB);
  if (!tab) return;
  const tabs = tabsOf(tab);
  const at = tabs.indexOf(tab);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const chosen = tabs[(next + tabs.length) % tabs.length];
  chosen.focus();
  if (panelOf(chosen)) pick(chosen);
});
