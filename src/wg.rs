//! `warren wg NAME`: a drop-in for wireguard-go.

use std::time::Duration;

use anyhow::{Result, bail};
use host::driver::{Driver, Error};
use host::linux::background::{self, Readiness};
use host::quick::{ORDER_MS, REPAIR_PERCENT};

use crate::frames::{self, Compress, Frames};
use crate::log::{self, Level};

/// Serve a WireGuard interface that `wg` and `wg-quick` drive.
///
/// Creates the TUN interface NAME and the control socket /var/run/wireguard/NAME.sock, then goes
/// to the background. Ends on SIGTERM, on SIGINT, when the interface is deleted, and when the
/// socket is removed. Installed as `warren-wg` it serves wg-quick:
/// WG_QUICK_USERSPACE_IMPLEMENTATION=warren-wg wg-quick up FILE
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    #[arg(long, value_enum, value_name = "LEVEL", help = log::HELP_ERROR, ignore_case = true)]
    log: Option<Level>,
    /// Run on this processor only, counted from 0
    #[arg(long, value_name = "N", env = "WARREN_CPU")]
    cpu: Option<u32>,
    #[arg(long, value_enum, value_name = "WHEN", env = "WARREN_FRAMES", default_value = "on")]
    #[arg(help = frames::HELP, ignore_case = true)]
    frames: Frames,
    #[arg(long, value_enum, value_name = "WHEN", env = "WARREN_COMPRESS", default_value = "off")]
    #[arg(help = frames::COMPRESS, ignore_case = true)]
    compress: Compress,
    #[arg(long, value_name = "N", env = "WARREN_HOLD_MS", default_value = "0", help = frames::HOLD)]
    #[arg(value_parser = frames::hold_ms())]
    hold_ms: u16,
    #[arg(long, value_name = "N", env = "WARREN_ORDER_MS", default_value_t = ORDER_MS)]
    #[arg(help = frames::ORDER, value_parser = frames::order_ms())]
    order_ms: u16,
    #[arg(long, value_name = "SHARE", env = "WARREN_REPAIR_MAX", help = frames::REPAIR_MAX)]
    #[arg(default_value_t = REPAIR_PERCENT, value_parser = frames::repair_max)]
    repair_max: u8,
    /// The interface to create, at most 15 characters
    #[arg(value_parser = interface)]
    name: String,
}

/// A name that an interface can have.
pub(crate) fn interface(text: &str) -> Result<String, String> {
    if host::linux::tun::is_name(text) {
        return Ok(text.to_owned());
    }
    Err("no interface can be called so; use 1 to 15 of the characters a-z A-Z 0-9 _ = + . -".into())
}

/// Serves in the foreground, or starts a process in the background that does.
pub(crate) fn run(args: Args) -> Result<()> {
    if let Some(cpu) = args.cpu {
        // A process in the background inherits it.
        host::linux::affinity::pin(cpu)?;
    }
    let asked = args.log.or_else(Level::from_environment);
    let level = asked.unwrap_or(Level::Error);
    let in_foreground = std::env::var_os("WG_PROCESS_FOREGROUND").is_some_and(|v| v == "1");
    if args.foreground || in_foreground {
        log::start(level);
        return serve(&args, Readiness::take());
    }
    // who asked for a log wants it; who did not must not wait for the end of standard error
    let keep_stderr = asked.is_some_and(|level| level != Level::Silent);
    let frames = args.frames.word();
    let compress = args.compress.word();
    let words = ["wg", "--foreground", "--log", level.word(), "--frames", frames, "--compress"];
    let hold_ms = args.hold_ms.to_string();
    let order_ms = args.order_ms.to_string();
    let repair_max = args.repair_max.to_string();
    let rest = [compress, "--hold-ms", &hold_ms, "--order-ms", &order_ms];
    let last = ["--repair-max", &repair_max, "--", &args.name];
    background::start(words.into_iter().chain(rest).chain(last), keep_stderr)?;
    Ok(())
}

/// Runs the node until something ends it; tells `readiness` when `wg` can talk to it.
fn serve(args: &Args, readiness: Option<Readiness>) -> Result<()> {
    let mut driver = match Driver::new(&args.name) {
        Ok(driver) => driver,
        Err(error) => return refuse(readiness, error),
    };
    driver.node().set_frames(args.frames == Frames::On);
    driver.node().set_compress(args.compress == Compress::On);
    driver.node().set_hold(Duration::from_millis(args.hold_ms.into()));
    driver.node().set_order(Duration::from_millis(args.order_ms.into()));
    driver.node().set_repair_max(args.repair_max);
    if let Some(readiness) = readiness {
        readiness.ready();
    }
    let mut no_file = || Err("there is no file to read again; use `wg syncconf`".to_owned());
    let end = driver.run(&mut no_file)?;
    tracing::info!("ended: {end}");
    Ok(())
}

/// Leaves the telling to the process that started us, if one did.
fn refuse(readiness: Option<Readiness>, error: Error) -> Result<()> {
    if let Some(readiness) = readiness {
        readiness.failed(&error.to_string());
    }
    bail!(error)
}
