//! What whoever starts the daemon says of its node: a token, for a machine that is in no network
//! yet, and settings, which are so from then on. Both come from a file such as
//! `/etc/default/warren`, so that an installation needs no command after it.

use crate::Changes;
use crate::member::Daemon;

/// Said at the start.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// A join token, or `file:PATH` of one; a member has no use for it.
    pub join: Option<String>,
    /// What is set.
    pub changes: Changes,
}

impl Daemon {
    /// Takes it down. What cannot be used is a complaint, and no end: commands can still mend it.
    pub(crate) fn take_words(&mut self, begin: Begin) {
        let Begin { join, changes } = begin;
        if let Err(why) = self.note_words(join, &changes) {
            self.complain(&why);
        }
    }

    fn note_words(&mut self, join: Option<String>, changes: &Changes) -> Result<(), String> {
        changes.check()?;
        let settings = self.state.kept.settings.with(changes);
        let is_new = join.is_some() && self.state.kept.member.is_none();
        if settings == self.state.kept.settings && !is_new {
            return Ok(());
        }
        self.state.kept.settings = settings;
        if let Some(text) = join.filter(|_| is_new) {
            let member = self.member_after(Some(read(text)?))?;
            let kept = &mut self.state.kept;
            kept.member = member;
            kept.wanted = true;
        }
        self.state.save().map_err(|error| error.to_string())
    }
}

fn read(text: String) -> Result<String, String> {
    let Some(path) = text.strip_prefix("file:") else { return Ok(text) };
    let read = std::fs::read_to_string(path).map_err(|why| {
        format!(
            "cannot read the join token in {path}: {why}; put it there and restart, or `warren up`"
        )
    })?;
    Ok(read.trim().to_owned())
}
