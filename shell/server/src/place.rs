//! Why an address cannot be served at, and how to mend it: for whoever starts a server.

use std::io;
use std::net::SocketAddr;

/// Says of an error which words it is about, and what to do.
pub(crate) fn refused(flag: &str, at: SocketAddr) -> impl FnOnce(io::Error) -> io::Error {
    move |error| {
        let mend = mend(flag, at, error.kind());
        io::Error::new(error.kind(), format!("{flag} {at}: {error}{mend}"))
    }
}

fn mend(flag: &str, at: SocketAddr, kind: io::ErrorKind) -> String {
    let port = at.port();
    match kind {
        io::ErrorKind::PermissionDenied if port < 1024 => format!(
            "; ports below 1024 are root's: run it as root, as the service warren-server, or with \
             {flag} [::]:8443 and that port in --url"
        ),
        io::ErrorKind::AddrInUse => format!(
            "; another program has it, `ss -lntup sport = :{port}` says which: end that, or name \
             another with {flag}"
        ),
        io::ErrorKind::AddrNotAvailable => format!(
            "; this machine has no such address, `ip address` shows those it has; [::]:{port} is \
             all of them"
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_had_is_told_with_its_mend() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap();
        let why = std::net::TcpListener::bind(at).map_err(refused("--listen", at)).unwrap_err();
        let why = why.to_string();
        assert!(why.starts_with(&format!("--listen {at}: ")), "{why}");
        assert!(why.contains(&format!("`ss -lntup sport = :{}`", at.port())), "{why}");
        let nowhere: SocketAddr = "192.0.2.1:8443".parse().unwrap();
        let why = std::net::TcpListener::bind(nowhere).map_err(refused("--stun", nowhere));
        assert!(why.unwrap_err().to_string().contains("[::]:8443 is all of them"));
        let low = "[::]:443".parse().unwrap();
        let told = mend("--listen", low, io::ErrorKind::PermissionDenied);
        assert!(told.contains("root") && told.contains("--listen [::]:8443"), "{told}");
        assert_eq!(mend("--listen", low, io::ErrorKind::OutOfMemory), "");
    }
}
