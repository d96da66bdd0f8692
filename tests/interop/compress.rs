//! Compression of a link from two files: source 004.5, statement 10.

use crate::link::{Link, PORTS};
use crate::support::capture::{Capture, udp_payload};
use crate::support::pair::INNER_V4;
use crate::support::{Result, Scene, ensure, scene, traffic};

/// Bytes of the file that moves.
const FILE_BYTES: u64 = 16 << 20;
const RUNS: usize = 8;

/// A byte that tells nothing of its neighbours.
fn random_byte(at: u64) -> u8 {
    let mixed = at.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 56) as u8
}

/// Half of each KiB is random, and half is not: a file of which 50 % can be saved.
fn half_random_byte(at: u64) -> u8 {
    if at & 512 == 0 { random_byte(at) } else { b'.' }
}

/// How many bytes are sent for each of a file, reports and all headers included. The least of some
/// runs: as long as a path is not known, and where a busy machine drops something, repair comes on
/// top.
fn share(link: &Link<'_>, content: fn(u64) -> u8) -> Result<f64> {
    let [one, two] = &link.hosts;
    let mut least = f64::MAX;
    for _ in 0..RUNS {
        let before = traffic::sent_bytes(one)?;
        traffic::exact_stream_of(one, two, INNER_V4[1], FILE_BYTES, content)?;
        least = least.min((traffic::sent_bytes(one)? - before) as f64 / FILE_BYTES as f64);
    }
    Ok(least)
}

/// A link whose cable shows each datagram by itself. Only the first end compresses.
fn link<'a>(scene: &'a Scene, more: &str, env: Option<(&str, &str)>) -> Result<Link<'a>> {
    let link = Link::new(scene, 1420, false)?;
    for (host, veth) in link.hosts.iter().zip(["va", "vb"]) {
        host.sh(&format!("ethtool -K {veth} tso off gso off tx-udp-segmentation off >/dev/null"))?;
    }
    link.more.borrow_mut()[0] = more.to_owned();
    link.start(1)?;
    link.env.borrow_mut().extend(env.map(|(name, value)| (name.to_owned(), value.to_owned())));
    link.start(0)?;
    link.settle()?;
    Ok(link)
}

#[test]
fn source_004_10_half_of_a_file_that_can_be_halved_is_saved_where_it_is_asked_for() -> Result<()> {
    scene("z01", |scene| {
        let link = link(scene, "Compress = on\n", None)?;
        let on = share(&link, half_random_byte)?;
        // The file says no more, and is read again.
        link.more.borrow_mut()[0].clear();
        link.reload(0)?;
        let off = share(&link, half_random_byte)?;
        eprintln!(
            "of a file that can be halved {on:.3} is sent with, {off:.3} without compression"
        );
        ensure!(on <= 0.60, "{on:.3} of the file's bytes");
        ensure!(off > 1.0, "{off:.3}: it is off unless asked for");
        Ok(())
    })?;
    scene("z02", |scene| {
        let link = link(scene, "Compress = off\n", Some(("WARREN_COMPRESS", "on")))?;
        let on = share(&link, half_random_byte)?;
        ensure!(on <= 0.60, "{on:.3}: what the command says stands above the file");
        Ok(())
    })
}

/// The lengths of the IP packets that carry a file of random bytes.
fn lengths(id: &str, more: &str) -> Result<(Vec<usize>, f64)> {
    scene(id, |scene| {
        let link = link(scene, more, None)?;
        let capture = Capture::start(&link.hosts[0], "va")?;
        let share = share(&link, random_byte)?;
        let packets = capture.stop()?;
        let is_ours = |packet: &&Vec<u8>| {
            udp_payload(packet)
                .is_some_and(|(from, to, _)| [from, to].iter().all(|p| PORTS.contains(p)))
        };
        Ok((packets.iter().filter(is_ours).map(Vec::len).collect(), share))
    })
}

#[test]
fn source_004_10_what_cannot_be_compressed_never_grows() -> Result<()> {
    let (off, share_off) = lengths("z03", "")?;
    let (on, share_on) = lengths("z04", "Compress = on\n")?;
    let largest = |lengths: &[usize]| lengths.iter().max().copied().unwrap_or_default();
    eprintln!("random bytes: {share_on:.4} with, {share_off:.4} without compression");
    ensure!(on.len() > 10_000 && off.len() > 10_000, "{} and {} datagrams", on.len(), off.len());
    // Whether 1500 pass is asked by a probe, with or without compression, and not in every run.
    for lengths in [&on, &off] {
        ensure!(largest(lengths) <= 1_500, "a packet of {} bytes", largest(lengths));
    }
    // A report and an answer more or less.
    ensure!(share_on <= share_off * 1.02, "{share_on:.4} instead of {share_off:.4}");
    Ok(())
}
