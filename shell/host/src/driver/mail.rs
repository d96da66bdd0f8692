//! The mailbox of a loop: other threads ask the one that owns the node to do something with it.
//!
//! An order is a closure that runs between two turns, on the loop's thread, with what the loop
//! owns; its answer goes back by a channel of its own. So nothing is shared and nothing locked, and
//! the data path knows of no other thread. At most `ORDERS_MAX` wait; who has one more waits.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::Desk;

/// Orders that wait for the loop.
const ORDERS_MAX: usize = 64;

type Order = Box<dyn FnOnce(&mut Desk<'_>) + Send>;

/// The loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the node's loop has ended")
    }
}

impl std::error::Error for Gone {}

/// The loop's end.
#[derive(Debug)]
pub(crate) struct Mail {
    orders: Receiver<Order>,
    bell: UnixStream,
}

/// The end of other threads.
#[derive(Debug)]
pub struct Remote {
    orders: SyncSender<Order>,
    bell: UnixStream,
}

/// A mailbox.
pub(crate) fn mailbox() -> io::Result<(Mail, Remote)> {
    let (orders, received) = sync_channel(ORDERS_MAX);
    let (bell, rung) = UnixStream::pair()?;
    // A bell that is full has rung.
    bell.set_nonblocking(true)?;
    rung.set_nonblocking(true)?;
    Ok((Mail { orders: received, bell: rung }, Remote { orders, bell }))
}

impl Mail {
    pub(crate) fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// The next order, once the bell was silenced.
    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    /// Silences the bell; before the orders are taken, so that none is overlooked.
    pub(crate) fn silence(&mut self) {
        let mut rings = [0; 64];
        while matches!(self.bell.read(&mut rings), Ok(len) if len > 0) {}
    }
}

impl Remote {
    /// Another one, for another thread.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn another(&self) -> io::Result<Self> {
        Ok(Self { orders: self.orders.clone(), bell: self.bell.try_clone()? })
    }

    /// Has the loop run `order`, and waits for its answer.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn call<R: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Desk<'_>) -> R + Send + 'static,
    ) -> Result<R, Gone> {
        let (answer, answered) = sync_channel(1);
        // Who no longer waits for the answer has ended.
        self.post(move |desk| drop(answer.send(order(desk))))?;
        answered.recv().map_err(|_| Gone)
    }

    /// Has the loop run `order`, and goes on.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn post(&self, order: impl FnOnce(&mut Desk<'_>) + Send + 'static) -> Result<(), Gone> {
        self.orders.send(Box::new(order)).map_err(|_| Gone)?;
        let _ = (&self.bell).write(&[1]);
        Ok(())
    }
}
