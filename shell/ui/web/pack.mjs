// Puts what Vite built into ../built, a gzip file each, which the program holds.
import { readFileSync, readdirSync, rmSync, mkdirSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const to = new URL("../built/", import.meta.url);
const from = new URL("dist/", import.meta.url);
rmSync(to, { recursive: true, force: true });
mkdirSync(to);
let total = 0;
for (const name of readdirSync(from).sort()) {
  const packed = gzipSync(readFileSync(new URL(name, from)), { level: 9 });
  writeFileSync(new URL(`${name}.gz`, to), packed);
  total += packed.length;
}
console.log(`ui: ${total} bytes, compressed`);
