//! `warren link up FILE`: wg-quick's files without wg-quick.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use host::quick::{self, Plan, Scripts, Settings};

use crate::frames::{self, Compress, Frames};
use crate::log::{self, Level};

mod pidfile;
mod reload;
mod status;

use pidfile::PidFile;
use reload::Reload;
use status::{Metrics, Status};

/// Bring up a link from a wg-quick file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Bring the link up and serve it in the foreground until SIGINT or SIGTERM.
    ///
    /// Sets addresses, MTU and routes by itself, also for a default route, and takes all of it
    /// away again in the end. SIGHUP, or `warren link reload`, reads keys and peers of FILE again,
    /// and the key files that it names. DNS is handed to resolvconf if that is installed.
    Up(Up),
    /// Have a link read its file again, without dropping it.
    ///
    /// Keys, peers and their routes become what the file says now, and so do the keys in the key
    /// files that it names; sessions go on. A file that is wrong changes nothing. Of `[Interface]`,
    /// only PrivateKey and ListenPort are read again.
    Reload(Reload),
    /// Show how the links of this machine are: what is lost, what is done about it, and why.
    ///
    /// Asks the programs that serve interfaces here, as `wg show` does; those that are not Warren's
    /// are named only.
    Status(Status),
    /// Print metrics of the links of this machine in the form that Prometheus reads, or serve them.
    ///
    /// The same as of a network's node, by interface and key: bytes, what is lost before and after
    /// repair, what repair costs, what was dropped and why.
    Metrics(Metrics),
}

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren link up wg0              as /etc/wireguard/wg0.conf says
  warren link up ./office.conf    as another file says
  warren link up wg0 --pid-file /run/wg0.pid";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
struct Up {
    /// The file, or a bare name for /etc/wireguard/NAME.conf
    file: String,
    /// Run the scripts in the file (PreUp, PostUp, PreDown, PostDown)
    #[arg(long)]
    allow_scripts: bool,
    /// The interface to create [default: the file's name without .conf]
    #[arg(long, value_parser = crate::wg::interface)]
    name: Option<String>,
    /// Run on this processor only, counted from 0
    #[arg(long, value_name = "N", env = "WARREN_CPU")]
    cpu: Option<u32>,
    #[arg(long, value_enum, value_name = "WHEN", env = "WARREN_FRAMES", ignore_case = true)]
    #[arg(help = format!("{} [default: the file's Frames, or on]", frames::HELP))]
    frames: Option<Frames>,
    #[arg(long, value_enum, value_name = "WHEN", env = "WARREN_COMPRESS", ignore_case = true)]
    #[arg(help = format!("{} [default: as the file says of each peer]", frames::COMPRESS))]
    compress: Option<Compress>,
    #[arg(long, value_name = "N", env = "WARREN_HOLD_MS", value_parser = frames::hold_ms())]
    #[arg(help = format!("{} [default: as the file says of each peer]", frames::HOLD))]
    hold_ms: Option<u16>,
    #[arg(long, value_name = "N", env = "WARREN_ORDER_MS", value_parser = frames::order_ms())]
    #[arg(help = format!("{} [default: the file's OrderMs, or 30]", frames::ORDER))]
    order_ms: Option<u16>,
    #[arg(long, value_name = "SHARE", env = "WARREN_REPAIR_MAX", value_parser = frames::repair_max)]
    #[arg(help = format!("{} [default: the file's RepairMax, or 50%]", frames::REPAIR_MAX))]
    repair_max: Option<u8>,
    #[arg(long, value_enum, value_name = "LEVEL", help = log::HELP_INFO, ignore_case = true)]
    log: Option<Level>,
    /// Write the number of this process there while the link is up
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

/// Brings a link up and stays, or tells how links are.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.verb {
        Verb::Up(args) => serve(args),
        Verb::Reload(args) => reload::run(&args),
        Verb::Status(args) => status::run(&args),
        Verb::Metrics(args) => status::metrics(&args),
    }
}

fn serve(args: Up) -> Result<()> {
    log::start(args.log.or_else(Level::from_environment).unwrap_or(Level::Info));
    log::end_on_panic();
    if let Some(cpu) = args.cpu {
        host::linux::affinity::pin(cpu)?;
    }
    let path = std::path::absolute(quick::locate(&args.file))?;
    let wishes = (args.compress.map(|compress| compress == Compress::On), args.hold_ms);
    let mut settings = with_wishes(quick::read(&path)?, wishes);
    if let Some(frames) = args.frames {
        settings.interface.frames = Some(frames == Frames::On);
    }
    settings.interface.order_ms = args.order_ms.or(settings.interface.order_ms);
    settings.interface.repair_percent = args.repair_max.or(settings.interface.repair_percent);
    let name = args.name.or_else(|| quick::name_of(&path)).with_context(|| {
        format!(
            "{} names no interface: it is not 1 to 15 letters and digits before .conf; use --name",
            path.display()
        )
    })?;
    say(&settings.warnings);
    if !args.allow_scripts {
        say(&passed_over(&settings));
    }
    let mut reload = || Ok(with_wishes(read_again(&path)?, wishes));
    let scripts = Scripts { name: &name, allowed: args.allow_scripts };
    let mut pid_file = args.pid_file.map(PidFile::take).transpose()?;
    let on_up = |plan: &Plan| {
        up(plan);
        if let Some(Err(error)) = pid_file.as_mut().map(PidFile::write) {
            tracing::error!("{error:#}");
        }
    };
    let end = quick::run(&name, &settings, scripts, &mut reload, on_up)?;
    tracing::info!("link down: {end}");
    Ok(())
}

/// What the command says of compression and of bundles stands above what the file says.
fn with_wishes(mut settings: Settings, wishes: (Option<bool>, Option<u16>)) -> Settings {
    let (compress, hold_ms) = wishes;
    for peer in &mut settings.peers {
        peer.compress = compress.unwrap_or(peer.compress);
        peer.hold_ms = hold_ms.unwrap_or(peer.hold_ms);
    }
    settings
}

fn read_again(path: &Path) -> Result<Settings, String> {
    quick::read(path).map_err(|e| e.to_string())
}

fn up(plan: &Plan) {
    say(&plan.warnings);
    tracing::info!("link {} is up; end it with Ctrl-C or SIGTERM", plan.name);
}

/// What the file would have run.
fn passed_over(settings: &Settings) -> Vec<String> {
    let each =
        |(occasion, script)| format!("not run without --allow-scripts: {occasion} = {script}");
    settings.interface.hooks.all().map(each).collect()
}

/// Warnings are for people whatever the log level is.
fn say(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(io::stderr(), "warren: warning: {warning}");
    }
}
