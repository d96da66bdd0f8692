//! What happens in a world: one thing after the other, drawn from its seed.

use std::time::Duration;

use control::{Kind, Secret, SecretId, Token};
use noise::PrivateKey;
use server::service::Refused;
use server::store::{NewJoinKey, Node, Store, Stored};

use super::machine::Way;
use super::member::Member;
use super::model::Key;
use super::stage::Stage;
use super::words::{self, PORTS, Said, TAGS, USERS};

/// Join keys that are remembered.
const KEYS_MAX: usize = 24;
const NAMES: [&str; 6] = ["alpha", "beta", "robot", "robot-1", "dev", "cam-2"];
const ACTOR: &str = "world";

impl Stage {
    fn pick(&mut self, below: usize) -> usize {
        self.rng.below(below as u64) as usize
    }

    /// One step, and the time after it.
    pub(super) fn step(&mut self) {
        self.steps += 1;
        let number = self.pick(self.machines.len());
        match self.rng.below(100) {
            0..=46 => self.send_one(),
            47..=55 => self.join(number),
            56..=57 => self.leave(number),
            58..=60 => self.administer(number),
            61..=64 => self.rename_or_tag(number),
            65..=70 => self.set_policy(),
            71..=76 => self.roam(number),
            77..=80 => self.cut(number),
            81..=84 => self.heal(number),
            85..=87 => self.restart(number),
            88..=89 => self.switch(number),
            90 => self.restart_server(),
            91..=93 => self.relay(),
            94..=95 => self.rotate(number),
            96 => self.revoke(),
            _ => self.run(Duration::from_secs(5)),
        }
        let ms = match self.rng.below(10) {
            0..=5 => self.rng.below(60),
            6..=8 => self.rng.below(600),
            _ => self.rng.below(4000),
        };
        self.run(Duration::from_millis(ms));
    }

    fn send_one(&mut self) {
        let from = self.pick(self.machines.len());
        let to = self.pick(self.machines.len());
        let said = Said { v6: self.rng.chance(0.5), port: PORTS[self.pick(3)] };
        if from != to && self.machines[from].is_on {
            self.send(from, to, said);
            self.count("sent");
        }
    }

    /// A join key of some kind: the newest, an older one, or a new one.
    fn key(&mut self) -> Token {
        if !self.model.keys.is_empty() && self.rng.chance(0.3) {
            let which = self.pick(self.model.keys.len());
            return self.model.keys[which].token.clone();
        }
        let urls = [self.office.url.clone()];
        let token = Token::generate(Kind::Join, self.office.public(), &urls, &mut self.rng);
        let reusable = self.rng.chance(0.5);
        let ephemeral = self.rng.chance(0.2);
        let tags = match self.rng.below(6) {
            0 => vec![TAGS[0].to_owned()],
            1 => vec![TAGS[1].to_owned()],
            _ => Vec::new(),
        };
        let user = USERS.get(self.pick(4)).copied();
        let lifetime_s = self.rng.chance(0.2).then(|| 1 + self.rng.below(60));
        let new = NewJoinKey {
            reusable,
            ephemeral,
            lifetime_s,
            tags: tags.clone(),
            user: user.map(str::to_owned),
            ..NewJoinKey::default()
        };
        let now = self.office.now_s();
        let id = SecretId(token.id.0);
        let secret = Secret(token.secret.0);
        let made = self.office.service().store().add_join_key(&new, id, &secret, ACTOR, now);
        let made = made.map(|made| made.id);
        let id = made.unwrap_or_else(|error| self.fail(&format!("no join key: {error}")));
        let until_s = lifetime_s.map(|s| now + s);
        let is_used = false;
        let is_revoked = false;
        let token_of = token.clone();
        self.model.keys.push(Key {
            id,
            token: token_of,
            reusable,
            ephemeral,
            tags,
            user,
            until_s,
            is_used,
            is_revoked,
        });
        if self.model.keys.len() > KEYS_MAX {
            // Nobody may hold one that is forgotten.
            let held = |key: &Key| {
                let has = |token: &Token| token.id == key.token.id;
                self.machines.iter().any(|m| m.disk.token.as_ref().is_some_and(has))
            };
            if let Some(at) = self.model.keys.iter().position(|key| !held(key)) {
                self.model.keys.remove(at);
            }
        }
        token
    }

    fn join(&mut self, number: usize) {
        let machine = &self.machines[number];
        if !machine.is_on || !machine.is_ended() || !self.office.is_up() {
            return;
        }
        if self.rng.chance(0.3) && self.model.books.of(number).is_none() {
            self.machines[number].forget();
        }
        let token = self.key();
        let known = self.model.keys.iter().find(|key| key.token.id == token.id);
        let is_open = known.is_some_and(|key| !key.is_used && !key.is_revoked);
        self.tell(&format!("m{number} joins with key {:?}, fresh: {is_open}", token.id.0[0]));
        self.machines[number].disk.token = Some(token);
        self.start(number);
    }

    fn leave(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        if machine.is_ended() || !machine.is_on || machine.disk.token.is_some() {
            return;
        }
        if let Some(client) = &mut machine.client {
            client.handle_logout();
            machine.leaving = Some(self.world.now());
        }
        self.tell(&format!("m{number} logs out"));
    }

    /// A member of the books, if that machine is one.
    fn member(&self, number: usize) -> Option<Member> {
        self.model.books.of(number).filter(|_| self.office.is_up()).cloned()
    }

    fn write(&mut self, what: &str, work: impl FnOnce(&mut Store, u64) -> Stored<Node>) {
        if let Err(error) = self.office.service().write_node(work) {
            self.fail(&format!("{what}: {error}"));
        }
    }

    /// An administrator removes, approves or expires a node.
    fn administer(&mut self, number: usize) {
        // What nobody uses any more is taken away first.
        let ghost = self.model.books.members.iter().find(|m| m.machine >= self.machines.len());
        let ghost = ghost.filter(|_| self.office.is_up()).cloned();
        let is_ghost = ghost.is_some();
        let Some(member) = ghost.or_else(|| self.member(number)) else { return };
        let id = member.id;
        let number = member.machine;
        let now_s = self.office.now_s();
        if !is_ghost && !member.approved && self.rng.chance(0.7) {
            self.write("approve", |store, now| store.approve(id, ACTOR, now));
            self.model.alter(number, |member| member.approved = true);
            self.tell(&format!("m{number} is approved"));
            return self.noted();
        }
        self.expect_gone(number, member.key);
        if is_ghost || self.rng.chance(0.5) {
            self.tell(&format!("{} is removed", member.name));
            if let Err(error) = self.office.service().remove_node(id, ACTOR) {
                self.fail(&format!("remove: {error}"));
            }
            self.model.gone(id, now_s);
            self.count("removed");
        } else {
            self.tell(&format!("m{number} is expired"));
            self.write("expire", |store, now| store.expire(id, ACTOR, now));
            self.model.alter(number, |member| member.expired = true);
            self.count("expired");
        }
        self.noted();
    }

    fn rename_or_tag(&mut self, number: usize) {
        let Some(member) = self.member(number) else { return };
        let id = member.id;
        if self.rng.chance(0.5) {
            let name = NAMES[self.pick(NAMES.len())];
            let is_taken = self.model.books.members.iter().any(|m| m.name == name && m.id != id);
            let service = self.office.service();
            let renamed = service.write_node(|store, now| store.rename(id, name, ACTOR, now));
            if renamed.is_ok() == is_taken {
                self.fail(&format!("m{number} is to be {name}, taken: {is_taken}: {renamed:?}"));
            }
            if !is_taken {
                self.model.alter(number, |member| name.clone_into(&mut member.name));
                self.tell(&format!("m{number} is called {name}"));
            }
        } else {
            let tags = [&[][..], &TAGS[..1], &TAGS[1..], &TAGS[..]][self.pick(4)];
            let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
            self.write("tag", |store, now| store.tag(id, &tags, ACTOR, now));
            self.tell(&format!("m{number} has the tags {tags:?}"));
            self.model.alter(number, |member| member.tags = tags);
        }
        self.noted();
    }

    fn set_policy(&mut self) {
        if !self.office.is_up() {
            return;
        }
        if self.rng.chance(0.1) {
            let bad = self.office.service().set_policy("{\"grants\": [{\"src\": [7]}]}", ACTOR);
            match bad {
                Err(Refused::Findings(_)) => return,
                _ => self.fail("a policy with a mistake was taken"),
            }
        }
        let members = &self.model.books.members;
        let addresses: Vec<_> = members.iter().flat_map(|member| member.addresses).collect();
        let text = words::invent(&mut self.rng, &addresses);
        let printed = words::print(&text);
        match self.office.service().set_policy(&printed, ACTOR) {
            Ok(_) => {}
            Err(Refused::Findings(findings)) => {
                self.fail(&format!("a good policy is refused: {findings:?}\n{printed}"));
            }
            Err(Refused::Store(error)) => self.fail(&format!("a policy cannot be stored: {error}")),
        }
        self.tell(&format!("policy {}", printed.replace('\n', " ")));
        self.model.change(|books| books.text = text);
        self.count("policies");
        self.noted();
    }

    fn roam(&mut self, number: usize) {
        if self.machines[number].is_on {
            self.place_anywhere(number);
        }
    }

    fn cut(&mut self, number: usize) {
        let way = if self.rng.chance(0.5) { Way::Silent } else { Way::Refused };
        self.set_way(number, way);
        self.tell(&format!("m{number}'s way to the server: {way:?}"));
        self.count("cut off");
    }

    pub(super) fn heal(&mut self, number: usize) {
        if self.machines[number].way != Way::Open {
            self.set_way(number, Way::Open);
            self.tell(&format!("m{number} has its way to the server again"));
        }
    }

    fn restart(&mut self, number: usize) {
        if !self.machines[number].is_on {
            return;
        }
        let keeps = self.rng.chance(0.7);
        if !keeps {
            self.machines[number].lose_map();
        }
        self.tell(&format!("m{number} starts again, with its map: {keeps}"));
        self.office.hang_up(number);
        self.boot(number);
        self.count("restarts");
    }

    /// A machine is switched off, or on.
    fn switch(&mut self, number: usize) {
        if self.machines[number].is_on {
            self.tell(&format!("m{number} is switched off"));
            self.office.hang_up(number);
            self.machines[number].kill(&self.world);
            self.world.fault(&sim::world::Fault::Down(self.machines[number].host));
        } else {
            self.tell(&format!("m{number} is switched on"));
            self.boot(number);
        }
    }

    fn restart_server(&mut self) {
        self.tell("the server is killed");
        self.stop_server();
        let seconds = self.rng.below(4);
        self.run(Duration::from_secs(seconds));
        self.start_server();
        self.tell("the server is there again");
        self.count("server restarts");
    }

    fn relay(&mut self) {
        let relay = self.pick(2);
        let works = !self.relays[relay];
        self.set_relay(relay, works);
        self.tell(&format!("relay {relay} works: {works}"));
    }

    /// A machine wants another key.
    fn rotate(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        if machine.is_ended() || !machine.is_on || machine.map.is_none() {
            return;
        }
        let next = machine.disk.next.take();
        let next = next.unwrap_or_else(|| PrivateKey::generate(&mut machine.rng));
        if let Some(client) = &mut machine.client {
            client.handle_rotation(next.public());
        }
        machine.disk.next = Some(next);
        self.tell(&format!("m{number} wants another key"));
    }

    /// A join key is taken back.
    fn revoke(&mut self) {
        if self.model.keys.is_empty() || !self.office.is_up() {
            return;
        }
        let which = self.pick(self.model.keys.len());
        let id = self.model.keys[which].id;
        let now = self.office.now_s();
        if let Err(error) = self.office.service().store().revoke_join_key(id, ACTOR, now) {
            self.fail(&format!("revoke: {error}"));
        }
        self.model.keys[which].is_revoked = true;
    }
}
