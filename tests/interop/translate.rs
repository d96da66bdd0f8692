//! Addresses rewritten on a link from two files: source 004, what Nest calls masquerading. One end
//! rewrites, and the other knows nothing of it.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};

use crate::link::Link;
use crate::support::capture::Capture;
use crate::support::pair::{INNER_V4, INNER_V6};
use crate::support::{Host, Result, Sut, ensure, eventually, inside, scene, seconds};

/// What `two` is for `one`.
const ALIAS: [&str; 2] = ["10.99.0.2", "fd99::2"];
/// And what `one` is for `two`.
const SEEN: [&str; 2] = ["10.88.0.1", "fd88::1"];

/// Both ends up, of which `two` rewrites.
fn up(link: &Link<'_>) -> Result<()> {
    let [alias_v4, alias_v6] = ALIAS;
    let [seen_v4, seen_v6] = SEEN;
    link.more.borrow_mut()[0] = format!("AllowedIPs = {alias_v4}/32, {alias_v6}/128\n");
    link.more.borrow_mut()[1] = format!(
        "AllowedIPs = {seen_v4}/32, {seen_v6}/128\n\
         TranslateSource = {}={seen_v4}, {}={seen_v6}\n\
         TranslateDestination = {alias_v4}={}\n\
         TranslateDestination = {alias_v6}={}\n",
        INNER_V4[0], INNER_V6[0], INNER_V4[1], INNER_V6[1]
    );
    link.start(0)?;
    link.start(1)?;
    let ping = || link.hosts[0].run(&["ping", "-n", "-c", "1", "-W", "1", alias_v4]).is_ok();
    eventually("a ping to the alias is answered", seconds(20), ping).map(drop)
}

/// Source and destination of an IP packet.
fn ends(packet: &[u8]) -> Option<[IpAddr; 2]> {
    let v4 = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?).into());
    let v6 = |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?).into());
    match packet.first()? >> 4 {
        4 => Some([v4(12)?, v4(16)?]),
        _ => Some([v6(8)?, v6(24)?]),
    }
}

/// Whether a datagram to a port where nobody listens is refused: by an ICMP error, which the kernel
/// heeds only if it quotes what was sent.
fn is_told(host: &Host, address: &str) -> Result<bool> {
    let to: IpAddr = address.parse()?;
    inside::inside(host, move || {
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u8; 16].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((to, 9))?;
        socket.set_read_timeout(Some(seconds(2)))?;
        socket.send(b"anybody?")?;
        let answer = socket.recv(&mut [0; 9]);
        Ok(answer.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused))
    })
}

/// A TCP connection that carries 16 MiB, as superpackets; every byte arrives as it was.
fn stream(from: &Host, to: &Host, address: &str) -> Result<()> {
    const CHUNK: usize = 1 << 16;
    let byte = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    let chunk =
        move |round: usize| -> Vec<u8> { (0..CHUNK).map(|at| byte(round * CHUNK + at)).collect() };
    let listener = inside::inside(to, || Ok(TcpListener::bind("[::]:0")?))?;
    let port = listener.local_addr()?.port();
    let receiver = inside::start(to, move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(seconds(20)))?;
        for round in 0..256 {
            let mut came = vec![0; CHUNK];
            stream.read_exact(&mut came)?;
            ensure!(came == chunk(round), "what came is not what was sent");
        }
        Ok(())
    })?;
    let to: IpAddr = address.parse()?;
    inside::inside(from, move || {
        let mut stream = TcpStream::connect_timeout(&(to, port).into(), seconds(10))?;
        stream.set_write_timeout(Some(seconds(20)))?;
        for round in 0..256 {
            stream.write_all(&chunk(round))?;
        }
        Ok(())
    })?;
    inside::join(receiver)
}

/// Datagrams, one alone and then twenty in one superpacket, each of which is answered.
fn datagrams(from: &Host, to: &Host, address: &str) -> Result<()> {
    let echo = inside::inside(to, || Ok(UdpSocket::bind("[::]:0")?))?;
    echo.set_read_timeout(Some(seconds(5)))?;
    let port = echo.local_addr()?.port();
    let to: IpAddr = address.parse()?;
    let socket = inside::inside(from, move || {
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u8; 16].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((to, port))?;
        socket.set_read_timeout(Some(seconds(5)))?;
        Ok(socket)
    })?;
    let mut buffer = [0; 2_000];
    socket.send(b"one alone")?;
    inside::segment_udp(&socket, 1_200)?;
    socket.send(&vec![9; 24_000])?;
    for len in std::iter::once(9).chain([1_200; 20]) {
        let (came, whose) = echo.recv_from(&mut buffer)?;
        ensure!(came == len, "{came} bytes, not {len}");
        echo.send_to(&buffer[..came], whose)?;
        ensure!(socket.recv(&mut buffer)? == len, "the answer of {len} bytes");
    }
    Ok(())
}

#[test]
fn source_004_15_a_link_rewrites_addresses_of_every_kind_of_traffic() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: others rewrite nothing");
        return Ok(());
    }
    scene("lt1", |scene| {
        let link = Link::new(scene, 1420, false)?;
        up(&link)?;
        let [one, two] = &link.hosts;
        let captures =
            [Capture::start(one, &link.ifname(0))?, Capture::start(two, &link.ifname(1))?];
        for (from, to, addresses) in [(one, two, ALIAS), (two, one, SEEN)] {
            for address in addresses {
                // Whole, and in fragments, of which the later ones have no checksum.
                for size in ["56", "4000"] {
                    from.run(&[
                        "ping", "-n", "-c", "2", "-i", "0.2", "-W", "2", "-s", size, address,
                    ])?;
                }
                ensure!(
                    is_told(from, address)?,
                    "no error came from {address}, or of another packet"
                );
                stream(from, to, address)?;
                datagrams(from, to, address)?;
            }
        }
        let known = [
            [INNER_V4[0], INNER_V6[0], ALIAS[0], ALIAS[1]],
            [INNER_V4[1], INNER_V6[1], SEEN[0], SEEN[1]],
        ];
        for (capture, known) in captures.into_iter().zip(known) {
            let known = known.map(|address| address.parse::<IpAddr>().ok());
            let packets = capture.stop()?;
            let is_known = |end: &IpAddr| known.contains(&Some(*end));
            // What a host says to its neighbours begins and ends on the link.
            let is_near = |ends: &[IpAddr; 2]| ends[1].is_multicast();
            let fits = |ends: [IpAddr; 2]| is_near(&ends) || ends.iter().all(is_known);
            let strange = packets.iter().find(|packet| !ends(packet).is_some_and(fits));
            ensure!(packets.len() > 200, "{} packets were seen", packets.len());
            ensure!(strange.is_none(), "{strange:02x?}");
        }
        Ok(())
    })
}

#[test]
fn source_004_15_what_cannot_be_rewritten_is_dropped_and_told_and_a_reload_changes_the_pairs()
-> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: others rewrite nothing");
        return Ok(());
    }
    scene("lt2", |scene| {
        let link = Link::new(scene, 1420, false)?;
        up(&link)?;
        let [one, two] = &link.hosts;
        inside::inside(one, || {
            let kind =
                (socket2::Domain::IPV4, socket2::Type::RAW, Some(socket2::Protocol::from(253)));
            let socket = socket2::Socket::new(kind.0, kind.1, kind.2)?;
            let to: std::net::SocketAddr = (Ipv4Addr::new(10, 99, 0, 2), 0).into();
            for _ in 0..5 {
                socket.send_to(&[7; 40], &to.into())?;
            }
            Ok(())
        })?;
        let counted = |name: &str| {
            let metrics = two.run(&[env!("CARGO_BIN_EXE_warren"), "link", "status", "--json"]);
            metrics.is_ok_and(|text| text.contains(name))
        };
        eventually("it is counted", seconds(10), || counted("translate-protocol"))?;
        // Another alias, and the first is nobody's.
        let more = link.more.borrow()[1].replace(ALIAS[0], "10.99.0.77");
        link.more.borrow_mut()[1] = more;
        link.more.borrow_mut()[0] += "AllowedIPs = 10.99.0.77/32\n";
        link.reload(0)?;
        link.reload(1)?;
        let ping = |to: &str| one.run(&["ping", "-n", "-c", "1", "-W", "1", to]).is_ok();
        one.sh(&format!("ip route replace 10.99.0.77 dev {}", link.ifname(0)))?;
        eventually("the new alias is answered", seconds(10), || ping("10.99.0.77"))?;
        ensure!(!ping(ALIAS[0]), "the first alias is still answered");
        Ok(())
    })
}
