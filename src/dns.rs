//! `warren dns`: which resolvers the nodes of a network ask for names that are not its own, and
//! names of its own that are no node's.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::admin::{Target, plain};
use crate::client::texts;

const PATH: &str = "/api/v1/dns";

/// Manage names that are no node's, and the resolvers that nodes ask; see docs/dns.md.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Show the resolvers, and the names that are no node's.
    Get {
        #[command(flatten)]
        target: Target,
    },
    /// Make exactly these the resolvers; what is left out is taken away.
    Set {
        #[command(flatten)]
        target: Target,
        /// Ask these for all names in no zone; none leaves them to those that each machine has
        #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
        upstream: Vec<IpAddr>,
        /// Ask these for a zone's names, as in corp.example=10.0.0.53; several with commas
        #[arg(long, value_name = "ZONE=ADDRESS", value_parser = split)]
        split: Vec<(String, Vec<IpAddr>)>,
        /// Take all of them away
        #[arg(long, conflicts_with_all = ["upstream", "split"],
              required_unless_present_any = ["upstream", "split"])]
        none: bool,
    },
    /// Give addresses a name in the network; one that is there gets these addresses and no others.
    Add {
        #[command(flatten)]
        target: Target,
        /// A name below the network's domain, as in nas or grafana.lab
        name: String,
        /// Its addresses, as in 10.7.0.10
        #[arg(required = true)]
        addresses: Vec<IpAddr>,
    },
    /// Take a name away that is no node's.
    Remove {
        #[command(flatten)]
        target: Target,
        /// The name
        name: String,
    },
}

/// Does what the words say.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Get { target } => target.open()?.ask("GET", PATH, &Value::Null, text),
        Words::Set { target, upstream, split, none: _ } => {
            let zone = |(zone, resolvers)| json!({ "zone": zone, "resolvers": resolvers });
            let zones: Vec<Value> = split.into_iter().map(zone).collect();
            let body = json!({ "upstreams": upstream, "zones": zones });
            target.open()?.ask("PUT", PATH, &body, text)
        }
        Words::Add { target, name, addresses } => change(target, &name, &addresses),
        Words::Remove { target, name } => change(target, &name, &[]),
    }
}

/// Gives a name these addresses, or takes it away where there are none.
fn change(target: Target, name: &str, addresses: &[IpAddr]) -> Result<()> {
    let mut session = target.open()?;
    let mut all = session.call("GET", PATH, &Value::Null)?;
    let domain = all["domain"].as_str().unwrap_or_default().to_owned();
    let records = all["records"].as_array_mut().context("the server is older and has no names")?;
    let is_it = |record: &Value| {
        let known = record["name"].as_str().unwrap_or_default();
        let asked = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        known == asked || known == format!("{asked}.{domain}")
    };
    let before = records.len();
    records.retain(|record| !is_it(record));
    if addresses.is_empty() && records.len() == before {
        bail!("there is no name {name:?}; `warren dns get` shows those that are no node's");
    }
    if !addresses.is_empty() {
        records.push(json!({ "name": name, "addresses": addresses }));
    }
    let [upstreams, zones, records] =
        ["upstreams", "zones", "records"].map(|field| all[field].clone());
    let body = json!({ "upstreams": upstreams, "zones": zones, "records": records });
    session.ask("PUT", PATH, &body, text)
}

fn split(text: &str) -> Result<(String, Vec<IpAddr>), String> {
    let wrong = || format!("{text:?} is no zone with resolvers; write corp.example=10.0.0.53");
    let (zone, resolvers) = text.split_once('=').ok_or_else(wrong)?;
    let resolvers: Result<Vec<IpAddr>, _> = resolvers.split(',').map(str::parse).collect();
    Ok((zone.to_owned(), resolvers.map_err(|_| wrong())?))
}

fn text(answer: &Value) -> String {
    let list = |values: &Value| texts(values).map(plain).collect::<Vec<_>>().join(", ");
    let upstreams = list(&answer["upstreams"]);
    let mut out =
        format!("{}: each node itself\n", plain(answer["domain"].as_str().unwrap_or("-")));
    for record in answer["records"].as_array().into_iter().flatten() {
        let name = plain(record["name"].as_str().unwrap_or("-"));
        out += &format!("{name}: is {}\n", list(&record["addresses"]));
    }
    for zone in answer["zones"].as_array().into_iter().flatten() {
        let name = plain(zone["zone"].as_str().unwrap_or("-"));
        out += &format!("{name}: {}\n", list(&zone["resolvers"]));
    }
    let everything = if upstreams.is_empty() { "what each machine had before" } else { &upstreams };
    out + &format!("everything else: {everything}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_read_as_people_write_them_and_shown_in_words() {
        let told = split("corp.example=10.0.0.53,fd00::53").unwrap();
        assert_eq!((told.0.as_str(), told.1.len()), ("corp.example", 2));
        for wrong in ["corp.example", "corp.example=", "corp.example=ns1", "=10.0.0.1,"] {
            assert!(split(wrong).unwrap_err().contains("write corp.example="), "{wrong}");
        }
        let zone = json!({ "zone": "corp\u{1b}", "resolvers": ["10.0.0.53", "fd00::53"] });
        let record = json!({ "name": "nas.warren.internal", "addresses": ["10.7.0.10"] });
        let answer = json!({ "domain": "warren.internal", "upstreams": [], "zones": [zone],
                             "records": [record] });
        let expected = "warren.internal: each node itself\nnas.warren.internal: is 10.7.0.10\n\
                        corp\u{fffd}: 10.0.0.53, fd00::53\n\
                        everything else: what each machine had before\n";
        assert_eq!(text(&answer), expected);
    }
}
