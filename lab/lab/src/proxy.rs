//! An HTTPS proxy as some offices have it: it answers `CONNECT`, ends TLS with a certificate of its
//! own, opens TLS to where the client wanted, and reads everything that passes. It is here so that
//! programs can be seen to work, and to keep their secrets, behind one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Bytes of a request's head, at most.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// Serves at `listen` without end; `told` is called once it does.
///
/// # Errors
/// The address is taken or not ours.
pub fn serve(listen: SocketAddr, told: impl FnOnce(SocketAddr)) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen at {listen}"))?;
        told(listener.local_addr()?);
        let own = Arc::new(Own::new()?);
        loop {
            let (stream, _) = listener.accept().await?;
            let own = Arc::clone(&own);
            tokio::spawn(async move { own.intercept(stream).await });
        }
    })
}

struct Own {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl Own {
    fn new() -> Result<Self> {
        let (server, client) = crate::tls::ends("intercepted.invalid")?;
        Ok(Self { acceptor: TlsAcceptor::from(server), connector: TlsConnector::from(client) })
    }

    async fn intercept(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let mut rest = (&mut stream).take(HEAD_BYTES_MAX.saturating_sub(head.len() as u64));
            if rest.read_line(&mut head).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut words = head.split(' ');
        let (Some("CONNECT"), Some(target)) = (words.next(), words.next()) else {
            return stream
                .write_all(b"HTTP/1.1 405 Only CONNECT\r\nContent-Length: 0\r\n\r\n")
                .await;
        };
        let Ok(onward) = TcpStream::connect(target).await else {
            return stream.write_all(b"HTTP/1.1 502 Nobody\r\nContent-Length: 0\r\n\r\n").await;
        };
        onward.set_nodelay(true)?;
        stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
        let mut inside = self.acceptor.accept(stream).await?;
        let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let mut outside = self.connector.connect(name, onward).await?;
        // Here it reads all that passes, and could keep it.
        copy_bidirectional(&mut inside, &mut outside).await.map(drop)
    }
}
