//! The token: one line of text that lets a node join, or a program call the API, and that pins the
//! server's key, so that no certificate has to be trusted.
//!
//! `warren-join-` or `warren-api-`, which scanners for leaked secrets can look for; the first 8
//! digits of the look-up name, which lists show, and a hyphen; then base64url without padding of:
//! version (1 byte, 1), length of all of this (2, big endian), the server's public key (32), the
//! look-up name (8), the secret (16), the number of URLs (1), each URL with its length (1) before
//! it, and the first 4 bytes of the SHA-256 of the word before and of all of that. The length tells
//! a token that was cut short; the checksum one that was mistyped. Tokens of 0.1.0 have no digits
//! in front, and are good: what follows begins with a capital letter, so the two are told apart.

use core::fmt;
use core::str::FromStr;

use noise::{PublicKey, Random};
use ring::digest::{SHA256, digest};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::limits::{URL_BYTES_MAX, URLS_MAX};
use crate::text::{from_base64url, to_base64url};
use crate::{BadUrl, ServerUrl};

/// What a token is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Joining the network.
    Join,
    /// Calling the API.
    Api,
}

/// A look-up name: public, random, by which the server finds the hash of the secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SecretId(pub [u8; 8]);

/// 128 random bits. Wiped when dropped; prints nothing.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret(pub [u8; 16]);

/// One token.
#[derive(Clone, Debug)]
pub struct Token {
    /// What it is for.
    pub kind: Kind,
    /// The server's Noise public key.
    pub server: PublicKey,
    /// Where the server is, the preferred first; 1 to [`URLS_MAX`].
    pub urls: Vec<ServerUrl>,
    /// The secret's look-up name.
    pub id: SecretId,
    /// The secret.
    pub secret: Secret,
}

/// Why a text is no token. None of them repeats any of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadToken {
    /// It does not begin as a token does, or has characters that no token has.
    Form,
    /// It is a token for something else: the kind that it is of.
    Other(Kind),
    /// It ends too early, after so many of so many characters.
    Truncated(usize, usize),
    /// Something follows it: characters too many.
    Trailing(usize),
    /// Its checksum is wrong: a character was changed.
    Damaged,
    /// It was made by a later version of Warren: its version.
    Version(u8),
    /// A URL in it cannot be used.
    Url(BadUrl),
}

const VERSION: u8 = 1;
const FIXED_LEN: usize = 1 + 2 + 32 + 8 + 16 + 1;
const CHECKSUM_LEN: usize = 4;
/// Digits of the look-up name that stand in front.
pub const FRONT_LEN: usize = 8;

impl Kind {
    /// What a token of this kind begins with.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Join => "warren-join-",
            Self::Api => "warren-api-",
        }
    }
}

impl SecretId {
    /// 16 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digits that lists show, and that stand in front of a token: [`FRONT_LEN`] of them.
    #[must_use]
    pub fn front(self) -> String {
        self.to_hex().chars().take(FRONT_LEN).collect()
    }
}

impl Token {
    /// A new token with a fresh look-up name and secret. `urls` beyond [`URLS_MAX`] are left out.
    #[must_use]
    pub fn generate(
        kind: Kind,
        server: PublicKey,
        urls: &[ServerUrl],
        random: &mut dyn Random,
    ) -> Self {
        let mut id = [0; 8];
        let mut secret = [0; 16];
        random.fill(&mut id);
        random.fill(&mut secret);
        let urls = urls.iter().take(URLS_MAX).cloned().collect();
        let token = Self { kind, server, urls, id: SecretId(id), secret: Secret(secret) };
        secret.zeroize();
        token
    }

    /// The token as its one line. The caller shows it once and wipes it.
    #[must_use]
    pub fn print(&self) -> String {
        let mut bytes = vec![VERSION, 0, 0];
        bytes.extend(self.server.0);
        bytes.extend(self.id.0);
        bytes.extend(self.secret.0);
        bytes.push(self.urls.len() as u8);
        for url in &self.urls {
            let url = url.to_string();
            bytes.push(url.len() as u8);
            bytes.extend(url.as_bytes());
        }
        let len = (bytes.len() + CHECKSUM_LEN) as u16;
        bytes[1..3].copy_from_slice(&len.to_be_bytes());
        let checksum = checksum(self.kind, &bytes);
        bytes.extend(checksum);
        let mut body = to_base64url(&bytes);
        let text = format!("{}{}-{body}", self.kind.prefix(), self.id.front());
        bytes.zeroize();
        body.zeroize();
        text
    }

    /// Reads a token that must be of `kind`; white space around it is ignored.
    ///
    /// # Errors
    /// [`BadToken`], which says what is wrong without repeating what was typed.
    pub fn parse(text: &str, kind: Kind) -> Result<Self, BadToken> {
        let token: Self = text.parse()?;
        if token.kind == kind { Ok(token) } else { Err(BadToken::Other(token.kind)) }
    }
}

fn checksum(kind: Kind, bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let hash = digest(&SHA256, &[kind.prefix().as_bytes(), bytes].concat());
    let mut short = [0; CHECKSUM_LEN];
    short.copy_from_slice(&hash.as_ref()[..CHECKSUM_LEN]);
    short
}

/// The digits in front, where there are some, and what follows them.
fn split_front(text: &str) -> Result<(Option<&str>, &str), BadToken> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if !text.bytes().next().is_some_and(is_digit) {
        return Ok((None, text));
    }
    let Some((front, rest)) = text.split_at_checked(FRONT_LEN) else {
        return Err(BadToken::Truncated(text.len(), 0));
    };
    let Some(body) = rest.strip_prefix('-') else {
        let is_cut = rest.is_empty();
        return Err(if is_cut { BadToken::Truncated(text.len(), 0) } else { BadToken::Damaged });
    };
    if front.bytes().all(is_digit) { Ok((Some(front), body)) } else { Err(BadToken::Damaged) }
}

/// Takes `len` bytes from the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], BadToken> {
    let (first, later) = rest.split_at_checked(len).ok_or(BadToken::Form)?;
    *rest = later;
    Ok(first)
}

/// The same as an array.
fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BadToken> {
    take(rest, N)?.try_into().map_err(|_| BadToken::Form)
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let text = text.trim();
        let kinds = [Kind::Join, Kind::Api];
        let found =
            kinds.into_iter().find_map(|kind| Some((kind, text.strip_prefix(kind.prefix())?)));
        let Some((kind, text)) = found else {
            // A prefix that was cut itself is a token that was cut.
            let cut = kinds.into_iter().any(|kind| kind.prefix().starts_with(text));
            let known = cut && text.starts_with("warren");
            return Err(if known { BadToken::Truncated(text.len(), 0) } else { BadToken::Form });
        };
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if !text.bytes().all(legal) {
            return Err(BadToken::Form);
        }
        let (front, text) = split_front(text)?;
        let longest = FIXED_LEN + URLS_MAX * (1 + URL_BYTES_MAX) + CHECKSUM_LEN;
        let Some(head) = text.get(..4).and_then(from_base64url) else {
            return Err(BadToken::Truncated(text.len(), 0));
        };
        if head[0] != VERSION {
            return Err(BadToken::Version(head[0]));
        }
        let len = usize::from(u16::from_be_bytes([head[1], head[2]]));
        if !(FIXED_LEN + CHECKSUM_LEN..=longest).contains(&len) {
            return Err(BadToken::Damaged);
        }
        let characters = (len * 4).div_ceil(3);
        if text.len() < characters {
            return Err(BadToken::Truncated(text.len(), characters));
        }
        if text.len() > characters {
            return Err(BadToken::Trailing(text.len() - characters));
        }
        let mut bytes = from_base64url(text).ok_or(BadToken::Damaged)?;
        let token = read(kind, &bytes);
        bytes.zeroize();
        let token = token?;
        match front {
            Some(front) if front != token.id.front() => Err(BadToken::Damaged),
            _ => Ok(token),
        }
    }
}

fn read(kind: Kind, bytes: &[u8]) -> Result<Token, BadToken> {
    let (body, sum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
    if checksum(kind, body) != *sum {
        return Err(BadToken::Damaged);
    }
    let rest = &mut &body[3..];
    let server = PublicKey(take_array(rest)?);
    let id = SecretId(take_array(rest)?);
    let secret = Secret(take_array(rest)?);
    let count = usize::from(take(rest, 1)?[0]);
    if !(1..=URLS_MAX).contains(&count) {
        return Err(BadToken::Form);
    }
    let mut urls = Vec::with_capacity(count);
    for _ in 0..count {
        let len = usize::from(take(rest, 1)?[0]);
        let url = core::str::from_utf8(take(rest, len)?).map_err(|_| BadToken::Form)?;
        urls.push(url.parse().map_err(BadToken::Url)?);
    }
    if rest.is_empty() { Ok(Token { kind, server, urls, id, secret }) } else { Err(BadToken::Form) }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for BadToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str(
                "this is no token; one begins with warren-join- or warren-api- and is one word",
            ),
            Self::Other(Kind::Api) => f.write_str(
                "this token is for the API; a node joins with one of `warren key create`",
            ),
            Self::Other(Kind::Join) => {
                f.write_str("this token is for joining; the API wants one of `warren token create`")
            }
            Self::Truncated(_, 0) => f.write_str("the token was cut short; copy all of it"),
            Self::Truncated(have, want) => {
                write!(f, "the token was cut short: {have} of {want} characters; copy all of it")
            }
            Self::Trailing(count) => {
                write!(f, "{count} characters follow the token; copy nothing but it")
            }
            Self::Damaged => {
                f.write_str("a character of the token is wrong (its checksum fails); copy it again")
            }
            Self::Version(version) => {
                write!(f, "the token has version {version}; update Warren on this machine")
            }
            Self::Url(why) => write!(f, "the token's server cannot be used: {why}"),
        }
    }
}

impl core::error::Error for BadToken {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::testing::Seeded;

    fn token(urls: &[&str]) -> Token {
        let urls: Vec<_> = urls.iter().map(|url| url.parse().unwrap()).collect();
        Token::generate(Kind::Join, PublicKey([7; 32]), &urls, &mut Seeded(3))
    }

    #[test]
    fn a_token_comes_back_from_its_line() {
        let one = token(&["https://warren.example", "https://10.1.2.3:8443"]);
        let line = one.print();
        assert!(line.starts_with("warren-join-") && !line.contains(char::is_whitespace));
        let back = Token::parse(&format!(" {line}\n"), Kind::Join).unwrap();
        assert_eq!((back.server, &back.urls, back.id), (one.server, &one.urls, one.id));
        assert_eq!(back.secret.0, one.secret.0);
        assert!(line.len() < 200, "it still fits on two lines of a terminal: {}", line.len());
        let front = one.id.front();
        assert!(line.starts_with(&format!("warren-join-{front}-")), "lists show {front}: {line}");
    }

    #[test]
    fn lc_17_a_token_of_0_1_0_has_no_digits_in_front_and_is_good() {
        let one = token(&["https://warren.example"]);
        let line = one.print();
        let front = format!("{}-", one.id.front());
        let before = line.replacen(&front, "", 1);
        let back = Token::parse(&before, Kind::Join).unwrap();
        assert_eq!((back.id, back.secret.0), (one.id, one.secret.0));
        let other = line.replacen(&front, "00000000-", 1);
        assert_eq!(Token::parse(&other, Kind::Join).unwrap_err(), BadToken::Damaged);
    }

    #[test]
    fn a_token_that_was_cut_is_told_from_a_wrong_one() {
        let line = token(&["https://warren.example"]).print();
        for len in 6..line.len() {
            let why = Token::parse(&line[..len], Kind::Join).unwrap_err();
            assert!(matches!(why, BadToken::Truncated(..)), "{len}: {why:?}");
        }
        assert_eq!(
            Token::parse(&(line.clone() + "ab"), Kind::Join).unwrap_err(),
            BadToken::Trailing(2)
        );
        let body = Kind::Join.prefix().len();
        // Digits, hyphen, and what follows the version, which is told as one.
        let version = body + FRONT_LEN + 1;
        for at in (body + 1..version).chain(version + 4..line.len()) {
            let mut other = line.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let why = Token::parse(core::str::from_utf8(&other).unwrap(), Kind::Join).unwrap_err();
            assert_eq!(why, BadToken::Damaged, "{at}");
        }
        for text in ["", "x", "tskey-auth-1", "warren-join-é", "warren-join-AQ B"] {
            assert_eq!(Token::parse(text, Kind::Join).unwrap_err(), BadToken::Form, "{text}");
        }
    }

    #[test]
    fn a_token_for_something_else_is_told() {
        let mut one = token(&["https://warren.example"]);
        one.kind = Kind::Api;
        let why = Token::parse(&one.print(), Kind::Join).unwrap_err();
        assert_eq!(why, BadToken::Other(Kind::Api));
        let moved = one.print().replace("warren-api-", "warren-join-");
        assert_eq!(Token::parse(&moved, Kind::Join).unwrap_err(), BadToken::Damaged);
    }

    #[test]
    fn ho_04_neither_a_token_nor_its_errors_print_the_secret() {
        let mut one = token(&["https://warren.example"]);
        one.secret = Secret([0x5a; 16]);
        let said = format!("{one:?}");
        assert!(!said.contains("90, 90") && !said.contains("5a5a"), "{said}");
        let line = one.print();
        let said = Token::parse(&line[..80], Kind::Join).unwrap_err().to_string();
        assert!(!said.contains(&line[20..30]), "{said}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_token_or_a_reason(text in "(warren-(join|api)-)?[A-Za-z0-9_-]{0,200}") {
            let _ = text.parse::<Token>();
        }
    }
}
