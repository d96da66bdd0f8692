//! Which join key or API token is meant: by its number, by what it begins with in lists, or by the
//! token itself. So a token that was found in a wiki can be ended by whoever found it.

use anyhow::{Result, bail};
use control::{FRONT_LEN, Kind, Token};
use serde_json::{Value, json};

use crate::admin::Session;

/// The digits that stand in front of a token and are no secret, from its look-up name.
fn front(prefix: &str) -> Option<&str> {
    prefix.get(..FRONT_LEN)
}

/// What a token of this kind of thing begins with.
fn begins(what: &str, front: &str) -> String {
    let kind = if what == "key" { Kind::Join } else { Kind::Api };
    format!("{}{front}-", kind.prefix())
}

/// The rows of a list of keys or tokens, each with what its token begins with.
pub(crate) fn with_fronts(what: &str, rows: &Value) -> Value {
    let rows = rows.as_array().into_iter().flatten();
    let shown = rows.map(|row| {
        let mut row = row.clone();
        let front = row["prefix"].as_str().and_then(front);
        row["front"] = json!(front.map(|front| format!("{}…", begins(what, front))));
        row
    });
    shown.collect()
}

/// A line about a token that was made.
pub(crate) fn made(what: &str, answer: &Value) -> String {
    let ends = answer["expires"]
        .as_str()
        .map_or_else(|| "does not end by itself".to_owned(), |at| format!("ends at {at}"));
    format!("{what} {}, which {ends}\n", answer["id"])
}

/// The number of the key or token that is meant.
pub(crate) fn number(session: &mut Session, what: &str, named: &str) -> Result<u64> {
    // Who may end one need not be allowed to list them.
    if let Some(number) = plain_number(named) {
        return Ok(number);
    }
    let answer = session.call("GET", &format!("/api/v1/{what}s"), &Value::Null)?;
    let rows = answer[format!("{what}s")].as_array().map(Vec::as_slice).unwrap_or_default();
    // What was typed may be a secret, and is not repeated.
    match chosen(rows, named)[..] {
        [id] => Ok(id),
        [] => bail!(
            "there is no such {what}; `warren {what} list` shows number and beginning of each"
        ),
        _ => bail!("several {what}s begin like that; `warren {what} list` shows their numbers"),
    }
}

/// What is a number and nothing else: what tokens begin with has 8 digits, look-up names have 16.
fn plain_number(named: &str) -> Option<u64> {
    named.parse().ok().filter(|_| named.len() < FRONT_LEN)
}

/// Numbers of those that are meant by a token, its beginning, its look-up name, or a long number.
fn chosen(rows: &[Value], named: &str) -> Vec<u64> {
    let named = named.trim();
    let token = named.parse::<Token>().ok().map(|token| token.id.to_hex());
    let begin = named.trim_end_matches(['…', '-']);
    let kinds = [Kind::Join, Kind::Api];
    let bare = kinds.iter().find_map(|kind| begin.strip_prefix(kind.prefix())).unwrap_or(begin);
    let wanted = token.as_deref().unwrap_or(bare);
    let is_named = |row: &&Value| {
        let prefix = row["prefix"].as_str().unwrap_or_default();
        !wanted.is_empty() && (prefix == wanted || front(prefix) == Some(wanted))
    };
    let number = |row: &Value| row["id"].as_u64();
    let found: Vec<u64> = rows.iter().filter(is_named).filter_map(number).collect();
    if found.is_empty() {
        let is_number = |id: &u64| named.parse() == Ok(*id);
        return rows.iter().filter_map(number).filter(is_number).collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use control::Kind;
    use noise::{PublicKey, Random};

    use super::*;

    struct Counting(u8);

    impl Random for Counting {
        fn fill(&mut self, bytes: &mut [u8]) {
            for byte in bytes {
                self.0 = self.0.wrapping_mul(29).wrapping_add(71);
                *byte = self.0;
            }
        }
    }

    #[test]
    fn a_token_is_known_by_its_letters_its_number_and_itself() {
        let urls = ["https://vpn.example".parse().unwrap()];
        let mut random = Counting(3);
        let tokens: Vec<Token> = (0..20)
            .map(|_| Token::generate(Kind::Join, PublicKey([9; 32]), &urls, &mut random))
            .collect();
        let rows: Vec<Value> = (1..)
            .zip(&tokens)
            .map(|(id, token)| json!({ "id": id, "prefix": token.id.to_hex() }))
            .collect();
        for (id, token) in (1..).zip(&tokens) {
            let (line, prefix) = (token.print(), token.id.to_hex());
            let front = front(&prefix).unwrap().to_owned();
            assert!(line.starts_with(&begins("key", &front)), "{front} in {line}");
            let shown = format!("{}…", begins("key", &front));
            for way in [front.clone(), shown, format!("warren-join-{front}"), prefix, line] {
                assert_eq!(chosen(&rows, &way), [id], "{way}");
            }
        }
        assert_eq!((plain_number("7"), plain_number("7a")), (Some(7), None));
        assert_eq!(plain_number("12345678"), None, "that may be what a token begins with");
        let long = [json!({ "id": 12_345_678, "prefix": "00" })];
        assert_eq!(chosen(&long, "12345678"), [12_345_678]);
        for nobody in ["", "…", "anna", "warren-join-", "warren-join-x"] {
            assert!(chosen(&rows, nobody).is_empty(), "{nobody}");
        }
        let twice: Vec<Value> = rows.iter().chain(&rows).cloned().collect();
        assert_eq!(chosen(&twice, &tokens[0].id.front()), [1, 1], "it is not guessed");
        let list = with_fronts("token", &json!([{ "prefix": "0001020304050607" }]));
        assert_eq!(list[0]["front"], "warren-api-00010203-…");
        let told = made("key", &json!({ "id": 4, "prefix": "0001020304050607" }));
        assert_eq!(told, "key 4, which does not end by itself\n");
    }
}
