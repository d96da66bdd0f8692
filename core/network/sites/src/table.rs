//! TOML tables read key by key, so that every mistake is told and not the first one only.

use core::ops::Range;
use std::collections::BTreeSet;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistake::{MISTAKES_MAX, Mistake};

/// Mistakes as they are found, with their places in the text.
pub(crate) struct Mistakes<'t> {
    text: &'t str,
    found: Vec<Mistake>,
}

impl<'t> Mistakes<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, found: Vec::new() }
    }

    /// Notes one.
    pub(crate) fn add(&mut self, span: Range<usize>, what: impl Into<String>) {
        if self.found.len() >= MISTAKES_MAX {
            return;
        }
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.found.push(Mistake { line, column, what: what.into() });
    }

    /// All of them, in the order of the text.
    pub(crate) fn told(mut self) -> Vec<Mistake> {
        self.found.sort_by_key(|mistake| (mistake.line, mistake.column));
        self.found
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

/// A value with its place.
pub(crate) type Placed<'t> = (&'t DeValue<'t>, Range<usize>);

/// One table, whose keys are taken one after the other; what is left is a mistake.
pub(crate) struct Keys<'t> {
    table: &'t DeTable<'t>,
    taken: BTreeSet<&'static str>,
    /// What the table is, for people.
    what: &'static str,
    pub(crate) span: Range<usize>,
}

impl<'t> Keys<'t> {
    pub(crate) fn new(table: &'t DeTable<'t>, span: Range<usize>, what: &'static str) -> Self {
        Self { table, taken: BTreeSet::new(), what, span }
    }

    /// The value of a key, if it is there.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Placed<'t>> {
        self.taken.insert(key);
        self.table.get(key).map(|value: &Spanned<_>| (value.get_ref(), value.span()))
    }

    /// A text.
    pub(crate) fn text(
        &mut self,
        key: &'static str,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<(&'t str, Range<usize>)> {
        let (value, span) = self.take(key)?;
        let text = value.as_str();
        if text.is_none() {
            let is = value.type_str();
            mistakes.add(span.clone(), format!("{key} is a text in quotes, not {is}"));
        }
        text.map(|text| (text, span))
    }

    /// A text that must be there.
    pub(crate) fn required(
        &mut self,
        key: &'static str,
        example: &str,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<(&'t str, Range<usize>)> {
        if !self.table.contains_key(key) {
            self.taken.insert(key);
            let what = self.what;
            let start = self.span.start;
            mistakes.add(start..start, format!("{what} has no {key}; write {key} = {example}"));
            return None;
        }
        self.text(key, mistakes)
    }

    /// A whole number within bounds.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        bounds: core::ops::RangeInclusive<u32>,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<(u32, Range<usize>)> {
        let (value, span) = self.take(key)?;
        let read = value
            .as_integer()
            .and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok())
            .filter(|number| bounds.contains(number));
        if read.is_none() {
            let told = format!("{key} is a number from {} to {}", bounds.start(), bounds.end());
            mistakes.add(span.clone(), told);
        }
        read.map(|number| (number, span))
    }

    /// Yes or no.
    pub(crate) fn truth(&mut self, key: &'static str, mistakes: &mut Mistakes<'_>) -> Option<bool> {
        let (value, span) = self.take(key)?;
        let truth = value.as_bool();
        if truth.is_none() {
            mistakes.add(span, format!("{key} is true or false"));
        }
        truth
    }

    /// A list of texts, each with its place; at most `len_max`.
    pub(crate) fn texts(
        &mut self,
        key: &'static str,
        len_max: usize,
        mistakes: &mut Mistakes<'_>,
    ) -> Vec<(&'t str, Range<usize>)> {
        let Some((value, span)) = self.take(key) else { return Vec::new() };
        let Some(list) = value.as_array() else {
            mistakes.add(span, format!("{key} is a list of texts, as in [\"…\"]"));
            return Vec::new();
        };
        if list.len() > len_max {
            mistakes.add(span, format!("{key} has {} items, more than {len_max}", list.len()));
            return Vec::new();
        }
        let mut texts = Vec::new();
        for item in list.iter() {
            match item.get_ref().as_str() {
                Some(text) => texts.push((text, item.span())),
                None => mistakes.add(item.span(), format!("an item of {key} is a text in quotes")),
            }
        }
        texts
    }

    /// Tells of every key that nobody took.
    pub(crate) fn finish(self, mistakes: &mut Mistakes<'_>) {
        for key in self.table.keys().filter(|key| !self.taken.contains(key.get_ref().as_ref())) {
            let known: Vec<&str> = self.taken.iter().copied().collect();
            let name: String = key.get_ref().chars().take(40).collect();
            let what = self.what;
            let list = known.join(", ");
            mistakes.add(key.span(), format!("{what} has no key {name:?}; its keys are {list}"));
        }
    }
}
