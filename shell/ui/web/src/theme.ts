// Light, dark, or as the system has it; kept in this browser only.
export type Theme = "auto" | "light" | "dark";

const KEY = "warren-theme";

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "auto";
}

export function applyTheme(wanted: Theme = theme()) {
  if (wanted === "auto") {
    localStorage.removeItem(KEY);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(KEY, wanted);
    document.documentElement.dataset.theme = wanted;
  }
}
