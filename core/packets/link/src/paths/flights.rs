//! Probes on their way.

use noise::Instant;

/// So many may be on their way; at ten a second that is three seconds' worth.
const FLIGHTS_MAX: usize = 32;

/// One probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) nonce: u64,
    /// The path's number.
    pub(crate) path: u16,
    pub(crate) sent: Instant,
    /// Bytes of its plaintext.
    pub(crate) len: u16,
}

/// The last ones sent.
#[derive(Debug)]
pub(crate) struct Flights {
    flights: [Option<Flight>; FLIGHTS_MAX],
    next: usize,
}

impl Flights {
    pub(crate) fn new() -> Self {
        Self { flights: [None; FLIGHTS_MAX], next: 0 }
    }

    /// Notes a probe; the oldest is forgotten for it.
    pub(crate) fn insert(&mut self, flight: Flight) {
        self.flights[self.next] = Some(flight);
        self.next = (self.next + 1) % FLIGHTS_MAX;
    }

    /// The probe with this nonce on this path; it is answered once.
    pub(crate) fn take(&mut self, nonce: u64, path: u16) -> Option<Flight> {
        let is_it = |flight: &Flight| (flight.nonce, flight.path) == (nonce, path);
        let place = self.flights.iter().position(|flight| flight.as_ref().is_some_and(is_it))?;
        self.flights[place].take()
    }
}
