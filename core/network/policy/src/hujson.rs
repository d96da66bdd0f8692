//! HuJSON: JSON with `//` and `/* */` comments and trailing commas, each value with its place.
//!
//! Strict where leniency would hide a mistake in a policy: a key that stands twice, a missing
//! comma and a bare word are errors. Source: RFC 8259, and the HuJSON extension as published.

use std::collections::BTreeSet;

use crate::place::{Finding, Place, quoted};

/// Bytes of a policy file, at most.
pub const TEXT_MAX: usize = 1 << 20;
/// Lists and objects inside each other, at most.
pub const DEPTH_MAX: usize = 32;
/// Values in a policy file, at most.
pub const VALUES_MAX: usize = 100_000;

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Json {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// Checked against the grammar, not converted: no policy key takes a number.
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<Field>),
}

/// One key of an object with its value, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) place: Place,
    pub(crate) key: String,
    pub(crate) value: Json,
}

impl Value {
    /// What it is, for messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

/// Reads a file; `None` where it has nothing but space and comments.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Json>, Finding> {
    if bytes.len() > TEXT_MAX {
        let what = format!("the file has {} bytes, at most {TEXT_MAX} are read", bytes.len());
        return Err(Finding::new(Place { line: 1, column: 1 }, what, "use groups and prefixes"));
    }
    let (text, bad) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(error) => (std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""), true),
    };
    let mut reader = Reader::new(text.strip_prefix('\u{feff}').unwrap_or(text));
    if bad {
        while reader.bump().is_some() {}
        let what = "a byte that is no UTF-8 text";
        return Err(Finding::new(reader.place, what, "save the file as UTF-8"));
    }
    reader.skip_space()?;
    if reader.peek().is_none() {
        return Ok(None);
    }
    let value = reader.value(0)?;
    reader.skip_space()?;
    match reader.peek() {
        None => Ok(Some(value)),
        Some(c) => Err(reader.unexpected(c, "the file is one object: remove what follows it")),
    }
}

struct Reader<'a> {
    rest: std::str::Chars<'a>,
    place: Place,
    values: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.chars(), place: Place { line: 1, column: 1 }, values: 0 }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(c)
    }

    fn error(&self, what: impl Into<String>, mend: &str) -> Finding {
        Finding::new(self.place, what, mend)
    }

    fn unexpected(&self, c: char, mend: &str) -> Finding {
        self.error(format!("{} is not expected here", quoted(c.encode_utf8(&mut [0; 4]))), mend)
    }

    fn ended(&self, mend: &str) -> Finding {
        self.error("the file ends too early", mend)
    }

    fn skip_space(&mut self) -> Result<(), Finding> {
        loop {
            match self.peek() {
                Some(' ' | '\t' | '\r' | '\n') => drop(self.bump()),
                Some('/') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), Finding> {
        let begin = self.place;
        self.bump();
        match self.bump() {
            Some('/') => {
                while !matches!(self.bump(), None | Some('\n')) {}
                Ok(())
            }
            Some('*') => {
                let mut last = ' ';
                while let Some(c) = self.bump() {
                    if (last, c) == ('*', '/') {
                        return Ok(());
                    }
                    last = c;
                }
                Err(Finding::new(begin, "a comment that is not closed", "close it with */"))
            }
            _ => Err(Finding::new(begin, "a lone /", "comments begin with // or /*")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, Finding> {
        self.values += 1;
        if self.values > VALUES_MAX {
            let what = format!("more than {VALUES_MAX} values");
            return Err(self.error(what, "use groups and prefixes"));
        }
        if depth > DEPTH_MAX {
            let what = format!("lists and objects more than {DEPTH_MAX} deep");
            return Err(self.error(what, "a policy needs no more than five"));
        }
        let place = self.place;
        let value = match self.peek() {
            None => return Err(self.ended("a value is missing")),
            Some('{') => self.object(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => Value::Text(self.text()?),
            Some('-' | '0'..='9') => self.number()?,
            Some('a'..='z' | 'A'..='Z' | '_') => self.word()?,
            Some('\'') => return Err(self.unexpected('\'', "texts stand in double quotes")),
            Some(c) => return Err(self.unexpected(c, "a text, a list or an object belongs here")),
        };
        Ok(Json { place, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value, Finding> {
        const MEND: &str = "write \"key\": value, with a comma between fields and } at the end";
        self.bump();
        let mut fields = Vec::new();
        let mut keys = BTreeSet::new();
        loop {
            self.skip_space()?;
            let place = self.place;
            match self.peek() {
                None => return Err(self.ended("close the object with }")),
                Some('}') => break,
                Some('"') => (),
                Some(c) => return Err(self.unexpected(c, MEND)),
            }
            let key = self.text()?;
            if !keys.insert(key.clone()) {
                let what = format!("the key {} stands here twice", quoted(&key));
                return Err(Finding::new(place, what, "merge the two"));
            }
            self.skip_space()?;
            match self.peek() {
                Some(':') => drop(self.bump()),
                None => return Err(self.ended("after a key come : and a value")),
                Some(c) => return Err(self.unexpected(c, "after a key come : and a value")),
            }
            self.skip_space()?;
            let value = self.value(depth + 1)?;
            fields.push(Field { place, key, value });
            self.comma_before('}', MEND)?;
        }
        self.bump();
        Ok(Value::Object(fields))
    }

    fn list(&mut self, depth: usize) -> Result<Value, Finding> {
        const MEND: &str = "separate entries with a comma and close the list with ]";
        self.bump();
        let mut entries = Vec::new();
        loop {
            self.skip_space()?;
            match self.peek() {
                None => return Err(self.ended("close the list with ]")),
                Some(']') => break,
                Some(_) => entries.push(self.value(depth + 1)?),
            }
            self.comma_before(']', MEND)?;
        }
        self.bump();
        Ok(Value::List(entries))
    }

    /// Behind an entry: a comma, or the end of what holds it.
    fn comma_before(&mut self, end: char, mend: &str) -> Result<(), Finding> {
        self.skip_space()?;
        match self.peek() {
            Some(',') => drop(self.bump()),
            Some(c) if c == end => (),
            Some(c) => return Err(self.unexpected(c, mend)),
            None => return Err(self.ended(mend)),
        }
        Ok(())
    }

    fn text(&mut self) -> Result<String, Finding> {
        const MEND: &str = "end it with a double quote on the same line";
        let begin = self.place;
        self.bump();
        let mut text = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => {
                    return Err(Finding::new(begin, "a text that is not closed", MEND));
                }
                Some('"') => break,
                Some('\\') => text.push(self.escape()?),
                Some(c) if c.is_control() => {
                    return Err(self.unexpected(c, "write it as an escape, or leave it out"));
                }
                Some(c) => {
                    text.push(c);
                    self.bump();
                }
            }
        }
        self.bump();
        Ok(text)
    }

    fn escape(&mut self) -> Result<char, Finding> {
        const MEND: &str = "known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u with four digits";
        let begin = self.place;
        let wrong = || Finding::new(begin, "an escape that is not known", MEND);
        self.bump();
        Ok(match self.bump().ok_or_else(wrong)? {
            c @ ('"' | '\\' | '/') => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let high = self.hex4().ok_or_else(wrong)?;
                if !(0xd800..0xdc00).contains(&high) {
                    return char::from_u32(high).ok_or_else(wrong);
                }
                if (self.bump(), self.bump()) != (Some('\\'), Some('u')) {
                    return Err(wrong());
                }
                let low = self.hex4().filter(|low| (0xdc00..0xe000).contains(low));
                let low = low.ok_or_else(wrong)?;
                char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
                    .ok_or_else(wrong)?
            }
            _ => return Err(wrong()),
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        (0..4).try_fold(0, |value, _| Some(value << 4 | self.bump()?.to_digit(16)?))
    }

    fn run(&mut self, fits: impl Fn(char) -> bool) -> String {
        let mut run = String::new();
        while let Some(c) = self.peek().filter(|c| fits(*c)) {
            run.push(c);
            self.bump();
        }
        run
    }

    fn word(&mut self) -> Result<Value, Finding> {
        let begin = self.place;
        let word = self.run(|c| c.is_ascii_alphanumeric() || c == '_');
        match word.as_str() {
            "null" => Ok(Value::Null),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => {
                let what = format!("the bare word {}", quoted(&word));
                Err(Finding::new(begin, what, "texts stand in double quotes"))
            }
        }
    }

    fn number(&mut self) -> Result<Value, Finding> {
        let begin = self.place;
        let number = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'));
        if is_number(&number) {
            return Ok(Value::Number(number));
        }
        let what = format!("{} is no number", quoted(&number));
        Err(Finding::new(begin, what, "addresses and ports stand in double quotes"))
    }
}

/// RFC 8259 §6.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Json>, String> {
        parse(text.as_bytes()).map_err(|finding| finding.to_string())
    }

    fn plain(json: &Json) -> String {
        match &json.value {
            Value::Null => "null".into(),
            Value::Bool(value) => value.to_string(),
            Value::Number(text) => text.clone(),
            Value::Text(text) => format!("{text:?}"),
            Value::List(list) => {
                format!("[{}]", list.iter().map(plain).collect::<Vec<_>>().join(","))
            }
            Value::Object(fields) => {
                let fields = fields.iter().map(|f| format!("{:?}:{}", f.key, plain(&f.value)));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            }
        }
    }

    #[test]
    fn comments_and_trailing_commas_are_read_and_places_kept() {
        let text = "// first\n{ /* ä */ \"a\": [1, -2.5e3, \"\\u00e4\\ud83d\\ude00\",],\n \
                    \"b\": {\"c\": null, \"d\": true,}, // last\n}\n";
        let json = read(text).unwrap().unwrap();
        assert_eq!(plain(&json), "{\"a\":[1,-2.5e3,\"ä😀\"],\"b\":{\"c\":null,\"d\":true}}");
        let Value::Object(fields) = &json.value else { panic!("an object") };
        assert_eq!(json.place, Place { line: 2, column: 1 });
        assert_eq!(fields[0].place, Place { line: 2, column: 11 });
        assert_eq!(fields[1].value.place, Place { line: 3, column: 7 });
        assert_eq!(read("  // nothing\n/* at all */"), Ok(None));
        assert_eq!(read("\u{feff}{}").unwrap().unwrap().place, Place { line: 1, column: 1 });
    }

    #[test]
    fn every_mistake_has_its_place() {
        for (text, begin) in [
            ("{", "1:2: the file ends too early"),
            ("{\"a\":1 \"b\":2}", "1:8: \"\\\"\" is not expected"),
            ("{\"a\":1,,}", "1:8: \",\" is not expected"),
            ("{\n \"a\": 1,\n \"a\": 2}", "3:2: the key \"a\" stands here twice"),
            ("{'a':1}", "1:2: \"\\'\" is not expected"),
            ("[a]", "1:2: the bare word \"a\""),
            ("[01]", "1:2: \"01\" is no number"),
            ("[1.]", "1:2: \"1.\" is no number"),
            ("[0x10]", "1:2: \"0x10\" is no number"),
            ("[\"a\n\"]", "1:2: a text that is not closed"),
            ("[\"\t\"]", "1:3: \"\\t\" is not expected"),
            ("[\"\\x\"]", "1:3: an escape"),
            ("[\"\\ud800x\"]", "1:3: an escape"),
            ("[\"\\udc00\"]", "1:3: an escape"),
            ("{} {}", "1:4: \"{\" is not expected"),
            ("/* {}", "1:1: a comment that is not closed"),
            ("/ {}", "1:1: a lone /"),
            ("{\"a\" 1}", "1:6: \"1\" is not expected"),
            ("[}", "1:2: \"}\" is not expected"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(begin), "{text:?}: {error}");
        }
        let error = parse(b"{\n\"a\": \"\xff\"}").unwrap_err();
        assert_eq!(error.place, Place { line: 2, column: 7 });
    }

    #[test]
    fn depth_size_and_number_of_values_are_bounded() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(&deep(DEPTH_MAX + 1)).is_ok());
        let error = read(&deep(DEPTH_MAX + 2)).unwrap_err();
        assert!(error.starts_with("1:34: lists and objects more than 32 deep"), "{error}");
        assert!(read(&"[".repeat(TEXT_MAX)).unwrap_err().contains("deep"));
        assert!(read(&" ".repeat(TEXT_MAX + 1)).unwrap_err().contains("bytes"));
        let many = |count: usize| format!("[{}]", "1,".repeat(count));
        assert!(read(&many(VALUES_MAX - 1)).is_ok());
        assert!(read(&many(VALUES_MAX)).unwrap_err().contains("100000 values"));
    }
}
