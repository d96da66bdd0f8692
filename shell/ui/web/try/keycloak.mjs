// Somebody signs in by Keycloak, in whose pages everything is clicked; then leaves a group, and then
// the provider.
//   node try/keycloak.mjs FOLDER URL
import { audit, base, check, context, figures, go, outside, picture, run, watch } from "./common.mjs";

const own = await context();
const page = await own.newPage();
page.setDefaultTimeout(30_000);
watch(page);

const who = () => page.evaluate(async () => (await fetch("/api/v1/session")).json());

/** Waits for what the server learns when it asks the provider again, which it does each minute. */
async function until(what, is) {
  const began = Date.now();
  while (!is(await outside("user"))) {
    if (Date.now() - began > 150_000) throw new Error(`${what} did not come about`);
    await page.waitForTimeout(2000);
  }
  return Math.round((Date.now() - began) / 1000);
}

/** In Keycloak's own page. */
async function atKeycloak() {
  await page.locator("#username").fill("anna");
  await page.locator("#password").fill("x");
  await picture(page, "keycloak-1400");
  await page.locator("#kc-login").click();
}

const overview = page.getByRole("heading", { name: "Overview" });

async function signIn() {
  await page.goto(base);
  const began = Date.now();
  await page.getByRole("link", { name: "Sign in with Uni" }).click();
  await atKeycloak();
  await overview.waitFor();
  figures.sign_in_ms = Date.now() - began;
  const me = await who();
  check(me.user === "anna" && me.role === "operator", `Keycloak's anna is ${JSON.stringify(me)}`);
  const user = await outside("user");
  check(user.groups.join() === "staff-net-ops", `her groups are ${user.groups}`);
  check(user.email === "anna@uni.example", `her address is ${user.email}`);
  await go(page, "keys");
  await audit(page, "keys of an operator");
}

/** Out of the group: out of the policy's group, and a member, within minutes. */
async function leaveGroup() {
  await outside("leave-group");
  figures.group_left_s = await until("leaving the group", (user) => user.groups.length === 0);
  const user = await outside("user");
  check(user.role === "member", `she is ${user.role} still`);
  await page.getByRole("link", { name: "Sign in with Uni" }).waitFor();
  // Keycloak has her session still, or none beside the one for refresh tokens, as it likes: one
  // click, and maybe the password again, and she is a member.
  await page.getByRole("link", { name: "Sign in with Uni" }).click();
  await overview.or(page.locator("#username")).first().waitFor();
  if (await page.locator("#username").isVisible()) await atKeycloak();
  await overview.waitFor();
  check((await who()).role === "member", "she has more than a member");
}

/** Disabled at the provider: signed out within minutes, and not let in again. */
async function leave() {
  await outside("disable");
  const began = Date.now();
  await page.getByRole("link", { name: "Sign in with Uni" }).waitFor({ timeout: 150_000 });
  figures.left_s = Math.round((Date.now() - began) / 1000);
  await page.getByRole("link", { name: "Sign in with Uni" }).click();
  await page.waitForTimeout(2000);
  check(!page.url().startsWith(base), "who is disabled was let in");
}

await run(page, { signIn, leaveGroup, leave });
