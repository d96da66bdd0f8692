// What changed between two texts, line by line: the longest common lines stay.

export interface Line {
  kind: "same" | "added" | "removed" | "skipped";
  text: string;
  old: number | null;
  new: number | null;
}

/** Lines of the middle part above which it is shown as replaced, to stay quick. */
const LINES_MAX = 3000;

export function diff(before: string, after: string, context = 3): Line[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (
    tail < a.length - head &&
    tail < b.length - head &&
    a[a.length - 1 - tail] === b[b.length - 1 - tail]
  ) {
    tail += 1;
  }
  const lines: Line[] = [];
  const same = (i: number, j: number) =>
    lines.push({ kind: "same", text: a[i], old: i + 1, new: j + 1 });
  for (let i = 0; i < head; i += 1) same(i, i);
  middle(a, b, head, a.length - tail, b.length - tail, lines);
  for (let i = 0; i < tail; i += 1) same(a.length - tail + i, b.length - tail + i);
  return shortened(lines, context);
}

function middle(a: string[], b: string[], from: number, aEnd: number, bEnd: number, lines: Line[]) {
  const [rows, columns] = [aEnd - from, bEnd - from];
  const removed = (i: number) =>
    lines.push({ kind: "removed", text: a[i], old: i + 1, new: null });
  const added = (j: number) => lines.push({ kind: "added", text: b[j], old: null, new: j + 1 });
  if (rows > LINES_MAX || columns > LINES_MAX) {
    for (let i = from; i < aEnd; i += 1) removed(i);
    for (let j = from; j < bEnd; j += 1) added(j);
    return;
  }
  // longest[i][j]: lines in common of what is behind i and j
  const width = columns + 1;
  const longest = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      longest[i * width + j] =
        a[from + i] === b[from + j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  let i = 0;
  let j = 0;
  while (i < rows || j < columns) {
    if (i < rows && j < columns && a[from + i] === b[from + j]) {
      lines.push({ kind: "same", text: a[from + i], old: from + i + 1, new: from + j + 1 });
      i += 1;
      j += 1;
    } else if (
      i < rows &&
      (j === columns || longest[(i + 1) * width + j] >= longest[i * width + j + 1])
    ) {
      removed(from + i);
      i += 1;
    } else {
      added(from + j);
      j += 1;
    }
  }
}

/** Without what is the same far from every change. */
function shortened(lines: Line[], context: number): Line[] {
  const near = new Array<boolean>(lines.length).fill(false);
  lines.forEach((line, at) => {
    if (line.kind === "same") return;
    for (let i = Math.max(0, at - context); i <= at + context && i < near.length; i += 1) {
      near[i] = true;
    }
  });
  const out: Line[] = [];
  lines.forEach((line, at) => {
    if (near[at]) out.push(line);
    else if (out.at(-1)?.kind !== "skipped") {
      out.push({ kind: "skipped", text: "", old: null, new: null });
    }
  });
  return out;
}
