// What all scripts that drive a browser share. A test starts them and does what happens outside of
// the browser: a line of JSON asks for it, a line answers.
// Any breach of the content policy, any error of a script and any finding of axe fails a run.
import { createInterface } from "node:readline";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const WIDE = { width: 1400, height: 900 };
export const NARROW = { width: 400, height: 860 };
export const [folder, base, ...words] = process.argv.slice(2);
export const faults = [];
export const figures = {};

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
mkdirSync(folder, { recursive: true });

/** Has the test do something outside, and waits until it is done. */
export async function outside(what, value = "") {
  console.log(JSON.stringify({ what, value }));
  const { value: answer, done } = await lines.next();
  if (done) throw new Error(`nobody answered to ${what}`);
  return JSON.parse(answer);
}

export function check(is, what) {
  if (!is) faults.push(what);
}

export async function audit(page, where) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  for (const one of found.violations) {
    const nodes = one.nodes.slice(0, 3).map((node) => node.target.join(" ")).join("; ");
    faults.push(`axe, ${where}: ${one.id}: ${one.help}: ${nodes}`);
  }
}

export async function picture(page, name) {
  await page.screenshot({ path: `${folder}/${name}.png` });
}

/** A picture of the documents, small; written where the test says so. */
export async function shown(page, name) {
  if (!process.env.WARREN_DOCS) return;
  const session = await page.context().newCDPSession(page);
  const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality: 70 });
  await session.detach();
  mkdirSync(process.env.WARREN_DOCS, { recursive: true });
  writeFileSync(`${process.env.WARREN_DOCS}/${name}.webp`, Buffer.from(data, "base64"));
}

/** Notes what must not happen in a page: one of ours asks nobody else for anything. */
export function watch(page) {
  const ours = new URL(base).host;
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
    // Where a link leads is another page, which is not ours.
    if (request.isNavigationRequest() || new URL(request.frame().url()).host !== ours) return;
    if (new URL(request.url()).host !== ours && !request.url().startsWith("data:")) {
      faults.push(`a request elsewhere: ${request.url()}`);
    }
  });
}

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});

/** A browser of its own, with nothing kept. */
export async function context(options = {}) {
  const made = await browser.newContext({ viewport: WIDE, colorScheme: "light", ignoreHTTPSErrors: true, ...options });
  await made.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => {
      console.error(`Content Security Policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  // While one works at the pages: what was just built in place of what the program holds.
  if (process.env.WARREN_UI_DIST) {
    const kinds = { "/": ["index.html", "text/html"], "/ui.js": ["ui.js", "text/javascript"], "/ui.css": ["ui.css", "text/css"],
      "/sign-in.css": ["../../../server/src/signin/style.css", "text/css"] };
    for (const [path, [name, contentType]] of Object.entries(kinds)) {
      await made.route(new URL(path, base).href, async (route) => {
        const answer = await route.fetch();
        const headers = { ...answer.headers(), "content-type": contentType };
        delete headers["content-encoding"];
        await route.fulfill({ status: 200, headers, body: readFileSync(`${process.env.WARREN_UI_DIST}/${name}`) });
      });
    }
  }
  return made;
}

/** Goes to a page of the open interface. */
export async function go(page, to) {
  await page.evaluate((to) => (location.hash = `#/${to}`), to);
  await page.waitForTimeout(50);
  await page.waitForFunction(() => !document.querySelector("main > p.faint")?.textContent?.startsWith("Asking"));
}

/** Runs steps in their order, and ends the program. `page` is pictured where one fails. */
export async function run(page, steps) {
  let failed = "";
  try {
    const only = process.env.WARREN_STEPS?.split(",");
    for (const [name, step] of Object.entries(steps)) {
      if (only && !only.includes(name)) continue;
      failed = name;
      if (process.env.WARREN_TELL) console.error(`step: ${name}`);
      await step();
    }
  } catch (error) {
    faults.push(`${failed}: ${error.message}`);
    await picture(page, "failed").catch(() => {});
  }
  await browser.close();
  console.log(JSON.stringify({ what: "end", value: { faults, figures } }));
  process.exit(faults.length > 0 ? 1 : 0);
}
