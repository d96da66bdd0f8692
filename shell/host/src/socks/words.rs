//! SOCKS5 as bytes: greeting, user name, request, reply (RFC 1928), password (RFC 1929), and the
//! head of a datagram.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const VERSION: u8 = 5;
const PASSWORD_VERSION: u8 = 1;
const NO_METHOD: u8 = 0xff;
const WITHOUT: u8 = 0;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const ASSOCIATE: u8 = 3;
const V4: u8 = 1;
const NAME: u8 = 3;
const V6: u8 = 4;

/// Bytes before a datagram's payload, at most.
pub(super) const HEAD_LEN_MAX: usize = 4 + 256 + 2;

/// Who is meant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Host {
    Address(IpAddr),
    Name(String),
}

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// A connection.
    Connect(Host, u16),
    /// Datagrams; the port that they will come from, if it is known.
    Associate(u16),
}

/// How a request ended, as the client is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Done = 0,
    Failed = 1,
    Refused = 2,
    NoHost = 4,
    ConnectionRefused = 5,
    Late = 6,
    NoSuchCommand = 7,
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn byte(from: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn counted(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = byte(from)?;
    let mut bytes = vec![0; usize::from(len)];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Greets, and reads who it is: user name and password, which both only tell circuits apart.
pub(super) fn greet(stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    if byte(stream)? != VERSION {
        return Err(bad("not SOCKS version 5"));
    }
    let methods = counted(stream)?;
    if methods.contains(&PASSWORD) {
        stream.write_all(&[VERSION, PASSWORD])?;
        if byte(stream)? != PASSWORD_VERSION {
            return Err(bad("not version 1 of user names"));
        }
        let mut who = counted(stream)?;
        let password = counted(stream)?;
        stream.write_all(&[PASSWORD_VERSION, 0])?;
        // The length keeps ("a", "bc") and ("ab", "c") apart.
        who.push(u8::try_from(who.len()).unwrap_or(u8::MAX));
        who.extend(password);
        Ok(who)
    } else if methods.contains(&WITHOUT) {
        stream.write_all(&[VERSION, WITHOUT])?;
        Ok(Vec::new())
    } else {
        stream.write_all(&[VERSION, NO_METHOD])?;
        Err(bad("no method that both know"))
    }
}

/// Reads what is wanted; what is not to be had is told at once.
pub(super) fn request(stream: &mut impl Read) -> io::Result<Result<Request, Reply>> {
    if byte(stream)? != VERSION {
        return Err(bad("not SOCKS version 5"));
    }
    let command = byte(stream)?;
    byte(stream)?;
    let (host, port) = address(stream)?;
    Ok(match command {
        CONNECT => Ok(Request::Connect(host, port)),
        ASSOCIATE => Ok(Request::Associate(port)),
        _ => Err(Reply::NoSuchCommand),
    })
}

/// A host and a port.
fn address(from: &mut impl Read) -> io::Result<(Host, u16)> {
    let host = match byte(from)? {
        V4 => {
            let mut bytes = [0; 4];
            from.read_exact(&mut bytes)?;
            Host::Address(Ipv4Addr::from(bytes).into())
        }
        V6 => {
            let mut bytes = [0; 16];
            from.read_exact(&mut bytes)?;
            Host::Address(Ipv6Addr::from(bytes).to_canonical())
        }
        NAME => {
            let text = String::from_utf8(counted(from)?).map_err(|_| bad("a name is no text"))?;
            text.parse().map_or_else(|_| Host::Name(text), Host::Address)
        }
        _ => return Err(bad("no such kind of address")),
    };
    let mut port = [0; 2];
    from.read_exact(&mut port)?;
    Ok((host, u16::from_be_bytes(port)))
}

/// The reply, with where the client's datagrams are to go.
pub(super) fn reply(how: Reply, at: Option<SocketAddr>) -> Vec<u8> {
    let mut bytes = vec![VERSION, how as u8, 0];
    write_address(&mut bytes, at.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into()));
    bytes
}

fn write_address(bytes: &mut Vec<u8>, at: SocketAddr) {
    match at.ip() {
        IpAddr::V4(v4) => {
            bytes.push(V4);
            bytes.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            bytes.push(V6);
            bytes.extend(v6.octets());
        }
    }
    bytes.extend(at.port().to_be_bytes());
}

/// Reads a datagram of the client's: for whom it is, and where its payload begins. `None` for
/// fragments, which nobody sends, and for what is none.
pub(super) fn datagram(bytes: &[u8]) -> Option<(Host, u16, usize)> {
    let mut rest = bytes.strip_prefix(&[0, 0, 0])?;
    let (host, port) = address(&mut rest).ok()?;
    Some((host, port, bytes.len() - rest.len()))
}

/// The head of a datagram for the client.
pub(super) fn head(from: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    write_address(&mut bytes, from);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client sends, and what it was sent.
    struct Line(io::Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Line {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for Line {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(bytes: &[u8]) -> Line {
        Line(io::Cursor::new(bytes.to_vec()), Vec::new())
    }

    #[test]
    fn user_names_and_passwords_tell_clients_apart() {
        let who = |bytes: &[u8]| greet(&mut line(bytes)).unwrap();
        assert_eq!(who(&[5, 1, 0]), b"");
        let users = [&b"\x05\x01\x02\x01\x01a\x02bc"[..], b"\x05\x01\x02\x01\x02ab\x01c"];
        assert_ne!(who(users[0]), who(users[1]));
        let mut with = line(b"\x05\x02\x00\x02\x01\x01a\x00");
        greet(&mut with).unwrap();
        assert_eq!(with.1, [5, 2, 1, 0], "a name is asked for where one is offered");
        let mut none = line(&[5, 1, 1]);
        assert!(greet(&mut none).is_err() && none.1 == [5, 0xff]);
        assert!(greet(&mut line(&[4, 1, 0])).is_err());
    }

    #[test]
    fn requests_and_datagrams_are_read_and_what_is_not_to_be_had_is_told() {
        let read = |bytes: &[u8]| request(&mut line(bytes)).unwrap();
        let host = Host::Address([203, 0, 113, 9].into());
        let connect = b"\x05\x01\x00\x01\xcb\x00\x71\x09\x01\xbb";
        assert_eq!(read(connect), Ok(Request::Connect(host.clone(), 443)));
        let named = b"\x05\x01\x00\x03\x04a.de\x00\x50";
        assert_eq!(read(named), Ok(Request::Connect(Host::Name("a.de".to_owned()), 80)));
        let text = b"\x05\x01\x00\x03\x0b203.0.113.9\x01\xbb";
        assert_eq!(read(text), Ok(Request::Connect(host.clone(), 443)), "an address as text");
        let six = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
        let whole = [&[5, 1, 0, 4][..], &six.octets(), &[1, 0xbb]].concat();
        assert_eq!(read(&whole), Ok(Request::Connect(Host::Address(six.into()), 443)));
        let text = b"\x05\x01\x00\x03\x0b2001:db8::9\x01\xbb";
        assert_eq!(read(text), Ok(Request::Connect(Host::Address(six.into()), 443)));
        let hidden = [&[5, 1, 0, 4][..], &Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(), &[0, 9]];
        let near = Host::Address(Ipv4Addr::LOCALHOST.into());
        assert_eq!(read(&hidden.concat()), Ok(Request::Connect(near, 9)), "it is seen as it is");
        assert_eq!(read(b"\x05\x02\x00\x01\0\0\0\0\0\0"), Err(Reply::NoSuchCommand));
        assert_eq!(read(b"\x05\x03\x00\x01\0\0\0\0\x00\x09"), Ok(Request::Associate(9)));
        for end in 0..connect.len() {
            assert!(request(&mut line(&connect[..end])).is_err(), "{end}");
        }
        let sent = b"\0\0\0\x01\xcb\x00\x71\x09\x01\xbbpayload";
        assert_eq!(datagram(sent), Some((host, 443, 10)));
        assert_eq!(datagram(b"\0\0\x01\x01\xcb\x00\x71\x09\x01\xbb"), None, "a fragment");
        let back = head("203.0.113.9:443".parse().unwrap());
        assert_eq!(back[..], sent[..10]);
        assert_eq!(reply(Reply::Done, None), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
}
