// Drives the pages in Chromium as a person would. Started by tests/browser.rs, which does what
// happens outside the browser: a line of JSON asks for it, a line answers.
//   node try/main.mjs LINK FOLDER
// Any breach of the content policy, any error of a script and any finding of axe fails the run.
import { createInterface } from "node:readline";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [link, folder] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDE = { width: 1400, height: 900 };
const NARROW = { width: 400, height: 860 };
const PAGES = ["overview", "nodes", "routes", "names", "policy", "keys", "users", "audit", "server", "welcome"];
const faults = [];
const figures = {};

mkdirSync(folder, { recursive: true });
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Has the test do something outside, and waits until it is done. */
async function outside(what, value = "") {
  console.log(JSON.stringify({ what, value }));
  const { value: answer, done } = await lines.next();
  if (done) throw new Error(`nobody answered to ${what}`);
  return JSON.parse(answer);
}

function check(is, what) {
  if (!is) faults.push(what);
}

async function audit(page, where) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  for (const one of found.violations) {
    const nodes = one.nodes.slice(0, 3).map((node) => node.target.join(" ")).join("; ");
    faults.push(`axe, ${where}: ${one.id}: ${one.help}: ${nodes}`);
  }
}

async function picture(page, name) {
  await page.screenshot({ path: `${folder}/${name}.png` });
}

function watch(page) {
  page.on("pageerror", (error) => faults.push(`script: ${error.message}`));
  page.on("console", (message) => {
    if (/content security policy|trusted ?type|trustedhtml/i.test(message.text())) {
      faults.push(`policy: ${message.text()}`);
    }
  });
  page.on("dialog", (dialog) => {
    faults.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (new URL(request.url()).host !== new URL(link).host && !request.url().startsWith("data:")) {
      faults.push(`a request elsewhere: ${request.url()}`);
    }
  });
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
const context = await browser.newContext({ viewport: WIDE, colorScheme: "light" });
await context.grantPermissions(["clipboard-read", "clipboard-write"]);
await context.addInitScript(() => {
  addEventListener("securitypolicyviolation", (event) => {
    console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI}`);
  });
});
const page = await context.newPage();
page.setDefaultTimeout(20_000);
watch(page);

// While one works at the pages: what was just built in place of what the program holds.
if (process.env.WARREN_UI_DIST) {
  const kinds = { "/": ["index.html", "text/html"], "/ui.js": ["ui.js", "text/javascript"], "/ui.css": ["ui.css", "text/css"] };
  for (const [path, [name, contentType]] of Object.entries(kinds)) {
    await context.route(new URL(path, link).href, async (route) => {
      const answer = await route.fetch();
      const headers = { ...answer.headers(), "content-type": contentType };
      delete headers["content-encoding"];
      await route.fulfill({ status: 200, headers, body: readFileSync(`${process.env.WARREN_UI_DIST}/${name}`) });
    });
  }
}

const go = async (to) => {
  await page.evaluate((to) => (location.hash = `#/${to}`), to);
  await page.waitForTimeout(50);
  await page.waitForFunction(() => !document.querySelector("main > p.faint")?.textContent?.startsWith("Asking"));
};

async function firstRun() {
  const began = Date.now();
  await page.goto(link);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  figures.first_page_ms = Date.now() - began;
  figures.first_paint_ms = await page.evaluate(() =>
    Math.round(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1),
  );
  check(!page.url().includes("open/"), "the secret stays in the address");
  await picture(page, "first-1400");
  await audit(page, "empty overview");
  await page.getByRole("link", { name: "Add the first machine" }).click();
  await page.getByRole("heading", { name: "Welcome" }).waitFor();
  await page.getByRole("button", { name: "Make a token" }).click();
  const command = page.locator("code", { hasText: "warren up warren-join" });
  await command.waitFor();
  await picture(page, "welcome-1400");
  const token = (await command.textContent()).split(" ").at(-1);
  await outside("join", token);
  await page.getByText("Joined:").waitFor();
  await picture(page, "joined-1400");
  await audit(page, "welcome");
}

async function policy() {
  await go("policy");
  const text = page.locator(".cm-content");
  await text.click();
  await page.keyboard.press("Control+A");
  await page.keyboard.insertText('{\n  // who may reach whom\n  "acls": [\n    {"action": "accept", "src": ["nobody@"], "dst": ["*:22"]},\n  ],\n  "oops": 1,\n}\n');
  await page.getByRole("button", { name: "Line 6" }).waitFor();
  check(await page.getByRole("button", { name: "Save" }).isDisabled(), "a faulty policy can be saved");
  check((await page.locator(".cm-lint-marker-error").count()) > 0, "no mark at the fault's line");
  await picture(page, "policy-faults-1400");
  await audit(page, "policy with faults");
  await text.click();
  await page.keyboard.press("Control+A");
  await page.keyboard.insertText(
    '{\n  // HuJSON: comments and commas at ends are kept\n  "groups": {"group:ops": ["ann@"]},\n  "tagOwners": {"tag:web": ["group:ops"], "tag:db": ["group:ops"]},\n  "acls": [\n    {"action": "accept", "src": ["group:ops"], "dst": ["*:*"]},\n    {"action": "accept", "proto": "tcp", "src": ["tag:web"], "dst": ["tag:db:5432"]},\n  ],\n  "tests": [\n    {"src": "tag:web", "accept": ["tag:db:5432"], "deny": ["tag:db:22"]},\n  ],\n}\n',
  );
  await page.getByText("No faults").waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("dialog").waitFor();
  await picture(page, "policy-save-1400");
  await audit(page, "policy, difference");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved as version").waitFor();
}

async function reach() {
  await go("policy");
  await page.getByText("No faults").waitFor();
  await page.getByLabel("From").fill("web1");
  await page.getByLabel("To", { exact: true }).fill("db1");
  await page.getByLabel("Port").fill("5432");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.getByText("Yes.").waitFor();
  await page.getByLabel("Port").fill("22");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.getByText("No.", { exact: true }).waitFor();
}

async function node() {
  await go("nodes");
  await page.getByRole("searchbox").fill("web2");
  await page.getByRole("link", { name: "web2" }).click();
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("New name").fill("not a name!");
  await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  await page.getByRole("dialog").getByRole("alert").waitFor();
  await page.getByLabel("New name").fill("web9");
  await audit(page, "dialog");
  await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  await page.getByRole("heading", { name: "web9" }).waitFor();
  await go("routes");
  const box = page.getByRole("checkbox", { name: "192.168.7.0/24" });
  await box.check();
  await page.waitForFunction(() => /in use/.test(document.querySelector("main").textContent));
}

async function all() {
  for (const [size, width, scheme] of [[WIDE, 1400, "light"], [NARROW, 400, "dark"], [NARROW, 400, "light"], [WIDE, 1400, "dark"]]) {
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme: scheme });
    const id = (await outside("number", "gate")).id;
    for (const one of [...PAGES, `nodes/${id}`]) {
      await go(one);
      await page.waitForTimeout(one === "policy" ? 900 : 250);
      const name = one.replace(/\/.*/, "-one");
      await picture(page, `${name}-${width}-${scheme}`);
      await audit(page, `${name} at ${width}, ${scheme}`);
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      check(wider <= 0, `${one} at ${width}: ${wider} pixels wider than the window`);
    }
  }
  await page.setViewportSize(WIDE);
  await page.emulateMedia({ colorScheme: "light" });
}

async function hostile() {
  const id = (await outside("number", "odd")).id;
  await go(`nodes/${id}`);
  await page.getByText("<img src=x onerror=alert(1)>").first().waitFor();
  check((await page.locator("main img").count()) === 0, "markup of a host name became an element");
}

async function keyboard() {
  await go("overview");
  await page.locator("body").press("Tab");
  await page.evaluate(() => document.activeElement.blur());
  const reached = new Set();
  for (let i = 0; i < 40; i += 1) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement?.textContent?.trim() ?? ""));
  }
  for (const name of ["To the content", "Nodes", "Policy", "Sign out"]) {
    check(reached.has(name), `the keyboard does not reach ${name}`);
  }
}

async function away() {
  await go("overview");
  await outside("stop");
  await page.getByText("The server does not answer.").waitFor({ timeout: 30_000 });
  await picture(page, "away-1400");
  await outside("start");
  await page.getByText("The server does not answer.").waitFor({ state: "hidden", timeout: 60_000 });
}

async function many() {
  const { count } = await outside("many");
  await go("nodes");
  // A row of a table is laid out as one.
  const row = await page.locator("tr.entry").first().evaluate((row) => getComputedStyle(row).display);
  check(row === "table-row", `rows of tables are ${row}`);
  await page.waitForFunction((count) => document.querySelector("main").textContent.includes(String(count)), count);
  await picture(page, "many-nodes-1400");
  figures.nodes = count;
  figures.frames_s = await page.evaluate(
    () =>
      new Promise((done) => {
        const began = performance.now();
        let frames = 0;
        const step = (now) => {
          frames += 1;
          scrollBy(0, 120);
          if (now - began < 3000) requestAnimationFrame(step);
          else done(Math.round((frames * 1000) / (now - began)));
        };
        requestAnimationFrame(step);
      }),
  );
  figures.rows_in_page = await page.locator("tr.entry").count();
  check(figures.frames_s >= 30, `${figures.frames_s} frames a second while ${count} nodes scroll`);
  check(figures.rows_in_page < 200, `${figures.rows_in_page} rows are in the page at once`);
  const began = Date.now();
  await go("overview");
  await page.locator(".map a").nth(count - 1).waitFor({ state: "attached" });
  figures.map_ms = Date.now() - began;
  await picture(page, "many-map-1400");
  await audit(page, "overview with many nodes");
}

async function leave() {
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByText("Nobody is signed in here").waitFor();
  await audit(page, "signed out");
  await page.goto(link);
  await page.reload();
  await page.getByText("Nobody is signed in here").waitFor();
  await picture(page, "out-1400");
}

const steps = { firstRun, populate: () => outside("populate"), policy, reach, node, all, hostile, keyboard, away, many, leave };
let failed = "";
try {
  for (const [name, step] of Object.entries(steps)) {
    failed = name;
    await step();
  }
  failed = "";
} catch (error) {
  faults.push(`${failed}: ${error.message}`);
  await picture(page, "failed").catch(() => {});
}
await browser.close();
console.log(JSON.stringify({ what: "end", value: { faults, figures } }));
process.exit(faults.length > 0 ? 1 : 0);
