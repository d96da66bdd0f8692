//! Anything at all as messages of multicast DNS.

use dns::mdns::{Kept, Reflector};

/// The first bytes say where the input is cut in two messages; both are heard by one gateway.
///
/// What is told on is bounded, is told on by the next gateway as it is, and not again by this one.
pub fn mdns(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let services = ["_ipp._tcp", "_a._udp"].map(|text| text.parse().expect("a service"));
    let mut here = Reflector::new(&services);
    let (one, two) = rest.split_at(rest.len() * usize::from(*first) / 256);
    for message in [one, two] {
        let Ok(told) = here.handle(message, 0) else { continue };
        assert!(told.len() <= 1232);
        assert_eq!(here.handle(&told, 1), Err(Kept::Again));
        // The next one has not heard on which machines services are.
        let there = Reflector::new(&services).handle(&told, 2);
        assert!(matches!(there, Ok(_) | Err(Kept::Others)));
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut response = vec![128, 0, 0, 0x84, 0, 0, 0, 0, 3, 0, 0, 0, 0];
    response.extend(b"\x04_ipp\x04_tcp\x05local\0\x00\x0c\x80\x01\0\0\0\x78\0\x04\x01a\xc0\x0c");
    response.extend(b"\x01a\xc0\x0c\x00\x21\x80\x01\0\0\0\x78\0\x0b\0\0\0\0\x02\x77\x02hp\xc0\x16");
    response.extend(b"\x02hp\xc0\x16\x00\x01\x80\x01\0\0\0\x78\0\x04\xc0\xa8\x01\x09");
    let mut question = vec![0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    question.extend(b"\x04_ipp\x04_tcp\x05local\0\0\x0c\x80\x01");
    vec![response, question]
}
