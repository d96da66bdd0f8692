//! What other kernels and cards refuse is done without, while it runs: each refusal is made by a
//! preloaded library, and then all kinds of traffic must pass, byte for byte.
//!
//! Issue 2, item 5: run-time fallback when an offload is refused (EIO, EINVAL, old kernels).

mod support;

use std::rc::Rc;

use support::{
    Daemon, Outer, Pair, Plan, Result, Sut, ensure, eventually, preload, scene, seconds, traffic,
};

/// Bytes of the stream each way whose every byte is compared.
const STREAM_LEN: u64 = 16 << 20;

/// Traffic through a pair whose first end meets `refusal`; the log must say each of `says`.
fn survives(id: &str, refusal: &str, says: &[&str]) -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: others may be linked statically");
        return Ok(());
    }
    scene(id, |scene| {
        let mut pair = Pair::with(scene, Plan { outer: Outer::Veth, ..Plan::default() })?;
        pair.one.daemon.process.stop()?;
        scene.forget(&pair.one.daemon);
        let library = preload::library(preload::REFUSING, &scene.net.borrow().dir())?;
        let (host, ifname) = (pair.one.host.clone(), pair.one.daemon.ifname.clone());
        let mut command = Sut::under_test().command(&host, &ifname);
        command.env("LOG_LEVEL", "debug").env("LD_PRELOAD", library).env("REFUSE", refusal);
        let daemon: Rc<Daemon> = Daemon::start_command(command, &host, &ifname)?;
        scene.watch(&daemon);
        let config = pair.one.config(&pair.two, pair.psk.as_deref(), Some(&pair.two.endpoint_v4()));
        daemon.set_config(&config)?;
        host.bring_up(&ifname, &["10.77.0.1/24", "fd77::1/64"])?;
        daemon.wait_bound(pair.one.port)?;
        pair.one.daemon = daemon;
        pair.settle()?;
        for v6 in [false, true] {
            if v6 {
                pair.use_ipv6()?;
            }
            let (one, two) = (&pair.one, &pair.two);
            eventually("pings are answered", seconds(5), || {
                one.ping_once(two.v6).is_ok() && two.ping_once(one.v4).is_ok()
            })?;
            for (from, to) in [(one, two), (two, one)] {
                traffic::tcp(&from.host, &to.host, to.v4, &[])?;
                traffic::udp(&from.host, &to.host, to.v6)?;
                for address in [to.v4, to.v6] {
                    traffic::udp_superpacket(&from.host, &to.host, address)?;
                }
            }
            traffic::exact_stream(&one.host, &two.host, two.v4, STREAM_LEN)?;
            traffic::exact_stream(&two.host, &one.host, one.v6, STREAM_LEN)?;
        }
        let log = pair.one.daemon.process.log();
        ensure!(log.contains("preloaded: refused"), "nothing was refused:\n{log}");
        for words in says {
            ensure!(log.contains(words), "{words:?} is not in the log:\n{log}");
        }
        Ok(())
    })
}

#[test]
fn a_card_that_refuses_units_with_eio_gets_datagrams() -> Result<()> {
    survives("o1", "EIO", &["segmentation offload refused; sending datagrams one by one"])
}

#[test]
fn units_refused_with_einval_go_out_cut() -> Result<()> {
    survives("o2", "EINVAL", &["segmentation=true"])
}

#[test]
fn an_old_kernel_without_any_offload_carries_all() -> Result<()> {
    let says = ["coalescing=false segmentation=false", "no superpackets"];
    survives("o3", "old", &says)
}

#[test]
fn a_kernel_without_udp_superpackets_carries_all() -> Result<()> {
    survives("o4", "uso", &["with superpackets of TCP name"])
}
