//! Text as a part of an address: what is not plain becomes percents (RFC 3986, section 2.1).

/// Letters, digits and what is in `plain` stay as they are.
pub(crate) fn percent(text: &str, plain: &[u8]) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            safe.push(byte as char);
        } else {
            safe += &format!("%{byte:02X}");
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_plain_becomes_percents() {
        assert_eq!(percent("a/b c&ä~", b"-_.~"), "a%2Fb%20c%26%C3%A4~");
        assert_eq!(percent("/a?b", b"/"), "/a%3Fb");
    }
}
