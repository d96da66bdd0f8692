// How the links between nodes are, as both ends report it; asked while a page shows it.
import { call, type Link } from "./api";

/** Nodes report so often. */
const EVERY_MS = 10_000;
/** A share of datagrams above which a link is called lossy. */
export const LOSSY = 0.01;

/** A link in the words of both its ends. */
export interface Line {
  id: string;
  a: number;
  b: number;
  path: Link["path"];
  rtt_us: number | null;
  /** The worse of both directions. */
  loss: number;
  /** Bytes a second both ways; null until it was looked at twice. */
  rate: number | null;
}

interface Seen {
  at: number;
  bytes: number;
  rate: number | null;
}

export class Links {
  lines: Line[] = $state.raw([]);
  leftOut = $state(0);
  #seen = new Map<string, Seen>();
  #watchers = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Asks from now on, until what it returns is called. */
  watch(): () => void {
    this.#watchers += 1;
    if (this.#watchers === 1) void this.#look();
    return () => {
      this.#watchers -= 1;
      if (this.#watchers === 0) clearTimeout(this.#timer);
    };
  }

  async #look() {
    clearTimeout(this.#timer);
    try {
      const answer = await call<{ links: Link[]; left_out: number }>("GET", "/links");
      this.take(answer.links, answer.left_out);
    } catch {
      // The page says elsewhere that the server does not answer; what is known is old soon.
      this.take([], 0);
    }
    if (this.#watchers > 0) this.#timer = setTimeout(() => void this.#look(), EVERY_MS);
  }

  /** Takes an answer. */
  take(links: Link[], leftOut: number) {
    this.lines = this.#joined(links);
    this.leftOut = leftOut;
  }

  /** Of each pair one line. Bytes are those of one end, the same in each look. */
  #joined(links: Link[]): Line[] {
    const lines = new Map<string, Line & { teller: Link }>();
    for (const link of links) {
      const [a, b] = link.node < link.peer ? [link.node, link.peer] : [link.peer, link.node];
      const id = `${a}-${b}`;
      const known = lines.get(id);
      if (!known) {
        const { path, rtt_us, loss } = link;
        lines.set(id, { id, a, b, path, rtt_us, loss, rate: null, teller: link });
        continue;
      }
      if (known.path === "none" || link.path === "relay") known.path = link.path;
      known.rtt_us ??= link.rtt_us;
      known.loss = Math.max(known.loss, link.loss);
      if (link.node === a) known.teller = link;
    }
    const seen = new Map<string, Seen>();
    for (const line of lines.values()) {
      const { node, at, rx_bytes, tx_bytes } = line.teller;
      const key = `${line.id}:${node}`;
      const bytes = rx_bytes + tx_bytes;
      line.rate = rate(this.#seen.get(key), at, bytes);
      seen.set(key, { at, bytes, rate: line.rate });
    }
    this.#seen = seen;
    return [...lines.values()];
  }
}

function rate(before: Seen | undefined, at: number, bytes: number): number | null {
  if (!before) return null;
  if (at <= before.at) return before.rate;
  // A counter that began anew says nothing.
  return bytes < before.bytes ? null : (bytes - before.bytes) / (at - before.at);
}

export const links = new Links();

/** How a link looks and is called. */
export function kind(line: { path: string; loss: number }): "direct" | "lossy" | "relay" | "none" {
  if (line.path === "relay") return "relay";
  if (line.path !== "direct") return "none";
  return line.loss > LOSSY ? "lossy" : "direct";
}
