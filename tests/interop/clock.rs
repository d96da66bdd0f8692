//! Source 004.5, statement 12, and threats LC-04, LC-05: a wall clock that jumps.
//!
//! Only the wall clock of one end jumps, by a library that is preloaded; the kernel's timers and
//! the other end know nothing of it. Statically linked programs do not notice.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::link::Link;
use crate::support::pair::INNER_V4;
use crate::support::{Result, Scene, ensure, eventually, preload, scene, seconds, traffic};

const HOUR_S: i64 = 3600;

/// Compiles the library and returns its path.
fn library(dir: &Path) -> Result<String> {
    preload::library("tests/interop/wallclock.rs", dir)
}

/// A link whose first end's wall clock is wrong by what the returned function is told.
fn with_clock<'a>(scene: &'a Scene) -> Result<(Link<'a>, impl Fn(i64) -> Result<()>)> {
    let dir = scene.net.borrow().dir();
    let file = dir.join("offset");
    let link = Link::new(scene, 1420, false)?;
    link.env.borrow_mut().extend([
        ("LD_PRELOAD".to_owned(), library(&dir)?),
        ("WALLCLOCK_FILE".to_owned(), file.to_string_lossy().into_owned()),
    ]);
    std::fs::write(&file, "0")?;
    link.start(0)?;
    link.env.borrow_mut().clear();
    link.start(1)?;
    link.settle()?;
    let set = move |offset_s: i64| Ok(std::fs::write(&file, offset_s.to_string())?);
    Ok((link, set))
}

#[test]
fn the_preloaded_clock_is_wrong_as_told() -> Result<()> {
    scene("c00", |scene| {
        let dir = scene.net.borrow().dir();
        let file = dir.join("offset");
        std::fs::write(&file, "-3600")?;
        let date = |library: &str| -> Result<i64> {
            let output = Command::new("date")
                .arg("+%s")
                .env("LD_PRELOAD", library)
                .env("WALLCLOCK_FILE", &file)
                .output()?;
            Ok(String::from_utf8(output.stdout)?.trim().parse()?)
        };
        // Compiled before either date is asked for: on a busy machine that takes seconds.
        let library = library(&dir)?;
        let off_s = date("")? - date(&library)?;
        ensure!((HOUR_S - 3..=HOUR_S + 3).contains(&off_s), "it is off by {off_s} s");
        Ok(())
    })
}

#[test]
fn source_004_12_a_clock_set_back_an_hour_interrupts_nothing() -> Result<()> {
    scene("c01", |scene| {
        let (link, set_clock) = with_clock(scene)?;
        let [one, two] = &link.hosts;
        let pace = Duration::from_millis(2);
        let up = traffic::Numbered::start(one, two, INNER_V4[1], pace)?;
        let down = traffic::Numbered::start(two, one, INNER_V4[0], pace)?;
        for offset_s in [-HOUR_S, HOUR_S, -HOUR_S, 0, -40 * 365 * 24 * HOUR_S] {
            set_clock(offset_s)?;
            sleep(Duration::from_millis(500));
        }
        for stream in [up, down] {
            let (sent, lost) = stream.stop()?;
            ensure!(lost.is_empty(), "of {sent} datagrams these were lost: {lost:?}");
        }
        Ok(())
    })
}

/// The other end has seen later timestamps than the clock now gives (CVE-2021-46873).
#[test]
fn a_clock_set_back_an_hour_does_not_prevent_a_new_session() -> Result<()> {
    scene("c02", |scene| {
        let (link, set_clock) = with_clock(scene)?;
        set_clock(-HOUR_S)?;
        let ifname = link.ifname(0);
        // Going down forgets the sessions, so the next packet needs a new handshake.
        link.hosts[0].sh(&format!("ip link set {ifname} down"))?;
        sleep(Duration::from_millis(500));
        link.hosts[0].sh(&format!("ip link set {ifname} up"))?;
        eventually("a new session is made", seconds(8), || link.ping(0).is_ok())?;
        link.ping(1)
    })
}

#[test]
#[ignore = "soak: 140 s"]
fn a_clock_set_back_an_hour_does_not_prevent_the_next_session() -> Result<()> {
    scene("c03", |scene| {
        let (link, set_clock) = with_clock(scene)?;
        let pinger = traffic::Pinger::start(&link.hosts[0], INNER_V4[1], 20)?;
        set_clock(-HOUR_S)?;
        // Past the time at which the first session may not be used any more.
        sleep(seconds(190));
        let pings = pinger.stop()?;
        ensure!(pings.lost() == 0, "of {} pings {} were lost", pings.sent, pings.lost());
        Ok(())
    })
}
