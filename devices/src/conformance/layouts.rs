//! Strided, indexed and mixed layouts at the sender, the receiver or both.

use mpj_datatypes::Datatype;

use super::Member;
use super::owned::{Item, Layout, bytes};
use crate::{Fault, Mode};

/// A vector: `count` blocks of `block` items whose starts are `stride` items apart.
#[derive(Clone, Copy, Debug)]
struct Vector {
    count: usize,
    block: usize,
    stride: usize,
}

impl Vector {
    fn datatype<T: Item>(self) -> Datatype {
        Datatype::of::<T>().vector(self.count, self.block, self.stride as isize).unwrap()
    }

    fn positions(self, times: usize) -> impl Iterator<Item = usize> {
        let extent = (self.count - 1) * self.stride + self.block;
        let one =
            move || (0..self.count).flat_map(move |i| (0..self.block).map(move |j| i * self.stride + j));
        (0..times).flat_map(move |t| one().map(move |at| t * extent + at))
    }

    fn memory(self, times: usize) -> usize {
        self.positions(times).last().map_or(0, |last| last + 1)
    }
}

fn items(rank: u32, salt: u64, len: usize) -> Vec<f64> {
    (0..len).map(|i| f64::from(rank) * 1e6 + salt as f64 * 1e4 + i as f64).collect()
}

/// Sends to `to` and receives from `from`, and checks the received memory. `send` and `recv` are each a vector and its
/// number of repetitions. If `expected` is true, the receive is posted before the send.
fn exchange(m: &Member, to: u32, from: u32, send: (Vector, usize), recv: (Vector, usize), expected: bool) {
    let (out, into) = (send.0.memory(send.1), recv.0.memory(recv.1));
    let target = || (vec![-1.0f64; into], Layout::typed(recv.1, &recv.0.datatype::<f64>()));
    let posted = expected.then(|| {
        let (memory, layout) = target();
        m.post(from as i32, 1, memory, layout)
    });
    m.barrier();
    let layout = Layout::typed(send.1, &send.0.datatype::<f64>());
    let sending = m.start(to, 1, items(m.rank, 3, out), layout, Mode::Standard).unwrap();
    let got = match posted {
        Some(posted) => {
            let (outcome, memory) = posted.wait(m);
            outcome.unwrap();
            memory
        }
        None => {
            let (memory, layout) = target();
            m.recv_into(from as i32, 1, memory, layout)
        }
    };
    sending.wait(m).unwrap();
    let theirs = items(from, 3, out);
    let mut wanted = vec![-1.0; into];
    for (at, source) in recv.0.positions(recv.1).zip(send.0.positions(send.1)) {
        wanted[at] = theirs[source];
    }
    assert!(got == wanted, "{send:?} to {recv:?}, expected: {expected}");
}

fn exchanges(m: &Member, to: u32, from: u32, scale: usize) {
    let dense = |len| Vector { count: 1, block: len, stride: len };
    let narrow = Vector { count: 6 * scale, block: 1, stride: 3 };
    let wide = Vector { count: 2 * scale, block: 3, stride: 7 };
    for expected in [true, false] {
        exchange(m, to, from, (narrow, 2), (dense(12 * scale), 1), expected);
        exchange(m, to, from, (dense(12 * scale), 1), (narrow, 2), expected);
        exchange(m, to, from, (narrow, 2), (wide, 2), expected);
        exchange(m, to, from, (wide, 1), (narrow, 3), expected);
    }
}

pub(super) fn strided_and_contiguous_layouts_match(m: &Member) {
    exchanges(m, m.next(), m.previous(), 1);
    exchanges(m, m.next(), m.previous(), 10);
}

pub(super) fn long_strided_messages_arrive(m: &Member) {
    exchanges(m, m.next(), m.previous(), m.rendezvous_len() / 8 + 1);
    exchanges(m, m.next(), m.previous(), 30_001);
}

pub(super) fn strided_messages_to_self_arrive(m: &Member) {
    for scale in [1, 10, m.rendezvous_len() / 8 + 1] {
        let narrow = Vector { count: 6 * scale, block: 1, stride: 3 };
        let wide = Vector { count: 2 * scale, block: 3, stride: 7 };
        for mode in [Mode::Standard, Mode::Synchronous] {
            let data = items(m.rank, 1, narrow.memory(1));
            let layout = Layout::typed(1, &narrow.datatype::<f64>());
            let send = m.start(m.rank, 1, data.clone(), layout, mode).unwrap();
            let memory = vec![-1.0; wide.memory(1)];
            let got = m.recv_into(m.rank as i32, 1, memory, Layout::typed(1, &wide.datatype::<f64>()));
            send.wait(m).unwrap();
            for (at, source) in wide.positions(1).zip(narrow.positions(1)) {
                assert_eq!(got[at], data[source]);
            }
        }
    }
}

/// Blocks of 1 to 7 bytes, from the highest address to the lowest.
pub(super) fn indexed_blocks_arrive(m: &Member) {
    for scale in [1, m.rendezvous_len() / 16 + 1] {
        let blocks: Vec<(usize, isize)> =
            (0..4 * scale).map(|i| (1 + i % 7, ((4 * scale - 1 - i) * 9) as isize)).collect();
        let datatype = Datatype::of::<u8>().indexed(&blocks).unwrap();
        let positions: Vec<usize> =
            blocks.iter().flat_map(|(len, at)| (0..*len).map(move |j| *at as usize + j)).collect();
        let memory = 4 * scale * 9;
        let ours = bytes(u64::from(m.rank) + 1, memory);
        let theirs = bytes(u64::from(m.previous()) + 1, memory);
        let packed: Vec<u8> = positions.iter().map(|at| theirs[*at]).collect();
        let send = m.start(m.next(), 1, ours.clone(), Layout::typed(1, &datatype), Mode::Standard).unwrap();
        assert!(m.recv::<u8>(m.previous() as i32, 1, positions.len()).1 == packed, "scale {scale}");
        send.wait(m).unwrap();
        let send = m.start(m.next(), 2, ours, Layout::typed(1, &datatype), Mode::Synchronous).unwrap();
        let got = m.recv_into(m.previous() as i32, 2, vec![0xaa; memory], Layout::typed(1, &datatype));
        send.wait(m).unwrap();
        let mut wanted = vec![0xaa; memory];
        positions.iter().for_each(|at| wanted[*at] = theirs[*at]);
        assert!(got == wanted, "scale {scale}");
    }
}

pub(super) fn structures_match_by_their_primitives(m: &Member) {
    let (int, real) = (Datatype::of::<i32>(), Datatype::of::<f64>());
    let pair = Datatype::structure(&[(1, 0, int.clone()), (1, 8, real.clone())]).unwrap();
    let swapped = Datatype::structure(&[(1, 0, real), (1, 8, int)]).unwrap().resized(0, 16).unwrap();
    let two_pairs = pair.contiguous(2).unwrap();
    let from = m.previous() as i32;
    for items in [2, m.rendezvous_len() / 24 * 2] {
        let words = |rank: u32| (0..2 * items as u64).map(move |i| u64::from(rank) << 48 | (i * 3 + 1));
        // The receive does not change the padding of a pair.
        let padded = |word: u64| {
            let mut bytes = [0xff; 8];
            bytes[..4].copy_from_slice(&word.to_ne_bytes()[..4]);
            u64::from_ne_bytes(bytes)
        };
        let wanted: Vec<u64> =
            words(m.previous()).enumerate().map(|(i, w)| if i % 2 == 0 { padded(w) } else { w }).collect();
        for (tag, layout, fits) in [
            (1, Layout::typed(items, &pair), true),
            (2, Layout::typed(items / 2, &two_pairs), true),
            (3, Layout::typed(items, &swapped), false),
        ] {
            let data: Vec<u64> = words(m.rank).collect();
            let send = m.start(m.next(), tag, data, Layout::typed(items, &pair), Mode::Synchronous).unwrap();
            let (outcome, got) = m.post(from, tag, vec![u64::MAX; 2 * items], layout).wait(m);
            if fits {
                assert_eq!(outcome.unwrap().bytes, 12 * items);
                assert!(got == wanted, "{items} pairs, tag {tag}");
            } else {
                assert!(matches!(outcome, Err(Fault::TypeMismatch { .. })), "{outcome:?}");
                assert!(got.iter().all(|w| *w == u64::MAX), "a mismatch writes nothing");
            }
            send.wait(m).unwrap();
        }
        let data: Vec<u64> = words(m.rank).collect();
        let send = m.start(m.next(), 4, data, Layout::typed(items - 1, &pair), Mode::Standard).unwrap();
        let got = m.recv_into(from, 4, vec![u64::MAX; 2 * items], Layout::typed(items, &pair));
        assert!(got[..2 * items - 2] == wanted[..2 * items - 2], "a shorter message is a prefix");
        assert_eq!(got[2 * items - 2..], [u64::MAX; 2]);
        send.wait(m).unwrap();
    }
}
