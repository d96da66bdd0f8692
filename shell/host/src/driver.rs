//! The loop of a node: one thread, one epoll, everything to completion.

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use node::{Change, Node, Slumber, Stamps, Status};
use noise::PublicKey;
use pace::PAUSE;

use crate::KernelRandom;
use crate::driver::engine::Engine;
use crate::keyfile::KeyFile;
use crate::linux::hooks::Hooks;
use crate::linux::monitor::Monitor;
use crate::linux::signals::{Asked, Signals};
use crate::linux::sys::{self, Interest, Poll, Ready};
use crate::linux::tun::Device;
use crate::uapi::{BindError, Errno, Server, Turn};

mod configure;
mod desk;
pub mod engine;
mod keyfiles;
pub mod link_status;
pub mod mail;
mod rounds;

pub use self::desk::Desk;
use self::keyfiles::KeyFiles;
use self::mail::{Mail, Remote};

/// How often the loop looks whether the interface is up: after a move to another namespace no
/// message tells.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so many turns at most timers are looked at, whatever else there is to be read.
const UNREAD_TURNS: u32 = 8;
/// How often a loop whose sockets are full looks at what it holds back.
const BLOCKED_TURN: Duration = Duration::from_millis(2);

/// Why a node could not start or had to stop.
#[derive(Debug)]
pub enum Error {
    /// The interface could not be made.
    Device(io::Error),
    /// The control socket could not be made.
    Control(BindError),
    /// A configuration step was refused.
    Config(String),
    /// The kernel refused something that cannot be done without.
    System(&'static str, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(f, "{error}"),
            Self::Control(error) => write!(f, "{error}"),
            Self::Config(text) => write!(f, "{text}"),
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// What ended the loop, all of them in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGTERM or SIGINT.
    Signal,
    /// The interface was deleted.
    DeviceGone,
    /// The control socket's file was removed, which is how wg-quick ends a program.
    ControlGone,
    /// Another thread asked for it: [`Desk::end`].
    Asked,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "by a signal",
            Self::DeviceGone => "the interface was deleted",
            Self::ControlGone => "the control socket was removed",
            Self::Asked => "as was asked",
        })
    }
}

/// What a configuration that was read again says.
#[derive(Debug, Default)]
pub struct Reloaded {
    /// What is to change.
    pub changes: Vec<Change>,
    /// The key files that were read, by peer.
    pub key_files: Vec<(PublicKey, KeyFile)>,
}

/// Reads the configuration again after SIGHUP; `Err` is logged and nothing changes.
pub type Reload<'a> = &'a mut dyn FnMut() -> Result<Reloaded, String>;

/// A node with its interface and control socket.
#[derive(Debug)]
pub struct Driver {
    control: Option<Server>,
    rest: Rest,
}

/// All but the control socket, which is borrowed while it asks for this.
#[derive(Debug)]
struct Rest {
    engine: Engine,
    monitor: Option<Monitor>,
    signals: Signals,
    poll: Poll,
    random: KernelRandom,
    listen_port: u16,
    fwmark: u32,
    up: bool,
    /// The socket that is full, if one is: then room in it is waited for, and not the device.
    blocked: Option<RawFd>,
    /// What was logged last of an interface that is up without its sockets.
    complaint: Option<String>,
    mail: Option<Mail>,
    /// Changes are left to other threads: `wg` may look, but not touch.
    is_managed: bool,
    is_over: bool,
    hooks: Hooks,
    slumber: Slumber,
    key_files: KeyFiles,
}

impl Driver {
    /// Makes the interface `name` and its control socket; both are there when this returns.
    ///
    /// # Errors
    /// What is missing or taken, and how to mend it.
    pub fn new(name: &str) -> Result<Self, Error> {
        let mut driver = Self::without_control(name)?;
        let control = Server::bind(name).map_err(Error::Control)?;
        driver.serve(control)?;
        Ok(driver)
    }

    /// As [`Driver::new`] for a node whose configuration is not `wg`'s: `wg` may look at it, unless
    /// an interface of that name, in another namespace, has the socket already.
    ///
    /// # Errors
    /// The interface is taken or cannot be made.
    pub fn managed(name: &str) -> Result<Self, Error> {
        let mut driver = Self::without_control(name)?;
        match Server::bind(name) {
            Ok(control) => driver.serve(control)?,
            Err(error) => tracing::debug!(%error, "`wg` cannot look at this interface"),
        }
        Ok(driver)
    }

    fn serve(&mut self, control: Server) -> Result<(), Error> {
        let watched = self.rest.poll.watch(control.fd(), Interest::READ);
        watched.map_err(|error| Error::System("epoll", error))?;
        self.control = Some(control);
        Ok(())
    }

    fn without_control(name: &str) -> Result<Self, Error> {
        let signals = Signals::block().map_err(|error| Error::System("signals", error))?;
        let poll = Poll::new().map_err(|error| Error::System("epoll", error))?;
        // The device first: who has it owns the name, and a socket of that name is stale.
        let device = Device::create(name).map_err(Error::Device)?;
        let monitor = Monitor::new()
            .inspect_err(|error| tracing::warn!(%error, "changes of routes will not be noticed"))
            .ok();
        let watched = [Some(signals.fd()), Some(device.fd())];
        let monitored = monitor.as_ref().map(Monitor::fd);
        for fd in watched.into_iter().chain([monitored]).flatten() {
            poll.watch(fd, Interest::READ).map_err(|error| Error::System("epoll", error))?;
        }
        poll.watch(device.up_fd(), Interest::NEWLY_WRITABLE)
            .map_err(|error| Error::System("epoll", error))?;
        tracing::info!(name, "interface created, with {}", device.offloads());
        let mut engine = Engine::new(device);
        let aes = crate::linux::processor::has_aes();
        tracing::debug!(aes, "the processor's instructions for AES-256-GCM");
        engine.node.set_aes(aes);
        engine.node.set_mtu(engine.device.mtu().unwrap_or(0));
        let rest = Rest {
            engine,
            monitor,
            signals,
            poll,
            random: KernelRandom,
            listen_port: 0,
            fwmark: 0,
            up: false,
            blocked: None,
            complaint: None,
            mail: None,
            is_managed: false,
            is_over: false,
            hooks: Hooks::default(),
            slumber: Slumber::default(),
            key_files: KeyFiles::default(),
        };
        Ok(Self { control: None, rest })
    }

    /// The node, to be told what holds for all its links.
    pub fn node(&mut self) -> &mut Node {
        &mut self.rest.engine.node
    }

    /// A way for other threads to have something done by the loop. From now on they alone change
    /// the configuration; `wg` may look.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn remote(&mut self) -> Result<Remote, Error> {
        let remote = self.mailbox()?;
        self.rest.is_managed = true;
        Ok(remote)
    }

    /// The same beside whoever changes the configuration.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn mailbox(&mut self) -> Result<Remote, Error> {
        let failed = |error| Error::System("mailbox", error);
        let (mail, remote) = mail::mailbox().map_err(failed)?;
        self.rest.poll.watch(mail.fd(), Interest::READ).map_err(failed)?;
        self.rest.mail = Some(mail);
        Ok(remote)
    }

    /// Says which key files peers' keys came from, to tell when one changes.
    pub fn watch_key_files(&mut self, files: Vec<(PublicKey, KeyFile)>) {
        self.rest.key_files = KeyFiles::new(files);
    }

    /// Has `on_change` called when links, addresses or routes of the machine change.
    pub fn watch_network(&mut self, on_change: Box<dyn FnMut() + Send>) {
        self.rest.hooks.on_change = Some(on_change);
    }

    /// Stamps handshakes by a clock that begins at `promised_unix_s`; `on_wish` is called with each
    /// promise to be kept, and then [`Desk::promise`] (see [`Stamps`]).
    pub fn keep_stamps(&mut self, promised_unix_s: u64, on_wish: Box<dyn FnMut(u64) + Send>) {
        let engine = &mut self.rest.engine;
        engine.stamps = Some(Stamps::new(promised_unix_s, engine.clock.now));
        self.rest.hooks.on_wish = Some(on_wish);
    }

    /// Applies configuration steps in order.
    ///
    /// # Errors
    /// The first step that failed; those before it stay done.
    pub fn configure(&mut self, changes: &[Change]) -> Result<(), Error> {
        self.rest.configure(changes).map_err(|(text, _)| Error::Config(text))
    }

    /// What the node says of itself.
    #[must_use]
    pub fn status(&self) -> Status {
        self.rest.status()
    }

    /// Brings sockets and sessions in line with the interface, which the caller has just brought
    /// up or down.
    ///
    /// # Errors
    /// The port is taken.
    pub fn look(&mut self) -> Result<(), Error> {
        self.rest.look().map(drop).map_err(|(text, _)| Error::Config(text))
    }

    /// Runs until something ends it. `reload` is called after SIGHUP.
    ///
    /// # Errors
    /// The kernel refused something that cannot be done without.
    pub fn run(&mut self, reload: Reload<'_>) -> Result<End, Error> {
        let end = self.turns(reload);
        self.rest.engine.release();
        end
    }

    fn turns(&mut self, reload: Reload<'_>) -> Result<End, Error> {
        let mut ready: Vec<Ready> = Vec::with_capacity(Poll::READY_MAX);
        let mut more_out = false;
        let mut more_in = Vec::new();
        let mut unread_turns = 0;
        sys::sleep_exactly();
        let mut next_look = self.rest.engine.clock.now;
        loop {
            let now = self.rest.engine.clock.now;
            let is_early = self.rest.engine.early().is_some();
            let timeout =
                if (more_out && self.rest.blocked.is_none()) || !more_in.is_empty() || is_early {
                    Duration::ZERO
                } else {
                    let look = next_look.since(now);
                    let look = self.rest.blocked.map_or(look, |_| look.min(BLOCKED_TURN));
                    self.rest.engine.sleep().map_or(look, |sleep| sleep.min(look))
                };
            self.rest
                .poll
                .wait(Some(timeout), &mut ready)
                .map_err(|error| Error::System("epoll", error))?;
            self.rest.engine.tick();
            for event in &ready {
                match self.sort(*event, reload)? {
                    Sorted::Device => more_out = true,
                    Sorted::Socket if !more_in.contains(&event.fd) => more_in.push(event.fd),
                    Sorted::End(end) => return Ok(end),
                    Sorted::Done | Sorted::Socket => {}
                }
            }
            let rest = &mut self.rest;
            let now = rest.engine.clock.now;
            // Data tells that the interface is up; but a port that is taken is not tried a packet.
            let is_news = more_out && !rest.up && rest.complaint.is_none();
            if is_news || now >= next_look {
                next_look = now.after(LOOK_EVERY);
                rest.look_around();
                if let Sorted::End(end) = rest.look_or_end() {
                    return Ok(end);
                }
            }
            let busy = more_out || !more_in.is_empty();
            if more_out || rest.blocked.is_some() {
                match rest.engine.pump_out() {
                    Ok(more) => more_out = more,
                    Err(_) => return Ok(End::DeviceGone),
                }
            }
            // What was told of a socket that is replaced meanwhile is not true of its number.
            let engine = &mut rest.engine;
            more_in.retain(|&fd| engine.has_socket(fd) && engine.pump_in(fd).unwrap_or(false));
            unread_turns = if more_in.is_empty() { 0 } else { unread_turns + 1 };
            rest.engine.settle(busy, unread_turns % UNREAD_TURNS > 0);
            rest.heed_streams()?;
            rest.heed_blocked()?;
            if more_in.is_empty() {
                rest.pause(more_out);
            }
        }
    }

    /// Deals with a descriptor that is ready, unless it is of the data path.
    fn sort(&mut self, event: Ready, reload: Reload<'_>) -> Result<Sorted, Error> {
        let rest = &mut self.rest;
        if event.fd == rest.engine.device.fd() {
            return Ok(if event.failed && rest.engine.device.is_up().is_none() {
                Sorted::End(End::DeviceGone)
            } else {
                Sorted::Device
            });
        }
        if event.fd == rest.engine.device.up_fd() {
            return Ok(rest.look_or_end());
        }
        if let Some(control) = self.control.as_mut().filter(|control| control.fd() == event.fd) {
            let turn = control
                .handle_ready(&mut |request| rest.answer(request, &mut *reload))
                .map_err(|error| Error::System("control socket", error))?;
            return Ok(match turn {
                Turn::Serving => Sorted::Done,
                Turn::SocketGone if rest.is_managed => {
                    self.control = None;
                    Sorted::Done
                }
                Turn::SocketGone => Sorted::End(End::ControlGone),
            });
        }
        if event.fd == rest.signals.fd() {
            while let Some(asked) = rest.signals.poll_signal() {
                match asked {
                    Asked::End => return Ok(Sorted::End(End::Signal)),
                    Asked::Reload => drop(rest.reload(reload)),
                }
            }
            return Ok(Sorted::Done);
        }
        if rest.mail.as_ref().is_some_and(|mail| mail.fd() == event.fd) {
            return Ok(rest.read_mail());
        }
        if let Some(monitor) = rest.monitor.as_ref().filter(|monitor| monitor.fd() == event.fd) {
            let changed = monitor.drain();
            rest.note_change(changed.routes);
            if changed.links {
                if let Some(mtu) = rest.engine.device.mtu() {
                    rest.engine.node.set_mtu(mtu);
                }
                return Ok(rest.look_or_end());
            }
            return Ok(Sorted::Done);
        }
        Ok(Sorted::Socket)
    }
}

/// What a ready descriptor means for the turn.
enum Sorted {
    Device,
    Socket,
    Done,
    End(End),
}

/// A refusal: for people, and for the control protocol.
type Refused = (String, Errno);

impl Rest {
    /// Does what other threads ask for.
    fn read_mail(&mut self) -> Sorted {
        let Some(mut mail) = self.mail.take() else { return Sorted::Done };
        mail.silence();
        while !self.is_over
            && let Some(order) = mail.poll_order()
        {
            order(&mut Desk::of(self));
            self.engine.settle(true, false);
        }
        self.mail = Some(mail);
        if self.is_over { Sorted::End(End::Asked) } else { Sorted::Done }
    }

    /// Watches streams that are new, and waits for room in those that are full.
    fn heed_streams(&mut self) -> Result<(), Error> {
        while let Some((fd, is_full)) = self.engine.streams.poll_interest() {
            let interest = if is_full { Interest::BOTH } else { Interest::READ };
            self.poll.watch(fd, interest).map_err(|error| Error::System("epoll", error))?;
        }
        Ok(())
    }

    /// While a socket is full, waits for that one instead of for the device. The other one has
    /// room all the time, and would never let the loop sleep.
    fn heed_blocked(&mut self) -> Result<(), Error> {
        let blocked = self.engine.blocked_fd();
        if blocked == self.blocked {
            return Ok(());
        }
        self.blocked = blocked;
        let device = if blocked.is_some() { Interest::NOTHING } else { Interest::READ };
        let of = |fd| if Some(fd) == blocked { Interest::BOTH } else { Interest::READ };
        let fds = self.engine.fds().map(|fd| (fd, of(fd)));
        for (fd, interest) in fds.chain([(self.engine.device.fd(), device)]) {
            self.poll.watch(fd, interest).map_err(|error| Error::System("epoll", error))?;
        }
        Ok(())
    }

    /// Sleeps where there is nothing to do: until a paced datagram may leave or something comes, or
    /// while what comes may gather.
    fn pause(&mut self, more_out: bool) {
        match self.engine.early() {
            Some(_) => {
                self.engine.tick();
                self.engine.early().into_iter().for_each(|early| self.poll.doze(early));
            }
            None if !more_out && self.engine.may_pause() => std::thread::sleep(PAUSE),
            None => {}
        }
    }

    /// Notices that the interface went up or down. `false` once it is gone.
    fn look(&mut self) -> Result<bool, Refused> {
        let Some(up) = self.engine.device.is_up() else { return Ok(false) };
        if up == self.up {
            return Ok(true);
        }
        if up {
            self.open(self.listen_port)?;
        } else {
            self.engine.set_sockets(None);
        }
        self.up = up;
        tracing::info!("interface {}", if up { "up" } else { "down" });
        self.engine.tick();
        self.engine.node.set_up(up, &mut self.random);
        self.engine.settle(true, false);
        Ok(true)
    }

    /// As [`Self::look`], for the loop: a port that is taken is logged once, and tried again.
    fn look_or_end(&mut self) -> Sorted {
        match self.look() {
            Ok(true) => {
                self.complaint = None;
                Sorted::Done
            }
            Ok(false) => Sorted::End(End::DeviceGone),
            Err((text, _)) => {
                if self.complaint.as_ref() != Some(&text) {
                    tracing::error!("{text}; trying again every {} s", LOOK_EVERY.as_secs());
                    self.complaint = Some(text);
                }
                Sorted::Done
            }
        }
    }
}
