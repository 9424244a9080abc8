//! Views of one slice can be read and written at the same time. A written view that overlaps another one is rejected,
//! and each message accesses only its own bytes.

use mpj::{Datatype, SplitViews, SplitViewsError, ViewId, ViewMut, ViewSpec, World};
use proptest::collection::vec;
use proptest::prelude::*;

/// A view of `rounds` times `count` blocks of `block` elements.
#[derive(Clone, Copy, Debug)]
struct Spec {
    offset: usize,
    block: usize,
    count: usize,
    stride: isize,
    rounds: usize,
    /// In bytes, so that views can also start inside elements.
    step: i64,
}

impl Spec {
    fn piece(self) -> ViewSpec {
        let inner = Datatype::of::<u16>().vector(self.count, self.block, self.stride);
        let outer = inner.and_then(|inner| inner.hvector(self.rounds, 1, self.step));
        ViewSpec::new(self.offset, &outer.expect("small numbers"), 1)
    }

    fn bytes(self) -> Vec<i64> {
        let mut bytes = Vec::new();
        for round in 0..self.rounds as i64 {
            for i in 0..self.count as i64 {
                let start = 2 * (self.offset as i64 + i * self.stride as i64) + round * self.step;
                bytes.extend(start..start + 2 * self.block as i64);
            }
        }
        bytes
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let numbers = (0..36usize, 1..4usize, 1..4usize, -9..9isize, 1..3usize, -20..20i64);
    numbers.prop_map(|(offset, block, count, stride, rounds, step)| Spec {
        offset,
        block,
        count,
        stride,
        rounds,
        step,
    })
}

const LEN: usize = 40;

/// Computes the expected verdict byte by byte, from the views that use each byte.
fn is_valid(written: &[Spec], read: &[Spec]) -> bool {
    let mut named = [0u32; 2 * LEN];
    let mut claim = |spec: &Spec, mark: u32, refuses: u32| {
        for byte in spec.bytes() {
            let Some(by) = usize::try_from(byte).ok().and_then(|byte| named.get_mut(byte)) else {
                return false;
            };
            if *by & refuses != 0 {
                return false;
            }
            *by |= mark;
        }
        true
    };
    const WRITTEN: u32 = 1 << 31;
    written.iter().all(|spec| claim(spec, WRITTEN, WRITTEN))
        && read.iter().zip(0..).all(|(spec, at)| claim(spec, 1 << at, WRITTEN | 1 << at))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verdict_equals_that_of_a_byte_map(written in vec(spec(), 0..3), read in vec(spec(), 0..3)) {
        let pieces = |specs: &[Spec]| specs.iter().map(|spec| spec.piece()).collect::<Vec<_>>();
        let described = SplitViews::<u16>::new(LEN, &pieces(&written), &pieces(&read));
        prop_assert_eq!(described.is_ok(), is_valid(&written, &read), "{:?}", described.err());
        let Ok(described) = described else { return Ok(()) };
        mpj::threads(1, |world| exchange(&world, &described, &written, &read)).expect("all sizes fit");
    }
}

/// Sends every read view, and receives new bytes into every write view, all at the same time.
fn exchange(world: &World, pieces: &SplitViews<u16>, written: &[Spec], read: &[Spec]) -> mpj::Result<()> {
    let mut slice: Vec<u16> = (0..LEN as u16).map(|i| 0x0101 * i).collect();
    let before: Vec<u8> = slice.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let mut expected = before.clone();
    let news: Vec<Vec<u16>> = (0..written.len())
        .map(|at| (0..written[at].bytes().len() / 2).map(|i| 0xA000 + (at * 256 + i) as u16).collect())
        .collect();
    for (spec, news) in written.iter().zip(&news) {
        let news = news.iter().flat_map(|x| x.to_ne_bytes());
        for (byte, new) in spec.bytes().into_iter().zip(news) {
            expected[byte as usize] = new;
        }
    }
    let mut got: Vec<Vec<u16>> = read.iter().map(|spec| vec![0; spec.bytes().len() / 2]).collect();
    let (mut into, from) = pieces.split(&mut slice)?;
    world.scope(|s| {
        let mut receives = Vec::new();
        for (view, tag) in into.iter_mut().zip(0..) {
            receives.push(s.irecv(view, 0, tag)?);
        }
        for (view, tag) in from.iter().zip(100..) {
            s.isend(view, 0, tag)?;
        }
        for (news, tag) in news.iter().zip(0..) {
            s.isend(news, 0, tag)?;
        }
        for (got, tag) in got.iter_mut().zip(100..) {
            world.recv(got, 0, tag)?;
        }
        receives.into_iter().try_for_each(|receive| receive.wait().map(|_| ()))
    })?;
    for (spec, got) in read.iter().zip(got) {
        let sent: Vec<u8> = spec.bytes().into_iter().map(|byte| before[byte as usize]).collect();
        assert_eq!(got.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), sent);
    }
    assert_eq!(slice.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), expected);
    Ok(())
}

#[test]
fn error_names_the_views_and_the_first_overlap() {
    let column = Datatype::of::<f64>().vector(3, 1, 4).expect("a column");
    let row = Datatype::of::<f64>().contiguous(4).expect("a row");
    let at = |offset, datatype| ViewSpec::new(offset, datatype, 1);
    let meet = SplitViews::<f64>::new(12, &[at(0, &row), at(1, &column)], &[]).unwrap_err();
    assert_eq!(meet.to_string(), "write view 0 and write view 1 overlap at element 1");
    let meet = SplitViews::<f64>::new(12, &[at(0, &column)], &[at(1, &column), at(8, &row)]).unwrap_err();
    assert_eq!(meet.to_string(), "write view 0 and read view 1 overlap at element 8");
    let shared = SplitViews::<f64>::new(12, &[], &[at(0, &column), at(8, &row)]);
    assert!(shared.is_ok(), "to read, they may share an element");
    let twice = Datatype::of::<f64>().vector(3, 1, 0).expect("one element three times");
    let own = SplitViews::<f64>::new(12, &[], &[at(3, &twice)]).unwrap_err();
    assert_eq!(own.to_string(), "read view 0 contains element 3 more than once");
    let outside = SplitViews::<f64>::new(11, &[at(0, &column)], &[at(3, &column)]).unwrap_err();
    assert!(matches!(outside, SplitViewsError::OutOfSlice { piece: ViewId::Read(0), .. }));
    assert_eq!(outside.to_string(), "read view 0: the items have bytes 24..96, the slice has 88 bytes");
    let other = SplitViews::<f32>::new(12, &[at(0, &column)], &[]).unwrap_err().to_string();
    assert_eq!(
        other,
        "write view 0: the datatype (of f64) does not consist of whole elements of the slice (of f32)"
    );
    let fits =
        SplitViews::<f64>::new(12, &[at(0, &column)], &[at(1, &column)]).expect("columns side by side");
    let short = fits.split(&mut [0.0; 11]).unwrap_err();
    assert_eq!(short.to_string(), "the items have bytes 0..96, the slice has 88 bytes");
}

#[test]
fn empty_views_overlap_no_view() {
    let nothing = Datatype::of::<i32>().contiguous(0).expect("no elements");
    let all = Datatype::of::<i32>().contiguous(3).expect("three elements");
    let none = ViewSpec::new(1, &nothing, 1);
    let pieces = SplitViews::<i32>::new(3, &[ViewSpec::new(0, &all, 1), none.clone()], &[none])
        .expect("nothing meets");
    let (written, read) = pieces.split(&mut [0; 3]).map(|(w, r)| (w.len(), r.len())).expect("long enough");
    assert_eq!((written, read), (2, 1));
}

#[test]
fn hostile_numbers_are_rejected_in_bounded_time() {
    let endless = Datatype::of::<u8>().hvector(1 << 60, 1, 0).expect("one byte, for ever");
    for (written, read) in
        [(&[ViewSpec::new(0, &endless, 1)][..], &[][..]), (&[], &[ViewSpec::new(0, &endless, 1)])]
    {
        let refused = SplitViews::<u8>::new(1, written, read).unwrap_err();
        assert!(matches!(refused, SplitViewsError::Overlap { element: 0, .. }));
    }
    let byte = Datatype::of::<u8>();
    assert!(SplitViews::<u8>::new(10, &[ViewSpec::new(usize::MAX, &byte, 1)], &[]).is_err());
    assert!(SplitViews::<u8>::new(10, &[ViewSpec::new(0, &byte, usize::MAX)], &[]).is_err());
    let endless = Datatype::of::<char>().hvector(1 << 60, 1, 0).expect("one char, for ever");
    let shifted = endless.hindexed(&[(1, 2)]).and_then(|shifted| shifted.hindexed(&[(1, 2)])).expect("fits");
    assert!(ViewMut::new(&mut ['a'; 2], 0, &endless, 1).is_ok());
    assert!(ViewMut::new(&mut ['a'; 2], 0, &shifted, 1).is_err());
    assert!(SplitViews::<u64>::new(usize::MAX, &[ViewSpec::new(5, &Datatype::of::<u64>(), 1)], &[]).is_ok());
    // A char across two chars could be invalid.
    let across = Datatype::of::<char>().hvector(1, 1, 0).and_then(|c| Datatype::hindexed(&c, &[(1, 2)]));
    let across = across.expect("two bytes on");
    assert!(SplitViews::<char>::new(4, &[], &[ViewSpec::new(0, &across, 1)]).is_ok());
    assert!(SplitViews::<char>::new(4, &[ViewSpec::new(0, &across, 1)], &[]).is_err());
}

/// The rest gives exactly the ranges without an element that a view writes.
#[test]
fn rest_has_exactly_the_unwritten_elements() {
    proptest!(|(written in vec(spec(), 0..3))| {
        prop_assume!(is_valid(&written, &[]));
        let specs: Vec<ViewSpec> = written.iter().map(|spec| spec.piece()).collect();
        let views = SplitViews::<u16>::new(LEN, &specs, &[]).expect("valid views");
        let is_written: Vec<bool> = (0..LEN as i64)
            .map(|at| written.iter().any(|spec| spec.bytes().iter().any(|byte| byte.div_euclid(2) == at)))
            .collect();
        let mut slice: Vec<u16> = (0..LEN as u16).collect();
        let expected = slice.clone();
        let (_writes, _, rest) = views.split_with_rest(&mut slice).expect("long enough");
        for start in 0..=LEN {
            for end in start..=LEN {
                let wanted = (!is_written[start..end].contains(&true)).then(|| &expected[start..end]);
                // An empty range inside a written run may be refused.
                if start < end {
                    prop_assert_eq!(rest.get(start..end), wanted);
                }
            }
        }
        prop_assert!(rest.get(0..LEN + 1).is_none() && rest.get(LEN + 1..LEN + 1).is_none());
    });
}
