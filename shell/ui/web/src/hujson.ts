// Colours of HuJSON: JSON with comments and commas at ends. The server judges; this only paints.
import { StreamLanguage, type StringStream } from "@codemirror/language";

interface State {
  inComment: boolean;
}

function comment(stream: StringStream, state: State): string {
  while (!stream.eol()) {
    if (stream.match("*/")) {
      state.inComment = false;
      break;
    }
    stream.next();
  }
  return "comment";
}

export const hujson = StreamLanguage.define<State>({
  name: "hujson",
  startState: () => ({ inComment: false }),
  token(stream, state) {
    if (state.inComment) return comment(stream, state);
    if (stream.eatSpace()) return null;
    if (stream.match("//")) {
      stream.skipToEnd();
      return "comment";
    }
    if (stream.match("/*")) {
      state.inComment = true;
      return comment(stream, state);
    }
    if (stream.match(/^"(?:[^"\\]|\\.)*"/)) {
      return stream.match(/^\s*:/, false) ? "propertyName" : "string";
    }
    if (stream.match(/^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/)) return "number";
    if (stream.match(/^(?:true|false|null)\b/)) return "atom";
    if (stream.match(/^[{}[\],:]/)) return "punctuation";
    stream.next();
    return "invalid";
  },
  languageData: {
    commentTokens: { line: "//", block: { open: "/*", close: "*/" } },
    closeBrackets: { brackets: ["[", "{", '"'] },
    indentOnInput: /^\s*[}\]]$/,
  },
});
