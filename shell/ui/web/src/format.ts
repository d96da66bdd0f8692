// Times and lists as people read them.
import { language, m } from "./text";

const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "long" });
const moment = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat(language, { dateStyle: "medium" });

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 365 * 86_400],
  ["month", 30 * 86_400],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];

/** As in "3 minutes ago" or "in 5 days". */
export function ago(time: string | null, now: number): string {
  if (!time) return m.never;
  const seconds = (Date.parse(time) - now) / 1000;
  if (Number.isNaN(seconds)) return time;
  for (const [unit, size] of UNITS) {
    if (Math.abs(seconds) >= size) return relative.format(Math.trunc(seconds / size), unit);
  }
  return seconds > 0 ? m.inMoments : m.momentsAgo;
}

export function when(time: string | null): string {
  if (!time) return m.never;
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : moment.format(date);
}

export function onDay(time: string | null): string {
  if (!time) return m.never;
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : day.format(date);
}

export function isExit(route: string): boolean {
  return route === "0.0.0.0/0" || route === "::/0";
}

/** Words of a text that are apart by spaces or commas. */
export function words(text: string): string[] {
  return text.split(/[\s,]+/).filter((word) => word !== "");
}

/** By number where they have one, so that node2 stands before node10. */
export const inOrder = new Intl.Collator(language, { numeric: true, sensitivity: "base" }).compare;

const decimals = new Intl.NumberFormat(language, { maximumSignificantDigits: 3 });

export function rtt(us: number | null): string {
  return us === null ? "–" : `${decimals.format(us / 1000)} ms`;
}

export function share(of: number): string {
  return `${decimals.format(of * 100)} %`;
}

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(count: number | null): string {
  if (count === null) return "–";
  let at = 0;
  while (count >= 1000 && at < SIZES.length - 1) {
    count /= 1000;
    at += 1;
  }
  return `${decimals.format(count)} ${SIZES[at]}`;
}
