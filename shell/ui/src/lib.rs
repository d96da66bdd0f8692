//! The web interface: its files, and with which fields of HTTP they are sent.
//!
//! What a browser runs is written in `web` (TypeScript and Svelte) and built by `make ui` into
//! `built`, a gzip file each, which is committed: who builds Warren needs no Node. A test builds
//! it again where npm can be had, and compares byte by byte; another holds the whole to its size.
//!
//! What this crate is not: a server. It has no socket and no dependency. Two serve it: the
//! coordination service at `/`, and `warren ui` on the loopback of an administrator's machine.
//!
//! The life of a page:
//!
//! 1. A browser asks for `/`. [`page`] finds the file, and whoever serves sends its bytes as they
//!    are, with [`Page::fields`]: compressed, with a tag, and with the policy that follows.
//! 2. The policy ([`CONTENT_SECURITY_POLICY`]) lets the page load its one script and its one style,
//!    speak with where it came from, and nothing else: no inline script, no other host, no frame
//!    (threats WB-02 and WB-03). Markup from text is refused by the browser itself, through
//!    Trusted Types; the one policy that may make some is the framework's, for its own templates.
//! 3. The script asks `/api/v1` for everything else; there is no other way in. Pages have names
//!    behind `#`, which no server sees.
//! 4. The browser asks again with the tag when it comes back, and is told that nothing is new.
//!
//! Names of files carry no hash, so that a program of this version can be compared with its build;
//! the tag does that work.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

/// What a page may load and do.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src \
    'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// Bytes that all files may have together, compressed.
pub const BYTES_MAX: usize = 300_000;

/// A file: where it is, what it is, its bytes as gzip.
type File = (&'static str, &'static str, &'static [u8]);

const FILES: [File; 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../built/index.html.gz")),
    ("/ui.js", "text/javascript; charset=utf-8", include_bytes!("../built/ui.js.gz")),
    ("/ui.css", "text/css; charset=utf-8", include_bytes!("../built/ui.css.gz")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../built/icon.svg.gz")),
];

/// One for each of [`FILES`].
static TAGS: LazyLock<[String; 4]> = LazyLock::new(|| FILES.map(|(.., bytes)| tag(bytes)));

/// What is sent for one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// 200, or 304 where the browser has it.
    pub status: u16,
    /// Names in lower case, and values.
    pub fields: Vec<(&'static str, String)>,
    /// gzip, or nothing.
    pub body: &'static [u8],
}

/// Whether there is a file at a path.
#[must_use]
pub fn is_page(path: &str) -> bool {
    FILES.iter().any(|(at, ..)| *at == path)
}

/// The file at a path, if there is one. `known` is the field If-None-Match.
#[must_use]
pub fn page(path: &str, known: Option<&str>) -> Option<Page> {
    let found = FILES.iter().zip(TAGS.iter()).find(|((at, ..), _)| *at == path);
    let ((_, kind, bytes), tag) = found?;
    let is_known = known.is_some_and(|known| {
        known.split(',').any(|one| one.trim().trim_start_matches("W/") == *tag)
    });
    let mut fields = vec![
        ("etag", tag.clone()),
        // Asked about each time, so that a page and its script are of the same version.
        ("cache-control", "no-cache".to_owned()),
        ("content-security-policy", CONTENT_SECURITY_POLICY.to_owned()),
        ("x-content-type-options", "nosniff".to_owned()),
        ("x-frame-options", "DENY".to_owned()),
        ("referrer-policy", "no-referrer".to_owned()),
        ("cross-origin-opener-policy", "same-origin".to_owned()),
        ("cross-origin-resource-policy", "same-origin".to_owned()),
    ];
    if is_known {
        return Some(Page { status: 304, fields, body: &[] });
    }
    fields.push(("content-type", (*kind).to_owned()));
    // Every browser reads gzip; there is no other form to send.
    fields.push(("content-encoding", "gzip".to_owned()));
    Some(Page { status: 200, fields, body: bytes })
}

/// Tells versions of a file apart; it guards nothing.
fn tag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("\"{:016x}\"", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_are_small() {
        let total: usize = FILES.iter().map(|(.., bytes)| bytes.len()).sum();
        assert!(total <= BYTES_MAX, "{total} bytes");
        for (path, _, bytes) in FILES {
            assert!(bytes.starts_with(&[0x1f, 0x8b]), "{path} is no gzip");
        }
    }

    #[test]
    fn a_page_is_sent_once_and_then_known_by_its_tag() {
        let first = page("/", None).unwrap();
        let tag = &first.fields.iter().find(|(name, _)| *name == "etag").unwrap().1;
        assert_eq!(first.status, 200);
        for known in [tag.clone(), format!("\"x\", W/{tag}")] {
            let again = page("/", Some(&known)).unwrap();
            assert_eq!((again.status, again.body.len()), (304, 0), "{known}");
        }
        assert_eq!(page("/", Some("\"x\"")).unwrap().status, 200);
    }

    #[test]
    fn wb_10_there_are_no_other_files() {
        for path in ["", "/index.html", "//", "/ui.js.gz", "/../Cargo.toml", "/UI.JS", "/ui.js/"] {
            assert_eq!(page(path, None), None, "{path}");
        }
    }

    #[test]
    fn wb_02_wb_03_nothing_inline_and_nobody_elses_is_let_run() {
        for (path, ..) in FILES {
            let page = page(path, None).unwrap();
            let of = |name| page.fields.iter().find(|(field, _)| *field == name).map(|(_, v)| v);
            let policy = of("content-security-policy").unwrap();
            assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
            assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("http"));
            assert_eq!(of("x-frame-options").unwrap(), "DENY");
        }
    }
}
