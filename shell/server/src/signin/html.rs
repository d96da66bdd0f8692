//! The pages as text. Everything that is put into one goes through [`escaped`].

use crate::percent::percent;

/// How they look: light and dark, and on a phone.
pub(super) const STYLE: &str = include_str!("style.css");

/// What all pages have.
pub(super) struct Page<'a> {
    /// The name of the server.
    pub(super) network: &'a str,
    /// Who is signed in.
    pub(super) name: Option<&'a str>,
    /// Where the form goes on to.
    pub(super) back: &'a str,
    /// What was wrong with what was sent.
    pub(super) why: Option<&'a str>,
    /// Names of providers, and where a sign-in by each begins.
    pub(super) providers: Vec<(String, String)>,
}

/// What is known of a machine that waits.
pub(super) struct Facts<'a> {
    pub(super) hostname: &'a str,
    pub(super) os: &'a str,
    pub(super) program: &'a str,
    /// The beginning of its key.
    pub(super) key: &'a str,
    pub(super) source: &'a str,
    /// Minutes that the link is good.
    pub(super) minutes: u64,
}

/// Text as text, wherever it stands (threat WB-02).
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            // What turns the direction of text around shows another name than there is.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                safe.push('\u{fffd}');
            }
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

impl Page<'_> {
    fn whole(&self, title: &str, body: &str) -> String {
        let title = escaped(title);
        let network = escaped(self.network);
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title} · Warren</title><link rel=\"stylesheet\" href=\"/sign-in.css\"></head>\
             <body><main><p class=\"where\">{network}</p><h1>{title}</h1>{body}</main></body>\
             </html>\n"
        )
    }

    /// One statement.
    pub(super) fn said(&self, title: &str, text: &str) -> String {
        self.whole(title, &format!("<p>{}</p>", escaped(text)))
    }

    /// The form of a sign-in.
    pub(super) fn sign_in(&self) -> String {
        self.whole("Sign in", &self.form())
    }

    fn form(&self) -> String {
        let back = escaped(self.back);
        let why = self.why.map_or_else(String::new, |why| {
            format!("<p class=\"why\" role=\"alert\">{}</p>", escaped(why))
        });
        let mut text = format!(
            "{why}<form method=\"post\" action=\"/sign-in\">\
             <input type=\"hidden\" name=\"return\" value=\"{back}\">\
             <label for=\"user\">Name</label>\
             <input id=\"user\" name=\"user\" autocomplete=\"username\" autocapitalize=\"none\" \
             required autofocus>\
             <label for=\"password\">Password</label>\
             <input id=\"password\" name=\"password\" type=\"password\" \
             autocomplete=\"current-password\" required>\
             <button>Sign in</button></form>"
        );
        for (name, url) in &self.providers {
            let url = format!("{url}?return={}", percent(self.back, b"-_./"));
            text += &format!(
                "<p class=\"or\"><a class=\"button\" href=\"{}\">Sign in with {}</a></p>",
                escaped(&url),
                escaped(name)
            );
        }
        text
    }

    /// The page of a link: which machine, and what somebody may do about it.
    pub(super) fn link(&self, facts: &Facts<'_>, csrf: Option<&str>) -> String {
        let row = |name: &str, value: &str| {
            let value = if value.is_empty() { "not said" } else { value };
            format!("<dt>{name}</dt><dd>{}</dd>", escaped(value))
        };
        let mut text = "<p>This machine asks to join:</p><dl>".to_owned();
        text += &row("Name", facts.hostname);
        text += &row("System", facts.os);
        text += &row("Program", facts.program);
        text += &format!("<dt>Key</dt><dd><code>{}</code>…</dd>", escaped(facts.key));
        text += &row("Asks from", facts.source);
        text += &format!(
            "</dl><p class=\"note\">Go on only if you ran <code>warren up</code> on it \
            yourself, and it shows the same key. The link is good for {} more min.</p>",
            facts.minutes
        );
        match (self.name, csrf) {
            (Some(name), Some(csrf)) => {
                text += &format!(
                    "<p>You are signed in as <b>{}</b>.</p>\
                     <form method=\"post\" action=\"{}\">\
                     <input type=\"hidden\" name=\"csrf\" value=\"{}\">\
                     <button name=\"answer\" value=\"yes\">Let it in as mine</button>\
                     <button name=\"answer\" value=\"no\" class=\"no\">Refuse it</button></form>",
                    escaped(name),
                    escaped(self.back),
                    escaped(csrf)
                );
            }
            _ => text += &self.form(),
        }
        self.whole("Let a machine in", &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wb_02_what_others_wrote_is_text_wherever_it_stands() {
        let evil = "\"><script>alert(1)</script>&'\u{202e}\u{1b}[2J";
        let page = Page {
            network: evil,
            name: Some(evil),
            back: evil,
            why: Some(evil),
            providers: vec![(evil.to_owned(), evil.to_owned())],
        };
        let facts =
            Facts { hostname: evil, os: evil, program: evil, key: evil, source: evil, minutes: 9 };
        let pages = [
            page.sign_in(),
            page.link(&facts, Some(evil)),
            page.link(&facts, None),
            page.said(evil, evil),
        ];
        for text in pages {
            for bad in ["<script", "\">&lt;x", "\u{202e}", "\u{1b}", "&'"] {
                assert!(!text.contains(bad), "{bad}: {text}");
            }
            assert!(text.contains("&lt;script&gt;"), "{text}");
        }
    }
}
