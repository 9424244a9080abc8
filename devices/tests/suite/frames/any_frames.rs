//! Random frames and bodies from one peer.

use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::{ANY_SOURCE, Pattern, Started};
use proptest::prelude::*;

use super::device::Step;
use super::fixture::{REST, WORLD};
use super::head_encoding::*;
use super::pending_ops::{frame, scene};

fn edge_word() -> impl Strategy<Value = u64> {
    let edges =
        vec![0, 1, 2, 8, 64, 899, 900, 901, 1 << 31, 1 << 32, 1 << 32 | 1, 2 << 32, 1 << 63, u64::MAX];
    prop_oneof![4 => prop::sample::select(edges), 1 => any::<u64>(), 2 => (1..4u64).prop_map(|i| 1 << 32 | i)]
}

fn long_head() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::array::uniform4(edge_word());
    let channel = prop_oneof![8 => 0..3u16, 1 => any::<u16>()];
    let tag = prop_oneof![4 => 0..4i32, 1 => any::<i32>()];
    (0..12u8, prop_oneof![3 => 0..20u8, 1 => any::<u8>()], channel, tag, words)
        .prop_map(|(kind, code, channel, tag, words)| head(kind, code, channel, tag, words))
}

fn any_head() -> impl Strategy<Value = Vec<u8>> {
    let bound = (0..3u16, prop::sample::select(vec![WORLD, REST, 70, 71]), 0..5u32)
        .prop_map(|(channel, context, rank)| bind(channel, context, rank));
    prop_oneof![
        8 => long_head(),
        2 => long_head().prop_map(|head| head[..8].to_vec()),
        1 => (long_head(), any::<[u8; 4]>()).prop_map(|(head, immediate)| [&head[..8], &immediate].concat()),
        3 => bound,
        1 => prop::collection::vec(any::<u8>(), 0..57),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let body = || prop_oneof![Just(0usize), 1..1000usize];
    prop_oneof![
        6 => (any_head(), body()).prop_map(|(head, len)| frame(head, len)),
        2 => (any_head(), prop_oneof![4 => 0..2000usize, 1 => any::<usize>()])
            .prop_map(|(head, len)| Step::Begin(1, head, len)),
        2 => body().prop_map(|len| Step::Bytes(1, vec![3; len])),
        2 => Just(Step::Landed(1)),
        1 => Just(Step::Lost(1)),
    ]
}

/// Drops and completes steps so that they follow the call order that [`mpj_devices::Sink`] requires of a device, except
/// that frames can follow a loss.
fn well_ordered(steps: Vec<Step>) -> Vec<Step> {
    let mut left: Option<usize> = None;
    let mut out = Vec::new();
    for step in steps {
        match (step, &mut left) {
            (Step::Begin(from, head, len), None) => {
                left = Some(len);
                out.push(Step::Begin(from, head, len));
            }
            (Step::Bytes(from, mut bytes), Some(left)) => {
                bytes.truncate(*left);
                *left -= bytes.len();
                out.push(Step::Bytes(from, bytes));
            }
            (Step::Landed(from), Some(rest)) if *rest <= 4000 => {
                out.push(Step::Bytes(from, vec![4; *rest]));
                out.push(Step::Landed(from));
                left = None;
            }
            (Step::Lost(from), _) => {
                out.push(Step::Lost(from));
                left = None;
            }
            (step @ Step::Frame(..), None) => out.push(step),
            _ => (),
        }
    }
    out.extend(left.map(|_| Step::Lost(1)));
    out
}

fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases.max(2000), failure_persistence: None, ..config }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_frames_fail_at_most_their_sender(steps in prop::collection::vec(any_step(), 1..40)) {
        let scene = scene();
        let strided = Datatype::of::<u8>().vector(100, 1, 2).unwrap();
        let any = Pattern { source: ANY_SOURCE, tag: 1 };
        let more = scene.fixture.post(&scene.fixture.world, any, strided, 200, 1);
        let chars = scene.fixture.post(&scene.fixture.world, any, Datatype::primitive(Primitive::Char), 80, 20);
        for step in well_ordered(steps) {
            scene.fixture.play([step]);
        }
        let death = scene.fixture.death();
        prop_assert!(death.is_none_or(|rank| rank == 1));
        for posted in [scene.receive, scene.rendezvous, more, chars] {
            let ended = posted.finish();
            prop_assert!(death.is_none() || ended.is_some(), "a receive hangs");
        }
        for send in scene.sends {
            let Started::Pending(completion) = send else { panic!("pending") };
            prop_assert!(death.is_none() || completion.outcome().is_some(), "a send hangs");
        }
        scene.fixture.assert_others_communicate();
    }
}
