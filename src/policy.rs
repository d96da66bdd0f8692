//! `warren policy check FILE`: what a policy file says, without a server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ::policy::{Directory, Finding, Policy};
use anyhow::{Context, Result, bail};

/// Read and check policy files; see docs/policy.md for the language.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Tell a file's mistakes with their places, and run the tests in it.
    Check {
        /// The policy, in HuJSON.
        file: PathBuf,
        /// Users and nodes to check against, in HuJSON; without it, those that the file names.
        #[arg(long)]
        nodes: Option<PathBuf>,
    },
}

/// Does what the words say.
pub(crate) fn run(args: Args) -> Result<()> {
    let Words::Check { file, nodes } = args.command;
    let directory = match &nodes {
        None => Directory::default(),
        Some(path) => {
            let read = Directory::parse(&bytes(path)?);
            read.or_else(|faults| refuse(path, &faults))?
        }
    };
    let (policy, warnings) =
        Policy::parse(&bytes(&file)?).or_else(|faults| refuse(&file, &faults))?;
    for warning in &warnings {
        eprintln!("warning: {}:{warning}", file.display());
    }
    let compiled = ::policy::check(&policy, &directory);
    let compiled = compiled.or_else(|failures| refuse(&file, &failures))?;
    for route in compiled.refused_routes() {
        eprintln!("warning: node {} must not route {}", route.node.0, route.route);
    }
    let (rules, tests) = (policy.grants.len(), policy.tests.len());
    let text = format!("{}: {rules} rules, {tests} tests passed\n", file.display());
    Ok(std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?)
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Every mistake on a line of its own, as compilers tell them.
fn refuse<T>(path: &Path, findings: &[Finding]) -> Result<T> {
    let mut text = format!("{} is refused", path.display());
    for finding in findings {
        write!(text, "\n{}:{finding}", path.display())?;
    }
    bail!(text)
}
