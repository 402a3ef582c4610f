/* [data-toggle] opens and closes what its aria-controls names; a link without its target on the page stays a link. */

document.addEventListener("click", (event) => {
  const control = event.target.closest("[data-toggle]");
  const part = control && document.getElementById(control.getAttribute("aria-controls"));
  if (!part) return;
  event.preventDefault();
  const open = control.getAttribute("aria-expanded") !== "true";
  control.setAttribute("aria-expanded", String(open));
  part.hidden = !open;
});
