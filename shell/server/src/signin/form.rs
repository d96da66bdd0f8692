//! Forms and queries as browsers send them (`application/x-www-form-urlencoded`, URL standard,
//! section 5): pairs of names and values, with percents undone.

/// Bytes of a form.
pub(crate) const BYTES_MAX: usize = 8 * 1024;
/// Pairs of one.
const PAIRS_MAX: usize = 32;
/// Characters of a place to go on to.
const PLACE_LEN_MAX: usize = 512;

/// A form.
#[derive(Clone, Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads; whatever is no pair is left out.
    pub(crate) fn read(text: &str) -> Self {
        let text = text.get(..BYTES_MAX).unwrap_or(text);
        let pairs = text.split('&').take(PAIRS_MAX).filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(name, value)| (plain(name), plain(value))).collect())
    }

    /// All of it.
    #[cfg(feature = "oracle")]
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The value of a name, empty if there is none.
    pub(crate) fn word(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Where to go on to: a place on this server, else its first page.
    pub(crate) fn back(&self) -> String {
        let wanted = self.word("return");
        if is_local(wanted) { wanted.to_owned() } else { "/".to_owned() }
    }
}

/// Whether a place is on this server for every browser (threat WB-13): one that takes a backslash
/// for a slash, or leaves out what is no character, goes nowhere else either.
pub(crate) fn is_local(place: &str) -> bool {
    let is_plain = place.bytes().all(|byte| matches!(byte, b'!'..=b'~') && byte != b'\\');
    let second = place.as_bytes().get(1);
    is_plain && place.len() <= PLACE_LEN_MAX && place.starts_with('/') && second != Some(&b'/')
}

fn plain(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let hex = |byte: u8| (byte as char).to_digit(16);
        match (first, behind) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                let high = hex(*high).unwrap_or(0);
                let low = hex(*low).unwrap_or(0);
                bytes.push((high * 16 + low) as u8);
                rest = after;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_as_browsers_write_them() {
        let form = Form::read("user=anna%40x&password=a+b%2Bc%C3%A4&empty=&%zz=%4&x");
        assert_eq!((form.word("user"), form.word("password")), ("anna@x", "a b+cä"));
        assert_eq!((form.word("empty"), form.word("%zz"), form.word("x")), ("", "%4", ""));
        assert_eq!(Form::read("a=%ff").word("a"), "\u{fffd}");
        assert_eq!(Form::read(&"a=b&".repeat(9000)).0.len(), PAIRS_MAX);
    }

    #[test]
    fn wb_13_a_place_to_go_on_to_is_on_this_server() {
        for place in ["/", "/a/x", "/a/x?y=%2f#/z"] {
            assert!(is_local(place), "{place}");
        }
        let long = format!("/{}", "a".repeat(600));
        for place in [
            "",
            "a",
            "//evil",
            "/\\evil",
            "\\\\evil",
            "https://evil",
            "/\t/evil",
            "/\n/evil",
            "/ /evil",
            "javascript:1",
            "/é",
            "/a\\b",
            " /a",
            &long,
        ] {
            assert!(!is_local(place), "{place:?}");
            assert_eq!(Form(vec![("return".into(), place.into())]).back(), "/");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_form(text in ".{0,200}") {
            let form = Form::read(&text);
            assert!(is_local(&form.back()));
        }
    }
}
