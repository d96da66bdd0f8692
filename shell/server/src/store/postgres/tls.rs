//! TLS to a PostgreSQL server, with the library that the rest of the program has.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::{TlsConnector, client};
use trust::AnyCertificate;

use super::super::{StoreError, Stored};

/// Makes streams of TLS.
#[derive(Clone)]
pub(super) struct Connector(Arc<ClientConfig>);

/// One stream to be made: for which name.
pub(super) struct Connecting(Connector, String);

/// A stream of TLS.
pub(super) struct Stream(Box<client::TlsStream<Socket>>);

impl Connector {
    /// Verifies the server by `roots`, or takes any certificate.
    pub(super) fn new(roots: Option<&Path>) -> Stored<Self> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|why| StoreError::Unavailable(why.to_string()))?;
        let builder = match roots {
            None => {
                let any = AnyCertificate::new(provider);
                builder.dangerous().with_custom_certificate_verifier(any)
            }
            Some(path) => builder.with_root_certificates(
                crate::roots::roots(path)
                    .map_err(|why| StoreError::Invalid(format!("sslrootcert={why}")))?,
            ),
        };
        Ok(Self(Arc::new(builder.with_no_client_auth())))
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Connecting;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connecting> {
        Ok(Connecting(self.clone(), host.to_owned()))
    }
}

impl TlsConnect<Socket> for Connecting {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.1).map_err(io::Error::other)?;
            let stream = TlsConnector::from(self.0.0).connect(name, socket).await?;
            Ok(Stream(Box::new(stream)))
        })
    }
}

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}
