/* Menus (details.menu): a click outside closes them, Escape closes the open one, keys press their items. */

import { onKey } from "../core/shortcuts.js";

/** Close all menus. */
export function closeMenus() {
  for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
}

/** Close the open menu and focus its button; return false if none is open. */
export function closeOpenMenu() {
  const menu = document.querySelector("details.menu[open]");
  if (!menu) return false;
  menu.open = false;
  menu.querySelector("summary").focus();
  return true;
}

/** Press a menu item, whether or not its menu is open. */
export function pressItem(item) {
  if (item.dataset.focusOn) return unfoldAndFocus(item.dataset.focusOn);
  item.closest("details.menu").open = true;
  if (item.matches("summary")) openSection(item);
  else item.click();
  return true;
}

/** Call `press` with the item that has `key` in a menu whose button is shown. */
export function onMenuKey(key, press) {
  onKey(key, () => {
    const item = document.querySelector(`.menu [data-menu-key="${key}"]`);
    return item?.closest("details.menu").checkVisibility({ visibilityProperty: true }) ? press(item) : undefined;
  });
}

function openSection(summary) {
  summary.parentElement.open = true;
  (summary.parentElement.querySelector("select, button") ?? summary).focus();
}

/** Focus the field with this id, in a part that may be folded; return false if there is none. */
export function unfoldAndFocus(id) {
  const field = document.getElementById(id);
  const folded = field?.closest("details");
  closeMenus();
  if (folded) folded.open = true;
  field?.focus();
  return Boolean(field);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-focus-on]");
  if (link && document.getElementById(link.dataset.focusOn)) {
    event.preventDefault();
    unfoldAndFocus(link.dataset.focusOn);
  } else if (!event.target.closest("details.menu")) closeMenus();
});
