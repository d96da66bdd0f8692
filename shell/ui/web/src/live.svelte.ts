// What the server says now. Asked again every few seconds while the page is seen, and at once when
// the server tells of a change.
import {
  ApiError,
  call,
  hasBearer,
  setBearer,
  setCsrf,
  type Node,
  type Session,
  type User,
  type Ways,
} from "./api";
import { m } from "./text";

const EVERY_MS = 5_000;
const EVERY_MAX_MS = 30_000;

class Live {
  session: Session | null = $state(null);
  /** How one signs in here; null until the server was asked. */
  ways: Ways | null = $state(null);
  nodes: Node[] = $state.raw([]);
  users: User[] = $state.raw([]);
  /** Whether the nodes were read once. */
  ready = $state(false);
  /** Whether the server answered when it was last asked. */
  reachable = $state(true);
  /** Why the nodes may not be read. */
  refused = $state("");
  /** Grows with each look, for pages that read something of their own. */
  beat = $state(0);
  now = $state(Date.now());

  #timer: ReturnType<typeof setTimeout> | undefined;
  #wait = EVERY_MS;
  #events: EventSource | null = null;

  node(id: number): Node | undefined {
    return this.nodes.find((node) => node.id === id);
  }

  /** Whether the pages offer what needs this scope; the server decides. */
  may(scope: string): boolean {
    return this.session !== null && (this.session.scopes?.includes(scope) ?? true);
  }

  /** Whether all that is shown here is one's own. */
  get isOwnOnly(): boolean {
    return this.session !== null && !this.may("nodes:read");
  }

  /** Whether this node may be renamed, ended and removed: everybody's own may. */
  mayChange(node: Node): boolean {
    return this.may("nodes:write") || (node.user !== null && node.user === this.session?.user);
  }

  /** Whether somebody signed in by a cookie, and so has an account. */
  get hasAccount(): boolean {
    return this.session !== null && !this.session.loopback && !hasBearer();
  }

  /** Begins: who is signed in, if anybody. */
  async begin() {
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.soon();
    });
    window.addEventListener("online", () => this.soon());
    setInterval(() => (this.now = Date.now()), 10_000);
    await this.who();
  }

  async who() {
    try {
      this.#signedIn(await call<Session>("GET", "/session"));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.reachable = error.status !== 0;
      this.session = null;
      if (error.status === 0) {
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.who(), EVERY_MS);
        return;
      }
      // A server without accounts says 404; it takes tokens.
      this.ways = error.ways ?? { password: false, oidc: [] };
    }
  }

  /** A secret of a link, a password, or a token. */
  async signIn(body: unknown) {
    this.#signedIn(await call<Session>("POST", "/session", body));
  }

  async signInByToken(token: string) {
    setBearer(token);
    try {
      await call("GET", "/nodes");
    } catch (error) {
      setBearer("");
      throw error;
    }
    this.#signedIn({ user: m.signIn.bearer, role: null, csrf: null, expires_s_at: null });
  }

  #signedIn(session: Session) {
    if (session.csrf) setCsrf(session.csrf);
    this.session = session;
    this.ways = null;
    this.reachable = true;
    this.#wait = EVERY_MS;
    this.#listen();
    void this.look();
  }

  async signOut() {
    if (!hasBearer()) await call("DELETE", "/session").catch(() => {});
    this.leave();
    await this.who();
  }

  /** Forgets what was read. */
  leave() {
    clearTimeout(this.#timer);
    this.#events?.close();
    this.#events = null;
    setCsrf(null);
    setBearer("");
    this.session = null;
    this.nodes = [];
    this.users = [];
    this.ready = false;
  }

  /** Looks now. */
  soon() {
    if (this.session) void this.look();
    else void this.who();
  }

  async look() {
    clearTimeout(this.#timer);
    try {
      const answer = await call<{ nodes: Node[] }>("GET", "/nodes");
      this.nodes = answer.nodes;
      this.refused = "";
      this.ready = true;
      this.reachable = true;
      this.#wait = EVERY_MS;
      this.beat += 1;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) {
        this.leave();
        await this.who();
        return;
      }
      if (error.status === 403) {
        this.refused = error.detail;
        this.ready = true;
        this.reachable = true;
        this.beat += 1;
      } else {
        this.reachable = false;
        this.#wait = Math.min(this.#wait * 1.5, EVERY_MAX_MS);
      }
    }
    this.now = Date.now();
    if (document.visibilityState === "visible") {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => void this.look(), this.#wait);
    }
  }

  /** A stream of what changed; without one the page asks every few seconds as well. */
  #listen() {
    if (this.#events || hasBearer() || this.session?.loopback) return;
    const events = new EventSource("/api/v1/events");
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.soon(), 200);
    };
    for (const kind of ["node", "policy", "route", "key", "user"]) {
      events.addEventListener(kind, changed);
    }
    events.onerror = () => {
      if (events.readyState === EventSource.CLOSED) this.#events = null;
    };
    this.#events = events;
  }
}

export const live = new Live();

/** What is said of an error. */
export function told(error: unknown): string {
  if (error instanceof ApiError) {
    if (error.status === 0) return m.error.unreachable;
    return error.detail || error.title || m.error.status(error.status);
  }
  return String(error);
}
