// Opens a page that `warren-lab bench publish` wrote, without a network, as a stranger would.
//   node try/published.mjs FOLDER file:///…/index.html
import { statSync } from "node:fs";
import { audit, base, check, context, figures, NARROW, picture, run, WIDE } from "./common.mjs";

const own = await context({ offline: true });
const page = await own.newPage();
page.on("pageerror", (error) => check(false, `script: ${error.message}`));
page.on("request", (request) => {
  check(request.url().startsWith(base), `a request elsewhere: ${request.url()}`);
});

/** What is wider than the window, and is not scrolled within itself. */
const tooWide = () => {
  const width = document.documentElement.clientWidth;
  const inner = [...document.querySelectorAll("body *")].filter((one) => !one.closest(".wide, pre, svg"));
  const wide = inner.filter((one) => one.getBoundingClientRect().right > width + 1);
  return { page: document.documentElement.scrollWidth - width, wide: wide.slice(0, 3).map((one) => one.outerHTML.slice(0, 120)) };
};

/** The smallest text of a chart as it is seen, in pixels. */
const smallest = () =>
  Math.min(...[...document.querySelectorAll("svg text")].map((one) => {
    const svg = one.ownerSVGElement;
    return parseFloat(getComputedStyle(one).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  }));

async function at(size) {
  await page.setViewportSize(size);
  await page.goto(base);
  const found = await page.evaluate(tooWide);
  check(found.page <= 0 && found.wide.length === 0, `too wide at ${size.width}: ${JSON.stringify(found)}`);
  figures[`smallest_text_${size.width}`] = Math.round(await page.evaluate(smallest) * 10) / 10;
  check(figures[`smallest_text_${size.width}`] >= 9, `text of ${figures[`smallest_text_${size.width}`]} pixels at ${size.width}`);
  await picture(page, `published-${size.width}`);
  await page.locator("figure").first().scrollIntoViewIfNeeded();
  await picture(page, `published-claims-${size.width}`);
  await page.locator(".narrow").first().scrollIntoViewIfNeeded();
  await picture(page, `published-heat-${size.width}`);
}

async function alternatives() {
  const charts = await page.locator("svg").count();
  figures.charts = charts;
  check(charts > 10, `${charts} charts`);
  const mute = await page.locator("svg:not([role=img]), svg:not([aria-label]), svg[aria-label='']").count();
  check(mute === 0, `${mute} charts without an alternative text`);
  const bare = await page.locator("figure:not(:has(figcaption))").count();
  check(bare === 0, `${bare} charts without a claim`);
  const first = await page.locator("h2").first().textContent();
  check(first === "What Warren loses", `the first part is ${first}`);
  await audit(page, "published, light");
}

/** A file's page opens a link where a server's would download: that each leads to a file is read here. */
async function data() {
  const links = await page.locator("a[download]").evaluateAll((all) => all.map((one) => one.href));
  figures.files = links.length;
  check(links.length > 0, "nothing can be downloaded");
  for (const link of links) {
    check(statSync(new URL(link)).size > 0, `an empty file: ${link}`);
  }
}

await run(page, {
  wide: () => at(WIDE),
  narrow: () => at(NARROW),
  alternatives,
  data,
});
