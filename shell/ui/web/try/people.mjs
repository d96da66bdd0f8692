// People at a server with HTTPS: sign in with a password and by a provider, let a machine in by its
// link; and pages of others that want to misuse who is signed in.
//   node try/people.mjs FOLDER URL PASSWORD
import {
  audit, base, check, context, figures, go, NARROW, outside, picture, run, shown, watch, words,
} from "./common.mjs";

const [password] = words;
const COOKIE = "warren_session";
/** A machine's name with what a page must not take for markup; a quote, too. */
const MACHINE = `<i>lab</i> "7"`;

const own = await context();
const page = await own.newPage();
page.setDefaultTimeout(20_000);
watch(page);

// The provider's pages are its own: they are watched for where they lead, not for their looks.
const hers = await context({ viewport: NARROW });
const phone = await hers.newPage();
phone.setDefaultTimeout(20_000);

const cookie = async (of) => (await of.cookies(base)).find((one) => one.name === COOKIE);
/** A call as a page would make it, with what the page has: the status. */
const call = (at, method, path, body) =>
  at.evaluate(
    async ([method, path, body]) => {
      const csrf = sessionStorage.getItem("warren-session");
      const headers = { "X-Warren-Csrf": csrf, "Content-Type": "application/json" };
      const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
      return answer.status;
    },
    [method, path, body],
  );

async function door() {
  await page.goto(base);
  await page.getByRole("link", { name: "Sign in with Uni" }).waitFor();
  await picture(page, "door-1400");
  await shown(page, "sign-in");
  await audit(page, "sign-in");
  await page.setViewportSize(NARROW);
  await picture(page, "door-400");
  await page.setViewportSize({ width: 1400, height: 900 });
}

/** What somebody planted in the browser is not what one has after a sign-in. */
async function withPassword() {
  const planted = "A".repeat(43);
  await own.addCookies([{ name: COOKIE, value: planted, url: base, secure: true }]);
  await page.reload();
  await page.getByLabel("User").fill("olga");
  await page.getByLabel("Password").fill("not the password");
  await page.getByRole("button", { name: "Sign in", exact: true }).first().click();
  await page.getByRole("alert").getByText("the name or the password is wrong").waitFor();
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).first().click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  const kept = await cookie(own);
  check(kept.value !== planted, "the session has the name that was planted");
  check(kept.httpOnly && kept.secure && kept.sameSite === "Lax", `the cookie is ${JSON.stringify(kept)}`);
  check((await page.evaluate(() => document.cookie)) === "", "a script reads the cookie");
}

async function users() {
  await go(page, "users");
  await page.getByRole("button", { name: "Add a user" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("ben");
  await dialog.getByLabel("Role").selectOption("operator");
  await dialog.getByLabel("Password").fill(password);
  await dialog.getByRole("button", { name: "Add a user" }).click();
  await page.getByRole("button", { name: "Role of ben" }).click();
  await dialog.getByLabel("Role").selectOption("auditor");
  await audit(page, "role of a user");
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByRole("cell", { name: "auditor" }).waitFor();
  await picture(page, "users-1400");
  await audit(page, "users");
}

async function account() {
  await page.getByRole("link", { name: "olga" }).click();
  await page.getByRole("heading", { name: "Your account" }).waitFor();
  const change = async (before, next) => {
    await page.getByLabel("Password of now").fill(before);
    await page.getByLabel("New password").fill(next);
    await page.getByRole("button", { name: "Change it" }).click();
  };
  await change("not the password", "another password");
  await page.getByText("the name or the password is wrong").waitFor();
  await change(password, "another password");
  await page.getByText("It is changed.").waitFor();
  await picture(page, "account-1400");
  await audit(page, "account");
}

/** At the provider: says who one is, and agrees. */
async function atProvider(at, name) {
  await at.waitForURL(/\/interaction\//);
  await at.locator("input[name=login]").fill(name);
  await at.locator("input[name=password]").fill("x");
  await at.locator("button[type=submit]").click();
  await at.waitForTimeout(300);
  if (/\/interaction\//.test(at.url())) await at.locator("button[type=submit]").click();
}

async function byProvider() {
  await phone.goto(base);
  await phone.getByRole("link", { name: "Sign in with Uni" }).click();
  await atProvider(phone, "anna");
  await phone.getByRole("heading", { name: "Overview" }).waitFor();
  watch(phone);
  await phone.getByText("No machine is yours yet").waitFor();
  await picture(phone, "member-400");
  await audit(phone, "a member's overview");
  const offered = await phone.getByRole("navigation").getByRole("link").allTextContents();
  check(offered.map((one) => one.trim()).join() === "Overview,Nodes,Routes", `a member is offered ${offered}`);
}

/** A link, on a phone: which machine asks, and the answer. */
async function link() {
  const { url, key } = await outside("knock", MACHINE);
  await phone.goto(url);
  const text = await phone.locator("main").textContent();
  for (const what of [MACHINE, key, "anna", "<b onclick", "<script>"]) {
    check(text.includes(what), `the page of a link does not say ${what}: ${text}`);
  }
  check((await phone.locator("main i, main script, main b[onclick]").count()) === 0, "markup became elements");
  await picture(phone, "link-400");
  await shown(phone, "link");
  await audit(phone, "the page of a link");
  const began = Date.now();
  await phone.getByRole("button", { name: "Let it in as mine" }).click();
  check((await outside("is-in")).ms !== null, "the machine was not let in");
  figures.last_click_to_map_ms = Date.now() - began;
  check(figures.last_click_to_map_ms <= 3000, `it was in after ${figures.last_click_to_map_ms} ms`);
  await phone.getByRole("heading", { name: "Done" }).waitFor();
  await picture(phone, "link-done-400");
  await audit(phone, "a link that was answered");
  // It is used up, whoever comes with it.
  await phone.goto(url);
  await phone.getByRole("heading", { name: "No machine waits here" }).waitFor();
}

/** Her node is hers, and nobody else's is. */
async function members() {
  const owners = await outside("knock", "olgas");
  await page.goto(owners.url);
  await page.getByRole("button", { name: "Let it in as mine" }).click();
  await page.getByRole("heading", { name: "Done" }).waitFor();
  await outside("is-in");
  const { nodes } = await outside("nodes");
  const [mine, others] = ["anna", "olga"].map((name) => nodes.find((node) => node.user === name));
  await phone.goto(base);
  await go(phone, "nodes");
  await phone.getByRole("link", { name: mine.name }).waitFor();
  check((await phone.getByRole("link", { name: others.name }).count()) === 0, "a member sees others' nodes");
  for (const [method, path, body] of [
    ["GET", `/api/v1/nodes/${others.id}`],
    ["DELETE", `/api/v1/nodes/${others.id}`],
    ["POST", `/api/v1/nodes/${others.id}/rename`, { name: "hers" }],
    ["POST", `/api/v1/nodes/${others.id}/expire`],
  ]) {
    const status = await call(phone, method, path, body);
    check(status === 404, `a member: ${method} ${path}: ${status}`);
  }
  for (const path of ["users", "keys", "policy", "policy/history", "audit", "tokens", "relays", "dns"]) {
    const status = await call(phone, "GET", `/api/v1/${path}`);
    check(status === 403, `a member: GET ${path}: ${status}`);
  }
  await go(phone, `nodes/${others.id}`);
  await phone.getByRole("heading", { name: "There is no such node" }).waitFor();
  await go(phone, `nodes/${mine.id}`);
  await phone.getByRole("button", { name: "Rename" }).click();
  await phone.getByLabel("New name").fill("annas");
  await phone.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  await phone.getByRole("heading", { name: "annas" }).waitFor();
  await picture(phone, "member-node-400");
  await audit(phone, "a member's node");
  await go(phone, "welcome");
  await phone.getByText(`sudo warren up ${base}`).waitFor();
  await audit(phone, "a member adds a machine");
}

/** Closes a page; one that was answered with no page may never say that it is closed. */
const closed = (at) => Promise.race([at.close(), page.waitForTimeout(2000)]);

/** Pages of others: another site, and another port of the same one, to which Lax cookies go. */
async function misuse() {
  const { url } = await outside("knock", "prey");
  const before = JSON.stringify(await outside("users"));
  const form = (action, kind, fields) =>
    `<form method="post" enctype="${kind}" action="${action}">` +
    Object.entries(fields).map(([name, value]) => `<input name='${name}' value='${value}'>`).join("") +
    "</form><script>document.forms[0].submit()</script>";
  const json = { '{"name": "mallory", "role": "owner", "x': '": 1}' };
  const tries = [
    ["another user", `${base}/api/v1/users`, "text/plain", json],
    ["another user, as a form", `${base}/api/v1/users`, "application/x-www-form-urlencoded", { name: "mallory" }],
    ["a link's answer", url, "application/x-www-form-urlencoded", { answer: "yes", csrf: "" }],
    ["a sign-in", `${base}/sign-in`, "application/x-www-form-urlencoded", { user: "ben", password }],
  ];
  const sameSite = new URL(base);
  sameSite.port = "1";
  for (const from of ["https://evil.example", sameSite.origin]) {
    for (const [what, action, kind, fields] of tries) {
    const evil = await own.newPage();
      await evil.route(`${from}/**`, (route) => route.fulfill({ contentType: "text/html", body: form(action, kind, fields) }));
      evil.setDefaultTimeout(15_000);
      const answered = evil.waitForResponse((answer) => answer.url() === action);
      await evil.goto(`${from}/`, { waitUntil: "commit", timeout: 15_000 }).catch(() => {});
      const status = (await answered).status();
      check([401, 403, 415].includes(status), `${from}: ${what}: ${status}`);
      await closed(evil);
    }
    // No script of another page reads an answer, and none is framed.
    const evil = await own.newPage();
    evil.setDefaultTimeout(15_000);
    const frames = ["/", "/sign-in", new URL(url).pathname].map((path) => `<iframe src="${base}${path}"></iframe>`).join("");
    await evil.route(`${from}/**`, (route) => route.fulfill({ contentType: "text/html", body: frames }));
    await evil.goto(`${from}/`);
    await evil.waitForTimeout(800);
    for (const frame of evil.frames().slice(1)) {
      // A frame that was refused may have no document that answers.
      const text = frame.evaluate(() => document.body?.textContent ?? "").catch(() => "");
      const inside = await Promise.race([text, evil.waitForTimeout(2000).then(() => "")]);
      check(!/Warren|Sign in|machine/.test(inside), `${from} frames ${frame.url()}: ${inside.slice(0, 80)}`);
    }
    const read = await evil.evaluate(
      async (at) => fetch(at, { credentials: "include" }).then((answer) => answer.text(), () => "refused"),
      `${base}/api/v1/nodes`,
    );
    check(read === "refused", `${from} reads ${read.slice(0, 80)}`);
    await closed(evil);
  }
  check(JSON.stringify(await outside("users")) === before, "a page of others made a user");
  const { nodes } = await outside("nodes");
  check(!nodes.some((node) => node.hostname === "prey"), "a page of others let a machine in");
  await page.goto(base);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  check((await page.locator(".user").textContent()) === "olga", "a page of others signed somebody else in");
  // Nobody is led elsewhere after a sign-in.
  const out = await context();
  const other = await out.newPage();
  await other.goto(`${base}/sign-in?return=${encodeURIComponent("https://evil.example/")}`);
  await other.getByLabel("Name").fill("ben");
  await other.getByLabel("Password").fill(password);
  await other.getByRole("button", { name: "Sign in", exact: true }).click();
  await other.getByRole("heading", { name: "Overview" }).waitFor();
  check(new URL(other.url()).origin === base, `a sign-in leads to ${other.url()}`);
  // An auditor reads all and is offered nothing that changes anything.
  await go(other, "users");
  check((await other.getByRole("button", { name: "Add a user" }).count()) === 0, "an auditor is offered to add users");
  await go(other, "policy");
  await other.getByRole("textbox", { name: "Policy" }).waitFor();
  check((await other.getByRole("button", { name: "Save" }).count()) === 0, "an auditor is offered to save");
  check((await call(other, "PUT", "/api/v1/policy", { text: "{}" })) === 403, "an auditor sets a policy");
  await out.close();
}

/** The state of a sign-in that somebody else began signs nobody in. */
async function mixUp() {
  const theirs = await context();
  const attacker = await theirs.newPage();
  let state = null;
  attacker.on("request", (request) => (state = new URL(request.url()).searchParams.get("state") ?? state));
  await attacker.goto(`${base}/sign-in/oidc`);
  await attacker.waitForURL(/\/interaction\//);
  check(state?.length === 22, `the state is ${state}`);
  const back = `${base}/sign-in/oidc/callback?code=x&state=${state}`;
  const victims = await context();
  const victim = await victims.newPage();
  const answer = await victim.goto(back);
  check(answer.status() === 403, `a foreign state: ${answer.status()}`);
  check((await cookie(victims)) === undefined, "a foreign state signs somebody in");
  await audit(victim, "a sign-in that is refused");
  await picture(victim, "refused-1400");
  await theirs.close();
  await victims.close();
}

/** Who is signed out by an administrator sees the door at once. */
async function revoked() {
  await phone.goto(base);
  await phone.getByRole("heading", { name: "Overview" }).waitFor();
  await go(page, "users");
  await page.getByRole("button", { name: "Sign out anna" }).click();
  await page.getByText("of anna ended").waitFor();
  await phone.getByRole("link", { name: "Sign in with Uni" }).waitFor();
}

/** The provider is gone, and the server begins anew meanwhile: passwords work, sessions go on. */
async function providerGone() {
  await outside("provider-gone");
  await outside("stop");
  await outside("start");
  const out = await context();
  const other = await out.newPage();
  await other.goto(base);
  await other.getByRole("link", { name: "Sign in with Uni" }).click();
  await other.getByText("the provider does not answer").waitFor();
  await picture(other, "provider-gone-1400");
  await audit(other, "a provider that is gone");
  await other.getByLabel("Name").fill("ben");
  await other.getByLabel("Password").fill(password);
  await other.getByRole("button", { name: "Sign in", exact: true }).click();
  await other.getByRole("heading", { name: "Overview" }).waitFor();
  await out.close();
  await page.goto(base);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await go(page, "server");
  await page.getByText("does not answer", { exact: true }).waitFor();
  await picture(page, "server-provider-1400");
  await audit(page, "server, without its provider");
  await outside("provider-back");
  // It is asked again after a pause.
  await phone.waitForTimeout(6000);
  await phone.goto(base);
  await phone.getByRole("link", { name: "Sign in with Uni" }).click();
  await atProvider(phone, "anna");
  await phone.getByRole("heading", { name: "Overview" }).waitFor();
}

/** The server is started again under the page, which stays signed in. */
async function restart() {
  await page.goto(base);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await outside("stop");
  await page.getByText("The server does not answer.").waitFor({ timeout: 40_000 });
  await outside("start");
  await page.getByText("The server does not answer.").waitFor({ state: "hidden", timeout: 60_000 });
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await own.setOffline(true);
  await page.getByText("The server does not answer.").waitFor({ timeout: 40_000 });
  await own.setOffline(false);
  await page.getByText("The server does not answer.").waitFor({ state: "hidden", timeout: 60_000 });
}

async function signOut() {
  const before = await cookie(own);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Password").waitFor();
  await own.addCookies([before]);
  await page.reload();
  await page.getByLabel("Password").waitFor();
  check((await page.getByRole("heading", { name: "Overview" }).count()) === 0, "a session lives on after its end");
}

await run(page, {
  door, withPassword, users, account, byProvider, link, members, misuse, mixUp, revoked, providerGone, restart, signOut,
});
