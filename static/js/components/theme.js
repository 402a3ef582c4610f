/* Theme: system, light, dark; kept in this browser. Loaded before the page is drawn, so that it never flashes. */

(() => {
  const NEXT = { system: "light", light: "dark", dark: "system" };
  const stored = () => {
    try {
      return localStorage.getItem("toolgate.theme");
    } catch {
      return null;
    }
  };
  const keep = (theme) => {
    try {
      localStorage.setItem("toolgate.theme", theme);
    } catch {
      /* private browsing */
    }
  };
  let theme = NEXT[stored()] ? stored() : "system";

  const show = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    for (const label of document.querySelectorAll("[data-theme-next] span")) label.textContent = `Theme: ${theme}`;
  };

  show();
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-next]")) return;
    theme = NEXT[theme];
    keep(theme);
    show();
  });
})();
