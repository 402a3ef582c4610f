/* Filters of lists: a field above many choices hides those that do not contain its text. */

document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-narrow]")) return;
  const wanted = target.value.trim().toLowerCase();
  for (const choice of target.parentElement.querySelectorAll(".check")) {
    choice.hidden = !choice.textContent.toLowerCase().includes(wanted) && !choice.querySelector(":checked");
  }
});

// The field itself filters nothing, so that leaving it must not load the results again.
document.addEventListener(
  "change",
  (event) => {
    if (event.target.matches("[data-narrow]")) event.stopImmediatePropagation();
  },
  true,
);
