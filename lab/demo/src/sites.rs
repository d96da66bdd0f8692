//! Three sites, one function for each part of what is shown: clouds that are played, a file, what
//! it brings up, who reaches whom, quality, a gateway that dies, and everything away again.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::sites::three::{self, MACHINES, NETWORK, Provider, RANGE, SERVER, Site, Three};
use lab::sites::{APPLY, NOTHING, Tools, command, serve};

use crate::Options;
use crate::report;
use crate::screen::time_text;
use crate::stage::{COMMAND_MAX, Stage};

/// The site whose gateway dies: the first, which has two.
const PAIR: usize = 0;

/// Lines of the summary: what, and how much.
type Summary = Vec<(String, String)>;

/// The hosts that are wanted, with what is here to play clouds.
pub(crate) fn topology(tools: &Path) -> Result<String> {
    Ok(three::topology(&three::sites(&Tools::find(tools))?))
}

/// All of it.
pub(crate) fn all(stage: &mut Stage<'_>, options: &Options) -> Result<Summary> {
    let tools = Tools::find(&options.tools);
    let sites = three::sites(&tools)?;
    let begin = Instant::now();
    let room = &stage.room;
    let mut three = Three::build(room.lab(), sites, tools, room.folder(), &options.program)?;
    let what = "servers of ssh and machines of clouds, all without Warren";
    stage.screen.done(what, Some(begin.elapsed()))?;
    let mut summary = Summary::new();
    open_server(stage)?;
    open(stage, &three)?;
    let before = three.census(stage.room.lab())?;
    show_file(stage)?;
    bring_up(stage, &mut three, &mut summary)?;
    matrix(stage, &three, &mut summary)?;
    quality(stage)?;
    again(stage, &mut summary)?;
    fail_over(stage, &mut three, &mut summary)?;
    away(stage, &three, &before, &mut summary)?;
    Ok(summary)
}

/// The server, at which gateways find each other.
fn open_server(stage: &mut Stage<'_>) -> Result<()> {
    stage.screen.heading("A server, which carries nothing of theirs")?;
    let begin = Instant::now();
    stage.stay("server", &serve(SERVER), "serving on")?;
    Ok(stage.screen.done("serving", Some(begin.elapsed()))?)
}

/// The clouds that can be played here, and the others told.
fn open(stage: &mut Stage<'_>, three: &Three) -> Result<()> {
    stage.screen.heading("Clouds that are played: their APIs, and their networks")?;
    for (provider, missing) in [
        (Provider::Aws, "moto is not here, which plays AWS: another site of ssh takes its place"),
        (Provider::Azure, "no Python here reads YAML: another site of ssh is there for Azure's"),
    ] {
        if !three.has(provider) {
            stage.screen.said(&format!("{missing}; `make demo-sites` installs it"))?;
        }
    }
    if !three.has(Provider::Aws) && !three.has(Provider::Azure) {
        return Ok(());
    }
    let begin = Instant::now();
    stage.run("server", "warren sites export --rights sites.toml > rights.json")?;
    for (host, line, ready) in three.to_start()? {
        stage.stay(&host, &line, ready)?;
    }
    three.opened()?;
    Ok(stage
        .screen
        .done("open; they refuse what these rights do not name", Some(begin.elapsed()))?)
}

/// The file, and its plan.
fn show_file(stage: &mut Stage<'_>) -> Result<()> {
    stage.screen.heading("One file says which sites there are")?;
    for line in ["cat sites.toml", "warren sites check sites.toml"] {
        let said = stage.run("server", line)?;
        stage.screen.said(&said)?;
    }
    Ok(())
}

/// Whether one machine reaches another.
fn reaches(stage: &Stage<'_>, from: &str, to: &str) -> bool {
    stage.ask(from, &format!("ping -n -q -c 1 -W 0.5 {to}")).is_ok()
}

/// How many steps of an `apply` are begun, and of how many, by what it printed.
fn progress(log: &str) -> Option<(u64, u64)> {
    let last = log.lines().rev().find(|line| line.starts_with('['))?;
    let words = last.strip_prefix('[')?.split([']', ',']).next()?;
    let (at, of) = words.split_once('/')?;
    Some((at.parse().ok()?, of.parse().ok()?))
}

/// Applies the file; what the clouds run starts. What was said last.
fn apply(stage: &mut Stage<'_>, three: &mut Three) -> Result<String> {
    stage.screen.command("server", &command(APPLY))?;
    let applied = three.apply(&stage.room, COMMAND_MAX, |process| {
        if let Some((at, of)) = progress(&process.log()) {
            stage.screen.progress("apply", at.saturating_sub(1), of)?;
        }
        Ok(())
    })?;
    stage.screen.clear_progress()?;
    let last = applied.said.lines().last().unwrap_or_default().to_owned();
    stage.screen.said(&last)?;
    Ok(last)
}

/// From nothing to three sites that are joined.
fn bring_up(stage: &mut Stage<'_>, three: &mut Three, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("It is brought up")?;
    let [one, other] = [&three.sites[1], &three.sites[PAIR]].map(Site::clone);
    let to = other.address(1);
    ensure!(!reaches(stage, &one.machine(1), &to), "{to} is reached with nothing between");
    let begin = Instant::now();
    let told = apply(stage, three)?;
    let time = begin.elapsed();
    stage.screen.done("three sites are made, and their gateways have joined", Some(time))?;
    summary.push(("three sites from nothing".into(), format!("{}, {told}", time_text(time))));
    Ok(())
}

/// Every application machine with its address.
fn machines(sites: &[Site]) -> Vec<(String, String)> {
    let of = |site: &Site| -> Vec<(String, String)> {
        (1..=MACHINES).map(|number| (site.machine(number), site.address(number))).collect()
    };
    sites.iter().flat_map(of).collect()
}

/// Waits until machines of each site reach all others.
fn until_joined(stage: &mut Stage<'_>, three: &Three) -> Result<()> {
    let all = machines(&three.sites);
    for (from, _) in &all {
        for (_, to) in &all {
            stage.wait_until(&format!("{from} reaches {to}"), |stage| {
                Ok(reaches(stage, from, to))
            })?;
        }
    }
    Ok(())
}

/// Who reaches whom, and how fast.
fn matrix(stage: &mut Stage<'_>, three: &Three, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("Application machines reach each other: the round trip")?;
    let begin = Instant::now();
    until_joined(stage, three)?;
    let all = machines(&three.sites);
    let cell = |text: &str| format!("{text:<13}");
    let mut rows = vec![cell("") + &all.iter().map(|(name, _)| cell(name)).collect::<String>()];
    let mut worst = Duration::ZERO;
    for (from, own) in &all {
        let mut row = cell(from);
        for (_, to) in &all {
            if to == own {
                row += &cell("·");
                continue;
            }
            let said = stage.ask(from, &format!("ping -n -q -c 3 -i 0.05 -W 2 {to}"))?;
            let time = report::average(&said)?;
            worst = worst.max(time);
            row += &cell(&time_text(time));
        }
        rows.push(row);
        let links = stage.ask(from, "ip -br link")?;
        ensure!(!links.contains("warren"), "{from} is to need nothing of Warren's:\n{links}");
    }
    stage.screen.said(&rows.join("\n"))?;
    let ways = all.len() * (all.len() - 1);
    let what = format!("{ways} of {ways} ways work, and no machine runs anything of Warren's");
    stage.screen.done(&what, Some(begin.elapsed()))?;
    let value = format!("{ways} of {ways}, the slowest {}", time_text(worst));
    summary.push(("ways between machines".into(), value));
    Ok(())
}

/// The map of quality.
fn quality(stage: &mut Stage<'_>) -> Result<()> {
    stage.screen.heading("The map of quality, as the gateways' links measure it")?;
    let said = stage.run("server", &command("quality"))?;
    stage.screen.said(&said)?;
    let found = said.lines().filter(|line| line.contains(&format!("{NETWORK}-"))).count();
    ensure!(found > 0, "no path is measured:\n{said}");
    Ok(stage.screen.done(&format!("{found} directed paths"), None)?)
}

/// The same once more, which changes nothing.
fn again(stage: &mut Stage<'_>, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("The same once more")?;
    let begin = Instant::now();
    let said = stage.run("server", &command(APPLY))?;
    let time = begin.elapsed();
    stage.screen.said(&said)?;
    ensure!(said.contains(NOTHING), "a second apply changes something:\n{said}");
    stage.screen.done("it changes nothing", Some(time))?;
    summary.push(("again".into(), format!("{}, {NOTHING}", time_text(time))));
    Ok(())
}

/// A gateway's program dies, the other one takes over, and `apply` mends it.
fn fail_over(stage: &mut Stage<'_>, three: &mut Three, summary: &mut Summary) -> Result<()> {
    stage.screen.heading("A gateway dies")?;
    let [pair, other] = [&three.sites[PAIR], &three.sites[1]].map(Site::clone);
    let show = format!("ip route show {RANGE}");
    let before = stage.ask(&pair.machine(1), &show)?;
    // A pair that shares an address needs no command; else machines are told whom to use.
    let is_told = before.contains(&format!("via {}.254", pair.net));
    let fail_over = command(&format!("failover {}", pair.name));
    stage.run(&pair.gateway(1), "kill -9 $(cat /run/warren-site.pid)")?;
    let begin = Instant::now();
    let ends = [(other.machine(1), pair.address(1)), (pair.machine(1), other.address(1))];
    ensure!(!reaches(stage, &ends[1].0, &ends[1].1), "a site is reached without a gateway");
    stage.screen.done(&format!("{} reaches no other site any more", pair.machine(1)), None)?;
    if is_told {
        stage.run("server", &fail_over)?;
    }
    for (from, to) in &ends {
        stage.wait_until(&format!("{from} reaches {to}"), |stage| Ok(reaches(stage, from, to)))?;
    }
    let time = begin.elapsed();
    stage.screen.done("machines reach each other through the second gateway", Some(time))?;
    let route = stage.run(&pair.machine(1), &show)?;
    stage.screen.said(&route)?;
    summary.push(("a gateway dies".into(), format!("{} until all is reached", time_text(time))));
    let begin = Instant::now();
    apply(stage, three)?;
    // Each other site goes back to the first by itself or not, and machines only when told: until
    // then there are ways that do not work.
    if !is_told {
        until_joined(stage, three)?;
    }
    Ok(stage.screen.done("apply has started it again", Some(begin.elapsed()))?)
}

/// Everything of ours away, and nothing else.
fn away(
    stage: &mut Stage<'_>,
    three: &Three,
    before: &[String],
    summary: &mut Summary,
) -> Result<()> {
    stage.screen.heading("Taken away")?;
    let begin = Instant::now();
    let said = stage.run("server", &command("destroy --yes"))?;
    let time = begin.elapsed();
    let last = said.lines().last().context("destroy said nothing")?.to_owned();
    stage.screen.said(&last)?;
    let nodes = stage.run("server", "warren node list --data .")?;
    ensure!(!nodes.contains(&format!("{NETWORK}-")), "nodes are left:\n{nodes}");
    let after = three.census(stage.room.lab())?;
    ensure!(after == before, "clouds had {before:?}, and have {after:?}");
    let all = machines(&three.sites);
    let apart = usize::from(MACHINES);
    ensure!(!reaches(stage, &all[apart].0, &all[0].1), "machines are still joined");
    stage.screen.done("clouds have what they had before, and the server no node", Some(time))?;
    summary.push(("taken away".into(), format!("{}, {last}", time_text(time))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_of_the_last_step() {
        assert_eq!(progress("[1/27] create a\n[12/27, 5 s left] create b\n"), Some((12, 27)));
        assert_eq!(progress("[x/27] create"), None);
        assert_eq!(progress("27 steps are done"), None);
    }
}
