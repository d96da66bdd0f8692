//! `warren sites`: clouds and edges that are joined through gateways, from one file.

mod inventory;
mod show;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clouds::{Authority, Locks, Program, Server, Ssh, Survey, Work};
use serde_json::{Value, json};
use sites::{Action, Backend, File, Known, Mistake, Numbering, Step, Taken, Topology};

use crate::admin::{Session, Target};
use crate::client::say;

/// Join whole sites through gateways: what a file says is planned, made and taken away.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Args)]
struct On {
    #[command(flatten)]
    target: Target,
    /// The site file
    file: PathBuf,
    /// This site and no other
    #[arg(long, value_name = "SITE")]
    only: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// Read the file and show the numbering plan; nobody is asked.
    Check {
        /// The site file
        file: PathBuf,
        /// As JSON, in a stable schema
        #[arg(long)]
        json: bool,
    },
    /// Show what `apply` would do, and why; nothing is changed.
    Plan(On),
    /// Make everything as the file says. What is so already stays untouched.
    Apply {
        #[command(flatten)]
        on: On,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Take away everything that was made, and nothing else.
    Destroy {
        #[command(flatten)]
        on: On,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Show the gateways as they are.
    Status(On),
    /// Show round trips, loss and available bandwidth of directed paths between gateways that `ssh`
    /// reaches.
    Quality {
        #[command(flatten)]
        on: On,
        /// Have the gateway of one site measure what its path to another has left, for a minute at
        /// most
        #[arg(long, num_args = 2, value_names = ["FROM", "TO"])]
        measure: Vec<String>,
        /// What each path was like in the last days, up to 30, as the server keeps it
        #[arg(long, value_name = "DAYS", conflicts_with = "measure",
              value_parser = clap::value_parser!(u8).range(1..=30))]
        history: Option<u8>,
    },
    /// Have a site's machines use the other gateway of its pair.
    Failover {
        #[command(flatten)]
        target: Target,
        /// The site
        site: String,
        /// The site file
        file: PathBuf,
    },
    /// Print what others' tools read.
    Export {
        /// The least rights that the sites need at their providers, as a policy document
        #[arg(long, value_name = "FILE", required_unless_present = "terraform")]
        rights: Option<PathBuf>,
        /// The same sites as a file of Terraform or OpenTofu (`.tf.json`)
        #[arg(long, value_name = "FILE", conflicts_with = "rights")]
        terraform: Option<PathBuf>,
    },
    /// Print the machines as an inventory of Ansible.
    Inventory {
        /// The site file
        file: PathBuf,
    },
}

/// Does what was asked for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Check { file, json } => {
            let (file, numbering) = check(&file)?;
            let value = show::plan(&file, &numbering, &[]);
            say(&if json { format!("{value}\n") } else { show::numbers(&file, &numbering) })
        }
        Words::Plan(on) => plan(on),
        Words::Apply { on, yes } => work(on, yes, true),
        Words::Destroy { on, yes } => work(on, yes, false),
        Words::Status(on) => {
            let (scene, session) = Scene::open(on)?;
            let value = show::status(&scene.file, &scene.numbering, &scene.survey);
            session.print(&value, show::status_text)
        }
        Words::Quality { on, history: Some(days), .. } => history(on, days),
        Words::Quality { on, measure, .. } => quality(on, &measure),
        Words::Failover { target, site, file } => failover(target, site, file),
        Words::Export { rights, terraform } => export(rights, terraform),
        Words::Inventory { file: path } => {
            let (file, numbering) = check(&path)?;
            let config = ssh_config(&path, &file);
            let all = inventory::inventory(&file, &numbering, config.as_deref())?;
            say(&format!("{all:#}\n"))
        }
    }
}

/// Shows all paths, or measures one and shows that.
fn quality(on: On, ends: &[String]) -> Result<()> {
    let (scene, session) = Scene::open(on)?;
    let file = &scene.file;
    let mut value = show::quality(file, &scene.survey);
    if let [from, to] = ends {
        let [from, to] = [from, to].map(|name| {
            let at = file.index(name);
            at.with_context(|| format!("there is no site {name:?} in the file"))
        });
        let from = from?;
        let to = to?;
        ensure!(from != to, "a site has no path to itself; name two sites");
        let told = clouds::measure(file, &scene.ssh, from, to)?;
        show::measured(&mut value, [from, to].map(|at| sites::node_name(file, at, 0)), &told);
    }
    session.print(&value, show::quality_text)
}

/// Shows what paths were like.
fn history(on: On, days: u8) -> Result<()> {
    let (file, _) = read(&on.file)?;
    let mut session = on.target.open()?;
    let told = session.call("GET", &format!("/api/v1/paths?days={days}"), &Value::Null)?;
    let nodes = session.call("GET", "/api/v1/nodes", &Value::Null)?;
    let value = show::history(&file, &told, &nodes);
    session.print(&value, show::history_text)
}

/// Prints what others' tools read.
fn export(rights: Option<PathBuf>, terraform: Option<PathBuf>) -> Result<()> {
    if let Some(path) = rights {
        let (file, _) = read(&path)?;
        let rights = clouds::rights(&file);
        let rights = rights.context("no provider of the file has rights that are printed")?;
        say(&format!("{rights:#}\n"))?;
    }
    if let Some(path) = terraform {
        let (file, numbering) = check(&path)?;
        ensure!(
            file.topology == Topology::Mesh,
            "the gateways of a star or a tree learn it from `warren sites apply`; write \
             topology = \"mesh\""
        );
        ensure!(
            file.sites.iter().all(|site| site.backend == Backend::Warren),
            "gateways with strongSwan or OpenVPN are made by `warren sites apply`"
        );
        let whole = clouds::terraform(&file, &numbering, &Program::this()?.digest);
        say(&format!("{whole:#}\n"))?;
    }
    Ok(())
}

/// A server's API as the sites need it.
struct Calls<'s>(&'s mut Session);

impl Server for Calls<'_> {
    fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        self.0.call(method, path, body).map_err(|error| format!("{error:#}"))
    }
}

/// All mistakes of a file as one error.
fn told(path: &Path, mistakes: &[Mistake]) -> anyhow::Error {
    let lines: Vec<String> = mistakes.iter().map(|m| format!("\n{}:{m}", path.display())).collect();
    anyhow::anyhow!("the site file has mistakes:{}", lines.concat())
}

fn read(path: &Path) -> Result<(File, String)> {
    let len = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
    ensure!(len <= sites::FILE_BYTES_MAX as u64, "{}: it is too long", path.display());
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file = File::read(&text).map_err(|mistakes| told(path, &mistakes))?;
    Ok((file, text))
}

fn check(path: &Path) -> Result<(File, Numbering)> {
    let (file, text) = read(path)?;
    let numbering =
        Numbering::new(&file, &text, &Taken::new()).map_err(|mistakes| told(path, &mistakes))?;
    Ok((file, numbering))
}

/// What `ssh` reads instead of the user's own settings, if the file says so.
fn ssh_config(path: &Path, file: &File) -> Option<PathBuf> {
    let beside = path.parent().unwrap_or_else(|| Path::new("."));
    file.ssh_config.as_ref().map(|config| beside.join(config))
}

/// The file, and what is there now.
struct Scene {
    file: File,
    numbering: Numbering,
    survey: Survey,
    ssh: Ssh,
    only: Option<String>,
    /// Where the key lies by which gateways of other backends get certificates.
    authority: PathBuf,
}

impl Scene {
    fn open(on: On) -> Result<(Self, Session)> {
        let (file, text) = read(&on.file)?;
        let only = on.only;
        if let Some(only) = &only {
            ensure!(file.site(only).is_some(), "there is no site {only:?} in the file");
        }
        let beside = on.file.parent().unwrap_or_else(|| Path::new("."));
        let ssh = Ssh::new(ssh_config(&on.file, &file).as_deref())?;
        let mut session = on.target.open()?;
        let survey = Survey::take(&file, &ssh, &mut Calls(&mut session))?;
        let taken = survey.taken(&file);
        let numbering =
            Numbering::new(&file, &text, &taken).map_err(|mistakes| told(&on.file, &mistakes))?;
        let authority = beside.join(format!("{}-authority.pem", file.network));
        Ok((Self { file, numbering, survey, ssh, only, authority }, session))
    }

    /// Whose certificates gateways of other backends have; it is made when it is first needed.
    fn authority(&self) -> Result<Option<Authority>> {
        let is_needed = self.file.sites.iter().any(|site| site.backend != Backend::Warren);
        let open = || Authority::open(&self.authority, &self.file.network);
        Ok(is_needed.then(open).transpose()?)
    }

    /// What is known beside the file. One that asks does not make an authority.
    fn known(&self, program: &Program) -> Result<Known> {
        let authority = if self.authority.exists() { self.authority()? } else { None };
        let mark = authority.map(|authority| authority.mark()).unwrap_or_default();
        Ok(self.survey.known(&self.file, &self.numbering, &program.digest, &mark))
    }

    /// A number that nobody answered for must not be given to another site.
    fn know_numbers(&self) -> Result<()> {
        let taken = self.survey.taken(&self.file);
        let Some((_, error)) = self.survey.unreachable.first() else { return Ok(()) };
        for site in &self.file.sites {
            let is_known = site.number.is_some()
                || taken.contains_key(&(site.provider.word(), site.name.clone()))
                || !(site.subnets.is_empty() || site.alias);
            let is_meant = self.only.as_ref().is_none_or(|only| *only == site.name);
            ensure!(
                is_known || !is_meant,
                "{} has no number of the plan yet, and not everybody could be asked which are \
                 free: {error}; mend that, or give it number = N",
                site.name
            );
        }
        Ok(())
    }

    /// What is different from what the file wants, or from nothing at all.
    fn steps(&self, wanted: bool, known: &Known) -> Result<Vec<Step>> {
        let desired = match wanted {
            true => sites::desired(&self.file, &self.numbering, known),
            false => Vec::new(),
        };
        let report = self.survey.report(&self.file, &self.numbering).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(|error| format!("\n{error}")).collect();
            anyhow::anyhow!("gateways are not in their sites:{}", lines.concat())
        })?;
        Ok(sites::steps(&desired, &report, self.only.as_deref()))
    }

    /// Machines that did not answer and would be needed.
    fn silent(&self) -> Vec<String> {
        let all = self.survey.unreachable.iter();
        let meant = all.filter(|(site, _)| self.only.as_ref().is_none_or(|only| only == site));
        meant.map(|(_, error)| format!("\n{error}")).collect()
    }
}

/// What this program cannot make yet, each with a reason.
fn unable(file: &File, only: Option<&str>) -> Vec<String> {
    let mut unable = Vec::new();
    let first = file.sites.first();
    let other = first.and_then(|one| file.sites.iter().find(|site| site.backend != one.backend));
    if let Some([one, other]) = first.zip(other).map(|(one, other)| [one, other]) {
        unable.push(format!(
            "backend: all sites of a file have the same one; {} has {} and {} has {}",
            one.name,
            one.backend.word(),
            other.name,
            other.backend.word()
        ));
    }
    for site in file.sites.iter().filter(|site| only.is_none_or(|only| site.name == only)) {
        let why = match site.backend {
            Backend::Warren => continue,
            _ if site.gateways > 1 => "a pair of gateways runs Warren",
            _ if site.alias => "an alias is rewritten by Warren",
            _ => continue,
        };
        unable.push(format!("{}: {why}; write backend = \"warren\"", site.name));
    }
    unable
}

fn plan(on: On) -> Result<()> {
    let (scene, session) = Scene::open(on)?;
    let program = Program::this()?;
    let known = scene.known(&program)?;
    let steps = scene.steps(true, &known)?;
    let mut notes = unable(&scene.file, scene.only.as_deref());
    notes.extend(scene.silent());
    let mut value = show::plan(&scene.file, &scene.numbering, &steps);
    value["unable"] = json!(notes);
    value["month"] = show::month(&scene.file);
    session.print(&value, |_| {
        let notes: String = notes.iter().map(|note| format!("cannot: {}\n", note.trim())).collect();
        show::numbers(&scene.file, &scene.numbering)
            + &show::steps(&steps)
            + &show::month_text(&scene.file)
            + &notes
    })
}

fn work(on: On, yes: bool, wanted: bool) -> Result<()> {
    let (mut scene, mut session) = Scene::open(on)?;
    let program = Program::this()?;
    let silent = scene.silent();
    if wanted {
        let unable = unable(&scene.file, scene.only.as_deref());
        ensure!(unable.is_empty(), "nothing was done:\n{}", unable.join("\n"));
        ensure!(
            silent.is_empty(),
            "nothing was done, for these do not answer:{}\n--only SITE leaves others out",
            silent.concat()
        );
        scene.know_numbers()?;
        scene.authority()?;
    }
    let known = scene.known(&program)?;
    let steps = scene.steps(wanted, &known)?;
    run_steps(&mut scene, &mut session, &program, &known, &steps, yes)?;
    ensure!(silent.is_empty(), "these do not answer, so what they have stays:{}", silent.concat());
    Ok(())
}

/// Asks, does the steps in their order, many machines at once, and says how it goes.
fn run_steps(
    scene: &mut Scene,
    session: &mut Session,
    program: &Program,
    known: &Known,
    steps: &[Step],
    yes: bool,
) -> Result<()> {
    let refused: Vec<String> = steps
        .iter()
        .filter(|step| step.action == Action::Refuse)
        .map(|step| format!("\n{step}"))
        .collect();
    ensure!(refused.is_empty(), "nothing was done:{}", refused.concat());
    if !yes && !steps.is_empty() {
        ask(&show::steps(steps))?;
    }
    let begin = Instant::now();
    let authority = scene.authority()?;
    let mut locks = Locks::take(&mut scene.survey.clouds, steps)?;
    let mut done = Ok(());
    let mut at = 0;
    while done.is_ok() && at < steps.len() {
        let Scene { file, numbering, ssh, survey, .. } = &mut *scene;
        locks.renew(&mut survey.clouds);
        let mut calls = Calls(session);
        let server = &mut calls;
        let clouds = &mut survey.clouds;
        let authority = authority.as_ref();
        let mut work = Work { file, numbering, ssh, server, clouds, program, authority, known };
        let some = &steps[at..at + work.at_once(&steps[at..])];
        let left = (at > 0).then(|| begin.elapsed().div_f64(at as f64) * (steps.len() - at) as u32);
        let left = left.map_or_else(String::new, |left| format!(", {} s left", left.as_secs() + 1));
        for (step, n) in some.iter().zip(at + 1..) {
            // Progress goes to standard error, so that output stays what scripts read.
            let _ = writeln!(std::io::stderr(), "[{n}/{}{left}] {step}", steps.len());
        }
        done = work.steps(some).with_context(|| {
            format!("{at} of {} steps are done; the next apply goes on from here", steps.len())
        });
        at += some.len();
    }
    locks.release(&mut scene.survey.clouds);
    done?;
    let mut value = show::plan(&scene.file, &scene.numbering, steps);
    value["done"] = json!(steps.len());
    value["seconds"] = json!(begin.elapsed().as_secs_f64());
    session.print(&value, |_| match steps.len() {
        0 => "nothing is to be done\n".to_owned(),
        count => format!("{count} steps are done\n"),
    })
}

fn ask(plan: &str) -> Result<()> {
    ensure!(std::io::stdin().is_terminal(), "there is nobody to ask; say --yes\n{plan}");
    let _ = write!(std::io::stderr(), "{plan}Do this? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("no answer")?;
    ensure!(matches!(answer.trim(), "y" | "yes"), "nothing was done");
    Ok(())
}

fn failover(target: Target, site: String, file: PathBuf) -> Result<()> {
    let on = On { target, file, only: Some(site.clone()) };
    let (mut scene, mut session) = Scene::open(on)?;
    let program = Program::this()?;
    let mut known = scene.known(&program)?;
    let is_pair = scene.file.site(&site).is_some_and(|site| site.gateways == 2);
    if !is_pair {
        bail!("{site} has one gateway, so there is no other; gateways = 2 makes a pair");
    }
    let place = scene.file.index(&site).and_then(|index| scene.numbering.places.get(index));
    if let Some(shared) = place.and_then(|place| place.shared) {
        scene.survey.give_way(&scene.file, &scene.ssh, &site)?;
        return say(&format!("the other gateway of {site} has {shared} now\n"));
    }
    let now = known.active.get(&site).copied().unwrap_or(0);
    known.active.insert(site, 1 - now);
    let mut steps = scene.steps(true, &known)?;
    steps.retain(|step| step.id.kind == sites::Kind::Route);
    run_steps(&mut scene, &mut session, &program, &known, &steps, true)
}
