// Drives the pages of `warren ui` in Chromium as a person would.
//   node try/main.mjs FOLDER LINK
import { readdirSync, statSync } from "node:fs";
import {
  audit, base as link, check, context, figures, go as goIn, NARROW, outside, picture, run, shown, watch, WIDE,
} from "./common.mjs";

const PAGES = ["overview", "nodes", "routes", "names", "policy", "keys", "users", "audit", "server", "account", "welcome"];

const own = await context();
await own.grantPermissions(["clipboard-read", "clipboard-write"]);
const page = await own.newPage();
page.setDefaultTimeout(20_000);
watch(page);
const go = (to) => goIn(page, to);

async function firstRun() {
  const began = Date.now();
  await page.goto(link);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  figures.first_page_ms = Date.now() - began;
  figures.first_paint_ms = await page.evaluate(() =>
    Math.round(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1),
  );
  check(figures.first_paint_ms >= 0 && figures.first_paint_ms <= 1000, `first paint after ${figures.first_paint_ms} ms`);
  figures.bytes = await page.evaluate(() =>
    [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
      .filter((one) => !one.name.includes("/api/"))
      .reduce((sum, one) => sum + one.encodedBodySize, 0),
  );
  // What was just built comes without compression; the program holds the same, packed.
  const built = new URL("../../built/", import.meta.url);
  if (process.env.WARREN_UI_DIST) {
    figures.bytes = readdirSync(built).reduce((sum, name) => sum + statSync(new URL(name, built)).size, 0);
  }
  check(figures.bytes <= 300_000, `${figures.bytes} bytes of pages`);
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
  await shown(page, "first-run");
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
  await shown(page, "policy");
}

/** An earlier version holds again, and then the later one. */
async function history() {
  await go("overview");
  await go("policy");
  await page.getByText("No faults").waitFor();
  for (const [from, to] of [[1, 3], [2, 4]]) {
    await page.getByRole("button", { name: `Make it hold again: version ${from}` }).click();
    await page.getByRole("dialog").locator(".diff .added, .diff .removed").first().waitFor();
    if (from === 1) {
      await picture(page, "policy-restore-1400");
      await audit(page, "policy, earlier version");
    }
    await page.getByRole("dialog").getByRole("button", { name: "Make it hold again" }).click();
    await page.getByText(`Version ${from} holds again, as version ${to}`).waitFor();
  }
  await page.getByRole("button", { name: "Put it into the editor: version 1" }).click();
  await page.getByText("Version 1 is in the editor").waitFor();
  await page.locator("button:enabled", { hasText: "Save" }).waitFor();
  await page.getByRole("button", { name: "Discard changes" }).click();
}

/** What nodes report is on the map, in the table, and at the node. */
async function links() {
  await outside("report", "2");
  await go("nodes");
  await go("overview");
  await page.locator(".map .lines path.relay").waitFor({ state: "attached" });
  await page.locator(".map .lines path.lossy").waitFor({ state: "attached" });
  await page.getByText("The same as a table").click();
  const table = page.getByRole("table", { name: "Links" });
  await table.getByText("direct, loses packets").first().waitFor();
  await table.getByText("by a relay").first().waitFor();
  check(/\d ms/.test(await table.textContent()), "no round trip in the table");
  await page.waitForTimeout(2000);
  await outside("report", "2");
  await page.waitForFunction(() => /B\/s/.test(document.querySelector("table[aria-label=Links]")?.textContent ?? ""), null, { timeout: 30_000 });
  await audit(page, "links as a table");
  await picture(page, "links-1400");
  await page.getByText("The same as a table").click();
  await page.evaluate(() => scrollTo(0, 0));
  await shown(page, "overview");
  const id = (await outside("number", "gate")).id;
  await go(`nodes/${id}`);
  await page.getByRole("img", { name: /^Traffic,/ }).waitFor();
  check((await page.getByRole("table", { name: "Links" }).getByRole("link").count()) > 0, "no peers at a node");
  await picture(page, "node-links-1400");
  await shown(page, "node");
}

/** Two hundred nodes on the map, with names told where one points. */
async function map200() {
  const { count } = await outside("crowd", "200");
  await outside("report", "6");
  await go("nodes");
  await go("overview");
  await page.locator(".map a").nth(count - 1).waitFor({ state: "attached" });
  await page.waitForFunction(() => [...document.querySelectorAll(".map .lines path.direct")].some((path) => path.getAttribute("d").length > 2000), null, { timeout: 30_000 });
  await page.waitForTimeout(300);
  await picture(page, "map-200-1400");
  await audit(page, "map with 200 nodes");
  const one = page.locator(".map a").nth(17);
  await one.focus();
  await page.locator(".map .lines text").first().waitFor();
  await page.getByRole("button", { name: "Nearer" }).click();
  await page.getByRole("button", { name: "All", exact: true }).click();
  await page.setViewportSize(NARROW);
  await picture(page, "map-200-400");
  await page.setViewportSize(WIDE);
  await shown(page, "map");
}

/** A key that ends in three days is told of, unless three days are all of its life. */
async function ending() {
  await outside("ending");
  await go("nodes");
  await go("overview");
  const told = page.locator("section.card", { hasText: "Wants attention" });
  const line = told.getByRole("listitem").filter({ hasText: "has a key that ends" });
  await line.filter({ hasText: "web1" }).waitFor({ timeout: 30_000 });
  const text = await line.allTextContents();
  check(text.length === 1 && /in 3 days|in 2 days/.test(text[0]), `of keys that end it is told: ${text}`);
  await picture(page, "ending-1400");
  await audit(page, "a key that ends soon");
}

/** The books can be read and not written: who changes something is told, and the page of the server says so. */
async function readOnly() {
  await go("nodes");
  await page.getByRole("searchbox").fill("web3");
  await page.getByRole("link", { name: "web3" }).click();
  await outside("read-only");
  const rename = async () => {
    await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
  };
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("New name").fill("web33");
  await rename();
  await page.getByRole("dialog").getByRole("alert").getByText("can be read and not written").waitFor();
  await picture(page, "read-only-1400");
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await go("server");
  await page.getByText("read, not written").waitFor();
  await page.getByText("make its file, folder and disk writable").waitFor();
  await picture(page, "server-read-only-1400");
  await audit(page, "a server whose books are read only");
  await outside("writable");
  await page.getByText("read and written").waitFor({ timeout: 30_000 });
  await go("nodes");
  await page.getByRole("searchbox").fill("web3");
  await page.getByRole("link", { name: "web3" }).click();
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("New name").fill("web33");
  await rename();
  await page.getByRole("heading", { name: "web33" }).waitFor();
}

/** The browser loses its network; the server is well. */
async function offline() {
  await go("overview");
  await own.setOffline(true);
  await page.getByText("The server does not answer.").waitFor({ timeout: 30_000 });
  await picture(page, "offline-1400");
  await own.setOffline(false);
  await page.getByText("The server does not answer.").waitFor({ state: "hidden", timeout: 40_000 });
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

/** A name that is no node's, which is kept in full; one that no node may have is refused. */
async function names() {
  await go("names");
  await page.getByRole("button", { name: "Add a name" }).click();
  const name = page.getByLabel("Name", { exact: true });
  const addresses = page.getByLabel("Addresses, apart by spaces").last();
  await name.fill("wpad");
  await addresses.fill("10.7.0.10");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").getByText("no node answers it").waitFor();
  await name.fill("nas");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved", { exact: true }).waitFor();
  check((await name.inputValue()).startsWith("nas."), `it is kept as ${await name.inputValue()}`);
  await picture(page, "names-record-1400");
  await audit(page, "names that are no nodes");
}

async function all() {
  await outside("report", "4");
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
  const { count } = await outside("crowd", "1000");
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
  // It moves under the pointer without a stop.
  figures.map_frames_s = await page.evaluate(
    () =>
      new Promise((done) => {
        const svg = document.querySelector(".map svg");
        const { left, top } = svg.getBoundingClientRect();
        const at = (n) => ({ clientX: left + 40 + (n % 50) * 4, clientY: top + 40, bubbles: true, pointerId: 1 });
        const began = performance.now();
        let frames = 0;
        const step = (now) => {
          frames += 1;
          svg.dispatchEvent(new PointerEvent("pointermove", at(frames)));
          if (now - began < 2000) requestAnimationFrame(step);
          else done(Math.round((frames * 1000) / (now - began)));
        };
        requestAnimationFrame(step);
      }),
  );
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

await run(page, {
  firstRun, populate: () => outside("populate"), policy, history, reach, node, links, names, all, hostile, keyboard, away, offline,
  ending, readOnly,
  map200, many, leave,
});
