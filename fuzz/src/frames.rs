use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::{ANY_SOURCE, Pattern, Started};

use crate::device::{Gets, Step, lock};
use crate::fixture::{REST, WORLD};
use crate::head_encoding::{BYTES, bind, eager, eager_sync, head, rts};
use crate::input::Input;
use crate::pending_ops::{frame, scene_with};

/// Sends frames and streamed bodies to an engine with pending sends and receives. The engine does not panic or write
/// outside of the buffers. If the peer dies, all operations that wait for it complete; other peers are not affected.
pub fn frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let gets = input.pick(&[Gets::None, Gets::Fail, Gets::Start]);
    let scene = scene_with(gets);
    let numbers = [scene.sync, scene.send, scene.recv];
    let strided = Datatype::of::<u8>().vector(100, 1, 2).expect("small numbers");
    let any = Pattern { source: ANY_SOURCE, tag: 1 };
    let more = scene.fixture.post(&scene.fixture.world, any, strided, 200, 1);
    let chars = scene.fixture.post(&scene.fixture.world, any, Datatype::primitive(Primitive::Char), 80, 20);
    let mut left: Option<usize> = None;
    for _ in 0..40 {
        if input.is_empty() {
            break;
        }
        // The steps keep the call order that `Sink` requires of a device.
        let steps = match (left, input.below(9)) {
            // Completes or quiesces a pending device operation, or an arbitrary token.
            (_, 8) => {
                let pending = lock(&scene.fixture.wire.ops).iter().map(|it| it.token).collect::<Vec<_>>();
                let token = if input.flag() { input.edge() } else { engine_like_token(input.below(4)) };
                let token = if pending.is_empty() || input.flag() { token } else { input.pick(&pending) };
                let end =
                    if input.flag() { Step::Quiesced(token) } else { Step::Completed(token, input.flag()) };
                vec![end]
            }
            (None, 0..6) => {
                let head = any_head(&mut input, numbers);
                vec![frame(head, body_len(&mut input))]
            }
            (None, _) => {
                let len = if input.below(8) == 7 { input.edge() as usize } else { input.below(2000) };
                left = Some(len);
                vec![Step::Begin(1, any_head(&mut input, numbers), len)]
            }
            (Some(rest), 0..5) => {
                let len = body_len(&mut input).min(rest);
                left = Some(rest - len);
                vec![Step::Bytes(1, vec![3; len])]
            }
            (Some(rest), 5 | 6) if rest <= 4000 => {
                left = None;
                vec![Step::Bytes(1, vec![4; rest]), Step::Landed(1)]
            }
            (Some(_), _) => {
                left = None;
                vec![Step::Lost(1)]
            }
        };
        scene.fixture.play(steps);
    }
    if left.is_some() {
        scene.fixture.play([Step::Lost(1)]);
    }
    let death = scene.fixture.death();
    // Finally the device fails every operation, and reports all memory as quiesced.
    loop {
        let completions = lock(&scene.fixture.wire.ops)
            .iter()
            .map(|it| Step::Completed(it.token, false))
            .collect::<Vec<_>>();
        let quiescing = std::mem::take(&mut *lock(&scene.fixture.wire.quiescing));
        if completions.is_empty() && quiescing.is_empty() {
            break;
        }
        scene.fixture.play(completions.into_iter().chain(quiescing.into_iter().map(Step::Quiesced)));
    }
    assert!(death.is_none_or(|rank| rank == 1), "{death:?}");
    for posted in [scene.receive, scene.rendezvous, more, chars] {
        let ended = posted.finish();
        assert!(death.is_none() || ended.is_some(), "a receive hangs");
    }
    for send in scene.sends {
        let Started::Pending(completion) = send else { panic!("the send is complete") };
        assert!(death.is_none() || completion.outcome().is_some(), "a send hangs");
    }
    scene.fixture.assert_others_communicate();
    drop(scene.fixture.sent());
}

/// Returns the token that the engine gives to the first operation at this index of its table.
fn engine_like_token(index: usize) -> u64 {
    1 << 32 | index as u64
}

fn body_len(input: &mut Input<'_>) -> usize {
    if input.flag() { input.below(1000) } else { input.pick(&[0, 8, 50, 900, 901]) }
}

fn any_head(input: &mut Input<'_>, numbers: [u64; 3]) -> Vec<u8> {
    let channel = if input.below(8) == 7 { input.u16() } else { input.below(3) as u16 };
    let number = |input: &mut Input<'_>| {
        if input.flag() { input.pick(&numbers) } else { input.edge() }
    };
    match input.below(10) {
        0 => bind(channel, input.pick(&[WORLD, REST, 70, 71]), input.below(6) as u32),
        1 => eager(channel),
        2 => eager_sync(channel, number(input)),
        3 => rts(channel, number(input), input.edge()),
        4 => input.bytes(57).to_vec(),
        _ => {
            let kind = input.below(12) as u8;
            let code = if input.flag() { BYTES as u8 } else { input.byte() % 30 };
            let tag = if input.below(8) == 7 { input.u32().cast_signed() } else { input.below(3) as i32 };
            let words = [number(input), number(input), number(input), input.edge()];
            let mut head = head(kind, code, channel, tag, words);
            if input.below(8) == 7 {
                head.truncate(8);
            }
            head
        }
    }
}
