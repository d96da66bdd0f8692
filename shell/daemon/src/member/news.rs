//! What the server says, as far as it changes what this node does.

use super::*;

impl Daemon {
    /// Maps that came one after the other are applied once: the last one is what holds. A hub of a
    /// hundred gateways hears of the next while it applies one.
    pub(super) fn take_news(&mut self) -> Result<(), Fault> {
        let mut is_new = false;
        while let Some(news) = self.membership.as_ref().and_then(|m| m.wait(Duration::ZERO)) {
            let changes = matches!(news.event, Event::Changed(_));
            if !changes && std::mem::take(&mut is_new) {
                self.apply_map()?;
            }
            is_new |= changes;
            self.take(news)?;
        }
        if is_new { self.apply_map() } else { Ok(()) }
    }

    fn apply_map(&mut self) -> Result<(), Fault> {
        self.learn_urls();
        self.tell_reach(false)?;
        self.tell_policy()?;
        self.apply()
    }

    fn take(&mut self, news: News) -> Result<(), Fault> {
        if let Some((verifying, statements)) = news.store {
            self.unsaved = Some(statements);
            self.note_member(|member| member.verifying = Some(verifying));
        }
        match news.event {
            Event::Opened { now_unix_s } => self.seen.handle_heard(now_unix_s),
            Event::InTouch => (self.is_in_touch, self.trouble) = (true, None),
            Event::Enrolled(enrolled) => {
                tracing::info!(name = enrolled.name, "a member of the network");
                self.link = None;
                self.note_member(|member| {
                    member.token = None;
                    member.signs_in = false;
                });
            }
            Event::SignIn(link) => self.link = Some(link),
            Event::Changed(_) => self.map = news.map,
            Event::Rotated(key) => self.take_rotation(&key)?,
            Event::Trouble(trouble) => {
                let text = told(&trouble);
                if self.trouble.as_ref() != Some(&text) {
                    tracing::warn!("{text}; trying again");
                }
                self.is_in_touch = false;
                self.trouble = Some(text);
            }
            Event::Ended(refusal) => self.take_end(refusal)?,
            Event::LoggedOut => self.left(true)?,
            // Who says it is about to end, and listens for itself.
            Event::Stopped { .. } => {}
        }
        Ok(())
    }

    /// The server wants nothing more of us. Nobody is a peer of who is no member.
    fn take_end(&mut self, refusal: Refusal) -> Result<(), Fault> {
        if self.renew_what_is_over(&refusal) {
            return Ok(());
        }
        tracing::error!("the server refuses: {}", refusal.detail);
        self.is_in_touch = false;
        self.link = None;
        if matches!(refusal.code, Code::NotEnrolled | Code::Expired) {
            self.map = None;
            self.unsaved = Some(Vec::new());
            self.relays = None;
            self.put(Plan::default())?;
            self.apply_gate();
            self.tell_served()?;
        }
        // A join key that is not good was never more than a try.
        if self.map.is_none() {
            self.note_member(|member| member.token = None);
        }
        self.refusal = Some(refusal);
        if let Some((_, answer)) = self.leaving.take() {
            // Who is no member has left.
            self.leaving = Some((Instant::now(), answer));
            self.left(true)?;
        }
        Ok(())
    }

    /// Where the server says that it is now is where it is sought first after the next start.
    fn learn_urls(&mut self) {
        let told = self.map.as_ref().map(|map| map.urls.clone()).unwrap_or_default();
        self.note_member(|member| member.learn(&told));
    }
}
