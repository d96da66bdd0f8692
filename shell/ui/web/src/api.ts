// Calls of /api/v1: the only way in which this page learns or changes anything.

export interface Finding {
  line: number;
  column: number;
  what: string;
  mend: string;
}

export interface Node {
  id: number;
  name: string;
  addresses: string[];
  key: string;
  machine: string;
  user: string | null;
  tags: string[];
  ephemeral: boolean;
  approved: boolean;
  online: boolean;
  created: string;
  expires: string | null;
  expired: boolean;
  /** Whether people are to be told that it ends; a server of before says nothing. */
  expires_soon?: boolean;
  last_seen: string | null;
  hostname: string;
  os: string;
  program: string;
  endpoints: string[];
  routes: { advertised: string[]; approved: string[]; active: string[] };
}

export interface User {
  id: number;
  name: string;
  created: string;
  role?: string;
  password?: boolean;
  issuer?: string | null;
  groups?: string[];
}

export interface Key {
  id: number;
  prefix: string;
  reusable: boolean;
  ephemeral: boolean;
  tags: string[];
  user: string | null;
  created: string;
  expires: string | null;
  used: string | null;
  revoked: boolean;
}

export interface Token {
  id: number;
  prefix: string;
  scopes: string[];
  created: string;
  expires: string | null;
  last_used: string | null;
  revoked: boolean;
}

export interface Secret {
  id: number;
  prefix: string;
  token: string;
  expires: string | null;
}

export interface Relay {
  id: number;
  url: string;
  key: string;
  stun: string[];
  quic: boolean;
}

export interface Entry {
  id: number;
  time: string;
  actor: string;
  action: string;
  object: string;
  detail: unknown;
}

export interface Health {
  ok: boolean;
  books?: { trouble: string | null };
  provider?: { name: string; trouble: string | null };
  certificate?: {
    from: string;
    expires: string | null;
    trouble?: { what: string; failures: number; next_try: string } | null;
  };
}

export interface Policy {
  version: number;
  text: string;
  readable: boolean;
}

export interface PolicyVersion {
  version: number;
  actor: string;
  created: string;
}

export interface Checked {
  rules: number;
  tests: number;
  nodes: number;
  warnings: Finding[];
}

/** What one end of a link said last. */
export interface Link {
  node: number;
  peer: number;
  path: "direct" | "relay" | "none";
  rtt_us: number | null;
  loss: number;
  rx_bytes: number;
  tx_bytes: number;
  at: number;
}

/** Five minutes of a node. */
export interface Step {
  at: number;
  rx_bytes: number;
  tx_bytes: number;
  loss_max: number;
  rtt_us: number | null;
}

export interface Zone {
  zone: string;
  resolvers: string[];
}

export interface Dns {
  domain: string;
  upstreams: string[];
  zones: Zone[];
  /** Names that are no node's; a server of before has none. */
  records?: { name: string; addresses: string[] }[];
}

export interface Explanation {
  source: { address: string; node: number | null };
  destination: { address: string; node: number | null };
  policy: { allowed: boolean; why: string };
}

export interface Session {
  user: string;
  role: string | null;
  /** What may be done here; everything where the server does not say. */
  scopes?: string[] | null;
  csrf: string | null;
  expires_s_at: number | null;
  loopback?: boolean;
}

export interface Ways {
  password: boolean;
  oidc: { name: string; url: string }[];
  loopback?: boolean;
}

/** A refusal of the server, or status 0 where nobody answered. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly body: Record<string, unknown> = {},
  ) {
    super(detail || title);
  }

  get findings(): Finding[] {
    return Array.isArray(this.body.findings) ? (this.body.findings as Finding[]) : [];
  }

  get ways(): Ways | null {
    return (this.body.sign_in as Ways) ?? null;
  }
}

const KEPT = "warren-session";

/** What proves that a call comes from this page. Kept for this tab: `warren ui` knows it by nothing else. */
let csrf = sessionStorage.getItem(KEPT) ?? "";
/** An API token, kept for as long as the page is open. */
let bearer = "";

export function setCsrf(value: string | null) {
  csrf = value ?? "";
  if (csrf) sessionStorage.setItem(KEPT, csrf);
  else sessionStorage.removeItem(KEPT);
}

export function setBearer(value: string) {
  bearer = value;
}

export function hasBearer(): boolean {
  return bearer !== "";
}

/** An answer may take so long, in milliseconds. */
const WITHIN_MS = 30_000;

export async function call<T = unknown>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = {};
  if (csrf) headers["X-Warren-Csrf"] = csrf;
  if (bearer) headers["Authorization"] = `Bearer ${bearer}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(`/api/v1${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
      signal: AbortSignal.timeout(WITHIN_MS),
    });
    text = await answer.text();
  } catch {
    throw new ApiError(0, "", "");
  }
  let value: Record<string, unknown> = {};
  try {
    value = text ? JSON.parse(text) : {};
  } catch {
    value = {};
  }
  if (!answer.ok) {
    const title = typeof value.title === "string" ? value.title : "";
    const detail = typeof value.detail === "string" ? value.detail : "";
    throw new ApiError(answer.status, title, detail, value);
  }
  return value as T;
}
