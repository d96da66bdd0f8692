//! Source 004.5, statement 12: replays, also after a restart (threats DP-07, DP-12, DP-17).

use std::os::fd::AsRawFd as _;
use std::thread::sleep;
use std::time::Duration;

use crate::link::{Link, PORTS};
use crate::support::capture::{Capture, udp_payload};
use crate::support::{Host, Result, ensure, eventually, inside, scene, seconds};

/// Sends IP packets exactly as they were captured, so also with the true peer's address.
fn send_raw(host: &Host, packets: &[Vec<u8>]) -> Result<()> {
    inside::inside(host, || {
        // SAFETY: no pointers; closed by the drop of the owner.
        let socket = unsafe {
            use std::os::fd::{FromRawFd as _, OwnedFd};
            let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW);
            ensure!(fd >= 0, "no raw socket: {}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(fd)
        };
        for packet in packets {
            let target = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: 0,
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes([packet[16], packet[17], packet[18], packet[19]]),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: packet and address are alive and as long as is said.
            let sent = unsafe {
                libc::sendto(
                    socket.as_raw_fd(),
                    packet.as_ptr().cast(),
                    packet.len(),
                    0,
                    (&raw const target).cast(),
                    size_of_val(&target) as u32,
                )
            };
            ensure!(sent > 0, "cannot send: {}", std::io::Error::last_os_error());
        }
        sleep(Duration::from_millis(300));
        Ok(())
    })
}

/// A link whose first handshake and pings were captured on their way to `two`.
fn recorded(link: &Link<'_>) -> Result<Vec<Vec<u8>>> {
    // datagrams that leave together would be captured as one, which no raw socket sends
    link.hosts[0].sh("ethtool -K va tso off gso off tx-udp-segmentation off >/dev/null")?;
    let capture = Capture::start(&link.hosts[1], "vb")?;
    link.start(1)?;
    link.start(0)?;
    link.settle()?;
    for _ in 0..30 {
        link.ping(0)?;
    }
    let mut packets = capture.stop()?;
    packets.retain(|packet| udp_payload(packet).is_some_and(|(_, to, _)| to == PORTS[1]));
    ensure!(packets.len() > 30, "only {} datagrams were captured", packets.len());
    Ok(packets)
}

#[test]
fn source_004_12_replays_are_dropped() -> Result<()> {
    scene("r01", |scene| {
        let link = Link::new(scene, 1420, false)?;
        let packets = recorded(&link)?;
        let before = link.delivered(1)?;
        let backwards: Vec<Vec<u8>> = packets.iter().rev().cloned().collect();
        for round in [&packets, &backwards, &packets] {
            send_raw(&link.hosts[0], round)?;
        }
        let delivered = link.delivered(1)? - before;
        ensure!(delivered == 0, "{delivered} replayed packets were delivered");
        link.ping(0)?;
        link.ping(1)
    })
}

#[test]
fn source_004_12_a_restart_reopens_no_window() -> Result<()> {
    scene("r02", |scene| {
        let link = Link::new(scene, 1420, false)?;
        let packets = recorded(&link)?;
        // The true peer stays away, so that nothing but replays can arrive.
        link.stop(0)?;
        for _ in 0..2 {
            link.stop(1)?;
            link.start(1)?;
            send_raw(&link.hosts[0], &packets)?;
            let delivered = link.delivered(1)?;
            ensure!(delivered == 0, "{delivered} old packets were delivered after a restart");
        }
        // A stock responder answers an old initiation after a restart (it keeps no timestamp),
        // but the one who replays it cannot go on. The true peer must not be kept out by it.
        link.start(0)?;
        eventually("the true peer gets through", seconds(8), || link.ping(0).is_ok())?;
        let before = link.delivered(1)?;
        send_raw(&link.hosts[0], &packets)?;
        ensure!(link.delivered(1)? == before, "old packets were delivered beside new ones");
        link.ping(1)
    })
}

#[test]
fn a_restart_of_either_end_is_overcome() -> Result<()> {
    scene("r03", |scene| {
        let link = Link::up(scene)?;
        for me in [0, 1, 0] {
            link.stop(me)?;
            link.start(me)?;
            // The one that was restarted initiates as soon as it has something to send.
            eventually("the restarted end reaches the other", seconds(6), || {
                link.ping(me).is_ok()
            })?;
            link.ping(1 - me)?;
        }
        Ok(())
    })
}
