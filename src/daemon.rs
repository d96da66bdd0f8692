//! `warren daemon`: a node of a network.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::daemon::{Begin, Options, SOCKET, state};
use anyhow::Result;
use host::quick::{ORDER_MS, REPAIR_PERCENT};

use crate::frames::{self, Frames};
use crate::lastlines;
use crate::listen::place;
use crate::log::{self, Level};
use crate::wish::Wish;

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren daemon                                  a node; `warren up` joins a network
  warren daemon --join file:/etc/warren/token    one that joins by itself
  warren daemon --advertise-routes 10.7.0.0/16   a gateway, from its start on";

/// Run a node of a network: its interface, its membership, and the socket of its commands.
///
/// It begins as it was left: `warren up` and `warren down` say what is wanted. Settings that are
/// given here are so from each start on. Ends on SIGTERM and SIGINT, and leaves nothing behind.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where keys, settings and the map are kept
    #[arg(long, value_name = "DIR", default_value = state::DIRECTORY, env = "WARREN_STATE")]
    state: PathBuf,
    /// Where the commands find it [default: /run/warren/warren.sock]
    #[arg(long, value_name = "PATH", env = "WARREN_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// The token by which a machine that is in no network joins one, or file:PATH
    #[arg(long, value_name = "TOKEN", env = "WARREN_JOIN", hide_env_values = true)]
    join: Option<String>,
    /// The interface to create, at most 15 characters
    #[arg(long, value_name = "NAME", default_value = "warren0")]
    #[arg(value_parser = crate::wg::interface)]
    tun: String,
    /// The UDP port [default: 41820, or another if that is taken]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// The interface's MTU [default: 1420, or more beside links with jumbo frames]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=8920))]
    mtu: Option<u32>,
    /// Do not ask the gateway for a port that leads here (PCP, NAT-PMP, UPnP)
    #[arg(long, env = "WARREN_NO_PORT_MAPPING")]
    no_port_mapping: bool,
    /// Where metrics for Prometheus are served over HTTP [default: nowhere]
    #[arg(long, value_name = "ADDR:PORT", value_parser = place)]
    metrics: Option<SocketAddr>,
    #[arg(long, value_enum, value_name = "WHEN", env = "WARREN_FRAMES", default_value = "on")]
    #[arg(help = frames::HELP, ignore_case = true)]
    frames: Frames,
    #[arg(long, value_name = "N", env = "WARREN_ORDER_MS", default_value_t = ORDER_MS)]
    #[arg(help = frames::ORDER, value_parser = frames::order_ms())]
    order_ms: u16,
    #[arg(long, value_name = "SHARE", env = "WARREN_REPAIR_MAX", help = frames::REPAIR_MAX)]
    #[arg(default_value_t = REPAIR_PERCENT, value_parser = frames::repair_max)]
    repair_max: u8,
    #[arg(long, value_enum, value_name = "LEVEL", help = log::HELP_INFO, ignore_case = true)]
    log: Option<Level>,
    #[command(flatten)]
    wish: Wish,
    #[command(flatten)]
    form: log::Form,
}

/// Serves until a signal.
pub(crate) fn run(args: Args) -> Result<()> {
    let level = args.log.or_else(Level::from_environment).unwrap_or(Level::Info);
    log::start_as(level, args.form);
    log::end_on_panic();
    let options = Options {
        state: args.state,
        socket: args.socket.unwrap_or_else(|| SOCKET.into()),
        tun: args.tun,
        port: args.port,
        mtu: args.mtu,
        frames: args.frames == Frames::On,
        order: Duration::from_millis(args.order_ms.into()),
        repair_percent: args.repair_max,
        port_mapping: !args.no_port_mapping,
        metrics: args.metrics,
        last_lines: lastlines::text,
        begin: Begin { join: args.join, changes: args.wish.changes() },
    };
    let path = options.socket.clone();
    ::daemon::run(&options, || {
        // One line when commands find it, for people and for whoever started it.
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "daemon at {}", path.display());
        let _ = out.flush();
        host::linux::systemd::notify_ready();
    })?;
    Ok(())
}
