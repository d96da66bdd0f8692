//! Problems with a call, as RFC 9457 has it (`application/problem+json`).

use std::fmt::Display;

use crate::store::StoreError;

/// Bytes of an explanation.
const DETAIL_BYTES_MAX: usize = 2000;

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    title: &'static str,
    detail: String,
    /// A member of its own, for programs (RFC 9457, section 3.2).
    more: Option<(&'static str, serde_json::Value)>,
}

impl Problem {
    pub(crate) fn new(status: u16, title: &'static str, detail: impl Display) -> Self {
        let mut detail = detail.to_string();
        let end = (0..=DETAIL_BYTES_MAX.min(detail.len()))
            .rev()
            .find(|end| detail.is_char_boundary(*end));
        detail.truncate(end.unwrap_or(0));
        Self { status, title, detail, more: None }
    }

    /// With something for programs.
    pub(crate) fn with(mut self, name: &'static str, value: serde_json::Value) -> Self {
        self.more = Some((name, value));
        self
    }

    pub(crate) const fn title(&self) -> &'static str {
        self.title
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn busy() -> Self {
        Self::new(503, "the server cannot do it now", "try again later")
    }

    pub(crate) fn too_often() -> Self {
        Self::new(429, "too much was asked for", "ask less often, and again in a while")
    }

    pub(crate) fn print(&self) -> String {
        let Self { status, title, detail, more } = self;
        let mut value = serde_json::json!({
            "type": "about:blank", "title": title, "status": status, "detail": detail
        });
        if let Some((name, more)) = more {
            value[*name] = more.clone();
        }
        value.to_string()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (status, title) = match &error {
            StoreError::Missing(_) => (404, "there is no such thing"),
            StoreError::Conflict(_) | StoreError::WrongKey | StoreError::Full => {
                (409, "it does not fit what is there")
            }
            StoreError::Denied(_) => (403, "this token may not do that"),
            StoreError::Invalid(_) => (400, "what was asked for is impossible"),
            StoreError::Key(_) | StoreError::Expired => (409, "the key lets nobody in"),
            StoreError::Unavailable(_) => (503, "the server cannot do it now"),
            StoreError::Damaged(_) => (500, "the database is damaged"),
        };
        if status >= 500 {
            tracing::error!(%error, "the store refused a call");
        }
        Self::new(status, title, error)
    }
}
