//! Random messages, checked against a plan that every rank computes.

use std::collections::VecDeque;

use super::owned::{Sending, bytes, random};
use super::{Member, Receiving};
use crate::{ANY_SOURCE, ANY_TAG, Envelope, Group, Pattern};

#[derive(Clone, Copy, Debug)]
struct Planned {
    from: u32,
    to: u32,
    channel: usize,
    tag: i32,
    len: usize,
    synchronous: bool,
    seed: u64,
}

fn plan(m: &Member, seed: u64, steps: usize) -> Vec<Vec<Planned>> {
    let limits = m.protocol_limits();
    let one = |from: u32| {
        let mut state = seed * 1000 + u64::from(from) + 1;
        let step = |_| {
            state = random(random(state));
            let pick = |shift: u32, below: u64| (state >> shift) % below;
            let len = match pick(4, 40) {
                0 => m.rendezvous_len() + pick(8, 1000) as usize,
                1 => limits[0],
                2 => limits[0] + 1,
                3..10 => pick(8, 4000) as usize,
                _ => pick(8, 100) as usize,
            };
            let to = pick(20, u64::from(m.size)) as u32;
            let (channel, tag) = (pick(28, 3) as usize, pick(36, 4) as i32);
            Planned { from, to, channel, tag, len, synchronous: pick(44, 5) == 0, seed: state | 1 }
        };
        (0..steps).map(step).collect()
    };
    (0..m.size).map(one).collect()
}

/// The messages that must still arrive on one channel, by sender, in the order in which they are sent.
struct Expected {
    by_source: Vec<VecDeque<Planned>>,
}

impl Expected {
    fn new(plan: &[Vec<Planned>], me: u32, channel: usize) -> Self {
        let is_ours = |p: &&Planned| p.to == me && p.channel == channel;
        Expected { by_source: plan.iter().map(|of| of.iter().filter(is_ours).copied().collect()).collect() }
    }

    /// Checks a message that a receive with this tag got, and removes it.
    fn check(&mut self, tag: i32, envelope: &Envelope, got: &[u8]) {
        let queue = &mut self.by_source[envelope.source as usize];
        let at = queue.iter().position(|p| tag == ANY_TAG || p.tag == tag).expect("a message of the plan");
        let planned = queue.remove(at).expect("it was found there");
        assert_eq!((envelope.tag, envelope.bytes), (planned.tag, planned.len), "{planned:?}");
        assert!(got == bytes(planned.seed, planned.len), "the content of {planned:?}");
    }

    fn all(&self) -> Vec<Planned> {
        self.by_source.iter().flatten().copied().collect()
    }
}

/// Messages with random sizes, modes, tags and channels. Receives on the first channel accept any message, receives on
/// the second channel name source and tag, and messages of the third channel are probed first.
pub(super) fn random_traffic_matches_its_plan(m: &Member) {
    let everybody = Group::Range { first: 0, len: m.size };
    let members: Vec<Member> = (0..3).map(|i| m.join_also(500 + i, everybody.clone(), m.rank)).collect();
    for seed in 1..4 {
        round(m, &members, seed);
        m.barrier();
    }
}

fn round(m: &Member, members: &[Member], seed: u64) {
    let plan = plan(m, seed, 400);
    let mut expected: Vec<Expected> = (0..3).map(|channel| Expected::new(&plan, m.rank, channel)).collect();
    let room = m.rendezvous_len() + 1000;
    let mut any_left = expected[0].all().len();
    let mut exact_left: VecDeque<Planned> = expected[1].all().into();
    let mut posted: [Vec<(i32, Receiving<u8>)>; 2] = Default::default();
    let mut probes_left = expected[2].all().len();
    let mut sends: Vec<(usize, Sending<u8>)> = Vec::new();
    let mut state = seed + u64::from(m.rank) * 77;
    let mut take_probed = |on: &Member, wait: bool| {
        let any = Pattern { source: ANY_SOURCE, tag: ANY_TAG };
        let found =
            if wait { on.engine.probe(&on.world, any).map(Some) } else { on.engine.iprobe(&on.world, any) };
        let Some(envelope) = found.unwrap() else { return false };
        let (same, got) = on.recv::<u8>(envelope.source as i32, envelope.tag, envelope.bytes);
        assert_eq!(same, envelope);
        expected[2].check(envelope.tag, &envelope, &got);
        true
    };
    for planned in &plan[m.rank as usize] {
        let (member, data) = (&members[planned.channel], bytes(planned.seed, planned.len));
        let send = if planned.synchronous { Member::issend } else { Member::isend };
        sends.push((planned.channel, send(member, planned.to, planned.tag, data)));
        state = random(state | 1);
        match state >> 20 & 3 {
            0 if any_left > 0 => {
                any_left -= 1;
                posted[0].push((ANY_TAG, members[0].irecv(ANY_SOURCE, ANY_TAG, room)));
            }
            1 => posted[1].extend(
                exact_left.pop_front().map(|p| (p.tag, members[1].irecv(p.from as i32, p.tag, room))),
            ),
            2 if probes_left > 0 && take_probed(&members[2], false) => probes_left -= 1,
            _ => (),
        }
    }
    posted[0].extend((0..any_left).map(|_| (ANY_TAG, members[0].irecv(ANY_SOURCE, ANY_TAG, room))));
    posted[1].extend(exact_left.into_iter().map(|p| (p.tag, members[1].irecv(p.from as i32, p.tag, room))));
    (0..probes_left).for_each(|_| assert!(take_probed(&members[2], true)));
    for (channel, receives) in posted.into_iter().enumerate() {
        for (tag, receive) in receives {
            let (envelope, got) = members[channel].received(receive);
            expected[channel].check(tag, &envelope, &got);
        }
    }
    for (channel, send) in sends {
        send.wait(&members[channel]).unwrap();
    }
    assert!(expected.iter().all(|e| e.all().is_empty()));
}
