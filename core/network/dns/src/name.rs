//! Domain names as they stand in a query: labels, each up to 63 bytes, 255 bytes in all
//! (RFC 1035, section 3.1). Capitals are kept and do not matter (RFC 4343).

use core::fmt;

/// Bytes of a name with its length bytes and the root, at most.
const NAME_LEN_MAX: usize = 255;
/// Bytes of a label, at most.
const LABEL_LEN_MAX: usize = 63;

/// A name, from its first label to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    labels: Vec<Vec<u8>>,
}

/// Why bytes or text are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadName {
    /// It ends in the middle.
    Short,
    /// A label is empty or longer than 63 bytes, or a pointer, which a question cannot have.
    Label,
    /// It is longer than 255 bytes.
    Length,
}

impl Name {
    /// Reads a name without pointers at `at`; gives it and where it ends.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn read(bytes: &[u8], at: usize) -> Result<(Self, usize), BadName> {
        let mut labels = Vec::new();
        let mut end = at;
        loop {
            let len = usize::from(*bytes.get(end).ok_or(BadName::Short)?);
            end += 1;
            if len == 0 {
                return Ok((Self { labels }, end));
            }
            if len > LABEL_LEN_MAX {
                return Err(BadName::Label);
            }
            let label = bytes.get(end..end + len).ok_or(BadName::Short)?;
            labels.push(label.to_vec());
            end += len;
            if end - at >= NAME_LEN_MAX {
                return Err(BadName::Length);
            }
        }
    }

    /// Reads text with dots between labels; one dot at the end is allowed.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn from_text(text: &str) -> Result<Self, BadName> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let labels: Vec<Vec<u8>> = text.split('.').map(|l| l.as_bytes().to_vec()).collect();
        if labels.iter().any(|l| l.is_empty() || l.len() > LABEL_LEN_MAX) {
            return Err(BadName::Label);
        }
        let name = Self { labels };
        if name.len() > NAME_LEN_MAX { Err(BadName::Length) } else { Ok(name) }
    }

    /// Its labels, in the capitals in which they came.
    pub fn labels(&self) -> &[Vec<u8>] {
        &self.labels
    }

    /// Bytes of it on the wire, the root's included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.iter().map(|l| l.len() + 1).sum::<usize>() + 1
    }

    /// Whether this is the root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Whether it is `top` or below it; then how many labels stand before `top`.
    #[must_use]
    pub fn below(&self, top: &Self) -> Option<usize> {
        let before = self.labels.len().checked_sub(top.labels.len())?;
        let same = |(a, b): (&Vec<u8>, &Vec<u8>)| a.eq_ignore_ascii_case(b);
        self.labels[before..].iter().zip(&top.labels).all(same).then_some(before)
    }

    /// Whether both are the same but for capitals.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.below(other) == Some(0)
    }

    /// Appends it as it stands on the wire.
    pub fn write(&self, out: &mut Vec<u8>) {
        for label in &self.labels {
            out.push(u8::try_from(label.len()).unwrap_or(0));
            out.extend_from_slice(label);
        }
        out.push(0);
    }

    /// It with `label` in front, in lower case.
    ///
    /// # Errors
    /// [`BadName`] if that is too long.
    pub fn child(&self, label: &str) -> Result<Self, BadName> {
        Self::from_text(&format!("{label}.{self}"))
    }
}

impl fmt::Display for Name {
    /// In lower case; bytes that are not plain become `?`, so that it may stand in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, label) in self.labels.iter().enumerate() {
            let dot = if i == 0 { "" } else { "." };
            let plain = label.iter().map(|b| match b.to_ascii_lowercase() {
                b @ (b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') => char::from(b),
                _ => '?',
            });
            write!(f, "{dot}{}", plain.collect::<String>())?;
        }
        if self.labels.is_empty() { f.write_str(".") } else { Ok(()) }
    }
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the name ends in the middle",
            Self::Label => "a label of the name is empty or longer than 63 bytes",
            Self::Length => "the name is longer than 255 bytes",
        })
    }
}

impl core::error::Error for BadName {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_read_written_and_compared_without_capitals() {
        let name = Name::from_text("Robot.Warren.Internal.").unwrap();
        let mut bytes = vec![9];
        name.write(&mut bytes);
        assert_eq!(bytes[1..], *b"\x05Robot\x06Warren\x08Internal\0");
        assert_eq!(bytes.len(), 1 + name.len());
        assert_eq!(Name::read(&bytes, 1), Ok((name.clone(), bytes.len())));
        assert_eq!(name.to_string(), "robot.warren.internal");
        let top = Name::from_text("warren.internal").unwrap();
        assert_eq!((name.below(&top), top.below(&name)), (Some(1), None));
        assert!(top.child("ROBOT").unwrap().same(&name));
        let other = Name::from_text("robot.barren.internal").unwrap();
        assert_eq!(other.below(&top), None);
    }

    #[test]
    fn lengths_hold_to_the_byte() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
        let name = Name::from_text(&longest).unwrap();
        assert_eq!(name.len(), 255);
        let mut bytes = Vec::new();
        name.write(&mut bytes);
        assert_eq!(Name::read(&bytes, 0).unwrap().0, name);
        assert_eq!(Name::from_text(&format!("{longest}b")), Err(BadName::Length));
        bytes[192] = 62;
        bytes.insert(193, b'b');
        assert_eq!(Name::read(&bytes, 0), Err(BadName::Length));
        assert_eq!(Name::from_text(&format!("{label}a.x")), Err(BadName::Label));
        assert_eq!(Name::from_text("a..b"), Err(BadName::Label));
        assert_eq!(Name::from_text(""), Err(BadName::Label));
        assert_eq!(Name::read(b"\xc0\x0c", 0), Err(BadName::Label), "a pointer");
        assert_eq!(Name::read(b"\x03ab", 0), Err(BadName::Short));
        assert_eq!(Name::read(b"", 0), Err(BadName::Short));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_back(bytes in prop::collection::vec(0_u8..70, 0..300)) {
            if let Ok((name, end)) = Name::read(&bytes, 0) {
                let mut out = Vec::new();
                name.write(&mut out);
                prop_assert_eq!(&out[..], &bytes[..end]);
                prop_assert!(name.len() == end && end <= 255);
            }
        }
    }
}
