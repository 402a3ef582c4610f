/* Theme: system, light, dark. A person's setting comes with the page, so that it never flashes; this browser keeps a
   copy for pages without a person, such as the one to sign in. Loaded before the page is drawn. */

(() => {
  const NEXT = { system: "light", light: "dark", dark: "system" };
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem("toolgate.theme");
    } catch {
      return null;
    }
  };
  const keep = () => {
    try {
      localStorage.setItem("toolgate.theme", theme);
    } catch {
      /* private browsing */
    }
  };
  let theme = root.dataset.themeSaved ?? (NEXT[stored()] ? stored() : "system");
  if (root.dataset.themeSaved) keep();

  const show = () => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    for (const label of document.querySelectorAll("[data-theme-next] span")) label.textContent = `Theme: ${theme}`;
  };

  show();
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-next]");
    if (!button) return;
    theme = NEXT[theme];
    keep();
    show();
    import("../core/choices.js").then(({ choose }) => choose("theme", theme));
  });
})();
