//! One test's world, and what is printed of it when the test fails.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Context as _, Result};
use lab::netns::{Host, Net};
use lab::wire::{Config, Wire};

use super::{Daemon, Sut, turn};

/// Hosts and daemons of one test. Everything is removed on drop, whatever happened.
pub struct Scene {
    // Dropped in this order: programs before the hosts they run in.
    daemons: RefCell<Vec<Rc<Daemon>>>,
    wires: RefCell<Vec<Wire>>,
    hosts: RefCell<Vec<Host>>,
    pub net: RefCell<Net>,
    id: String,
    passed: Cell<bool>,
}

/// Runs a test in a world of its own and returns what it found; `id` names its hosts and
/// interfaces, at most 8 letters.
pub fn scene<T>(id: &str, body: impl FnOnce(&Scene) -> Result<T>) -> Result<T> {
    let _turn = turn::shared();
    in_turn(id, body)
}

/// As [`scene`], with nothing else running.
pub fn scene_alone<T>(id: &str, body: impl FnOnce(&Scene) -> Result<T>) -> Result<T> {
    let _turn = turn::alone();
    in_turn(id, body)
}

fn in_turn<T>(id: &str, body: impl FnOnce(&Scene) -> Result<T>) -> Result<T> {
    let net = Net::new(&format!("wt-acc-{id}"))?;
    let scene = Scene {
        daemons: RefCell::default(),
        wires: RefCell::default(),
        hosts: RefCell::default(),
        net: RefCell::new(net),
        id: id.to_owned(),
        passed: Cell::new(false),
    };
    let outcome = body(&scene);
    scene.passed.set(outcome.is_ok());
    if let Err(error) = &outcome {
        eprintln!("\n{id} failed: {error:#}");
    }
    outcome
}

impl Scene {
    /// A new host.
    pub fn host(&self, name: &str) -> Result<Host> {
        let host = self.net.borrow_mut().host(name)?;
        self.hosts.borrow_mut().push(host.clone());
        Ok(host)
    }

    /// Joins two hosts by an impaired wire, with the same weather each way: words as the lab's
    /// files have them.
    pub fn wire(&self, ends: [(&Host, &str, &[&str]); 2], words: &str) -> Result<()> {
        let mut impairment = sim::impair::Impairment::LINE;
        for word in words.split(' ') {
            sim::profile::apply(&mut impairment, word)?;
        }
        self.impaired(ends, impairment)
    }

    /// The same with any weather.
    pub fn impaired(
        &self,
        ends: [(&Host, &str, &[&str]); 2],
        impairment: sim::impair::Impairment,
    ) -> Result<()> {
        let [a, b] = ends.map(|(host, ifname, _)| (host, ifname));
        self.wires.borrow_mut().push(Wire::start(Config::between(a, b, impairment))?);
        for (host, ifname, addresses) in ends {
            host.bring_up(ifname, addresses)?;
            host.wait_until_ready(ifname)?;
        }
        Ok(())
    }

    /// Joins two hosts by a veth pair.
    pub fn veth(&self, a: (&Host, &str, &[&str]), b: (&Host, &str, &[&str])) -> Result<()> {
        self.net.borrow().veth(a, b)
    }

    /// A name for an interface that no other test uses: control sockets know no namespaces.
    pub fn ifname(&self, suffix: &str) -> String {
        format!("wt{}{suffix}", self.id)
    }

    /// Starts a program with the interface `ifname` in `home`.
    pub fn daemon(&self, sut: &Sut, home: &Host, ifname: &str) -> Result<Rc<Daemon>> {
        let daemon = Daemon::start(sut, home, ifname)?;
        self.watch(&daemon);
        Ok(daemon)
    }

    /// Has this program's log printed when the test fails.
    pub fn watch(&self, daemon: &Rc<Daemon>) {
        self.daemons.borrow_mut().push(daemon.clone());
    }

    /// Lets go of a program, which ends it if the test holds it no longer either.
    pub fn forget(&self, daemon: &Rc<Daemon>) {
        self.daemons.borrow_mut().retain(|other| !Rc::ptr_eq(other, daemon));
    }

    fn print_all(&self) {
        eprintln!("---- what was there when {} failed", self.id);
        for daemon in self.daemons.borrow().iter() {
            let running = if daemon.process.is_running() { "running" } else { "ENDED" };
            eprintln!("-- {} in {}, {running}, log:", daemon.ifname, daemon.home.name());
            let log = daemon.process.log();
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(60)..] {
                eprintln!("   {line}");
            }
            let shown = daemon.wg_with(&["show", &daemon.ifname], "");
            eprintln!("-- wg show {}:\n{}", daemon.ifname, shown.unwrap_or_else(|e| e.to_string()));
        }
        for host in self.hosts.borrow().iter() {
            let script = "ip -br addr; ip route; ip -6 route | grep -v ^fe80; ip rule; ss -uanp";
            let shown = host.sh(script).unwrap_or_else(|error| error.to_string());
            eprintln!("-- host {}:\n{shown}", host.name());
        }
        eprintln!("---- look at: the daemon's log first, then endpoints and handshakes above");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !self.passed.get() {
            self.print_all();
        }
    }
}
