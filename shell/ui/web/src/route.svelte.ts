// Which page is shown: what stands behind # in the address, which no server sees.
class Route {
  name = $state("overview");
  id: number | null = $state(null);
  /** What a link says beside the page, as in the secret of a sign-in. */
  rest = $state("");
  query = $state("");

  constructor() {
    this.#read();
    window.addEventListener("hashchange", () => {
      this.#read();
      window.scrollTo(0, 0);
      document.getElementById("main")?.focus({ preventScroll: true });
    });
  }

  #read() {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [name = "", rest = ""] = path.split("/");
    this.name = name || "overview";
    this.rest = rest;
    this.id = /^\d+$/.test(rest) ? Number(rest) : null;
    this.query = query;
  }

  go(to: string) {
    location.hash = `#/${to}`;
  }

  /** Takes what stands behind # out of the address and of the history. */
  clear() {
    history.replaceState(null, "", location.pathname + "#/overview");
    this.#read();
  }
}

export const route = new Route();
