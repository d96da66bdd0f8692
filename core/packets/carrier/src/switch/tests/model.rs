//! The switch against a model: a list of what was sent and not yet seen.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wire::relay::Decoder;

use crate::switch::*;

#[derive(Clone, Debug)]
enum Step {
    Admit(u8),
    Remove(u8),
    Send { from: u8, to: u8, len: usize },
    Poll { of: u8, len: usize },
    Pass(u64),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let lens = prop_oneof![4 => 1_usize..1500, 1 => 1500_usize..65_000];
    prop_oneof![
        2 => (0_u8..6).prop_map(Step::Admit),
        1 => (0_u8..6).prop_map(Step::Remove),
        12 => (0_u8..6, 0_u8..7, lens).prop_map(|(from, to, len)| Step::Send { from, to, len }),
        4 => (0_u8..6, 1_usize..100_000).prop_map(|(of, len)| Step::Poll { of, len }),
        2 => (0_u64..40).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
    ]
}

/// What is known outside: who is connected, and the numbers that each pair's datagrams had.
#[derive(Default)]
struct Model {
    now_ms: u64,
    ids: BTreeMap<u8, ConnectionId>,
    number: u32,
    /// By pair: numbers that were taken and may still come, and by which connection.
    pending: BTreeMap<(u8, u8), Vec<(u32, ConnectionId)>>,
    out: u64,
    told: u64,
}

impl Model {
    fn now(&self) -> Instant {
        Instant(1_000_000_000_000 + self.now_ms * 1_000_000)
    }

    fn send(&mut self, switch: &mut Switch, from: u8, to: u8, len: usize) {
        let Some(id) = self.ids.get(&from) else { return };
        self.number += 1;
        let mut datagram = vec![0; len.max(4)];
        datagram[..4].copy_from_slice(&self.number.to_le_bytes());
        let frame = Frame::Send { to: &[to; 32], datagram: &datagram };
        match switch.handle_frame(*id, &frame, self.now()) {
            Handled::Absent(key) => {
                assert!(!self.ids.contains_key(&to), "it is here");
                assert_eq!(key, PublicKey([to; 32]));
                let before = switch.counters().gone;
                switch.handle_absent(*id, &key, self.now());
                self.told += switch.counters().gone - before;
            }
            _ => self.pending.entry((from, to)).or_default().push((self.number, *id)),
        }
    }

    fn poll(&mut self, switch: &mut Switch, of: u8, len: usize) {
        let Some(id) = self.ids.get(&of) else { return };
        let mut bytes = Vec::new();
        switch.poll_frames(*id, &mut bytes, len, self.now());
        let (mut decoder, mut rest) = (Decoder::default(), &bytes[..]);
        while !rest.is_empty() {
            let room = decoder.room();
            let len = room.len().min(rest.len());
            room[..len].copy_from_slice(&rest[..len]);
            decoder.fill(len);
            rest = &rest[len..];
            while let Some(place) = decoder.poll_frame().unwrap() {
                self.see(of, &decoder.frame(&place));
            }
        }
        assert!(decoder.is_empty(), "whole frames only");
    }

    fn see(&mut self, of: u8, frame: &Frame<'_>) {
        match frame {
            Frame::Received { from, datagram } => {
                let number = u32::from_le_bytes(datagram[..4].try_into().unwrap());
                let pending = self.pending.get_mut(&(from[0], of)).expect("somebody sent it");
                let sent = pending.iter().find(|sent| sent.0 == number);
                let by = sent.expect("once, and not after a newer one of its connection").1;
                pending.retain(|sent| sent.1 != by || sent.0 > number);
                self.out += 1;
            }
            Frame::Gone(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever happens: in = out + queued + drops, what comes out went in, once, in the order of
    /// its connection, and every bound holds (threats RL-02, RL-03, RL-05).
    #[test]
    fn what_goes_in_comes_out_waits_or_is_counted(
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let (mut switch, mut model) = (Switch::new(), Model::default());
        for step in steps {
            match step {
                Step::Admit(who) => match switch.admit(PublicKey([who; 32]), model.now()) {
                    Ok(admitted) => {
                        prop_assert_eq!(admitted.replaced, model.ids.insert(who, admitted.id));
                        model.pending.retain(|(_, to), _| *to != who);
                    }
                    Err(Refusal::Quarantined(old)) => {
                        prop_assert_eq!(old, model.ids.remove(&who));
                    }
                    Err(Refusal::Full) => prop_assert!(false, "there is room"),
                },
                Step::Remove(who) => {
                    if let Some(id) = model.ids.remove(&who) {
                        switch.remove(id);
                    }
                }
                Step::Send { from, to, len } => model.send(&mut switch, from, to, len),
                Step::Poll { of, len } => model.poll(&mut switch, of, len),
                Step::Pass(ms) => model.now_ms += ms,
                Step::Sweep => {
                    for id in switch.handle_timeout(model.now()) {
                        model.ids.retain(|_, known| *known != id);
                    }
                }
            }
            let counters = *switch.counters();
            let waiting = switch.queued();
            prop_assert_eq!(counters.received, counters.sent + waiting + counters.dropped_all());
            prop_assert!(counters.sent + counters.gone <= counters.received);
            prop_assert_eq!((counters.sent, counters.gone), (model.out, model.told));
            prop_assert_eq!(switch.len(), model.ids.len());
            prop_assert!(switch.queued_bytes() <= model.ids.len() * (QUEUE_LEN_MAX));
            prop_assert_eq!(switch.queued_bytes() == 0, waiting == 0);
        }
    }
}
