//! `warren policy`: what a policy file says, without a server, and the policy of a server.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::policy::{Directory, Finding, Policy};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::admin::{Target, counted, finding};
use crate::client::say;

/// The longest policy that is read for a server, in bytes; the server takes less.
const TEXT_MAX: u64 = 16 * 1024 * 1024;

/// What the long help ends with.
const EXAMPLES: &str = "\
Examples:
  warren policy check policy.hujson     tell mistakes, and run the tests in the file
  warren policy set policy.hujson       check it, and have the server on this machine use it
  warren policy get > policy.hujson     what is used now";

/// Check policy files, and manage a server's policy; see docs/policy.md for the language.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
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
        /// Print JSON: `rules`, `tests`, `warnings[]`, and `faults[]` if it is refused
        #[arg(long)]
        json: bool,
    },
    /// Print the policy that a server has, as it was set.
    Get {
        #[command(flatten)]
        target: Target,
    },
    /// Tell a policy's mistakes, and run the tests in it, against a server's users and nodes.
    Test {
        #[command(flatten)]
        target: Target,
        /// The file, - is standard input [default: the policy that the server has]
        file: Option<PathBuf>,
    },
    /// Make a file a server's policy.
    Set {
        #[command(flatten)]
        target: Target,
        /// The file; - is standard input
        file: PathBuf,
        /// Only if this version still holds
        #[arg(long, value_name = "VERSION")]
        if_version: Option<u64>,
    },
}

/// Does what the words say.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Check { file, nodes, json } => check(&file, nodes, json),
        Words::Get { target } => {
            let mut session = target.open()?;
            session.ask("GET", "/api/v1/policy", &Value::Null, |answer| {
                answer["text"].as_str().unwrap_or_default().to_owned()
            })
        }
        Words::Set { target, file, if_version } => {
            let text = text(&file)?;
            let mut session = target.open()?;
            let body = json!({ "text": text, "if_version": if_version });
            let answer = session.call("PUT", "/api/v1/policy", &body)?;
            warn(&answer);
            session.print(&answer, |answer| {
                format!("version {} holds now, and every node is told\n", answer["version"])
            })
        }
        Words::Test { target, file } => test(target, file.as_deref()),
    }
}

/// Has the server judge a file, or the policy that it has.
fn test(target: Target, file: Option<&Path>) -> Result<()> {
    let mut session = target.open()?;
    let (text, is_unset) = match file {
        Some(file) => (json!(text(file)?), false),
        None => {
            let kept = session.call("GET", "/api/v1/policy", &Value::Null)?;
            (kept["text"].clone(), kept["version"] == 0)
        }
    };
    let answer = session.call("POST", "/api/v1/policy/check", &json!({ "text": text }))?;
    warn(&answer);
    session.print(&answer, |answer| {
        if is_unset {
            return "no policy is set: every node reaches every node; `warren policy set FILE` \
                    sets one\n"
                .to_owned();
        }
        let count = |name: &str, what: &str| counted(&answer[name], what);
        let [rules, tests, nodes] =
            [("rules", "rule"), ("tests", "test"), ("nodes", "node")].map(|(n, w)| count(n, w));
        format!("{rules}, {tests} passed, against {nodes}\n")
    })
}

/// A warning, on standard error: not eprintln, which panics where that is full or closed.
fn aside(warning: &str) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("warning: {warning}\n"));
}

/// What the server warns of, where it does not mix with the answer.
fn warn(answer: &Value) {
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        aside(finding(warning).trim_start());
    }
}

fn text(file: &Path) -> Result<String> {
    let told = || format!("cannot read the policy from {}", file.display());
    let mut text = String::new();
    if file.as_os_str() == "-" {
        let stdin = std::io::stdin().lock().take(TEXT_MAX);
        { stdin }.read_to_string(&mut text).with_context(told)?;
    } else {
        let opened = std::fs::File::open(file).with_context(told)?;
        opened.take(TEXT_MAX).read_to_string(&mut text).with_context(told)?;
    }
    Ok(text)
}

fn check(file: &Path, nodes: Option<PathBuf>, json: bool) -> Result<()> {
    let refuse = |path: &Path, faults: &[Finding]| -> Result<()> {
        if json {
            let faults = listed(faults);
            say(&format!("{:#}\n", json!({ "schema": 1, "refused": path, "faults": faults })))?;
        }
        refused(path, faults)
    };
    let directory = match &nodes {
        None => Directory::default(),
        Some(path) => match Directory::parse(&bytes(path)?) {
            Ok(directory) => directory,
            Err(faults) => return refuse(path, &faults),
        },
    };
    let (policy, mut warnings) = match Policy::parse(&bytes(file)?) {
        Ok(parsed) => parsed,
        Err(faults) => return refuse(file, &faults),
    };
    let compiled = match ::policy::check(&policy, &directory) {
        Ok(compiled) => compiled,
        Err(failures) => return refuse(file, &failures),
    };
    warnings.extend(compiled.remarks());
    warnings.sort_by_key(|finding| finding.place);
    let routes = compiled.refused_routes().iter();
    let routes = routes.map(|one| format!("node {} must not route {}", one.node.0, one.route));
    let routes: Vec<String> = routes.collect();
    let rules = policy.grants.len();
    let tests = policy.tests.len();
    if json {
        let answer = json!({
            "schema": 1, "refused": null, "faults": [], "rules": rules, "tests": tests,
            "warnings": listed(&warnings), "refused_routes": routes,
        });
        return say(&format!("{answer:#}\n"));
    }
    for warning in &warnings {
        aside(&format!("{}:{warning}", file.display()));
    }
    for route in &routes {
        aside(&route.to_string());
    }
    let [rules, tests] =
        [(rules, "rule"), (tests, "test")].map(|(n, what)| counted(&json!(n), what));
    say(&format!("{}: {rules}, {tests} passed\n", file.display()))
}

fn listed(findings: &[Finding]) -> Vec<Value> {
    let one = |found: &Finding| {
        let Finding { place, what, mend } = found;
        json!({ "line": place.line, "column": place.column, "what": what, "mend": mend })
    };
    findings.iter().map(one).collect()
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Every mistake on a line of its own, as compilers tell them.
fn refused(path: &Path, findings: &[Finding]) -> Result<()> {
    let mut text = format!("{} is refused", path.display());
    for finding in findings {
        write!(text, "\n{}:{finding}", path.display())?;
    }
    bail!(text)
}
