/* Marks of default values in forms (`data-default-mark`): hidden as long as their field has another value than at first. */

function isChanged(control) {
  if (control.type === "checkbox" || control.type === "radio") return control.checked !== control.defaultChecked;
  if (control.tagName !== "SELECT") return control.value !== control.defaultValue;
  const atFirst = [...control.options].findIndex((option) => option.defaultSelected);
  return control.selectedIndex !== Math.max(atFirst, 0);
}

document.addEventListener("input", ({ target }) => {
  for (let field = target.closest(".field"); field; field = field.parentElement.closest(".field")) {
    const mark = field.querySelector(":scope > .label > [data-default-mark]");
    if (mark) mark.hidden = [...field.querySelectorAll("input, select, textarea")].some(isChanged);
  }
});
