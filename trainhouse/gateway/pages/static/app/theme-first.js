// Sets light or dark before the first paint, so that no page flashes. A classic script on purpose: modules run later.
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* storage may be off */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
