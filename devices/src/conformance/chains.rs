//! Sends of chains: any number of pieces, with boundaries anywhere.

use mpj_datatypes::Datatype;

use super::Member;
use super::owned::{Layout, Sending, bytes, random};
use super::sizes::lengths;
use crate::Mode;

/// Returns boundaries that cut `len` bytes into `pieces` pieces, some of which may be empty.
fn cuts(seed: u64, len: usize, pieces: usize) -> Vec<usize> {
    let mut state = seed | 1;
    let mut cuts: Vec<usize> = (1..pieces)
        .map(|_| {
            state = random(state);
            (state >> 11) as usize % (len + 1)
        })
        .collect();
    cuts.sort_unstable();
    cuts
}

fn start(m: &Member, to: u32, tag: i32, data: &[u8], pieces: usize, mode: Mode) -> Sending<u8> {
    let cuts = cuts(data.len() as u64 + u64::from(m.rank), data.len(), pieces);
    let byte = Datatype::of::<u8>();
    Sending::in_pieces(data, &cuts, &byte, |source| m.start_source(to, tag, source, mode)).unwrap()
}

fn data(rank: u32, tag: i32, len: usize) -> Vec<u8> {
    bytes(u64::from(rank + 1) << 40 | (tag as u64) << 32 | len as u64, len)
}

pub(super) fn chains_of_every_size_arrive(m: &Member) {
    for (tag, len) in (0..).zip(lengths(m)) {
        for (mode, pieces) in
            [(Mode::Standard, tag as usize % 40 + 1), (Mode::Synchronous, 40 - tag as usize % 39)]
        {
            let expected = m.irecv::<u8>(m.previous() as i32, tag, len);
            m.barrier();
            let sends = [(); 2].map(|()| start(m, m.next(), tag, &data(m.rank, tag, len), pieces, mode));
            m.barrier();
            let wanted = data(m.previous(), tag, len);
            assert!(m.received(expected).1 == wanted, "{len} bytes in {pieces} pieces, expected");
            let (_, unexpected) = m.recv::<u8>(m.previous() as i32, tag, len);
            assert!(unexpected == wanted, "{len} bytes in {pieces} pieces, unexpected");
            sends.into_iter().for_each(|send| send.wait(m).unwrap());
        }
    }
}

/// Messages with more pieces than one system call accepts, and with more pieces than bytes.
pub(super) fn chains_of_many_pieces_arrive(m: &Member) {
    for (tag, (len, pieces)) in
        (0..).zip([(0, 3), (5, 100), (3000, 3000), (m.rendezvous_len(), 70), (m.rendezvous_len(), 5000)])
    {
        let send = start(m, m.next(), tag, &data(m.rank, tag, len), pieces, Mode::Standard);
        let (_, got) = m.recv::<u8>(m.previous() as i32, tag, len);
        assert!(got == data(m.previous(), tag, len), "{len} bytes in {pieces} pieces");
        send.wait(m).unwrap();
    }
}

pub(super) fn chains_to_self_arrive(m: &Member) {
    let me = m.rank as i32;
    for (tag, len) in (0..).zip([0, 1, 40, 4096, m.rendezvous_len()]) {
        let wanted = data(m.rank, tag, len);
        for mode in [Mode::Standard, Mode::Synchronous] {
            let send = start(m, m.rank, tag, &wanted, 7, mode);
            assert!(m.recv::<u8>(me, tag, len).1 == wanted, "{len} bytes, {mode:?}, unexpected");
            send.wait(m).unwrap();
            let receive = m.irecv::<u8>(me, tag, len);
            start(m, m.rank, tag, &wanted, 7, mode).wait(m).unwrap();
            assert!(m.received(receive).1 == wanted, "{len} bytes, {mode:?}, expected");
        }
    }
}

/// Pieces may end within an item. The message matches a receive with another layout.
pub(super) fn chains_match_strided_receives(m: &Member) {
    let number = Datatype::of::<f64>();
    for (tag, count) in (0..).zip([1, 30, m.rendezvous_len() / 8 + 1]) {
        let items = |rank: u32| (0..count).map(move |i| f64::from(rank) * 1e6 + i as f64);
        let packed: Vec<u8> = items(m.rank).flat_map(f64::to_ne_bytes).collect();
        let cuts = cuts(count as u64, packed.len(), 19);
        let send = Sending::in_pieces(&packed, &cuts, &number, |source| {
            m.start_source(m.next(), tag, source, Mode::Standard)
        });
        let third = number.vector(count, 1, 3).unwrap();
        let got = m.recv_into(m.previous() as i32, tag, vec![-1.0; 3 * count], Layout::typed(1, &third));
        send.unwrap().wait(m).unwrap();
        assert!(got.iter().step_by(3).copied().eq(items(m.previous())), "{count} items");
        assert!(got.iter().enumerate().all(|(at, x)| at % 3 == 0 || *x == -1.0));
    }
}
