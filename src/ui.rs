//! `warren ui`: the web interface on this machine's loopback.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;

use anyhow::Result;
use serde_json::json;
use server::Loopback;

use crate::admin::Target;
use crate::client::say;

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  sudo warren ui                          at the server itself, through its local socket
  warren ui --token file:admin.token      anywhere else, with a token of `warren token create`
  ssh -L 8080:127.0.0.1:8080 SERVER sudo warren ui --port 8080";

/// Open the web interface on this machine: prints a link for a browser here.
///
/// Calls go to the server through its local socket, or sealed for the key that the token names, so
/// no certificate is needed. The link opens once and within ten minutes; press Enter for another.
/// Ends on SIGINT and SIGTERM, and every page with it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The port of 127.0.0.1 [default: any that is free]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
}

/// Serves until a signal.
pub(crate) fn run(args: Args) -> Result<()> {
    let is_json = args.target.json();
    let caller = args.target.caller()?;
    // What is wrong with the server or the token is told here, not in the page.
    caller.open()?.call("GET", "/api/v1/health", "")?;
    let user = caller.name();
    let carry = move |method: &str, path: &str, body: &str| {
        let mut admin = caller.open().map_err(|why| format!("{why:#}"))?;
        let reply = admin.call(method, path, body).map_err(|why| why.to_string())?;
        Ok((reply.status, reply.body))
    };
    let ui = Arc::new(Loopback::start(args.port, &user, Box::new(carry))?);
    let tell = move |ui: &Loopback| {
        let link = ui.link()?;
        say(&match is_json {
            true => json!({ "schema": 1, "link": link }).to_string() + "\n",
            false => format!("open {link}\n"),
        })
    };
    tell(&ui)?;
    if std::io::stdin().is_terminal() {
        let ui = Arc::clone(&ui);
        let again = move || {
            for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
                let _ = tell(&ui);
            }
        };
        std::thread::Builder::new().name("warren-enter".to_owned()).spawn(again)?;
    }
    Ok(ui.wait()?)
}
