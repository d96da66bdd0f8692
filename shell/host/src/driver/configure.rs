//! Requests to a node from outside: by `wg`, by the configuration, at SIGHUP.

use std::io;

use node::{Change, Status};
use noise::Identity;

use super::{KeyFiles, Refused, Reload, Reloaded, Rest};
use crate::driver::engine::Engine;
use crate::driver::link_status;
use crate::linux::sys::Interest;
use crate::sockets::udp::Sockets;
use crate::uapi::{Errno, Reply, Request};

impl Rest {
    pub(super) fn answer(&mut self, request: Request, reload: Reload<'_>) -> Reply {
        match request {
            Request::Get => Reply::Status(self.status()),
            Request::Weather => {
                let mut told = link_status::links(&self.engine, &self.status());
                self.key_files.add(&mut told);
                Reply::Weather(told.to_string())
            }
            Request::Reload if self.is_managed => Reply::Refused(Errno(-libc::EPERM)),
            Request::Reload => Reply::Reloaded(self.reload(reload)),
            Request::Set(_) if self.is_managed => Reply::Refused(Errno(-libc::EPERM)),
            Request::Set(changes) => match self.configure(&changes) {
                Ok(()) => Reply::Done,
                Err((text, errno)) => {
                    tracing::error!("configuration refused: {text}");
                    Reply::Refused(errno)
                }
            },
        }
    }

    pub(super) fn status(&self) -> Status {
        let node = &self.engine.node;
        let port = self.engine.sockets.as_ref().map_or(self.listen_port, Sockets::port);
        Status {
            private_key: node.identity().map(|identity| identity.private().clone()),
            listen_port: port,
            fwmark: self.fwmark,
            peers: node.peers(self.engine.clock.now, Engine::wall()),
        }
    }

    pub(super) fn configure(&mut self, changes: &[Change]) -> Result<(), Refused> {
        for change in changes {
            let applied = self.engine.carriers.apply(change);
            applied.map_err(|text| (text, Errno(-libc::EPERM)))?;
            let node = &mut self.engine.node;
            match change {
                Change::PrivateKey(key) => {
                    let identity = key.clone().map(Identity::new);
                    node.set_identity(identity, &mut self.random);
                }
                Change::ListenPort(port) => self.listen(*port)?,
                Change::Fwmark(mark) => self.mark(*mark)?,
                Change::ListenIcmp(_) | Change::ListenIp(_) => {}
                Change::ReplacePeers => node.remove_peers(),
                Change::Peer(peer) => node
                    .change_peer(peer, &mut self.random)
                    .map_err(|error| (error.to_string(), Errno(-libc::ENOSPC)))?,
            }
        }
        for fd in self.engine.carriers.fds() {
            self.poll.watch(fd, Interest::READ).map_err(|e| (e.to_string(), Errno::IO))?;
        }
        self.engine.tick();
        self.engine.settle(true, false);
        Ok(())
    }

    fn listen(&mut self, port: u16) -> Result<(), Refused> {
        if let Some(sockets) = &self.engine.sockets
            && (port == 0 || sockets.port() != port)
        {
            self.open(port)?;
        }
        self.listen_port = port;
        Ok(())
    }

    fn mark(&mut self, mark: u32) -> Result<(), Refused> {
        if let Some(sockets) = &self.engine.sockets {
            sockets.set_fwmark(mark).map_err(|error| {
                let errno = Errno(-error.raw_os_error().unwrap_or(libc::EPERM));
                (format!("fwmark: {error}; it needs CAP_NET_ADMIN"), errno)
            })?;
        }
        self.fwmark = mark;
        self.engine.node.forget_sources();
        Ok(())
    }

    /// Opens sockets on `port` in place of those there are.
    pub(super) fn open(&mut self, port: u16) -> Result<(), Refused> {
        let mut sockets = Sockets::bind(port, self.fwmark).map_err(|error| {
            let errno = match error.kind() {
                io::ErrorKind::AddrInUse => Errno::PORT_IN_USE,
                _ => Errno(-error.raw_os_error().unwrap_or(libc::EIO)),
            };
            (error.to_string(), errno)
        })?;
        for fd in sockets.fds() {
            self.poll.watch(fd, Interest::READ).map_err(|e| (e.to_string(), Errno::IO))?;
        }
        if self.is_managed {
            sockets.keep_whole();
        }
        tracing::info!(port = sockets.port(), "listening");
        self.engine.node.set_listen_port(sockets.port());
        self.engine.set_sockets(Some(sockets));
        Ok(())
    }

    /// Reads the configuration again; how many changes that were, or why there was none.
    pub(super) fn reload(&mut self, reload: Reload<'_>) -> Result<usize, String> {
        let changes = reload().map_err(|text| format!("{text}; nothing was changed"));
        let done = changes.and_then(|Reloaded { changes, key_files }| {
            self.key_files = KeyFiles::new(key_files);
            let rest = |(text, _)| format!("{text}; the rest stays as it was");
            self.configure(&changes).map(|()| changes.len()).map_err(rest)
        });
        match &done {
            Ok(changes) => tracing::info!(changes, "configuration read again"),
            Err(text) => tracing::error!("reload: {text}"),
        }
        done
    }
}
