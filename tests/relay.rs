//! Two nodes that have nothing but a TCP connection to a relay each: no route to each other, and
//! all UDP dropped.

#[path = "support/mod.rs"]
mod support;

#[path = "relay/behind.rs"]
mod behind;
#[path = "relay/choice.rs"]
mod choice;
#[path = "relay/daemons.rs"]
mod daemons;
#[path = "relay/pings.rs"]
mod pings;
#[path = "relay/quic.rs"]
mod quic;
#[path = "relay/stage.rs"]
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stage::{ADDRESSES, Stage};
use support::scene::scene_alone;
use support::{
    Context as _, Host, Result, ensure, eventually, inside, scene, seconds, traffic, turn,
};

/// Megabits a second of one TCP stream between the nodes.
fn rate(stage: &Stage, options: &[&str]) -> Result<f64> {
    let mut all = vec!["-Z", "-t", "2", "-O", "1", "-C", "cubic"];
    all.extend(options);
    let report = traffic::iperf(&stage.nodes[0].host, &stage.nodes[1].host, ADDRESSES[1], &all)?;
    Ok(traffic::received_bits_s(&report) / 1e6)
}

#[test]
fn source_000_5_1_with_udp_dropped_two_nodes_exchange_icmp_tcp_and_udp_both_ways() -> Result<()> {
    scene("rl1", |scene| {
        let stage = Stage::new(scene, 1)?;
        let [a, b] = &stage.nodes;
        stage.ping()?;
        for (from, to, address) in
            [(&a.host, &b.host, ADDRESSES[1]), (&b.host, &a.host, ADDRESSES[0])]
        {
            from.run(&["ping", "-c", "20", "-i", "0.02", "-W", "2", address])?;
            traffic::exact_stream(from, to, address, 20_000_000)?;
            let report = traffic::iperf(from, to, address, &["-u", "-b", "20M", "-t", "2"])?;
            let lost = report["end"]["sum"]["lost_percent"].as_f64().unwrap_or(100.0);
            ensure!(lost < 5.0, "{lost} % of UDP at 20 Mbit/s was lost");
        }
        for node in &stage.nodes {
            let outside = node.host.run(&["nft", "list", "table", "inet", "nothing"])?;
            ensure!(outside.contains("udp"), "UDP is dropped: {outside}");
            let status = node.relays()?;
            ensure!(status.len() == 1 && status[0].relay == 0, "{status:?}");
            let rtt_us = status[0].rtt_us.unwrap_or(u64::MAX);
            ensure!(rtt_us < 200_000, "a round trip to the relay of {rtt_us} µs");
        }
        Ok(())
    })
}

#[test]
fn source_000_5_2_daemons_reach_each_other_by_the_relay_alone_and_status_says_so() -> Result<()> {
    scene("rl5", daemons::daemons_by_the_relay_alone)
}

#[test]
fn source_000_3_4_rl_12_where_udp_443_passes_quic_carries_and_https_goes_on_when_it_is_cut()
-> Result<()> {
    scene("rl7", quic::quic_until_it_is_cut)
}

#[test]
fn where_only_pings_pass_a_node_joins_by_them_and_climbs_back() -> Result<()> {
    scene("rlp1", pings::pings_until_the_filter_goes)
}

#[test]
fn one_connection_goes_on_by_udp_quic_https_and_ping() -> Result<()> {
    scene("rlp2", pings::one_connection_over_every_carrier)
}

#[test]
fn who_may_open_no_raw_socket_pings_where_its_group_may() -> Result<()> {
    scene("rlp3", pings::a_ping_socket_without_rights)
}

#[test]
fn source_000_3_4_a_network_without_udp_costs_no_more_than_the_head_start() -> Result<()> {
    scene("rl8", quic::no_more_than_the_head_start)
}

#[test]
fn what_is_lost_on_the_way_to_a_relay_is_repaired() -> Result<()> {
    scene_alone("rl12", quic::repair_over_lines_that_lose)
}

#[test]
fn rl_05_rl_15_thousands_of_half_open_connections_of_quic_cost_a_bounded_memory() -> Result<()> {
    scene("rl10", quic::half_open_connections_are_bounded)
}

#[test]
#[ignore = "soak"]
fn rl_15_half_a_million_half_open_connections_of_quic_do_not_add_up() -> Result<()> {
    scene("rl11", quic::half_open_connections_do_not_add_up)
}

/// Prints round trips beside load where datagrams are lost, for docs/measurements.
#[test]
#[ignore = "a measurement of two minutes"]
fn round_trips_under_load_and_loss_by_https_and_by_quic() -> Result<()> {
    scene_alone("rl9", quic::round_trips_under_load)
}

#[test]
fn source_000_5_5_rl_12_rl_14_the_nearest_relay_is_used_and_the_next_when_it_is_killed()
-> Result<()> {
    let _turn = turn::shared();
    choice::the_nearest_of_three()
}

/// One exact transfer after the other, until it is told to stop.
struct Transfers {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Transfers {
    fn start(hosts: [Host; 2]) -> Self {
        const MB: u64 = 100;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                traffic::exact_stream(&hosts[0], &hosts[1], ADDRESSES[1], MB * 1_000_000)?;
                sent += MB;
            }
            Ok(sent)
        });
        Self { stop, thread }
    }

    /// Megabytes that arrived, every byte as it was sent; whatever was lost on the way is an error.
    fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        inside::join(self.thread)
    }
}

#[test]
fn rl_12_a_relay_killed_mid_transfer_and_started_again_loses_no_byte() -> Result<()> {
    scene("rl2", |scene| {
        let mut stage = Stage::new(scene, 1)?;
        stage.ping()?;
        let hosts = [stage.nodes[0].host.clone(), stage.nodes[1].host.clone()];
        let transfers = Transfers::start(hosts);
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(500));
            stage.kill_relay(0)?;
            stage.start_relay(0)?;
            let back = Instant::now();
            eventually("streams are back", seconds(10), || stage.is_connected())?;
            println!("back {:?} after the relay's start", back.elapsed());
        }
        println!("{} MB with two kills", transfers.stop()?);
        Ok(())
    })
}

#[test]
fn rl_12_when_a_relay_dies_nodes_move_to_another_within_3_s() -> Result<()> {
    scene("rl4", |scene| {
        let mut stage = Stage::new(scene, 2)?;
        stage.ping()?;
        let hosts = [stage.nodes[0].host.clone(), stage.nodes[1].host.clone()];
        let transfers = Transfers::start(hosts);
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(700));
            let relay = stage.nodes[0].relay()?.context("it is reached over a relay")?;
            let dead = usize::try_from(relay)?;
            stage.kill_relay(dead)?;
            let begin = Instant::now();
            let host = &stage.nodes[0].host;
            eventually("an echo by the other relay", seconds(10), || {
                host.run(&["ping", "-c", "1", "-W", "0.2", ADDRESSES[1]]).is_ok()
            })?;
            let moved = begin.elapsed();
            println!("relay {relay} was killed; an echo came {moved:?} later");
            ensure!(moved < seconds(3), "{moved:?}");
            let now = stage.nodes[0].relay()?;
            ensure!(now.is_some_and(|now| now != relay), "over {now:?}");
            stage.start_relay(dead)?;
            eventually("its streams are back", seconds(10), || stage.is_connected())?;
        }
        println!("{} MB with two relays killed", transfers.stop()?);
        Ok(())
    })
}

/// Prints what one stream gets, for the figures in docs/measurements; the bound is a loose one.
#[test]
fn one_stream_over_a_relay_gets_a_share_of_the_machine() -> Result<()> {
    scene_alone("rl3", |scene| {
        let stage = Stage::new(scene, 1)?;
        stage.ping()?;
        for options in [&[][..], &["-R"], &["-P", "4"]] {
            println!("{options:?}: {:.0} Mbit/s", rate(&stage, options)?);
        }
        stage.limit("1gbit")?;
        let limited = rate(&stage, &[])?;
        println!("at 1 Gbit/s: {limited:.0} Mbit/s");
        ensure!(limited > 100.0, "{limited} Mbit/s");
        Ok(())
    })
}
